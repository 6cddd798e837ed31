/*
 * What the generators share: opening a plan, slices of the own buffers, and how a number of ranks
 * that is no power of two is brought to one. For files of lib/algo only.
 */
#ifndef TIARA_ALGO_ALGO_PRIV_H
#define TIARA_ALGO_ALGO_PRIV_H

#include "algo/algo.h"
#include "base/log.h"

#define COLL_BIT(coll) (1u << (coll))

/* A slice of the plan's own rank. */
static inline struct tiara_slice own(
    const struct tiara_plan *plan, enum tiara_buf buf, int first, int count)
{
    return tiara_slice(plan->rank, buf, first, count);
}

/* @a modulo @n in 0 .. n-1, also for -n <= a < 0. */
static inline int wrap(int a, int n)
{
    return (a + n) % n;
}

/* The largest power of two <= @n, for n >= 1. */
static inline int pow2_below(int n)
{
    int p = 1;

    while (p <= n / 2)
        p *= 2;
    return p;
}

/* log2 of @n rounded down, for n >= 1. */
static inline int log2_down(int n)
{
    int k = 0;

    while (n >>= 1)
        k++;
    return k;
}

/* log2 of @n rounded up, for n >= 1. */
static inline int log2_up(int n)
{
    return n == 1 ? 0 : log2_down(n - 1) + 1;
}

/*
 * Initialises @plan, first of all, so that the caller may run fini whatever happens next.
 * TIARA_ERR_UNSUPPORTED when @algo has no plan for the collective.
 */
TIARA_MUST_USE static inline enum tiara_err plan_open(const struct tiara_algo *algo,
    const struct tiara_algo_opts *opts, int rank, int nranks, int nblocks, struct tiara_plan *plan)
{
    tiara_plan_init(plan, opts->coll, rank, nranks, nblocks);
    if (algo->colls & COLL_BIT(opts->coll))
        return TIARA_OK;
    tiara_debug("algorithm %s has no plan for collective %d", algo->name, (int)opts->coll);
    return TIARA_ERR_UNSUPPORTED;
}

/* The whole plan of a group of one: the contribution is the result. */
TIARA_MUST_USE static inline enum tiara_err plan_alone(struct tiara_plan *plan)
{
    tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_OUT, 0, plan->nblocks),
        own(plan, TIARA_BUF_IN, 0, plan->nblocks));
    return tiara_plan_finish(plan, 1);
}

/*
 * A power-of-two group made of P ranks: of the first 2 * extra ranks each odd one hands its vector
 * to the even one before it, and gets the result from it at the end. Adjacent ranks are joined, so
 * that the group's members stand for ascending, consecutive ranks: rank order survives.
 */
struct pow2_group {
    int size; /* a power of two */
    int extra; /* P - size */
    int member; /* own index in the group; -1: handed over to rank - 1 */
};

static inline struct pow2_group pow2_group_of(int rank, int nranks)
{
    struct pow2_group g = {.size = pow2_below(nranks)};

    g.extra = nranks - g.size;
    if (rank >= 2 * g.extra)
        g.member = rank - g.extra;
    else
        g.member = rank % 2 == 0 ? rank / 2 : -1;
    return g;
}

static inline int pow2_group_rank(const struct pow2_group *g, int member)
{
    return member < g->extra ? 2 * member : member + g->extra;
}

/* Steps that handing over costs at each end of a plan. */
static inline int pow2_group_steps(const struct pow2_group *g)
{
    return g->extra > 0;
}

/* Step 1 of a plan when extra > 0. Returns the buffer in which a member's vector now is. */
static inline enum tiara_buf pow2_group_enter(struct tiara_plan *plan, const struct pow2_group *g)
{
    int n = plan->nblocks;
    struct tiara_slice pair[2] = {own(plan, TIARA_BUF_IN, 0, n), own(plan, TIARA_BUF_TMP, 0, n)};

    if (g->member < 0) {
        tiara_plan_send(plan, 1, plan->rank - 1, pair[0]);
        return TIARA_BUF_IN;
    }
    if (plan->rank >= 2 * g->extra)
        return TIARA_BUF_IN;
    tiara_plan_tmp(plan, n);
    tiara_plan_recv(plan, 1, plan->rank + 1, pair[1]);
    tiara_plan_reduce(plan, 1, own(plan, TIARA_BUF_OUT, 0, n), pair, 2);
    return TIARA_BUF_OUT;
}

/* The last step when extra > 0: the result goes back to who handed over. */
static inline void pow2_group_leave(struct tiara_plan *plan, const struct pow2_group *g, int step)
{
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, 0, plan->nblocks);

    if (g->member < 0)
        tiara_plan_recv(plan, step, plan->rank - 1, out);
    else if (plan->rank < 2 * g->extra)
        tiara_plan_send(plan, step, plan->rank + 1, out);
}

/* K of a hierarchy: what was asked for, at most what the smallest node has. */
static inline int hier_leaders(const struct tiara_layout *layout, int asked)
{
    return asked < 1 || asked > layout->min_local ? layout->min_local : asked;
}

/*
 * hier's plans for REDUCE_SCATTER and ALLGATHER (algo_hier_scatter.c). @plan was initialised with
 * one block per rank; the layout has at least two nodes. With @opts->node_ring all of them are of
 * one size, and all ranks leaders.
 */
TIARA_MUST_USE enum tiara_err tiara_algo_hier_scatter(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan);

/*
 * The ring of one node's L ranks over their exposed buffers (algo_node_ring.c): for node-ring and
 * hier. Each block belongs to one rank of the node; the blocks of a rank are its stripe.
 */
struct node_ring {
    struct tiara_plan *plan;
    const int *order; /* [nlocal] local indices in ring order, NULL: ascending; borrowed */
    const int *owner_of; /* [nblocks] local index of a block's owner, on this node; borrowed */
    int nlocal; /* L */
    int place; /* own, in the ring */
    int left; /* the rank before it, the only one whose CELL is read */
};

/*
 * Fills @ring_out for @plan's rank, whatever node it is on. TIARA_ERR_UNSUPPORTED when @order does
 * not name each of the node's ranks once.
 */
TIARA_MUST_USE enum tiara_err tiara_algo_node_ring_open(const struct tiara_layout *layout,
    const int *order, const int *owner_of, struct tiara_plan *plan, struct node_ring *ring_out);
/* Steps 1 .. L: @sum_buf (OUT or CELL) <- the fold of the own stripe of all ranks of the node. */
void tiara_algo_node_ring_reduce(const struct node_ring *ring, enum tiara_buf sum_buf);
/*
 * The steps after @step0: OUT <- the stripes of all ranks of the node. After @step0 each rank has
 * its own stripe in CELL, and in @own_buf, from where its OUT gets it. Returns the last step.
 */
int tiara_algo_node_ring_gather(const struct node_ring *ring, int step0, enum tiara_buf own_buf);

#endif
