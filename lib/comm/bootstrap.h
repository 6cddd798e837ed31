/*
 * What the ranks of a new communicator tell each other, and what follows from it.
 */
#ifndef TIARA_COMM_BOOTSTRAP_H
#define TIARA_COMM_BOOTSTRAP_H

#include "base/err.h"
#include "comm/config.h"
#include "topo/topo.h"
#include <mpi.h>

struct tiara_boot {
    struct tiara_topo_facts topo;
    struct tiara_config config;
    int32_t version; /* of the library */
    int32_t world_rank;
    uint32_t next_id; /* above all ids of communicators of this process */
    int16_t device; /* enum tiara_device_level */
    int16_t device_direct; /* the MPI takes GPU memory */
    int32_t threads; /* what MPI_Query_thread says */
};

struct tiara_comm;

/*
 * Sets up a new state, whose communicator, rank and size are known; @c is NULL on a rank that has
 * no memory for one. Collective over @comm. After it the state serves, or has fallen back, alike on
 * all ranks.
 * Errors: TIARA_ERR_NOMEM, agreed: a rank has no memory, and none keeps a state. TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_bootstrap(struct tiara_comm *c, MPI_Comm comm);

#endif
