/*
 * The checker: what it says of each broken rule, what it counts, and what it does when memory runs
 * out. Mutants of whole plans are in test/plan/p_mutants.c.
 */
#include "base/alloc.h"
#include "test/harness/test.h"
#include "test/plan/plan_set.h"
#include <string.h>

static void assert_refused(const struct plan_set *set, bool in_place, const char *why)
{
    struct tiara_plan_report report;

    ck_assert_int_eq(plan_set_check(set, in_place, &report), TIARA_ERR_PLAN);
    ck_assert_msg(strstr(report.text, why) != NULL, "says \"%s\", not \"%s\"", report.text, why);
}

START_TEST(test_check_samples_are_proved_and_counted)
{
    struct plan_set set;
    struct tiara_plan_report report;

    plan_set_sample_named(&set, "two-level");
    for (int in_place = 0; in_place < 2; in_place++) {
        ck_assert_int_eq(plan_set_check(&set, in_place, &report), TIARA_OK);
        ck_assert_str_eq(report.text, "");
        ck_assert_int_eq(report.net_sent_max, 1);
        ck_assert_int_eq(report.net_sent_total, 4);
        ck_assert_int_eq(report.net_node_sent_max, 2);
        ck_assert_int_eq(report.net_node_recv_max, 2);
        ck_assert_int_eq(report.shm_read_max, 2);
        ck_assert_int_eq(report.reduce_max, 2);
        ck_assert_int_eq(report.rank0_sent, 1);
        ck_assert_int_eq(report.rank0_received, 1);
        ck_assert_int_eq(report.net_rounds, 1);
        ck_assert_int_eq(report.nsteps, 5);
        ck_assert(report.ordered);
    }
    plan_set_fini(&set);
}
END_TEST

/* Each breaks @set's "two-shot" sample in one way. Op 0: cell <- in; 1: reduce; 2, 3, 4: out <-
 * cell. */
static void read_in(struct tiara_plan *p)
{
    p[1].srcs[p[1].ops[1].src].buf = TIARA_BUF_IN;
}
static void write_in(struct tiara_plan *p)
{
    p[1].ops[4].dst.buf = TIARA_BUF_IN;
}
static void write_peer(struct tiara_plan *p)
{
    p[1].ops[1].dst.owner = 2;
}
static void leave_bounds(struct tiara_plan *p)
{
    p[1].srcs[p[1].ops[4].src].first = 3;
}
static void use_no_scratch(struct tiara_plan *p)
{
    p[1].ops[1].dst = tiara_slice(1, TIARA_BUF_TMP, 0, 1);
}
static void name_no_rank(struct tiara_plan *p)
{
    p[1].srcs[p[1].ops[4].src].owner = 3;
}
static void name_no_buffer(struct tiara_plan *p)
{
    p[1].srcs[p[1].ops[4].src].buf = TIARA_NBUF;
}
static void read_too_much(struct tiara_plan *p)
{
    p[1].ops[0].dst.count = 2;
}
static void overlap_in_part(struct tiara_plan *p)
{
    p[1].ops[1].dst = tiara_slice(1, TIARA_BUF_CELL, 0, 2);
    for (int i = 0; i < 3; i++)
        p[1].srcs[p[1].ops[1].src + i] = tiara_slice(1, TIARA_BUF_CELL, i ? 0 : 1, 2);
}
static void go_back(struct tiara_plan *p)
{
    p[1].ops[4].step = 2;
}
static void leave_time(struct tiara_plan *p)
{
    p[1].ops[4].step = 4;
}
static void race(struct tiara_plan *p)
{
    p[1].ops[2].step = 2;
}
static void read_early(struct tiara_plan *p)
{
    p[0].ops[0].step = 2;
    p[2].ops[1].step = 1;
}
static void lose_result(struct tiara_plan *p)
{
    p[2].nops = 4;
}
static void fetch_another(struct tiara_plan *p)
{
    p[2].ops[4].dst.first = 1;
}
static void mix_blocks(struct tiara_plan *p)
{
    p[2].srcs[p[2].ops[4].src].first = 1;
}
static void add_another(struct tiara_plan *p)
{
    p[2].srcs[p[2].ops[1].src].first = 1;
}
static void fetch_part(struct tiara_plan *p)
{
    p[2].srcs[p[2].ops[1].src] = p[2].srcs[p[2].ops[1].src + 1];
}
static void differ_in_steps(struct tiara_plan *p)
{
    p[2].nsteps = 4;
}
static void differ_in_rank(struct tiara_plan *p)
{
    p[2].rank = 1;
}
static void have_no_sources(struct tiara_plan *p)
{
    p[1].ops[1].nsrc = 0;
}
static void have_no_kind(struct tiara_plan *p)
{
    p[1].ops[1].kind = (enum tiara_op_kind)7;
}
static void miscount(struct tiara_plan *p)
{
    p[1].nasync = 1;
}

