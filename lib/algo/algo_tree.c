/*
 * Binomial tree: up with partial sums, down with the result.
 *
 * In round k a rank whose number has bit k - 1 as its lowest one sends the sum of the 2^(k-1) ranks
 * that begin with it to the rank 2^(k-1) below. Every sum covers consecutive ranks and is put
 * behind the receiver's, so that the leaves stay in rank order. The way down is the way up,
 * backwards.
 *
 * Cost    2 ceil(log2 P) rounds; rank 0 sends and reduces ceil(log2 P) vectors.
 * Source  folklore; R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication
 *         operations in MPICH. Int. J. High Perform. Comput. Appl. 19 (2005), section 3.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT:
 *
 *   P = 4    rank 0   rank 1   rank 2   rank 3
 *   step 1   01       .        23       .
 *   step 2   0123     .        23       .
 *   step 3   0123     .        0123     .
 *   step 4   0123     0123     0123     0123
 *
 *   P = 5    rank 0   rank 1   rank 2   rank 3   rank 4
 *   step 1   01       .        23       .        .
 *   step 2   0123     .        23       .        .
 *   step 3   01234    .        23       .        .
 *   step 4   01234    .        23       .        01234
 *   step 5   01234    .        01234    .        01234
 *   step 6   01234    01234    01234    01234    01234
 */
#include "algo/algo_priv.h"

/* log2 of @n rounded up, for n >= 1. */
static int log2_up(int n)
{
    return n == 1 ? 0 : log2_down(n - 1) + 1;
}

/* Steps 1 .. levels. */
static void reduce_up(struct tiara_plan *plan, int levels)
{
    int r = plan->rank;
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, 0, 1);
    struct tiara_slice pair[2] = {
        own(plan, TIARA_BUF_IN, 0, 1),
        own(plan, TIARA_BUF_TMP, 0, 1),
    };

    for (int k = 1; k <= levels; k++) {
        int distance = 1 << (k - 1);

        if (r & distance) {
            tiara_plan_send(plan, k, r - distance, pair[0]);
            return;
        }
        if (r + distance >= plan->nranks)
            continue;
        tiara_plan_tmp(plan, 1);
        tiara_plan_recv(plan, k, r + distance, pair[1]);
        tiara_plan_reduce(plan, k, out, pair, 2);
        pair[0] = out;
    }
}

/* Steps levels+1 .. 2*levels. */
static void broadcast_down(struct tiara_plan *plan, int levels)
{
    int r = plan->rank;
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, 0, 1);

    for (int k = levels; k >= 1; k--) {
        int distance = 1 << (k - 1);
        int step = 2 * levels + 1 - k;

        if (r % (2 * distance) == distance)
            tiara_plan_recv(plan, step, r - distance, out);
        else if (r % (2 * distance) == 0 && r + distance < plan->nranks)
            tiara_plan_send(plan, step, r + distance, out);
    }
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int levels = log2_up(layout->nranks);

    (void)opts;
    reduce_up(plan, levels);
    broadcast_down(plan, levels);
    return 2 * levels;
}

static struct tiara_algo_cost cost(int nranks)
{
    int levels = log2_up(nranks);

    return (struct tiara_algo_cost){2 * levels, levels, false};
}

const struct tiara_algo tiara_algo_tree = {
    .name = "tree",
    .help = "binomial tree up and down: few rounds, whole vectors",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
