/*
 * The arena: a node's shared memory, one segment per node rank, and what each rank keeps beside it.
 *
 * Layout of a rank's segment (writer: its owner alone; readers: all node peers):
 *
 *   offset            size          field     what
 *   0                 64            progress  a word per slot: base + steps done, only grows
 *   128               4             sleeping  1 while the owner sleeps on a futex
 *   256               8             failed    communicator and call that the owner gave up; 0 none
 *   384               8             kind      its current call and digest, and whether its buffers
 *                                             are device memory
 *   512               8             finished  posted calls: up to this number over for the owner
 *   4096              16 strides    small     small slots, taken in turn by the call's sequence
 *                                             number: head (sequence number, digest); payload, its
 *                                             first 48 bytes in the head's line; desc at the end
 *   page after them   slots x cell  cells     one per chunk in flight, taken in turn
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
 * Memory order. Before [arena.head] is released with the sequence number, payload, digest and desc
 * are written; before [arena.progress], all effects of the ops of the steps that it counts; before
 * [arena.finished], all reads of the slots of the calls that it counts. A peer acquires the word
 * before it reads what was written, or overwrites what was read.
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

/* Not a power of two, so that the heads do not share one set of a cache. */
#define TIARA_ARENA_SMALL_STRIDE (TIARA_ARENA_SMALL_MAX + 128)
#define TIARA_ARENA_SMALL_SLOTS 16
/* Where small slots and cells begin: on pages. */
#define TIARA_ARENA_SMALL_AT 4096
#define TIARA_ARENA_CELLS_AT                                                                       \
    ((TIARA_ARENA_SMALL_AT + TIARA_ARENA_SMALL_SLOTS * TIARA_ARENA_SMALL_STRIDE + 4095) / 4096 *   \
        (size_t)4096)

struct tiara_arena_head {
    tiara_u64 seq;
    uint32_t digest;
    uint32_t unused;
};

/* What a rank is doing, for the messages of peers, and for gets. */
struct tiara_arena_desc {
    uint64_t in_addr, out_addr; /* for single-copy plans */
    uint64_t count;
    uint32_t elem_size;
    int32_t coll; /* enum tiara_coll */
    int32_t type; /* enum tiara_type, -1: some other type */
    int32_t oper; /* enum tiara_operator, -1: some other operator */
};

/* The first page of a segment. */
struct tiara_arena_ctl {
    _Alignas(TIARA_LINE) tiara_u64 progress[TIARA_SLOTS];
    _Alignas(TIARA_LINE) tiara_u32 sleeping;
    _Alignas(TIARA_LINE) tiara_u64 failed;
    _Alignas(TIARA_LINE) tiara_u64 kind;
    _Alignas(TIARA_LINE) tiara_u64 finished;
};

/* What a rank has heard of a peer. */
struct tiara_arena_known {
    uint64_t progress[TIARA_SLOTS]; /* last words read */
    uint64_t checked; /* call whose digest was compared with the peer's */
};

struct tiara_arena {
    int index; /* own position among the node's ranks */
    int size;
    size_t cell_bytes;
    uint64_t seq; /* calls so far, alike on all node ranks */
    uint64_t base[TIARA_SLOTS]; /* alike on all node ranks */
    size_t next_slot; /* that the next chunk takes; alike on all node ranks */
    struct tiara_arena_ctl **ctl; /* [size] segments: peers' (read-only) and own */
    struct tiara_arena_known *known; /* [size] */
    const void **srcs; /* [size] scratch: sources of a fold */
    const int *world_rank; /* [size] for messages; borrowed, may be NULL */
    tiara_u32 **sleepers; /* [size - 1] the peers' sleeping flags */
    uint32_t digest; /* of the call that runs */
    uint32_t comm_id; /* of its communicator */
    uint64_t call; /* its number there, alike on all ranks; it may take several sequence numbers */
    struct tiara_wait wait;
    const struct tiara_xport *xport;
    void *xport_obj;
    bool posted; /* used by posted calls only: tiara_posted_... */
    bool dead; /* a call failed in it; the sequence numbers of its ranks may differ */
};

/* Bytes of one segment whose cells are @cell_bytes each. */
static inline size_t tiara_arena_bytes(size_t cell_bytes)
{
    return TIARA_ARENA_CELLS_AT + TIARA_SLOTS * cell_bytes;
}

/*
 * tiara_arena_open() - make the node's segments through @xport (EXPOSE)
 * Collective over @group; all ranks get the same result. @cell_bytes a multiple of 4096 (0: small
 * slots only). @arena is zeroed memory of the caller's; close accepts it after failure too.
 */
TIARA_MUST_USE enum tiara_err tiara_arena_open(struct tiara_arena *arena,
    const struct tiara_xport *xport, const struct tiara_xport_group *group, size_t cell_bytes);
