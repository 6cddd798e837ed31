/*
 * The seam between libtiara and the CUDA part, a shared object of its own: libtiara-cuda.so.
 *
 * libtiara needs nothing of CUDA. It opens libtiara-cuda.so when a process has a driver
 * (comm/device.c) and takes from it the one symbol tiara_gpu, a table. The object has its own copy
 * of lib/base, so that it needs no symbol of whoever opened it; what it must share with it (log
 * level, the wait of the running call, progress, the transport to other nodes) is passed in.
 *
 * Memory that the CPU can reach (managed, pinned) counts as host memory. "Device memory" is what
 * only kernels and copies reach.
 *
 * Three ways for a call on device memory:
 *   staged   chunks go to pinned host memory and back (struct tiara_stage, exec/exec.h), everything
 *            between is the host's; always possible
 *   node     tiara_gpu_node: the node part of the plan in kernels; between nodes device memory
 *            straight to the transport, or through pinned memory
 *   stream   the same, ordered in the caller's stream
 */
#ifndef TIARA_GPU_GPU_H
#define TIARA_GPU_GPU_H

#include "base/err.h"
#include "base/log.h"
#include "base/progress.h"
#include "exec/exec.h"
#include "plan/plan.h"
#include "xport/xport.h"

#define TIARA_GPU_VERSION 1 /* of this table: both sides are built together */
#define TIARA_GPU_NODE_MAX 16 /* ranks of a node; TIARA_KERNEL_PEERS */

/* What libtiara gives to the object. */
struct tiara_gpu_host {
    enum tiara_log_level log_level;
    int world_rank;
    tiara_progress_fn progress; /* of all that the process owes */
};

/* How peers can get at an allocation. */
enum tiara_gpu_share {
    TIARA_GPU_SHARE_NONE, /* async pools, memory of other processes */
    TIARA_GPU_SHARE_IPC, /* cudaMalloc: a legacy IPC handle */
    TIARA_GPU_SHARE_FD /* VMM: a POSIX file descriptor */
};

struct tiara_gpu_pointer {
    bool device;
    int ordinal; /* of the device */
    enum tiara_gpu_share share;
    uint64_t id; /* of the allocation: never used again by another one in this process */
    uint64_t base; /* of the allocation */
    uint64_t size; /* of the allocation */
};

/* How the GPUs of a node's ranks are linked, agreed upon. */
enum tiara_gpu_links {
    TIARA_GPU_LINKS_ALL, /* every rank reaches every other: direct */
    TIARA_GPU_LINKS_RING /* each reaches its neighbours in node_order: ring */
};

struct tiara_gpu_node_params {
    /*
     * The ranks of the node, in the order of their node indices. allgather may be called by open
     * and by run, in the same order on all ranks; at most 16384 bytes a rank. Copied; arg must
     * outlive the node. params is not used.
     */
    const struct tiara_xport_group *group;
    int ordinal; /* the device of this rank's buffers */
    size_t cell_bytes; /* equal on all, a multiple of 4096 */
    double spin_s; /* limit of a wait in a kernel; 0: none */
};

/* One call, beside its struct tiara_exec_call, whose op is not used. */
struct tiara_gpu_call {
    int type,
        /*
         * enum tiara_type, enum tiara_operator (kernels/types.h); oper -1: only moved
         */
        oper;
    int finish_ranks; /* AVG: divide by it; 0: no */
    bool direct; /* the net transport takes device memory */
    /* peers may map this call's buffers: single-copy plans. False: cells only (streams, graphs) */
    bool share;
    bool in_stream; /* ordered in @stream (cudaStream_t); else the object's own are used */
    void *stream;
};

/* A node's GPUs as one rank has them. Created by open; opaque. */
struct tiara_gpu_node;

