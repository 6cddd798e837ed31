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
#include "base/alloc.h"

struct fold {
    const struct tiara_layout *layout;
    struct tiara_plan *plan;
    int node;
    int local; /* own index on the node; shard of the worker */
    int leaders;
    struct tiara_slice *src; /* [max_local + 1] scratch */
};

static int worker(const struct fold *f, int node)
{
    return tiara_layout_rank(f->layout, node, f->local);
}

/* The end of the run that begins with rank @first. */
static int run_end(const struct tiara_layout *layout, int first)
{
    int r = first;

    while (r < layout->nranks && layout->node_of[r] == layout->node_of[first])
        r++;
    return r;
}

static int count_runs(const struct tiara_layout *layout)
{
    int nruns = 0;

    for (int r = 0; r < layout->nranks; r = run_end(layout, r))
        nruns++;
    return nruns;
}

static void expose(const struct fold *f)
{
    for (int k = 0; k < f->leaders; k++) {
        if (k != f->local)
            tiara_plan_copy(
                f->plan, 1, own(f->plan, TIARA_BUF_CELL, k, 1), own(f->plan, TIARA_BUF_IN, k, 1));
    }
}

/* Run number @j: ranks @first .. @end-1, all on this node, whose worker this rank is. */
static void fold_run(const struct fold *f, int j, int first, int end)
{
    const int *node_of = f->layout->node_of;
    struct tiara_plan *plan = f->plan;
    bool is_last = end == plan->nranks;
    struct tiara_slice sum = own(plan, TIARA_BUF_TMP, 0, 1);
    int nsrc = 0;

    if (is_last)
        sum = own(plan, TIARA_BUF_CELL, f->local, 1);
    if (first > 0) {
        f->src[nsrc] = own(plan, TIARA_BUF_TMP, 0, 1);
        tiara_plan_recv(plan, 2 + j, worker(f, node_of[first - 1]), f->src[nsrc++]);
    }
    for (int r = first; r < end; r++)
        f->src[nsrc++] =
            tiara_slice(r, r == plan->rank ? TIARA_BUF_IN : TIARA_BUF_CELL, f->local, 1);
    if (nsrc == 1)
        sum = f->src[0]; /* a first run of one rank is sent as it is */
    else
        tiara_plan_reduce(plan, 2 + j, sum, f->src, nsrc);
    if (!is_last)
        tiara_plan_send(plan, 3 + j, worker(f, node_of[end]), sum);
}

static void fold_runs(const struct fold *f)
{
    int j = 0, end;

    tiara_plan_tmp(f->plan, 1);
    for (int first = 0; first < f->layout->nranks; first = end, j++) {
        end = run_end(f->layout, first);
        if (f->layout->node_of[first] == f->node)
            fold_run(f, j, first, end);
    }
}

/* From the last run's node down to node 0, then from the highest node on; one hop per step. */
static void spread(const struct fold *f, int step0)
{
    int n = f->layout->nnodes, root = f->layout->node_of[f->layout->nranks - 1];
    int hop = wrap(root - f->node, n);
    struct tiara_slice cell = own(f->plan, TIARA_BUF_CELL, f->local, 1);

    if (hop > 0)
        tiara_plan_recv(f->plan, step0 + hop, worker(f, wrap(f->node + 1, n)), cell);
    if (hop < n - 1)
        tiara_plan_send(f->plan, step0 + hop + 1, worker(f, wrap(f->node - 1, n)), cell);
}

static void copy_out(const struct fold *f, int step)
{
    for (int i = 0; i < f->leaders; i++) {
        int k = (f->local + i) % f->leaders;

        tiara_plan_copy(f->plan, step, own(f->plan, TIARA_BUF_OUT, k, 1),
            tiara_slice(tiara_layout_rank(f->layout, f->node, k), TIARA_BUF_CELL, k, 1));
    }
}

static enum tiara_err build(struct fold *f)
{
    int folded = count_runs(f->layout) + 1, last = folded + f->layout->nnodes;

    f->src = tiara_alloc((size_t)f->layout->max_local + 1, sizeof(*f->src));
    if (f->src == NULL)
        return TIARA_ERR_NOMEM;
    expose(f);
    if (f->local < f->leaders) {
        fold_runs(f);
        spread(f, folded);
    }
    copy_out(f, last);
    tiara_free(f->src);
    return tiara_plan_finish(f->plan, last);
}

static enum tiara_err generate(const struct tiara_layout *layout, int rank,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    struct fold f = {
        .layout = layout,
        .plan = plan_out,
        .node = layout->node_of[rank],
        .local = layout->local_of[rank],
        .leaders = hier_leaders(layout, opts->leaders),
    };
    const struct tiara_algo_opts plain = {.coll = opts->coll};
    enum tiara_err err;

    err = plan_open(&tiara_algo_hier_chain, opts, rank, layout->nranks, f.leaders, plan_out);
    if (err != TIARA_OK)
        return err;
    if (layout->nnodes == 1)
        return tiara_algo_direct.generate(layout, rank, &plain, plan_out);
    if (layout->nnodes == layout->nranks)
        return tiara_algo_chain.generate(layout, rank, opts, plan_out);
    return build(&f);
}

const struct tiara_algo tiara_algo_hier_chain = {
    .name = "hier-chain",
    .help = "two levels, left fold in rank order for every layout: reproducible, non-commutative",
    .flags = TIARA_ALGO_HIER | TIARA_ALGO_ORDERED | TIARA_ALGO_LEFT_FOLD,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .reads = TIARA_ALGO_OPT_LEADERS,
    .generate = generate,
    .cost = NULL,
};
