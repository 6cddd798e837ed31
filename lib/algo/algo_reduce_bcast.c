/*
 * Reduce to one, broadcast from one: the baseline that every other algorithm must beat.
 *
 * Everybody sends its vector to rank 0, which folds them in rank order in one n-ary reduction and
 * sends the result to everybody. Two rounds, whatever P; rank 0's wire carries everything.
 *
 * Cost    2 rounds; rank 0 sends and receives P - 1 vectors, and does P - 1 reductions.
 * Source  folklore.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT:
 *
 *   P = 4    rank 0   rank 1   rank 2   rank 3
 *   step 1   0123     .        .        .
 *   step 2   0123     0123     0123     0123
 *
 *   P = 3    rank 0   rank 1   rank 2
 *   step 1   012      .        .
 *   step 2   012      012      012
 */
#include "algo/algo_priv.h"

/* Rank 0's half: the others' vectors arrive in TMP, in rank order. */
static void build_root(struct tiara_plan *plan)
{
    int nranks = plan->nranks;
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, 0, 1);

    tiara_plan_tmp(plan, nranks - 1);
    for (int q = 1; q < nranks; q++)
        tiara_plan_recv(plan, 1, q, own(plan, TIARA_BUF_TMP, q - 1, 1));
    tiara_plan_fold(plan, 1, out);
    tiara_plan_source(plan, own(plan, TIARA_BUF_IN, 0, 1));
    for (int q = 1; q < nranks; q++)
        tiara_plan_source(plan, own(plan, TIARA_BUF_TMP, q - 1, 1));
    for (int q = 1; q < nranks; q++)
        tiara_plan_send(plan, 2, q, out);
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    (void)layout;
    (void)opts;
    if (plan->rank == 0) {
        build_root(plan);
    } else {
        tiara_plan_send(plan, 1, 0, own(plan, TIARA_BUF_IN, 0, 1));
        tiara_plan_recv(plan, 2, 0, own(plan, TIARA_BUF_OUT, 0, 1));
    }
    return 2;
}

static struct tiara_algo_cost cost(int nranks)
{
    return (struct tiara_algo_cost){nranks > 1 ? 2 : 0, nranks - 1, false};
}

const struct tiara_algo tiara_algo_reduce_bcast = {
    .name = "reduce-bcast",
    .help = "all send to rank 0, which folds and sends back: the baseline",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED | TIARA_ALGO_LEFT_FOLD,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
