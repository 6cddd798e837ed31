/*
 * The simulator, against times that follow from the model by hand.
 */
#include "base/alloc.h"
#include "test/harness/test.h"
#include "test/plan/plan_set.h"
#include <math.h>
#include <string.h>

/* Powers of two: the expected sums are exact. */
static const struct tiara_sim_model model = {.net_alpha = 0x1p-10,
    .net_beta = 0x1p-20,
    .shm_alpha = 0x1p-14,
    .shm_beta = 0x1p-24,
    .gamma = 0x1p-23};

#define BYTES 0x1p16 /* of the whole vector */

static double simulate(const struct plan_set *set, double chunk_bytes, int slots)
{
    double seconds = -1;

    ck_assert_int_eq(
        tiara_plan_simulate(set->view, &set->layout, &model, BYTES, chunk_bytes, slots, &seconds),
        TIARA_OK);
    return seconds;
}

static void assert_close(double a, double b)
{
    ck_assert_msg(fabs(a - b) <= 1e-12 * fabs(b), "%.17g, not %.17g", a, b);
}

static void init_all(struct plan_set *set, const char *layout, int nblocks)
{
    plan_set_init(set, layout);
    for (int r = 0; r < set->layout.nranks; r++)
        tiara_plan_init(&set->plans[r], TIARA_COLL_ALLREDUCE, r, set->layout.nranks, nblocks);
}

static void finish_all(struct plan_set *set, int nsteps)
{
    for (int r = 0; r < set->layout.nranks; r++)
        ck_assert_int_eq(tiara_plan_finish(&set->plans[r], nsteps), TIARA_OK);
    ck_assert_int_eq(plan_set_depend(set), TIARA_OK);
}

static struct tiara_slice own(int rank, enum tiara_buf buf, int first)
{
    return tiara_slice(rank, buf, first, 1);
}

START_TEST(test_sim_one_send_costs_alpha_and_beta)
{
    struct plan_set set;

    init_all(&set, "2x1", 1);
    tiara_plan_send(&set.plans[0], 1, 1, own(0, TIARA_BUF_IN, 0));
    tiara_plan_recv(&set.plans[1], 1, 0, own(1, TIARA_BUF_OUT, 0));
    finish_all(&set, 1);
    assert_close(simulate(&set, 0, 1), model.net_alpha + BYTES * model.net_beta);
    /* Chunks follow one another on the link and pay the latency together. */
    assert_close(simulate(&set, BYTES / 8, 8), model.net_alpha + BYTES * model.net_beta);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_sim_node_shares_its_link)
{
    struct plan_set set;

    /* Two ranks of one node send at once, to two nodes; then two nodes send to one. */
    init_all(&set, "2+1+1", 1);
    for (int r = 0; r < 2; r++) {
        tiara_plan_send(&set.plans[r], 1, 2 + r, own(r, TIARA_BUF_IN, 0));
        tiara_plan_recv(&set.plans[2 + r], 1, r, own(2 + r, TIARA_BUF_OUT, 0));
    }
    finish_all(&set, 1);
    assert_close(simulate(&set, 0, 1), model.net_alpha + 2 * BYTES * model.net_beta);
    plan_set_fini(&set);
    init_all(&set, "2+1+1", 1);
    for (int r = 0; r < 2; r++) {
        tiara_plan_send(&set.plans[2 + r], 1, r, own(2 + r, TIARA_BUF_IN, 0));
        tiara_plan_recv(&set.plans[r], 1, 2 + r, own(r, TIARA_BUF_OUT, 0));
    }
    finish_all(&set, 1);
    assert_close(simulate(&set, 0, 1), model.net_alpha + 2 * BYTES * model.net_beta);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_sim_node_ops_cost_what_the_model_says)
{
    struct plan_set set;
    double block = BYTES / 3;

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    assert_close(simulate(&set, 0, 1),
        BYTES * model.shm_beta /* copy */
            + 2 * (model.shm_alpha + block * model.shm_beta) + 2 * block * model.gamma /* reduce */
            + 2 * model.shm_alpha + BYTES * model.shm_beta); /* copies */
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_sim_message_within_a_node_takes_the_senders_time)
{
    struct plan_set set;

    init_all(&set, "1x2", 1);
    for (int i = 1; i <= 2; i++) {
        tiara_plan_send(&set.plans[0], i, 1, own(0, TIARA_BUF_IN, 0));
        tiara_plan_recv(&set.plans[1], i, 0, own(1, TIARA_BUF_OUT, 0));
    }
    finish_all(&set, 2);
    assert_close(simulate(&set, 0, 1), 2 * (model.shm_alpha + BYTES * model.shm_beta));
    plan_set_fini(&set);
}
END_TEST

/* The textbook ring, one rank a node, sums in OUT (which starts as the input: the call is in
 * place). */
