/*
 * The partition into blocks, against its defining properties: the blocks cover everything once and
 * in order, start at multiples of the alignment, and are as equal as that allows.
 */
#include "test/harness/test.h"
#include "base/block.h"

/* Checks all blocks of one partition. */
static void partition_check(size_t n, size_t nblocks, size_t align)
{
    size_t next = 0, smallest = SIZE_MAX, largest = 0;

    for (size_t i = 0; i < nblocks; i++) {
        struct tiara_range block = tiara_block_range(n, nblocks, i, align);

        ck_assert_msg(block.first == next,
            "n %zu nblocks %zu align %zu block %zu begins at %zu, not %zu", n, nblocks, align, i,
            block.first, next);
        ck_assert(block.first % align == 0 || block.first == n);
        next = block.first + block.count;
        /* the block that ends with the last element may be cut, those behind it are empty */
        if (next < n || block.count % align == 0) {
            smallest = block.count < smallest ? block.count : smallest;
            largest = block.count > largest ? block.count : largest;
        }
    }
    ck_assert_msg(next == n, "n %zu nblocks %zu align %zu covers %zu", n, nblocks, align, next);
    if (smallest != SIZE_MAX)
        ck_assert_msg(largest - smallest <= align, "n %zu nblocks %zu align %zu: sizes %zu to %zu",
            n, nblocks, align, smallest, largest);
}

START_TEST(test_block_small_numbers_partition)
{
    for (size_t n = 0; n < 70; n++)
        for (size_t nblocks = 1; nblocks < 20; nblocks++)
            for (size_t align = 1; align < 20; align++)
                partition_check(n, nblocks, align);
}
END_TEST

START_TEST(test_block_random_numbers_partition)
{
    struct tiara_test_random random = {tiara_test_seed()};

    for (int i = 0; i < 2000; i++) {
        size_t n = tiara_test_random_below(&random, UINT64_C(1) << 40);
        size_t nblocks = 1 + tiara_test_random_below(&random, 300);
        size_t align = UINT64_C(1) << tiara_test_random_below(&random, 13);

        partition_check(n, nblocks, align);
    }
}
END_TEST

START_TEST(test_block_examples_are_exact)
{
    struct tiara_range block = tiara_block_range(10, 4, 1, 1);

    ck_assert(block.first == 3 && block.count == 3);
    block = tiara_block_range(10, 4, 3, 1);
    ck_assert(block.first == 8 && block.count == 2);
    block = tiara_block_range(10, 4, 3, 4);
    ck_assert(block.count == 0);
    block = tiara_block_range(100, 3, 1, 16);
    ck_assert(block.first == 48 && block.count == 32);
    block = tiara_block_range(100, 3, 2, 16);
    ck_assert(block.first == 80 && block.count == 20);
}
END_TEST

START_TEST(test_block_near_the_largest_size_does_not_overflow)
{
    partition_check(SIZE_MAX - 1, 2, 1);
    partition_check(SIZE_MAX / 2, 7, 64);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base block");
    TCase *tcase = tcase_create("block");

    tcase_add_test(tcase, test_block_small_numbers_partition);
    tcase_add_test(tcase, test_block_random_numbers_partition);
    tcase_add_test(tcase, test_block_examples_are_exact);
    tcase_add_test(tcase, test_block_near_the_largest_size_does_not_overflow);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
