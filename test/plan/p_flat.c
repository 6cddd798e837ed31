/*
 * Proofs of the algorithms with one level: the flat ones for any number of ranks, and direct.
 *
 * Each case is checked symbolically and run with numbers, in place and not, with the derived waits;
 * and the checker's counts must be those of the cost formulas at the top of each algorithm's file.
 */
#include "base/alloc.h"
#include "test/plan/proof.h"
#include <math.h>
#include <stdio.h>

/* Number @i of the rank counts to prove: 1 .. 33, and around larger powers of two. */
static const int large_counts[] = {64, 127, 128, 256};
#define NCOUNTS (33 + (int)(sizeof(large_counts) / sizeof(large_counts[0])))

static int count_at(int i)
{
    return i < 33 ? i + 1 : large_counts[i - 33];
}

static void check_cost(const struct proof *proof, const struct tiara_plan_report *report)
{
    struct tiara_algo_cost cost = {0};
    double sent = (double)report->net_sent_max / proof->plans[0].nblocks;

    if (proof->algo->cost != NULL)
        cost = proof->algo->cost(proof->layout.nranks);
    if (proof->opts.coll != TIARA_COLL_ALLREDUCE) {
        cost.net_rounds /= 2;
        cost.net_sent_max /= 2;
    }
    ck_assert_msg(proof_net_steps(proof) <= (int)cost.net_rounds &&
                      report->net_rounds <= (int)cost.net_rounds,
        "%s: %d rounds, formula %g", proof->name, proof_net_steps(proof), cost.net_rounds);
    ck_assert_msg(sent <= cost.net_sent_max + 1e-9, "%s: sends %g vectors, formula %g", proof->name,
        sent, cost.net_sent_max);
    ck_assert_msg(cost.net_sent_is_bound || sent >= cost.net_sent_max - 1e-9,
        "%s: sends %g vectors, formula %g", proof->name, sent, cost.net_sent_max);
}

static void prove(const struct tiara_algo *algo, const char *layout,
    const struct tiara_algo_opts *opts, struct tiara_plan_report *report_out)
{
    struct proof proof;
    bool is_ordered = algo->flags & TIARA_ALGO_ORDERED;

    proof_init(&proof, algo, layout, opts);
    if (opts->coll == TIARA_COLL_ALLGATHER)
        is_ordered = false;
    proof_all(&proof, is_ordered, algo->flags & TIARA_ALGO_LEFT_FOLD, report_out);
    check_cost(&proof, report_out);
    proof_fini(&proof);
}

/* Every collective that @algo does, for @nranks ranks on as many nodes. */
static void prove_flat(const struct tiara_algo *algo, int nranks)
{
    struct tiara_plan_report report;
    char layout[32];

    snprintf(layout, sizeof(layout), "%dx1", nranks);
    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll};

        if (algo->colls & (1u << coll))
            prove(algo, layout, &opts, &report);
    }
}

START_TEST(test_flat_any_rank_count_is_proved)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];

    if (!(algo->flags & TIARA_ALGO_FLAT))
        return;
    for (int i = 0; i < NCOUNTS; i++)
        prove_flat(algo, count_at(i));
}
END_TEST

/* A flat algorithm sends between node peers, too: nothing is exposed, nobody waits for a step. */
START_TEST(test_flat_on_one_node_needs_no_waits)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];

    if (!(algo->flags & TIARA_ALGO_FLAT))
        return;
    for (int nranks = 1; nranks <= 9; nranks++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct tiara_plan_report report;
        struct proof proof;
        char layout[32];

        snprintf(layout, sizeof(layout), "1x%d", nranks);
        proof_init(&proof, algo, layout, &opts);
        proof_all(&proof, false, false, &report);
        for (int r = 0; r < nranks; r++)
            ck_assert_int_eq(proof.plans[r].nwaits, 0);
        proof_fini(&proof);
    }
}
END_TEST

START_TEST(test_direct_any_rank_count_is_proved)
{
    struct tiara_plan_report report;
    char layout[32];

    snprintf(layout, sizeof(layout), "1x%d", count_at(_i));
    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll};

        prove(&tiara_algo_direct, layout, &opts, &report);
        opts.single_copy = true;
        prove(&tiara_algo_direct, layout, &opts, &report);
        opts.single_copy = false;
        opts.one_shot = true;
        if (opts.coll == TIARA_COLL_ALLREDUCE)
            prove(&tiara_algo_direct, layout, &opts, &report);
    }
}
END_TEST

