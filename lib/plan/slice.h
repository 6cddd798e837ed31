/*
 * Private to lib/plan: when do two slices, or two ops of one rank, touch the same memory?
 *
 * The dependency pass and the checker ask the same questions, but of different storage: the pass
 * does not know whether the call will be in place and must assume it (@alias true); the checker is
 * told. @alias: IN and OUT of a rank are one buffer.
 */
#ifndef TIARA_PLAN_SLICE_H
#define TIARA_PLAN_SLICE_H

#include "plan/plan.h"

static inline bool tiara_buf_is_io(enum tiara_buf buf)
{
    return buf == TIARA_BUF_IN || buf == TIARA_BUF_OUT;
}

static inline bool tiara_slice_overlap(struct tiara_slice a, struct tiara_slice b, bool alias)
{
    bool same_buf = a.buf == b.buf || (alias && tiara_buf_is_io(a.buf) && tiara_buf_is_io(b.buf));

    return same_buf && a.owner == b.owner && a.first < b.first + b.count &&
           b.first < a.first + a.count;
}

static inline bool tiara_slice_equal(struct tiara_slice a, struct tiara_slice b, bool alias)
{
    return a.first == b.first && a.count == b.count && tiara_slice_overlap(a, b, alias);
}

static inline bool tiara_op_is_async(const struct tiara_op *op)
{
    return op->kind == TIARA_OP_SEND || op->kind == TIARA_OP_RECV;
}

static inline bool tiara_op_writes(const struct tiara_op *op)
{
    return op->kind != TIARA_OP_SEND;
}

/* Peers may look into @buf while @plan runs. */
static inline bool tiara_buf_is_exposed(const struct tiara_plan *plan, enum tiara_buf buf)
{
    return buf == TIARA_BUF_CELL || (plan->single_copy && tiara_buf_is_io(buf));
}

/* Progress that peers see must not pass @op before it is complete: it fills an exposed buffer or
 * empties a peer's. */
static inline bool tiara_op_is_noticed(const struct tiara_plan *plan, const struct tiara_op *op)
{
    if (op->kind == TIARA_OP_RECV)
        return tiara_buf_is_exposed(plan, op->dst.buf);
    return op->kind == TIARA_OP_SEND && plan->srcs[op->src].owner != plan->rank;
}

/* @op may not start before the earlier @async of the same rank is complete. */
static inline bool tiara_op_conflicts(const struct tiara_plan *plan, const struct tiara_op *op,
    const struct tiara_op *async, bool alias)
{
    struct tiara_slice held = async->kind == TIARA_OP_SEND ? plan->srcs[async->src] : async->dst;

    if (tiara_op_writes(op) && tiara_slice_overlap(op->dst, held, alias))
        return true;
    if (async->kind == TIARA_OP_SEND)
        return false;
    for (int i = 0; i < op->nsrc; i++) {
        if (tiara_slice_overlap(plan->srcs[op->src + i], held, alias))
            return true;
    }
    return false;
}

/* tiara_plan_depend() ran: it always makes the last op post nsteps. */
static inline bool tiara_plan_has_depend(const struct tiara_plan *plan)
{
    return plan->nops > 0 && plan->ops[plan->nops - 1].post > 0;
}

#endif
