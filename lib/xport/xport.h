/*
 * The seam of transports: exposing memory to peers, and messages.
 *
 * A transport does one or more of:
 *   expose   every rank has a segment of the same size that all others read in place (base)
 *   get      copy from the memory of a peer's process
 *   message  send and receive contiguous bytes, matched by (peer, tag) in order
 *
 * Context: each transport object is used by one thread at a time. No entry blocks but open, which
 * is collective over the group, and close where all ranks close together. The caller allocates
 * @size bytes, zeroed, for the object; close accepts an object whose open failed.
 */
#ifndef TIARA_XPORT_XPORT_H
#define TIARA_XPORT_XPORT_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the members of a group exchange a few bytes at set-up: in[bytes] of every member ends in
 * out[size * bytes] on all, in group order. Collective; given by the layer above. */
struct tiara_xport_group {
    int rank; /* own position in the group */
    int size;
    enum tiara_err (*allgather)(void *arg, const void *in, void *out, size_t bytes);
    void *arg;
    const void *params; /* what the implementation needs besides: see below */
};

/* How the ranks part that have an object together: set by the caller before close. */
enum tiara_xport_end {
    TIARA_XPORT_END_TOGETHER, /* all ranks close now */
    TIARA_XPORT_END_ALONE, /* each when it comes by; nothing is under way */
    TIARA_XPORT_END_BROKEN /* each when it comes by; messages may still arrive */
};

/* What every object begins with; filled by open. */
struct tiara_xport_head {
    void **base; /* [size of the group] the ranks' segments; NULL: nothing is exposed */
    uint32_t tag_bits; /* MESSAGE: tags are below 1 << tag_bits; at least 15 */
    enum tiara_xport_end end;
    uint64_t sent; /* messages that were started */
};

/* @peer's segment in this address space (own one too); valid until own close. Only the own one may
 * be written: a peer's may be mapped read-only. NULL when nothing is exposed. */
static inline void *tiara_xport_base(const void *x, int peer)
{
    const struct tiara_xport_head *head = x;

    return head->base != NULL ? head->base[peer] : NULL;
}

/*
 * Tags with the highest bit are not for plans: the first few of them are for control messages, what
 * a rank says about itself to others that may wait for something else; the next for agreements.
 */
#define TIARA_XPORT_CONTROLS 8u
static inline uint32_t tiara_xport_control(uint32_t tag_bits, unsigned kind)
{
    return (1u << (tag_bits - 1)) + kind;
}
static inline bool tiara_xport_is_control(uint32_t tag_bits, uint32_t tag)
{
    return tag - tiara_xport_control(tag_bits, 0) < TIARA_XPORT_CONTROLS;
}

/* A message in flight; owned by the caller, who keeps it at its place until test says done. */
struct tiara_xport_req {
    void *handle[2]; /* private to the implementation */
    size_t len;
    int peer;
    bool done;
};

#define TIARA_XPORT_EXPOSE 0x1u /* segments */
#define TIARA_XPORT_GET 0x2u /* get from any address of a peer's process */
#define TIARA_XPORT_MESSAGE 0x4u /* send, recv, test, cancel, probe */
#define TIARA_XPORT_PROCESSES 0x8u /* ranks may be processes of one machine */
#define TIARA_XPORT_NODES 0x10u /* and of several machines */
/* It is the MPI below: its thread level holds for messages, and what memory it takes. */
#define TIARA_XPORT_BELOW 0x20u

