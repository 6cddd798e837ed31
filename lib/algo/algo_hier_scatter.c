/*
 * hier's REDUCE_SCATTER and ALLGATHER: block b belongs to rank b, wherever that rank is.
 *
 * The blocks of each node's ranks are dealt to K leaders, and leader k of each node exchanges its
 * share with leader k of every other node, directly: a block crosses the network once for each node
 * that needs it and never waits for a third node. REDUCE_SCATTER sends each other node what this
 * node has folded for that node's ranks; ALLGATHER sends every other node what this node's ranks
 * have.
 *
 *   REDUCE_SCATTER                                          ALLGATHER
 *   step 1        expose IN in CELL, but the own stripe     expose the own block in CELL
 *   step 2        fold the own stripe of all node peers     leaders collect their node's blocks
 *   step 3        leaders collect their blocks
 *   n-1 steps     leaders exchange                          leaders exchange
 *                 and fold what came, in node order
 *   last step     take the own block from its leader        take all blocks from their leaders
 *
 * With node_ring, where all ranks are leaders and the nodes of one size, the stripe of a rank is
 * what the ranks of its index on all nodes need or have. Stripes are folded (steps 1 .. L) and
 * spread (the last L - 1 steps) by the node's ring of algo_node_ring.c, and nothing is to be
 * collected.
 *
 * In a CELL a block's place is its number, so that blocks travel as runs of consecutive ranks: one
 * message per pair of leaders when ranks are placed in blocks, several when they are dealt out.
 *
 * Cost    n + 3 and n + 2 steps; with node_ring n + L, and n + L - 1 but n + 1 at least. A node of
 *         L ranks sends P - L blocks for REDUCE_SCATTER, and receives its own L blocks n - 1 times;
 *         for ALLGATHER the other way round.
 * Source  ours.
 *
 * Trace. A digit is that rank's contribution, 01 stands for 0 op 1, a dot for nothing yet.
 * After each step, in CELL, block by block, and at last in OUT. REDUCE_SCATTER on 2 + 1 ranks:
 *
 *           rank 0 CELL  rank 1 CELL  rank 2 CELL
 *   step 1  . 0 .        1 . 1        . . .
 *   step 2  01 0 01      1 01 1       2 2 2
 *   step 3  01 01 01     1 01 1       2 2 2
 *   step 4  012 012 01   1 01 1       2 2 012
 *   OUT     012 . .      . 012 .      . . 012
 *
 * ALLGATHER on 2 x 2 ranks:
 *
 *           rank 0 CELL  rank 1 CELL  rank 2 CELL  rank 3 CELL
 *   step 1  0 . . .      . 1 . .      . . 2 .      . . . 3
 *   step 2  0 . . .      . 1 . .      . . 2 .      . . . 3
 *   step 3  0 . 2 .      . 1 . 3      0 . 2 .      . 1 . 3
 *   OUT     0 1 2 3      0 1 2 3      0 1 2 3      0 1 2 3
 */
#include "algo/algo_priv.h"
#include "base/alloc.h"
#include "base/block.h"

struct scatter {
    const struct tiara_layout *layout;
    struct tiara_plan *plan;
    int node, local, nlocal, leaders;
    int *leader_of; /* [nblocks] which leader, of each node, takes care of a block */
    int *folder_of; /* [nblocks] local index of the rank of this node that folds it */
    int *key; /* [nblocks] scratch: consecutive blocks of equal key form a run */
    const struct node_ring *ring; /* with node_ring, else NULL */
};

struct run {
    int first;
    int count;
    int key;
};

/* The longest run that begins at block @b. */
static struct run run_at(const struct scatter *h, int b)
{
    struct run run = {.first = b, .key = h->key[b]};

    while (b < h->plan->nblocks && h->key[b] == run.key)
        b++;
    run.count = b - run.first;
    return run;
}

/* The first run at or after block @b with key @key; count 0 when there is none. */
static struct run run_with_key(const struct scatter *h, int b, int key)
{
    while (b < h->plan->nblocks && h->key[b] != key)
        b++;
    return b < h->plan->nblocks ? run_at(h, b) : (struct run){.first = b};
}

static struct tiara_slice run_in(int owner, enum tiara_buf buf, struct run run)
{
    return tiara_slice(owner, buf, run.first, run.count);
}

/* Deals the blocks of each node's ranks to @nparts owners, in consecutive shares. */
static void deal(const struct tiara_layout *layout, int nparts, int *part_of)
{
    for (int q = 0; q < layout->nnodes; q++) {
        size_t nlocal = (size_t)tiara_layout_local_size(layout, q);

        for (int k = 0; k < nparts; k++) {
            struct tiara_range share = tiara_block_range(nlocal, (size_t)nparts, (size_t)k, 1);

            for (size_t i = share.first; i < share.first + share.count; i++)
                part_of[tiara_layout_rank(layout, q, (int)i)] = k;
        }
    }
}

