/*
 * The host executor. Nothing here waits: a chunk moves as far as its waits, messages and posts
 * allow, and the scheduler (sched.c) goes on to the next.
 *
 * Agreement: chunks take the slots in turn, from call to call; slots take the same base step counts
 * on all node ranks; and chunk_seq counts chunks alike on all ranks.
 */
#include "exec/exec.h"
#include "base/alloc.h"
#include "base/log.h"
#include "exec/run.h"
#include "exec/trace.h"
#include <string.h>

static struct tiara_run *run_of(struct tiara_sched *s)
{
    return (struct tiara_run *)(void *)s;
}

/* @bytes rounded up to cache lines. */
static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* ---- progress words ---- */

/* Own progress in the slot of @c reaches its @step. */
static void publish(struct tiara_run *r, const struct tiara_chunk *c, int step)
{
    struct tiara_arena *a = r->s.x->arena;
    uint64_t value = c->base + (uint64_t)step;
    tiara_u64 *word;

    if (!a)
        return;
    word = &a->ctl[a->index]->progress[c->part.slot];
    if (tiara_load_relaxed(word) == value) /* relaxed: only this thread writes it */
        return;
    /* [arena.progress] release: the effects of all ops of steps <= step are visible to a peer that
     * acquires this. */
    tiara_store_release(word, value);
    tiara_wait_wake(&a->wait, word);
}

/* Whether @wait, for a peer's step, holds; compares digests when the peer is first heard of in this
 * call. The first wait that does not hold goes into @on. */
static bool wait_holds(struct tiara_run *r, const struct tiara_chunk *c,
    struct tiara_plan_wait wait, struct tiara_wait_on *on)
{
    struct tiara_arena *a = r->s.x->arena;
    int peer = r->s.x->node_index[wait.peer];
    tiara_u64 *word = &a->ctl[peer]->progress[c->part.slot];
    uint64_t *seen = &a->known[peer].progress[c->part.slot];
    uint64_t want = c->base + (uint64_t)wait.step;
    struct tiara_wait_on missing = {0};

    /* Single copy reads the peer's buffers, whose addresses are good from the beginning of its
     * call. */
    if (r->s.call->plan->single_copy && a->known[peer].checked != a->seq)
        (void)tiara_arena_poll(a, peer, &missing, &r->s.err);
    if (!missing.word && *seen < want) {
        *seen = tiara_load_acquire(word); /* [arena.progress] acquire: pairs with publish(). */
        if (*seen < want)
            missing = (struct tiara_wait_on){word, *seen};
    }
    if (missing.word && !on->word)
        *on = missing;
    /* A step of this call's chunk cannot have been done before the peer began the call. */
    if (!missing.word && wait.step > 0 && a->known[peer].checked != a->seq)
        r->s.err = tiara_arena_compare(a, peer);
    return !missing.word;
}

static inline bool waits_hold(
    struct tiara_run *r, const struct tiara_chunk *c, int first, int n, struct tiara_wait_on *on)
{
    for (int i = first; i < first + n; i++)
        if (!wait_holds(r, c, r->s.call->plan->waits[i], on) || r->s.err != TIARA_OK)
            return false;
    return true;
}

/* ---- messages ---- */

static enum tiara_err start_message(
    struct tiara_run *r, struct tiara_chunk *c, const struct tiara_op *op)
{
    struct tiara_exec *x = r->s.x;
    const struct tiara_slice *slice = tiara_message_slice(r->s.call->plan, op);
    struct tiara_place place = tiara_run_place(r, c, slice, op->block);
    struct tiara_message m;
    enum tiara_err err = tiara_message_of(x, &c->part, op, &place, &m);

    if (err == TIARA_OK)
        err = tiara_message_start(&m, x->net, x->net_obj, &c->reqs[c->started]);
    if (err == TIARA_OK)
        c->started++;
    return err;
}