struct tiara_gpu_node_ops {
    /*
     * Allocates this rank's segment, maps the peers', probes each mapping by writing and reading
     * through it, and agrees on the links.
     * Collective over the group; ends in a collective AND: all succeed or all get the same error
     * and hold nothing.
     * Errors: TIARA_ERR_UNSUPPORTED (a rank cannot reach others, and no ring of links exists),
     * TIARA_ERR_NOSPACE, TIARA_ERR_SYS.
     */
    enum tiara_err (*open)(
        struct tiara_gpu_node **node_out, const struct tiara_gpu_node_params *params);
    /*
     * Waits for what is enqueued, closes all mappings, calls the group's allgather once, unless a
     * call has failed, so that memory is freed only when no peer has it mapped, and
     * frees all. The allgather may fail, and must not wait for ever. NULL is allowed.
     */
    void (*close)(struct tiara_gpu_node *node);
    /* @order_out: [ranks of the node] the ring of node indices, also where all reach all. */
    enum tiara_gpu_links (*links)(const struct tiara_gpu_node *node, int *order_out);
    /*
     * Makes @plan ready for calls up to @largest (as tiara_exec_reserve: plan, chunk_elems,
     * elem_size, slots): uploads its program, takes scratch memory. @plan stays where it is and
     * unchanged until close. Idempotent. Local; the caller agrees. Errors: TIARA_ERR_NOMEM,
     * TIARA_ERR_SYS, TIARA_ERR_UNSUPPORTED (a plan that kernels cannot run).
     */
    enum tiara_err (*prepare)(struct tiara_gpu_node *node, const struct tiara_exec *x,
        const struct tiara_exec_call *largest);
    /*
     * Starts a call, with in and out in device memory of the node's device; @call and its plan stay
     * until it is finished. call->plan NULL: one node, at most TIARA_KERNEL_SMALL_MAX bytes,
     * all-reduce, in packets. x->net speaks, x->chunk_seq counts chunks as the host executor does.
     * One call at a time, of one thread from start to finish, on which the device stays current.
     * In a stream it is only enqueued, and may be captured; it has no messages, and no finish.
     * Errors: TIARA_ERR_UNSUPPORTED, and nothing has happened; TIARA_ERR_MISMATCH,
     * TIARA_ERR_PEER, TIARA_ERR_SYS (a CUDA call failed), those of x->net and of the group; logged.
     */
    enum tiara_err (*start)(struct tiara_gpu_node *node, struct tiara_exec *x,
        const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu);
    /*
     * Moves the started call on; without one, looks whether one in a stream has failed since the
     * last poll (logged). *over_out: it is over; or all that were enqueued are. Errors: as start,
     * TIARA_ERR_TIMEOUT.
     */
    enum tiara_err (*poll)(struct tiara_gpu_node *node, bool *moved_out, bool *over_out);
    /* Ends the started call, with @err when it failed or was given up. No kernel of it runs any
     * more on return, and no message is in flight. Returns @err. */
    enum tiara_err (*finish)(struct tiara_gpu_node *node, enum tiara_err err);
    /* Ends kernels that wait for peers, from any thread. They report TIARA_ERR_PEER. */
    void (*abort)(struct tiara_gpu_node *node);
};

/* Streams of the caller, for multi-node calls that are ordered in them. */
struct tiara_gpu_stream_ops {
    /* Whether work in @stream is being captured into a graph. */
    enum tiara_err (*capturing)(void *stream, bool *yes_out);
    /*
     * A gate in @stream: what is enqueued before it is seen by reached(), what is enqueued behind
     * it starts after pass(). @gate_out: given; freed by pass.
     * Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS.
     */
    enum tiara_err (*gate)(void *stream, int ordinal, void **gate_out);
    enum tiara_err (*reached)(void *gate, bool *yes_out);
    void (*pass)(void *gate);
    /* Enqueues a copy within GPU memory. Errors: TIARA_ERR_SYS. */
    enum tiara_err (*copy)(void *stream, void *dst, const void *src, size_t bytes);
};

struct tiara_gpu {
    uint32_t version;
    /* Starts the CUDA runtime. Once per process. @why: [size] one word or phrase for people when it
     * fails: "no device", "driver too old". Errors: TIARA_ERR_UNSUPPORTED. */
    enum tiara_err (*open)(const struct tiara_gpu_host *host, char *why, size_t size);
    /*
     * What @ptr is; a look-up in a small cache for memory seen before. Host memory that CUDA does
     * not know is not device memory, and no error.
     * Errors: TIARA_ERR_SYS; TIARA_ERR_ARG: the pointer was freed, or [ptr, ptr + bytes) leaves its
     * allocation; logged with what was found.
     */
    enum tiara_err (*look)(const void *ptr, size_t bytes, struct tiara_gpu_pointer *pointer_out);
    /* Devices and links of this process, lines for people. Returns what snprintf would. */
    int (*describe)(char *text, size_t size);
    const struct tiara_stage *stage;
    const struct tiara_gpu_node_ops *node;
    const struct tiara_gpu_stream_ops *stream;
    void (*close)(void);
};

/* The one symbol of libtiara-cuda.so. */
extern const struct tiara_gpu tiara_gpu __attribute__((visibility("default")));

/* Inside the object: what the table points to. */
extern const struct tiara_gpu_node_ops tiara_gpu_node;
extern const struct tiara_gpu_stream_ops tiara_gpu_stream;
extern const struct tiara_stage tiara_gpu_stage;

#endif
