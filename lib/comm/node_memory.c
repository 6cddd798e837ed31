/*
 * Opening a node's shared memory, on all nodes of a communicator or on none.
 *
 * Each node opens in its own group, so that a node where something fails does not leave another in
 * an exchange; after each try all ranks agree, and go on to the next size together. A window of the
 * MPI below would be no further way: freeing it is collective, while an arena is no longer needed
 * when this rank happens to come by.
 */
#include "comm/node_memory.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/comm.h"

static enum tiara_err node_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    return tiara_agree_exchange(*(MPI_Comm *)arg, in, out, bytes);
}

/* TIARA_OK when it is everybody's; TIARA_ERR_NOSPACE when smaller segments might cure the rest. */
static enum tiara_err agree(const struct tiara_comm *c, enum tiara_err mine)
{
    enum {
        FINE = 1,
        CURABLE = 2
    };
    uint64_t all;
    enum tiara_err err = tiara_agree_setup(c->comm,
        mine == TIARA_OK            ? FINE | CURABLE
        : mine == TIARA_ERR_NOSPACE ? CURABLE
                                    : 0,
        &all);

    if (err != TIARA_OK || all & FINE)
        return err;
    return all & CURABLE ? TIARA_ERR_NOSPACE : TIARA_ERR_UNSUPPORTED;
}

/* Tries each size of a cell; only lack of room is cured by a smaller one. */
static enum tiara_err open_sizes(struct tiara_node_memory *m, const struct tiara_xport_group *group,
    const size_t *cells, int ncells)
{
    const struct tiara_xport *row = tiara_xport_find(TIARA_XPORT_EXPOSE | TIARA_XPORT_PROCESSES);
    enum tiara_err err = TIARA_ERR_NOSPACE;

    for (int i = 0; i < ncells && err == TIARA_ERR_NOSPACE; i++) {
        err = agree(m->c, tiara_arena_open(m->arena, row, group, cells[i]));
        if (err != TIARA_OK)
            tiara_arena_close(m->arena);
    }
    return err;
}

/* Single copy, where it is asked for and allowed on every node. */
static enum tiara_err open_cma(struct tiara_node_memory *m, const struct tiara_xport_group *group)
{
    const struct tiara_xport *row = tiara_xport_find(TIARA_XPORT_GET | TIARA_XPORT_PROCESSES);
    enum tiara_err err;

    m->cma = tiara_alloc(1, row->size);
    err = agree(m->c, m->cma ? TIARA_OK : TIARA_ERR_NOMEM);
    if (err == TIARA_OK)
        err = agree(m->c, row->open(m->cma, group, 0));
    if (err == TIARA_OK)
        return TIARA_OK;
    if (m->c->rank == 0)
        tiara_warn("single copy between processes is not allowed here; cells are used");
    if (m->cma)
        row->close(m->cma);
    tiara_free(m->cma);
    m->cma = NULL;
    return err == TIARA_ERR_MPI ? err : TIARA_OK;
}

enum tiara_err tiara_node_memory_open(struct tiara_node_memory *m, const size_t *cells, int ncells)
{
    const struct tiara_comm *c = m->c;
    MPI_Comm node_comm;
    struct tiara_xport_group group = {.rank = c->node_index[c->rank],
        .size = tiara_layout_local_size(&c->layout, c->layout.node_of[c->rank]),
        .allgather = node_allgather,
        .arg = &node_comm};
    enum tiara_err err;

    if (PMPI_Comm_split(c->comm, c->layout.node_of[c->rank], c->rank, &node_comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    PMPI_Comm_set_errhandler(node_comm, MPI_ERRORS_RETURN);
    err = open_sizes(m, &group, cells, ncells);
    if (err == TIARA_OK && c->config.cma == TIARA_CMA_ON)
        err = open_cma(m, &group);
    PMPI_Comm_free(&node_comm);
    return err;
}
