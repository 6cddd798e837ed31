/*
 * The text form: what is printed, that it is read back the same, and what the reader says of text
 * that it cannot read.
 */
#include "base/alloc.h"
#include "test/harness/test.h"
#include "test/plan/plan_set.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All plans of @set, one after the other. The caller frees the text. */
static char *print_set(const struct plan_set *set)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    for (int r = 0; r < set->layout.nranks; r++)
        tiara_plan_print(&set->plans[r], to);
    fclose(to);
    return text;
}

static enum tiara_err parse_text(struct tiara_plan *p, const char *text, char *why, size_t size)
{
    FILE *from = fmemopen((void *)text, strlen(text), "r");
    enum tiara_err err = tiara_plan_parse(p, from, why, size);

    fclose(from);
    return err;
}

START_TEST(test_text_every_kind_is_printed)
{
    struct plan_set set;
    char *text;

    plan_set_sample_named(&set, "two-level");
    set.layout.nranks = 1;
    text = print_set(&set);
    ck_assert_str_eq(text, "plan allreduce rank 0 of 4 blocks 2 tmp 1 steps 5\n"
                           "step 1  copy   cell[0..1] <- in[0..1]\n"
                           "step 2  reduce cell[0] <- cell[0] 1:cell[0]\n"
                           "step 3  send   2 <- cell[0]\n"
                           "step 3  recv   2 -> tmp[0]\n"
                           "step 4  reduce cell[0] <- cell[0] tmp[0]\n"
                           "step 5  copy   out[0] <- cell[0]\n"
                           "step 5  copy   out[1] <- 1:cell[1]\n"
                           "end\n");
    free(text);
    set.layout.nranks = 4;
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    set.layout.nranks = 1;
    text = print_set(&set);
    ck_assert_str_eq(text, "plan allreduce rank 0 of 4 blocks 2 tmp 1 steps 5\n"
                           "step 1  copy   cell[0..1] <- in[0..1] ; wait 1@0 ; post 1 after 0\n"
                           "step 2  reduce cell[0] <- cell[0] 1:cell[0] ; wait 1@1\n"
                           "step 3  send   2 <- cell[0]\n"
                           "step 3  recv   2 -> tmp[0]\n"
                           "step 4  reduce cell[0] <- cell[0] tmp[0] ; await 2 ; post 4 after 0\n"
                           "step 5  copy   out[0] <- cell[0]\n"
                           "step 5  copy   out[1] <- 1:cell[1] ; wait 1@4 ; post 5 after 2\n"
                           "end\n");
    free(text);
    set.layout.nranks = 4;
    plan_set_fini(&set);
}
END_TEST

START_TEST(test_text_is_read_back_the_same)
{
    struct plan_set set, again;
    struct tiara_plan_report report;
    char why[200], *text, *text2;
    FILE *from;

    plan_set_sample(&set, &plan_samples[_i]);
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    text = print_set(&set);
    from = fmemopen(text, strlen(text), "r");
    plan_set_init(&again, plan_samples[_i].layout);
    for (int r = 0; r < set.layout.nranks; r++)
        ck_assert_msg(
            tiara_plan_parse(&again.plans[r], from, why, sizeof(why)) == TIARA_OK, "%s", why);
    ck_assert_int_eq(fgetc(from), EOF);
    fclose(from);
    text2 = print_set(&again);
    ck_assert_str_eq(text, text2);
    /* The proof looks at every number that the text holds, and at the waits. */
    ck_assert_int_eq(plan_set_check(&again, false, &report), TIARA_OK);
    for (int r = 0; r < set.layout.nranks; r++) {
        ck_assert_int_eq(again.plans[r].nwaits, set.plans[r].nwaits);
        ck_assert_int_eq(again.plans[r].nasync, set.plans[r].nasync);
        ck_assert_int_eq(again.plans[r].exit_nwait, set.plans[r].exit_nwait);
        ck_assert_int_eq(again.plans[r].single_copy, set.plans[r].single_copy);
    }
    free(text2);
    free(text);
    plan_set_fini(&again);
    plan_set_fini(&set);
}
END_TEST

#define HEAD "plan allgather rank 1 of 2 blocks 2 tmp 0 steps 3\n"

