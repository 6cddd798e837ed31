/*
 * Node-ring: the ring over exposed buffers, where every rank reads from one neighbour only.
 *
 * For devices whose links form a ring, so that a rank reaches just the one before it at full speed.
 * The vector has L stripes. A stripe sets out from the rank behind its owner, which exposes its
 * contribution in its CELL; every rank on the way folds its own contribution to what it reads in
 * its left neighbour's CELL, and exposes the sum in its own, until the owner has the whole sum.
 * Then the sums go round: each rank takes a stripe from its left neighbour, for itself into OUT and
 * for the right one into CELL. The first half alone is REDUCE_SCATTER, the second half ALLGATHER.
 * Nothing is pushed: a rank writes its own memory only, and each byte is read from a peer once.
 *
 * The ring may have any order. The stripe of the rank at place p is folded in the order of places
 * p+1, p+2, .., p: the same on all ranks, but not rank order.
 *
 * Cost    no network. 2 L - 1 steps; each rank reads 2 (L - 1) / L vectors, all of them from its
 *         left neighbour, and reduces (L - 1) / L. REDUCE_SCATTER and ALLGATHER alone: L steps,
 *         half of the reads.
 * Source  the ring of P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters
 *         of workstations. J. Parallel Distrib. Comput. 69 (2009); with reads for messages, ours.
 *
 * A CELL's stripe is written twice, with a partial sum and with the sum; the right neighbour has
 * read the first long before the second has come round. In place: what a rank writes into OUT in
 * the second half, or at the end of the first, it has folded before, and nobody else reads its IN.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet. After
 * each step, in CELL, block by block; what goes round last is taken into OUT only:
 *
 *   L = 4    rank 0                rank 1                rank 2               rank 3
 *   step 1   . . . 0               1 . . .               . 2 . .              . . 3 .
 *   step 2   . . 30 0              1 . . 01              12 2 . .             . 23 3 .
 *   step 3   . 230 30 0            1 . 301 01            12 2 . 012           123 23 3 .
 *   step 4   1230 230 30 0         1 2301 301 01         12 2 3012 012        123 23 3 0123
 *   step 5   1230 230 30 0123      1230 2301 301 01      12 2301 3012 012     123 23 3012 0123
 *   step 6   1230 230 3012 0123    1230 2301 301 0123    1230 2301 3012 012   123 2301 3012 0123
 *   OUT      1230 2301 3012 0123, after step 7
 *
 *   L = 3    rank 0        rank 1        rank 2
 *   step 1   . . 0         1 . .         . 2 .
 *   step 2   . 20 0        1 . 01        12 2 .
 *   step 3   120 20 0      1 201 01      12 2 012
 *   step 4   120 20 012    120 201 01    12 201 012
 *   OUT      120 201 012, after step 5
 */
#include "algo/algo_priv.h"

/* The place of local index @local in @order[@n]; -1 unless it has just one. */
static int place_in(const int *order, int n, int local)
{
    int place = -1, found = 0;

    for (int p = 0; p < n; p++) {
        if (order[p] == local) {
            place = p;
            found++;
        }
    }
    return found == 1 ? place : -1;
}

/* The local index of the rank at @place, for -L <= @place < L. */
static int local_at(const struct node_ring *ring, int place)
{
    int p = wrap(place, ring->nlocal);

    return ring->order != NULL ? ring->order[p] : p;
}

bool tiara_algo_node_ring_open(const struct tiara_layout *layout, const int *order,
    const int *owner_of, struct tiara_plan *plan, struct node_ring *ring_out)
{
    int node = layout->node_of[plan->rank], local = layout->local_of[plan->rank];
    int nlocal = tiara_layout_local_size(layout, node);

    *ring_out = (struct node_ring){plan, order, owner_of, nlocal, local, -1};
    for (int i = 0; order != NULL && i < nlocal; i++) {
        if (place_in(order, nlocal, i) < 0) {
            tiara_debug("the order of a ring does not name each of %d ranks once", nlocal);
            refuse(plan);
            return false;
        }
    }
    if (order != NULL)
        ring_out->place = place_in(order, nlocal, local);
    ring_out->left = tiara_layout_rank(layout, node, local_at(ring_out, ring_out->place - 1));
    return true;
}

