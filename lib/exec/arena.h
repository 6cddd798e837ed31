/*
 * The arena: a node's shared memory, one segment per node rank, and what each rank keeps beside it.
 *
 * Layout of a rank's segment (writer: its owner alone; readers: all node peers):
 *
 *   offset            size              field     what
 *   0                 64                progress  one 64-bit word per slot: base + steps done, only
 *                                                 grows
 *   128               4                 sleeping  1 while the owner sleeps on a futex
 *   256               8                 failed    the communicator and call that the owner gave up,
 *                                                 0 none
 *   384               40                desc      the owner's current call, for error messages;
 *                                                 addresses for gets
 *   512               8                 kind      the owner's current call, its digest, and whether
 *                                                 its buffers are device memory
 *   640               8                finished  posted calls: all up to this number are over for
 *                                                the owner
 *   4096              16 strides        small     small slots, taken in turn by the call's sequence
 *                                                 number: head
 *                                                   (sequence number, digest), payload; the first
 *                                                   48 bytes of payload share the head's cache
 *                                                   line; of posted calls, desc at the end
 *   page after them   slots x cell      cells     one cell per chunk in flight, taken in turn
 *
 * Why small slots can be overwritten. Two would be enough: a rank writes call n's slot after it
 * finished call n - 1, for which it needed something that every peer (or, with a leader, the leader
 * for its peers) wrote in call n - 1 and hence after it had read everything of call n - 2. There
 * are more, and cells are taken in turn, for speed: lines that still are in the reader's
 * first-level cache take almost twice as long to write (measured on a virtual Intel Xeon).
 *
 * Posted calls (posted.c) are published before earlier ones are over, so that there nothing follows
 * from a peer's having published: a rank overwrites the slot of call n - 16 when the finished words
 * of all peers say that they are through with it.
 *
 * Why stale reads are harmless. A reader compares the head's sequence number with its own: anything
 * but equality means "not yet". Progress words are compared with >=, and never decrease.
 *
 * Memory order. [arena.head]: the payload and digest are written before the head's sequence number
 * is released; a reader acquires it before it reads them. [arena.progress]: all effects of the ops
 * of the steps that a progress word counts precede its release; a peer acquires it before it reads
 * a cell, or before it overwrites one that the peer has read. [arena.finished]: all reads of the
 * slots of the calls that the word counts precede its release; a peer acquires it before it
 * overwrites its slot.
 */
#ifndef TIARA_EXEC_ARENA_H
#define TIARA_EXEC_ARENA_H

#include "base/err.h"
#include "base/sync.h"
#include "base/wait.h"
#include "exec/exec.h"
#include "mem/mem.h"
#include "redop/redop.h"
#include "xport/xport.h"

#define TIARA_ARENA_SMALL_MAX 32768 /* most payload bytes of a small slot */

/* Distance of two small slots: not a power of two, so that their heads do not share one set of a
 * cache. */
#define TIARA_ARENA_SMALL_STRIDE (TIARA_ARENA_SMALL_MAX + 128)
#define TIARA_ARENA_SMALL_SLOTS 16

struct tiara_arena_head {
    tiara_u64 seq;
    uint32_t digest;
    uint32_t bytes; /* payload that follows */
};

/* What a rank is doing, for the messages of peers, and for gets; published by the head of the same
 * call. */
struct tiara_arena_desc {
    uint64_t in_addr, out_addr; /* for single-copy plans */
    uint64_t count;
    uint32_t elem_size;
    int32_t coll; /* enum tiara_coll */
    int32_t type; /* enum tiara_type, -1: some other type */
    int32_t oper; /* enum tiara_operator, -1: some other operator */
};

struct tiara_arena_ctl {
    _Alignas(TIARA_LINE) tiara_u64 progress[TIARA_SLOTS];
    _Alignas(TIARA_LINE) tiara_u32 sleeping;
    _Alignas(TIARA_LINE) tiara_u64 failed;
    _Alignas(TIARA_LINE) struct tiara_arena_desc desc;
    _Alignas(TIARA_LINE) tiara_u64 kind;
    _Alignas(TIARA_LINE) tiara_u64 finished;
};

