/*
 * Rabenseifner: recursive halving reduces and scatters, recursive doubling gathers.
 *
 * The vector has as many blocks as the power-of-two group has members. Partners at distance 1, 2,
 * 4, .. each keep one half of the range of blocks that they share and reduce it; after log2 rounds
 * each member holds one block of the result. The way back doubles the ranges again. Distances grow
 * while ranges shrink, so that a sum always covers consecutive ranks: the leaves are in rank order.
 *
 * Cost    with p = the largest power of two <= P: 2 log2 p rounds, and 2 more unless P = p; the
 *         busiest rank sends 2 (p - 1) / p vectors, and 1 more; reduces (p - 1) / p, and 1 more.
 * Source  R. Rabenseifner: Optimization of collective reduction operations. ICCS 2004.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT, block by block (what a member gave away stays behind, out of date):
 *
 *   P = 4    rank 0                rank 1                rank 2                rank 3
 *   step 1   01 01 . .             . . 01 01             23 23 . .             . . 23 23
 *   step 2   0123 01 . .           . . 0123 01           23 0123 . .           . . 23 0123
 *   step 3   0123 0123 . .         . . 0123 0123         0123 0123 . .         . . 0123 0123
 *   step 4   0123 0123 0123 0123   0123 0123 0123 0123   0123 0123 0123 0123   0123 0123 0123 0123
 *
 *   P = 3    rank 0    rank 1    rank 2
 *   step 1   01 01     . .       . .
 *   step 2   012 01    . .       . 012
 *   step 3   012 012   . .       012 012
 *   step 4   012 012   012 012   012 012
 */
#include "algo/algo_priv.h"

/*
 * One round of halving with @peer: of @range the lower half stays here when @is_low, else the upper
 * one. @held is the buffer with what this rank has so far. Returns the half that stays.
 */
static struct span halve(struct tiara_plan *plan, int step, int peer, bool is_low,
    struct span range, enum tiara_buf held)
{
    int half = range.count / 2;
    struct span keep = {range.first + (is_low ? 0 : half), half};
    struct span give = {range.first + (is_low ? half : 0), half};
    struct tiara_slice mine = span_in(plan->rank, held, keep);
    struct tiara_slice theirs = own(plan, TIARA_BUF_TMP, 0, half);
    struct tiara_slice pair[2] = {is_low ? mine : theirs, is_low ? theirs : mine};

    tiara_plan_recv(plan, step, peer, theirs);
    tiara_plan_send(plan, step, peer, span_in(plan->rank, held, give));
    tiara_plan_reduce(plan, step, span_in(plan->rank, TIARA_BUF_OUT, keep), pair, 2);
    return keep;
}

/* One round of doubling: undoes halve(). Returns the joint range. */
static struct span join(struct tiara_plan *plan, int step, int peer, bool is_low, struct span range)
{
    int other = is_low ? range.first + range.count : range.first - range.count;

    tiara_plan_recv(plan, step, peer, own(plan, TIARA_BUF_OUT, other, range.count));
    tiara_plan_send(plan, step, peer, span_in(plan->rank, TIARA_BUF_OUT, range));
    return (struct span){is_low ? range.first : other, 2 * range.count};
}

/* The members' part, in 2 log2(group size) steps. */
static void halve_and_join(
    struct tiara_plan *plan, const struct pow2_group *group, enum tiara_buf held)
{
    struct span range = {0, group->size};
    int step = group->edge;

    tiara_plan_tmp(plan, group->size / 2);
    for (int distance = 1; distance < group->size; distance *= 2) {
        int peer = pow2_group_rank(group, group->member ^ distance);

        range = halve(plan, ++step, peer, !(group->member & distance), range, held);
        held = TIARA_BUF_OUT;
    }
    for (int distance = group->size / 2; distance >= 1; distance /= 2) {
        int peer = pow2_group_rank(group, group->member ^ distance);

        range = join(plan, ++step, peer, !(group->member & distance), range);
    }
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    struct pow2_group group = pow2_group_of(plan->rank, layout->nranks);
    int last = group.edge + 2 * log2_down(group.size) + group.edge;
    enum tiara_buf held;

    (void)opts;
    plan->nblocks = group.size;
    held = pow2_group_enter(plan, &group);
    if (group.member >= 0)
        halve_and_join(plan, &group, held);
    pow2_group_leave(plan, &group, last);
    return last;
}

static struct tiara_algo_cost cost(int nranks)
{
    double p = pow2_below(nranks);
    bool is_pow2 = nranks == pow2_below(nranks);

    return (struct tiara_algo_cost){
        2 * log2_down(nranks) + (is_pow2 ? 0 : 2), 2 * (p - 1) / p + (is_pow2 ? 0 : 1), false};
}

const struct tiara_algo tiara_algo_rabenseifner = {
    .name = "rabenseifner",
    .help = "recursive halving, then doubling: few rounds and few bytes",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
