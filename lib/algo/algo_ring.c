/*
 * Ring: each block travels once around to be reduced, and once more to be spread.
 *
 * The vector has P blocks. In round s rank r sends block r - s to its right, and receives block
 * r - s - 1 from its left, which it puts before its own contribution; after P - 1 rounds rank r
 * holds all of block r. Then the finished blocks go round. The first half alone is REDUCE_SCATTER,
 * the second half alone ALLGATHER. Block b is folded in the order b+1, b+2, .., b: the same on all
 * ranks, but not rank order.
 *
 * Cost    2 (P - 1) rounds; each rank sends 2 (P - 1) / P vectors, the least possible, and reduces
 *         (P - 1) / P. One half alone: half of the rounds and vectors.
 * Source  P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of
 *         workstations. J. Parallel Distrib. Comput. 69 (2009).
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT, block by block:
 *
 *   P = 4    rank 0                rank 1                rank 2                rank 3
 *   step 1   . . 30 .              . . . 01              12 . . .              . 23 . .
 *   step 2   . 230 30 .            . . 301 01            12 . . 012            123 23 . .
 *   step 3   1230 230 30 .         . 2301 301 01         12 . 3012 012         123 23 . 0123
 *   step 4   1230 230 30 0123      1230 2301 301 01      12 2301 3012 012      123 23 3012 0123
 *   step 5   1230 230 3012 0123    1230 2301 301 0123    1230 2301 3012 012    123 2301 3012 0123
 *   step 6   1230 2301 3012 0123   1230 2301 3012 0123   1230 2301 3012 0123   1230 2301 3012 0123
 *
 *   P = 3    rank 0        rank 1        rank 2
 *   step 1   . 20 .        . . 01        12 . .
 *   step 2   120 20 .      . 201 01      12 . 012
 *   step 3   120 20 012    120 201 01    12 201 012
 *   step 4   120 201 012   120 201 012   120 201 012
 */
#include "algo/algo_priv.h"

/*
 * Steps 1 .. P-1. Partial sums live in OUT where all of it exists, else in the TMP block that they
 * were received in; the two TMP blocks alternate, as one is sent while the other fills.
 */
static void reduce_scatter(struct tiara_plan *plan)
{
    int n = plan->nranks, r = plan->rank;
    struct tiara_slice held = own(plan, TIARA_BUF_IN, wrap(r - 1, n), 1);

    tiara_plan_tmp(plan, n > 2 ? 2 : 1);
    for (int s = 1; s < n; s++) {
        int b = wrap(r - s - 1, n);
        struct tiara_slice got = own(plan, TIARA_BUF_TMP, (s - 1) % 2, 1);
        struct tiara_slice pair[2] = {got, own(plan, TIARA_BUF_IN, b, 1)};
        struct tiara_slice sum = got;

        if (plan->coll == TIARA_COLL_ALLREDUCE || b == r)
            sum = own(plan, TIARA_BUF_OUT, b, 1);
        tiara_plan_recv(plan, s, wrap(r - 1, n), got);
        tiara_plan_send(plan, s, wrap(r + 1, n), held);
        tiara_plan_reduce(plan, s, sum, pair, 2);
        held = sum;
    }
}

/* Steps step0+1 .. step0+P-1; block r, the first to go, is in @first_buf. */
static void all_gather(struct tiara_plan *plan, int step0, enum tiara_buf first_buf)
{
    int n = plan->nranks, r = plan->rank;
    struct tiara_slice held = own(plan, first_buf, r, 1);

    for (int s = 1; s < n; s++) {
        struct tiara_slice got = own(plan, TIARA_BUF_OUT, wrap(r - s, n), 1);

        tiara_plan_recv(plan, step0 + s, wrap(r - 1, n), got);
        tiara_plan_send(plan, step0 + s, wrap(r + 1, n), held);
        if (s == 1 && first_buf == TIARA_BUF_IN)
            tiara_plan_copy(plan, step0 + s, own(plan, TIARA_BUF_OUT, r, 1), held);
        held = got;
    }
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int n = layout->nranks;

    (void)opts;
    plan->nblocks = n;
    if (plan->coll == TIARA_COLL_ALLGATHER) {
        all_gather(plan, 0, TIARA_BUF_IN);
        return n - 1;
    }
    reduce_scatter(plan);
    if (plan->coll == TIARA_COLL_REDUCE_SCATTER)
        return n - 1;
    all_gather(plan, n - 1, TIARA_BUF_OUT);
    return 2 * (n - 1);
}

static struct tiara_algo_cost cost(int nranks)
{
    double n = nranks;

    return (struct tiara_algo_cost){2 * (n - 1), 2 * (n - 1) / n, false};
}

const struct tiara_algo tiara_algo_ring = {
    .name = "ring",
    .help = "blocks go round a ring: fewest bytes, most rounds",
    .flags = TIARA_ALGO_FLAT,
    .colls = COLLS_ALL,
    .generate = generate,
    .cost = cost,
};
