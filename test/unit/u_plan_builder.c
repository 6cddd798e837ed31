/*
 * The builder: what appends leave behind, what they leave out, sticky errors, embedding, and memory
 * running out.
 */
#include "test/harness/test.h"
#include "base/alloc.h"
#include "plan/plan.h"
#include <string.h>

static struct tiara_slice at(int owner, enum tiara_buf buf, int first)
{
    return tiara_slice(owner, buf, first, 1);
}

START_TEST(test_builder_appends_are_kept_in_order)
{
    struct tiara_plan p;
    struct tiara_slice srcs[2] = {at(0, TIARA_BUF_IN, 1), at(1, TIARA_BUF_CELL, 1)};

    tiara_plan_init(&p, TIARA_COLL_ALLREDUCE, 0, 4, 2);
    tiara_plan_tmp(&p, 3);
    tiara_plan_tmp(&p, 2);
    tiara_plan_copy(&p, 1, at(0, TIARA_BUF_CELL, 0), at(0, TIARA_BUF_IN, 0));
    tiara_plan_reduce(&p, 2, at(0, TIARA_BUF_OUT, 1), srcs, 2);
    tiara_plan_send(&p, 2, 3, at(1, TIARA_BUF_CELL, 0));
    tiara_plan_recv(&p, 4, 2, at(0, TIARA_BUF_TMP, 2));
    ck_assert_int_eq(tiara_plan_finish(&p, 5), TIARA_OK);
    ck_assert_int_eq(p.nops, 4);
    ck_assert_int_eq(p.nsteps, 5);
    ck_assert_int_eq(p.tmp_blocks, 3);
    ck_assert_int_eq(p.nasync, 2);
    ck_assert_int_eq(p.nsrcs, 4);
    ck_assert_int_eq(p.ops[0].kind, TIARA_OP_COPY);
    ck_assert_int_eq(p.ops[0].peer, -1);
    ck_assert_int_eq(p.ops[1].nsrc, 2);
    ck_assert_int_eq(p.srcs[p.ops[1].src + 1].owner, 1);
    ck_assert_int_eq(p.ops[2].peer, 3);
    ck_assert_int_eq(p.srcs[p.ops[2].src].buf, TIARA_BUF_CELL);
    ck_assert_int_eq(p.ops[3].dst.first, 2);
    ck_assert_int_eq(p.ops[3].step, 4);
    tiara_plan_fini(&p);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_builder_empty_and_idle_ops_are_left_out)
{
    struct tiara_plan p;
    struct tiara_slice none = tiara_slice(0, TIARA_BUF_OUT, 0, 0);
    struct tiara_slice one = at(0, TIARA_BUF_OUT, 0), in = at(0, TIARA_BUF_IN, 0);

    tiara_plan_init(&p, TIARA_COLL_ALLREDUCE, 0, 2, 1);
    tiara_plan_copy(&p, 1, none, none);
    tiara_plan_reduce(&p, 1, none, &none, 1);
    tiara_plan_send(&p, 1, 1, none);
    tiara_plan_recv(&p, 1, 1, none);
    tiara_plan_copy(&p, 1, one, one);
    tiara_plan_reduce(&p, 1, one, &one, 1);
    ck_assert_int_eq(p.nops, 0);
    tiara_plan_reduce(&p, 1, one, &in, 1);
    ck_assert_int_eq(p.ops[0].kind, TIARA_OP_COPY);
    ck_assert_int_eq(tiara_plan_finish(&p, 1), TIARA_OK);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_builder_errors_are_sticky)
{
    struct tiara_plan p;
    char text[512];

    tiara_test_stderr_begin();
    tiara_plan_init(&p, TIARA_COLL_ALLREDUCE, 0, 2, 1);
    tiara_plan_send(&p, 3, 1, at(0, TIARA_BUF_IN, 0));
    tiara_plan_send(&p, 2, 1, at(0, TIARA_BUF_IN, 0));
    tiara_plan_send(&p, 3, 1, at(0, TIARA_BUF_IN, 0));
    ck_assert_int_eq(p.nops, 1);
    ck_assert_int_eq(tiara_plan_finish(&p, 3), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
    tiara_plan_init(&p, TIARA_COLL_ALLREDUCE, 0, 2, 1);
    tiara_plan_send(&p, 3, 1, at(0, TIARA_BUF_IN, 0));
    ck_assert_int_eq(tiara_plan_finish(&p, 2), TIARA_ERR_PLAN);
    ck_assert_int_eq(tiara_plan_finish(&p, 3), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "step 2 after step 3"));
    ck_assert_ptr_nonnull(strstr(text, "2 steps, but the last op has step 3"));
}
END_TEST

