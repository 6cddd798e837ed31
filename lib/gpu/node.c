/*
 * The node object: what it holds, what is prepared, and calls that are ordered in a stream of the
 * caller.
 *
 * A failed call is the last one. Its kernels may have been ended in the middle, so that ranks do
 * not agree about the words in the segments any more: the abort word stays set, and every later
 * call is refused.
 */
#include "gpu/node.h"
#include "base/alloc.h"
#include "base/log.h"
#include <string.h>

/* ---- open and close ---- */

/* What the ranks of a node tell each other about their devices. */
struct device_facts {
    char bus_id[32]; /* the physical device */
    int32_t capacity; /* thread blocks */
    int32_t err;
};

static enum tiara_err open_stream(cudaStream_t *stream_out)
{
    return tiara_gpu_ok(
        cudaStreamCreateWithFlags(stream_out, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

static enum tiara_err open_event(cudaEvent_t *event_out)
{
    return tiara_gpu_ok(
        cudaEventCreateWithFlags(event_out, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

static enum tiara_err open_streams(struct tiara_gpu_node *node)
{
    enum tiara_err err = TIARA_OK;

    for (int i = 0; i < TIARA_KERNEL_SLOTS && err == TIARA_OK; i++) {
        struct tiara_gpu_slot *slot = &node->slot[i];

        err = open_stream(&slot->stream);
        if (err == TIARA_OK)
            err = open_event(&slot->launched);
    }
    if (err == TIARA_OK)
        err = open_stream(&node->down);
    if (err == TIARA_OK)
        err = open_stream(&node->up);
    if (err == TIARA_OK)
        err = open_event(&node->enqueued);
    return err;
}

static void close_stream(cudaStream_t stream)
{
    if (stream && tiara_gpu_ok(cudaStreamDestroy(stream), "cudaStreamDestroy") != TIARA_OK)
        tiara_debug("a stream is left");
}

static void close_event(cudaEvent_t event)
{
    if (event && tiara_gpu_ok(cudaEventDestroy(event), "cudaEventDestroy") != TIARA_OK)
        tiara_debug("an event is left");
}

/* Everything but the segments, which are collective. */
static enum tiara_err open_local(
    struct tiara_gpu_node *node, const struct tiara_gpu_node_params *params)
{
    enum tiara_err err = open_streams(node);

    node->group = *params->group;
    node->group.params = NULL;
    node->run = tiara_gpu_run_new();
    if (err == TIARA_OK && !node->run)
        err = TIARA_ERR_NOMEM;
    if (err == TIARA_OK)
        err = tiara_gpu_imports_open(&node->imports, params->ordinal);
    return err;
}

/*
 * How many thread blocks can run at the same time: on the least capable device, where ranks that
 * share a device share that too.
 */
static enum tiara_err agree_capacity(struct tiara_gpu_node *node)
{
    struct device_facts mine = {.bus_id = ""}, all[TIARA_KERNEL_PEERS];
    int ordinal = node->segments.ordinal, capacity = 0, least = INT32_MAX;
    enum tiara_err err =
        tiara_gpu_ok(cudaDeviceGetPCIBusId(mine.bus_id, (int)sizeof(mine.bus_id), ordinal),
            "cudaDeviceGetPCIBusId");

    if (err == TIARA_OK)
        err = tiara_gpu_capacity(ordinal, &capacity);
    mine.capacity = capacity;
    mine.err = err;
    err = node->group.allgather(node->group.arg, &mine, all, sizeof(mine));
    for (int i = 0; i < node->group.size && err == TIARA_OK; i++) {
        int sharing = 0;

        for (int k = 0; k < node->group.size; k++)
            sharing += strncmp(all[i].bus_id, all[k].bus_id, sizeof(all[i].bus_id)) == 0;
        capacity = all[i].capacity / sharing;
        least = capacity < least ? capacity : least;
        err = (enum tiara_err)all[i].err;
    }
    node->capacity = least;
    if (err == TIARA_OK && least < 1) {
        tiara_info("a GPU of the node has no room for a thread block of each of its ranks");
        err = TIARA_ERR_UNSUPPORTED;
    }
    return err;
}

static bool is_enqueued_over(void *arg, struct tiara_wait_on *on)
{
    struct tiara_gpu_node *node = arg;
    bool done = true;

    (void)on;
    return tiara_gpu_event_test(node->enqueued, &done) != TIARA_OK || done;
}

/* Kernels that wait for peers are bounded by spin_s, or ended by abort. */
static void wait_enqueued(struct tiara_gpu_node *node)
{
    struct tiara_wait wait = {.spins = 100, .yields = -1};

    if (node->has_enqueued && tiara_wait(&wait, is_enqueued_over, node) != TIARA_OK)
        tiara_debug("the last enqueued call may be running");
    node->has_enqueued = false;
}

static void close_local(struct tiara_gpu_node *node)
{
    while (node->programs) {
        struct tiara_gpu_program *next = node->programs->next;

        tiara_gpu_program_destroy(node->programs);
        node->programs = next;
    }
    while (node->scratch) {
        struct tiara_gpu_scratch *next = node->scratch->next;

        if (tiara_gpu_ok(cudaFree(node->scratch->at), "cudaFree") != TIARA_OK)
            tiara_debug("%zu bytes of device memory are left", node->scratch->bytes);
        tiara_free(node->scratch);
        node->scratch = next;
    }
    tiara_free(node->run);
    tiara_gpu_mail_release(node);
    tiara_gpu_imports_close(node->imports);
    close_event(node->enqueued);
    close_stream(node->up);
    close_stream(node->down);
    for (int i = 0; i < TIARA_KERNEL_SLOTS; i++) {
        close_event(node->slot[i].launched);
        close_stream(node->slot[i].stream);
    }
}

/* CUDA wants memory to be mapped nowhere else when it is freed. After a failed call peers may not
 * come any more. */
static void await_unmapped(struct tiara_gpu_node *node)
{
    char here = 1, all[TIARA_KERNEL_PEERS];

    tiara_gpu_segments_unmap(&node->segments);
    if (node->group.size > 1 && !node->dead &&
        node->group.allgather(node->group.arg, &here, all, sizeof(here)) != TIARA_OK)
        tiara_debug("a GPU segment is freed that a peer may still have mapped");
}

static void node_close(struct tiara_gpu_node *node)
{
    struct tiara_gpu_scope scope;

    if (!node)
        return;
    scope = tiara_gpu_scope_enter(node->segments.ordinal);
    wait_enqueued(node);
    close_local(node);
    await_unmapped(node);
    tiara_gpu_segments_close(&node->segments);
    tiara_gpu_scope_leave(&scope);
    tiara_free(node);
}

static enum tiara_err node_open(
    struct tiara_gpu_node **node_out, const struct tiara_gpu_node_params *params)
{
    struct tiara_gpu_node *node = tiara_alloc(1, sizeof(*node));
    struct tiara_gpu_scope scope = tiara_gpu_scope_enter(params->ordinal);
    enum tiara_err err = node ? open_local(node, params) : TIARA_ERR_NOMEM;

    /* Before the segments, whose opening is collective: nobody may be missing there. */
    err = tiara_xport_agree(params->group, err);
    if (err == TIARA_OK)
        err = tiara_gpu_segments_open(&node->segments, params);
    if (err == TIARA_OK) {
        err = agree_capacity(node);
        if (err != TIARA_OK)
            tiara_gpu_segments_close(&node->segments);
    }
    if (err == TIARA_OK)
        *node_out = node;
    else if (node)
        close_local(node);
    if (err != TIARA_OK)
        tiara_free(node);
    tiara_gpu_scope_leave(&scope);
    return err;
}

static enum tiara_gpu_links node_links(const struct tiara_gpu_node *node, int *order_out)
{
    memcpy(order_out, node->segments.order, (size_t)node->segments.size * sizeof(int));
    return node->segments.links;
}

/* ---- failures ---- */

/* Of calls in streams. */
static enum tiara_err poll_enqueued(struct tiara_gpu_node *node, bool *idle_out)
{
    enum tiara_err err = TIARA_OK;

    *idle_out = true;
    if (node->has_enqueued) {
        struct tiara_gpu_scope scope = tiara_gpu_scope_enter(node->segments.ordinal);
        err = tiara_gpu_event_test(node->enqueued, idle_out);
        tiara_gpu_scope_leave(&scope);
    }
    if (node->reported)
        return err;
    /* After the event: what the last call has to say is there when it is over. */
    err = tiara_err_first(err, tiara_gpu_node_status(node));
    if (err != TIARA_OK) {
        node->dead = node->reported = true;
        tiara_gpu_node_abort(node);
    }
    return err;
}

static enum tiara_err refuse_dead(void)
{
    tiara_error("the GPUs of this node are not used any more: a call on them has failed");
    return TIARA_ERR_PEER;
}

/* ---- calls ---- */

static enum tiara_err node_prepare(
    struct tiara_gpu_node *node, const struct tiara_exec *x, const struct tiara_exec_call *largest)
{
    struct tiara_gpu_scope scope;
    enum tiara_err err;

    if (!largest->plan || largest->count == 0)
        return TIARA_OK;
    scope = tiara_gpu_scope_enter(node->segments.ordinal);
    err = tiara_gpu_node_prepare(node, x, largest);
    tiara_gpu_scope_leave(&scope);
    return err;
}

/* The one launch of an enqueued call. */
static enum tiara_err enqueue_launch(struct tiara_gpu_node *node,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu, cudaStream_t stream)
{
    const struct tiara_gpu_program *p = tiara_gpu_program_find(node, call->plan);
    struct tiara_kernel_exec_args args;
    struct tiara_gpu_shape shape;
    enum tiara_err err = tiara_gpu_shape_init(&shape, node, call, gpu, true);

    if (err != TIARA_OK)
        return err;
    tiara_gpu_args_init(&args, node, p, call, gpu, &shape);
    tiara_gpu_args_whole(&args, call, &shape);
    tiara_gpu_args_action(&args, &p->tables.actions[0]);
    args.flags |= TIARA_KERNEL_FIRST;
    return tiara_gpu_launch_exec(&args, &shape, stream);
}

static bool can_enqueue(const struct tiara_gpu_node *node, const struct tiara_exec *x,
    const struct tiara_exec_call *call)
{
    const struct tiara_plan *plan = call->plan;

    return x->nranks == node->group.size && (!plan || (plan->nasync == 0 && !plan->single_copy));
}

static enum tiara_err enqueue_current(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    enum tiara_err err =
        tiara_gpu_ok(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    bool captured = status != cudaStreamCaptureStatusNone;

    if (err == TIARA_OK && call->plan && !tiara_gpu_node_is_prepared(node, call)) {
        if (captured) {
            tiara_info("a call cannot be captured before it has been prepared");
            return TIARA_ERR_UNSUPPORTED;
        }
        err = tiara_gpu_node_prepare(node, x, call);
    }
    /* A graph is ordered by who launches it. */
    if (err == TIARA_OK && !captured)
        err = tiara_gpu_node_order(node, stream);
    if (err == TIARA_OK && call->plan)
        err = enqueue_launch(node, call, gpu, stream);
    else if (err == TIARA_OK)
        err = tiara_gpu_launch_small(node, call, gpu, stream);
    if (err == TIARA_OK && !captured) {
        err = tiara_gpu_ok(cudaEventRecord(node->enqueued, stream), "cudaEventRecord");
        node->has_enqueued = true;
    }
    return err;
}

static enum tiara_err enqueue(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu)
{
    struct tiara_gpu_scope scope;
    enum tiara_err err;

    if (call->count == 0)
        return TIARA_OK;
    if (!can_enqueue(node, x, call))
        return TIARA_ERR_UNSUPPORTED;
    scope = tiara_gpu_scope_enter(node->segments.ordinal);
    err = enqueue_current(node, x, call, gpu, gpu->stream);
    tiara_gpu_scope_leave(&scope);
    if (err == TIARA_ERR_SYS) {
        node->dead = true;
        tiara_gpu_node_abort(node);
    }
    return err;
}

static enum tiara_err node_start(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu)
{
    enum tiara_err err = TIARA_OK;

    if (node->dead)
        return refuse_dead();
    node->digest = call->digest;
    if (gpu->in_stream)
        return enqueue(node, x, call, gpu);
    node->scope = tiara_gpu_scope_enter(node->segments.ordinal);
    if (call->plan && call->count > 0)
        err = tiara_gpu_node_prepare(node, x, call);
    if (err == TIARA_OK)
        err = tiara_gpu_run_start(node, x, call, gpu);
    node->is_started = err == TIARA_OK;
    if (!node->is_started)
        tiara_gpu_scope_leave(&node->scope);
    return err;
}

static enum tiara_err node_poll(struct tiara_gpu_node *node, bool *moved_out, bool *over_out)
{
    if (node->is_started)
        return tiara_gpu_run_poll(node, moved_out, over_out);
    *moved_out = false;
    return poll_enqueued(node, over_out);
}

static enum tiara_err node_finish(struct tiara_gpu_node *node, enum tiara_err err)
{
    tiara_gpu_run_finish(node, err);
    node->is_started = false;
    tiara_gpu_scope_leave(&node->scope);
    return err;
}

const struct tiara_gpu_node_ops tiara_gpu_node = {
    .open = node_open,
    .close = node_close,
    .links = node_links,
    .prepare = node_prepare,
    .start = node_start,
    .poll = node_poll,
    .finish = node_finish,
    .abort = tiara_gpu_node_abort,
};
