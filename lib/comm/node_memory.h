/*
 * Opening a node's shared memory, on all nodes of a communicator or on none.
 */
#ifndef TIARA_COMM_NODE_MEMORY_H
#define TIARA_COMM_NODE_MEMORY_H

#include "base/err.h"
#include <stddef.h>

/* Choices of TIARA_SHM and TIARA_CMA, in the table's order. */
enum tiara_shm_choice {
    TIARA_SHM_AUTO,
    TIARA_SHM_OFF
};
enum tiara_cma_choice {
    TIARA_CMA_AUTO,
    TIARA_CMA_ON,
    TIARA_CMA_OFF
};

struct tiara_comm;
struct tiara_arena;

struct tiara_node_memory {
    struct tiara_comm *c;
    struct tiara_arena *arena; /* zeroed, the caller's */
    void *cma; /* result: object of the transport cma, given; NULL: none */
};

/*
 * tiara_node_memory_open() - the arenas of all nodes of m->c
 * @cells: [ncells] sizes of a cell, tried in order while there is no room.
 * Collective over m->c->comm; the same result on all ranks.
 * Errors: TIARA_ERR_NOSPACE, TIARA_ERR_UNSUPPORTED and others of the transports: there is no way.
 * TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_node_memory_open(
    struct tiara_node_memory *m, const size_t *cells, int ncells);

#endif
