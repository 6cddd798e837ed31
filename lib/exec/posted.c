/*
 * Posted calls: what nonblocking operations do in a node's shared memory.
 *
 * The one idea: a call's number is its own, not the arena's. So a rank can publish its part of call
 * n + 1 while a peer has not yet come to call n, and each call is over when all parts of it are
 * there; nobody has to be waiting for anything. What blocking calls get for free, that a peer's
 * next call proves it done with the last, is said here by a word of its own (arena.h, finished).
 */
#include "exec/arena.h"
#include "base/log.h"
#include <string.h>

/* Bytes of a unit, so that slots begin on lines of their own. */
#define UNIT                                                                                       \
    ((size_t)TIARA_ARENA_SMALL_SLOTS * TIARA_ARENA_SMALL_STRIDE / TIARA_POSTED_UNITS /             \
        (2 * TIARA_LINE) * (2 * TIARA_LINE))
/* Bytes of a slot beside its payload: the head, and the desc. */
#define AROUND (sizeof(struct tiara_arena_head) + 64)

int tiara_posted_units(size_t bytes)
{
    return (int)((2 * (bytes + AROUND) + UNIT - 1) / UNIT);
}

struct tiara_posted_ring tiara_posted_part(int first, int nunits)
{
    return (struct tiara_posted_ring){(size_t)first * UNIT, (size_t)nunits * UNIT / 2, 2};
}

void tiara_posted_clear(struct tiara_arena *a, const struct tiara_posted_ring *ring)
{
    memset(tiara_posted_head(a, ring, a->index, 0), 0, ring->stride * (size_t)ring->nslots);
}

static struct tiara_arena_head *head_of(
    const struct tiara_arena *a, const struct tiara_posted *p, int i)
{
    return tiara_posted_head(a, &p->ring, i, p->seq);
}

bool tiara_posted_has_slot(struct tiara_arena *a, const struct tiara_posted *p)
{
    uint64_t seq = p->seq;

    /* Of two slots: the call before is over, for which every peer had ended the one before that. */
    if (p->ring.nslots == 2 || seq <= TIARA_ARENA_SMALL_SLOTS)
        return true;
    for (int i = 0; i < a->size; i++) {
        /* [arena.finished] acquire: the peer's reads of the slot came before. Its owner reads it
         * too. */
        if (tiara_load_acquire(&a->ctl[i]->finished) + TIARA_ARENA_SMALL_SLOTS < seq)
            return false;
    }
    return true;
}

static void publish(struct tiara_arena *a, const struct tiara_posted *p)
{
    struct tiara_arena_head *head = head_of(a, p, a->index);

    *tiara_arena_slot_desc(head, p->ring.stride) = p->desc;
    tiara_arena_head_publish(a, head, p->seq, p->digest);
}

void tiara_posted_publish(
    struct tiara_arena *a, const struct tiara_posted *p, const struct tiara_small_call *call)
{
    tiara_assert(call->bytes + AROUND <= p->ring.stride);
    call->mem->copy_to_cell(tiara_arena_payload(head_of(a, p, a->index)), call->in, call->bytes);
    publish(a, p);
}

bool tiara_posted_poll(struct tiara_arena *a, struct tiara_posted *p,
    const struct tiara_small_call *call, enum tiara_err *err_out)
{
    *err_out = TIARA_OK;
    for (; p->peer < a->size; p->peer++) {
        struct tiara_arena_head *head = head_of(a, p, p->peer);

        /* [arena.head] acquire: the peer's payload, digest and desc may be read after it. */
        if (tiara_load_acquire(&head->seq) != p->seq)
            return false;
        *err_out = tiara_posted_compare(a, p, p->peer);
        if (*err_out != TIARA_OK)
            return true;
    }
    for (int i = 0; i < a->size; i++)
        a->srcs[i] = tiara_arena_payload(head_of(a, p, i));
    *err_out = call->op->fold(call->op, call->out, a->srcs, a->size, call->count);
    return true;
}

void tiara_posted_begin(struct tiara_arena *a, const struct tiara_posted *p)
{
    a->seq = p->seq;
    a->digest = p->digest;
    a->call = p->seq;
    publish(a, p);
}

void tiara_posted_finish(struct tiara_arena *a, uint64_t seq)
{
    tiara_u64 *word = &a->ctl[a->index]->finished;

    if (tiara_load_relaxed(word) == seq) /* relaxed: only this rank writes it, under a lock */
        return;
    /* [arena.finished] release: all reads of the slots of calls up to @seq came before. */
    tiara_store_release(word, seq);
}
