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

struct scatter {
    struct hier at;
    int *leader_of; /* [nblocks] which leader, of each node, takes care of a block */
    int *folder_of; /* [nblocks] local index of the rank of this node that folds it */
    int *key; /* [nblocks] what is done with a block now, and with whom */
    const struct node_ring *ring; /* with node_ring, else NULL */
};

/* Deals the blocks of each node's ranks to @nparts owners, in consecutive shares. */
static void deal(const struct tiara_layout *layout, int nparts, int *part)
{
    for (int q = 0; q < layout->nnodes; q++) {
        for (int k = 0; k < nparts; k++) {
            struct span share = part_of(tiara_layout_local_size(layout, q), nparts, k);

            for (int i = share.first; i < share.first + share.count; i++)
                part[tiara_layout_rank(layout, q, i)] = k;
        }
    }
}

/* key := @of[b] for the blocks that this leader takes care of, -1 for the others. */
static void key_mine(const struct scatter *s, const int *of)
{
    for (int b = 0; b < s->at.plan->nblocks; b++)
        s->key[b] = s->leader_of[b] == s->at.local ? of[b] : -1;
}

/* The own @dst_buf <- the CELLs of the first @n ranks of the node, where @of names one of them;
 * beginning with different ones on different ranks. */
static void copy_from_peers(
    const struct scatter *s, int step, enum tiara_buf dst_buf, const int *of, int n)
{
    for (int k = 0; k < n; k++) {
        int i = (s->at.local + k) % n;

        copy_blocks(s->at.plan, step, (struct blocks){of, i}, dst_buf, hier_peer(&s->at, i),
            TIARA_BUF_CELL);
    }
}

/* The leader on node @q with whom this one exchanges. */
static int partner_on(const struct scatter *s, int q)
{
    return tiara_layout_rank(s->at.layout, q, s->at.local);
}

/* The partial sums of the own node's blocks, @nmine of them, from node @q: at @done in TMP. */
static struct tiara_slice partial(
    const struct scatter *s, int q, int nmine, int done, struct span run)
{
    int before = q < s->at.node ? q : q - 1;

    return own(s->at.plan, TIARA_BUF_TMP, before * nmine + done, run.count);
}

/*
 * Leaders, steps step0+1 .. step0+n-1: each gets from the others their blocks, into CELL, or with
 * @nmine > 0 (REDUCE_SCATTER) their partial sums of the own node's blocks.
 */
static void exchange(const struct scatter *s, int step0, int nmine)
{
    struct tiara_plan *plan = s->at.plan;
    int n = s->at.layout->nnodes, node = s->at.node;

    for (int i = 1; i < n; i++) {
        int to = wrap(node + i, n), from = wrap(node - i, n), done = 0;
        struct blocks in = {s->key, nmine > 0 ? node : from}, out = {s->key, nmine > 0 ? to : node};

        for (struct span run = {0, 0}; next_run(plan, in, &run); done += run.count)
            tiara_plan_recv(plan, step0 + i, partner_on(s, from),
                nmine > 0 ? partial(s, from, nmine, done, run)
                          : span_in(plan->rank, TIARA_BUF_CELL, run));
        for (struct span run = {0, 0}; next_run(plan, out, &run);)
            tiara_plan_send(
                plan, step0 + i, partner_on(s, to), span_in(plan->rank, TIARA_BUF_CELL, run));
    }
}

/* REDUCE_SCATTER, leaders: CELL <- the sum of all nodes' partial sums of the own node's blocks, in
 * node order. */
static void exchange_partials(const struct scatter *s, int step0)
{
    struct tiara_plan *plan = s->at.plan;
    int n = s->at.layout->nnodes, node = s->at.node, nmine = 0, done = 0;
    struct blocks mine = {s->key, node};

    key_mine(s, s->at.layout->node_of);
    for (struct span run = {0, 0}; next_run(plan, mine, &run);)
        nmine += run.count;
    tiara_plan_tmp(plan, (n - 1) * nmine);
    exchange(s, step0, nmine);
    for (struct span run = {0, 0}; next_run(plan, mine, &run); done += run.count) {
        struct tiara_slice cell = span_in(plan->rank, TIARA_BUF_CELL, run);

        tiara_plan_fold(plan, step0 + n - 1, cell);
        for (int q = 0; q < n; q++)
            tiara_plan_source(plan, q == node ? cell : partial(s, q, nmine, done, run));
    }
}

