/*
 * Calls on GPU memory: who decides what, and how a call gets onto the GPUs. core/device.h has the
 * rules of agreement.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include <string.h>

/* ---- set-up ---- */

/* Seconds to wait for the other ranks while a communicator is freed. */
#define PATIENCE_S 5

static enum tiara_err gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct tiara_comm *c = arg;
    enum tiara_err err;

    if (!c->device.closing)
        return tiara_small_gather(c->arena, in, out, bytes);
    /* MPI is about to free the communicator, or to end: no watchdog looks at it. */
    if (c->facts.mpi_only || c->arena->dead)
        return TIARA_ERR_UNSUPPORTED;
    c->arena->comm_id = c->id;
    c->arena->call = c->ncalls;
    c->arena->wait.stuck = NULL;
    c->arena->wait.warn_s = 0;
    c->arena->wait.limit_s = PATIENCE_S;
    err = tiara_small_gather(c->arena, in, out, bytes);
    c->arena->dead = c->arena->dead || err != TIARA_OK;
    return err;
}

void tiara_device_comm_init(struct tiara_comm *c, const struct tiara_hello *hello)
{
    struct tiara_comm_device *d = &c->device;

    d->ready = d->direct = true;
    for (int i = 0; i < c->size; i++) {
        d->possible = d->possible || hello[i].device != TIARA_DEVICE_NONE;
        d->ready = d->ready && hello[i].device == TIARA_DEVICE_READY;
        d->direct = d->direct && hello[i].device_direct != 0;
    }
    d->next_vote = 1;
}

void tiara_device_comm_fini(struct tiara_comm *c)
{
    const struct tiara_gpu *gpu = c->device.possible || c->exec.stage_obj ? tiara_device() : NULL;

    if (!gpu)
        return;
    tiara_stream_fini(c);
    c->device.closing = true;
    gpu->node->close(c->device.node);
    if (c->exec.stage_obj)
        gpu->stage->close(c->exec.stage_obj);
    tiara_free(c->exec.stage_obj);
}

/* Has everybody loaded CUDA by now. */
static enum tiara_err vote_ready(struct tiara_comm *c)
{
    struct tiara_comm_device *d = &c->device;
    unsigned char mine = (unsigned char)((tiara_device() != NULL) | tiara_device_mpi_direct() << 1);
    unsigned char all;
    enum tiara_err err = tiara_core_vote(c, mine, &all);

    if (err == TIARA_OK && all & 1) {
        d->ready = true;
        d->direct = all & 2;
    }
    return err;
}

/* ---- what a call's buffers are ---- */

static enum tiara_err look(const struct tiara_comm *c, const struct tiara_gpu *gpu,
    const char *name, const void *ptr, size_t bytes, struct tiara_gpu_pointer *p)
{
    enum tiara_err err = gpu->look(ptr, bytes, p);

    if (err != TIARA_OK)
        tiara_error("rank %d of the communicator: %s of a call cannot be used", c->rank, name);
    return err;
}

enum tiara_err tiara_device_classify(const struct tiara_comm *c, struct tiara_call *call)
{
    const struct tiara_gpu *gpu = tiara_device();
    size_t one = call->count * call->elem.size, all = one * (size_t)c->size;
    bool is_allreduce = call->coll == TIARA_COLL_ALLREDUCE;
    size_t in_bytes = is_allreduce || call->coll == TIARA_COLL_ALLGATHER ? one : all;
    size_t out_bytes = is_allreduce || call->coll == TIARA_COLL_REDUCE_SCATTER ? one : all;
    struct tiara_gpu_pointer in = {0}, out = {0};
    enum tiara_err err;

    call->far_in = call->far_out = false;
    if (!gpu)
        return TIARA_OK;
    err = look(c, gpu, "recvbuf", call->out, out_bytes, &out);
    if (err == TIARA_OK && call->in != call->out)
        err = look(c, gpu, "sendbuf", call->in, in_bytes, &in);
    else
        in = out;
    if (err != TIARA_OK)
        return err;
    call->far_in = in.device;
    call->far_out = out.device;
    call->ordinal = in.device && out.device && in.ordinal == out.ordinal ? in.ordinal : -1;
    return TIARA_OK;
}

