/*
 * Proofs of the algorithms with two levels, over layouts of every kind: equal and unequal nodes;
 * block, round-robin and irregular placement; all numbers of leaders, all algorithms between nodes.
 */
#include "test/plan/interpret.h"
#include "test/plan/proof.h"

static const char *const layouts[] = {
    "1x1",
    "1x2",
    "1x5",
    "2x1",
    "5x1",
    "2x2",
    "4x2",
    "2x4",
    "3+1",
    "1+3",
    "2+3",
    "1+2+3",
    "1+1+4",
    "3x3",
    "7+8",
    "2x2:rr",
    "2x4:rr",
    "3x3:rr",
    "4x2:rr",
    "0,1,1,0,2,0",
    "0,0,1,1,0",
    "0,1,2,0,0,1,2,2,0",
    "5x3",
    "6x2:rr",
    "1+9",
    "2x16",
    "16x2",
};
#define NLAYOUTS (int)(sizeof(layouts) / sizeof(layouts[0]))
#define NSMALL (NLAYOUTS - 2) /* those of at most PLAN_SET_MAX ranks */

/* Several nodes, one of them with several ranks: the cases in which hier is no flat algorithm. */
static bool has_two_levels(const struct tiara_layout *layout)
{
    return layout->nnodes > 1 && layout->nnodes < layout->nranks;
}

static bool is_flat(const struct tiara_algo *algo)
{
    return algo != NULL && (algo->flags & TIARA_ALGO_FLAT);
}

/* Every node sends and receives 2 (n - 1) / n vectors with the ring between nodes. */
static void check_ring_bytes(const struct proof *proof, const struct tiara_plan_report *report)
{
    int64_t n = proof->layout.nnodes, nblocks = proof->plans[0].nblocks;

    ck_assert_msg(report->net_node_sent_max * n == 2 * (n - 1) * nblocks &&
                      report->net_node_recv_max * n == 2 * (n - 1) * nblocks,
        "%s: busiest node sends %lld of %lld blocks", proof->name,
        (long long)report->net_node_sent_max, (long long)nblocks);
}

/* No rank folds much more than its share of the node's work, and of the leaders'. */
static void check_stripes(const struct proof *proof, const struct tiara_plan_report *report)
{
    double work = 0, nblocks = proof->plans[0].nblocks, n = proof->layout.nnodes;
    int leaders = proof->opts.leaders;

    if (leaders == 0 || leaders > proof->layout.min_local)
        leaders = proof->layout.min_local;
    for (int p = 0; p < proof->layout.nnodes; p++) {
        double nlocal = tiara_layout_local_size(&proof->layout, p);
        double most = 9.0 / 8 * nblocks / nlocal * (nlocal - 1);

        work = most > work ? most : work;
    }
    work += nblocks / leaders * (n - 1) / n;
    ck_assert_msg((double)report->reduce_max <= work + 1e-9, "%s: a rank folds %lld blocks of %g",
        proof->name, (long long)report->reduce_max, nblocks);
}

/*
 * Blocks of a plan with the ring between nodes: the least multiple of K x nodes that each node can
 * cut into stripes of which none is more than an eighth longer than the average.
 */
static int expected_blocks(const struct tiara_layout *l, int leaders)
{
    int unit = (leaders > 0 && leaders < l->min_local ? leaders : l->min_local) * l->nnodes;

    for (int n = unit;; n += unit) {
        bool fair = true;

        for (int p = 0; p < l->nnodes; p++) {
            int size = tiara_layout_local_size(l, p);

            fair = fair && 8 * ((n + size - 1) / size) * size <= 9 * n;
        }
        if (fair)
            return n;
    }
}