/* REDUCE_SCATTER until leaders have in CELL what the node folded of their blocks. Returns the
 * steps. */
static int reduce_on_node(const struct scatter *s)
{
    struct tiara_plan *plan = s->at.plan;

    if (s->ring != NULL) {
        tiara_algo_node_ring_reduce(s->ring, TIARA_BUF_CELL);
        return s->at.nlocal;
    }
    deal(s->at.layout, s->at.nlocal, s->folder_of);
    for (int b = 0; b < plan->nblocks; b++)
        s->key[b] = s->folder_of[b] == s->at.local;
    copy_blocks(plan, 1, (struct blocks){s->key, false}, TIARA_BUF_CELL, plan->rank, TIARA_BUF_IN);
    for (struct span run = {0, 0}; next_run(plan, (struct blocks){s->key, true}, &run);)
        fold_node(plan, s->at.layout, 2, span_in(plan->rank, TIARA_BUF_CELL, run), TIARA_BUF_CELL);
    key_mine(s, s->folder_of);
    if (s->at.local < s->at.leaders)
        copy_from_peers(s, 3, TIARA_BUF_CELL, s->key, s->at.nlocal);
    return 3;
}

static int build_reduce_scatter(const struct scatter *s)
{
    struct tiara_plan *plan = s->at.plan;
    int r = plan->rank, step0 = reduce_on_node(s), last = step0 + s->at.layout->nnodes;

    if (s->at.local < s->at.leaders)
        exchange_partials(s, step0);
    tiara_plan_copy(plan, last, own(plan, TIARA_BUF_OUT, r, 1),
        tiara_slice(hier_peer(&s->at, s->leader_of[r]), TIARA_BUF_CELL, r, 1));
    return last;
}

static int build_allgather(const struct scatter *s)
{
    struct tiara_plan *plan = s->at.plan;
    const struct tiara_layout *layout = s->at.layout;
    int r = plan->rank, last = layout->nnodes + 2;

    tiara_plan_copy(plan, 1, own(plan, TIARA_BUF_CELL, r, 1), own(plan, TIARA_BUF_IN, r, 1));
    if (s->ring != NULL) {
        key_mine(s, layout->node_of);
        exchange(s, 1, 0);
        return tiara_algo_node_ring_gather(s->ring, layout->nnodes, TIARA_BUF_CELL);
    }
    if (s->at.local < s->at.leaders) {
        key_mine(s, layout->local_of);
        for (int b = 0; b < plan->nblocks; b++)
            s->key[b] = layout->node_of[b] == s->at.node ? s->key[b] : -1;
        copy_from_peers(s, 2, TIARA_BUF_CELL, s->key, s->at.nlocal);
        key_mine(s, layout->node_of);
        exchange(s, 2, 0);
    }
    copy_from_peers(s, last, TIARA_BUF_OUT, s->leader_of, s->at.leaders);
    return last;
}

int tiara_algo_hier_scatter(
    const struct tiara_layout *layout, const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    int nblocks = layout->nranks, last;
    struct scatter s = {.at = hier_of(layout, opts, plan)};
    struct node_ring ring;
    int *maps;

    plan->nblocks = nblocks;
    if (opts->node_ring) {
        /* Every rank leads, and takes care of the blocks of its index. */
        if (!tiara_algo_node_ring_open(layout, opts->order, layout->local_of, plan, &ring))
            return 0;
        s.ring = &ring;
    }
    maps = tiara_alloc(3 * (size_t)nblocks, sizeof(*maps));
    if (maps == NULL) {
        plan->sticky = TIARA_ERR_NOMEM;
        return 0;
    }
    s.leader_of = maps;
    s.folder_of = maps + nblocks;
    s.key = maps + 2 * nblocks;
    deal(layout, s.at.leaders, s.leader_of);
    last = plan->coll == TIARA_COLL_ALLGATHER ? build_allgather(&s) : build_reduce_scatter(&s);
    tiara_free(maps);
    return last;
}
