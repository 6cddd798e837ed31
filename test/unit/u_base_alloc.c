/*
 * Private memory: overflow, the failure that a test asks for, and the count of pieces alive.
 */
#include "test/harness/test.h"
#include "base/alloc.h"
#include <pthread.h>
#include <string.h>

START_TEST(test_alloc_memory_is_zeroed_and_counted)
{
    uint64_t live = tiara_alloc_live();
    unsigned char *used = tiara_alloc(100, 3), *a, *b;

    /* so that the heap has something to hand out that is not zero */
    memset(used, 0xff, 300);
    tiara_free(used);
    a = tiara_alloc(100, 3);
    b = tiara_alloc(0, 8);
    ck_assert(a != NULL && b != NULL);
    for (int i = 0; i < 300; i++)
        ck_assert_uint_eq(a[i], 0);
    ck_assert_uint_eq(tiara_alloc_live(), live + 2);
    tiara_free(a);
    tiara_free(b);
    tiara_free(NULL);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

START_TEST(test_alloc_overflow_fails_and_is_logged)
{
    /* the product is 4 when it overflows unnoticed; volatile hides the mistake from the compiler */
    volatile size_t huge = SIZE_MAX / 4 + 2;
    uint64_t live = tiara_alloc_live();
    void *kept = tiara_alloc(1, 1);
    char text[1024];

    tiara_test_stderr_begin();
    ck_assert_ptr_null(tiara_alloc(huge, 4));
    ck_assert_ptr_null(tiara_realloc(NULL, huge, 4));
    ck_assert_ptr_null(tiara_realloc(kept, 4, huge));
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "out of memory: 4611686018427387905 items of 4 bytes"));
    tiara_free(kept);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

START_TEST(test_alloc_aligned_is_aligned)
{
    for (size_t align = sizeof(void *); align <= 1 << 21; align *= 2) {
        void *ptr = tiara_alloc_aligned(align, align == 64 ? 0 : 100);

        ck_assert_ptr_nonnull(ptr);
        ck_assert_uint_eq((uintptr_t)ptr % align, 0);
        tiara_free(ptr);
    }
}
END_TEST

START_TEST(test_alloc_realloc_keeps_contents_and_count)
{
    uint64_t live = tiara_alloc_live();
    uint64_t *items = tiara_realloc(NULL, 10, sizeof(*items));

    for (size_t i = 0; i < 10; i++)
        items[i] = tiara_test_bits(1, i);
    items = tiara_realloc(items, 100000, sizeof(*items));
    ck_assert_uint_eq(tiara_alloc_live(), live + 1);
    for (size_t i = 0; i < 10; i++)
        ck_assert_uint_eq(items[i], tiara_test_bits(1, i));
    tiara_alloc_fail_after(1);
    ck_assert_ptr_null(tiara_realloc(items, 200000, sizeof(*items)));
    tiara_alloc_fail_after(0);
    ck_assert_uint_eq(items[9], tiara_test_bits(1, 9));
    tiara_free(items);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

/* Takes four pieces, at least one of each kind; true when all were had. Frees what it got. */
static bool four_take(void)
{
    void *a = tiara_alloc(1, 8);
    void *b = tiara_alloc_aligned(64, 8);
    void *c = tiara_realloc(NULL, 1, 8);
    void *d = tiara_alloc(1, 8);
    bool all = a != NULL && b != NULL && c != NULL && d != NULL;

    /* once failing, always failing: a later piece is never had when an earlier one is not */
    ck_assert(!(a == NULL && b != NULL) && !(b == NULL && c != NULL) && !(c == NULL && d != NULL));
    tiara_free(a);
    tiara_free(b);
    tiara_free(c);
    tiara_free(d);
    return all;
}

START_TEST(test_alloc_fail_sweep_ends_at_the_number_of_allocations)
{
    uint64_t live = tiara_alloc_live(), n = 1;

    for (; n < 10; n++) {
        bool all;

        tiara_alloc_fail_after(n);
        all = four_take();
        tiara_alloc_fail_after(0);
        ck_assert_uint_eq(tiara_alloc_live(), live);
        if (all)
            break;
    }
    ck_assert_uint_eq(n, 5);
    ck_assert(four_take());
}
END_TEST

static void *many_take(void *arg)
{
    for (int i = 0; i < 20000; i++)
        tiara_free(tiara_alloc(1, 8));
    return arg;
}

START_TEST(test_alloc_threads_keep_the_count)
{
    uint64_t live = tiara_alloc_live();
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, many_take, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base alloc");
    TCase *tcase = tcase_create("alloc");

    tcase_add_test(tcase, test_alloc_memory_is_zeroed_and_counted);
    tcase_add_test(tcase, test_alloc_overflow_fails_and_is_logged);
    tcase_add_test(tcase, test_alloc_aligned_is_aligned);
    tcase_add_test(tcase, test_alloc_realloc_keeps_contents_and_count);
    tcase_add_test(tcase, test_alloc_fail_sweep_ends_at_the_number_of_allocations);
    tcase_add_test(tcase, test_alloc_threads_keep_the_count);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
