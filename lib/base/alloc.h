/*
 * Private memory: the only malloc in the library.
 *
 * A test can make the n-th allocation from now fail (tiara_alloc_fail_after), and sweeps n over
 * every clean-up path. Every pointer is freed with tiara_free. Memory that is really out is logged
 * here, with the size; callers pass TIARA_ERR_NOMEM on silently.
 */
#ifndef TIARA_BASE_ALLOC_H
#define TIARA_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for @n >= 0 items of @size bytes; NULL also when n * size overflows. */
void *tiara_alloc(size_t n, size_t size);
/* The same, aligned to @align (a power of two >= sizeof(void *)); contents undefined. */
void *tiara_alloc_aligned(size_t align, size_t bytes);
/* Grow @ptr to @n items, contents kept, the new part not zeroed; NULL leaves @ptr as it was. */
void *tiara_realloc(void *ptr, size_t n, size_t size);
void tiara_free(void *ptr);

/* Tests: allocation number @n from now (1 = the next) and all after it fail; 0: none does. */
void tiara_alloc_fail_after(uint64_t n);
/* Tests: pieces of memory alive now. */
uint64_t tiara_alloc_live(void);

#endif
