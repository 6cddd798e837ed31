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
#include <stdio.h>

#define INTER_STEP0 3 /* steps before the inter-node part, without a ring */

/* Step 3, leaders: the parts of the own shard that lie in others' stripes. */
static void collect_shard(const struct hier *h)
{
    struct span shard = part_of(h->plan->nblocks, h->leaders, h->local);
    int shard_end = shard.first + shard.count;

    for (int i = 0; i < h->nlocal; i++) {
        struct span part = part_of(h->plan->nblocks, h->nlocal, i);
        int end = part.first + part.count;

        if (part.first < shard.first)
            part.first = shard.first;
        if (end > shard_end)
            end = shard_end;
        if (i == h->local || part.first >= end)
            continue;
        part.count = end - part.first;
        tiara_plan_copy(h->plan, 3, span_in(h->plan->rank, TIARA_BUF_CELL, part),
            span_in(hier_peer(h, i), TIARA_BUF_CELL, part));
    }
}

/* The flat plan @inter over the leaders of the own index, on their shard, which is in @as. */
static void embed_inter(
    const struct hier *h, const struct tiara_plan *inter, int step0, enum tiara_buf as)
{
    int nnodes = h->layout->nnodes;
    int *ranks = tiara_alloc((size_t)nnodes, sizeof(*ranks));

    if (ranks == NULL) {
        h->plan->sticky = TIARA_ERR_NOMEM;
        return;
    }
    for (int p = 0; p < nnodes; p++)
        ranks[p] = tiara_layout_rank(h->layout, p, h->local);
    tiara_plan_embed(
        h->plan, inter, ranks, part_of(h->plan->nblocks, h->leaders, h->local).first, step0, as);
    tiara_free(ranks);
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

/* @inter: the finished flat plan of this rank's node; its blocks get refined. */
static int build(const struct hier *h, struct tiara_plan *inter)
{
    struct tiara_plan *plan = h->plan;
    int last = INTER_STEP0 + inter->nsteps + 1;
    bool alone = h->nlocal == 1;

    refine_blocks(inter, plan->nblocks / h->leaders / inter->nblocks);
    if (alone) {
        tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_OUT, 0, plan->nblocks),
            own(plan, TIARA_BUF_IN, 0, plan->nblocks));
    } else {
        struct span mine = part_of(plan->nblocks, h->nlocal, h->local);

        expose_but(plan, mine);
        fold_node(plan, h->layout, 2, span_in(plan->rank, TIARA_BUF_CELL, mine), TIARA_BUF_CELL);
    }
    if (h->local < h->leaders) {
        collect_shard(h);
        embed_inter(h, inter, INTER_STEP0, alone ? TIARA_BUF_OUT : TIARA_BUF_CELL);
    }
    if (!alone)
        hier_take_shards(h, last);
    return last;
}

/* The same where every node has as many ranks as leaders, two at least: rings inside the nodes. */
static int build_ring(const struct hier *h, const struct tiara_plan *inter, const int *order)
{
    int nblocks = h->plan->nblocks, last = 0;
    int *owner_of = tiara_alloc((size_t)nblocks, sizeof(*owner_of));
    struct node_ring ring;

    if (owner_of == NULL) {
        h->plan->sticky = TIARA_ERR_NOMEM;
        return 0;
    }
    for (int b = 0; b < nblocks; b++)
        owner_of[b] = b / (nblocks / h->nlocal);
    if (tiara_algo_node_ring_open(h->layout, order, owner_of, h->plan, &ring)) {
        tiara_algo_node_ring_reduce(&ring, TIARA_BUF_CELL);
        embed_inter(h, inter, h->nlocal, TIARA_BUF_CELL);
        last = tiara_algo_node_ring_gather(&ring, h->nlocal + inter->nsteps, TIARA_BUF_CELL);
    }
    tiara_free(owner_of);
    return last;
}

static int build_allreduce(
    const struct hier *h, const struct tiara_algo_opts *opts, const struct tiara_algo *inter_algo)
{
    /* Flat algorithms look at the number of ranks only. */
    const struct tiara_layout nodes = {.nranks = h->layout->nnodes};
    struct tiara_plan inter;
    int last = 0;

    tiara_plan_init(&inter, opts->coll, h->node, nodes.nranks, 1);
    h->plan->sticky = tiara_plan_finish(&inter, inter_algo->generate(&nodes, opts, &inter));
    if (h->plan->sticky == TIARA_OK) {
        h->plan->nblocks = blocks_for(h->layout, h->leaders * inter.nblocks);
        last = opts->node_ring ? build_ring(h, &inter, opts->order) : build(h, &inter);
    }
    tiara_plan_fini(&inter);
    return last;
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    const struct tiara_algo *inter = opts->inter != NULL ? opts->inter : &tiara_algo_ring;
    const struct tiara_algo_opts alone = {.coll = opts->coll, .order = opts->order};
    struct hier h = hier_of(layout, opts, plan);

    if (layout->nnodes == 1)
        return (opts->node_ring ? &tiara_algo_node_ring : &tiara_algo_direct)
            ->generate(layout, &alone, plan);
    if (!(inter->flags & TIARA_ALGO_FLAT)) {
        tiara_debug("algorithm %s is not flat and cannot be hier's inter-node part", inter->name);
        return refuse(plan);
    }
    if (opts->node_ring && h.leaders < layout->max_local) {
        tiara_debug("hier has rings only where all ranks are leaders, not %d of %d", h.leaders,
            layout->max_local);
        return refuse(plan);
    }
    if (opts->coll != TIARA_COLL_ALLREDUCE)
        return tiara_algo_hier_scatter(layout, opts, plan);
    if (layout->nnodes == layout->nranks)
        return inter->generate(layout, opts, plan);
    return build_allreduce(&h, opts, inter);
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
    .colls = COLLS_ALL,
    .reads = TIARA_ALGO_OPT_LEADERS | TIARA_ALGO_OPT_INTER | TIARA_ALGO_OPT_NODE_RING |
             TIARA_ALGO_OPT_ORDER,
    .generate = generate,
    .describe = describe,
};
