/*
 * The library's private memory, with two counters for tests.
 *
 * Memory is taken when something is set up, never per chunk, so one mutex around the counters costs
 * nothing that matters and needs no argument about memory order.
 */
#include "base/alloc.h"
#include "base/log.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* Process-wide: a leak or a failing allocation belongs to the process, not to a communicator. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls_to_failure; /* 0: never fail; 1: fail, from now on */
static uint64_t live;

/* Counts down to the failure that a test asked for; true when this call is to fail. */
static bool is_failing(void)
{
    bool failing;

    pthread_mutex_lock(&lock);
    failing = calls_to_failure == 1;
    calls_to_failure -= calls_to_failure > 1;
    pthread_mutex_unlock(&lock);
    return failing;
}

/* Returns how many are alive after @change. */
static uint64_t live_add(int change)
{
    uint64_t now;

    pthread_mutex_lock(&lock);
    live += (uint64_t)(int64_t)change;
    now = live;
    pthread_mutex_unlock(&lock);
    return now;
}

/* Counts @ptr as alive, or logs why there is none. Callers above pass the failure on silently. */
static void *count_or_log(void *ptr, size_t n, size_t size)
{
    if (ptr != NULL)
        live_add(1);
    else
        tiara_error("out of memory: %zu items of %zu bytes", n, size);
    return ptr;
}

void *tiara_alloc(size_t n, size_t size)
{
    size_t bytes;
    void *ptr = NULL;

    if (is_failing())
        return NULL;
    if (!__builtin_mul_overflow(n, size, &bytes))
        ptr = calloc(1, bytes > 0 ? bytes : 1);
    return count_or_log(ptr, n, size);
}

void *tiara_alloc_aligned(size_t align, size_t bytes)
{
    void *ptr = NULL;

    if (is_failing())
        return NULL;
    if (posix_memalign(&ptr, align, bytes > 0 ? bytes : 1) != 0)
        ptr = NULL;
    return count_or_log(ptr, bytes, 1);
}

void *tiara_realloc(void *ptr, size_t n, size_t size)
{
    size_t bytes;
    void *grown = NULL;

    if (is_failing())
        return NULL;
    if (!__builtin_mul_overflow(n, size, &bytes))
        grown = realloc(ptr, bytes > 0 ? bytes : 1);
    if (ptr == NULL)
        return count_or_log(grown, n, size);
    if (grown == NULL)
        tiara_error("out of memory: growing to %zu items of %zu bytes", n, size);
    return grown;
}

void tiara_free(void *ptr)
{
    if (ptr == NULL)
        return;
    live_add(-1);
    free(ptr);
}

void tiara_alloc_fail_after(uint64_t n)
{
    pthread_mutex_lock(&lock);
    calls_to_failure = n;
    pthread_mutex_unlock(&lock);
}

uint64_t tiara_alloc_live(void)
{
    return live_add(0);
}