struct tiara_arena {
    int index; /* own position among the node's ranks */
    int size;
    size_t cell_bytes;
    uint64_t seq; /* calls so far, alike on all node ranks */
    uint64_t base[TIARA_SLOTS]; /* alike on all node ranks */
    size_t next_slot; /* that the next chunk takes; alike on all node ranks */
    struct tiara_arena_ctl **ctl; /* [size] peers' (read-only) and own */
    char **small; /* [size] first small slot */
    char **cells; /* [size] first cell */
    uint64_t *seen; /* [size * TIARA_SLOTS] last progress read from each peer */
    uint64_t *checked; /* [size] call whose digest was compared with the peer's */
    const void **srcs; /* [size] scratch: sources of a fold */
    const int *world_rank; /* [size] for messages; borrowed, may be NULL */
    tiara_u32 **sleepers; /* [size - 1] the peers' sleeping flags */
    uint32_t digest; /* of the call that runs */
    uint32_t comm_id; /* of its communicator */
    /* its number on that communicator, alike on all ranks; one call may take several sequence
     * numbers */
    uint64_t call;
    struct tiara_wait wait;
    const struct tiara_xport *xport;
    void *xport_obj;
    bool posted; /* used by posted calls only: tiara_posted_... */
    bool dead; /* a call failed in it; the sequence numbers of its ranks may differ */
};

/* Bytes of one segment whose cells are @cell_bytes each. */
size_t tiara_arena_bytes(size_t cell_bytes);

/*
 * tiara_arena_open() - make the node's segments through @xport (EXPOSE)
 * Collective over @group; all ranks get the same result. @cell_bytes a multiple of 4096 (0: small
 * slots only). @arena is zeroed memory of the caller's; close accepts it after failure too.
 */
TIARA_MUST_USE enum tiara_err tiara_arena_open(struct tiara_arena *arena,
    const struct tiara_xport *xport, const struct tiara_xport_group *group, size_t cell_bytes);
void tiara_arena_close(struct tiara_arena *arena);

/*
 * Begins call number ++seq; @desc is what peers may print and get from once the head is published.
 */
static inline void tiara_arena_begin(
    struct tiara_arena *a, uint32_t digest, const struct tiara_arena_desc *desc)
{
    a->seq++;
    a->digest = digest;
    a->ctl[a->index]->desc = *desc;
}

static inline struct tiara_arena_head *tiara_arena_head(
    const struct tiara_arena *a, int peer, uint64_t seq)
{
    return (struct tiara_arena_head *)(void *)(a->small[peer] + (seq % TIARA_ARENA_SMALL_SLOTS) *
                                                                    TIARA_ARENA_SMALL_STRIDE);
}
static inline char *tiara_arena_payload(struct tiara_arena_head *head)
{
    return (char *)(head + 1);
}

/* The desc of a posted call, behind the largest payload of slots @stride bytes apart. */
static inline struct tiara_arena_desc *tiara_arena_slot_desc(
    struct tiara_arena_head *head, size_t stride)
{
    return (struct tiara_arena_desc *)(void *)((char *)head + stride - 64);
}

/* Publishes own head of the current call; @payload is already in place. */
static inline void tiara_arena_publish(struct tiara_arena *a, size_t bytes)
{
    struct tiara_arena_head *head = tiara_arena_head(a, a->index, a->seq);

    head->digest = a->digest;
    head->bytes = (uint32_t)bytes;
    /* [arena.head] release: payload, digest and desc are visible to a peer that acquires this
     * sequence number. */
    tiara_store_release(&head->seq, a->seq);
    tiara_wait_wake(&a->wait, &head->seq);
}

/*
 * Waits until @peer has published the current call. TIARA_ERR_MISMATCH when its digest differs
 * (logged with both calls).
 */
TIARA_MUST_USE enum tiara_err tiara_arena_await(struct tiara_arena *a, int peer);
/* The same without waiting: false when @peer has not published, and @on is its head. */
bool tiara_arena_poll(
    struct tiara_arena *a, int peer, struct tiara_wait_on *on, enum tiara_err *err_out);

