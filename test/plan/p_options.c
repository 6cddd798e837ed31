/*
 * What an algorithm says about the options it reads is true: plans are kept and found again by it.
 */
#include "algo/algo.h"
#include "test/harness/test.h"
#include <stdlib.h>
#include <string.h>

static const char *const layouts[] = {"1x4", "2x3", "3+1", "2x2:rr", "3x1"};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* The plans of all ranks as text, with what generate said; to be freed. */
static char *plans_of(
    const struct tiara_algo *algo, const char *layout, const struct tiara_algo_opts *opts)
{
    struct tiara_layout l;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(to);
    ck_assert_int_eq(tiara_layout_parse(&l, layout, 0, NULL, 0), TIARA_OK);
    for (int r = 0; r < l.nranks; r++) {
        struct tiara_plan plan = {0};
        enum tiara_err err = tiara_algo_generate(algo, &l, r, opts, &plan);

        fprintf(to, "%d\n", (int)err);
        if (err == TIARA_OK)
            tiara_plan_print(&plan, to);
        tiara_plan_fini(&plan);
    }
    tiara_layout_fini(&l);
    fclose(to);
    return text;
}

static const int backwards[] = {3, 2, 1, 0}, three[] = {2, 1, 0}, two[] = {1, 0};

/* @opts with another value of @option; @nlocal: ranks of each node of the layout. */
static struct tiara_algo_opts changed(struct tiara_algo_opts opts, unsigned option, int nlocal)
{
    opts.leaders += option == TIARA_ALGO_OPT_LEADERS;
    if (option == TIARA_ALGO_OPT_INTER)
        opts.inter = tiara_algo_find("recursive-doubling");
    opts.one_shot ^= option == TIARA_ALGO_OPT_ONE_SHOT;
    opts.single_copy ^= option == TIARA_ALGO_OPT_SINGLE_COPY;
    opts.node_ring ^= option == TIARA_ALGO_OPT_NODE_RING;
    if (option == TIARA_ALGO_OPT_ORDER)
        opts.order = nlocal == 4 ? backwards : nlocal == 3 ? three : two;
    return opts;
}

/* Whether @option makes a difference to the plans of some call, and is told as such. */
static bool matters(const struct tiara_algo *algo, unsigned option)
{
    bool differs = false;

    for (size_t i = 0; i < 2 * NLAYOUTS * 3; i++) {
        const char *layout = layouts[i / 6];
        struct tiara_algo_opts a = {.coll = (enum tiara_coll)(i % 3), .node_ring = i / 3 % 2};
        struct tiara_algo_opts b = changed(a, option, i / 6 == 0 ? 4 : i / 6 == 1 ? 3 : 2);
        char *of_a = plans_of(algo, layout, &a), *of_b = plans_of(algo, layout, &b);
        bool same = strcmp(of_a, of_b) == 0;

        ck_assert_msg(same || !tiara_algo_opts_same(algo, &a, &b),
            "%s on %s: option %x makes a difference", algo->name, layout, option);
        differs |= !same;
        free(of_a);
        free(of_b);
    }
    return differs;
}

START_TEST(test_plans_depend_on_the_options_that_are_read)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];

    for (unsigned option = 1; option <= TIARA_ALGO_OPT_ORDER; option *= 2)
        ck_assert_msg(matters(algo, option) == !!(algo->reads & option), "%s: option %x %s",
            algo->name, option, algo->reads & option ? "makes no difference" : "is read");
}
END_TEST

START_TEST(test_plans_of_other_collectives_are_others)
{
    struct tiara_algo_opts a = {.coll = TIARA_COLL_ALLREDUCE}, b = {.coll = TIARA_COLL_ALLGATHER};

    ck_assert(!tiara_algo_opts_same(tiara_algo_table[_i], &a, &b));
    ck_assert(tiara_algo_opts_same(tiara_algo_table[_i], &a, &a));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("options");
    int n = 0;

    while (tiara_algo_table[n])
        n++;
    tcase_add_loop_test(tcase, test_plans_depend_on_the_options_that_are_read, 0, n);
    tcase_add_loop_test(tcase, test_plans_of_other_collectives_are_others, 0, n);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