/* The figures of the headline, stated here once more without the formulas in lib/algo. */
START_TEST(test_counts_of_twelve_ranks_are_the_published_ones)
{
    static const struct {
        const struct tiara_algo *algo;
        int rounds;
        double sent;
    } rows[] = {
        {&tiara_algo_reduce_bcast, 2, 11},
        {&tiara_algo_ring, 22, 22.0 / 12},
        {&tiara_algo_tree, 8, 4},
        {&tiara_algo_double_tree, 6, 2},
        {&tiara_algo_recdbl, 5, 4},
        {&tiara_algo_rabenseifner, 8, 2.75},
        {&tiara_algo_chain, 22, 2},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct tiara_plan_report report;
        struct proof proof;

        proof_init(&proof, rows[i].algo, "12x1", &opts);
        proof_all(&proof, false, false, &report);
        ck_assert_int_eq(proof_net_steps(&proof), rows[i].rounds);
        ck_assert_double_eq_tol(
            (double)report.net_sent_max / proof.plans[0].nblocks, rows[i].sent, 1e-9);
        proof_fini(&proof);
    }
}
END_TEST

START_TEST(test_ring_sends_the_least_possible_on_every_rank)
{
    for (int nranks = 2; nranks <= 33; nranks++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct tiara_plan_report report;
        struct proof proof;
        char layout[32];

        snprintf(layout, sizeof(layout), "%dx1", nranks);
        proof_init(&proof, &tiara_algo_ring, layout, &opts);
        ck_assert(tiara_plan_check(proof.views, &proof.layout, false, &report) == TIARA_OK);
        ck_assert_int_eq(report.nsteps, 2 * (nranks - 1));
        ck_assert_int_eq(report.net_sent_max, 2 * (nranks - 1));
        ck_assert_int_eq(report.net_sent_total, 2 * (nranks - 1) * nranks);
        ck_assert_int_eq(report.reduce_max, nranks - 1);
        proof_fini(&proof);
    }
}
END_TEST

START_TEST(test_trees_are_no_higher_than_twice_log2)
{
    for (int i = 0; i < NCOUNTS; i++) {
        int nranks = count_at(i), limit = 2 * (int)ceil(log2(nranks));
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct tiara_plan_report report;
        struct proof proof;
        char layout[32];

        snprintf(layout, sizeof(layout), "%dx1", nranks);
        for (int t = 0; t < 2; t++) {
            proof_init(&proof, t == 0 ? &tiara_algo_tree : &tiara_algo_double_tree, layout, &opts);
            ck_assert(tiara_plan_check(proof.views, &proof.layout, false, &report) == TIARA_OK);
            ck_assert_int_le(proof_net_steps(&proof), limit);
            ck_assert(report.ordered);
            ck_assert(t == 0 || report.reduce_max <= 2 || nranks == 1);
            proof_fini(&proof);
        }
    }
}
END_TEST

START_TEST(test_reduce_bcast_loads_rank_0)
{
    for (int nranks = 2; nranks <= 33; nranks++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct tiara_plan_report report;
        struct proof proof;
        char layout[32];

        snprintf(layout, sizeof(layout), "%dx1", nranks);
        proof_init(&proof, &tiara_algo_reduce_bcast, layout, &opts);
        ck_assert(tiara_plan_check(proof.views, &proof.layout, false, &report) == TIARA_OK);
        ck_assert_int_eq(report.rank0_sent, nranks - 1);
        ck_assert_int_eq(report.rank0_received, nranks - 1);
        proof_fini(&proof);
    }
}
END_TEST

/* Who is inner in one of the two trees is a leaf in the other, and so reduces at most one half. */
START_TEST(test_double_tree_ranks_are_inner_in_one_tree_only)
{
    for (int i = 1; i < NCOUNTS; i++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
        struct proof proof;
        char layout[32];

        snprintf(layout, sizeof(layout), "%dx1", count_at(i));
        proof_init(&proof, &tiara_algo_double_tree, layout, &opts);
        for (int r = 0; r < proof.layout.nranks; r++) {
            int nreduce = 0;

            for (int k = 0; k < proof.plans[r].nops; k++)
                nreduce += proof.plans[r].ops[k].kind == TIARA_OP_REDUCE;
            ck_assert_int_le(nreduce, 1);
        }
        proof_fini(&proof);
    }
}
END_TEST

