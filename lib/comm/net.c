/*
 * The transport of messages between nodes, chosen from the table by what it can do.
 */
#include "comm/net.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "xport/mpi_comm.h"

/* Opens @row for all ranks of @c, or for none. Collective. */
static enum tiara_err open_row(struct tiara_comm *c, const struct tiara_xport *row)
{
    struct tiara_xport_group group = {.rank = c->rank,
        .size = c->size,
        .allgather = tiara_agree_exchange,
        .arg = &c->comm,
        .params = &c->comm};
    struct tiara_xport_head *head = tiara_alloc(1, row->size);
    enum tiara_err err = tiara_agree_setup_ready(c->comm, head != NULL);

    if (err == TIARA_ERR_UNSUPPORTED)
        err = TIARA_ERR_NOMEM;
    if (err == TIARA_OK)
        err = row->open(head, &group, 0);
    if (err != TIARA_OK) {
        tiara_free(head);
        return err;
    }
    /* Twins end when a rank happens to come by, others in the program's MPI_Comm_free. */
    head->end = c->twin ? TIARA_XPORT_END_ALONE : TIARA_XPORT_END_TOGETHER;
    c->net_obj = head;
    c->exec.net = c->between.net = row;
    c->exec.net_obj = c->between.net_obj = head;
    c->exec.tag_bits = c->between.tag_bits = head->tag_bits;
    return TIARA_OK;
}

/* A transport that cannot be had here leaves the next one; any other error ends the set-up. */
static bool is_refused(enum tiara_err err)
{
    return err == TIARA_ERR_UNSUPPORTED || err == TIARA_ERR_NOSPACE || err == TIARA_ERR_SYS;
}

enum tiara_err tiara_net_open(struct tiara_comm *c)
{
    const unsigned needed = TIARA_XPORT_MESSAGE | TIARA_XPORT_NODES;
    int asked = c->config.net;
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;

    if (asked >= 0)
        err = open_row(c, tiara_xport_table[asked]);
    if (asked >= 0 && is_refused(err) && c->rank == 0)
        tiara_warn("not all of %d ranks can use %s for messages (TIARA_LOG=debug says why)",
            c->size, tiara_xport_table[asked]->name);
    for (int i = 0; is_refused(err) && tiara_xport_table[i]; i++)
        if ((tiara_xport_table[i]->flags & needed) == needed && i != asked)
            err = open_row(c, tiara_xport_table[i]);
    if (err == TIARA_OK && c->device.possible && !c->twin &&
        tiara_xport_mpi_comm(c->comm, &c->apart) != MPI_SUCCESS)
        c->apart = MPI_COMM_NULL;
    return err;
}

void tiara_net_close(struct tiara_comm *c)
{
    if (c->net_obj)
        c->exec.net->close(c->net_obj);
    tiara_free(c->net_obj);
    if (c->apart != MPI_COMM_NULL)
        PMPI_Comm_free(&c->apart);
}
