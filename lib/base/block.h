/*
 * The one partition of n things into blocks.
 *
 * Every place in Tiara that splits elements into chunks, chunks into blocks or blocks into stripes
 * calls tiara_block_range(), so that two ranks can never disagree about a boundary.
 */
#ifndef TIARA_BASE_BLOCK_H
#define TIARA_BASE_BLOCK_H

#include <stddef.h>

struct tiara_range {
    size_t first;
    size_t count;
};

/*
 * Block @i of @n things cut into @nblocks consecutive blocks whose starts are multiples of @align.
 * The blocks cover 0..n-1 exactly once, in order; sizes differ by at most @align (but for the last
 * non-empty one, which may be shorter). align 1 gives the plain balanced split. 0 <= i < nblocks.
 */
static inline struct tiara_range tiara_block_range(size_t n, size_t nblocks, size_t i, size_t align)
{
    size_t units = n / align + (n % align != 0);
    size_t base = units / nblocks, extra = units % nblocks;
    size_t first = (base * i + (i < extra ? i : extra)) * align;
    size_t count = (base + (i < extra)) * align;
    if (first > n)
        first = n;
    if (count > n - first)
        count = n - first;
    return (struct tiara_range){first, count};
}

/*
 * Block @i of @n things cut into @nblocks blocks of one length, a multiple of @align, but for the
 * last non-empty one, which may be shorter, and those after it, which are empty. The longest block
 * is as long as in the balanced split; and since all before the tail are equal, a run of blocks has
 * the same inner boundaries wherever it is stored.
 */
static inline struct tiara_range tiara_block_uniform(
    size_t n, size_t nblocks, size_t i, size_t align)
{
    size_t units = n / align + (n % align != 0);
    size_t len = (units / nblocks + (units % nblocks != 0)) * align;
    size_t first = len * i < n ? len * i : n;
    size_t count = len < n - first ? len : n - first;
    return (struct tiara_range){first, count};
}

#endif
