/*
 * Private to lib/plan: arrays that grow.
 */
#ifndef TIARA_PLAN_ARRAY_H
#define TIARA_PLAN_ARRAY_H

#include "base/alloc.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * Room for one more item of @size behind the @n of an array of *@cap; @array is the address of its
 * pointer. False when memory ran out; then all is as it was. Doubling keeps appending cheap.
 */
static inline bool tiara_array_grow(void *array, int *cap, int n, size_t size)
{
    int want = *cap > 0 ? *cap : 16;
    void *items;

    memcpy(&items, array, sizeof(items));
    if (items != NULL && n < *cap)
        return true;
    if (n >= want && want <= INT_MAX / 2)
        want *= 2;
    items = n < want ? tiara_realloc(items, (size_t)want, size) : NULL;
    if (items == NULL)
        return false;
    memcpy(array, &items, sizeof(items));
    *cap = want;
    return true;
}

#endif