static const struct refusal {
    const char *text;
    const char *why;
} refusals[] = {
    {"", "line 1: the file ends where plan should be"},
    {"\n", "line 1: the line ends where plan should be"},
    {"plan scan rank 0 of 1 blocks 1 tmp 0 steps 1\nend\n",
        "line 1: \"scan\" where a collective should be"},
    {"plan allreduce rank x of 1", "line 1: \"x\" where the number after \"rank\" should be"},
    {"plan allreduce rank -1 of 1", "line 1: \"-1\" where the number after \"rank\" should be"},
    {"plan allreduce rank 99999999999 of 1",
        "line 1: \"99999999999\" where the number after \"rank\""},
    {"plan allreduce rank 0 of 1 blocks 1 tmp 0 steps 1 fast\n",
        "\"fast\" where the end of the line"},
    {HEAD, "line 2: the file ends where step or end should be"},
    {HEAD "stop\n", "line 2: \"stop\" where step or end should be"},
    {HEAD "step 1 move out[0] <- in[0]\n",
        "line 2: \"move\" where copy, reduce, send or recv should be"},
    {HEAD "step 1 copy out[0] <- in[0] in[1]\n",
        "line 2: the line ends where one source only should be"},
    {HEAD "step 1 copy out[0] -> in[0]\n", "line 2: \"->\" where <- should be"},
    {HEAD "step 1 copy out[1..0] <- in[0]\n", "line 2: \"out[1..0]\" where a slice"},
    {HEAD "step 1 copy out[0 <- in[0]\n", "line 2: \"out[0\" where a slice"},
    {HEAD "step 1 copy heap[0] <- in[0]\n", "line 2: \"heap[0]\" where a slice"},
    {HEAD "step 1 copy out[0] <-\n", "line 2: the line ends where a slice"},
    {HEAD "step 1 send out[0]\n", "line 2: \"out[0]\" where a peer should be"},
    {HEAD "step 1 copy out[0] <- out[0]\nend\n", "where an op that does something should be"},
    {HEAD "step 2 recv 0 -> out[0]\nstep 1 recv 0 -> out[1]\nend\n",
        "line 3: the line ends where an op of the same or a later step"},
    {HEAD "step 1 recv 0 -> out[0] ; wait 3\n", "line 2: \"3\" where a wait (peer@step) should be"},
    {HEAD "step 1 recv 0 -> out[0] ; stay 3\n", "line 2: \"stay\" where post should be"},
    {HEAD "step 4 recv 0 -> out[0]\nend\n", "where a plan of as many steps as its first line says"},
    {HEAD "step 1 recv 0 -> out[0]\nend of it\n",
        "line 3: \"of\" where the end of the line should be"},
};
#define NREFUSALS (sizeof(refusals) / sizeof(refusals[0]))

START_TEST(test_text_that_is_no_plan_is_explained)
{
    struct tiara_plan p;
    uint64_t live = tiara_alloc_live();
    char why[200], logged[400];

    tiara_test_stderr_begin();
    ck_assert_int_eq(parse_text(&p, refusals[_i].text, why, sizeof(why)), TIARA_ERR_ARG);
    ck_assert_int_eq(parse_text(&p, refusals[_i].text, NULL, 0), TIARA_ERR_ARG);
    tiara_test_stderr_end(logged, sizeof(logged));
    ck_assert_msg(
        strstr(why, refusals[_i].why) != NULL, "says \"%s\", not \"%s\"", why, refusals[_i].why);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

START_TEST(test_text_out_of_memory_is_reported_and_leaves_nothing)
{
    struct plan_set set;
    struct tiara_plan p;
    enum tiara_err err = TIARA_ERR_NOMEM;
    uint64_t live;
    char why[200], logged[4000], *text;
    int n = 0;

    plan_set_sample_named(&set, "two-shot");
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    text = print_set(&set);
    live = tiara_alloc_live();
    tiara_test_stderr_begin();
    while (err != TIARA_OK) {
        tiara_alloc_fail_after((uint64_t)++n);
        err = parse_text(&p, text, why, sizeof(why));
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        if (err != TIARA_OK)
            ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    tiara_test_stderr_end(logged, sizeof(logged));
    ck_assert_int_gt(n, 3);
    tiara_plan_fini(&p);
    free(text);
    plan_set_fini(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan text");
    TCase *tcase = tcase_create("text");

    tcase_add_test(tcase, test_text_every_kind_is_printed);
    tcase_add_loop_test(tcase, test_text_is_read_back_the_same, 0, (int)PLAN_NSAMPLES);
    tcase_add_loop_test(tcase, test_text_that_is_no_plan_is_explained, 0, (int)NREFUSALS);
    tcase_add_test(tcase, test_text_out_of_memory_is_reported_and_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
