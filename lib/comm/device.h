/*
 * Private to lib/core: GPU memory.
 *
 * A process meets GPU memory only when it has loaded CUDA's driver. Until then a call pays nothing
 * where no driver is installed, and a look at the loader's counter of loaded objects where one is
 * (9 ns). Then libtiara-cuda.so is opened, and each call asks it what its buffers are.
 *
 * Agreement. Whether all ranks of a communicator have the CUDA part is voted on when its state is
 * made and, as long as they have not, in the 1st, 2nd, 4th, 8th .. call. Whether all buffers of a
 * call are GPU memory is said in the node's shared memory (tiara_arena_say_kind), and between
 * nodes, for calls that are large enough to be worth it, voted on. A rank whose buffers are GPU
 * memory while others' are not runs the same host path as they do, staged: it does not need to
 * agree on that with anybody.
 */
#ifndef TIARA_COMM_DEVICE_H
#define TIARA_COMM_DEVICE_H

#include "gpu/gpu.h"
#include <stdbool.h>

struct tiara_comm;
struct tiara_call;

/* ---- the process: device.c ---- */

/* How near a process is to GPU memory; the worst of all ranks counts. */
enum tiara_device_level {
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

/* ---- communicators: device_comm.c ---- */

struct tiara_comm_device {
    bool possible; /* agreed: some rank may meet GPU memory */
    bool ready; /* agreed: all ranks have the CUDA part */
    /* agreed: GPUs of a node do not reach each other, or memory was short: staged from now on */
    bool refused;
    bool direct; /* agreed: the MPI takes GPU memory on all ranks */
    uint64_t next_vote; /* the call in which the next vote is */
    struct tiara_gpu_node *node;
    int ordinal; /* of the device that the node object is on */
    int order[TIARA_GPU_NODE_MAX];
    struct tiara_xport_group group; /* of the node; exchanges in the arena */
    bool staging; /* exec.stage_obj is open */
    bool closing; /* exchanges in the arena have little patience */
    bool enqueued; /* calls in streams may be running */
    struct tiara_proxy *proxy; /* of calls in streams with several nodes; NULL: none so far */
};

/* At set-up, from everybody's hello. */
struct tiara_hello;
void tiara_device_comm_init(struct tiara_comm *c, const struct tiara_hello *hello);
void tiara_device_comm_fini(struct tiara_comm *c);

/*
 * Says which buffers of @call are GPU memory: call->far_in, far_out, and the device. Errors:
 * TIARA_ERR_ARG, logged with rank and argument: a freed buffer, or one that is too short.
 */
TIARA_MUST_USE enum tiara_err tiara_device_classify(
    const struct tiara_comm *c, struct tiara_call *call);

/*
 * Runs @call on the GPUs if it can be on all ranks; *done_out says whether. Otherwise nothing has
 * happened, and the host path is next, on all ranks.
 * Collective. Errors: those of tiara_gpu_node_ops.run, and of the exchanges.
 */
TIARA_MUST_USE enum tiara_err tiara_device_run(
    struct tiara_comm *c, struct tiara_call *call, bool *done_out);

/*
 * What GPUs would do with @call in a stream: path MPI when they cannot. @may_set_up: takes the
 * steps that need the other ranks, collective then; they are needed on all ranks or none. Errors:
 * as tiara_device_run.
 */
struct tiara_tune_choice;
TIARA_MUST_USE enum tiara_err tiara_device_prepare_choice(struct tiara_comm *c,
    struct tiara_call *call, bool may_set_up, struct tiara_tune_choice *choice_out);
/* The prepared call, now; or in @stream, on one node. */
TIARA_MUST_USE enum tiara_err tiara_device_run_choice(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice);
TIARA_MUST_USE enum tiara_err tiara_device_enqueue_choice(struct tiara_comm *c,
    const struct tiara_call *call, const struct tiara_tune_choice *choice, void *stream);

/* ---- calls in streams: stream.c ---- */

/* Waits until no call in a stream is under way that needs this communicator's network; returns what
 * such calls have failed with, as does failed(). */
TIARA_MUST_USE enum tiara_err tiara_stream_drain(struct tiara_comm *c);
TIARA_MUST_USE enum tiara_err tiara_stream_failed(struct tiara_comm *c);
/* Only waits; the errors are kept. Nothing, when called by the thread that runs such calls. */
void tiara_stream_rest(struct tiara_comm *c);
void tiara_stream_fini(struct tiara_comm *c);

/* Makes c->exec ready to stage calls on buffers like @like. Local. Errors: TIARA_ERR_SYS,
 * TIARA_ERR_NOMEM. */
TIARA_MUST_USE enum tiara_err tiara_device_stage(struct tiara_comm *c, const void *like);
/*
 * For a call by small slots: *near_out is the call on host memory, its input fetched; small_end
 * stores its result. The room holds one call.
 * Errors: those of stage, and of the wait.
 */
TIARA_MUST_USE enum tiara_err tiara_device_small_begin(
    struct tiara_comm *c, const struct tiara_call *call, struct tiara_call *near_out);
TIARA_MUST_USE enum tiara_err tiara_device_small_end(
    struct tiara_comm *c, const struct tiara_call *call, const struct tiara_call *near);
/* Copies between host and GPU memory, in pieces through pinned memory; complete on return.
 * @to_device: @dst is GPU memory, else @src. */
TIARA_MUST_USE enum tiara_err tiara_device_copy(
    struct tiara_comm *c, void *dst, const void *src, size_t bytes, bool to_device);

#endif
