/*
 * The builder of plans.
 *
 * Generators only append; every append either succeeds or leaves a sticky error that
 * tiara_plan_finish() hands out, so that generators have no error paths. The builder refuses only
 * what would break its own arrays or the order of steps. Whether the plan is right is for the
 * checker.
 */
#include "plan/plan.h"
#include "base/log.h"
#include "plan/array.h"
#include "plan/slice.h"
#include <string.h>

static void fail_nomem(struct tiara_plan *plan)
{
    tiara_error("plan of rank %d: no memory after %d ops", plan->rank, plan->nops);
    plan->sticky = TIARA_ERR_NOMEM;
}

/* Takes kind, step, peer and dst from @op; its sources follow. */
static void append(struct tiara_plan *plan, struct tiara_op op)
{
    int last = plan->nops > 0 ? plan->ops[plan->nops - 1].step : 1;

    if (plan->sticky != TIARA_OK)
        return;
    if (op.step < last) {
        tiara_error("plan of rank %d: op %d has step %d after step %d", plan->rank, plan->nops,
            op.step, last);
        plan->sticky = TIARA_ERR_PLAN;
        return;
    }
    if (!tiara_array_grow(&plan->ops, &plan->cap_ops, plan->nops, sizeof(op))) {
        fail_nomem(plan);
        return;
    }
    op.src = plan->nsrcs;
    plan->nasync += tiara_op_is_async(&op);
    plan->ops[plan->nops++] = op;
}

void tiara_plan_source(struct tiara_plan *plan, struct tiara_slice src)
{
    struct tiara_op *op;

    if (plan->sticky != TIARA_OK || src.count == 0)
        return;
    if (!tiara_array_grow(&plan->srcs, &plan->cap_srcs, plan->nsrcs, sizeof(src))) {
        fail_nomem(plan);
        return;
    }
    plan->srcs[plan->nsrcs++] = src;
    op = &plan->ops[plan->nops - 1];
    if (++op->nsrc > 1)
        op->kind = TIARA_OP_REDUCE;
}

void tiara_plan_init(
    struct tiara_plan *plan, enum tiara_coll coll, int rank, int nranks, int nblocks)
{
    *plan = (struct tiara_plan){.coll = coll, .rank = rank, .nranks = nranks, .nblocks = nblocks};
}

void tiara_plan_fini(struct tiara_plan *plan)
{
    tiara_free(plan->ops);
    tiara_free(plan->srcs);
    tiara_free(plan->waits);
    memset(plan, 0, sizeof(*plan));
}

void tiara_plan_tmp(struct tiara_plan *plan, int blocks)
{
    if (plan->sticky == TIARA_OK && blocks > plan->tmp_blocks)
        plan->tmp_blocks = blocks;
}

void tiara_plan_fold(struct tiara_plan *plan, int step, struct tiara_slice dst)
{
    if (dst.count != 0)
        append(
            plan, (struct tiara_op){.kind = TIARA_OP_COPY, .step = step, .peer = -1, .dst = dst});
}

void tiara_plan_copy(
    struct tiara_plan *plan, int step, struct tiara_slice dst, struct tiara_slice src)
{
    if (tiara_slice_equal(dst, src, false))
        return;
    tiara_plan_fold(plan, step, dst);
    tiara_plan_source(plan, src);
}

void tiara_plan_reduce(struct tiara_plan *plan, int step, struct tiara_slice dst,
    const struct tiara_slice *src, int nsrc)
{
    if (nsrc == 1) {
        tiara_plan_copy(plan, step, dst, src[0]);
        return;
    }
    tiara_plan_fold(plan, step, dst);
    for (int i = 0; i < nsrc; i++)
        tiara_plan_source(plan, src[i]);
}

void tiara_plan_send(struct tiara_plan *plan, int step, int peer, struct tiara_slice src)
{
    if (src.count == 0)
        return;
    append(plan, (struct tiara_op){.kind = TIARA_OP_SEND, .step = step, .peer = peer});
    tiara_plan_source(plan, src);
}

void tiara_plan_recv(struct tiara_plan *plan, int step, int peer, struct tiara_slice dst)
{
    if (dst.count != 0)
        append(
            plan, (struct tiara_op){.kind = TIARA_OP_RECV, .step = step, .peer = peer, .dst = dst});
}

enum tiara_err tiara_plan_finish(struct tiara_plan *plan, int nsteps)
{
    int last = plan->nops > 0 ? plan->ops[plan->nops - 1].step : 0;

    if (plan->sticky != TIARA_OK)
        return plan->sticky;
    if (nsteps < last) {
        tiara_error(
            "plan of rank %d: %d steps, but the last op has step %d", plan->rank, nsteps, last);
        plan->sticky = TIARA_ERR_PLAN;
    }
    plan->nsteps = nsteps;
    return plan->sticky;
}

/* Where an embedded plan's names point to in the plan around it. */
struct embedding {
    const int *ranks;
    int first_block;
    int first_tmp;
    enum tiara_buf as;
};

static struct tiara_slice embed_slice(const struct embedding *e, struct tiara_slice s)
{
    s.owner = e->ranks[s.owner];
    s.first += s.buf == TIARA_BUF_TMP ? e->first_tmp : e->first_block;
    if (tiara_buf_is_io(s.buf))
        s.buf = e->as;
    return s;
}

/* @op of @sub in the names of @plan; a copy of a slice onto itself (OUT <- IN) becomes nothing. */
static void embed_op(struct tiara_plan *plan, const struct tiara_plan *sub,
    const struct tiara_op *op, const struct embedding *e, int step0)
{
    struct tiara_op here = {.kind = op->kind, .step = step0 + op->step, .peer = -1};
    const struct tiara_slice *src = sub->srcs + op->src;

    if (tiara_op_is_async(op))
        here.peer = e->ranks[op->peer];
    if (tiara_op_writes(op))
        here.dst = embed_slice(e, op->dst);
    if (op->kind == TIARA_OP_COPY && tiara_slice_equal(here.dst, embed_slice(e, src[0]), false))
        return;
    append(plan, here);
    for (int i = 0; i < op->nsrc; i++)
        tiara_plan_source(plan, embed_slice(e, src[i]));
}

void tiara_plan_embed(struct tiara_plan *plan, const struct tiara_plan *sub, const int *ranks,
    int first_block, int step0, enum tiara_buf as)
{
    struct embedding e = {ranks, first_block, plan->tmp_blocks, as};

    if (plan->sticky == TIARA_OK)
        plan->sticky = sub->sticky;
    if (plan->sticky != TIARA_OK)
        return;
    plan->tmp_blocks += sub->tmp_blocks;
    plan->single_copy = plan->single_copy || (sub->single_copy && tiara_buf_is_io(as));
    for (int i = 0; i < sub->nops; i++)
        embed_op(plan, sub, &sub->ops[i], &e, step0);
}
