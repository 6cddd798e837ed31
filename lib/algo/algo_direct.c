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
#include "base/alloc.h"
#include <stdio.h>

/* dst <- the fold of block @b of all ranks: the peers' in @peer_buf, the own in IN. */
static enum tiara_err fold_all(
    struct tiara_plan *plan, int step, struct tiara_slice dst, enum tiara_buf peer_buf)
{
    struct tiara_slice *src = tiara_alloc((size_t)plan->nranks, sizeof(*src));

    if (src == NULL)
        return TIARA_ERR_NOMEM;
    for (int q = 0; q < plan->nranks; q++)
        src[q] = tiara_slice(q, q == plan->rank ? TIARA_BUF_IN : peer_buf, dst.first, dst.count);
    tiara_plan_reduce(plan, step, dst, src, plan->nranks);
    tiara_free(src);
    return TIARA_OK;
}

/* OUT block q <- rank q's @buf, for all other ranks q. */
static void read_others(struct tiara_plan *plan, int step, enum tiara_buf buf)
{
    for (int i = 1; i < plan->nranks; i++) {
        int q = wrap(plan->rank + i, plan->nranks);

        tiara_plan_copy(plan, step, own(plan, TIARA_BUF_OUT, q, 1), tiara_slice(q, buf, q, 1));
    }
}

static enum tiara_err build_one_shot(struct tiara_plan *plan)
{
    enum tiara_err err;

    tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_CELL, 0, 1), own(plan, TIARA_BUF_IN, 0, 1));
    err = fold_all(plan, 2, own(plan, TIARA_BUF_OUT, 0, 1), TIARA_BUF_CELL);
    return err != TIARA_OK ? err : tiara_plan_finish(plan, 2);
}

static enum tiara_err build_allgather(struct tiara_plan *plan)
{
    struct tiara_slice in = own(plan, TIARA_BUF_IN, plan->rank, 1);
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, plan->rank, 1);

    if (!plan->single_copy)
        tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_CELL, plan->rank, 1), in);
    tiara_plan_copy(plan, 1, out, in);
    read_others(plan, 2, plan->single_copy ? TIARA_BUF_OUT : TIARA_BUF_CELL);
    return tiara_plan_finish(plan, 2);
}

/* REDUCE_SCATTER, and ALLREDUCE, which goes on. */
static enum tiara_err build_two_shot(struct tiara_plan *plan)
{
    int r = plan->rank, after = r + 1;
    struct tiara_slice sum = own(plan, TIARA_BUF_OUT, r, 1), cell = own(plan, TIARA_BUF_CELL, r, 1);
    enum tiara_err err;

    if (!plan->single_copy) {
        tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_CELL, 0, r), own(plan, TIARA_BUF_IN, 0, r));
        tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_CELL, after, plan->nranks - after),
            own(plan, TIARA_BUF_IN, after, plan->nranks - after));
    }
    err = fold_all(plan, 2, sum, plan->single_copy ? TIARA_BUF_IN : TIARA_BUF_CELL);
    if (err != TIARA_OK)
        return err;
    if (plan->coll == TIARA_COLL_REDUCE_SCATTER)
        return tiara_plan_finish(plan, 2);
    if (!plan->single_copy)
        tiara_plan_copy(plan, 2, cell, sum);
    read_others(plan, 3, plan->single_copy ? TIARA_BUF_OUT : TIARA_BUF_CELL);
    return tiara_plan_finish(plan, 3);
}

static enum tiara_err generate(const struct tiara_layout *layout, int rank,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    struct tiara_plan *plan = plan_out;
    bool one_shot = opts->one_shot && opts->coll == TIARA_COLL_ALLREDUCE;
    enum tiara_err err;

    err = plan_open(
        &tiara_algo_direct, opts, rank, layout->nranks, one_shot ? 1 : layout->nranks, plan);
    if (err != TIARA_OK)
        return err;
    if (layout->nnodes != 1) {
        tiara_debug("algorithm direct needs one node, not %d", layout->nnodes);
        return TIARA_ERR_UNSUPPORTED;
    }
    if (layout->nranks == 1)
        return plan_alone(plan);
    if (one_shot)
        return build_one_shot(plan);
    plan->single_copy = opts->single_copy;
    if (opts->coll == TIARA_COLL_ALLGATHER)
        return build_allgather(plan);
    return build_two_shot(plan);
}

/* Nothing goes over the network. */
static void cost(const struct tiara_layout *layout, const struct tiara_algo_opts *opts,
    struct tiara_algo_cost *cost_out)
{
    (void)layout;
    (void)opts;
    *cost_out = (struct tiara_algo_cost){0};
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
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE) | COLL_BIT(TIARA_COLL_REDUCE_SCATTER) |
             COLL_BIT(TIARA_COLL_ALLGATHER),
    .reads = TIARA_ALGO_OPT_ONE_SHOT | TIARA_ALGO_OPT_SINGLE_COPY,
    .generate = generate,
    .cost = cost,
    .describe = describe,
};
