/*
 * The one-shot way: one exchange of small slots, in which every rank reduces all vectors. Between
 * nodes a plan follows: on node index 0, which publishes its result, or on every rank with its
 * rail, where nodes are small and equal: more messages, but nobody waits for a leader.
 *
 * GPU memory is copied to pinned memory first, and the result back.
 *
 * A blocking call that all ranks can see to be fast goes a way of its own, tiara_oneshot_fast: the
 * steps below would cost as much as the exchange itself, which takes 0.3 us.
 */
#include "call/oneshot.h"
#include "call/stage.h"
#include "call/way.h"
#include "comm/plan_cache.h"

enum phase {
    FETCH, /* the input comes from GPU memory */
    PUBLISH,
    FOLD, /* the node's vectors */
    BETWEEN, /* with other nodes */
    TAKE, /* the result of node index 0 */
    STORE /* the result goes to GPU memory */
};

/* Whether this rank speaks with other nodes. */
static bool is_leader(const struct tiara_task *t)
{
    return t->choice.opts.leaders > 1 || t->c->arena->index == 0;
}

/* Whether others wait for this rank's result instead of its vector. */
static bool is_only_leader(const struct tiara_task *t)
{
    return t->c->layout.nnodes > 1 && t->choice.opts.leaders <= 1 && t->c->arena->index == 0;
}

/* ---- GPU memory ---- */

/* Has pinned memory stand in for buffers in GPU memory; starts what has to come. */
static enum tiara_err stage(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;
    const struct tiara_call *call = t->call;
    enum tiara_err err = tiara_stage_open(c, call->device_in ? call->in : call->out);
    char *pinned = NULL;

    if (err != TIARA_OK)
        return err;
    pinned = c->exec.stage->bounce(c->exec.stage_obj, 2 * (size_t)TIARA_ARENA_SMALL_MAX);
    if (!pinned)
        return TIARA_ERR_NOMEM;
    if (call->device_out)
        t->small.out = pinned;
    if (!call->device_in)
        return TIARA_OK;
    t->small.in = tiara_call_is_in_place(call) ? pinned : pinned + TIARA_ARENA_SMALL_MAX;
    t->phase = FETCH;
    return c->exec.stage->fetch(
        c->exec.stage_obj, 0, (void *)(uintptr_t)t->small.in, call->in, t->small.bytes);
}

static bool are_copies_done(struct tiara_task *t, enum tiara_err *err)
{
    bool done = false;

    *err = t->c->exec.stage->test(t->c->exec.stage_obj, 0, &done);
    return done || *err != TIARA_OK;
}

/* ---- between nodes ---- */

/* The plan, agreed on; and the number of the one chunk, which counts on all ranks, also those that
 * send nothing, since message tags hold it. */
static enum tiara_err prepare_between(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;
    struct tiara_tune_choice inter = {.algo = t->choice.opts.inter};
    enum tiara_err err;

    t->bare = *t->call->elem.redop;
    t->bare.finish = NULL; /* every rank finishes its own copy */
    t->exec = (struct tiara_exec_call){.op = &t->bare,
        .in = t->small.out,
        .out = t->small.out,
        .count = t->small.count,
        .elem_size = t->call->elem.size,
        .slots = 1,
        .digest = c->digest};
    err = tiara_plan_get(c, &inter, TIARA_PLAN_BETWEEN, &t->exec.plan);
    if (err == TIARA_OK)
        c->between.chunk_seq = c->exec.chunk_seq++;
    return err;
}

static bool poll_between(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err)
{
    bool moved, over;

    do {
        over = tiara_exec_poll(t->c->run_between, on, &moved, err);
    } while (!over && moved);
    if (!over)
        return false;
    *err = tiara_exec_close(t->c->run_between, *err);
    if (*err == TIARA_OK && is_only_leader(t))
        tiara_small_publish_result(t->c->arena, &t->small);
    return true;
}

/* ---- the way ---- */

static enum tiara_err oneshot_start(struct tiara_task *t)
{
    enum tiara_err err = TIARA_OK;

    t->small = tiara_call_small(t->call);
    t->phase = PUBLISH;
    t->peer = 0;
    tiara_call_begin(t->c, t->call);
    if (t->call->device_in || t->call->device_out)
        err = stage(t);
    if (err == TIARA_OK && t->c->layout.nnodes > 1)
        err = prepare_between(t);
    return err;
}

static void publish(struct tiara_task *t)
{
    if (is_only_leader(t))
        tiara_small_keep(t->c->arena, &t->small);
    else
        tiara_small_publish(t->c->arena, &t->small);
}

