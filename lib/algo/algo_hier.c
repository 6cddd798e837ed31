/*
 * The two levels: reduce inside each node, all-reduce between nodes, spread inside each node.
 *
 * Each node has K leaders, as many on every node; leader k of all nodes together all-reduce shard k
 * of the vector with a flat algorithm, so that K ranks per node speak on the network, each with 1/K
 * of the vector. Inside a node all ranks work: the vector is cut into as many stripes as the node
 * has ranks, and each rank folds its own. Where stripes are not shards (more ranks than leaders),
 * leaders collect.
 *
 *   step 1        every rank exposes its contribution in its CELL, all but its own stripe
 *   step 2        every rank folds its stripe of all node peers, in rank order, into its CELL
 *   step 3        leaders copy what others folded of their shard into their own CELL
 *   steps 4 ..    leader k of each node: the flat algorithm, in place in its CELL
 *   last step     every rank copies each shard from its leader's CELL
 *
 * A rank that is alone on its node keeps everything in OUT. On one node this is the algorithm
 * direct; with one rank per node it is the flat algorithm. REDUCE_SCATTER and ALLGATHER:
 * algo_hier_scatter.c.
 *
 * With node_ring the stripes go round inside the nodes, as in algo_node_ring.c, and each rank reads
 * only its left neighbour. Where all ranks are leaders, as is asked for then, stripes are shards
 * and nothing is to be collected:
 *
 *   steps 1 .. L  the node's ring: every rank ends with the sum of its stripe, in its CELL
 *   then          leader k of each node: the flat algorithm, in place in its CELL
 *   L - 1 steps   the node's ring once more: the sums go round, into OUT
 *
 * Cost    with n nodes and the ring between them: 4 + 2 (n - 1) steps; each node sends and receives
 *         2 (n - 1) / n vectors, however many ranks and leaders it has. On a node of L ranks each
 *         reads about 2 (L - 1) / L vectors from peers and reduces (L - 1) / L, and a leader
 *         (n - 1) / (n K) more. With node_ring: 2 L - 1 + 2 (n - 1) steps, the same bytes.
 * Source  ours, after the hierarchical collectives of MPI libraries and NCCL; several leaders: M.
 *         Bayatpour and others: Scalable reduction collectives with data partitioning-based
 *         multi-leader design. SC 2017.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet.
 * After each step, block by block, with the ring between nodes. Two nodes of two ranks, two leaders
 * each; step 3 has nothing to do:
 *
 *           rank 0 CELL          rank 1 CELL          rank 2 CELL          rank 3 CELL
 *   step 1  . . 0 0              1 1 . .              . . 2 2              3 3 . .
 *   step 2  01 01 0 0            1 1 01 01            23 23 2 2            3 3 23 23
 *   step 3  01 01 0 0            1 1 01 01            23 23 2 2            3 3 23 23
 *   step 4  2301 01 0 0          1 1 2301 01          23 0123 2 2          3 3 23 0123
 *   step 5  2301 0123 0 0        1 1 2301 0123        2301 0123 2 2        3 3 2301 0123
 *   OUT     2301 0123 2301 0123  2301 0123 2301 0123  2301 0123 2301 0123  2301 0123 2301 0123
 *
 * The same with one leader each:
 *
 *           rank 0 CELL  rank 1 CELL  rank 2 CELL  rank 3 CELL
 *   step 1  . 0          1 .          . 2          3 .
 *   step 2  01 0         1 01         23 2         3 23
 *   step 3  01 01        1 01         23 23        3 23
 *   step 4  2301 01      1 01         23 0123      3 23
 *   step 5  2301 0123    1 01         2301 0123    3 23
 *   OUT     2301 0123    2301 0123    2301 0123    2301 0123
 *
 * Nodes of two and one ranks: one leader each, and rank 2 is alone:
 *
 *           rank 0 CELL  rank 1 CELL  rank 2 OUT
 *   step 1  . 0          1 .          2 2
 *   step 2  01 0         1 01         2 2
 *   step 3  01 01        1 01         2 2
 *   step 4  201 01       1 01         2 012
 *   step 5  201 012      1 01         201 012
 *   OUT     201 012      201 012      201 012
 */
