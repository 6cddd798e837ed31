/*
 * Double binary tree: two trees, half of the vector each; who works in one rests in the other.
 *
 * Both trees are cut from one infinite in-order binary tree over the positions 1, 2, 3, ..:
 * position i stands on level tz(i), the number of zeros at the end of i; odd positions are leaves.
 * Rank r sits at position r + 1 in the first tree and at r + 2 in the second. So odd ranks are
 * inner in the first and leaves in the second, and even ranks the other way round. (Sanders and
 * others mirror or shift the first tree; moving it by one position keeps both trees in rank order,
 * for any P.) An inner rank folds left subtree, own, right subtree in one reduction.
 *
 * Cost    2 floor(log2 (P + 1)) rounds, which is never more than 2 ceil(log2 P); no rank sends more
 *         than 2 vectors or reduces more than 1: an inner rank has at most two children of half a
 *         vector.
 * Source  P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast,
 *         reduction and scan. Parallel Computing 35 (2009).
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in OUT, the first tree's block and the second's:
 *
 *   P = 4    rank 0      rank 1      rank 2      rank 3
 *   step 1   . 01        012 .       . .         . .
 *   step 2   . 01        012 .       . 0123      0123 .
 *   step 3   . 0123      0123 .      . 0123      0123 .
 *   step 4   0123 0123   0123 0123   0123 0123   0123 0123
 *
 *   P = 3    rank 0    rank 1    rank 2
 *   step 1   . 01      012 .     . .
 *   step 2   . 01      012 .     . 012
 *   step 3   . 012     012 .     . 012
 *   step 4   012 012   012 012   012 012
 */
#include "algo/algo_priv.h"

#define NONE 0 /* positions begin at 1 */

/* One rank's place in a tree over the positions first .. last. */
struct place {
    int parent, left, right;
    int shift; /* position = rank + shift */
};

static int lowest_bit(int i)
{
    return i & -i;
}

/* The in-order parent; where it is above @last, the next ancestor that exists. */
static int parent_of(int i, int last)
{
    int bit = lowest_bit(i);
    int up = (i ^ bit) | (bit << 1);

    return up <= last ? up : i ^ bit;
}

/* Tree @t of 0, 1. Only the second tree lacks a position at its lower end: 1, a leaf. */
static struct place place_of(int rank, int nranks, int t)
{
    int shift = t + 1, first = shift, last = nranks + t;
    int i = rank + shift;
    int half = lowest_bit(i) / 2;
    struct place at = {.shift = shift, .parent = parent_of(i, last)};

    at.left = half > 0 && i - half >= first ? i - half : NONE;
    while (half > 0 && i + half > last)
        half /= 2;
    at.right = half > 0 ? i + half : NONE;
    return at;
}

/* When position @i sends to its parent: children stand on lower levels, so have sent before. */
static int up_step(int i)
{
    return log2_down(lowest_bit(i)) + 1;
}

/* Step @s of the way up. Each rank is inner in one tree only, so that both trees share TMP. */
static void go_up(struct tiara_plan *plan, int t, const struct place *at, int s)
{
    int position = plan->rank + at->shift;
    struct tiara_slice in = own(plan, TIARA_BUF_IN, t, 1), out = own(plan, TIARA_BUF_OUT, t, 1);
    struct tiara_slice left = own(plan, TIARA_BUF_TMP, 0, 1);
    struct tiara_slice right = own(plan, TIARA_BUF_TMP, 1, 1);
    struct tiara_slice src[3];
    int n = 0, heard = 0; /* heard: the step after which all children have sent */

    if (at->left != NONE) {
        heard = up_step(at->left);
        src[n++] = left;
        if (s == heard)
            tiara_plan_recv(plan, s, at->left - at->shift, left);
    }
    src[n++] = in;
    if (at->right != NONE) {
        if (heard == 0) /* the right child is never on a higher level than the left one */
            heard = up_step(at->right);
        src[n++] = right;
        if (s == up_step(at->right))
            tiara_plan_recv(plan, s, at->right - at->shift, right);
    }
    if (n > 1 && s == heard)
        tiara_plan_reduce(plan, s, out, src, n);
    if (at->parent != NONE && s == up_step(position))
        tiara_plan_send(plan, s, at->parent - at->shift, n > 1 ? out : in);
}

/* The way down: @s is the step of the way up in which the same edge was used. */
static void go_down(struct tiara_plan *plan, int t, const struct place *at, int s, int levels)
{
    int step = 2 * levels + 1 - s;
    struct tiara_slice out = own(plan, TIARA_BUF_OUT, t, 1);

    if (at->parent != NONE && s == up_step(plan->rank + at->shift))
        tiara_plan_recv(plan, step, at->parent - at->shift, out);
    if (at->left != NONE && s == up_step(at->left))
        tiara_plan_send(plan, step, at->left - at->shift, out);
    if (at->right != NONE && s == up_step(at->right))
        tiara_plan_send(plan, step, at->right - at->shift, out);
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int nranks = layout->nranks, levels = log2_down(nranks + 1);
    struct place at[2] = {place_of(plan->rank, nranks, 0), place_of(plan->rank, nranks, 1)};

    (void)opts;
    plan->nblocks = 2;
    tiara_plan_tmp(plan, 2);
    for (int s = 1; s <= levels; s++) {
        for (int t = 0; t < 2; t++)
            go_up(plan, t, &at[t], s);
    }
    for (int s = levels; s >= 1; s--) {
        for (int t = 0; t < 2; t++)
            go_down(plan, t, &at[t], s, levels);
    }
    return 2 * levels;
}

static struct tiara_algo_cost cost(int nranks)
{
    if (nranks == 1)
        return (struct tiara_algo_cost){0};
    return (struct tiara_algo_cost){2 * log2_down(nranks + 1), 2, true};
}

const struct tiara_algo tiara_algo_double_tree = {
    .name = "double-tree",
    .help = "two binary trees with half of the vector each: few rounds, two vectors",
    .flags = TIARA_ALGO_FLAT | TIARA_ALGO_ORDERED,
    .colls = COLL_BIT(TIARA_COLL_ALLREDUCE),
    .generate = generate,
    .cost = cost,
};