/* Moves c->done over the messages that are complete. True when it moved. */
static bool collect_messages(struct tiara_run *r, struct tiara_chunk *c)
{
    int before = c->done;

    while (c->done < c->started && r->s.err == TIARA_OK) {
        struct tiara_xport_req *req = &c->reqs[c->done];
        if (!req->done)
            r->s.err = r->s.x->net->test(r->s.x->net_obj, req);
        if (!req->done)
            break;
        c->done++;
    }
    return c->done != before;
}

/* ---- staged buffers ---- */

/*
 * A chunk has two more states, before and after its ops, in which it waits for copies as others
 * wait for peers. So the copies of one chunk overlap with the work on others. The result buffer
 * comes in only where it is an input too.
 */

/* Blocks of the caller's buffer that a chunk has a part of. */
static size_t blocks_of(const struct tiara_exec_call *call, enum tiara_buf buf)
{
    return tiara_exec_is_single(call, buf) ? 1 : (size_t)call->plan->nblocks;
}

/* Takes the bounce buffers. */
static enum tiara_err take_bounce(struct tiara_run *r)
{
    const struct tiara_exec_call *call = r->s.call;
    size_t one = r->s.chunk_elems * call->elem_size;
    bool in_place = call->in == call->out;

    r->bounce_in = call->stage_in && !in_place ? blocks_of(call, TIARA_BUF_IN) * one : 0;
    r->bounce_out = call->stage_out ? blocks_of(call, TIARA_BUF_OUT) * one : 0;
    r->bounce_in = whole_lines(r->bounce_in);
    r->bounce_out = whole_lines(r->bounce_out);
    r->bounce = r->s.x->stage->bounce(
        r->s.x->stage_obj, (size_t)r->s.window * (r->bounce_in + r->bounce_out));
    return r->bounce ? TIARA_OK : TIARA_ERR_NOMEM;
}

/* Starts the copies of @nblocks blocks from @first on: of IN to its bounce buffer, of OUT back. */
static enum tiara_err copy_blocks(const struct tiara_run *r, const struct tiara_chunk *c,
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

/* Chunk @c begins: starts what has to come in. */
static enum tiara_err fetch_input(struct tiara_run *r, struct tiara_chunk *c)
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
        return copy_blocks(r, c, TIARA_BUF_IN, (size_t)call->plan->rank, 1);
    return copy_blocks(r, c, TIARA_BUF_IN, 0, blocks_of(call, TIARA_BUF_IN));
}

/* The result of @c is complete in its bounce buffer: starts what has to go back. */
static enum tiara_err store_result(struct tiara_run *r, struct tiara_chunk *c)
{
    c->state = TIARA_CHUNK_STORE;
    return copy_blocks(r, c, TIARA_BUF_OUT, 0, blocks_of(r->s.call, TIARA_BUF_OUT));
}

/* ---- a chunk ---- */

/* Posts of the ops behind the program counter whose messages are complete, in order. */
static bool flush_posts(struct tiara_run *r, struct tiara_chunk *c)
{
    int before = c->post_pc;

    for (; c->post_pc < c->pc; c->post_pc++) {
        const struct tiara_op *op = &r->s.call->plan->ops[c->post_pc];

        if (op->post != 0 && c->done < op->post_await)
            break;
        if (op->post != 0)
            publish(r, c, op->post);
    }
    return c->post_pc != before;
}

static enum tiara_err execute(struct tiara_run *r, struct tiara_chunk *c, const struct tiara_op *op)
{
    struct tiara_trace *trace = r->s.x->trace;
    double begin = trace ? tiara_now() : 0;
    enum tiara_err err;

    if (op->kind == TIARA_OP_COPY)
        err = tiara_run_copy(r, c, op);
    else if (op->kind == TIARA_OP_REDUCE)
        err = tiara_run_reduce(r, c, op);
    else
        err = start_message(r, c, op);
    if (trace)
        tiara_trace_op(trace, op, c->part.slot, c->part.index, begin, tiara_now());
    return err;
}

