/*
 * Settings from the environment, as one process has them; the ranks of a communicator agree on rank
 * 0's.
 */
#ifndef TIARA_COMM_CONFIG_H
#define TIARA_COMM_CONFIG_H

#include "exec/trace.h"
#include <stdint.h>

/* The settings that must be equal on all ranks. Sent as bytes. */
struct tiara_config {
    int32_t algo; /* index in tiara_algo_table; -1 auto, -2 the MPI below */
    int32_t inter; /* index; -1 auto */
    int32_t leaders, slots, spin, reproducible, shm, cma;
    int32_t cuda_map, progress; /* enum tiara_progress_choice */
    int32_t net, unused; /* index in tiara_xport_table; -1 auto */
    int64_t chunk, one_shot, shm_budget, cuda_cell;
    int64_t warn_us, timeout_us;
};

/* Choices of TIARA_SHM, TIARA_CMA and TIARA_PROGRESS, in the table's order. */
enum tiara_shm_choice {
    TIARA_SHM_AUTO,
    TIARA_SHM_OFF
};
enum tiara_cma_choice {
    TIARA_CMA_AUTO,
    TIARA_CMA_ON,
    TIARA_CMA_OFF
};
enum tiara_progress_choice {
    TIARA_PROGRESS_AUTO,
    TIARA_PROGRESS_THREAD,
    TIARA_PROGRESS_CALL
};

/*
 * Reads the environment (once) and sets the log and process-wide properties that need no agreement.
 * Returns this process's node by TIARA_LAYOUT, which describes MPI_COMM_WORLD; -1 when it is not
 * set or not acceptable.
 */
int tiara_config_read(struct tiara_config *config_out);
/* The process's trace, opened by tiara_config_read when TIARA_TRACE is set; NULL: off. */
struct tiara_trace *tiara_config_trace(void);
/* Closes the trace; at MPI_Finalize. */
void tiara_config_release(void);

#endif
