/*
 * The wait of a communicator's calls: what it moves, and whether it can end at all.
 */
#ifndef TIARA_COMM_WATCH_H
#define TIARA_COMM_WATCH_H

#include "base/err.h"
#include "base/wait.h"

struct tiara_comm;

/* Prepares the wait of the call that begins: whose watchdog speaks. */
struct tiara_wait *tiara_watch_begin(struct tiara_comm *c);
/* For a wait that does not end: what messages that nobody asked for say of their senders' calls. */
TIARA_MUST_USE enum tiara_err tiara_watch_net(struct tiara_comm *c);
/* Tells the ranks that this one exchanges messages with that it leaves call @number; @revoke: as an
 * error, see tiara_state_leave. */
void tiara_watch_tell(struct tiara_comm *c, uint64_t number, bool revoke);

#endif