/* key := the node of a block that this leader takes care of, -1 for the others. */
static void key_by_node(const struct scatter *h)
{
    for (int b = 0; b < h->plan->nblocks; b++)
        h->key[b] = h->leader_of[b] == h->local ? h->layout->node_of[b] : -1;
}

/* REDUCE_SCATTER, steps 1 and 2: each block is exposed here, or folded here. */
static enum tiara_err expose_and_fold(const struct scatter *h)
{
    struct tiara_plan *plan = h->plan;
    struct tiara_slice *src = tiara_alloc((size_t)h->nlocal, sizeof(*src));
    struct run run;

    if (src == NULL)
        return TIARA_ERR_NOMEM;
    for (int b = 0; b < plan->nblocks; b++)
        h->key[b] = h->folder_of[b] == h->local;
    for (run = run_with_key(h, 0, false); run.count > 0;
         run = run_with_key(h, run.first + run.count, false))
        tiara_plan_copy(plan, 1, run_in(plan->rank, TIARA_BUF_CELL, run),
            run_in(plan->rank, TIARA_BUF_IN, run));
    for (run = run_with_key(h, 0, true); run.count > 0;
         run = run_with_key(h, run.first + run.count, true)) {
        for (int i = 0; i < h->nlocal; i++)
            src[i] = run_in(tiara_layout_rank(h->layout, h->node, i),
                i == h->local ? TIARA_BUF_IN : TIARA_BUF_CELL, run);
        tiara_plan_reduce(plan, 2, run_in(plan->rank, TIARA_BUF_CELL, run), src, h->nlocal);
    }
    tiara_free(src);
    return TIARA_OK;
}

/* Leaders: CELL <- the node peers' CELL, wherever key names one by its local index. */
static void collect(const struct scatter *h, int step)
{
    struct run run;

    for (int b = 0; b < h->plan->nblocks; b += run.count) {
        run = run_at(h, b);
        if (run.key < 0 || run.key == h->local)
            continue;
        tiara_plan_copy(h->plan, step, run_in(h->plan->rank, TIARA_BUF_CELL, run),
            run_in(tiara_layout_rank(h->layout, h->node, run.key), TIARA_BUF_CELL, run));
    }
}

/* Sends the own CELL's runs of node @key's blocks to @peer. */
static void send_runs(const struct scatter *h, int step, int peer, int key)
{
    struct run run;

    for (run = run_with_key(h, 0, key); run.count > 0;
         run = run_with_key(h, run.first + run.count, key))
        tiara_plan_send(h->plan, step, peer, run_in(h->plan->rank, TIARA_BUF_CELL, run));
}

/* Where in TMP the partial sums of node @q (not the own one) begin, when each has @nmine blocks. */
static int partial_start(const struct scatter *h, int q, int nmine)
{
    return (q < h->node ? q : q - 1) * nmine;
}

/* Receives @nmine partial sums of the own node's blocks from leader @peer of node @q. */
static void recv_partials(const struct scatter *h, int step, int q, int peer, int nmine)
{
    int at = partial_start(h, q, nmine);
    struct run run;

    for (run = run_with_key(h, 0, h->node); run.count > 0;
         run = run_with_key(h, run.first + run.count, h->node)) {
        tiara_plan_recv(h->plan, step, peer, own(h->plan, TIARA_BUF_TMP, at, run.count));
        at += run.count;
    }
}

/* CELL <- the sum of all nodes' partial sums of the own node's blocks, in node order. */
static enum tiara_err fold_partials(const struct scatter *h, int step, int nmine)
{
    struct tiara_slice *src = tiara_alloc((size_t)h->layout->nnodes, sizeof(*src));
    struct run run;
    int done = 0;

    if (src == NULL)
        return TIARA_ERR_NOMEM;
    for (run = run_with_key(h, 0, h->node); run.count > 0;
         run = run_with_key(h, run.first + run.count, h->node)) {
        struct tiara_slice cell = run_in(h->plan->rank, TIARA_BUF_CELL, run);

        for (int q = 0; q < h->layout->nnodes; q++)
            src[q] = q == h->node ? cell
                                  : own(h->plan, TIARA_BUF_TMP, partial_start(h, q, nmine) + done,
                                        run.count);
        tiara_plan_reduce(h->plan, step, cell, src, h->layout->nnodes);
        done += run.count;
    }
    tiara_free(src);
    return TIARA_OK;
}

/* REDUCE_SCATTER, leaders, steps step0+1 .. step0+n-1. */
static enum tiara_err exchange_partials(const struct scatter *h, int step0)
{
    int n = h->layout->nnodes, nmine = 0;

    key_by_node(h);
    for (int b = 0; b < h->plan->nblocks; b++)
        nmine += h->key[b] == h->node;
    tiara_plan_tmp(h->plan, (n - 1) * nmine);
    for (int s = 1; s < n; s++) {
        int to = wrap(h->node + s, n), from = wrap(h->node - s, n);

        recv_partials(h, step0 + s, from, tiara_layout_rank(h->layout, from, h->local), nmine);
        send_runs(h, step0 + s, tiara_layout_rank(h->layout, to, h->local), to);
    }
    return fold_partials(h, step0 + n - 1, nmine);
}

