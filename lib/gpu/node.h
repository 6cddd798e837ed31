/*
 * Private to lib/gpu: the running side. Programs (plans as kernels run them), launches, messages,
 * and the node object.
 *
 * A plan is cut into *actions*, which the host takes one after the other for each chunk: a launch
 * of the device executor over a run of node ops, or the start of a message. An action starts when
 * the messages it depends on are complete; the order of the slot's stream does the rest. Nothing
 * waits but a start whose peers' buffers have to be mapped.
 *
 * Edges to the kernels (kernels/kernels.h), whose other ends are not in lib/:
 *   [gpu.abort] acquire: a kernel that waits reads the abort word.
 *   [gpu.status] release: a kernel that fails writes a status line, and its code last.
 *   [gpu.gate] acquire: the kernel of a gate reads the word that lets its stream go on (stream.c).
 */
#ifndef TIARA_GPU_NODE_H
#define TIARA_GPU_NODE_H

#include "exec/sched.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"
#include "gpu/segment.h"
#include "gpu/import.h"

/* ---- programs: program.c ---- */

enum tiara_gpu_action_kind {
    TIARA_GPU_LAUNCH,
    TIARA_GPU_MESSAGE
};

struct tiara_gpu_action {
    enum tiara_gpu_action_kind kind;
    int await; /* messages with ordinal < await are complete before it starts */
    int first_op,
        end_op; /* LAUNCH: its node ops, maybe none; MESSAGE: first_op is the send or receive */
    int head_post, tail_wait, tail_nwait; /* LAUNCH: as in struct tiara_kernel_exec_args */
    /* LAUNCH: nothing but the comparison of digests; for the first chunk of a call only */
    bool greets;
    bool last; /* LAUNCH: ends the chunk */
    bool idle; /* MESSAGE: the launches before it are over before it starts */
};

/* A plan translated for kernels, in host memory. The program's op i is the plan's. */
struct tiara_gpu_tables {
    struct tiara_kernel_op *ops;
    struct tiara_kernel_slice *srcs;
    struct tiara_kernel_wait *waits;
    struct tiara_gpu_action *actions;
    int nops, nsrcs, nwaits, nactions;
    int window; /* most messages of a chunk in flight at a time; 0: the plan has none */
};

/*
 * Translates @plan, which was finished, depended and resolved. @node_index: [plan->nranks] index on
 * the node, or -1. @reached: [TIARA_KERNEL_PEERS] by node index. Pure. fini also after an error,
 * and on zeroed tables. Errors: TIARA_ERR_NOMEM, TIARA_ERR_UNSUPPORTED (more ranks or sources than
 * kernels take, or a peer out of reach is needed; logged as info).
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_tables_init(struct tiara_gpu_tables *t,
    const struct tiara_plan *plan, const int *node_index, const bool *reached);
void tiara_gpu_tables_fini(struct tiara_gpu_tables *t);

struct tiara_gpu_program {
    struct tiara_gpu_program *next;
    const struct tiara_plan *plan; /* borrowed until the node is closed */
    struct tiara_gpu_tables tables;
    struct tiara_kernel_program device;
    void *memory; /* of the device: the tables; owned */
    void *image; /* the same, pinned: to free it early would wait for the device */
};

struct tiara_gpu_node;

/* Translates and uploads. @program_out: given. Errors: as tiara_gpu_node_ops.prepare. */
TIARA_MUST_USE enum tiara_err tiara_gpu_program_create(struct tiara_gpu_node *node,
    const struct tiara_plan *plan, const int *node_index, struct tiara_gpu_program **program_out);
void tiara_gpu_program_destroy(struct tiara_gpu_program *program);

/* ---- messages: net.c ---- */

/*
 * A piece of a message in pinned memory. A send copies it down, then sends it; a receive receives
 * it, then copies it up.
 */
struct tiara_gpu_bounce {
    char *at;
    cudaEvent_t copied;
    struct tiara_xport_req req;
    uint64_t range;
};

/* A message in flight. Pieces go round two bounce buffers: started >= moved >= finished >=
 * started - 2. */
struct tiara_gpu_message {
    struct tiara_gpu_bounce bounce[2];
    struct tiara_message m; /* in device memory */
    struct tiara_xport_req req; /* of a direct message */
    uint64_t range;
    bool direct, done;
    size_t npieces;
    size_t started; /* pieces: copy down started; receive posted */
    size_t moved; /* pieces: send posted; copy up started */
    size_t finished;
};

