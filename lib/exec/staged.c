/*
 * Staged buffers: chunks of memory that the CPU cannot reach come to host memory before they run,
 * and go back after.
 *
 * One idea: a chunk has two more states, before and after its ops, in which it waits for copies as
 * others wait for peers. So the copies of one chunk overlap with the work on others, and nothing
 * else in the executor knows of them. The result buffer comes in only where it is an input too.
 */
#include "exec/run.h"

/* Blocks of the caller's buffer that a chunk has a part of. */
static size_t blocks_of(const struct tiara_exec_call *call, enum tiara_buf buf)
{
    const struct tiara_plan *plan = call->plan;
    enum tiara_coll alone = buf == TIARA_BUF_IN ? TIARA_COLL_ALLGATHER : TIARA_COLL_REDUCE_SCATTER;

    if (plan->coll == TIARA_COLL_ALLREDUCE || plan->coll == alone)
        return 1;
    return (size_t)plan->nblocks;
}

enum tiara_err tiara_run_stage_open(struct tiara_run *r)
{
    const struct tiara_exec_call *call = r->call;
    size_t step = call->chunk_elems ? call->chunk_elems : call->count;
    size_t one = step * call->elem_size, both;
    bool in_place = call->in == call->out;

    r->room_in = call->stage_in && !in_place ? blocks_of(call, TIARA_BUF_IN) * one : 0;
    r->room_out = call->stage_out ? blocks_of(call, TIARA_BUF_OUT) * one : 0;
    r->room_in = (r->room_in + 63) / 64 * 64;
    r->room_out = (r->room_out + 63) / 64 * 64;
    both = r->room_in + r->room_out;
    r->room = r->x->stage->room(r->x->stage_obj, (size_t)r->slots * both);
    return r->room ? TIARA_OK : TIARA_ERR_NOMEM;
}

/* One direction of the copies of a buffer: its blocks @first .. of chunk @c. */
static enum tiara_err move(const struct tiara_run *r, const struct tiara_chunk *c, int slot,
    char *room, char *user, size_t first, size_t nblocks, bool fetch)
{
    const struct tiara_exec_call *call = r->call;
    const struct tiara_stage *stage = r->x->stage;
    void *s = r->x->stage_obj;
    size_t bytes = c->count * call->elem_size;
    enum tiara_err err = TIARA_OK;

    for (size_t b = first; b < first + nblocks && err == TIARA_OK; b++) {
        char *there = user + (c->first + b * call->count) * call->elem_size;
        char *here = room + b * bytes;

        err = fetch ? stage->fetch(s, slot, here, there, bytes)
                    : stage->store(s, slot, there, here, bytes);
    }
    return err;
}

enum tiara_err tiara_run_fetch(struct tiara_run *r, struct tiara_chunk *c, int slot, size_t turn)
{
    const struct tiara_exec_call *call = r->call;
    char *user = (char *)(uintptr_t)call->in;
    char *room = r->room + turn * (r->room_in + r->room_out);
    bool in_place = call->in == call->out;

    c->state = TIARA_CHUNK_FETCH;
    c->room_in = r->room_in > 0 ? room : NULL;
    c->room_out = r->room_out > 0 ? room + r->room_in : NULL;
    if (in_place)
        c->room_in = c->room_out;
    if (!c->room_in)
        return TIARA_OK;
    if (in_place && call->plan->coll == TIARA_COLL_ALLGATHER)
        return move(r, c, slot, c->room_in, user, (size_t)call->plan->rank, 1, true);
    return move(r, c, slot, c->room_in, user, 0, blocks_of(call, TIARA_BUF_IN), true);
}

enum tiara_err tiara_run_store(struct tiara_run *r, const struct tiara_chunk *c, int slot)
{
    const struct tiara_exec_call *call = r->call;

    r->chunk[slot].state = TIARA_CHUNK_STORE;
    return move(r, c, slot, c->room_out, call->out, 0, blocks_of(call, TIARA_BUF_OUT), false);
}

void tiara_run_stage_drain(struct tiara_run *r)
{
    for (int slot = 0; r->room && slot < TIARA_SLOTS; slot++) {
        enum tiara_chunk_state state = r->chunk[slot].state;
        bool done = state != TIARA_CHUNK_FETCH && state != TIARA_CHUNK_STORE;

        while (!done && r->x->stage->test(r->x->stage_obj, slot, &done) == TIARA_OK)
            ;
    }
}