/*
 * Device memory on some ranks of a node and host memory on others: each rank says, in the current
 * call, what it has. Who has host memory goes on without looking; who has device memory awaits all,
 * and does as the others do unless all have it. A rank's word stays until its next call, which
 * needs a contribution of every rank that might still look at it.
 * Errors: TIARA_ERR_MISMATCH (logged with both calls), those of the wait.
 */
void tiara_arena_say_kind(struct tiara_arena *a, bool device);
TIARA_MUST_USE enum tiara_err tiara_arena_await_kinds(struct tiara_arena *a, bool *all_device_out);

/* Compares the digest of @peer, which has published the current call; logs both calls when they
 * differ. */
TIARA_MUST_USE enum tiara_err tiara_arena_compare(struct tiara_arena *a, int peer);

/*
 * Tells the peers that this rank takes part in the arena no more. @innocent: not because the
 * current call failed, but because the arena was given up by a call on another communicator; then
 * peers get TIARA_ERR_UNSUPPORTED.
 */
void tiara_arena_fail(struct tiara_arena *a, bool innocent);

/*
 * The last call on the current communicator that a rank of the node took part in before it failed
 * or left, as its distance from call @call: negative when it lies before. Of several ranks the one
 * that ended first counts. Returns false when all peers are still there.
 */
bool tiara_arena_last_call(const struct tiara_arena *a, uint64_t call, int64_t *after_out);

/*
 * For a wait that does not end: TIARA_ERR_MISMATCH when a peer called differently, TIARA_ERR_PEER
 * when it gave up this call, TIARA_ERR_UNSUPPORTED when it left the arena for another reason: then
 * no result has been written, and the call can go another way.
 * @first: also logs which peers have not come to the current call.
 */
TIARA_MUST_USE enum tiara_err tiara_arena_inspect(
    struct tiara_arena *a, double waited_s, bool first);

/* What peer @i's having given up means for the current call: TIARA_OK, it has not; TIARA_ERR_PEER;
 * TIARA_ERR_UNSUPPORTED as below. */
TIARA_MUST_USE enum tiara_err tiara_arena_has_left(const struct tiara_arena *a, int i);
/* The rank that a message names for node index @i. */
int tiara_arena_shown_rank(const struct tiara_arena *a, int i);
/* Ends in "rank 2 called allreduce of ..." for both: TIARA_ERR_MISMATCH, or what a peer that left
 * gave. Logged. */
TIARA_MUST_USE enum tiara_err tiara_arena_disagree(const struct tiara_arena *a, int peer,
    const struct tiara_arena_desc *mine, const struct tiara_arena_desc *its);
/* A few words of @d for messages, into text[size]. */
void tiara_arena_describe(const struct tiara_arena_desc *d, char *text, size_t size);

/* ---- small calls: small.c ---- */

/*
 * All-gather of a few bytes in a call of its own: in[bytes] of every rank ends in out[size *
 * bytes]. @bytes <= TIARA_ARENA_SMALL_MAX.
 */
TIARA_MUST_USE enum tiara_err tiara_small_gather(
    struct tiara_arena *a, const void *in, void *out, size_t bytes);

/* The bits that all ranks of the node give, in a call of its own. Errors: those of the wait. */
TIARA_MUST_USE enum tiara_err tiara_small_and(
    struct tiara_arena *a, uint64_t mine, uint64_t *all_out);

struct tiara_small_call {
    const struct tiara_redop *op;
    const struct tiara_mem *mem;
    const void *in; /* may equal out */
    void *out;
    size_t count;
    size_t bytes; /* count * element size, <= TIARA_ARENA_SMALL_MAX */
};

/*
 * One-shot all-reduce of a node: every rank publishes its vector and folds all of them in rank
 * order.
 */
TIARA_MUST_USE enum tiara_err tiara_small_node(
    struct tiara_arena *a, const struct tiara_small_call *call);