static void prove_allreduce(
    const char *layout, int leaders, const struct tiara_algo *inter, bool is_block)
{
    struct tiara_algo_opts opts = {
        .coll = TIARA_COLL_ALLREDUCE, .leaders = leaders, .inter = inter};
    struct tiara_plan_report report;
    struct proof proof;

    proof_init(&proof, &tiara_algo_hier, layout, &opts);
    proof_all(&proof, is_block && (inter->flags & TIARA_ALGO_ORDERED), false, &report);
    if (inter == &tiara_algo_ring && proof.layout.nnodes > 1) {
        check_ring_bytes(&proof, &report);
        if (has_two_levels(&proof.layout)) {
            check_stripes(&proof, &report);
            ck_assert_int_eq(proof.plans[0].nblocks, expected_blocks(&proof.layout, leaders));
        }
    }
    proof_fini(&proof);
}

START_TEST(test_hier_allreduce_every_layout_is_proved)
{
    struct tiara_layout layout;
    char why[200] = "";

    ck_assert_msg(
        tiara_layout_parse(&layout, layouts[_i], 0, why, sizeof(why)) == TIARA_OK, "%s", why);
    for (int a = 0; tiara_algo_table[a] != NULL; a++) {
        if (!is_flat(tiara_algo_table[a]))
            continue;
        for (int leaders = 0; leaders <= layout.min_local + 1; leaders++)
            prove_allreduce(
                layouts[_i], leaders, tiara_algo_table[a], tiara_layout_is_block(&layout));
    }
    tiara_layout_fini(&layout);
}
END_TEST

/* What must cross the border of the busiest node, in blocks, is known. */
static void check_scatter_bytes(const struct proof *proof, const struct tiara_plan_report *report)
{
    const struct tiara_layout *layout = &proof->layout;
    int64_t nranks = layout->nranks, largest = layout->max_local, least = layout->min_local;
    int64_t others = layout->nnodes - 1;

    if (proof->opts.coll == TIARA_COLL_REDUCE_SCATTER) {
        ck_assert_int_eq(report->net_node_sent_max, nranks - least);
        ck_assert_int_eq(report->net_node_recv_max, largest * others);
    } else {
        ck_assert_int_eq(report->net_node_sent_max, largest * others);
        ck_assert_int_eq(report->net_node_recv_max, nranks - least);
    }
}

START_TEST(test_hier_scatter_and_gather_every_layout_is_proved)
{
    struct tiara_layout layout;
    bool is_block;
    int min_local;

    ck_assert(tiara_layout_parse(&layout, layouts[_i], 0, NULL, 0) == TIARA_OK);
    is_block = tiara_layout_is_block(&layout) && has_two_levels(&layout);
    min_local = layout.min_local;
    tiara_layout_fini(&layout);
    for (int leaders = 0; leaders <= min_local; leaders++) {
        for (int coll = TIARA_COLL_REDUCE_SCATTER; coll <= TIARA_COLL_ALLGATHER; coll++) {
            struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll, .leaders = leaders};
            struct tiara_plan_report report;
            struct proof proof;

            proof_init(&proof, &tiara_algo_hier, layouts[_i], &opts);
            proof_all(&proof, is_block && coll == TIARA_COLL_REDUCE_SCATTER, false, &report);
            if (has_two_levels(&proof.layout))
                check_scatter_bytes(&proof, &report);
            proof_fini(&proof);
        }
    }
}
END_TEST

/* The tree is the left fold whatever the layout: so are the bits. */
START_TEST(test_hier_chain_every_layout_is_the_left_fold)
{
    struct tiara_layout layout;
    int min_local;

    ck_assert(tiara_layout_parse(&layout, layouts[_i], 0, NULL, 0) == TIARA_OK);
    min_local = layout.min_local;
    tiara_layout_fini(&layout);
    for (int leaders = 0; leaders <= min_local; leaders++) {
        struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE, .leaders = leaders};
        struct tiara_plan_report report;
        struct proof proof;

        proof_init(&proof, &tiara_algo_hier_chain, layouts[_i], &opts);
        proof_all(&proof, true, true, &report);
        proof_fini(&proof);
    }
}
END_TEST

