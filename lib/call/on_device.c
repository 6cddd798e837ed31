/*
 * How a call gets onto the GPUs. comm/device.h has the rules of agreement.
 */
#include "call/on_device.h"
#include "base/alloc.h"
#include "base/log.h"
#include "call/proxy.h"
#include "call/stage.h"
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
static bool kernels_know(
    const struct tiara_comm *c, const struct tiara_call *call, struct tiara_gpu_call *g)
{
    *g = (struct tiara_gpu_call){.type = TIARA_TYPE_U8, .oper = -1};
    if (call->coll == TIARA_COLL_ALLGATHER)
        return true;
    if (call->elem.type < 0 || call->elem.oper < 0 || call->elem.type >= TIARA_NGPU_TYPE)
        return false;
    /* The strict order rounds after every operand, kernels after every fold. */
    if (c->facts.reproducible && tiara_elem_is_small_float(&call->elem))
        return false;
    g->type = call->elem.type;
    g->oper = call->elem.oper == TIARA_NOPER ? TIARA_OPER_SUM : call->elem.oper;
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
    tiara_call_choose(c, call, share ? TIARA_ON_DEVICE : TIARA_ON_DEVICE_UNSHARED, choice);
}

enum tiara_err tiara_on_device_run_choice(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    struct tiara_exec_call x = tiara_call_exec(c, call, choice);
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!kernels_know(c, call, &g))
        return TIARA_ERR_UNSUPPORTED;
    g.direct = c->device.direct && c->exec.net && c->exec.net->flags & TIARA_XPORT_BELOW;
    g.share = choice->opts.single_copy;
    tiara_call_begin(c, call);
    tiara_arena_publish(c->arena, 0);
    if (choice->path == TIARA_PATH_PLAN)
        err = tiara_plan_get(c, choice, TIARA_PLAN_DEVICE, &x.plan);
    if (err == TIARA_OK)
        err = tiara_device()->node->run(c->device.node, &c->exec, &x, &g);
    /* Exchanges within may have counted as calls of the arena: whatever comes next begins anew, on
     * all ranks. */
    call->begun = false;
    return err;
}

enum tiara_err tiara_on_device_run(struct tiara_comm *c, struct tiara_call *call, bool *done_out)
{
    struct tiara_comm_device *d = &c->device;
    struct tiara_tune_choice choice;
    struct tiara_gpu_call g;
    bool all, mine;
    enum tiara_err err = TIARA_OK;

    *done_out = false;
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
    if (!d->ready || !is_possible(c, call, &g))
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
    choose(c, call, true, &choice);
    if (choice.path == TIARA_PATH_MPI)
        return TIARA_OK;
    err = tiara_on_device_run_choice(c, call, &choice);
    if (err == TIARA_ERR_UNSUPPORTED && choice.opts.single_copy) {
        /* Agreed: a buffer cannot be mapped. */
        choose(c, call, false, &choice);
        err = tiara_on_device_run_choice(c, call, &choice);
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
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!is_possible(c, call, &g) || (!d->node && !may_set_up))
        return TIARA_OK;
    if (!d->node) {
        err = tiara_proxy_drain(c);
        if (err == TIARA_OK)
            err = set_up(c, call);
        if (err != TIARA_OK || !d->ready || d->refused)
            return err == TIARA_ERR_UNSUPPORTED ? TIARA_OK : err;
    }
    choose(c, call, false, choice);
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

enum tiara_err tiara_on_device_enqueue(struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice, void *stream)
{
    struct tiara_exec_call x = tiara_call_exec(c, call, choice);
    struct tiara_gpu_call g;
    enum tiara_err err = TIARA_OK;

    if (!kernels_know(c, call, &g))
        return TIARA_ERR_UNSUPPORTED;
    if (choice->path == TIARA_PATH_PLAN)
        err = tiara_plan_get(c, choice, TIARA_PLAN_DEVICE, &x.plan);
    if (err == TIARA_OK)
        err = tiara_device()->node->enqueue(c->device.node, &c->exec, &x, &g, stream);
    c->calls[TIARA_COUNT_DEVICE] += err == TIARA_OK;
    return err;
}
