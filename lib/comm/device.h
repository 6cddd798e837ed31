/*
 * GPU memory: whether this process has any, and what a communicator knows of it.
 *
 * A process meets GPU memory only when it has loaded CUDA's driver. Until then a call pays nothing
 * where no driver is installed, and a look at the loader's counter of loaded objects where one is
 * (9 ns). Then libtiara-cuda.so is opened, and each call asks it what its buffers are.
 *
 * Agreement. Whether all ranks of a communicator have the CUDA part is agreed on when its state is
 * made and, as long as they have not, in the 1st, 2nd, 4th, 8th .. call. Whether all buffers of a
 * call are GPU memory is said in the node's shared memory (tiara_arena_say_kind), and between
 * nodes, for calls that are large enough to be worth it, agreed on. A rank whose buffers are GPU
 * memory while others' are not runs the same host path as they do, staged: it does not need to
 * agree on that with anybody.
 */
#ifndef TIARA_COMM_DEVICE_H
#define TIARA_COMM_DEVICE_H

#include "gpu/gpu.h"
#include "tune/tune.h"
#include <stdbool.h>

/* ---- the process ---- */

/* How near a process is to GPU memory; the worst of all ranks counts. */
enum tiara_device_level {
    TIARA_DEVICE_UNKNOWN, /* nobody has asked yet */
    TIARA_DEVICE_NONE, /* no driver, or told not to: there never will be any */
    TIARA_DEVICE_DRIVER, /* there is a driver, which the process does not use yet */
    TIARA_DEVICE_READY /* the CUDA part runs */
};

/* The CUDA part; NULL: this process has no GPU memory. Any thread; cheap. */
const struct tiara_gpu *tiara_device(void);
/* The same, after loading the driver if the process has not: for reports. */
const struct tiara_gpu *tiara_device_wake(void);
enum tiara_device_level tiara_device_level(void);
/* Why not, in a word or two: "not built in", "off", "no driver", "not in use", or what the CUDA
 * part said. */
const char *tiara_device_why(void);
/* Whether the MPI below takes GPU memory. */
bool tiara_device_mpi_direct(void);
/* At MPI_Finalize. */
void tiara_device_release(void);

/* ---- communicators ---- */

struct tiara_comm_device {
    bool possible; /* agreed: some rank may meet GPU memory */
    bool ready; /* agreed: all ranks have the CUDA part */
    /* agreed: GPUs of a node do not reach each other, or memory was short: staged from now on */
    bool refused;
    bool direct; /* agreed: the MPI takes GPU memory on all ranks */
    uint64_t next_agreement; /* the call in which the next agreement is */
    struct tiara_gpu_node *node;
    int ordinal; /* of the device that the node object is on */
    int order[TIARA_GPU_NODE_MAX];
    struct tiara_xport_group group; /* of the node; exchanges in the arena */
    bool staging; /* exec.stage_obj is open */
    bool closing; /* exchanges in the arena have little patience */
    bool enqueued; /* calls in streams may be running */
    struct tiara_tune_device facts; /* what tune sees of the node object */
    struct tiara_proxy *proxy; /* of calls in streams with several nodes; NULL: none so far */
};

#endif