void tiara_arena_close(struct tiara_arena *arena);

/*
 * The slots that calls take in turn: all of the arena's, or a part that holds two. Then only one
 * call is under way at a time, as those of one persistent request.
 */
struct tiara_posted_ring {
    size_t offset, stride; /* bytes */
    int nslots; /* a power of two */
};
#define TIARA_POSTED_ALL                                                                           \
    ((struct tiara_posted_ring){0, TIARA_ARENA_SMALL_STRIDE, TIARA_ARENA_SMALL_SLOTS})

/* A call as it stands in the slots. */
struct tiara_posted {
    struct tiara_posted_ring ring;
    uint64_t seq;
    uint32_t digest;
    struct tiara_arena_desc desc;
    int peer; /* small: all before it have published */
};

/* Where rank index @i has call @seq of @ring. */
static inline struct tiara_arena_head *tiara_posted_head(
    const struct tiara_arena *a, const struct tiara_posted_ring *ring, int i, uint64_t seq)
{
    size_t slot = seq & (uint64_t)(ring->nslots - 1);

    return (struct tiara_arena_head *)(void *)((char *)a->ctl[i] + TIARA_ARENA_SMALL_AT +
                                               ring->offset + slot * ring->stride);
}
/* The same for calls that take all slots. */
static inline struct tiara_arena_head *tiara_arena_head(
    const struct tiara_arena *a, int i, uint64_t seq)
{
    return tiara_posted_head(a, &TIARA_POSTED_ALL, i, seq);
}
static inline char *tiara_arena_payload(struct tiara_arena_head *head)
{
    return (char *)(head + 1);
}
/* Behind the largest payload of slots @stride bytes apart. */
static inline struct tiara_arena_desc *tiara_arena_slot_desc(
    struct tiara_arena_head *head, size_t stride)
{
    return (struct tiara_arena_desc *)(void *)((char *)head + stride - 64);
}
/* That of rank index @i in the current call, which it has published. */
static inline struct tiara_arena_desc *tiara_arena_desc_of(const struct tiara_arena *a, int i)
{
    return tiara_arena_slot_desc(tiara_arena_head(a, i, a->seq), TIARA_ARENA_SMALL_STRIDE);
}
/* The cell of rank index @i in @slot. */
static inline char *tiara_arena_cell(const struct tiara_arena *a, int i, int slot)
{
    return (char *)a->ctl[i] + TIARA_ARENA_CELLS_AT + (size_t)slot * a->cell_bytes;
}

/* Begins call number ++seq; peers may print and get from @desc once the head is published. */
static inline void tiara_arena_begin(
    struct tiara_arena *a, uint32_t digest, const struct tiara_arena_desc *desc)
{
    a->seq++;
    a->digest = digest;
    *tiara_arena_desc_of(a, a->index) = *desc;
}

/* Publishes call @seq in the own slot @head, where payload and desc are in place. */
static inline void tiara_arena_head_publish(
    struct tiara_arena *a, struct tiara_arena_head *head, uint64_t seq, uint32_t digest)
{
    head->digest = digest;
    /* [arena.head] release: payload, digest and desc are visible to a peer that acquires this
     * sequence number. */
    tiara_store_release(&head->seq, seq);
    tiara_wait_wake(&a->wait, &head->seq);
}
/* The current call. */
static inline void tiara_arena_publish(struct tiara_arena *a)
{
    tiara_arena_head_publish(a, tiara_arena_head(a, a->index, a->seq), a->seq, a->digest);
}

/* Waits until @peer has published the current call. TIARA_ERR_MISMATCH when its digest differs
 * (logged with both calls). */
TIARA_MUST_USE enum tiara_err tiara_arena_await(struct tiara_arena *a, int peer);
/* The same without waiting: false when @peer has not published, and @on is its head. */
bool tiara_arena_poll(
    struct tiara_arena *a, int peer, struct tiara_wait_on *on, enum tiara_err *err_out);
/* @peer has called something else than this rank, in the current call or in @p: says what, unless
 * it left and counts otherwise now. */
TIARA_MUST_USE enum tiara_err tiara_arena_disagree(const struct tiara_arena *a, int peer);
TIARA_MUST_USE enum tiara_err tiara_posted_disagree(
    const struct tiara_arena *a, const struct tiara_posted *p, int peer);
/* Compares the digest of @peer, which has published the current call. Errors: as await. */
TIARA_MUST_USE static inline enum tiara_err tiara_arena_compare(struct tiara_arena *a, int peer)
{
    a->known[peer].checked = a->seq;
    if (__builtin_expect(tiara_arena_head(a, peer, a->seq)->digest == a->digest, 1))
        return TIARA_OK;
    return tiara_arena_disagree(a, peer);
}