#include "algo/algo_priv.h"
#include "base/alloc.h"
#include "base/block.h"
#include <stdio.h>

#define INTER_STEP0 3 /* steps before the inter-node part, without a ring */

/* What a rank's part of the plan is made from. */
struct hier {
    const struct tiara_layout *layout;
    struct tiara_plan *plan;
    int node;
    int local; /* own index among the node's ranks */
    int nlocal; /* ranks on this node */
    int leaders; /* K */
};

/* Stripe of the node's rank with index @i, as blocks. */
static struct tiara_range stripe_of(const struct hier *h, int i)
{
    return tiara_block_range((size_t)h->plan->nblocks, (size_t)h->nlocal, (size_t)i, 1);
}

static struct tiara_range shard_of(const struct hier *h, int k)
{
    return tiara_block_range((size_t)h->plan->nblocks, (size_t)h->leaders, (size_t)k, 1);
}

static struct tiara_slice slice_of(int owner, enum tiara_buf buf, struct tiara_range blocks)
{
    return tiara_slice(owner, buf, (int)blocks.first, (int)blocks.count);
}

/* Step 1: the CELL gets what stands before and after the own stripe. */
static void expose(const struct hier *h)
{
    struct tiara_range mine = stripe_of(h, h->local);
    struct tiara_range before = {0, mine.first};
    struct tiara_range after = {mine.first + mine.count, 0};
    int rank = h->plan->rank;

    after.count = (size_t)h->plan->nblocks - after.first;
    tiara_plan_copy(
        h->plan, 1, slice_of(rank, TIARA_BUF_CELL, before), slice_of(rank, TIARA_BUF_IN, before));
    tiara_plan_copy(
        h->plan, 1, slice_of(rank, TIARA_BUF_CELL, after), slice_of(rank, TIARA_BUF_IN, after));
}

/* Step 2. */
static enum tiara_err fold_stripe(const struct hier *h)
{
    struct tiara_range mine = stripe_of(h, h->local);
    struct tiara_slice *src = tiara_alloc((size_t)h->nlocal, sizeof(*src));

    if (src == NULL)
        return TIARA_ERR_NOMEM;
    for (int i = 0; i < h->nlocal; i++)
        src[i] = slice_of(tiara_layout_rank(h->layout, h->node, i),
            i == h->local ? TIARA_BUF_IN : TIARA_BUF_CELL, mine);
    tiara_plan_reduce(h->plan, 2, slice_of(h->plan->rank, TIARA_BUF_CELL, mine), src, h->nlocal);
    tiara_free(src);
    return TIARA_OK;
}

/* Step 3, leaders: the parts of the own shard that lie in others' stripes. */
static void collect_shard(const struct hier *h)
{
    struct tiara_range shard = shard_of(h, h->local);
    size_t shard_end = shard.first + shard.count;

    for (int i = 0; i < h->nlocal; i++) {
        struct tiara_range part = stripe_of(h, i);
        size_t end = part.first + part.count;

        if (part.first < shard.first)
            part.first = shard.first;
        if (end > shard_end)
            end = shard_end;
        if (i == h->local || part.first >= end)
            continue;
        part.count = end - part.first;
        tiara_plan_copy(h->plan, 3, slice_of(h->plan->rank, TIARA_BUF_CELL, part),
            slice_of(tiara_layout_rank(h->layout, h->node, i), TIARA_BUF_CELL, part));
    }
}

/* The last step: all shards, beginning with different leaders on different ranks. */
static void copy_out(const struct hier *h, int step)
{
    for (int i = 0; i < h->leaders; i++) {
        int k = (h->local + i) % h->leaders;
        int leader = tiara_layout_rank(h->layout, h->node, k);
        struct tiara_range shard = shard_of(h, k);

        tiara_plan_copy(h->plan, step, slice_of(h->plan->rank, TIARA_BUF_OUT, shard),
            slice_of(leader, TIARA_BUF_CELL, shard));
    }
}