/* The own @dst_buf <- @src_buf of @src_rank: the stripe of local index @owner. */
static void copy_stripe(const struct node_ring *ring, int step, int owner, enum tiara_buf dst_buf,
    int src_rank, enum tiara_buf src_buf)
{
    struct blocks stripe = {ring->owner_of, owner};

    copy_blocks(ring->plan, step, stripe, dst_buf, src_rank, src_buf);
}

/* The own @dst_buf <- the left neighbour's partial sum of a stripe, and the own contribution. */
static void fold_stripe(const struct node_ring *ring, int step, int owner, enum tiara_buf dst_buf)
{
    int rank = ring->plan->rank;
    struct blocks stripe = {ring->owner_of, owner};

    for (struct span run = {0, 0}; next_run(ring->plan, stripe, &run);) {
        struct tiara_slice pair[2] = {
            span_in(ring->left, TIARA_BUF_CELL, run), span_in(rank, TIARA_BUF_IN, run)};

        tiara_plan_reduce(ring->plan, step, span_in(rank, dst_buf, run), pair, 2);
    }
}

void tiara_algo_node_ring_reduce(const struct node_ring *ring, enum tiara_buf sum_buf)
{
    int n = ring->nlocal;

    copy_stripe(ring, 1, local_at(ring, ring->place - 1), n > 1 ? TIARA_BUF_CELL : sum_buf,
        ring->plan->rank, TIARA_BUF_IN);
    for (int s = 2; s <= n; s++)
        fold_stripe(ring, s, local_at(ring, ring->place - s), s < n ? TIARA_BUF_CELL : sum_buf);
}

int tiara_algo_node_ring_gather(const struct node_ring *ring, int step0, enum tiara_buf own_buf)
{
    int n = ring->nlocal, rank = ring->plan->rank;

    copy_stripe(ring, step0 + 1, local_at(ring, ring->place), TIARA_BUF_OUT, rank, own_buf);
    for (int s = 1; s < n; s++) {
        int owner = local_at(ring, ring->place - s);

        copy_stripe(ring, step0 + s, owner, TIARA_BUF_OUT, ring->left, TIARA_BUF_CELL);
        if (s < n - 1)
            copy_stripe(ring, step0 + s, owner, TIARA_BUF_CELL, rank, TIARA_BUF_OUT);
    }
    return step0 + (n > 1 ? n - 1 : 1);
}

static int generate(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int n = plan->nranks, rank = plan->rank;
    struct tiara_slice cell = own(plan, TIARA_BUF_CELL, rank, 1);
    struct node_ring ring;

    plan->nblocks = n;
    /* On one node a rank is its local index, and block b is rank b's. */
    if (!tiara_algo_node_ring_open(layout, opts->order, layout->local_of, plan, &ring))
        return 0;
    if (plan->coll == TIARA_COLL_ALLGATHER) {
        tiara_plan_copy(plan, 1, cell, own(plan, TIARA_BUF_IN, rank, 1));
        return tiara_algo_node_ring_gather(&ring, 1, TIARA_BUF_IN);
    }
    tiara_algo_node_ring_reduce(&ring, TIARA_BUF_OUT);
    if (plan->coll == TIARA_COLL_REDUCE_SCATTER)
        return n;
    tiara_plan_copy(plan, n, cell, own(plan, TIARA_BUF_OUT, rank, 1));
    return tiara_algo_node_ring_gather(&ring, n, TIARA_BUF_OUT);
}

const struct tiara_algo tiara_algo_node_ring = {
    .name = "node-ring",
    .help = "one node: stripes go round, each rank reads its left neighbour's exposed buffer only",
    .flags = TIARA_ALGO_NODE | TIARA_ALGO_NEIGHBOURS,
    .colls = COLLS_ALL,
    .reads = TIARA_ALGO_OPT_ORDER,
    .generate = generate,
};