/* The result of chunk @c is complete in OUT. */
static void finish_result(struct tiara_run *r, const struct tiara_chunk *c)
{
    const struct tiara_exec_call *call = r->s.call;
    char *result =
        c->bounce_out ? c->bounce_out : (char *)call->out + c->part.first * call->elem_size;

    if (call->op && call->op->finish)
        call->op->finish(call->op, result, c->part.count, call->finish_ranks);
}

static void start_chunk(struct tiara_sched *s, const struct tiara_part *part)
{
    struct tiara_run *r = run_of(s);
    struct tiara_chunk *c = &r->chunk[part->slot];
    struct tiara_arena *a = s->x->arena;

    c->part = *part;
    c->state = TIARA_CHUNK_RUN;
    c->bounce_in = c->bounce_out = NULL;
    c->pc = c->post_pc = c->started = c->done = 0;
    if (a) {
        c->base = a->base[part->slot];
        a->base[part->slot] += (uint64_t)s->call->plan->nsteps;
    }
    c->tmp = (char *)s->x->tmp + part->index % (size_t)s->window * r->scratch.chunk;
    c->reqs = (struct tiara_xport_req *)(void *)(c->tmp + r->scratch.tmp);
    if (r->bounce)
        s->err = fetch_input(r, c);
}

/*
 * Moves one chunk as far as it goes. True when it moved at all. Messages are tested only where the
 * chunk cannot go on without: a test costs a system call in some networks, and the next op may be a
 * send that a peer waits for.
 */
static bool run_chunk(struct tiara_run *r, struct tiara_chunk *c, struct tiara_wait_on *on)
{
    const struct tiara_plan *plan = r->s.call->plan;
    bool moved = false;

    while (r->s.err == TIARA_OK && c->pc < plan->nops) {
        const struct tiara_op *op = &plan->ops[c->pc];

        if (c->done < op->await && collect_messages(r, c)) {
            moved = true;
            continue;
        }
        if (c->done < op->await || !waits_hold(r, c, op->wait, op->nwait, on))
            break;
        r->s.err = execute(r, c, op);
        c->pc++;
        moved = true;
        flush_posts(r, c);
    }
    moved |= collect_messages(r, c);
    moved |= flush_posts(r, c);
    if (r->s.err != TIARA_OK || c->pc < plan->nops || c->done < c->started ||
        c->post_pc < plan->nops || !waits_hold(r, c, plan->exit_wait, plan->exit_nwait, on))
        return moved;
    publish(r, c, plan->nsteps);
    finish_result(r, c);
    r->s.busy[c->part.slot] = c->bounce_out != NULL;
    if (c->bounce_out)
        r->s.err = store_result(r, c);
    return true;
}

/* Whether the copies of a chunk that comes or goes are done, or have failed; it moves on then. */
static bool end_copies(struct tiara_run *r, struct tiara_chunk *c)
{
    bool done = false;

    r->s.err = r->s.x->stage->test(r->s.x->stage_obj, c->part.slot, &done);
    if (done) {
        r->s.busy[c->part.slot] = c->state == TIARA_CHUNK_FETCH;
        c->state = TIARA_CHUNK_RUN;
    }
    return done || r->s.err != TIARA_OK;
}

static bool step_chunk(struct tiara_sched *s, int slot, struct tiara_wait_on *on)
{
    struct tiara_run *r = run_of(s);
    struct tiara_chunk *c = &r->chunk[slot];
    bool moved = c->state == TIARA_CHUNK_RUN ? run_chunk(r, c, on) : end_copies(r, c);

    /* Messages and copies have no word to sleep on. */
    s->has_no_word |= s->busy[slot] && (c->state != TIARA_CHUNK_RUN || c->done < c->started);
    return moved;
}

/* No message or copy of the chunk may write into memory that is the caller's again. */
static void drain_chunk(struct tiara_sched *s, int slot)
{
    struct tiara_run *r = run_of(s);
    struct tiara_chunk *c = &r->chunk[slot];
    bool done = c->state == TIARA_CHUNK_RUN;

    for (int i = c->done; i < c->started; i++)
        if (!c->reqs[i].done)
            s->x->net->cancel(s->x->net_obj, &c->reqs[i]);
    while (!done && s->x->stage->test(s->x->stage_obj, slot, &done) == TIARA_OK)
        ;
}

