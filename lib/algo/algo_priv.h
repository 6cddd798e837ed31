/*
 * What the generators share: slices of the own buffers, runs of blocks, how a number of ranks that
 * is no power of two is brought to one, and a rank's place in the two levels. For lib/algo only.
 */
#ifndef TIARA_ALGO_ALGO_PRIV_H
#define TIARA_ALGO_ALGO_PRIV_H

#include "algo/algo.h"
#include "base/block.h"
#include "base/log.h"

#define COLL_BIT(coll) (1u << (coll))
#define COLLS_ALL                                                                                  \
    (COLL_BIT(TIARA_COLL_ALLREDUCE) | COLL_BIT(TIARA_COLL_REDUCE_SCATTER) |                        \
        COLL_BIT(TIARA_COLL_ALLGATHER))

/* What generate returns where the layout or the options are not for the algorithm. */
static inline int refuse(struct tiara_plan *plan)
{
    plan->sticky = TIARA_ERR_UNSUPPORTED;
    return 0;
}

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

/* log2 of @n rounded down, for n >= 1. */
static inline int log2_down(int n)
{
    return 31 - __builtin_clz((unsigned)n);
}

/* The largest power of two <= @n, for n >= 1. */
static inline int pow2_below(int n)
{
    return 1 << log2_down(n);
}

/* Consecutive blocks. */
struct span {
    int first, count;
};

/* Part @i of @n blocks cut into @nparts. */
static inline struct span part_of(int n, int nparts, int i)
{
    struct tiara_range part = tiara_block_range((size_t)n, (size_t)nparts, (size_t)i, 1);

    return (struct span){(int)part.first, (int)part.count};
}

static inline struct tiara_slice span_in(int owner, enum tiara_buf buf, struct span span)
{
    return tiara_slice(owner, buf, span.first, span.count);
}

/* The blocks b of a plan with of[b] == which. */
struct blocks {
    const int *of; /* [nblocks] */
    int which;
};

/* Moves @run, at first {0, 0}, to the next run of @blocks; false when there is none. */
static inline bool next_run(const struct tiara_plan *plan, struct blocks blocks, struct span *run)
{
    int b = run->first + run->count;

    while (b < plan->nblocks && blocks.of[b] != blocks.which)
        b++;
    run->first = b;
    while (b < plan->nblocks && blocks.of[b] == blocks.which)
        b++;
    run->count = b - run->first;
    return run->count > 0;
}

/* The own @dst_buf <- @src_buf of @src_rank, run by run. */
static inline void copy_blocks(struct tiara_plan *plan, int step, struct blocks blocks,
    enum tiara_buf dst_buf, int src_rank, enum tiara_buf src_buf)
{
    for (struct span run = {0, 0}; next_run(plan, blocks, &run);)
        tiara_plan_copy(
            plan, step, span_in(plan->rank, dst_buf, run), span_in(src_rank, src_buf, run));
}

/* Step 1: the own CELL <- IN, all but @span, which no peer reads. */
static inline void expose_but(struct tiara_plan *plan, struct span span)
{
    int end = span.first + span.count, rest = plan->nblocks - end;

    tiara_plan_copy(
        plan, 1, own(plan, TIARA_BUF_CELL, 0, span.first), own(plan, TIARA_BUF_IN, 0, span.first));
    tiara_plan_copy(
        plan, 1, own(plan, TIARA_BUF_CELL, end, rest), own(plan, TIARA_BUF_IN, end, rest));
}

/* @dst <- the fold of its blocks of all ranks of the node: the peers' in @buf, the own in IN. */
static inline void fold_node(struct tiara_plan *plan, const struct tiara_layout *layout, int step,
    struct tiara_slice dst, enum tiara_buf buf)
{
    int node = layout->node_of[plan->rank];

    tiara_plan_fold(plan, step, dst);
    for (int i = 0; i < tiara_layout_local_size(layout, node); i++) {
        int q = tiara_layout_rank(layout, node, i);

        tiara_plan_source(
            plan, tiara_slice(q, q == plan->rank ? TIARA_BUF_IN : buf, dst.first, dst.count));
    }
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
    int edge; /* steps that handing over costs at each end of a plan */
};

static inline struct pow2_group pow2_group_of(int rank, int nranks)
{
    int size = pow2_below(nranks), extra = nranks - size, member = rank - extra;

    if (rank < 2 * extra)
        member = rank % 2 == 0 ? rank / 2 : -1;
    return (struct pow2_group){size, extra, member, extra > 0};
}

static inline int pow2_group_rank(const struct pow2_group *g, int member)
{
    return member < g->extra ? 2 * member : member + g->extra;
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

/* A rank's place in the two levels. */
struct hier {
    const struct tiara_layout *layout;
    struct tiara_plan *plan;
    int node;
    int local; /* own index among the node's ranks */
    int nlocal; /* ranks on this node */
    int leaders; /* K: what was asked for, at most what the smallest node has */
};

static inline struct hier hier_of(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int node = layout->node_of[plan->rank], most = layout->min_local;

    return (struct hier){
        .layout = layout,
        .plan = plan,
        .node = node,
        .local = layout->local_of[plan->rank],
        .nlocal = tiara_layout_local_size(layout, node),
        .leaders = opts->leaders < 1 || opts->leaders > most ? most : opts->leaders,
    };
}

/* The rank with local index @i on the own node. */
static inline int hier_peer(const struct hier *h, int i)
{
    return tiara_layout_rank(h->layout, h->node, i);
}

/* OUT <- all leaders' shards from their CELLs, beginning with different ones on different ranks. */
static inline void hier_take_shards(const struct hier *h, int step)
{
    for (int i = 0; i < h->leaders; i++) {
        int k = (h->local + i) % h->leaders;
        struct span shard = part_of(h->plan->nblocks, h->leaders, k);

        tiara_plan_copy(h->plan, step, span_in(h->plan->rank, TIARA_BUF_OUT, shard),
            span_in(hier_peer(h, k), TIARA_BUF_CELL, shard));
    }
}

/*
 * hier's plans for REDUCE_SCATTER and ALLGATHER (algo_hier_scatter.c); returns their steps. The
 * layout has at least two nodes; with @opts->node_ring all of one size, and all ranks leaders.
 */
int tiara_algo_hier_scatter(
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
 * Fills @ring_out for @plan's rank, whatever node it is on. False, and @plan refused, when @order
 * does not name each of the node's ranks once.
 */
bool tiara_algo_node_ring_open(const struct tiara_layout *layout, const int *order,
    const int *owner_of, struct tiara_plan *plan, struct node_ring *ring_out);
/* Steps 1 .. L: @sum_buf (OUT or CELL) <- the fold of the own stripe of all ranks of the node. */
void tiara_algo_node_ring_reduce(const struct node_ring *ring, enum tiara_buf sum_buf);
/*
 * The steps after @step0: OUT <- the stripes of all ranks of the node. After @step0 each rank has
 * its own stripe in CELL, and in @own_buf, from where its OUT gets it. Returns the last step.
 */
int tiara_algo_node_ring_gather(const struct node_ring *ring, int step0, enum tiara_buf own_buf);

#endif
