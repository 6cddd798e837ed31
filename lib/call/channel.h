/*
 * The memory of persistent calls on one node.
 *
 * Persistent requests are started in any order, another one on each rank. So each has a place of
 * its own in shared memory, a channel, which the request's own calls take in turn. Channels of
 * small calls are parts of an arena that all requests of a communicator share; it lives as long as
 * the last of them.
 */
#ifndef TIARA_CALL_CHANNEL_H
#define TIARA_CALL_CHANNEL_H

#include "call/call.h"

struct tiara_segment; /* an arena of channels, and the twin state that it belongs to */

struct tiara_channel {
    struct tiara_segment *segment; /* NULL: there is no channel */
    struct tiara_comm *twin; /* of the segment, borrowed */
    struct tiara_posted_ring ring;
    uint64_t units; /* mask of the parts that it has */
};

/* Whether calls like @call fit into a channel. Alike on all ranks. */
bool tiara_channel_fits(const struct tiara_comm *c, const struct tiara_call *call);
/*
 * Takes a channel for calls like @call, on all ranks or on none. @ready: this rank has what else it
 * takes. Collective over @c->comm, at set-up. Errors: TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_channel_open(struct tiara_comm *c,
    const struct tiara_call *call, bool ready, struct tiara_channel *channel_out);
/* Local: its last call is over for this rank. */
void tiara_channel_close(struct tiara_channel *channel);
/* @c is freed: its channels live on. */
void tiara_channels_part(struct tiara_comm *c);

#endif