/* ---- staging ---- */

enum tiara_err tiara_device_stage(struct tiara_comm *c, const void *like)
{
    const struct tiara_gpu *gpu = tiara_device();
    enum tiara_err err;

    if (c->device.staging)
        return TIARA_OK;
    if (!c->exec.stage_obj)
        c->exec.stage_obj = tiara_alloc(1, gpu->stage->size);
    if (!c->exec.stage_obj)
        return TIARA_ERR_NOMEM;
    c->exec.stage = gpu->stage;
    err = gpu->stage->open(c->exec.stage_obj, like);
    c->device.staging = err == TIARA_OK;
    return err;
}

struct copies {
    const struct tiara_stage *stage;
    void *obj;
    enum tiara_err err;
};

static bool are_done(void *arg, struct tiara_wait_on *on)
{
    struct copies *s = arg;
    bool done = false;

    on->word = NULL;
    s->err = s->stage->test(s->obj, 0, &done);
    return done || s->err != TIARA_OK;
}

/* Waits for the copies of slot 0. */
static enum tiara_err await_copies(struct tiara_comm *c, struct tiara_wait *wait)
{
    struct copies copies = {c->exec.stage, c->exec.stage_obj, TIARA_OK};
    enum tiara_err err = tiara_wait(wait, are_done, &copies);

    return tiara_err_first(err, copies.err);
}

/* Bytes of a piece of a copy. */
#define PIECE ((size_t)1 << 20)

enum tiara_err tiara_device_copy(
    struct tiara_comm *c, void *dst, const void *src, size_t bytes, bool to_device)
{
    enum tiara_err err = tiara_device_stage(c, to_device ? dst : src);
    const struct tiara_stage *stage = c->exec.stage;
    void *obj = c->exec.stage_obj;
    struct tiara_wait patient = {.yields = -1};
    char *room = NULL;

    if (err == TIARA_OK) {
        room = stage->room(obj, bytes < PIECE ? bytes : PIECE);
        err = room ? TIARA_OK : TIARA_ERR_NOMEM;
    }
    for (size_t at = 0; at < bytes && err == TIARA_OK; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        if (to_device)
            memcpy(room, (const char *)src + at, n);
        err = to_device ? stage->store(obj, 0, (char *)dst + at, room, n)
                        : stage->fetch(obj, 0, room, (const char *)src + at, n);
        if (err == TIARA_OK)
            err = await_copies(c, &patient);
        if (err == TIARA_OK && !to_device)
            memcpy((char *)dst + at, room, n);
    }
    return err;
}

enum tiara_err tiara_device_small_begin(
    struct tiara_comm *c, const struct tiara_call *call, struct tiara_call *near)
{
    size_t bytes = call->count * call->elem.size;
    enum tiara_err err = tiara_device_stage(c, call->far_in ? call->in : call->out);
    char *room = NULL;

    *near = *call;
    if (err != TIARA_OK)
        return err;
    room = c->exec.stage->room(c->exec.stage_obj, 2 * (size_t)TIARA_ARENA_SMALL_MAX);
    if (!room)
        return TIARA_ERR_NOMEM;
    if (call->far_out)
        near->out = room;
    if (call->far_in)
        near->in = call->in == call->out ? near->out : room + TIARA_ARENA_SMALL_MAX;
    if (!call->far_in)
        return TIARA_OK;
    err = c->exec.stage->fetch(c->exec.stage_obj, 0, (void *)(uintptr_t)near->in, call->in, bytes);
    return err == TIARA_OK ? await_copies(c, tiara_comm_wait(c)) : err;
}

enum tiara_err tiara_device_small_end(
    struct tiara_comm *c, const struct tiara_call *call, const struct tiara_call *near)
{
    enum tiara_err err;

    if (!call->far_out)
        return TIARA_OK;
    err = c->exec.stage->store(
        c->exec.stage_obj, 0, call->out, near->out, call->count * call->elem.size);
    return err == TIARA_OK ? await_copies(c, tiara_comm_wait(c)) : err;
}

/* ---- elements that kernels know ---- */

