/*
 * Rules of form: what is wrong with a plan can be seen without running it.
 *
 * Everything after this file indexes arrays with a plan's numbers and may rely on them.
 */
#include "plan/check_priv.h"
#include "plan/slice.h"
#include <stdarg.h>
#include <stdio.h>

enum tiara_err tiara_check_fail(struct tiara_check *c, int rank, int op, const char *format, ...)
{
    char *text = c->report->text;
    size_t size = sizeof(c->report->text);
    int n;
    va_list args;

    if (op < 0)
        n = snprintf(text, size, "rank %d: ", rank);
    else
        n = snprintf(text, size, "rank %d op %d (%s, step %d): ", rank, op,
            tiara_op_name(c->plans[rank]->ops[op].kind), c->plans[rank]->ops[op].step);
    va_start(args, format);
    vsnprintf(text + n, size - (size_t)n, format, args);
    va_end(args);
    return TIARA_ERR_PLAN;
}

/* The blocks of @s exist. */
static bool is_in_bounds(const struct tiara_check *c, const struct tiara_slice *s)
{
    const struct tiara_plan *plan = c->plans[s->owner];
    int size = s->buf == TIARA_BUF_TMP ? plan->tmp_blocks : plan->nblocks;
    bool own_block_only = (plan->coll == TIARA_COLL_ALLGATHER && s->buf == TIARA_BUF_IN) ||
                          (plan->coll == TIARA_COLL_REDUCE_SCATTER && s->buf == TIARA_BUF_OUT);

    if (own_block_only)
        return s->first == s->owner && s->count == 1;
    return s->first >= 0 && s->count >= 1 && s->count <= size && s->first <= size - s->count;
}

static enum tiara_err check_slice(
    struct tiara_check *c, int rank, int op, const struct tiara_slice *s)
{
    if (s->owner < 0 || s->owner >= c->nranks)
        return tiara_check_fail(c, rank, op, "no rank %d", s->owner);
    if ((int)s->buf < 0 || s->buf >= TIARA_NBUF)
        return tiara_check_fail(c, rank, op, "no buffer %d", (int)s->buf);
    if (!is_in_bounds(c, s))
        return tiara_check_fail(c, rank, op, "%s of rank %d has no %d blocks from %d on",
            tiara_buf_name(s->buf), s->owner, s->count, s->first);
    return TIARA_OK;
}

static enum tiara_err check_dst(struct tiara_check *c, int rank, int op)
{
    const struct tiara_slice *dst = &c->plans[rank]->ops[op].dst;
    enum tiara_err err = check_slice(c, rank, op, dst);

    if (err != TIARA_OK)
        return err;
    if (dst->owner != rank)
        return tiara_check_fail(c, rank, op, "writes memory of rank %d", dst->owner);
    if (dst->buf == TIARA_BUF_IN)
        return tiara_check_fail(c, rank, op, "writes the input");
    return TIARA_OK;
}

static enum tiara_err check_src(
    struct tiara_check *c, int rank, int op, const struct tiara_slice *src)
{
    const struct tiara_plan *plan = c->plans[rank];
    const struct tiara_op *o = &plan->ops[op];
    enum tiara_err err = check_slice(c, rank, op, src);

    if (err != TIARA_OK)
        return err;
    if (c->layout->node_of[src->owner] != c->layout->node_of[rank])
        return tiara_check_fail(
            c, rank, op, "reads memory of rank %d, which is on another node", src->owner);
    if (src->owner != rank && !tiara_buf_is_exposed(plan, src->buf))
        return tiara_check_fail(c, rank, op, "reads %s of rank %d, which is not exposed",
            tiara_buf_name(src->buf), src->owner);
    if (o->kind == TIARA_OP_SEND)
        return TIARA_OK;
    if (src->count != o->dst.count)
        return tiara_check_fail(
            c, rank, op, "reads %d blocks to write %d", src->count, o->dst.count);
    if (tiara_slice_overlap(*src, o->dst, c->in_place) &&
        !tiara_slice_equal(*src, o->dst, c->in_place))
        return tiara_check_fail(c, rank, op, "source and target overlap in part");
    return TIARA_OK;
}

