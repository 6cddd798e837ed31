/*
 * Proofs of the rings inside nodes: node-ring, and hier with node_ring, in ascending and in random
 * orders. Besides the proof of every plan: a rank reads its left neighbour only, and that exactly
 * as often as a ring must.
 */
#include "base/alloc.h"
#include "test/plan/interpret.h"
#include "test/plan/proof.h"
#include <stdio.h>
#include <stdlib.h>

/* Number @i of the rank counts to prove: 1 .. 33, and some larger ones. */
static const int large_counts[] = {64, 127, 128};
#define NCOUNTS (33 + (int)(sizeof(large_counts) / sizeof(large_counts[0])))

static int count_at(int i)
{
    return i < 33 ? i + 1 : large_counts[i - 33];
}

/* Nodes of one size, placed in every way. */
static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x6", "2x1", "5x1", "2x2", "4x2", "2x4",
    "3x3", "5x3", "2x2:rr", "2x4:rr", "3x3:rr", "4x2:rr", "0,1,1,0", "0,1,1,0,0,1", "2x8"};
#define NLAYOUTS (int)(sizeof(layouts) / sizeof(layouts[0]))

/* A random order of 0 .. @n-1; owned by the caller. */
static int *draw_order(struct tiara_test_random *random, int n)
{
    int *order = calloc((size_t)n, sizeof(*order));

    for (int i = 0; i < n; i++) {
        int at = (int)tiara_test_random_below(random, (uint64_t)i + 1);

        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

/* The rank whose CELL @rank may read. */
static int left_of(const struct proof *proof, int rank)
{
    const struct tiara_layout *layout = &proof->layout;
    int node = layout->node_of[rank], n = tiara_layout_local_size(layout, node), place = 0;
    const int *order = proof->opts.order;

    for (int p = 0; p < n; p++) {
        if ((order != NULL ? order[p] : p) == layout->local_of[rank])
            place = p;
    }
    place = (place + n - 1) % n;
    return tiara_layout_rank(layout, node, order != NULL ? order[place] : place);
}

/* Blocks that @plan reads of peers; all of them must be @left's, in its CELL. */
static int blocks_read(const struct proof *proof, const struct tiara_plan *plan, int left)
{
    int n = 0;

    for (int i = 0; i < plan->nsrcs; i++) {
        const struct tiara_slice *src = &plan->srcs[i];

        if (src->owner == plan->rank)
            continue;
        if (src->owner != left || src->buf != TIARA_BUF_CELL)
            ck_abort_msg("%s: rank %d reads of rank %d, its left is %d", proof->name, plan->rank,
                src->owner, left);
        n += src->count;
    }
    return n;
}

/* Each rank reads (L - 1) / L vectors to reduce, and as much again to gather. */
static void check_reads(const struct proof *proof, const struct tiara_plan_report *report)
{
    int halves = proof->opts.coll == TIARA_COLL_ALLREDUCE ? 2 : 1;
    int nlocal = proof->layout.max_local, nblocks = proof->plans[0].nblocks;
    int expected = halves * (nlocal - 1) * nblocks / nlocal;

    ck_assert_int_eq(halves * (nlocal - 1) * nblocks % nlocal, 0);
    ck_assert_msg(report->shm_read_max == expected,
        "%s: the busiest rank reads %lld blocks, not %d", proof->name,
        (long long)report->shm_read_max, expected);
    for (int r = 0; r < proof->layout.nranks; r++) {
        int n = blocks_read(proof, proof->views[r], left_of(proof, r));

        ck_assert_msg(
            n == expected, "%s: rank %d reads %d blocks, not %d", proof->name, r, n, expected);
    }
}

static void prove_node_ring(int nranks, enum tiara_coll coll, const int *order)
{
    struct tiara_algo_opts opts = {.coll = coll, .order = order};
    struct tiara_plan_report report;
    struct proof proof;
    char layout[32];

    snprintf(layout, sizeof(layout), "1x%d", nranks);
    proof_init(&proof, &tiara_algo_node_ring, layout, &opts);
    proof_all(&proof, false, false, &report);
    check_reads(&proof, &report);
    ck_assert_int_eq(proof.plans[0].nblocks, nranks);
    ck_assert_int_eq(report.net_sent_total, 0);
    ck_assert_int_eq(report.reduce_max, coll == TIARA_COLL_ALLGATHER ? 0 : nranks - 1);
    ck_assert_int_eq(report.nsteps, coll == TIARA_COLL_ALLREDUCE ? 2 * nranks - 1 : nranks);
    proof_fini(&proof);
}

START_TEST(test_node_ring_any_rank_count_and_order_is_proved)
{
    struct tiara_test_random random = {tiara_test_seed() + (uint64_t)_i};
    int nranks = count_at(_i);

    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        int *order = draw_order(&random, nranks);

        prove_node_ring(nranks, (enum tiara_coll)coll, NULL);
        prove_node_ring(nranks, (enum tiara_coll)coll, order);
        free(order);
    }
}
END_TEST

/* The fold of the stripe of the rank at place p begins at place p + 1 and goes round. */
START_TEST(test_node_ring_folds_along_the_ring)
{
    static const int order[] = {0, 2, 3, 1};
    static const int folds[][4] = {{2, 3, 1, 0}, {0, 2, 3, 1}, {3, 1, 0, 2}, {1, 0, 2, 3}};
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_REDUCE_SCATTER, .order = order};
    struct proof_machine m;
    struct proof proof;

    proof_init(&proof, &tiara_algo_node_ring, "1x4", &opts);
    proof_machine_init(&m, &proof, proof_op_tree, false);
    for (int step = 1; step <= proof.plans[0].nsteps; step++)
        proof_run_step(&m, step);
    for (int b = 0; b < 4; b++) {
        uint64_t sum = tiara_test_bits(folds[b][0], (size_t)b);

        for (int i = 1; i < 4; i++)
            sum = proof_op_tree(sum, tiara_test_bits(folds[b][i], (size_t)b));
        ck_assert_uint_eq(m.mem[b * TIARA_NBUF + TIARA_BUF_OUT][b], sum);
    }
    proof_machine_fini(&m, false);
    proof_fini(&proof);
}
END_TEST