static const int kernel_types[TIARA_NTYPE] = {
    [TIARA_TYPE_I8] = TIARA_KERNEL_I8,
    [TIARA_TYPE_U8] = TIARA_KERNEL_U8,
    [TIARA_TYPE_I16] = TIARA_KERNEL_I16,
    [TIARA_TYPE_U16] = TIARA_KERNEL_U16,
    [TIARA_TYPE_I32] = TIARA_KERNEL_I32,
    [TIARA_TYPE_U32] = TIARA_KERNEL_U32,
    [TIARA_TYPE_I64] = TIARA_KERNEL_I64,
    [TIARA_TYPE_U64] = TIARA_KERNEL_U64,
    [TIARA_TYPE_F16] = TIARA_KERNEL_F16,
    [TIARA_TYPE_BF16] = TIARA_KERNEL_BF16,
    [TIARA_TYPE_F32] = TIARA_KERNEL_F32,
    [TIARA_TYPE_F64] = TIARA_KERNEL_F64,
    [TIARA_TYPE_E4M3] = TIARA_KERNEL_E4M3,
    [TIARA_TYPE_E5M2] = TIARA_KERNEL_E5M2,
    [TIARA_TYPE_F80] = -1,
    [TIARA_TYPE_C32] = -1,
    [TIARA_TYPE_C64] = -1,
    [TIARA_TYPE_BOOL] = -1,
};

static const int kernel_opers[TIARA_NOPER + 1] = {
    [TIARA_OPER_SUM] = TIARA_KERNEL_SUM,
    [TIARA_OPER_PROD] = TIARA_KERNEL_PROD,
    [TIARA_OPER_MIN] = TIARA_KERNEL_MIN,
    [TIARA_OPER_MAX] = TIARA_KERNEL_MAX,
    [TIARA_OPER_LAND] = TIARA_KERNEL_LAND,
    [TIARA_OPER_LOR] = TIARA_KERNEL_LOR,
    [TIARA_OPER_LXOR] = TIARA_KERNEL_LXOR,
    [TIARA_OPER_BAND] = TIARA_KERNEL_BAND,
    [TIARA_OPER_BOR] = TIARA_KERNEL_BOR,
    [TIARA_OPER_BXOR] = TIARA_KERNEL_BXOR,
    [TIARA_NOPER] = TIARA_KERNEL_SUM, /* AVG */
};

/* Whether kernels can combine the call's elements. The same on all ranks. */
static bool kernels_know(
    const struct tiara_comm *c, const struct tiara_call *call, struct tiara_gpu_call *g)
{
    *g = (struct tiara_gpu_call){.type = TIARA_KERNEL_U8, .oper = -1};
    if (call->coll == TIARA_COLL_ALLGATHER)
        return true;
    if (call->elem.type < 0 || call->elem.oper < 0 || kernel_types[call->elem.type] < 0)
        return false;
    /* The strict order rounds after every operand, kernels after every fold. */
    if (c->facts.reproducible && tiara_elem_is_small_float(&call->elem))
        return false;
    g->type = kernel_types[call->elem.type];
    g->oper = kernel_opers[call->elem.oper];
    g->finish_ranks = call->elem.oper == TIARA_NOPER ? c->size : 0;
    return true;
}

/* ---- the node's GPUs ---- */

/* The collective part of the first call on GPUs. Lack is no error: the communicator is refused. */
static enum tiara_err open_node(struct tiara_comm *c, int ordinal)
{
    const struct tiara_gpu_node_ops *ops = tiara_device()->node;
    struct tiara_comm_device *d = &c->device;
    struct tiara_gpu_node_params params = {.group = &d->group,
        .ordinal = ordinal,
        .cell_bytes = (size_t)c->config.cuda_cell / 4096 * 4096,
        .spin_s = (double)c->config.timeout_us * 1e-6};
    enum tiara_gpu_links links = TIARA_GPU_LINKS_ALL;
    enum tiara_err err, voted;
    unsigned char all = 0, mine = 0;

