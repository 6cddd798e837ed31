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

bool tiara_sched_poll(struct tiara_sched *s, struct tiara_wait_on *on, bool *moved_out)
{
    size_t end = s->oldest + (size_t)s->window;
    int slot = s->slot;

    *on = (struct tiara_wait_on){0};
    *moved_out = false;
    s->has_no_word = false;
    for (size_t i = s->oldest; i < end && i < s->nchunks && s->err == TIARA_OK; i++) {
        if (i == s->next) {
            start_next(s, slot);
            *moved_out = true;
        }
        if (s->err == TIARA_OK && s->busy[slot])
            *moved_out |= s->ops->step(s, slot, on);
        slot = slot_after(s, slot);
    }
    while (s->oldest < s->next && !s->busy[s->slot]) {
        s->slot = slot_after(s, s->slot);
        s->oldest++;
    }
    if (s->has_no_word)
        on->word = NULL;
    return s->err != TIARA_OK || s->oldest == s->nchunks;
}

void tiara_sched_drain(struct tiara_sched *s)
{
    for (int slot = 0; slot < s->nslots; slot++)
        if (s->busy[slot])
            s->ops->drain(s, slot);
}