static void prove_hier(
    const char *layout, enum tiara_coll coll, const struct tiara_algo *inter, const int *order)
{
    struct tiara_algo_opts opts = {.coll = coll, .inter = inter, .node_ring = true, .order = order};
    struct tiara_plan_report report;
    struct proof proof;

    proof_init(&proof, &tiara_algo_hier, layout, &opts);
    proof_all(&proof, false, false, &report);
    /*
     * Between nodes each rank has the blocks of its index only, and a node's ring spreads them all.
     */
    check_reads(&proof, &report);
    if (inter == &tiara_algo_ring && coll == TIARA_COLL_ALLREDUCE) {
        int64_t n = proof.layout.nnodes, nblocks = proof.plans[0].nblocks;

        ck_assert_int_eq(report.net_node_sent_max * n, 2 * (n - 1) * nblocks);
        ck_assert_int_eq(report.net_node_recv_max * n, 2 * (n - 1) * nblocks);
        if (proof.layout.max_local > 1)
            ck_assert_int_eq(report.nsteps, 2 * proof.layout.max_local - 1 + 2 * (n - 1));
    }
    proof_fini(&proof);
}

START_TEST(test_hier_with_rings_every_layout_and_order_is_proved)
{
    struct tiara_test_random random = {tiara_test_seed() + (uint64_t)_i};
    struct tiara_layout layout;
    int *order;

    ck_assert(tiara_layout_parse(&layout, layouts[_i], 0, NULL, 0) == TIARA_OK);
    order = draw_order(&random, layout.max_local);
    for (int a = 0; tiara_algo_table[a] != NULL; a++) {
        if (!(tiara_algo_table[a]->flags & TIARA_ALGO_FLAT))
            continue;
        prove_hier(layouts[_i], TIARA_COLL_ALLREDUCE, tiara_algo_table[a], NULL);
        prove_hier(layouts[_i], TIARA_COLL_ALLREDUCE, tiara_algo_table[a], order);
    }
    for (int coll = TIARA_COLL_REDUCE_SCATTER; coll <= TIARA_COLL_ALLGATHER; coll++) {
        prove_hier(layouts[_i], (enum tiara_coll)coll, NULL, NULL);
        prove_hier(layouts[_i], (enum tiara_coll)coll, NULL, order);
    }
    free(order);
    tiara_layout_fini(&layout);
}
END_TEST