/* The node's result is there. */
static enum tiara_err end_node(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;

    t->phase = STORE;
    if (c->layout.nnodes == 1)
        return TIARA_OK;
    t->phase = BETWEEN;
    return tiara_exec_open(c->run_between, &c->between, &t->exec);
}

/* The result is complete on the host. */
static enum tiara_err end_result(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;
    const struct tiara_redop *op = t->small.op;

    t->phase = STORE;
    if (op->finish)
        op->finish(op, t->small.out, t->small.count, c->size);
    if (!t->call->device_out)
        return TIARA_OK;
    return c->exec.stage->store(c->exec.stage_obj, 0, t->call->out, t->small.out, t->small.bytes);
}

/* Ends the present phase, if it can be ended without waiting. */
static bool step(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err)
{
    struct tiara_arena *a = t->c->arena;

    switch ((enum phase)t->phase) {
    case FETCH:
        if (!are_copies_done(t, err))
            return false;
        t->phase = PUBLISH;
        return true;
    case PUBLISH:
        publish(t);
        t->phase = t->c->layout.nnodes == 1 || is_leader(t) ? FOLD : TAKE;
        return true;
    case FOLD:
        if (!tiara_small_poll(a, &t->small, &t->peer, on, err))
            return false;
        if (*err == TIARA_OK)
            *err = end_node(t);
        break;
    case BETWEEN:
        if (!poll_between(t, on, err))
            return false;
        t->phase = STORE;
        break;
    case TAKE:
        if (!tiara_small_take_result(a, &t->small, on, err))
            return false;
        t->phase = STORE;
        break;
    case STORE:
        return !t->call->device_out || are_copies_done(t, err);
    }
    if (*err == TIARA_OK && t->phase == STORE)
        *err = end_result(t);
    return true;
}

static bool oneshot_poll(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    bool is_last;

    *err_out = TIARA_OK;
    t->moved = false; /* when it returns false, all has been tried */
    do {
        is_last = t->phase == STORE;
        on->word = NULL;
        if (!step(t, on, err_out))
            return false;
    } while (!is_last && *err_out == TIARA_OK);
    return true;
}

static enum tiara_err oneshot_finish(struct tiara_task *t, enum tiara_err err)
{
    struct tiara_comm *c = t->c;

    if (err != TIARA_OK && t->phase == BETWEEN)
        err = tiara_exec_close(c->run_between, err);
    /* Ranks that speak with other nodes have partial sums in their result buffer. */
    if (err == TIARA_ERR_UNSUPPORTED && is_leader(t))
        tiara_small_restore(c->arena, &t->small);
    if (err != TIARA_OK)
        return err;
    c->calls[TIARA_COUNT_ONESHOT]++;
    c->calls[TIARA_COUNT_STAGED] += t->call->device_in || t->call->device_out;
    return TIARA_OK;
}

const struct tiara_way tiara_way_oneshot = {
    .name = "one-shot",
    .start = oneshot_start,
    .poll = oneshot_poll,
    .finish = oneshot_finish,
};

/* ---- the shortest way ---- */

/* What is left of the call after an error, for the one way to leave it. */
static enum tiara_err leave_fast(struct tiara_comm *c, const struct tiara_elem *elem,
    const void *in, void *out, size_t count, enum tiara_err err)
{
    struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE,
        .elem = *elem,
        .in = in,
        .out = out,
        .count = count,
        .number = c->ncalls,
        .begun = true};

    return tiara_call_leave(c, &call, err);
}

enum tiara_err tiara_oneshot_fast(
    struct tiara_comm *c, const struct tiara_elem *elem, const void *in, void *out, size_t count)
{
    struct tiara_call call;
    struct tiara_small_call small = {.op = elem->redop,
        .mem = &tiara_mem_host,
        .in = in,
        .out = out,
        .count = count,
        .bytes = count * elem->size};
    enum tiara_err err;

    /* Not all of it is set: only what begin reads, as the rest is longer than the call takes. */
    call.coll = TIARA_COLL_ALLREDUCE;
    call.elem = *elem;
    call.in = in;
    call.out = out;
    call.count = count;
    call.number = ++c->ncalls;
    call.begun = false;
    tiara_call_begin(c, &call);
    err = tiara_small_node(c->arena, &small);
    if (__builtin_expect(err != TIARA_OK, 0))
        return leave_fast(c, elem, in, out, count, err);
    c->calls[TIARA_COUNT_ONESHOT]++;
    if (small.op->finish)
        small.op->finish(small.op, out, count, c->size);
    return TIARA_OK;
}
