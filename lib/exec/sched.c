/*
 * The scheduler of chunks: see sched.h.
 *
 * No choice here depends on timing but the order of independent work: chunks are numbered, tagged
 * and put into slots in the order in which they start, which is their order in the vector.
 */
#include "exec/sched.h"

static int slot_after(const struct tiara_sched *s, int slot)
{
    return slot + 1 == s->nslots ? 0 : slot + 1;
}

static bool is_over(const struct tiara_sched *s)
{
    return s->err != TIARA_OK || s->oldest == s->nchunks;
}

static void start_next(struct tiara_sched *s, int slot)
{
    const struct tiara_exec_call *call = s->call;
    struct tiara_part part = {.index = s->next, .first = s->next * s->chunk_elems, .slot = slot};

    part.count = call->count - part.first;
    if (part.count > s->chunk_elems)
        part.count = s->chunk_elems;
    part.len = tiara_exec_block_len(call, part.count);
    part.tag = tiara_exec_tag(s->x->tag_bits, s->x->chunk_seq++, call->digest);
    s->busy[slot] = true;
    s->next++;
    s->ops->start(s, &part);
}

/* One try of every chunk in flight, oldest first. True when something moved, failed, or all is
 * over. */
static bool advance(struct tiara_sched *s, struct tiara_wait_on *on)
{
    size_t end = s->oldest + (size_t)s->window;
    int slot = s->slot;
    bool moved = false;

    s->has_no_word = false;
    for (size_t i = s->oldest; i < end && i < s->nchunks; i++) {
        if (i == s->next) {
            start_next(s, slot);
            moved = true;
        }
        if (s->err == TIARA_OK && s->busy[slot])
            moved |= s->ops->step(s, slot, on);
        if (s->err != TIARA_OK)
            return true;
        slot = slot_after(s, slot);
    }
    while (s->oldest < s->next && !s->busy[s->slot]) {
        s->slot = slot_after(s, s->slot);
        s->oldest++;
    }
    if (s->has_no_word)
        on->word = NULL;
    return moved || s->oldest == s->nchunks;
}

bool tiara_sched_poll(struct tiara_sched *s, struct tiara_wait_on *on, bool *moved_out)
{
    *on = (struct tiara_wait_on){0};
    *moved_out = !is_over(s) && advance(s, on);
    return is_over(s);
}

void tiara_sched_drain(struct tiara_sched *s)
{
    for (int slot = 0; slot < s->nslots; slot++)
        if (s->busy[slot])
            s->ops->drain(s, slot);
}
