/*
 * Memory kinds: every way to store into a cell moves exactly the bytes it was asked to.
 */
#include "test/harness/test.h"
#include "mem/mem.h"
#include <string.h>

static const enum tiara_store stores[] = {
    TIARA_STORE_PLAIN, TIARA_STORE_STREAM, TIARA_STORE_STRING};
static const size_t sizes[] = {
    0, 1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255, 1000, 4096, 70001};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

typedef void copy_fn(void *dst, const void *src, size_t bytes);

/* One copy between misaligned places, with guards. */
static void copy_check(
    copy_fn *copy, const char *what, size_t bytes, size_t dst_misalign, size_t src_misalign)
{
    struct tiara_test_guarded dst, src;

    tiara_test_guarded_init(&dst, bytes, dst_misalign);
    tiara_test_guarded_init(&src, bytes, src_misalign);
    for (size_t i = 0; i < bytes; i++)
        src.data[i] = (unsigned char)tiara_test_bits((int)bytes, i);
    copy(dst.data, src.data, bytes);
    ck_assert_msg(memcmp(dst.data, src.data, bytes) == 0 && tiara_test_guarded_is_intact(&dst) &&
                      tiara_test_guarded_is_intact(&src),
        "%s of %zu bytes, dst misaligned by %zu, src by %zu", what, bytes, dst_misalign,
        src_misalign);
    tiara_test_guarded_fini(&dst);
    tiara_test_guarded_fini(&src);
}

static void copy_check_all(copy_fn *copy, const char *what)
{
    for (size_t s = 0; s < LENGTH(sizes); s++)
        for (size_t misalign = 0; misalign < 66; misalign += misalign < 18 ? 1 : 15)
            copy_check(copy, what, sizes[s], misalign, (5 * misalign + s) % 64);
}

START_TEST(test_copy_moves_exactly_the_bytes)
{
    copy_check_all(tiara_mem_host.copy, "copy");
}
END_TEST

START_TEST(test_copy_to_cell_moves_exactly_the_bytes)
{
    static const size_t limits[] = {0, 64, 1000, SIZE_MAX};
    static const char *const names[] = {"plain", "stream", "string"};

    copy_check_all(tiara_mem_host.copy_to_cell, "copy to cell before a store was set");
    for (size_t s = 0; s < LENGTH(stores); s++)
        for (size_t i = 0; i < LENGTH(limits); i++) {
            tiara_mem_store_set(stores[s], limits[i]);
            copy_check_all(tiara_mem_host.copy_to_cell, names[s]);
        }
}
END_TEST

START_TEST(test_store_default_is_supported)
{
    ck_assert(tiara_mem_store_supported(TIARA_STORE_PLAIN));
    ck_assert(tiara_mem_store_supported(tiara_mem_store_default()));
    ck_assert_int_ne(tiara_mem_store_default(), TIARA_STORE_STREAM);
    ck_assert_int_eq(tiara_mem_store_default() == TIARA_STORE_STRING,
        tiara_mem_store_supported(TIARA_STORE_STRING));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mem");
    TCase *tcase = tcase_create("host");

    tcase_add_test(tcase, test_copy_moves_exactly_the_bytes);
    tcase_add_test(tcase, test_copy_to_cell_moves_exactly_the_bytes);
    tcase_add_test(tcase, test_store_default_is_supported);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