static const struct broken {
    void (*breaks)(struct tiara_plan *plans);
    const char *why;
} broken[] = {
    {read_in, "rank 1 op 1 (reduce, step 2): reads in of rank 0, which is not exposed"},
    {write_in, "rank 1 op 4 (copy, step 3): writes the input"},
    {write_peer, "rank 1 op 1 (reduce, step 2): writes memory of rank 2"},
    {leave_bounds, "rank 1 op 4 (copy, step 3): cell of rank 2 has no 1 blocks from 3 on"},
    {use_no_scratch, "tmp of rank 1 has no 1 blocks from 0 on"},
    {name_no_rank, "no rank 3"},
    {name_no_buffer, "no buffer 4"},
    {read_too_much, "rank 1 op 0 (copy, step 1): reads 3 blocks to write 2"},
    {overlap_in_part, "source and target overlap in part"},
    {go_back, "rank 1 op 4 (copy, step 2): comes after step 3"},
    {leave_time, "no step 4"},
    {race, "rank 1 op 2 (copy, step 2): reads cell[0] of rank 0, which writes it in the same step"},
    {read_early, "reads cell[2] of rank 0, which was never written"},
    {lose_result, "rank 2: out[2] was never written"},
    {fetch_another, "rank 2 op 4 (copy, step 3): puts block 2 where block 1 belongs"},
    {mix_blocks, "rank 2 op 4 (copy, step 3): puts block 1 where block 2 belongs"},
    {add_another, "rank 2 op 1 (reduce, step 2): adds block 2 to block 1"},
    {fetch_part, "out[2] does not hold every contribution exactly once (3 leaves)"},
    {differ_in_steps, "rank 2: 3 blocks and 4 steps; rank 0 has 3 and 3"},
    {differ_in_rank, "rank 2: is the plan of rank 1 of 3"},
    {have_no_sources, "cannot have 0 sources"},
    {have_no_kind, "op 1 has no kind 7"},
    {miscount, "counts 1 sends and receives, has 0"},
};
#define NBROKEN (sizeof(broken) / sizeof(broken[0]))

START_TEST(test_check_broken_rule_is_named)
{
    struct plan_set set;

    plan_set_sample_named(&set, "two-shot");
    broken[_i].breaks(set.plans);
    assert_refused(&set, false, broken[_i].why);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_check_remote_read_needs_one_node)
{
    struct plan_set set;

    plan_set_sample_named(&set, "two-shot");
    tiara_layout_fini(&set.layout);
    ck_assert_int_eq(tiara_layout_parse(&set.layout, "2+1", 3, NULL, 0), TIARA_OK);
    assert_refused(&set, false, "reads memory of rank 2, which is on another node");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_check_messages_must_match)
{
    struct plan_set set;
    struct tiara_plan *p = set.plans;

    plan_set_sample_named(&set, "two-level");
    p[0].ops[2].peer = 3;
    assert_refused(&set, false, "rank 2 op 3 (recv, step 3): no send matches this receive");
    p[0].ops[2].peer = 2;
    p[2].ops[3].peer = 1;
    assert_refused(&set, false, "rank 0 op 2 (send, step 3): no receive matches this send");
    p[2].ops[3].peer = 0;
    p[2].ops[3].step = 4;
    assert_refused(&set, false, "rank 2 op 3 (recv, step 4): the matching send is in another step");
    p[2].ops[3].step = 3;
    p[2].ops[3].dst = tiara_slice(2, TIARA_BUF_OUT, 0, 2);
    assert_refused(&set, false, "rank 2 op 3 (recv, step 3): the matching send has another count");
    p[2].ops[3].peer = 2;
    assert_refused(&set, false, "cannot have peer 2");
    plan_set_fini(&set);
}
END_TEST

/* Two ranks that both finish sending, as synchronous sends do, before they receive. */
START_TEST(test_check_sends_that_wait_for_each_other_are_a_deadlock)
{
    struct plan_set set;

    plan_set_init(&set, "2x1");
    for (int r = 0; r < 2; r++) {
        struct tiara_plan *p = &set.plans[r];

        tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 2, 1);
        tiara_plan_send(p, 1, 1 - r, tiara_slice(r, TIARA_BUF_IN, 0, 1));
        tiara_plan_recv(p, 1, 1 - r, tiara_slice(r, TIARA_BUF_OUT, 0, 1));
        ck_assert_int_eq(tiara_plan_finish(p, 1), TIARA_OK);
    }
    assert_refused(&set, false, "does not hold every contribution");
    /* In place the receive would overwrite what is being sent. */
    assert_refused(&set, true, "rank 0 op 1 (recv, step 1): cannot start: deadlock");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_check_waits_that_wait_for_each_other_are_a_deadlock)
{
    struct plan_set set;
    struct tiara_plan_report report;

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    ck_assert_int_eq(plan_set_check(&set, false, &report), TIARA_OK);
    set.plans[0].waits[set.plans[0].ops[0].wait].step = 1;
    set.plans[1].waits[set.plans[1].ops[0].wait].step = 1;
    assert_refused(&set, false, "rank 0 op 0 (copy, step 1): waits for ever: deadlock");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_check_without_a_report_is_logged)
{
    struct plan_set set;
    char text[512];

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_check(&set, true, NULL), TIARA_OK);
    lose_result(set.plans);
    tiara_test_stderr_begin();
    ck_assert_int_eq(plan_set_check(&set, false, NULL), TIARA_ERR_PLAN);
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "out[2] was never written"));
    plan_set_fini(&set);
}
END_TEST