/*
 * Device memory on some ranks of a node and host memory on others: each rank says, in the current
 * call, what it has. Who has host memory goes on without looking; who has device memory awaits all,
 * and does as the others do unless all have it. A rank's word stays until its next call, which
 * needs a contribution of every rank that might still look at it.
 * Errors: TIARA_ERR_MISMATCH (logged with both calls), those of the wait.
 */
void tiara_arena_say_kind(struct tiara_arena *a, bool device);
TIARA_MUST_USE enum tiara_err tiara_arena_await_kinds(struct tiara_arena *a, bool *all_device_out);

/* Tells the peers that this rank takes part in the arena no more. @innocent: not because the
 * current call failed, but because one on another communicator gave it up. */
void tiara_arena_fail(struct tiara_arena *a, bool innocent);

/* The last call on the current communicator that a rank of the node took part in before it failed
 * or left (of several ranks, the one that ended first), as its distance from @call: negative when
 * it lies before. False when all peers are still there. */
bool tiara_arena_last_call(const struct tiara_arena *a, uint64_t call, int64_t *after_out);

/* What rank index @i's having given up means for the current call: TIARA_OK, it has not;
 * TIARA_ERR_PEER, it gave up this call; TIARA_ERR_UNSUPPORTED, it left the arena for another
 * reason: then no result has been written, and the call can go another way. */
TIARA_MUST_USE enum tiara_err tiara_arena_has_left(const struct tiara_arena *a, int i);

/* For a wait of the current call that does not end: what a comparison with those who came, or
 * tiara_arena_has_left, says of any peer. @first: also logs which peers have not come. */
TIARA_MUST_USE enum tiara_err tiara_arena_inspect(
    struct tiara_arena *a, double waited_s, bool first);

/* ---- small calls: small.c ---- */

/* All-gather of up to TIARA_ARENA_SMALL_MAX bytes, in a call of its own: in[bytes] of every rank
 * ends in out[size * bytes]. Errors: those of the wait. */
TIARA_MUST_USE enum tiara_err tiara_small_gather(
    struct tiara_arena *a, const void *in, void *out, size_t bytes);

/* The bits that all ranks of the node give; as gather. */
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

/* All-reduce of a node: every rank publishes its vector and folds all of them in rank order. */
TIARA_MUST_USE enum tiara_err tiara_small_node(
    struct tiara_arena *a, const struct tiara_small_call *call);

/* Puts the input back into @call->out, in place, for another way, from the own small slot. */
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
 * ranks of the node, in the order of posting. One at a time may be a plan's.
 */

/* A part of an arena: units that it may begin at. A mask of them fits in a word. */
#define TIARA_POSTED_UNITS 64
/* The units that two slots for @bytes of payload take. */
int tiara_posted_units(size_t bytes);
/* The part of two slots that begins with unit @first. */
struct tiara_posted_ring tiara_posted_part(int first, int nunits);
/* Empties a part that was another call's. No peer looks at it before all have done that. */
void tiara_posted_clear(struct tiara_arena *a, const struct tiara_posted_ring *ring);

/* Whether all ranks are through with the slot that @p takes. */
bool tiara_posted_has_slot(struct tiara_arena *a, const struct tiara_posted *p);
/* Publishes a small call. Its slot is free. */
void tiara_posted_publish(
    struct tiara_arena *a, const struct tiara_posted *p, const struct tiara_small_call *call);
/* True when the small call is over, as all peers have published theirs: the result is in call->out,
 * or it failed. Never waits. Errors: TIARA_ERR_MISMATCH (logged), those of the fold. */
bool tiara_posted_poll(struct tiara_arena *a, struct tiara_posted *p,
    const struct tiara_small_call *call, enum tiara_err *err_out);
/* Makes @p, whose slot is free, the arena's current call, for a plan. */
void tiara_posted_begin(struct tiara_arena *a, const struct tiara_posted *p);
/* All calls up to @seq, which take all slots, are over for this rank. */
void tiara_posted_finish(struct tiara_arena *a, uint64_t seq);
/* As tiara_arena_compare and tiara_arena_inspect, of call @p: arena.c. */
TIARA_MUST_USE static inline enum tiara_err tiara_posted_compare(
    struct tiara_arena *a, const struct tiara_posted *p, int peer)
{
    if (__builtin_expect(tiara_posted_head(a, &p->ring, peer, p->seq)->digest == p->digest, 1))
        return TIARA_OK;
    return tiara_posted_disagree(a, p, peer);
}
TIARA_MUST_USE enum tiara_err tiara_posted_inspect(
    struct tiara_arena *a, const struct tiara_posted *p, double waited_s, bool first);

#endif