/* Bytes of a piece: enough for the bandwidth of a copy, few enough for copies and network to
 * overlap. Both ends cut alike. */
#define TIARA_GPU_PIECE_BYTES ((size_t)512 << 10)

/* The messages of the chunk in a slot: ordinals done .. started - 1 are in flight, ordinal i in
 * of[i % window]. */
struct tiara_gpu_mail {
    struct tiara_gpu_message *of; /* [window] */
    int window;
    int started, done;
};

/* What messages are moved with: the transport, and the streams of copies. */
struct tiara_gpu_net {
    const struct tiara_xport *xport;
    void *obj;
    cudaStream_t down, up; /* device to host, host to device */
};

/*
 * Bounce buffers for messages of up to @bytes, @window at a time, in each of TIARA_KERNEL_SLOTS
 * slots: pinned memory and events. Keeps what is there when it is large enough. No message may be
 * in flight. Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_mail_reserve(
    struct tiara_gpu_node *node, int window, size_t bytes);
void tiara_gpu_mail_release(struct tiara_gpu_node *node);

/*
 * Starts @m as message number mail->started. @direct: the transport takes device memory. Zero bytes
 * are complete at once. Errors: TIARA_ERR_SYS, those of the transport.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_mail_start(struct tiara_gpu_mail *mail,
    const struct tiara_gpu_net *net, const struct tiara_message *m, bool direct);
/* Moves all messages in flight as far as they go, and mail->done over those that are complete.
 * *@moved: something moved. */
TIARA_MUST_USE enum tiara_err tiara_gpu_mail_drive(
    struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net, bool *moved);
/* After an error: the transport writes into no bounce buffer or device memory from here on. Copies
 * may still run. */
void tiara_gpu_mail_cancel(struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net);

/* ---- launches: launch.c ---- */

/* What is alike for all launches of a call. Agreed: a pure function of the call, the plan's nblocks
 * and what open agreed. */
struct tiara_gpu_shape {
    size_t chunk; /* elements of the vector, or of each block, in a chunk */
    size_t nchunks;
    int slots;
    size_t stripe; /* elements */
    unsigned nblocks, nthreads; /* of the grid */
};

/* Elements of a chunk: as the call says, but no more than fit into a cell. 0: no chunk fits. */
size_t tiara_gpu_chunk_elems(const struct tiara_gpu_node *node, const struct tiara_exec_call *call);
/* Bytes of TMP of a chunk in a slot. */
size_t tiara_gpu_tmp_bytes(const struct tiara_exec_call *call, size_t chunk);

/* Errors: TIARA_ERR_UNSUPPORTED: the plan's blocks do not fit into a cell, or type and size
 * disagree; logged as info. */
TIARA_MUST_USE enum tiara_err tiara_gpu_shape_init(struct tiara_gpu_shape *shape,
    const struct tiara_gpu_node *node, const struct tiara_exec_call *call,
    const struct tiara_gpu_call *gpu, bool one_launch);

/* The arguments that do not change in a call: everything but the ops, the chunk, and the flags. */
void tiara_gpu_args_init(struct tiara_kernel_exec_args *args, const struct tiara_gpu_node *node,
    const struct tiara_gpu_program *program, const struct tiara_exec_call *call,
    const struct tiara_gpu_call *gpu, const struct tiara_gpu_shape *shape);
/* The whole vector, in one launch. */
void tiara_gpu_args_whole(struct tiara_kernel_exec_args *args, const struct tiara_exec_call *call,
    const struct tiara_gpu_shape *shape);
/* One chunk, @count elements from @first on, in @slot. */
void tiara_gpu_args_chunk(struct tiara_kernel_exec_args *args, const struct tiara_exec_call *call,
    size_t first, size_t count, int slot);
void tiara_gpu_args_action(
    struct tiara_kernel_exec_args *args, const struct tiara_gpu_action *action);

/* Errors: TIARA_ERR_SYS. */
TIARA_MUST_USE enum tiara_err tiara_gpu_launch_exec(const struct tiara_kernel_exec_args *args,
    const struct tiara_gpu_shape *shape, cudaStream_t stream);
TIARA_MUST_USE enum tiara_err tiara_gpu_launch_small(const struct tiara_gpu_node *node,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu, cudaStream_t stream);

