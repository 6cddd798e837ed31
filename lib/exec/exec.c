/*
 * The host executor: each chunk in flight has its own program counter.
 *
 * One idea: nothing here waits. A chunk moves as far as its waits, messages and posts allow, and
 * the scheduler (sched.c) goes on to the next. So the copy-in of one chunk, the network part of
 * another and the copy-out of a third overlap without being written so.
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

/* ---- progress words ---- */

/* Own progress in the slot of @c reaches its @step. */
static void publish(struct tiara_run *r, const struct tiara_chunk *c, int step)
{
    struct tiara_arena *a = r->s.x->arena;
    tiara_u64 *word;

    if (!a)
        return;
    word = &a->ctl[a->index]->progress[c->part.slot];
    if (tiara_load_relaxed(word) ==
        c->base + (uint64_t)step) /* relaxed: only this thread writes it */
        return;
    /* [arena.progress] release: the effects of all ops of steps <= step are visible to a peer that
     * acquires this. */
    tiara_store_release(word, c->base + (uint64_t)step);
    tiara_wait_wake(&a->wait, word);
}

/* Single copy reads the peer's buffers, whose addresses are good from the beginning of its call. */
static bool has_begun(struct tiara_run *r, int peer, struct tiara_wait_on *on)
{
    struct tiara_arena *a = r->s.x->arena;
    struct tiara_arena_head *head = tiara_arena_head(a, peer, a->seq);
    uint64_t seq;

    /* [arena.head] acquire: the peer's desc may be read after it. */
    seq = tiara_load_acquire(&head->seq);
    if (seq != a->seq) {
        if (!on->word)
            *on = (struct tiara_wait_on){&head->seq, seq};
        return false;
    }
    r->s.err = tiara_arena_compare(a, peer);
    return true;
}

/* Whether @peer (a rank) has reached @step; compares digests when it is first heard of in this
 * call. */
static bool has_reached(struct tiara_run *r, const struct tiara_chunk *c,
    struct tiara_plan_wait wait, struct tiara_wait_on *on)
{
    struct tiara_arena *a = r->s.x->arena;
    int peer = r->s.x->node_index[wait.peer];
    uint64_t *seen = &a->seen[peer * TIARA_SLOTS + c->part.slot];
    uint64_t want = c->base + (uint64_t)wait.step;
    bool known = a->checked[peer] == a->seq;

    if (!known && r->s.call->plan->single_copy) {
        known = has_begun(r, peer, on);
        if (!known)
            return false;
    }
    if (*seen < want) {
        tiara_u64 *word = &a->ctl[peer]->progress[c->part.slot];
        /* [arena.progress] acquire: pairs with publish(). */
        *seen = tiara_load_acquire(word);
        if (*seen < want) {
            if (!on->word)
                *on = (struct tiara_wait_on){word, *seen};
            return false;
        }
    }
    /* A step of this call's chunk cannot have been done before the peer began the call. */
    if (!known && wait.step > 0)
        r->s.err = tiara_arena_compare(a, peer);
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

/* ---- a chunk ---- */

/* Posts of the ops behind the program counter whose messages are complete, in order. */
static bool flush_posts(struct tiara_run *r, struct tiara_chunk *c)
{
    const struct tiara_plan *plan = r->s.call->plan;
    int before = c->post_pc;

    for (; c->post_pc < c->pc; c->post_pc++) {
        const struct tiara_op *op = &plan->ops[c->post_pc];
        if (op->post == 0)
            continue;
        if (c->done < op->post_await)
            break;
        publish(r, c, op->post);
    }
    return c->post_pc != before;
}

static bool waits_hold(
    struct tiara_run *r, const struct tiara_chunk *c, int first, int n, struct tiara_wait_on *on)
{
    for (int i = first; i < first + n; i++)
        if (!has_reached(r, c, r->s.call->plan->waits[i], on))
            return false;
    return true;
}

static enum tiara_err execute_untraced(
    struct tiara_run *r, struct tiara_chunk *c, const struct tiara_op *op)
{
    switch (op->kind) {
    case TIARA_OP_COPY:
        return tiara_run_copy(r, c, op);
    case TIARA_OP_REDUCE:
        return tiara_run_reduce(r, c, op);
    default:
        return start_message(r, c, op);
    }
}

static enum tiara_err execute(struct tiara_run *r, struct tiara_chunk *c, const struct tiara_op *op)
{
    enum tiara_err err;
    double begin;

    if (__builtin_expect(!r->s.x->trace, 1))
        return execute_untraced(r, c, op);
    begin = tiara_now();
    err = execute_untraced(r, c, op);
    tiara_trace_op(r->s.x->trace, op, c->part.slot, c->part.index, begin, tiara_now());
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
    c->tmp = r->scratch + part->index % (size_t)s->window * r->scratch_bytes;
    c->reqs = (struct tiara_xport_req *)(void *)(c->tmp + r->tmp_bytes);
    if (r->bounce)
        s->err = tiara_run_fetch(r, c);
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
        if (r->s.err == TIARA_OK)
            r->s.err = execute(r, c, op);
        c->pc++;
        moved = true;
        flush_posts(r, c);
    }
    moved |= collect_messages(r, c);
    moved |= flush_posts(r, c);
    if (r->s.err == TIARA_OK && c->pc < plan->nops)
        return moved;
    if (r->s.err != TIARA_OK)
        return true;
    if (c->done < c->started || c->post_pc < plan->nops ||
        !waits_hold(r, c, plan->exit_wait, plan->exit_nwait, on))
        return moved;
    publish(r, c, plan->nsteps);
    finish_result(r, c);
    r->s.busy[c->part.slot] = c->bounce_out != NULL;
    if (c->bounce_out)
        r->s.err = tiara_run_store(r, c);
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