    d->group = (struct tiara_xport_group){
        .rank = c->arena->index, .size = c->arena->size, .allgather = gather, .arg = c};
    err = ops->open(&d->node, &params);
    if (err == TIARA_OK) {
        links = ops->links(d->node, d->order);
        mine = (unsigned char)(1 | (links == TIARA_GPU_LINKS_ALL) << 1);
    } else {
        d->node = NULL;
    }
    if (err == TIARA_ERR_MISMATCH || err == TIARA_ERR_PEER || err == TIARA_ERR_TIMEOUT)
        return err;
    voted = tiara_core_vote(c, mine, &all);
    if (voted != TIARA_OK)
        return voted;
    d->refused = !(all & 1);
    if (d->refused) {
        tiara_info("communicator %u: GPU memory goes through host memory", c->id);
        ops->close(d->node);
        d->node = NULL;
        return TIARA_OK;
    }
    d->ordinal = ordinal;
    c->facts.device = (struct tiara_tune_device){.ring = !(all & 2),
        .order = d->order,
        .share = c->config.cuda_map != 0,
        .packets_max = TIARA_KERNEL_SMALL_MAX,
        .cell_bytes = params.cell_bytes,
        .slots = TIARA_KERNEL_SLOTS};
    return TIARA_OK;
}

/* Whether all ranks can take the call to their GPUs. Collective, as far as it has to be. */
static enum tiara_err agree(
    struct tiara_comm *c, const struct tiara_call *call, bool mine, bool *all_out)
{
    unsigned char all = 0;
    enum tiara_err err;

    *all_out = false;
    if (c->layout.nnodes == 1) {
        tiara_arena_say_kind(c->arena, mine);
        return mine ? tiara_arena_await_kinds(c->arena, all_out) : TIARA_OK;
    }
    if (call->count * call->elem.size <= c->facts.small_max)
        return TIARA_OK;
    err = tiara_core_vote(c, mine, &all);
    *all_out = all & 1;
    return err;
}

/* ---- a call on the GPUs ---- */

/* Whether this call could be on the GPUs, as far as all ranks know alike. */
static bool is_possible(
    const struct tiara_comm *c, const struct tiara_call *call, struct tiara_gpu_call *g)
{
    const struct tiara_comm_device *d = &c->device;

    return d->possible && !d->refused && c->arena && c->layout.max_local <= TIARA_GPU_NODE_MAX &&
           kernels_know(c, call, g);
}

static void choose(const struct tiara_comm *c, const struct tiara_call *call, bool share,
    struct tiara_tune_choice *choice)
{
    struct tiara_tune_facts facts = c->facts;
    struct tiara_tune_call q;

    facts.device.share = facts.device.share && share;
    tiara_call_query(call, true, &q);
    tiara_tune_choose(&facts, &q, choice);
    tiara_call_log(c, &q, choice);
}

static struct tiara_exec_call exec_call(const struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice)
{
    return (struct tiara_exec_call){.in = call->in,
        .out = call->out,
        .count = call->count,
        .elem_size = call->elem.size,
        .chunk_elems = choice->chunk_elems,
        .slots = choice->slots,
        .digest = tiara_call_digest(c, call),
        .finish_ranks = c->size};
}

enum tiara_err tiara_device_run_choice(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    struct tiara_exec_call x = exec_call(c, call, choice);
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!kernels_know(c, call, &g))
        return TIARA_ERR_UNSUPPORTED;
    g.direct = c->device.direct;
    g.share = choice->opts.single_copy;
    tiara_call_begin(c, call);
    tiara_arena_publish(c->arena, 0);
    if (choice->path == TIARA_PATH_PLAN)
        err = tiara_core_plan(c, choice, TIARA_PLAN_DEVICE, &x.plan);
    if (err == TIARA_OK)
        err = tiara_device()->node->run(c->device.node, &c->exec, &x, &g);
    /* Exchanges within may have counted as calls of the arena: whatever comes next begins anew, on
     * all ranks. */
    call->begun = false;
    return err;
}

enum tiara_err tiara_device_run(struct tiara_comm *c, struct tiara_call *call, bool *done_out)
{
    struct tiara_comm_device *d = &c->device;
    struct tiara_tune_choice choice;
    struct tiara_gpu_call g;
    bool all, mine;
    enum tiara_err err = TIARA_OK;

