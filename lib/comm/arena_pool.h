/*
 * The arenas of this process, shared by communicators of the same node group.
 */
#ifndef TIARA_COMM_ARENA_POOL_H
#define TIARA_COMM_ARENA_POOL_H

#include "base/err.h"
#include <stddef.h>

struct tiara_comm;
struct tiara_boot;
struct tiara_pool_entry;

/*
 * tiara_pool_take() - the arena of @c's node group: shared with other communicators of the same
 * group, or a new one
 * Collective over @c->comm; the same result everywhere. Sets c->pool, c->arena and c->cma, which
 * stay NULL when none could be had.
 * Errors: TIARA_ERR_MPI, TIARA_ERR_NOMEM (then all fall back); lack of shared memory is no error.
 */
TIARA_MUST_USE enum tiara_err tiara_pool_take(struct tiara_comm *c, const struct tiara_boot *boot);
void tiara_pool_give(struct tiara_pool_entry *entry);
/* Frees what nobody uses; at MPI_Finalize. */
void tiara_pool_clear(void);
/* Bytes of shared memory that this process's segments hold now. */
size_t tiara_pool_bytes(void);

#endif