/* Loads the kernels; how many thread blocks of the device executor can run at the same time on the
 * current device. Errors: TIARA_ERR_SYS. */
TIARA_MUST_USE enum tiara_err tiara_gpu_capacity(int ordinal, int *nblocks_out);

/* ---- the node object: node.c ---- */

struct tiara_gpu_scratch {
    struct tiara_gpu_scratch *next;
    char *at; /* device memory, for TMP of all slots */
    size_t bytes;
};

/* Pinned memory of messages. What was too small is kept: to free it would wait for the device,
 * where a gate may hold a stream. */
struct tiara_gpu_pinned {
    struct tiara_gpu_pinned *next;
    void *at;
};

struct tiara_gpu_slot {
    cudaStream_t stream; /* non-blocking */
    cudaEvent_t launched; /* behind the last launch */
    struct tiara_gpu_mail mail;
};

/*
 * While the object is at work, its device is current, and another thread's capture, which forbids
 * unsafe calls to all threads, is not hurt by what is done to private streams and events.
 */
struct tiara_gpu_scope {
    int previous;
    enum cudaStreamCaptureMode mode;
};

struct tiara_gpu_node {
    struct tiara_xport_group group; /* copied; arg is borrowed */
    struct tiara_gpu_segments segments;
    struct tiara_gpu_imports *imports;
    struct tiara_gpu_program *programs;
    /* The first is in use. The others are kept, as graphs and enqueued calls may have their
     * addresses. */
    struct tiara_gpu_scratch *scratch;
    struct tiara_gpu_slot slot[TIARA_KERNEL_SLOTS];
    cudaStream_t down, up;
    struct tiara_gpu_pinned *pinned; /* the first is in use, for bounce buffers */
    size_t bounce_bytes; /* of one */
    int capacity; /* thread blocks that can run at the same time; agreed */
    cudaEvent_t enqueued; /* behind the last enqueued call */
    bool has_enqueued; /* @enqueued has been recorded */
    uint32_t digest; /* of the last call */
    struct tiara_gpu_run *run; /* the started call */
    bool is_started; /* not those in streams */
    struct tiara_gpu_scope scope; /* from start to finish */
    bool dead; /* a call has failed; nothing more is run */
    bool reported; /* poll has said so */
};

/* The program of @plan, or NULL. */
struct tiara_gpu_program *tiara_gpu_program_find(
    const struct tiara_gpu_node *node, const struct tiara_plan *plan);

/* As tiara_gpu_node_ops.prepare; the device is current. */
TIARA_MUST_USE enum tiara_err tiara_gpu_node_prepare(
    struct tiara_gpu_node *node, const struct tiara_exec *x, const struct tiara_exec_call *largest);
/* Whether prepare has been called for a call as large as @call. */
bool tiara_gpu_node_is_prepared(
    const struct tiara_gpu_node *node, const struct tiara_exec_call *call);

/* ---- its state: node_state.c ---- */

/* Orders @stream behind the last enqueued call, whose stream may be gone. Errors: TIARA_ERR_SYS. */
TIARA_MUST_USE enum tiara_err tiara_gpu_node_order(
    struct tiara_gpu_node *node, cudaStream_t stream);

/* What kernels have reported: TIARA_OK, or the first failure, logged. */
TIARA_MUST_USE enum tiara_err tiara_gpu_node_status(const struct tiara_gpu_node *node);
void tiara_gpu_node_abort(struct tiara_gpu_node *node);

/* ---- calls: run.c ---- */

/* Memory for the call that runs. NULL: there is none. */
struct tiara_gpu_run *tiara_gpu_run_new(void);
/* A call by a plan, which is prepared, or in packets, in node->run; as the table's entries of these
 * names. The device is current. */
TIARA_MUST_USE enum tiara_err tiara_gpu_run_start(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu);
TIARA_MUST_USE enum tiara_err tiara_gpu_run_poll(
    struct tiara_gpu_node *node, bool *moved_out, bool *over_out);
void tiara_gpu_run_finish(struct tiara_gpu_node *node, enum tiara_err err);

/* ---- streams of the caller: stream.c ---- */

struct tiara_gpu_scope tiara_gpu_scope_enter(int ordinal);
void tiara_gpu_scope_leave(struct tiara_gpu_scope *scope);

/* Frees the gates that nobody holds. */
void tiara_gpu_stream_close(void);

#endif