/* REDUCE_SCATTER and ALLGATHER on one node: only the own block of OUT, and of IN, exists. */
static void build_half(struct plan_set *set, enum tiara_coll coll)
{
    plan_set_init(set, "1x3");
    for (int r = 0; r < 3; r++) {
        struct tiara_plan *p = &set->plans[r];
        struct tiara_slice all[3];

        tiara_plan_init(p, coll, r, 3, 3);
        for (int q = 0; q < 3; q++)
            all[q] = tiara_slice(q, TIARA_BUF_CELL, r, 1);
        if (coll == TIARA_COLL_REDUCE_SCATTER) {
            tiara_plan_copy(
                p, 1, tiara_slice(r, TIARA_BUF_CELL, 0, 3), tiara_slice(r, TIARA_BUF_IN, 0, 3));
            tiara_plan_reduce(p, 2, tiara_slice(r, TIARA_BUF_OUT, r, 1), all, 3);
        } else {
            tiara_plan_copy(
                p, 1, tiara_slice(r, TIARA_BUF_CELL, r, 1), tiara_slice(r, TIARA_BUF_IN, r, 1));
            for (int q = 0; q < 3; q++)
                tiara_plan_copy(p, 2, tiara_slice(r, TIARA_BUF_OUT, q, 1),
                    tiara_slice(q, TIARA_BUF_CELL, q, 1));
        }
        ck_assert_int_eq(tiara_plan_finish(p, 2), TIARA_OK);
    }
}

START_TEST(test_check_halves_are_proved)
{
    for (int coll = TIARA_COLL_REDUCE_SCATTER; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct plan_set set;
        struct tiara_plan_report report;

        build_half(&set, (enum tiara_coll)coll);
        ck_assert_int_eq(plan_set_check(&set, false, &report), TIARA_OK);
        ck_assert_int_eq(plan_set_check(&set, true, &report), TIARA_OK);
        ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
        ck_assert_int_eq(plan_set_check(&set, true, &report), TIARA_OK);
        plan_set_fini(&set);
    }
}
END_TEST

START_TEST(test_check_halves_have_no_foreign_blocks)
{
    struct plan_set set;

    build_half(&set, TIARA_COLL_REDUCE_SCATTER);
    set.plans[1].ops[1].dst.first = 0;
    assert_refused(&set, false, "out of rank 1 has no 1 blocks from 0 on");
    plan_set_fini(&set);
    build_half(&set, TIARA_COLL_ALLGATHER);
    set.plans[1].srcs[0].first = 0;
    assert_refused(&set, false, "in of rank 1 has no 1 blocks from 0 on");
    set.plans[1].srcs[0].first = 1;
    set.plans[1].srcs[1].first = 1;
    set.plans[1].srcs[1].owner = 1;
    assert_refused(&set, false, "rank 1 op 1 (copy, step 2): puts block 1 where block 0 belongs");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_check_out_of_memory_is_reported_and_leaves_nothing)
{
    struct plan_set set;
    enum tiara_err err = TIARA_ERR_NOMEM;
    uint64_t live;
    int n = 0;

    plan_set_sample_named(&set, "two-level");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    live = tiara_alloc_live();
    while (err != TIARA_OK) {
        struct tiara_plan_report report;

        tiara_alloc_fail_after((uint64_t)++n);
        err = plan_set_check(&set, false, &report);
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
    Suite *suite = suite_create("plan check");
    TCase *tcase = tcase_create("check");

    tcase_add_test(tcase, test_check_samples_are_proved_and_counted);
    tcase_add_loop_test(tcase, test_check_broken_rule_is_named, 0, (int)NBROKEN);
    tcase_add_test(tcase, test_check_remote_read_needs_one_node);
    tcase_add_test(tcase, test_check_messages_must_match);
    tcase_add_test(tcase, test_check_sends_that_wait_for_each_other_are_a_deadlock);
    tcase_add_test(tcase, test_check_waits_that_wait_for_each_other_are_a_deadlock);
    tcase_add_test(tcase, test_check_without_a_report_is_logged);
    tcase_add_test(tcase, test_check_halves_are_proved);
    tcase_add_test(tcase, test_check_halves_have_no_foreign_blocks);
    tcase_add_test(tcase, test_check_out_of_memory_is_reported_and_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
