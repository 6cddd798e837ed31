/*
 * How a call gets onto the GPUs. comm/device.h has the rules of agreement.
 */
#include "call/on_device.h"
#include "base/alloc.h"
#include "base/log.h"
#include "call/proxy.h"
#include "call/stage.h"
#include "call/way.h"
#include "comm/agree.h"
#include "comm/plan_cache.h"
#include "kernels/kernels.h"

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
    if (!tiara_comm_serves(c) || c->arena->dead)
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

void tiara_on_device_fini(struct tiara_comm *c)
{
    const struct tiara_gpu *gpu = c->device.possible || c->exec.stage_obj ? tiara_device() : NULL;

    if (!gpu)
        return;
    tiara_proxy_close(c);
    c->device.closing = true;
    gpu->node->close(c->device.node);
    tiara_stage_close(c);
}

/* Has everybody loaded CUDA by now. */
static enum tiara_err agree_ready(struct tiara_comm *c)
{
    struct tiara_comm_device *d = &c->device;
    unsigned mine = (tiara_device() ? TIARA_AGREE_CUDA : 0) |
                    (tiara_device_mpi_direct() ? TIARA_AGREE_CUDA_MPI : 0);
    unsigned all;
    enum tiara_err err = tiara_agree(c, mine, &all);

    if (err == TIARA_OK && all & TIARA_AGREE_CUDA) {
        d->ready = true;
        d->direct = all & TIARA_AGREE_CUDA_MPI;
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

enum tiara_err tiara_on_device_classify(const struct tiara_comm *c, struct tiara_call *call)
{
    const struct tiara_gpu *gpu = tiara_device();
    size_t one = call->count * call->elem.size, all = one * (size_t)c->size;
    bool is_allreduce = call->coll == TIARA_COLL_ALLREDUCE;
    size_t in_bytes = is_allreduce || call->coll == TIARA_COLL_ALLGATHER ? one : all;
    size_t out_bytes = is_allreduce || call->coll == TIARA_COLL_REDUCE_SCATTER ? one : all;
    struct tiara_gpu_pointer in = {0}, out = {0};
    enum tiara_err err;

    call->device_in = call->device_out = false;
    if (!gpu)
        return TIARA_OK;
    err = look(c, gpu, "recvbuf", call->out, out_bytes, &out);
    if (err == TIARA_OK && call->in != call->out)
        err = look(c, gpu, "sendbuf", call->in, in_bytes, &in);
    else
        in = out;
    if (err != TIARA_OK)
        return err;
    call->device_in = in.device;
    call->device_out = out.device;
    call->ordinal = in.device && out.device && in.ordinal == out.ordinal ? in.ordinal : -1;
    return TIARA_OK;
}

/* ---- elements that kernels know ---- */

/* Whether kernels can combine the call's elements. The same on all ranks. */
static bool kernels_know(const struct tiara_comm *c, const struct tiara_call *call)
{
    if (call->coll == TIARA_COLL_ALLGATHER)
        return true;
    if (call->elem.type < 0 || call->elem.oper < 0 || call->elem.type >= TIARA_NGPU_TYPE)
        return false;
    /* The strict order rounds after every operand, kernels after every fold. */
    return !(c->facts.reproducible && tiara_elem_is_small_float(&call->elem));
}

static void tell_kernels(struct tiara_task *t)
{
    const struct tiara_comm *c = t->c;
    const struct tiara_elem *e = &t->call->elem;
    struct tiara_gpu_call *g = &t->gpu;
    bool moves = t->call->coll == TIARA_COLL_ALLGATHER, avg = e->oper == TIARA_NOPER;

    g->type = moves ? TIARA_TYPE_U8 : e->type;
    g->oper = moves ? -1 : avg ? TIARA_OPER_SUM : e->oper;
    g->finish_ranks = !moves && avg ? c->size : 0;
    g->direct = c->device.direct && c->exec.net && c->exec.net->flags & TIARA_XPORT_BELOW;
    g->share = t->choice.opts.single_copy;
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
    enum tiara_err err, agreed;
    unsigned all = 0, mine = 0;

    d->group = (struct tiara_xport_group){
        .rank = c->arena->index, .size = c->arena->size, .allgather = gather, .arg = c};
    err = ops->open(&d->node, &params);
    if (err == TIARA_OK) {
        links = ops->links(d->node, d->order);
        mine = TIARA_AGREE_READY | (links == TIARA_GPU_LINKS_ALL ? TIARA_AGREE_LINKED : 0);
    } else {
        d->node = NULL;
    }
    if (err == TIARA_ERR_MISMATCH || err == TIARA_ERR_PEER || err == TIARA_ERR_TIMEOUT)
        return err;
    agreed = tiara_agree(c, mine, &all);
    if (agreed != TIARA_OK)
        return agreed;
    d->refused = !(all & TIARA_AGREE_READY);
    if (d->refused) {
        tiara_info("communicator %u: GPU memory goes through host memory", c->id);
        ops->close(d->node);
        d->node = NULL;
        return TIARA_OK;
    }
    d->ordinal = ordinal;
    d->facts = (struct tiara_tune_device){.ring = !(all & TIARA_AGREE_LINKED),
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
    unsigned all = 0;
    enum tiara_err err;

    *all_out = false;
    if (c->layout.nnodes == 1) {
        tiara_arena_say_kind(c->arena, mine);
        return mine ? tiara_arena_await_kinds(c->arena, all_out) : TIARA_OK;
    }
    if (call->count * call->elem.size <= c->facts.small_max)
        return TIARA_OK;
    err = tiara_agree(c, mine ? TIARA_AGREE_DEVICE : 0, &all);
    *all_out = all & TIARA_AGREE_DEVICE;
    return err;
}

/* ---- a call on the GPUs ---- */

/* Whether this call could be on the GPUs, as far as all ranks know alike. */
static bool is_possible(const struct tiara_comm *c, const struct tiara_call *call)
{
    const struct tiara_comm_device *d = &c->device;

    return d->possible && !d->refused && c->arena && c->layout.max_local <= TIARA_GPU_NODE_MAX &&
           kernels_know(c, call);
}

static enum tiara_err device_start(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;
    enum tiara_err err = TIARA_OK;

    t->exec = tiara_call_exec(c, t->call, &t->choice);
    tell_kernels(t);
    if (!t->gpu.in_stream) {
        tiara_call_begin(c, t->call);
        tiara_arena_publish(c->arena);
    }
    if (t->choice.path == TIARA_PATH_PLAN)
        err = tiara_plan_get(c, &t->choice, TIARA_PLAN_DEVICE, &t->exec.plan);
    if (err == TIARA_OK)
        err = tiara_device()->node->start(c->device.node, &c->exec, &t->exec, &t->gpu);
    c->calls[TIARA_COUNT_DEVICE] += t->gpu.in_stream && err == TIARA_OK;
    if (err != TIARA_OK)
        t->call->begun = false;
    return err;
}

static bool device_poll(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    bool over = false;

    on->word = NULL;
    *err_out = tiara_device()->node->poll(t->c->device.node, &t->moved, &over);
    return over || *err_out != TIARA_OK;
}

static enum tiara_err device_finish(struct tiara_task *t, enum tiara_err err)
{
    err = tiara_device()->node->finish(t->c->device.node, err);
    t->c->calls[TIARA_COUNT_DEVICE] += err == TIARA_OK;
    /* Exchanges within may have counted as calls of the arena: whatever comes next begins anew, on
     * all ranks. */
    t->call->begun = false;
    return err;
}

const struct tiara_way tiara_way_device = {
    .name = "device",
    .start = device_start,
    .poll = device_poll,
    .finish = device_finish,
};

enum tiara_err tiara_on_device_choose(
    struct tiara_comm *c, struct tiara_call *call, struct tiara_tune_choice *choice)
{
    struct tiara_comm_device *d = &c->device;
    bool all, mine;
    enum tiara_err err = TIARA_OK;

    choice->path = TIARA_PATH_MPI;
    if (c->ncalls >= d->next_agreement) {
        d->next_agreement = 2 * c->ncalls;
        if (!d->ready && !d->refused) {
            /* Peers of a rank that gives up in this call must see that it was this one. */
            tiara_call_begin(c, call);
            err = agree_ready(c);
            if (err != TIARA_OK)
                return err;
            /* An agreement in the arena counts as a call of it: what comes next begins anew. */
            call->begun = false;
        }
    }
    if (!d->ready || !is_possible(c, call))
        return TIARA_OK;
    tiara_call_begin(c, call);
    mine = call->device_in && call->device_out && call->ordinal >= 0 &&
           (!d->node || call->ordinal == d->ordinal);
    err = agree(c, call, mine, &all);
    if (err != TIARA_OK || !all)
        return err;
    call->begun = false;
    if (!d->node)
        err = open_node(c, call->ordinal);
    if (err != TIARA_OK || d->refused)
        return err;
    tiara_call_choose(c, call, TIARA_ON_DEVICE, choice);
    return TIARA_OK;
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
        err = agree_ready(c);
    if (err == TIARA_OK && d->ready)
        err = open_node(c, call->ordinal);
    call->begun = false;
    return err;
}

enum tiara_err tiara_on_device_prepare(struct tiara_comm *c, struct tiara_call *call,
    bool may_set_up, struct tiara_tune_choice *choice)
{
    struct tiara_comm_device *d = &c->device;
    const struct tiara_plan *plan;
    enum tiara_err err = TIARA_OK;

    if (!is_possible(c, call) || (!d->node && !may_set_up))
        return TIARA_OK;
    if (!d->node) {
        err = tiara_proxy_drain(c);
        if (err == TIARA_OK)
            err = set_up(c, call);
        if (err != TIARA_OK || !d->ready || d->refused)
            return err == TIARA_ERR_UNSUPPORTED ? TIARA_OK : err;
    }
    tiara_call_choose(c, call, TIARA_ON_DEVICE_UNSHARED, choice);
    if (choice->path == TIARA_PATH_PLAN && !tiara_plan_is_cached(c, choice, TIARA_PLAN_DEVICE)) {
        if (may_set_up) {
            err = tiara_proxy_drain(c);
            if (err == TIARA_OK) {
                tiara_call_begin(c, call);
                err = tiara_plan_get(c, choice, TIARA_PLAN_DEVICE, &plan);
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
