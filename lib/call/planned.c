/*
 * The way of plans on the host.
 */
#include "base/alloc.h"
#include "call/stage.h"
#include "call/way.h"
#include "comm/plan_cache.h"
#include <string.h>

/* MPI puts the result of an in-place reduce-scatter over the first block of the input, which is
 * needed until the end. */
static bool needs_aside(const struct tiara_call *call)
{
    return call->coll == TIARA_COLL_REDUCE_SCATTER && tiara_call_is_in_place(call);
}

/* What the plan is run on. */
static enum tiara_err describe(struct tiara_task *t)
{
    struct tiara_call *call = t->call;

    t->exec = tiara_call_exec(t->c, call, &t->choice);
    t->exec.stage_in = call->device_in;
    t->exec.stage_out = call->device_out;
    t->aside = NULL;
    if (needs_aside(call)) {
        t->aside = tiara_alloc_aligned(64, call->count * call->elem.size);
        if (!t->aside)
            return TIARA_ERR_NOMEM;
        t->exec.out = t->aside;
        t->exec.stage_out = false;
    }
    if (t->exec.stage_in || t->exec.stage_out)
        return tiara_stage_open(t->c, call->device_in ? call->in : call->out);
    return TIARA_OK;
}

static enum tiara_err plan_start(struct tiara_task *t)
{
    struct tiara_comm *c = t->c;
    enum tiara_err err = describe(t);

    if (t->posted) {
        tiara_posted_begin(c->arena, t->posted);
        c->digest = t->posted->digest;
    } else {
        tiara_call_begin(c, t->call);
        /* Before a plan is made, which takes an agreement: a peer that called differently is not
         * in it, but can be seen here. */
        if (err == TIARA_OK && c->arena)
            tiara_arena_publish(c->arena);
    }
    t->exec.plan = t->plan;
    if (err == TIARA_OK && !t->plan)
        err = tiara_plan_get(c, &t->choice, TIARA_PLAN_HOST, &t->exec.plan);
    if (err == TIARA_OK)
        err = tiara_exec_open(c->run, &c->exec, &t->exec);
    if (err != TIARA_OK)
        tiara_free(t->aside);
    return err;
}

static bool plan_poll(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    return tiara_exec_poll(t->c->run, on, &t->moved, err_out);
}

/* The caller's result, from host memory. */
static enum tiara_err write_result(struct tiara_task *t)
{
    const struct tiara_call *call = t->call;
    size_t bytes = call->count * call->elem.size;

    if (call->device_out)
        return tiara_stage_copy(t->c, call->out, t->aside, bytes, true);
    memcpy(call->out, t->aside, bytes);
    return TIARA_OK;
}

/*
 * Plans through cells write results only when all ranks have contributed; those without work in the
 * result buffer, which then may hold partial sums after an error. When that was also the input, the
 * call cannot go another way any more, and has failed.
 */
static bool has_partial_sums(const struct tiara_task *t)
{
    bool has_cells =
        !(t->choice.algo->flags & TIARA_ALGO_FLAT) && t->c->layout.nnodes != t->c->size;

    return !has_cells && t->exec.in == t->exec.out;
}

static enum tiara_err plan_finish(struct tiara_task *t, enum tiara_err err)
{
    struct tiara_comm *c = t->c;

    err = tiara_exec_close(c->run, err);
    if (err == TIARA_ERR_UNSUPPORTED && has_partial_sums(t)) {
        t->call->is_missed = true;
        err = TIARA_ERR_PEER;
    }
    if (err == TIARA_OK && t->aside)
        err = write_result(t);
    tiara_free(t->aside);
    if (err == TIARA_OK) {
        c->calls[TIARA_COUNT_PLAN]++;
        c->calls[TIARA_COUNT_STAGED] += t->exec.stage_in || t->exec.stage_out;
    }
    return err;
}

const struct tiara_way tiara_way_plan = {
    .name = "plan",
    .start = plan_start,
    .poll = plan_poll,
    .finish = plan_finish,
};