static void build_ring(struct plan_set *set, int n, const char *layout)
{
    init_all(set, layout, n);
    for (int r = 0; r < n; r++) {
        struct tiara_plan *p = &set->plans[r];

        tiara_plan_tmp(p, 1);
        for (int s = 0; s < 2 * (n - 1); s++) {
            bool adds = s < n - 1;
            int gives = (r - s + 2 * n) % n, gets = (r - s - 1 + 2 * n) % n;
            struct tiara_slice pair[2] = {own(r, TIARA_BUF_TMP, 0), own(r, TIARA_BUF_OUT, gets)};

            tiara_plan_recv(p, s + 1, (r + n - 1) % n,
                adds ? own(r, TIARA_BUF_TMP, 0) : own(r, TIARA_BUF_OUT, gets));
            tiara_plan_send(p, s + 1, (r + 1) % n, own(r, TIARA_BUF_OUT, gives));
            if (adds)
                tiara_plan_reduce(p, s + 1, own(r, TIARA_BUF_OUT, gets), pair, 2);
        }
    }
    finish_all(set, 2 * (n - 1));
}

START_TEST(test_sim_ring_costs_the_textbook_formula)
{
    static const char *const layouts[] = {"2x1", "4x1", "8x1", "16x1"};

    for (int i = 0; i < 4; i++) {
        int n = 2 << i;
        struct plan_set set;
        struct tiara_plan_report report;

        build_ring(&set, n, layouts[i]);
        ck_assert_int_eq(plan_set_check(&set, true, &report), TIARA_OK);
        assert_close(
            simulate(&set, 0, 1), 2 * (n - 1) * (model.net_alpha + BYTES / n * model.net_beta) +
                                      (n - 1) * BYTES / n * model.gamma);
        plan_set_fini(&set);
    }
}
END_TEST

/* Node, network, node: chunks in flight hide the latency and the node's work behind the link. */
START_TEST(test_sim_pipelining_approaches_the_link_bound)
{
    struct plan_set set;
    double bound, last, one;

    plan_set_sample_named(&set, "two-level");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    /* Every byte of the vector leaves every node once. */
    bound = BYTES * model.net_beta;
    one = simulate(&set, 0, 1);
    ck_assert(one > bound + model.net_alpha);
    /* Chunks without a second slot only add latency. */
    last = simulate(&set, BYTES / 64, 1);
    ck_assert(last > one);
    for (int slots = 2; slots <= 4; slots *= 2) {
        double now = simulate(&set, BYTES / 64, slots);

        ck_assert(now < last);
        last = now;
    }
    ck_assert(last < one);
    ck_assert(last > bound);
    ck_assert(last < 1.1 * bound);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_sim_plan_that_cannot_end_is_an_error)
{
    struct plan_set set;
    double seconds;
    char text[400];

    plan_set_sample_named(&set, "two-shot");
    tiara_test_stderr_begin();
    ck_assert_int_eq(
        tiara_plan_simulate(set.view, &set.layout, &model, BYTES, 0, 1, &seconds), TIARA_ERR_PLAN);
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    set.plans[0].waits[set.plans[0].ops[1].wait].step = 3;
    set.plans[1].waits[set.plans[1].ops[1].wait].step = 3;
    ck_assert_int_eq(
        tiara_plan_simulate(set.view, &set.layout, &model, BYTES, 0, 1, &seconds), TIARA_ERR_PLAN);
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "have not been derived"));
    ck_assert_ptr_nonnull(strstr(text, "rank 0 never gets past op 1 of chunk 0"));
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_sim_out_of_memory_is_reported_and_leaves_nothing)
{
    struct plan_set set;
    enum tiara_err err = TIARA_ERR_NOMEM;
    uint64_t live;
    double seconds;
    int n = 0;

    plan_set_sample_named(&set, "two-level");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    live = tiara_alloc_live();
    while (err != TIARA_OK) {
        tiara_alloc_fail_after((uint64_t)++n);
        err = tiara_plan_simulate(set.view, &set.layout, &model, BYTES, BYTES / 16, 4, &seconds);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    ck_assert_int_gt(n, 10);
    plan_set_fini(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan sim");
    TCase *tcase = tcase_create("sim");

    tcase_add_test(tcase, test_sim_one_send_costs_alpha_and_beta);
    tcase_add_test(tcase, test_sim_node_shares_its_link);
    tcase_add_test(tcase, test_sim_node_ops_cost_what_the_model_says);
    tcase_add_test(tcase, test_sim_message_within_a_node_takes_the_senders_time);
    tcase_add_test(tcase, test_sim_ring_costs_the_textbook_formula);
    tcase_add_test(tcase, test_sim_pipelining_approaches_the_link_bound);
    tcase_add_test(tcase, test_sim_plan_that_cannot_end_is_an_error);
    tcase_add_test(tcase, test_sim_out_of_memory_is_reported_and_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
