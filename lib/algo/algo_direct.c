/*
 * Direct: every rank reads what it needs from the exposed buffers of its node peers.
 *
 * Two-shot (the default): the vector has P stripes; each rank exposes its contribution in its CELL,
 * folds its own stripe of all ranks in one n-ary reduction in rank order, exposes the sum, and
 * reads the other stripes. REDUCE_SCATTER stops after the fold, ALLGATHER begins after it. The own
 * stripe of the contribution is nobody else's business and never goes into the CELL.
 *
 * One-shot: every rank folds everything itself: one hand-over less, P times the arithmetic; for
 * small vectors. Single copy: as two-shot, but peers read IN and OUT themselves, without a CELL.
 *
 * Readers start with the rank after their own, so that they do not all read one owner at a time.
 *
 * Cost    no network. Two-shot: 3 steps; a rank reads 2 (P - 1) / P vectors of peers and reduces
 *         (P - 1) / P. One-shot: 2 steps; P - 1 read and reduced.
 * Source  folklore of shared memory collectives; NVIDIA's and vLLM's one-shot and two-shot custom
 *         all-reduce.
 *
 * In place, two-shot: OUT block r is written when IN block r, which nobody else reads, was folded.
 * Single copy in place: OUT block q != r overwrites what rank q reads in step 2, and is written in
 * step 3, after rank q was waited for anyway, since it is q's sum that is copied.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet.
 * Two-shot, after each step, block by block:
 *
 *           rank 0 CELL          rank 1 CELL          rank 2 CELL          rank 3 CELL
 *   step 1  . 0 0 0              1 . 1 1              2 2 . 2              3 3 3 .
 *   step 2  0123 0 0 0           1 0123 1 1           2 2 0123 2           3 3 3 0123
 *   OUT     0123 0123 0123 0123  0123 0123 0123 0123  0123 0123 0123 0123  0123 0123 0123 0123
 *
 *           rank 0 CELL  rank 1 CELL  rank 2 CELL
 *   step 1  . 0 0        1 . 1        2 2 .
 *   step 2  012 0 0      1 012 1      2 2 012
 *   OUT     012 012 012  012 012 012  012 012 012
 */
#include "algo/algo_priv.h"
#include <stdio.h>

/* OUT block q <- rank q's @buf, for all other ranks q. */
static void read_others(struct tiara_plan *plan, int step, enum tiara_buf buf)
{
    for (int i = 1; i < plan->nranks; i++) {
        int q = wrap(plan->rank + i, plan->nranks);

        tiara_plan_copy(plan, step, own(plan, TIARA_BUF_OUT, q, 1), tiara_slice(q, buf, q, 1));
    }
}

static int one_shot(struct tiara_plan *plan, const struct tiara_layout *layout)
{
    expose_but(plan, (struct span){0, 0});
    fold_node(plan, layout, 2, own(plan, TIARA_BUF_OUT, 0, 1), TIARA_BUF_CELL);
    return 2;
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int r = plan->rank;
    struct tiara_slice in = own(plan, TIARA_BUF_IN, r, 1), out = own(plan, TIARA_BUF_OUT, r, 1);
    struct tiara_slice cell = own(plan, TIARA_BUF_CELL, r, 1);
    bool single_copy = opts->single_copy;
    enum tiara_buf result = single_copy ? TIARA_BUF_OUT : TIARA_BUF_CELL;

    if (opts->one_shot && plan->coll == TIARA_COLL_ALLREDUCE)
        return one_shot(plan, layout);
    plan->nblocks = plan->nranks;
    plan->single_copy = single_copy;
    if (plan->coll == TIARA_COLL_ALLGATHER) {
        if (!single_copy)
            tiara_plan_copy(plan, 1, cell, in);
        tiara_plan_copy(plan, 1, out, in);
        read_others(plan, 2, result);
        return 2;
    }
    if (!single_copy)
        expose_but(plan, (struct span){r, 1});
    fold_node(plan, layout, 2, out, single_copy ? TIARA_BUF_IN : TIARA_BUF_CELL);
    if (plan->coll == TIARA_COLL_REDUCE_SCATTER)
        return 2;
    if (!single_copy)
        tiara_plan_copy(plan, 2, cell, out);
    read_others(plan, 3, result);
    return 3;
}

static void describe(const struct tiara_algo_opts *opts, char *text, size_t size)
{
    snprintf(text, size, "%s%s", opts->one_shot ? "one-shot" : "two-shot",
        opts->single_copy ? ", single copy" : "");
}

const struct tiara_algo tiara_algo_direct = {
    .name = "direct",
    .help = "one node: each rank folds its stripe from the peers' exposed buffers",
    .flags = TIARA_ALGO_NODE | TIARA_ALGO_ORDERED | TIARA_ALGO_LEFT_FOLD,
    .colls = COLLS_ALL,
    .reads = TIARA_ALGO_OPT_ONE_SHOT | TIARA_ALGO_OPT_SINGLE_COPY,
    .generate = generate,
    .describe = describe,
};