    for (int i = c->done; i < c->started; i++)
        if (!c->reqs[i].done)
            s->x->net->cancel(s->x->net_obj, &c->reqs[i]);
    tiara_run_stage_drain(r, c);
}

static const struct tiara_sched_ops host_ops = {
    .start = start_chunk, .step = step_chunk, .drain = drain_chunk};

/* ---- a call ---- */

/* How the private memory of a call is divided. */
struct scratch {
    size_t tmp; /* bytes of TMP of one slot */
    size_t reqs; /* bytes of the request table of one slot */
    size_t get; /* bytes of one fetched source */
    int nget; /* most sources that a reduction gets */
};

/* Most sources of one op that lie in peers' private memory, and the most blocks of one. */
static int most_pulled(const struct tiara_plan *plan, int *blocks_out)
{
    int most = 0;

    *blocks_out = 0;
    for (int i = 0; plan->single_copy && i < plan->nops; i++) {
        int fetched = 0;
        for (int k = 0; k < plan->ops[i].nsrc && plan->ops[i].kind == TIARA_OP_REDUCE; k++) {
            const struct tiara_slice *s = &plan->srcs[plan->ops[i].src + k];
            bool remote =
                s->owner != plan->rank && (s->buf == TIARA_BUF_IN || s->buf == TIARA_BUF_OUT);
            fetched += remote;
            if (remote && s->count > *blocks_out)
                *blocks_out = s->count;
        }
        most = fetched > most ? fetched : most;
    }
    return most;
}

static struct scratch scratch_of(const struct tiara_exec_call *call)
{
    const struct tiara_plan *plan = call->plan;
    size_t elems = call->chunk_elems ? call->chunk_elems : call->count;
    struct scratch s;
    int blocks;

    elems = tiara_exec_block_len(call, elems);
    s.nget = most_pulled(plan, &blocks);
    s.get = (elems * call->elem_size * (size_t)blocks + 63) / 64 * 64;
    s.tmp = (elems * call->elem_size * (size_t)plan->tmp_blocks + 63) / 64 * 64;
    s.reqs = ((size_t)plan->nasync * sizeof(struct tiara_xport_req) + 63) / 64 * 64;
    return s;
}

static enum tiara_err reserve(struct tiara_exec *x, const struct scratch *s, int slots)
{
    size_t need = (size_t)slots * (s->tmp + s->reqs) + (size_t)s->nget * s->get;

    if (need > x->tmp_bytes) {
        tiara_free(x->tmp);
        x->tmp_bytes = 0;
        x->tmp = tiara_alloc_aligned(4096, need);
        if (!x->tmp)
            return TIARA_ERR_NOMEM;
        x->tmp_bytes = need;
    }
    return TIARA_OK;
}

enum tiara_err tiara_exec_reserve(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    struct scratch s = scratch_of(call);

    return reserve(x, &s, call->slots);
}

/* Takes the scratch memory: a part for each chunk in flight, then fetched sources. */
static enum tiara_err take_scratch(struct tiara_run *r)
{
    struct scratch s = scratch_of(r->s.call);
    enum tiara_err err = reserve(r->s.x, &s, r->s.call->slots);

    if (err != TIARA_OK)
        return err;
    r->scratch = r->s.x->tmp;
    r->tmp_bytes = s.tmp;
    r->scratch_bytes = s.tmp + s.reqs;
    r->get_scratch = r->scratch + (size_t)r->s.window * r->scratch_bytes;
    r->get_bytes = s.get;
    return TIARA_OK;
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
    r->first_slot = x->arena ? x->arena->next_slot : 0;
    r->s = (struct tiara_sched){.ops = &host_ops,
        .x = x,
        .call = call,
        .chunk_elems = step,
        .nchunks = nchunks,
        .window = nchunks < (size_t)call->slots ? (int)nchunks : call->slots,
        .nslots = TIARA_SLOTS,
        .slot = (int)r->first_slot};
    r->bounce = NULL;
    if (nchunks == 0)
        return TIARA_OK;
    err = take_scratch(r);
    if (err == TIARA_OK && (call->stage_in || call->stage_out))
        err = tiara_run_stage_open(r);
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
        a->next_slot = (r->first_slot + r->s.nchunks) % TIARA_SLOTS;
    return err;
}

enum tiara_err tiara_exec_run(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    struct tiara_run r;
    enum tiara_err err = tiara_exec_open(&r, x, call);

    if (err == TIARA_OK)
        err = tiara_sched_run(&r.s);
    return tiara_exec_close(&r, err);
}

void tiara_exec_fini(struct tiara_exec *x)
{
    tiara_free(x->tmp);
    x->tmp = NULL;
    x->tmp_bytes = 0;
}