/*
 * The flat plan @inter over the leaders of the own index, on their shard, which is in buffer @as.
 */
static enum tiara_err embed_inter(
    const struct hier *h, const struct tiara_plan *inter, int step0, enum tiara_buf as)
{
    int nnodes = h->layout->nnodes;
    int *ranks = tiara_alloc((size_t)nnodes, sizeof(*ranks));

    if (ranks == NULL)
        return TIARA_ERR_NOMEM;
    for (int p = 0; p < nnodes; p++)
        ranks[p] = tiara_layout_rank(h->layout, p, h->local);
    tiara_plan_embed(h->plan, inter, ranks, (int)shard_of(h, h->local).first, step0, as);
    tiara_free(ranks);
    return TIARA_OK;
}

/* Each block of @plan becomes @factor blocks. */
static void refine_blocks(struct tiara_plan *plan, int factor)
{
    plan->nblocks *= factor;
    plan->tmp_blocks *= factor;
    for (int i = 0; i < plan->nops; i++) {
        plan->ops[i].dst.first *= factor;
        plan->ops[i].dst.count *= factor;
    }
    for (int i = 0; i < plan->nsrcs; i++) {
        plan->srcs[i].first *= factor;
        plan->srcs[i].count *= factor;
    }
}

/*
 * The least multiple of @unit that every node can cut into stripes of which none is more than an
 * eighth longer than the average; 8 x the largest node is always enough.
 */
static int blocks_for(const struct tiara_layout *layout, int unit)
{
    for (int n = unit;; n += unit) {
        bool is_fair = true;

        for (int p = 0; p < layout->nnodes && is_fair; p++) {
            int nlocal = tiara_layout_local_size(layout, p);
            int longest = (n + nlocal - 1) / nlocal;

            is_fair = 8 * longest * nlocal <= 9 * n;
        }
        if (is_fair)
            return n;
    }
}

int tiara_algo_hier_blocks(const struct tiara_layout *layout, int leaders)
{
    return blocks_for(layout, hier_leaders(layout, leaders) * layout->nnodes);
}

/* @inter: the finished flat plan of this rank's node; its blocks get refined. */
static enum tiara_err build(const struct hier *h, struct tiara_plan *inter)
{
    int last = INTER_STEP0 + inter->nsteps + 1;
    bool alone = h->nlocal == 1;
    enum tiara_err err = TIARA_OK;

    refine_blocks(inter, h->plan->nblocks / h->leaders / inter->nblocks);
    if (alone) {
        tiara_plan_copy(h->plan, 1, own(h->plan, TIARA_BUF_OUT, 0, h->plan->nblocks),
            own(h->plan, TIARA_BUF_IN, 0, h->plan->nblocks));
    } else {
        expose(h);
        err = fold_stripe(h);
    }
    if (err == TIARA_OK && h->local < h->leaders) {
        collect_shard(h);
        err = embed_inter(h, inter, INTER_STEP0, alone ? TIARA_BUF_OUT : TIARA_BUF_CELL);
    }
    if (err != TIARA_OK)
        return err;
    if (!alone)
        copy_out(h, last);
    return tiara_plan_finish(h->plan, last);
}

/* The same where every node has as many ranks as leaders, two at least: rings inside the nodes. */
static enum tiara_err build_ring(
    const struct hier *h, const struct tiara_plan *inter, const int *order)
{
    int nblocks = h->plan->nblocks;
    int *owner_of = tiara_alloc((size_t)nblocks, sizeof(*owner_of));
    struct node_ring ring;
    enum tiara_err err;
    int last;

    if (owner_of == NULL)
        return TIARA_ERR_NOMEM;
    for (int b = 0; b < nblocks; b++)
        owner_of[b] = b / (nblocks / h->nlocal);
    err = tiara_algo_node_ring_open(h->layout, order, owner_of, h->plan, &ring);
    if (err == TIARA_OK) {
        tiara_algo_node_ring_reduce(&ring, TIARA_BUF_CELL);
        err = embed_inter(h, inter, h->nlocal, TIARA_BUF_CELL);
    }
    if (err == TIARA_OK) {
        last = tiara_algo_node_ring_gather(&ring, h->nlocal + inter->nsteps, TIARA_BUF_CELL);
        err = tiara_plan_finish(h->plan, last);
    }
    tiara_free(owner_of);
    return err;
}