START_TEST(test_builder_embedded_plan_speaks_of_the_outer_ranks)
{
    struct tiara_plan outer, sub;
    const int ranks[2] = {1, 5};
    struct tiara_slice pair[2] = {at(0, TIARA_BUF_IN, 0), at(0, TIARA_BUF_TMP, 0)};

    tiara_plan_init(&sub, TIARA_COLL_ALLREDUCE, 0, 2, 2);
    tiara_plan_tmp(&sub, 1);
    tiara_plan_copy(&sub, 1, at(0, TIARA_BUF_OUT, 1), at(0, TIARA_BUF_IN, 1));
    tiara_plan_send(&sub, 1, 1, at(0, TIARA_BUF_IN, 0));
    tiara_plan_recv(&sub, 1, 1, at(0, TIARA_BUF_TMP, 0));
    tiara_plan_reduce(&sub, 2, at(0, TIARA_BUF_OUT, 0), pair, 2);
    ck_assert_int_eq(tiara_plan_finish(&sub, 2), TIARA_OK);

    tiara_plan_init(&outer, TIARA_COLL_ALLREDUCE, 1, 6, 8);
    tiara_plan_tmp(&outer, 2);
    tiara_plan_embed(&outer, &sub, ranks, 4, 10, TIARA_BUF_CELL);
    ck_assert_int_eq(tiara_plan_finish(&outer, 12), TIARA_OK);
    /* The copy of OUT from IN is a copy of CELL onto itself here. */
    ck_assert_int_eq(outer.nops, 3);
    ck_assert_int_eq(outer.nasync, 2);
    ck_assert_int_eq(outer.tmp_blocks, 3);
    ck_assert_int_eq(outer.ops[0].kind, TIARA_OP_SEND);
    ck_assert_int_eq(outer.ops[0].peer, 5);
    ck_assert_int_eq(outer.ops[0].step, 11);
    ck_assert_int_eq(outer.srcs[outer.ops[0].src].buf, TIARA_BUF_CELL);
    ck_assert_int_eq(outer.srcs[outer.ops[0].src].owner, 1);
    ck_assert_int_eq(outer.srcs[outer.ops[0].src].first, 4);
    ck_assert_int_eq(outer.ops[1].dst.buf, TIARA_BUF_TMP);
    ck_assert_int_eq(outer.ops[1].dst.first, 2);
    ck_assert_int_eq(outer.ops[2].step, 12);
    ck_assert_int_eq(outer.ops[2].dst.buf, TIARA_BUF_CELL);
    ck_assert_int_eq(outer.srcs[outer.ops[2].src + 1].first, 2);
    tiara_plan_fini(&outer);
    tiara_plan_fini(&sub);
}
END_TEST

/* Enough ops that every array grows more than once. */
static enum tiara_err build_many(struct tiara_plan *p)
{
    struct tiara_slice srcs[3] = {
        at(0, TIARA_BUF_IN, 0), at(0, TIARA_BUF_TMP, 0), at(0, TIARA_BUF_OUT, 0)};

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, 0, 2, 1);
    tiara_plan_tmp(p, 1);
    for (int i = 1; i <= 100; i++)
        tiara_plan_reduce(p, i, at(0, TIARA_BUF_OUT, 0), srcs, 3);
    return tiara_plan_finish(p, 100);
}

START_TEST(test_builder_out_of_memory_is_reported_and_leaves_nothing)
{
    uint64_t live = tiara_alloc_live();
    enum tiara_err err = TIARA_ERR_NOMEM;
    char text[2048];
    int n = 0;

    tiara_test_stderr_begin();
    while (err != TIARA_OK) {
        struct tiara_plan p;

        tiara_alloc_fail_after((uint64_t)++n);
        err = build_many(&p);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        tiara_plan_fini(&p);
        ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_int_gt(n, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan builder");
    TCase *tcase = tcase_create("builder");

    tcase_add_test(tcase, test_builder_appends_are_kept_in_order);
    tcase_add_test(tcase, test_builder_empty_and_idle_ops_are_left_out);
    tcase_add_test(tcase, test_builder_errors_are_sticky);
    tcase_add_test(tcase, test_builder_embedded_plan_speaks_of_the_outer_ranks);
    tcase_add_test(tcase, test_builder_out_of_memory_is_reported_and_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
