/*
 * Mutations of plans, and the table of them.
 */
#include "test/plan/mutate.h"
#include <string.h>

/* The slices of an op that a mutation may touch: its sources, then its target. */
static struct tiara_slice *slice_of(struct tiara_plan *p, int op, int i)
{
    return i < p->ops[op].nsrc ? &p->srcs[p->ops[op].src + i] : &p->ops[op].dst;
}

bool mutate_has_target(const struct tiara_op *op)
{
    return op->kind != TIARA_OP_SEND;
}

bool mutate_is_async(const struct tiara_op *op)
{
    return op->kind == TIARA_OP_SEND || op->kind == TIARA_OP_RECV;
}

static int nslices(const struct tiara_op *op)
{
    return op->nsrc + mutate_has_target(op);
}

static void recount(struct tiara_plan *p)
{
    p->nasync = 0;
    for (int i = 0; i < p->nops; i++)
        p->nasync += mutate_is_async(&p->ops[i]);
}

static bool drop_op(struct tiara_plan *p, int op, int v)
{
    if (v > 0)
        return false;
    memmove(p->ops + op, p->ops + op + 1, (size_t)(p->nops - op - 1) * sizeof(*p->ops));
    p->nops--;
    recount(p);
    return true;
}

bool mutate_repeat_op(struct tiara_plan *p, int op, int v)
{
    if (v > 0 || p->nops == p->cap_ops)
        return false;
    memmove(p->ops + op + 1, p->ops + op, (size_t)(p->nops - op) * sizeof(*p->ops));
    p->nops++;
    recount(p);
    return true;
}

/* Slice v / 2 begins one block later or earlier. */
static bool shift_slice(struct tiara_plan *p, int op, int v)
{
    if (v / 2 >= nslices(&p->ops[op]))
        return false;
    slice_of(p, op, v / 2)->first += v % 2 ? -1 : 1;
    return true;
}

static bool resize_slice(struct tiara_plan *p, int op, int v)
{
    if (v / 2 >= nslices(&p->ops[op]))
        return false;
    slice_of(p, op, v / 2)->count += v % 2 ? -1 : 1;
    return true;
}

bool mutate_resize_op(struct tiara_plan *p, int op, int v)
{
    if (v > 1)
        return false;
    for (int i = 0; i < nslices(&p->ops[op]); i++)
        slice_of(p, op, i)->count += v ? -1 : 1;
    return true;
}

static bool add_source_twice(struct tiara_plan *p, int op, int v)
{
    struct tiara_op *o = &p->ops[op];
    struct tiara_slice again;

    if (o->kind != TIARA_OP_REDUCE || v >= o->nsrc || p->nsrcs == p->cap_srcs)
        return false;
    again = p->srcs[o->src + v];
    memmove(p->srcs + o->src + 1, p->srcs + o->src, (size_t)(p->nsrcs - o->src) * sizeof(*p->srcs));
    p->srcs[o->src] = again;
    p->nsrcs++;
    for (int i = 0; i < p->nops; i++)
        p->ops[i].src += i != op && p->ops[i].src > o->src;
    o->nsrc++;
    return true;
}

static bool drop_source(struct tiara_plan *p, int op, int v)
{
    struct tiara_op *o = &p->ops[op];

    if (o->kind != TIARA_OP_REDUCE || v >= o->nsrc || o->nsrc < 2)
        return false;
    memmove(p->srcs + o->src + v, p->srcs + o->src + v + 1,
        (size_t)(o->nsrc - v - 1) * sizeof(*p->srcs));
    o->nsrc--;
    return true;
}

bool mutate_swap_sources(struct tiara_plan *p, int op, int v)
{
    struct tiara_op *o = &p->ops[op];
    struct tiara_slice *src = p->srcs + o->src, kept;

    if (o->kind != TIARA_OP_REDUCE || v + 1 >= o->nsrc)
        return false;
    kept = src[v];
    src[v] = src[v + 1];
    src[v + 1] = kept;
    return true;
}

static bool redirect(struct tiara_plan *p, int op, int v)
{
    if (!mutate_is_async(&p->ops[op]) || v >= p->nranks || v == p->ops[op].peer)
        return false;
    p->ops[op].peer = v;
    return true;
}

static bool reverse_message(struct tiara_plan *p, int op, int v)
{
    struct tiara_op *o = &p->ops[op];

    if (v > 0 || o->kind != TIARA_OP_SEND)
        return false;
    o->kind = TIARA_OP_RECV;
    o->dst = p->srcs[o->src];
    o->nsrc = 0;
    return true;
}

static bool exchange_ends(struct tiara_plan *p, int op, int v)
{
    struct tiara_op *o = &p->ops[op];
    struct tiara_slice kept = o->dst;

    if (mutate_is_async(o) || v >= o->nsrc ||
        memcmp(&o->dst, &p->srcs[o->src + v], sizeof(kept)) == 0)
        return false;
    o->dst = p->srcs[o->src + v];
    p->srcs[o->src + v] = kept;
    return true;
}

static bool change_owner(struct tiara_plan *p, int op, int v)
{
    int i = v / p->nranks, owner = v % p->nranks;

    if (i >= nslices(&p->ops[op]))
        return false;
    if (slice_of(p, op, i)->owner == owner)
        owner = (owner + 1) % p->nranks;
    slice_of(p, op, i)->owner = owner;
    return true;
}

static bool change_buffer(struct tiara_plan *p, int op, int v)
{
    int i = v / TIARA_NBUF;

    if (i >= nslices(&p->ops[op]) || slice_of(p, op, i)->buf == (enum tiara_buf)(v % TIARA_NBUF))
        return false;
    slice_of(p, op, i)->buf = (enum tiara_buf)(v % TIARA_NBUF);
    return true;
}

/* The op, and those before (after) it in program order that are in the way, one step earlier
 * (later). */
static bool move_step(struct tiara_plan *p, int op, int v)
{
    int step = p->ops[op].step + (v ? 1 : -1);

    if (v > 1 || step < 1 || step > p->nsteps)
        return false;
    for (int i = 0; i < op; i++)
        p->ops[i].step = p->ops[i].step > step ? step : p->ops[i].step;
    for (int i = op + 1; i < p->nops; i++)
        p->ops[i].step = p->ops[i].step < step ? step : p->ops[i].step;
    p->ops[op].step = step;
    return true;
}

static bool swap_ops(struct tiara_plan *p, int op, int v)
{
    struct tiara_op kept = p->ops[op];
    int step;

    if (v > 0 || op + 1 >= p->nops)
        return false;
    step = p->ops[op + 1].step;
    p->ops[op] = p->ops[op + 1];
    p->ops[op + 1] = kept;
    p->ops[op].step = kept.step;
    p->ops[op + 1].step = step;
    return true;
}

const struct mutation mutations[NMUTATIONS] = {
    {"op dropped", drop_op, true},
    {"op repeated", mutate_repeat_op, true},
    {"slice shifted", shift_slice, true},
    {"slice resized", resize_slice, true},
    {"op resized", mutate_resize_op, true},
    {"source added twice", add_source_twice, true},
    {"source dropped", drop_source, true},
    {"redirected", redirect, true},
    {"message reversed", reverse_message, true},
    {"ends exchanged", exchange_ends, true},
    {"owner changed", change_owner, true},
    {"buffer changed", change_buffer, false},
    {"step moved", move_step, false},
    {"ops swapped", swap_ops, false},
    {"sources swapped", mutate_swap_sources, false},
};