static enum tiara_err build_allreduce(const struct tiara_layout *layout, int rank,
    const struct tiara_algo_opts *opts, const struct tiara_algo *inter_algo,
    struct tiara_plan *plan)
{
    /* Flat algorithms look at the number of ranks only. */
    const struct tiara_layout nodes = {.nranks = layout->nnodes};
    const int node = layout->node_of[rank];
    struct hier h = {
        .layout = layout,
        .plan = plan,
        .node = node,
        .local = layout->local_of[rank],
        .nlocal = tiara_layout_local_size(layout, node),
        .leaders = hier_leaders(layout, opts->leaders),
    };
    struct tiara_plan inter;
    enum tiara_err err;

    err = inter_algo->generate(&nodes, node, opts, &inter);
    if (err == TIARA_OK) {
        tiara_plan_init(
            plan, opts->coll, rank, layout->nranks, blocks_for(layout, h.leaders * inter.nblocks));
        err = opts->node_ring ? build_ring(&h, &inter, opts->order) : build(&h, &inter);
    }
    tiara_plan_fini(&inter);
    return err;
}

static enum tiara_err generate(const struct tiara_layout *layout, int rank,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    const struct tiara_algo *inter = opts->inter != NULL ? opts->inter : &tiara_algo_ring;
    const struct tiara_algo_opts alone = {.coll = opts->coll, .order = opts->order};
    enum tiara_err err;

    if (layout->nnodes == 1)
        return (opts->node_ring ? &tiara_algo_node_ring : &tiara_algo_direct)
            ->generate(layout, rank, &alone, plan_out);
    err = plan_open(&tiara_algo_hier, opts, rank, layout->nranks, layout->nranks, plan_out);
    if (err != TIARA_OK)
        return err;
    if (!(inter->flags & TIARA_ALGO_FLAT)) {
        tiara_debug("algorithm %s is not flat and cannot be hier's inter-node part", inter->name);
        return TIARA_ERR_UNSUPPORTED;
    }
    if (opts->node_ring && hier_leaders(layout, opts->leaders) < layout->max_local) {
        tiara_debug("hier has rings only where all ranks are leaders, not %d of %d",
            hier_leaders(layout, opts->leaders), layout->max_local);
        return TIARA_ERR_UNSUPPORTED;
    }
    if (opts->coll != TIARA_COLL_ALLREDUCE)
        return tiara_algo_hier_scatter(layout, opts, plan_out);
    if (layout->nnodes == layout->nranks)
        return inter->generate(layout, rank, opts, plan_out);
    return build_allreduce(layout, rank, opts, inter, plan_out);
}

static void describe(const struct tiara_algo_opts *opts, char *text, size_t size)
{
    snprintf(text, size, "leaders per node: %d, between nodes: %s", opts->leaders,
        opts->inter ? opts->inter->name : "direct");
}

const struct tiara_algo tiara_algo_hier = {
    .name = "hier",
    .help = "two levels: nodes reduce inside, leaders all-reduce their shards between nodes",
    .flags = TIARA_ALGO_HIER | TIARA_ALGO_ORDERED_BLOCK,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE) | COLL_BIT(TIARA_COLL_REDUCE_SCATTER) |
             COLL_BIT(TIARA_COLL_ALLGATHER),
    .reads = TIARA_ALGO_OPT_LEADERS | TIARA_ALGO_OPT_INTER | TIARA_ALGO_OPT_NODE_RING |
             TIARA_ALGO_OPT_ORDER,
    .generate = generate,
    .cost = NULL,
    .describe = describe,
};
