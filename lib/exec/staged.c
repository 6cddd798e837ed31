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
    return tiara_exec_is_single(call, buf) ? 1 : (size_t)call->plan->nblocks;
}

enum tiara_err tiara_run_stage_open(struct tiara_run *r)
{
    const struct tiara_exec_call *call = r->s.call;
    size_t one = r->s.chunk_elems * call->elem_size;
    bool in_place = call->in == call->out;

    r->bounce_in = call->stage_in && !in_place ? blocks_of(call, TIARA_BUF_IN) * one : 0;
    r->bounce_out = call->stage_out ? blocks_of(call, TIARA_BUF_OUT) * one : 0;
    r->bounce_in = tiara_run_lines(r->bounce_in);
    r->bounce_out = tiara_run_lines(r->bounce_out);
    r->bounce = r->s.x->stage->bounce(
        r->s.x->stage_obj, (size_t)r->s.window * (r->bounce_in + r->bounce_out));
    return r->bounce ? TIARA_OK : TIARA_ERR_NOMEM;
}

/* Starts the copies of @nblocks blocks from @first on: of IN to its bounce buffer, of OUT back. */
static enum tiara_err move(const struct tiara_run *r, const struct tiara_chunk *c,
    enum tiara_buf buf, size_t first, size_t nblocks)
{
    const struct tiara_exec_call *call = r->s.call;
    const struct tiara_stage *stage = r->s.x->stage;
    void *s = r->s.x->stage_obj;
    bool fetch = buf == TIARA_BUF_IN;
    size_t bytes = c->part.count * call->elem_size;
    enum tiara_err err = TIARA_OK;

    for (size_t b = first; b < first + nblocks && err == TIARA_OK; b++) {
        size_t at = (c->part.first + b * call->count) * call->elem_size;

        if (fetch)
            err = stage->fetch(
                s, c->part.slot, c->bounce_in + b * bytes, (const char *)call->in + at, bytes);
        else
            err = stage->store(
                s, c->part.slot, (char *)call->out + at, c->bounce_out + b * bytes, bytes);
    }
    return err;
}

enum tiara_err tiara_run_fetch(struct tiara_run *r, struct tiara_chunk *c)
{
    const struct tiara_exec_call *call = r->s.call;
    size_t turn = c->part.index % (size_t)r->s.window;
    char *bounce = r->bounce + turn * (r->bounce_in + r->bounce_out);
    bool in_place = call->in == call->out;

    c->state = TIARA_CHUNK_FETCH;
    c->bounce_in = r->bounce_in > 0 ? bounce : NULL;
    c->bounce_out = r->bounce_out > 0 ? bounce + r->bounce_in : NULL;
    if (in_place)
        c->bounce_in = c->bounce_out;
    if (!c->bounce_in)
        return TIARA_OK;
    if (in_place && call->plan->coll == TIARA_COLL_ALLGATHER)
        return move(r, c, TIARA_BUF_IN, (size_t)call->plan->rank, 1);
    return move(r, c, TIARA_BUF_IN, 0, blocks_of(call, TIARA_BUF_IN));
}

enum tiara_err tiara_run_store(struct tiara_run *r, struct tiara_chunk *c)
{
    c->state = TIARA_CHUNK_STORE;
    return move(r, c, TIARA_BUF_OUT, 0, blocks_of(r->s.call, TIARA_BUF_OUT));
}

void tiara_run_stage_drain(struct tiara_run *r, const struct tiara_chunk *c)
{
    bool done = c->state == TIARA_CHUNK_RUN;

    while (!done && r->s.x->stage->test(r->s.x->stage_obj, c->part.slot, &done) == TIARA_OK)
        ;
}
