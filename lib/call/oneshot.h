/*
 * The shortest way of the commonest call.
 */
#ifndef TIARA_CALL_ONESHOT_H
#define TIARA_CALL_ONESHOT_H

#include "base/log.h"
#include "call/call.h"

/* Whether calls up to c->fast_max bytes may take it now. */
static inline bool tiara_oneshot_is_fast(const struct tiara_comm *c, size_t bytes)
{
    return bytes <= c->fast_max && !c->arena->dead && !tiara_log_enabled(TIARA_LOG_DEBUG) &&
           !(c->device.possible && (tiara_device() || c->ncalls + 1 >= c->device.next_agreement));
}
/*
 * An all-reduce of @count native elements of host memory on one node, at most c->fast_max bytes,
 * without asking what to choose. Errors: as a call that was left.
 */
TIARA_MUST_USE enum tiara_err tiara_oneshot_fast(
    struct tiara_comm *c, const struct tiara_elem *elem, const void *in, void *out, size_t count);

#endif
