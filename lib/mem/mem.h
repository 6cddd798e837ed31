/*
 * The seam of memory kinds: how bytes move. One row per kind (host now).
 *
 * Copies into exposed memory ("cells") have their own entry: lines that another core has read are
 * slow to write with ordinary stores on some machines (they are fetched first) and not on others,
 * so which store instruction writes a cell, from which size up, is chosen at start-up.
 */
#ifndef TIARA_MEM_MEM_H
#define TIARA_MEM_MEM_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct tiara_mem {
    /* Private to private, or from a cell. No overlap; no side may be NULL unless bytes is 0. */
    void (*copy)(void *dst, const void *src, size_t bytes);
    /* Into a cell that peers read next: done before any later release store of this thread. */
    void (*copy_to_cell)(void *dst, const void *src, size_t bytes);
};

extern const struct tiara_mem tiara_mem_host;

enum tiara_store {
    TIARA_STORE_PLAIN, /* ordinary stores */
    TIARA_STORE_STREAM, /* non-temporal stores and a fence */
    TIARA_STORE_STRING /* rep movsb (enhanced rep movsb machines) */
};
/*
 * What copy_to_cell uses from @from_bytes up (PLAIN where @store is not supported). Process-wide;
 * set once by comm before any arena is used; until then: ordinary stores.
 */
void tiara_mem_store_set(enum tiara_store store, size_t from_bytes);
/* What this CPU does well, from CPUID: STRING where enhanced rep movsb exists, else PLAIN. */
enum tiara_store tiara_mem_store_default(void);
bool tiara_mem_store_supported(enum tiara_store store);

#endif
