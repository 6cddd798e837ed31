/*
 * Recursive doubling: in each round everybody exchanges all it has with a partner twice as far
 * away.
 *
 * After round k a rank holds the sum of the 2^k ranks whose numbers differ from its own in the k
 * lowest bits only. The lower partner's operand is always the left one, so both build the same
 * tree, in rank order. A number of ranks that is no power of two is brought to one first (struct
 * pow2_group).
 *
 * Cost    floor(log2 P) rounds, and 2 more unless P is a power of two; as many vectors sent and
 *         reduced by the busiest rank: floor(log2 P), and 1 more.
 * Source  folklore; R. Rabenseifner, J. L. Traeff: More efficient reduction algorithms for
 *         non-power-of-two number of processors. EuroPVM/MPI 2004.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT:
 *
 *   P = 4    rank 0   rank 1   rank 2   rank 3
 *   step 1   01       01       23       23
 *   step 2   0123     0123     0123     0123
 *
 *   P = 5    rank 0   rank 1   rank 2   rank 3   rank 4
 *   step 1   01       .        .        .        .
 *   step 2   012      .        012      34       34
 *   step 3   01234    .        01234    01234    01234
 *   step 4   01234    01234    01234    01234    01234
 */
#include "algo/algo_priv.h"

/* One exchange; @held is the buffer with what this rank has so far. */
static void exchange(struct tiara_plan *plan, int step, int peer, enum tiara_buf held)
{
    struct tiara_slice mine = own(plan, held, 0, 1), theirs = own(plan, TIARA_BUF_TMP, 0, 1);
    struct tiara_slice pair[2] = {mine, theirs};

    if (peer < plan->rank) {
        pair[0] = theirs;
        pair[1] = mine;
    }
    tiara_plan_recv(plan, step, peer, theirs);
    tiara_plan_send(plan, step, peer, mine);
    tiara_plan_reduce(plan, step, own(plan, TIARA_BUF_OUT, 0, 1), pair, 2);
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    struct pow2_group group = pow2_group_of(plan->rank, layout->nranks);
    enum tiara_buf held;
    int step = group.edge;

    (void)opts;
    tiara_plan_tmp(plan, 1);
    held = pow2_group_enter(plan, &group);
    for (int distance = 1; distance < group.size; distance *= 2) {
        step++;
        if (group.member < 0)
            continue;
        exchange(plan, step, pow2_group_rank(&group, group.member ^ distance), held);
        held = TIARA_BUF_OUT;
    }
    step += group.edge;
    pow2_group_leave(plan, &group, step);
    return step;
}

static struct tiara_algo_cost cost(int nranks)
{
    int rounds = log2_down(nranks);
    bool is_pow2 = nranks == pow2_below(nranks);

    return (struct tiara_algo_cost){rounds + (is_pow2 ? 0 : 2), rounds + (is_pow2 ? 0 : 1), false};
}

const struct tiara_algo tiara_algo_recdbl = {
    .name = "recursive-doubling",
    .help = "whole vectors exchanged at doubling distances: fewest rounds",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
