/*
 * The dependency pass: the exact waits, awaits and posts of plans small enough to derive by hand.
 */
#include "base/alloc.h"
#include "test/plan/plan_set.h"
#include "test/harness/test.h"
#include <stdio.h>
#include <string.h>

/* The waits before op @op (nops: at the end) as "peer@step peer@step", in the order of peers. */
static const char *waits_of(const struct tiara_plan *p, int op)
{
    static char text[256];
    int first = op < p->nops ? p->ops[op].wait : p->exit_wait;
    int n = op < p->nops ? p->ops[op].nwait : p->exit_nwait, len = 0;

    text[0] = '\0';
    for (int i = first; i < first + n; i++)
        len += snprintf(text + len, sizeof(text) - (size_t)len, "%s%d@%d", i > first ? " " : "",
            p->waits[i].peer, p->waits[i].step);
    return text;
}

static void assert_op(
    const struct tiara_plan *p, int op, const char *waits, int await, int post, int post_await)
{
    ck_assert_str_eq(waits_of(p, op), waits);
    ck_assert_int_eq(p->ops[op].await, await);
    ck_assert_int_eq(p->ops[op].post, post);
    ck_assert_int_eq(p->ops[op].post_await, post_await);
}

START_TEST(test_depend_two_shot_waits_for_the_writers)
{
    struct plan_set set;
    const struct tiara_plan *p = &set.plans[1];

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    /* The cell may still be read by the chunk before. */
    assert_op(p, 0, "0@0 2@0", 0, 1, 0);
    assert_op(p, 1, "0@1 2@1", 0, 2, 0);
    assert_op(p, 2, "0@2", 0, 0, 0);
    /* Its own sum needs nobody. */
    assert_op(p, 3, "", 0, 0, 0);
    assert_op(p, 4, "2@2", 0, 3, 0);
    ck_assert_str_eq(waits_of(p, p->nops), "");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_depend_single_copy_waits_for_the_readers)
{
    struct plan_set set;
    const struct tiara_plan *p = &set.plans[0];

    plan_set_sample_named(&set, "single-copy");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    assert_op(p, 0, "1@0 2@0", 0, 1, 0);
    /* The sum must be there; and out is in when the call is in place: peers must have read it. */
    assert_op(p, 1, "1@1", 0, 0, 0);
    assert_op(p, 2, "2@1", 0, 2, 0);
    /* And they must have fetched the sum before the caller gets its memory back. */
    ck_assert_str_eq(waits_of(p, p->nops), "1@2 2@2");
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_depend_two_level_awaits_messages)
{
    struct plan_set set;
    const struct tiara_plan *p = &set.plans[3];

    plan_set_sample_named(&set, "two-level");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    assert_op(p, 0, "2@0", 0, 1, 0);
    assert_op(p, 1, "2@1", 0, 0, 0);
    assert_op(p, 2, "", 0, 0, 0);
    assert_op(p, 3, "", 0, 0, 0);
    /* Reads what it receives, and overwrites what it sends. */
    assert_op(p, 4, "", 2, 4, 0);
    assert_op(p, 5, "", 0, 0, 0);
    assert_op(p, 6, "2@4", 0, 5, 2);
    plan_set_fini(&set);
}
END_TEST

/* Rank 0 sends rank 1's cell to rank 2, on another node; then rank 1 uses its cell again. */
static void build_send_of_peer(struct plan_set *set)
{
    struct tiara_plan *p = set->plans;
    struct tiara_slice cell = tiara_slice(1, TIARA_BUF_CELL, 0, 1);

    for (int r = 0; r < 3; r++)
        tiara_plan_init(&p[r], TIARA_COLL_ALLREDUCE, r, 3, 1);
    tiara_plan_copy(&p[1], 1, cell, tiara_slice(1, TIARA_BUF_IN, 0, 1));
    tiara_plan_send(&p[0], 2, 2, cell);
    tiara_plan_recv(&p[2], 2, 0, tiara_slice(2, TIARA_BUF_CELL, 0, 1));
    tiara_plan_copy(&p[1], 3, cell, tiara_slice(1, TIARA_BUF_OUT, 0, 1));
    tiara_plan_copy(
        &p[0], 3, tiara_slice(0, TIARA_BUF_OUT, 0, 1), tiara_slice(0, TIARA_BUF_IN, 0, 1));
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(tiara_plan_finish(&p[r], 3), TIARA_OK);
}

START_TEST(test_depend_send_of_a_peers_cell_is_posted_when_complete)
{
    struct plan_set set;

    plan_set_init(&set, "2+1");
    build_send_of_peer(&set);
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    assert_op(&set.plans[0], 0, "1@1", 0, 2, 1);
    assert_op(&set.plans[1], 0, "0@0", 0, 1, 0);
    assert_op(&set.plans[1], 1, "0@2", 0, 3, 0);
    assert_op(&set.plans[2], 0, "", 0, 3, 1);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_depend_read_of_what_nobody_writes_is_an_error)
{
    struct plan_set set;
    char text[512];

    plan_set_sample_named(&set, "two-shot");
    set.plans[2].ops[0].step = 2;
    tiara_test_stderr_begin();
    ck_assert_int_eq(plan_set_depend(&set), TIARA_ERR_PLAN);
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "plan of rank 0, op 1: nothing fills the blocks of rank 2"));
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_depend_twice_gives_the_same)
{
    struct plan_set set;

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    ck_assert_int_eq(set.plans[0].nwaits, 6);
    assert_op(&set.plans[0], 1, "1@1 2@1", 0, 2, 0);
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_depend_out_of_memory_leaves_the_plan_as_it_was)
{
    struct plan_set set;
    uint64_t live;
    enum tiara_err err = TIARA_ERR_NOMEM;
    char text[4096];
    int n = 0;

    plan_set_sample_named(&set, "two-level");
    live = tiara_alloc_live();
    tiara_test_stderr_begin();
    while (err != TIARA_OK) {
        tiara_alloc_fail_after((uint64_t)++n);
        err = tiara_plan_depend(&set.plans[0], set.view, 2);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        if (err != TIARA_OK)
            ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_int_gt(n, 4);
    ck_assert_uint_eq(tiara_alloc_live(), live + 1);
    plan_set_fini(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan depend");
    TCase *tcase = tcase_create("depend");

    tcase_add_test(tcase, test_depend_two_shot_waits_for_the_writers);
    tcase_add_test(tcase, test_depend_single_copy_waits_for_the_readers);
    tcase_add_test(tcase, test_depend_two_level_awaits_messages);
    tcase_add_test(tcase, test_depend_send_of_a_peers_cell_is_posted_when_complete);
    tcase_add_test(tcase, test_depend_read_of_what_nobody_writes_is_an_error);
    tcase_add_test(tcase, test_depend_twice_gives_the_same);
    tcase_add_test(tcase, test_depend_out_of_memory_leaves_the_plan_as_it_was);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
