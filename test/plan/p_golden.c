/*
 * The text of a few small plans, as files in test/golden: a change of an algorithm shows as a
 * difference that a reader can follow. When it is meant, `tiara-plan print ALGO LAYOUT` writes the
 * new file.
 */
#include "test/plan/proof.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *file, *algo, *layout;
} rows[] = {
    {"ring-4x1.plan", "ring", "4x1"},
    {"recursive-doubling-5x1.plan", "recursive-doubling", "5x1"},
    {"direct-1x3.plan", "direct", "1x3"},
    {"node-ring-1x4.plan", "node-ring", "1x4"},
    {"hier-2x2.plan", "hier", "2x2"},
    {"hier-3+1.plan", "hier", "3+1"},
    {"hier-chain-2x2.plan", "hier-chain", "2x2"},
};
#define NROWS (int)(sizeof(rows) / sizeof(rows[0]))

/* The whole file, terminated; owned by the caller. */
static char *read_golden(const char *name)
{
    const char *source = getenv("TIARA_TEST_SOURCE");
    char path[4096], *text = NULL;
    size_t size = 0;
    FILE *from;
    FILE *to = open_memstream(&text, &size);
    int c;

    snprintf(path, sizeof(path), "%s/test/golden/%s", source != NULL ? source : ".", name);
    from = fopen(path, "r");
    ck_assert_msg(from != NULL, "cannot read %s; TIARA_TEST_SOURCE names the source tree", path);
    while ((c = fgetc(from)) != EOF)
        fputc(c, to);
    fclose(from);
    fclose(to);
    return text;
}

/* The plans of all ranks, one after the other, without dependencies. */
static char *print_plans(const struct tiara_algo *algo, const char *text)
{
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_layout layout;
    char *printed = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&printed, &size);

    ck_assert_ptr_nonnull(to);
    ck_assert(tiara_layout_parse(&layout, text, 0, NULL, 0) == TIARA_OK);
    for (int r = 0; r < layout.nranks; r++) {
        struct tiara_plan plan;

        ck_assert(tiara_algo_generate(algo, &layout, r, &opts, &plan) == TIARA_OK);
        tiara_plan_print(&plan, to);
        tiara_plan_fini(&plan);
    }
    fclose(to);
    tiara_layout_fini(&layout);
    return printed;
}

START_TEST(test_golden_plan_is_unchanged)
{
    const struct tiara_algo *algo = tiara_algo_find(rows[_i].algo);
    char *golden, *printed;

    ck_assert_ptr_nonnull(algo);
    golden = read_golden(rows[_i].file);
    printed = print_plans(algo, rows[_i].layout);
    ck_assert_msg(strcmp(golden, printed) == 0, "%s is now:\n%s", rows[_i].file, printed);
    free(golden);
    free(printed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("golden plans");
    TCase *tcase = tcase_create("golden");

    tcase_add_loop_test(tcase, test_golden_plan_is_unchanged, 0, NROWS);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
