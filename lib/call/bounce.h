/*
 * Bounce buffers: copies in host memory of a call's buffers in GPU memory, for what goes to an MPI
 * that knows no GPU memory, and for types with holes, which MPI packs.
 */
#ifndef TIARA_CALL_BOUNCE_H
#define TIARA_CALL_BOUNCE_H

#include "call/call.h"

/* Of a buffer in host memory: itself. */
struct tiara_bounce {
    void *buf; /* what to give to MPI */
    void *user;
    char *copy; /* NULL: host memory */
    MPI_Aint first; /* bytes from user to the lowest touched one */
    size_t bytes;
};

/* Whether @buf is MPI_IN_PLACE, null or in host memory: then nothing has to be done for it. */
bool tiara_bounce_is_host(const void *buf);
/* The same for both buffers of a call. */
bool tiara_bounce_is_host_call(const struct tiara_call *call);

/*
 * @fetch: the copy has the contents of [@count] elements of @type at @buf; else it has them only
 * where the type has holes.
 * Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS, TIARA_ERR_MPI. Close accepts the object after them.
 */
TIARA_MUST_USE enum tiara_err tiara_bounce_open(struct tiara_comm *c, struct tiara_bounce *b,
    const void *buf, size_t count, MPI_Datatype type, bool fetch);
/* The copy has the contents once more. */
TIARA_MUST_USE enum tiara_err tiara_bounce_fetch(
    struct tiara_comm *c, const struct tiara_bounce *b);
/* Writes the copy back. */
TIARA_MUST_USE enum tiara_err tiara_bounce_store(
    struct tiara_comm *c, const struct tiara_bounce *b);
/* Without writing anything back. */
void tiara_bounce_drop(struct tiara_bounce *b);

/* Both buffers of a call, of which there are two. */
struct tiara_bounces {
    struct tiara_bounce in, out;
    struct tiara_args user; /* the caller's, while the call has the copies */
};

/* Puts copies in the place of @call's buffers, with its input. Errors: as above; the call has its
 * own buffers then. */
TIARA_MUST_USE enum tiara_err tiara_bounces_open(
    struct tiara_comm *c, struct tiara_bounces *b, struct tiara_call *call);
/* Puts the call's own buffers back; @store: with the result. Accepts a zeroed object. */
TIARA_MUST_USE enum tiara_err tiara_bounces_close(
    struct tiara_comm *c, struct tiara_bounces *b, struct tiara_call *call, bool store);

#endif