/* Ranks drift apart over several chunks: the derived waits are all that holds them together. */
START_TEST(test_two_levels_any_interleaving_is_right)
{
    static const struct tiara_algo *const algos[] = {&tiara_algo_hier, &tiara_algo_hier_chain};
    uint64_t seed = tiara_test_seed();

    for (int a = 0; a < 2; a++) {
        for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
            struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll};
            struct plan_set set;

            if (!(algos[a]->colls & (1u << coll)))
                continue;
            plan_set_init(&set, layouts[_i]);
            for (int r = 0; r < set.layout.nranks; r++)
                ck_assert(tiara_algo_generate(algos[a], &set.layout, r, &opts, &set.plans[r]) ==
                          TIARA_OK);
            ck_assert(plan_set_depend(&set) == TIARA_OK);
            ck_assert_int_le(set.plans[0].nblocks, 64);
            for (int in_place = 0; in_place < 2; in_place++)
                ck_assert_msg(interpret_all(&set, in_place, seed), "%s %s of %s%s", algos[a]->name,
                    tiara_coll_name(opts.coll), layouts[_i], in_place ? ", in place" : "");
            plan_set_fini(&set);
        }
    }
}
END_TEST

/* With block placement the fold crosses each border between nodes once, and so does the result. */
START_TEST(test_hier_chain_block_placement_sends_two_vectors_per_node)
{
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_plan_report report;
    struct proof proof;

    proof_init(&proof, &tiara_algo_hier_chain, "4x3", &opts);
    proof_all(&proof, true, true, &report);
    ck_assert_int_eq(report.net_node_sent_max, 2 * proof.plans[0].nblocks);
    ck_assert_int_eq(report.net_sent_total, (3 + 3) * proof.plans[0].nblocks);
    proof_fini(&proof);
}
END_TEST

START_TEST(test_hier_equal_nodes_has_one_block_per_leader_and_node)
{
    static const struct {
        const char *layout;
        int leaders, nblocks;
    } rows[] = {
        {"4x2", 0, 8},
        {"4x2", 2, 8},
        {"4x2", 1, 4},
        {"2x8", 8, 16},
        {"2x8", 1, 8},
        {"2x2:rr", 0, 4},
        {"3+1", 0, 6},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tiara_algo_opts opts = {.leaders = rows[i].leaders};
        struct proof proof;

        proof_init(&proof, &tiara_algo_hier, rows[i].layout, &opts);
        ck_assert_int_eq(proof.plans[0].nblocks, rows[i].nblocks);
        proof_fini(&proof);
    }
}
END_TEST

/* Repeated generation gives equal plans: a generator has no memory. */
START_TEST(test_hier_generated_twice_is_equal)
{
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct proof a, b;

    proof_init(&a, &tiara_algo_hier, "1+2+3", &opts);
    proof_init(&b, &tiara_algo_hier, "1+2+3", &opts);
    for (int r = 0; r < a.layout.nranks; r++) {
        ck_assert_int_eq(a.plans[r].nops, b.plans[r].nops);
        for (int i = 0; i < a.plans[r].nops; i++) {
            ck_assert_int_eq(a.plans[r].ops[i].kind, b.plans[r].ops[i].kind);
            ck_assert_int_eq(a.plans[r].ops[i].step, b.plans[r].ops[i].step);
            ck_assert_int_eq(a.plans[r].ops[i].dst.first, b.plans[r].ops[i].dst.first);
        }
    }
    proof_fini(&a);
    proof_fini(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plans of two levels");
    TCase *tcase = tcase_create("proofs");

    tcase_add_loop_test(tcase, test_hier_allreduce_every_layout_is_proved, 0, NLAYOUTS);
    tcase_add_loop_test(tcase, test_hier_scatter_and_gather_every_layout_is_proved, 0, NLAYOUTS);
    tcase_add_loop_test(tcase, test_hier_chain_every_layout_is_the_left_fold, 0, NLAYOUTS);
    tcase_add_loop_test(tcase, test_two_levels_any_interleaving_is_right, 0, NSMALL);
    tcase_add_test(tcase, test_hier_chain_block_placement_sends_two_vectors_per_node);
    tcase_add_test(tcase, test_hier_equal_nodes_has_one_block_per_leader_and_node);
    tcase_add_test(tcase, test_hier_generated_twice_is_equal);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
