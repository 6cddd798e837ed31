/*
 * Layouts: the normal form, every form of text, and what an unacceptable text is told.
 */
#include "test/harness/test.h"
#include "base/alloc.h"
#include "base/layout.h"
#include <stdio.h>
#include <string.h>

/* Every array of @l against its definition, from node_of alone. */
static void layout_check(const struct tiara_layout *l)
{
    int seen = 0, min_local = l->nranks, max_local = 0;

    for (int rank = 0; rank < l->nranks; rank++) {
        int local = 0;

        ck_assert_int_le(l->node_of[rank], seen);
        seen += l->node_of[rank] == seen;
        for (int below = 0; below < rank; below++)
            local += l->node_of[below] == l->node_of[rank];
        ck_assert_int_eq(l->local_of[rank], local);
        ck_assert_int_eq(tiara_layout_rank(l, l->node_of[rank], local), rank);
    }
    ck_assert_int_eq(l->nnodes, seen);
    ck_assert_int_eq(l->node_start[0], 0);
    ck_assert_int_eq(l->node_start[l->nnodes], l->nranks);
    for (int node = 0; node < l->nnodes; node++) {
        int size = 0;

        for (int rank = 0; rank < l->nranks; rank++)
            size += l->node_of[rank] == node;
        ck_assert_int_eq(tiara_layout_local_size(l, node), size);
        min_local = size < min_local ? size : min_local;
        max_local = size > max_local ? size : max_local;
    }
    ck_assert_int_eq(l->min_local, min_local);
    ck_assert_int_eq(l->max_local, max_local);
}

/* @text must be the placement @node_of[nranks]. */
static void text_check(const char *text, int nranks, const int *node_of, bool is_block)
{
    struct tiara_layout l;
    char why[200];

    for (int given = 0; given <= nranks; given += nranks) {
        ck_assert_int_eq(tiara_layout_parse(&l, text, given, why, sizeof(why)), TIARA_OK);
        ck_assert_str_eq(why, "");
        ck_assert_int_eq(l.nranks, nranks);
        for (int rank = 0; rank < nranks; rank++)
            ck_assert_msg(l.node_of[rank] == node_of[rank], "%s: rank %d is on node %d", text, rank,
                l.node_of[rank]);
        layout_check(&l);
        ck_assert(tiara_layout_is_block(&l) == is_block);
        tiara_layout_fini(&l);
    }
}

START_TEST(test_layout_every_form_is_parsed)
{
    text_check("2x3", 6, (int[]){0, 0, 0, 1, 1, 1}, true);
    text_check("3x2:rr", 6, (int[]){0, 1, 2, 0, 1, 2}, false);
    text_check("1x1", 1, (int[]){0}, true);
    text_check("1x3:rr", 3, (int[]){0, 0, 0}, true);
    text_check("3+1", 4, (int[]){0, 0, 0, 1}, true);
    text_check("1+2+3", 6, (int[]){0, 1, 1, 2, 2, 2}, true);
    text_check("4", 4, (int[]){0, 0, 0, 0}, true);
    text_check("0,0,1,1,0", 5, (int[]){0, 0, 1, 1, 0}, false);
    text_check("7,7,3,9,3", 5, (int[]){0, 0, 1, 2, 1}, false);
    text_check("5,2", 2, (int[]){0, 1}, true);
}
END_TEST

/* @text for @nranks ranks must be refused with the sentence @expected. */
static void refusal_check(const char *text, int nranks, const char *expected)
{
    struct tiara_layout l;
    char why[200];

    ck_assert_int_eq(tiara_layout_parse(&l, text, nranks, why, sizeof(why)), TIARA_ERR_ARG);
    ck_assert_str_eq(why, expected);
    ck_assert_int_eq(tiara_layout_parse(&l, text, nranks, NULL, 0), TIARA_ERR_ARG);
    tiara_layout_fini(&l);
}

START_TEST(test_layout_bad_form_is_explained)
{
    static const char *const texts[] = {"", "x", "2x", "x4", "2x4:", "2x4:rrr", "2x4x2", "2 x4",
        "3+", "+3", "3+1,", "3++1", "0,", ",0", "0,0+1", "-1,0", "a", "2x4 ", "2X4", "0x10:rr "};
    char expected[200];

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        snprintf(expected, sizeof(expected),
            "layout \"%s\": expected NODESxRANKS such as 2x4, SIZES such as 3+1, or one node "
            "number "
            "per rank such as 0,0,1,1",
            texts[i]);
        refusal_check(texts[i], 0, expected);
    }
}
END_TEST