START_TEST(test_unsupported_cases_are_refused)
{
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLGATHER};
    struct tiara_layout layout;
    struct tiara_plan plan;

    ck_assert(tiara_layout_parse(&layout, "2x2", 0, NULL, 0) == TIARA_OK);
    ck_assert_int_eq(
        tiara_algo_generate(&tiara_algo_tree, &layout, 1, &opts, &plan), TIARA_ERR_UNSUPPORTED);
    tiara_plan_fini(&plan);
    ck_assert_int_eq(
        tiara_algo_generate(&tiara_algo_direct, &layout, 1, &opts, &plan), TIARA_ERR_UNSUPPORTED);
    tiara_plan_fini(&plan);
    opts.coll = TIARA_COLL_ALLREDUCE;
    opts.inter = &tiara_algo_direct;
    ck_assert_int_eq(
        tiara_algo_generate(&tiara_algo_hier, &layout, 1, &opts, &plan), TIARA_ERR_UNSUPPORTED);
    tiara_plan_fini(&plan);
    tiara_layout_fini(&layout);
}
END_TEST

/* The n-th allocation fails, for every n: an error each time, and nothing is left behind. */
START_TEST(test_generators_without_memory_fail_cleanly)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];
    const char *text = algo->flags & TIARA_ALGO_NODE ? "1x4" : "0,1,1,2,0";
    struct tiara_layout layout;
    uint64_t before;

    ck_assert(tiara_layout_parse(&layout, text, 0, NULL, 0) == TIARA_OK);
    before = tiara_alloc_live();
    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll};
        enum tiara_err err = TIARA_ERR_NOMEM;

        if (!(algo->colls & (1u << coll)))
            continue;
        for (uint64_t n = 1; err != TIARA_OK; n++) {
            char text_seen[256];
            struct tiara_plan plan;

            tiara_test_stderr_begin(); /* each failure is logged */
            tiara_alloc_fail_after(n);
            err = tiara_algo_generate(algo, &layout, 0, &opts, &plan);
            tiara_alloc_fail_after(0);
            tiara_test_stderr_end(text_seen, sizeof(text_seen));
            ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
            ck_assert(n > 1 || err == TIARA_ERR_NOMEM);
            tiara_plan_fini(&plan);
            ck_assert_uint_eq(tiara_alloc_live(), before);
        }
    }
    tiara_layout_fini(&layout);
}
END_TEST

START_TEST(test_table_names_are_found)
{
    for (int i = 0; tiara_algo_table[i] != NULL; i++)
        ck_assert_ptr_eq(tiara_algo_find(tiara_algo_table[i]->name), tiara_algo_table[i]);
    ck_assert_ptr_null(tiara_algo_find("no such algorithm"));
    ck_assert_ptr_null(tiara_algo_find(""));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flat plans");
    TCase *tcase = tcase_create("proofs");
    int nalgos = 0;

    while (tiara_algo_table[nalgos] != NULL)
        nalgos++;
    tcase_add_loop_test(tcase, test_flat_any_rank_count_is_proved, 0, nalgos);
    tcase_add_loop_test(tcase, test_flat_on_one_node_needs_no_waits, 0, nalgos);
    tcase_add_loop_test(tcase, test_direct_any_rank_count_is_proved, 0, NCOUNTS);
    tcase_add_test(tcase, test_counts_of_twelve_ranks_are_the_published_ones);
    tcase_add_test(tcase, test_ring_sends_the_least_possible_on_every_rank);
    tcase_add_test(tcase, test_trees_are_no_higher_than_twice_log2);
    tcase_add_test(tcase, test_reduce_bcast_loads_rank_0);
    tcase_add_test(tcase, test_double_tree_ranks_are_inner_in_one_tree_only);
    tcase_add_test(tcase, test_unsupported_cases_are_refused);
    tcase_add_loop_test(tcase, test_generators_without_memory_fail_cleanly, 0, nalgos);
    tcase_add_test(tcase, test_table_names_are_found);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