/* Ranks drift apart over several chunks: the derived waits are all that holds them together. */
START_TEST(test_rings_any_interleaving_is_right)
{
    uint64_t seed = tiara_test_seed();
    struct tiara_test_random random = {seed + (uint64_t)_i};

    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll, .node_ring = true};
        struct plan_set set;
        int *order;

        plan_set_init(&set, layouts[_i]);
        order = draw_order(&random, set.layout.max_local);
        opts.order = order;
        for (int r = 0; r < set.layout.nranks; r++)
            ck_assert(tiara_algo_generate(&tiara_algo_hier, &set.layout, r, &opts, &set.plans[r]) ==
                      TIARA_OK);
        ck_assert(plan_set_depend(&set) == TIARA_OK);
        for (int in_place = 0; in_place < 2; in_place++)
            ck_assert_msg(interpret_all(&set, in_place, seed), "%s of %s%s",
                tiara_coll_name(opts.coll), layouts[_i], in_place ? ", in place" : "");
        plan_set_fini(&set);
        free(order);
    }
}
END_TEST

static enum tiara_err try_generate(
    const struct tiara_algo *algo, const char *text, const struct tiara_algo_opts *opts)
{
    struct tiara_layout layout;
    struct tiara_plan plan;
    enum tiara_err err;

    ck_assert(tiara_layout_parse(&layout, text, 0, NULL, 0) == TIARA_OK);
    err = tiara_algo_generate(algo, &layout, 0, opts, &plan);
    tiara_plan_fini(&plan);
    tiara_layout_fini(&layout);
    return err;
}

START_TEST(test_rings_that_cannot_be_are_refused)
{
    static const int twice[] = {0, 1, 1}, beyond[] = {0, 1, 3}, below[] = {-1, 1, 2};
    static const int *const wrong[] = {twice, beyond, below};

    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll, .node_ring = true};

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            opts.order = wrong[i];
            ck_assert_int_eq(
                try_generate(&tiara_algo_node_ring, "1x3", &opts), TIARA_ERR_UNSUPPORTED);
            ck_assert_int_eq(try_generate(&tiara_algo_hier, "2x3", &opts), TIARA_ERR_UNSUPPORTED);
        }
        opts.order = NULL;
        ck_assert_int_eq(try_generate(&tiara_algo_node_ring, "2x3", &opts), TIARA_ERR_UNSUPPORTED);
        ck_assert_int_eq(try_generate(&tiara_algo_hier, "2x3", &opts), TIARA_OK);
        ck_assert_int_eq(try_generate(&tiara_algo_hier, "3+1", &opts), TIARA_ERR_UNSUPPORTED);
        ck_assert_int_eq(try_generate(&tiara_algo_hier, "1+2+1", &opts), TIARA_ERR_UNSUPPORTED);
        opts.leaders = 2;
        ck_assert_int_eq(try_generate(&tiara_algo_hier, "2x3", &opts), TIARA_ERR_UNSUPPORTED);
        ck_assert_int_eq(try_generate(&tiara_algo_hier, "3x2", &opts), TIARA_OK);
    }
}
END_TEST

/* The n-th allocation fails, for every n: an error each time, and nothing is left behind. */
START_TEST(test_hier_with_rings_without_memory_fails_cleanly)
{
    struct tiara_layout layout;
    uint64_t before;

    ck_assert(tiara_layout_parse(&layout, "2x3", 0, NULL, 0) == TIARA_OK);
    before = tiara_alloc_live();
    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll, .node_ring = true};
        enum tiara_err err = TIARA_ERR_NOMEM;

        for (uint64_t n = 1; err != TIARA_OK; n++) {
            char text[256];
            struct tiara_plan plan;

            tiara_test_stderr_begin(); /* each failure is logged */
            tiara_alloc_fail_after(n);
            err = tiara_algo_generate(&tiara_algo_hier, &layout, 1, &opts, &plan);
            tiara_alloc_fail_after(0);
            tiara_test_stderr_end(text, sizeof(text));
            ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
            ck_assert(n > 1 || err == TIARA_ERR_NOMEM);
            tiara_plan_fini(&plan);
            ck_assert_uint_eq(tiara_alloc_live(), before);
        }
    }
    tiara_layout_fini(&layout);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plans of rings inside nodes");
    TCase *tcase = tcase_create("proofs");

    tcase_add_loop_test(tcase, test_node_ring_any_rank_count_and_order_is_proved, 0, NCOUNTS);
    tcase_add_test(tcase, test_node_ring_folds_along_the_ring);
    tcase_add_loop_test(tcase, test_hier_with_rings_every_layout_and_order_is_proved, 0, NLAYOUTS);
    tcase_add_loop_test(tcase, test_rings_any_interleaving_is_right, 0, NLAYOUTS);
    tcase_add_test(tcase, test_rings_that_cannot_be_are_refused);
    tcase_add_test(tcase, test_hier_with_rings_without_memory_fails_cleanly);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