/* Puts the input back into @call->out, in place, for another way: it still is in the own small
 * slot. */
void tiara_small_restore(struct tiara_arena *a, const struct tiara_small_call *call);

/*
 * The same for a caller that does not wait: publish, then poll until it says so. @peer: 0 at first;
 * all before it have published. True: the result is in call->out, or an error in *err_out;
 * otherwise @on is what is waited for. Errors: as tiara_arena_await.
 */
void tiara_small_publish(struct tiara_arena *a, const struct tiara_small_call *call);
bool tiara_small_poll(struct tiara_arena *a, const struct tiara_small_call *call, int *peer,
    struct tiara_wait_on *on, enum tiara_err *err_out);
/*
 * Two levels, where node index 0 speaks for its node: it does not publish its vector, but keeps its
 * input in its small slot when in place, polls, combines call->out with the other nodes', and
 * publishes the result; the others publish their vectors and take the result, as poll.
 */
void tiara_small_keep(struct tiara_arena *a, const struct tiara_small_call *call);
void tiara_small_publish_result(struct tiara_arena *a, const struct tiara_small_call *call);
bool tiara_small_take_result(struct tiara_arena *a, const struct tiara_small_call *call,
    struct tiara_wait_on *on, enum tiara_err *err_out);

/* ---- posted calls: posted.c ---- */

/*
 * Calls that nobody waits in, several of them under way: each carries its own number, alike on all
 * ranks of the node, in the order in which they were posted. Small ones are complete when all peers
 * have published them. One at a time may be a plan's.
 *
 * The slots that they take in turn are all of the arena's, or a part that holds two: then only one
 * call is under way at a time, as those of one persistent request.
 */
struct tiara_posted_ring {
    size_t offset, stride; /* bytes */
    int nslots;
};
#define TIARA_POSTED_ALL                                                                           \
    ((struct tiara_posted_ring){0, TIARA_ARENA_SMALL_STRIDE, TIARA_ARENA_SMALL_SLOTS})

/* A part of an arena: units that it may begin at. A mask of them fits in a word. */
#define TIARA_POSTED_UNITS 64
/* The units that two slots for @bytes of payload take. */
int tiara_posted_units(size_t bytes);
/* The part of two slots that begins with unit @first. */
struct tiara_posted_ring tiara_posted_part(int first, int nunits);
/* Empties a part that was another call's. No peer looks at it before all have done that. */
void tiara_posted_clear(struct tiara_arena *a, const struct tiara_posted_ring *ring);

struct tiara_posted {
    struct tiara_posted_ring ring;
    uint64_t seq;
    uint32_t digest;
    struct tiara_arena_desc desc;
    int peer; /* small: all before it have published */
};

/* Whether all ranks are through with the slot that @p takes. */
bool tiara_posted_has_slot(struct tiara_arena *a, const struct tiara_posted *p);
/* Publishes a small call. Its slot is free. */
void tiara_posted_publish(
    struct tiara_arena *a, const struct tiara_posted *p, const struct tiara_small_call *call);
/*
 * True when the small call is over: the result is in call->out, or it failed. Never waits.
 * Errors: TIARA_ERR_MISMATCH (logged with both calls), those of the fold.
 */
bool tiara_posted_poll(struct tiara_arena *a, struct tiara_posted *p,
    const struct tiara_small_call *call, enum tiara_err *err_out);
/* Makes @p, whose slot is free, the arena's current call, for a plan. */
void tiara_posted_begin(struct tiara_arena *a, const struct tiara_posted *p);
/* All calls up to @seq, which take all slots, are over for this rank. */
void tiara_posted_finish(struct tiara_arena *a, uint64_t seq);
/*
 * Whether @p can still end: TIARA_ERR_MISMATCH when a peer called differently, TIARA_ERR_PEER when
 * one gave up. @first: also logs who has not started it, as tiara_arena_inspect.
 */
TIARA_MUST_USE enum tiara_err tiara_posted_inspect(
    struct tiara_arena *a, const struct tiara_posted *p, double waited_s, bool first);

#endif