/* ALLGATHER, leaders, steps step0+1 .. step0+n-1. */
static void exchange_blocks(const struct scatter *h, int step0)
{
    int n = h->layout->nnodes;

    key_by_node(h);
    for (int s = 1; s < n; s++) {
        int to = wrap(h->node + s, n), from = wrap(h->node - s, n);
        struct run run;

        for (run = run_with_key(h, 0, from); run.count > 0;
             run = run_with_key(h, run.first + run.count, from))
            tiara_plan_recv(h->plan, step0 + s, tiara_layout_rank(h->layout, from, h->local),
                run_in(h->plan->rank, TIARA_BUF_CELL, run));
        send_runs(h, step0 + s, tiara_layout_rank(h->layout, to, h->local), h->node);
    }
}

/*
 * REDUCE_SCATTER, until leaders have in CELL what the node folded of their blocks, after *step_out.
 */
static enum tiara_err reduce_on_node(const struct scatter *h, int *step_out)
{
    enum tiara_err err;

    if (h->ring != NULL) {
        tiara_algo_node_ring_reduce(h->ring, TIARA_BUF_CELL);
        *step_out = h->nlocal;
        return TIARA_OK;
    }
    *step_out = 3;
    deal(h->layout, h->nlocal, h->folder_of);
    err = expose_and_fold(h);
    for (int b = 0; b < h->plan->nblocks; b++)
        h->key[b] = h->leader_of[b] == h->local ? h->folder_of[b] : -1;
    if (h->local < h->leaders)
        collect(h, 3);
    return err;
}

static enum tiara_err build_reduce_scatter(const struct scatter *h)
{
    int r = h->plan->rank, step0, last;
    enum tiara_err err = reduce_on_node(h, &step0);

    if (err == TIARA_OK && h->local < h->leaders)
        err = exchange_partials(h, step0);
    if (err != TIARA_OK)
        return err;
    last = step0 + h->layout->nnodes;
    tiara_plan_copy(h->plan, last, own(h->plan, TIARA_BUF_OUT, r, 1),
        tiara_slice(tiara_layout_rank(h->layout, h->node, h->leader_of[r]), TIARA_BUF_CELL, r, 1));
    return tiara_plan_finish(h->plan, last);
}

static enum tiara_err build_allgather(const struct scatter *h)
{
    int r = h->plan->rank, last = h->layout->nnodes + 2;
    struct run run;

    tiara_plan_copy(
        h->plan, 1, own(h->plan, TIARA_BUF_CELL, r, 1), own(h->plan, TIARA_BUF_IN, r, 1));
    if (h->ring != NULL) {
        exchange_blocks(h, 1);
        last = tiara_algo_node_ring_gather(h->ring, h->layout->nnodes, TIARA_BUF_CELL);
        return tiara_plan_finish(h->plan, last);
    }
    if (h->local < h->leaders) {
        for (int b = 0; b < h->plan->nblocks; b++) {
            bool is_mine = h->leader_of[b] == h->local && h->layout->node_of[b] == h->node;

            h->key[b] = is_mine ? h->layout->local_of[b] : -1;
        }
        collect(h, 2);
        exchange_blocks(h, 2);
    }
    for (int b = 0; b < h->plan->nblocks; b++)
        h->key[b] = h->leader_of[b];
    for (int b = 0; b < h->plan->nblocks; b += run.count) {
        run = run_at(h, b);
        tiara_plan_copy(h->plan, last, run_in(r, TIARA_BUF_OUT, run),
            run_in(tiara_layout_rank(h->layout, h->node, run.key), TIARA_BUF_CELL, run));
    }
    return tiara_plan_finish(h->plan, last);
}

enum tiara_err tiara_algo_hier_scatter(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    size_t nblocks = (size_t)plan->nblocks;
    struct scatter h = {
        .layout = layout, .plan = plan, .leaders = hier_leaders(layout, opts->leaders)};
    struct node_ring ring;
    enum tiara_err err;
    int *maps;

    if (opts->node_ring) {
        /* Every rank leads, and takes care of the blocks of its index. */
        err = tiara_algo_node_ring_open(layout, opts->order, layout->local_of, plan, &ring);
        if (err != TIARA_OK)
            return err;
        h.ring = &ring;
    }
    maps = tiara_alloc(3 * nblocks, sizeof(*maps));
    if (maps == NULL)
        return TIARA_ERR_NOMEM;
    h.node = layout->node_of[plan->rank];
    h.local = layout->local_of[plan->rank];
    h.nlocal = tiara_layout_local_size(layout, h.node);
    h.leader_of = maps;
    h.folder_of = maps + nblocks;
    h.key = maps + 2 * nblocks;
    deal(layout, h.leaders, h.leader_of);
    if (plan->coll == TIARA_COLL_REDUCE_SCATTER)
        err = build_reduce_scatter(&h);
    else
        err = build_allgather(&h);
    tiara_free(maps);
    return err;
}