    *done_out = false;
    if (c->ncalls >= d->next_vote) {
        d->next_vote = 2 * c->ncalls;
        if (!d->ready && !d->refused) {
            /* Peers of a rank that gives up in this call must see that it was this one. */
            tiara_call_begin(c, call);
            err = vote_ready(c);
        }
    }
    if (err != TIARA_OK || !d->ready || !is_possible(c, call, &g))
        return err;
    tiara_call_begin(c, call);
    mine = call->far_in && call->far_out && call->ordinal >= 0 &&
           (!d->node || call->ordinal == d->ordinal);
    err = agree(c, call, mine, &all);
    if (err != TIARA_OK || !all)
        return err;
    call->begun = false;
    if (!d->node)
        err = open_node(c, call->ordinal);
    if (err != TIARA_OK || d->refused)
        return err;
    choose(c, call, true, &choice);
    if (choice.path == TIARA_PATH_MPI)
        return TIARA_OK;
    err = tiara_device_run_choice(c, call, &choice);
    if (err == TIARA_ERR_UNSUPPORTED && choice.opts.single_copy) {
        /* Agreed: a buffer cannot be mapped. */
        choose(c, call, false, &choice);
        err = tiara_device_run_choice(c, call, &choice);
    }
    if (err == TIARA_ERR_UNSUPPORTED) {
        /* Agreed: a rank could not prepare the plan. */
        d->refused = true;
        return TIARA_OK;
    }
    *done_out = err == TIARA_OK;
    c->calls[TIARA_COUNT_DEVICE] += *done_out;
    return err;
}

/* ---- in a stream ---- */

/* What the first call in a stream agrees on. TIARA_ERR_UNSUPPORTED also when peers have left this
 * call to the MPI. */
static enum tiara_err set_up(struct tiara_comm *c, struct tiara_call *call)
{
    struct tiara_comm_device *d = &c->device;
    enum tiara_err err = TIARA_OK;

    tiara_call_begin(c, call);
    if (!d->ready)
        err = vote_ready(c);
    if (err == TIARA_OK && d->ready)
        err = open_node(c, call->ordinal);
    call->begun = false;
    return err;
}

enum tiara_err tiara_device_prepare_choice(struct tiara_comm *c, struct tiara_call *call,
    bool may_set_up, struct tiara_tune_choice *choice)
{
    struct tiara_comm_device *d = &c->device;
    const struct tiara_plan *plan;
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!is_possible(c, call, &g) || (!d->node && !may_set_up))
        return TIARA_OK;
    if (!d->node) {
        err = tiara_stream_drain(c);
        if (err == TIARA_OK)
            err = set_up(c, call);
        if (err != TIARA_OK || !d->ready || d->refused)
            return err == TIARA_ERR_UNSUPPORTED ? TIARA_OK : err;
    }
    choose(c, call, false, choice);
    if (choice->path == TIARA_PATH_PLAN && !tiara_core_has_plan(c, choice, TIARA_PLAN_DEVICE)) {
        if (may_set_up) {
            err = tiara_stream_drain(c);
            if (err == TIARA_OK) {
                tiara_call_begin(c, call);
                err = tiara_core_plan(c, choice, TIARA_PLAN_DEVICE, &plan);
                call->begun = false;
            }
        }
        if (!may_set_up || err == TIARA_ERR_UNSUPPORTED) {
            choice->path = TIARA_PATH_MPI;
            err = TIARA_OK;
        }
    }
    return err;
}

enum tiara_err tiara_device_enqueue_choice(struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice, void *stream)
{
    struct tiara_exec_call x = exec_call(c, call, choice);
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!kernels_know(c, call, &g))
        return TIARA_ERR_UNSUPPORTED;
    if (choice->path == TIARA_PATH_PLAN)
        err = tiara_core_plan(c, choice, TIARA_PLAN_DEVICE, &x.plan);
    if (err == TIARA_OK)
        err = tiara_device()->node->enqueue(c->device.node, &c->exec, &x, &g, stream);
    c->calls[TIARA_COUNT_DEVICE] += err == TIARA_OK;
    return err;
}