/* Number of sources and the peer, by kind. */
static enum tiara_err check_shape(struct tiara_check *c, int rank, int op)
{
    const struct tiara_plan *plan = c->plans[rank];
    const struct tiara_op *o = &plan->ops[op];
    int least = o->kind == TIARA_OP_RECV ? 0 : 1;
    int most = o->kind == TIARA_OP_REDUCE ? plan->nsrcs : least;

    if ((int)o->kind < 0 || o->kind > TIARA_OP_RECV)
        return tiara_check_fail(c, rank, -1, "op %d has no kind %d", op, (int)o->kind);
    if (o->nsrc < least || o->nsrc > most || o->src < 0 || o->src > plan->nsrcs - o->nsrc)
        return tiara_check_fail(c, rank, op, "cannot have %d sources", o->nsrc);
    if (tiara_op_is_async(o) && (o->peer < 0 || o->peer >= c->nranks || o->peer == rank))
        return tiara_check_fail(c, rank, op, "cannot have peer %d", o->peer);
    if (o->step < 1 || o->step > plan->nsteps)
        return tiara_check_fail(c, rank, op, "no step %d", o->step);
    if (op > 0 && o->step < plan->ops[op - 1].step)
        return tiara_check_fail(c, rank, op, "comes after step %d", plan->ops[op - 1].step);
    return TIARA_OK;
}

static enum tiara_err check_op(struct tiara_check *c, int rank, int op)
{
    const struct tiara_plan *plan = c->plans[rank];
    const struct tiara_op *o = &plan->ops[op];
    enum tiara_err err = check_shape(c, rank, op);

    if (err == TIARA_OK && tiara_op_writes(o))
        err = check_dst(c, rank, op);
    for (int i = 0; err == TIARA_OK && i < o->nsrc; i++)
        err = check_src(c, rank, op, &plan->srcs[o->src + i]);
    return err;
}

/* What all ranks' plans must have in common. */
static enum tiara_err check_header(struct tiara_check *c, int rank)
{
    const struct tiara_plan *plan = c->plans[rank], *zero = c->plans[0];
    bool by_rank = plan->coll != TIARA_COLL_ALLREDUCE;

    if (plan->sticky != TIARA_OK)
        return tiara_check_fail(c, rank, -1, "was not finished: %s", tiara_err_text(plan->sticky));
    if (plan->rank != rank || plan->nranks != c->nranks)
        return tiara_check_fail(
            c, rank, -1, "is the plan of rank %d of %d", plan->rank, plan->nranks);
    if (plan->coll != zero->coll || plan->nblocks != zero->nblocks ||
        plan->nsteps != zero->nsteps || plan->single_copy != zero->single_copy)
        return tiara_check_fail(c, rank, -1,
            "%d blocks and %d steps; rank 0 has %d and %d, or another collective", plan->nblocks,
            plan->nsteps, zero->nblocks, zero->nsteps);
    if (plan->nblocks < 1 || (by_rank && plan->nblocks != plan->nranks) || plan->tmp_blocks < 0)
        return tiara_check_fail(
            c, rank, -1, "cannot have %d blocks, %d of scratch", plan->nblocks, plan->tmp_blocks);
    return TIARA_OK;
}

static enum tiara_err check_rank(struct tiara_check *c, int rank)
{
    const struct tiara_plan *plan = c->plans[rank];
    enum tiara_err err = TIARA_OK;
    int nasync = 0;

    for (int i = 0; err == TIARA_OK && i < plan->nops; i++) {
        err = check_op(c, rank, i);
        nasync += tiara_op_is_async(&plan->ops[i]);
    }
    if (err == TIARA_OK && nasync != plan->nasync)
        return tiara_check_fail(
            c, rank, -1, "counts %d sends and receives, has %d", plan->nasync, nasync);
    return err;
}

enum tiara_err tiara_check_rules(struct tiara_check *c)
{
    enum tiara_err err = TIARA_OK;

    for (int r = 0; err == TIARA_OK && r < c->nranks; r++)
        err = check_header(c, r);
    for (int r = 0; err == TIARA_OK && r < c->nranks; r++)
        err = check_rank(c, r);
    return err;
}
