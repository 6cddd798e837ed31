/*
 * The two levels with one fixed tree: the left fold over all ranks, ((r0 op r1) op r2) .., whatever
 * the layout.
 *
 * The order of ranks is cut into runs of consecutive ranks on one node. The sum so far goes from
 * run to run; at each run one worker reads the contributions of the whole run from its node peers'
 * CELLs and folds them behind it. Only the borders between runs cost a message: nodes - 1 with
 * block placement. The result goes back from node to node. The vector has K shards, each with its
 * own worker on each node (the leaders k), so that K ranks per node work and chunks in flight
 * follow each other.
 *
 *   step 1          every rank exposes its contribution in its CELL; worker k not shard k
 *   step 2          the first run is folded
 *   steps 3 .. R+1  run j = 1 .. R-1 receives the sum in step 2 + j, folds, and sends it in the
 *                   next step; the last run's worker folds into its CELL
 *   n - 1 steps     the result goes on to one worker per node, into its CELL
 *   last step       every rank copies each shard from its worker's CELL
 *
 * Cost    with R runs on n nodes: R + n + 1 steps; R - 1 + n - 1 vectors cross the network; each
 *         node sends one vector per run and one more. Reductions are not spread over a node: worker
 *         k folds shard k of all.
 * Source  ours.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet.
 * After each step, TMP | CELL, block by block, and at last OUT. Two nodes of two ranks:
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   step 1   . | . 0       . | 1 .       . | . 2       . | 3 .
 *   step 2   01 | . 0      01 | 1 .      . | . 2       . | 3 .
 *   step 3   01 | . 0      01 | 1 .      01 | 0123 2   01 | 3 0123
 *   step 4   01 | 0123 0   01 | 1 0123   01 | 0123 2   01 | 3 0123
 *   OUT      0123 0123     0123 0123     0123 0123     0123 0123
 *
 * Ranks 0 and 3 on one node, 1 and 2 on the other: three runs.
 *
 *            rank 0         rank 1         rank 2         rank 3
 *   step 1   . | . 0        . | . 1        . | 2 .        . | 3 .
 *   step 2   . | . 0        . | . 1        . | 2 .        . | 3 .
 *   step 3   . | . 0        012 | . 1      012 | 2 .      . | 3 .
 *   step 4   012 | 0123 0   012 | . 1      012 | 2 .      012 | 3 0123
 *   step 5   012 | 0123 0   012 | 0123 1   012 | 2 0123   012 | 3 0123
 *   OUT      0123 0123      0123 0123      0123 0123      0123 0123
 *
 * Nodes of two and one ranks, so one worker per node:
 *
 *            rank 0     rank 1   rank 2
 *   step 1   . | .      . | 1    . | .
 *   step 2   01 | .     . | 1    . | .
 *   step 3   01 | .     . | 1    01 | 012
 *   step 4   01 | 012   . | 1    01 | 012
 *   OUT      012        012      012
 */
#include "algo/algo_priv.h"

/* The rank on @node that works on the own shard. */
static int worker(const struct hier *h, int node)
{
    return tiara_layout_rank(h->layout, node, h->local);
}

/* The end of the run that begins with rank @first. */
static int run_end(const struct tiara_layout *layout, int first)
{
    int r = first;

    while (r < layout->nranks && layout->node_of[r] == layout->node_of[first])
        r++;
    return r;
}

/* Run number @j: ranks @first .. @end-1, all on this node, whose worker this rank is. */
static void fold_run(const struct hier *h, int j, int first, int end)
{
    const int *node_of = h->layout->node_of;
    struct tiara_plan *plan = h->plan;
    struct tiara_slice before = own(plan, TIARA_BUF_TMP, 0, 1), sum = before;

    if (end == plan->nranks)
        sum = own(plan, TIARA_BUF_CELL, h->local, 1);
    if (first == 0 && end == 1) {
        /* the only rank of the first run, whose contribution is sent as it is */
        sum = tiara_slice(0, plan->rank == 0 ? TIARA_BUF_IN : TIARA_BUF_CELL, h->local, 1);
    } else {
        if (first > 0)
            tiara_plan_recv(plan, 2 + j, worker(h, node_of[first - 1]), before);
        tiara_plan_fold(plan, 2 + j, sum);
        if (first > 0)
            tiara_plan_source(plan, before);
        for (int r = first; r < end; r++)
            tiara_plan_source(
                plan, tiara_slice(r, r == plan->rank ? TIARA_BUF_IN : TIARA_BUF_CELL, h->local, 1));
    }
    if (end < plan->nranks)
        tiara_plan_send(plan, 3 + j, worker(h, node_of[end]), sum);
}

/* From the last run's node down to node 0, then from the highest node on; one hop per step. */
static void spread(const struct hier *h, int step0)
{
    int n = h->layout->nnodes, root = h->layout->node_of[h->layout->nranks - 1];
    int hop = wrap(root - h->node, n);
    struct tiara_slice cell = own(h->plan, TIARA_BUF_CELL, h->local, 1);

    if (hop > 0)
        tiara_plan_recv(h->plan, step0 + hop, worker(h, wrap(h->node + 1, n)), cell);
    if (hop < n - 1)
        tiara_plan_send(h->plan, step0 + hop + 1, worker(h, wrap(h->node - 1, n)), cell);
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    const struct tiara_algo_opts plain = {.coll = opts->coll};
    struct hier h = hier_of(layout, opts, plan);
    bool works = h.local < h.leaders;
    int j = 0;

    if (layout->nnodes == 1)
        return tiara_algo_direct.generate(layout, &plain, plan);
    if (layout->nnodes == layout->nranks)
        return tiara_algo_chain.generate(layout, opts, plan);
    plan->nblocks = h.leaders;
    tiara_plan_tmp(plan, works);
    expose_but(plan, (struct span){works ? h.local : h.leaders, works});
    for (int first = 0, end; first < layout->nranks; first = end, j++) {
        end = run_end(layout, first);
        if (works && layout->node_of[first] == h.node)
            fold_run(&h, j, first, end);
    }
    if (works)
        spread(&h, j + 1);
    hier_take_shards(&h, j + 1 + layout->nnodes);
    return j + 1 + layout->nnodes;
}

const struct tiara_algo tiara_algo_hier_chain = {
    .name = "hier-chain",
    .help = "two levels, left fold in rank order for every layout: reproducible, non-commutative",
    .flags = TIARA_ALGO_HIER | TIARA_ALGO_ORDERED | TIARA_ALGO_LEFT_FOLD,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .reads = TIARA_ALGO_OPT_LEADERS,
    .generate = generate,
};
