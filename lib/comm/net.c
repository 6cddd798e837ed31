/*
 * A private communicator for messages and agreements between nodes, and the transport on it.
 */
#include "comm/net.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"

/* How many low bits of a tag this MPI lets messages use. */
static uint32_t tag_bits(MPI_Comm comm)
{
    int *top, flag = 0;
    uint32_t bits = 15;

    if (PMPI_Comm_get_attr(comm, MPI_TAG_UB, &top, &flag) == MPI_SUCCESS && flag)
        while (bits < 30 && ((int64_t)1 << (bits + 1)) - 1 <= *top)
            bits++;
    return bits;
}

/* No duplicate of the program's communicator: that would run the copy functions of the program's
 * attributes. */
static int create_net(struct tiara_comm *c)
{
    MPI_Errhandler handler;
    MPI_Group members;
    int rc;

    PMPI_Comm_get_errhandler(c->comm, &handler);
    PMPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    rc = PMPI_Comm_group(c->comm, &members);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Comm_create(c->comm, members, &c->net);
        PMPI_Group_free(&members);
    }
    PMPI_Comm_set_errhandler(c->comm, handler);
    PMPI_Errhandler_free(&handler);
    if (rc != MPI_SUCCESS)
        c->net = MPI_COMM_NULL;
    return rc;
}

enum tiara_err tiara_net_open(struct tiara_comm *c)
{
    struct tiara_xport_group group = {.rank = c->rank, .size = c->size, .params = &c->net};
    enum tiara_err err;

    if (create_net(c) != MPI_SUCCESS) {
        tiara_warn(
            "MPI has no further communicator for one of %d ranks, whose calls go to it", c->size);
        return TIARA_ERR_UNSUPPORTED;
    }
    PMPI_Comm_set_errhandler(c->net, MPI_ERRORS_RETURN);
    c->agreed = tiara_alloc(2, sizeof(*c->agreed));
    c->net_obj = tiara_alloc(1, tiara_xport_mpi.size);
    err = c->agreed && c->net_obj ? tiara_xport_mpi.open(c->net_obj, &group, 0) : TIARA_ERR_NOMEM;
    c->exec.net = c->between.net = &tiara_xport_mpi;
    c->exec.net_obj = c->between.net_obj = c->net_obj;
    c->exec.tag_bits = c->between.tag_bits = tag_bits(c->net);
    return err;
}

void tiara_net_close(struct tiara_comm *c)
{
    bool is_quiet = c->state.phase != TIARA_COMM_REVOKED && c->agreed;

    if (c->net_obj)
        tiara_xport_mpi.close(c->net_obj);
    tiara_free(c->net_obj);
    tiara_free(c->agreed);
    /* A message that comes after its communicator was freed could be taken for one of the next
     * communicator. */
    if (c->net != MPI_COMM_NULL && is_quiet)
        PMPI_Comm_free(&c->net);
}
