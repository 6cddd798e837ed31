/*
 * Chain: the sum is passed from rank to rank, and the result comes back the same way.
 *
 * Each rank puts its contribution behind what it receives: the tree is the left fold over all
 * ranks, ((r0 op r1) op r2) .., the one tree that a program on one rank would build. Chunks in
 * flight follow each other along the chain, so that long vectors are bound by bandwidth and
 * not by P.
 *
 * Cost    2 (P - 1) rounds; a rank between the ends sends 2 vectors (1 at most when P < 3), and
 *         reduces 1.
 * Source  folklore.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT:
 *
 *   P = 4    rank 0   rank 1   rank 2   rank 3
 *   step 1   .        01       .        .
 *   step 2   .        01       012      .
 *   step 3   .        01       012      0123
 *   step 4   .        01       0123     0123
 *   step 5   .        0123     0123     0123
 *   step 6   0123     0123     0123     0123
 *
 *   P = 3    rank 0   rank 1   rank 2
 *   step 1   .        01       .
 *   step 2   .        01       012
 *   step 3   .        012      012
 *   step 4   012      012      012
 */
#include "algo/algo_priv.h"

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int rank = plan->rank, last = layout->nranks - 1;
    struct tiara_slice in = own(plan, TIARA_BUF_IN, 0, 1), out = own(plan, TIARA_BUF_OUT, 0, 1);
    struct tiara_slice pair[2] = {own(plan, TIARA_BUF_TMP, 0, 1), in};

    (void)opts;
    /* Rank r receives in step r, and sends in step r + 1. */
    if (rank > 0) {
        tiara_plan_tmp(plan, 1);
        tiara_plan_recv(plan, rank, rank - 1, pair[0]);
        tiara_plan_reduce(plan, rank, out, pair, 2);
    }
    if (rank < last)
        tiara_plan_send(plan, rank + 1, rank + 1, rank > 0 ? out : in);

    /* And backwards: the last rank sends in step last + 1, rank 0 receives in step 2 * last. */
    if (rank < last)
        tiara_plan_recv(plan, 2 * last - rank, rank + 1, out);
    if (rank > 0)
        tiara_plan_send(plan, 2 * last - rank + 1, rank - 1, out);
    return 2 * last;
}

static struct tiara_algo_cost cost(int nranks)
{
    int last = nranks - 1;

    return (struct tiara_algo_cost){2 * last, last < 2 ? last : 2, false};
}

const struct tiara_algo tiara_algo_chain = {
    .name = "chain",
    .help = "left fold in rank order, passed from rank to rank and back",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED | TIARA_ALGO_LEFT_FOLD,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