START_TEST(test_layout_bad_number_is_explained)
{
    refusal_check("2x2", 6, "layout \"2x2\" has 4 ranks, the communicator has 6");
    refusal_check("0,1", 1, "layout \"0,1\" has 2 ranks, the communicator has 1");
    refusal_check("1", 3, "layout \"1\" has 1 rank, the communicator has 3");
    refusal_check("0x4", 4, "layout \"0x4\": there must be at least one node of at least one rank");
    refusal_check("4x0", 0, "layout \"4x0\": there must be at least one node of at least one rank");
    refusal_check("3+0+1", 4, "layout \"3+0+1\": a node must have at least one rank");
    refusal_check(
        "1025x1024", 0, "layout \"1025x1024\" has a number or a sum of ranks above 1048576");
    refusal_check("99999999999999999999x1", 0,
        "layout \"99999999999999999999x1\" has a number or a sum of ranks above 1048576");
    refusal_check(
        "1048576+1", 0, "layout \"1048576+1\" has a number or a sum of ranks above 1048576");
}
END_TEST

START_TEST(test_layout_long_text_is_quoted_in_part)
{
    char text[2001], why[200];
    struct tiara_layout l;

    for (int i = 0; i < 1000; i++)
        memcpy(text + 2 * i, "7,", 3);
    ck_assert_int_eq(tiara_layout_parse(&l, text, 0, why, sizeof(why)), TIARA_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(why, ",7,...\": expected NODESxRANKS"));
    text[1999] = '\0';
    ck_assert_int_eq(tiara_layout_parse(&l, text, 1000, why, sizeof(why)), TIARA_OK);
    ck_assert_int_eq(l.nnodes, 1);
    tiara_layout_fini(&l);
}
END_TEST

START_TEST(test_layout_random_colours_have_one_normal_form)
{
    struct tiara_test_random random = {tiara_test_seed()};

    for (int round = 0; round < 200; round++) {
        int nranks = 1 + (int)tiara_test_random_below(&random, 40);
        uint64_t nnodes = 1 + tiara_test_random_below(&random, 12);
        uint64_t a[40], b[40];
        struct tiara_layout la, lb;

        for (int rank = 0; rank < nranks; rank++) {
            uint64_t node = tiara_test_random_below(&random, nnodes);

            a[rank] = tiara_test_bits(1, node);
            b[rank] = tiara_test_bits(2, node);
        }
        ck_assert_int_eq(tiara_layout_init(&la, nranks, a), TIARA_OK);
        ck_assert_int_eq(tiara_layout_init(&lb, nranks, b), TIARA_OK);
        layout_check(&la);
        for (int x = 0; x < nranks; x++)
            for (int y = 0; y < nranks; y++)
                ck_assert((la.node_of[x] == la.node_of[y]) == (a[x] == a[y]));
        ck_assert_int_eq(memcmp(la.node_of, lb.node_of, (size_t)nranks * sizeof(int)), 0);
        tiara_layout_fini(&la);
        tiara_layout_fini(&lb);
    }
}
END_TEST

START_TEST(test_layout_out_of_memory_leaves_nothing)
{
    uint64_t live = tiara_alloc_live(), n = 1;
    enum tiara_err err = TIARA_ERR_NOMEM;

    for (; err != TIARA_OK; n++) {
        struct tiara_layout l;

        tiara_alloc_fail_after(n);
        err = tiara_layout_parse(&l, "1+2+30+400", 0, NULL, 0);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        tiara_layout_fini(&l);
        ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    ck_assert_uint_gt(n, 3);
}
END_TEST

START_TEST(test_layout_fini_accepts_zeroed_and_refused)
{
    struct tiara_layout l = {0};
    uint64_t colour = 0;

    tiara_layout_fini(&l);
    ck_assert_int_eq(tiara_layout_init(&l, 0, &colour), TIARA_ERR_ARG);
    tiara_layout_fini(&l);
    tiara_layout_fini(&l);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base layout");
    TCase *tcase = tcase_create("layout");

    tcase_add_test(tcase, test_layout_every_form_is_parsed);
    tcase_add_test(tcase, test_layout_bad_form_is_explained);
    tcase_add_test(tcase, test_layout_bad_number_is_explained);
    tcase_add_test(tcase, test_layout_long_text_is_quoted_in_part);
    tcase_add_test(tcase, test_layout_random_colours_have_one_normal_form);
    tcase_add_test(tcase, test_layout_out_of_memory_leaves_nothing);
    tcase_add_test(tcase, test_layout_fini_accepts_zeroed_and_refused);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