static const struct tiara_sched_ops host_ops = {
    .start = start_chunk, .step = step_chunk, .drain = drain_chunk};

/* ---- a call ---- */

/* The most blocks in peers' private memory that a reduction has as sources. */
static int most_fetched(const struct tiara_plan *plan)
{
    int most = 0;

    for (int i = 0; plan->single_copy && i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];
        int fetched = 0;

        for (int k = 0; k < op->nsrc && op->kind == TIARA_OP_REDUCE; k++) {
            const struct tiara_slice *slice = &plan->srcs[op->src + k];

            fetched += tiara_run_is_fetched(plan, slice) ? slice->count : 0;
        }
        most = fetched > most ? fetched : most;
    }
    return most;
}

static struct tiara_scratch scratch_of(const struct tiara_exec_call *call)
{
    const struct tiara_plan *plan = call->plan;
    size_t elems = call->chunk_elems ? call->chunk_elems : call->count;
    struct tiara_scratch s = {.block = tiara_exec_block_len(call, elems) * call->elem_size};

    s.tmp = whole_lines(s.block * (size_t)plan->tmp_blocks);
    s.chunk = s.tmp + whole_lines((size_t)plan->nasync * sizeof(struct tiara_xport_req));
    s.all = (size_t)call->slots * s.chunk + s.block * (size_t)most_fetched(plan);
    return s;
}

void tiara_exec_fini(struct tiara_exec *x)
{
    tiara_free(x->tmp);
    x->tmp = NULL;
    x->tmp_bytes = 0;
}

static enum tiara_err reserve(struct tiara_exec *x, size_t bytes)
{
    if (bytes <= x->tmp_bytes)
        return TIARA_OK;
    tiara_exec_fini(x);
    x->tmp = tiara_alloc_aligned(4096, bytes);
    if (!x->tmp)
        return TIARA_ERR_NOMEM;
    x->tmp_bytes = bytes;
    return TIARA_OK;
}

enum tiara_err tiara_exec_reserve(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    return reserve(x, scratch_of(call).all);
}

struct tiara_run *tiara_exec_run_new(void)
{
    return tiara_alloc(1, sizeof(struct tiara_run));
}

enum tiara_err tiara_exec_open(
    struct tiara_run *r, struct tiara_exec *x, const struct tiara_exec_call *call)
{
    size_t step = call->chunk_elems ? call->chunk_elems : call->count;
    size_t nchunks = call->count ? call->count / step + (call->count % step != 0) : 0;
    enum tiara_err err;

    /* Chunks are set when they start: clearing all of them takes longer than a small call. */
    r->s = (struct tiara_sched){.ops = &host_ops,
        .x = x,
        .call = call,
        .chunk_elems = step,
        .nchunks = nchunks,
        .window = nchunks < (size_t)call->slots ? (int)nchunks : call->slots,
        .nslots = TIARA_SLOTS,
        .slot = x->arena ? (int)x->arena->next_slot : 0};
    r->bounce = NULL;
    if (nchunks == 0)
        return TIARA_OK;
    r->scratch = scratch_of(call);
    err = reserve(x, r->scratch.all);
    if (err == TIARA_OK && (call->stage_in || call->stage_out))
        err = take_bounce(r);
    return err;
}

bool tiara_exec_poll(
    struct tiara_run *r, struct tiara_wait_on *on, bool *moved_out, enum tiara_err *err_out)
{
    bool over = tiara_sched_poll(&r->s, on, moved_out);

    *err_out = r->s.err;
    return over;
}

enum tiara_err tiara_exec_close(struct tiara_run *r, enum tiara_err err)
{
    struct tiara_arena *a = r->s.x->arena;

    /* Chunks walk over all cells of the arena, from call to call: a cell that a peer has just read
     * is slow to write. */
    if (err != TIARA_OK)
        tiara_sched_drain(&r->s);
    else if (a)
        a->next_slot = (size_t)r->s.slot;
    return err;
}