struct tiara_xport {
    const char *name;
    unsigned flags;
    size_t size; /* bytes of an object */
    /*
     * Collective over @group, which is borrowed until return; ends in a collective AND: all
     * succeed, or all get the same error, hold nothing and may try another transport. The local
     * cause is logged where it was detected, as info, since another way exists;
     * TIARA_ERR_UNSUPPORTED as debug. @expose_bytes: size of each rank's segment, equal on all,
     * aligned to 4096 and zero-filled; 0: none.
     * TIARA_ERR_NOSPACE, TIARA_ERR_UNSUPPORTED, TIARA_ERR_SYS, TIARA_ERR_MPI, TIARA_ERR_NOMEM.
     */
    enum tiara_err (*open)(void *x, const struct tiara_xport_group *group, size_t expose_bytes);
    /*
     * Also after an open that failed, and on a zeroed object. No request should be in flight: an
     * MPI may go on writing to its buffer. Collective only when head.end says so. @x NULL: no more
     * objects; frees what was kept for the next ones, at MPI_Finalize.
     */
    void (*close)(void *x);
    /*
     * dst[0..len) <- @peer's process memory at @addr; the peer may be oneself. Complete on return.
     * Without GET: NULL entry. Errors: TIARA_ERR_SYS (a bad address), TIARA_ERR_PEER (the peer is
     * gone); dst is then undefined.
     */
    enum tiara_err (*get)(void *x, int peer, uint64_t addr, void *dst, size_t len);
    /*
     * Start a message; @req given to the transport until done. Equal tags from one peer match in
     * order. @buf is borrowed until done. May set req->done at once. A send to oneself is allowed.
     * After an error @req is not in flight. Without MESSAGE: NULL entries.
     * @req NULL: a message of no bytes that nobody asks about again. It leaves at once where the
     * network takes it, else while the object is used.
     * Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS, TIARA_ERR_MPI.
     */
    enum tiara_err (*send)(
        void *x, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req);
    enum tiara_err (*recv)(
        void *x, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req);
    /*
     * Sets req->done when complete, also when it completes with an error; drives progress of the
     * whole object. Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS, TIARA_ERR_MPI;
     * TIARA_ERR_MISMATCH, at the receiver: the lengths differ, the buffer is undefined, the message
     * is consumed. The transport mpi may write beyond a buffer that is too short: see its file.
     */
    enum tiara_err (*test)(void *x, struct tiara_xport_req *req);
    /* Gives up a message that is in flight, after an error: a receive writes nothing from here on,
     * a send may still reach the peer. Sets req->done. Without MESSAGE: NULL entry. */
    void (*cancel)(void *x, struct tiara_xport_req *req);
    /* Whether a message of @peer has arrived that no receive has asked for; it stays. *tag_out: its
     * tag; that of a control message if there is one, else of the oldest. Drives progress. Without
     * MESSAGE: NULL entry. */
    bool (*probe)(void *x, int peer, uint32_t *tag_out);
};

/*
 * TIARA_OK when all members say TIARA_OK, else the error of the first that does not. Collective;
 * allocates nothing. Also orders memory: what a member wrote before it, all see after it.
 * Errors: the agreed one; TIARA_ERR_UNSUPPORTED when there are more than 4096; the exchange's.
 */
TIARA_MUST_USE enum tiara_err tiara_xport_agree(
    const struct tiara_xport_group *group, enum tiara_err mine);

/*
 * What group->params points to: shm: NULL, or what tests say (xport_priv.h). Rows with MESSAGE and
 * PROCESSES: a const MPI_Comm, whose ranks are the group's, all of whom are in open. Others:
 * nothing.
 */
extern const struct tiara_xport tiara_xport_shm; /* memfd per rank: EXPOSE */
extern const struct tiara_xport tiara_xport_cma; /* process_vm_readv: GET */
extern const struct tiara_xport tiara_xport_mpi; /* PMPI point-to-point: MESSAGE */
/* Datagrams: MESSAGE. Only the programs of tests have it; for others the table ends there. */
extern const struct tiara_xport tiara_xport_socket __attribute__((weak));

/* All of them, NULL-terminated, the better of two before the other. */
extern const struct tiara_xport *const tiara_xport_table[];
/* The first that can all of @flags. */
const struct tiara_xport *tiara_xport_find(unsigned flags);
/* At MPI_Finalize, when all objects are closed. */
void tiara_xport_release(void);

#endif
