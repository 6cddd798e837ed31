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

/* Consecutive blocks. */
struct span {
    int first;
    int count;
};

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
    struct tiara_slice mine = own(plan, held, keep.first, half);
    struct tiara_slice theirs = own(plan, TIARA_BUF_TMP, 0, half);
    struct tiara_slice pair[2] = {is_low ? mine : theirs, is_low ? theirs : mine};

    tiara_plan_recv(plan, step, peer, theirs);
    tiara_plan_send(plan, step, peer, own(plan, held, give.first, half));
    tiara_plan_reduce(plan, step, own(plan, TIARA_BUF_OUT, keep.first, half), pair, 2);
    return keep;
}

/* One round of doubling: undoes halve(). Returns the joint range. */
static struct span join(struct tiara_plan *plan, int step, int peer, bool is_low, struct span range)
{
    int other = is_low ? range.first + range.count : range.first - range.count;

    tiara_plan_recv(plan, step, peer, own(plan, TIARA_BUF_OUT, other, range.count));
    tiara_plan_send(plan, step, peer, own(plan, TIARA_BUF_OUT, range.first, range.count));
    return (struct span){is_low ? range.first : other, 2 * range.count};
}

/* The members' part, in steps step0+1 .. step0 + 2 log2(group size). */
static void halve_and_join(
    struct tiara_plan *plan, const struct pow2_group *group, enum tiara_buf held, int step0)
{
    struct span range = {0, group->size};
    int step = step0;

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

static enum tiara_err generate(const struct tiara_layout *layout, int rank,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    struct tiara_plan *plan = plan_out;
    struct pow2_group group = pow2_group_of(rank, layout->nranks);
    int edge = pow2_group_steps(&group);
    int last = edge + 2 * log2_down(group.size) + edge;
    enum tiara_buf held;
    enum tiara_err err;

    err = plan_open(&tiara_algo_rabenseifner, opts, rank, layout->nranks, group.size, plan);
    if (err != TIARA_OK)
        return err;
    if (layout->nranks == 1)
        return plan_alone(plan);
    held = pow2_group_enter(plan, &group);
    if (group.member >= 0)
        halve_and_join(plan, &group, held, edge);
    pow2_group_leave(plan, &group, last);
    return tiara_plan_finish(plan, last);
}

static void cost(const struct tiara_layout *layout, const struct tiara_algo_opts *opts,
    struct tiara_algo_cost *cost_out)
{
    double p = pow2_below(layout->nranks);
    bool is_pow2 = layout->nranks == pow2_below(layout->nranks);

    (void)opts;
    *cost_out = (struct tiara_algo_cost){
        .net_rounds = 2 * log2_down(layout->nranks) + (is_pow2 ? 0 : 2),
        .net_sent_max = 2 * (p - 1) / p + (is_pow2 ? 0 : 1),
    };
}

const struct tiara_algo tiara_algo_rabenseifner = {
    .name = "rabenseifner",
    .help = "recursive halving, then doubling: few rounds and few bytes",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
