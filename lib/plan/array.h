/*
 * Private to lib/plan: arrays that grow.
 */
#ifndef TIARA_PLAN_ARRAY_H
#define TIARA_PLAN_ARRAY_H

#include "base/alloc.h"
#include <limits.h>
#include <stddef.h>

/*
 * @array, perhaps moved, with room for @need items of @item_size; *@cap says for how many. NULL
 * when memory ran out; then @array and *@cap are as they were. Doubling keeps appending cheap.
 */
static inline void *tiara_array_reserve(void *array, int *cap, int need, size_t item_size)
{
    int want = *cap > 0 ? *cap : 16;
    void *moved;

    if (array != NULL && need <= *cap)
        return array;
    while (want < need) {
        if (want > INT_MAX / 2)
            return NULL;
        want *= 2;
    }
    moved = tiara_realloc(array, (size_t)want, item_size);
    if (moved != NULL)
        *cap = want;
    return moved;
}

#endif
