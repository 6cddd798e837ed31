/*
 * The host executor: chunks in flight, each with its own program counter.
 *
 * One idea: nothing here waits but tiara_exec_run(); tiara_exec_poll() does the same for a caller
 * that does not wait. advance() tries every chunk in flight, oldest first, and moves each as far as
 * its waits, messages and posts allow; only when none moved does the caller wait, with advance()
 * itself as the condition. So the copy-in of one chunk, the network part of another and the
 * copy-out of a third overlap without being written so.
 *
 * Agreement: chunks take the slots in turn, from call to call; slots take the same base step counts
 * on all node ranks; and chunk_seq counts chunks alike on all ranks. No choice here depends on
 * timing but the order of independent work.
 */
#include "exec/exec.h"
#include "base/alloc.h"
#include "base/log.h"
#include "exec/run.h"
#include "exec/trace.h"
#include <string.h>

/* ---- progress words ---- */

/* Own progress in @slot reaches @step of its present chunk. */
static void publish(struct tiara_run *r, const struct tiara_chunk *c, int slot, int step)
{
    struct tiara_arena *a = r->x->arena;
    tiara_u64 *word;

    if (!a)
        return;
    word = &a->ctl[a->index]->progress[slot];
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
    struct tiara_arena *a = r->x->arena;
    struct tiara_arena_head *head = tiara_arena_head(a, peer, a->seq);
    uint64_t seq;

    if (a->checked[peer] == a->seq)
        return true;
    /* [arena.head] acquire: the peer's desc may be read after it. */
    seq = tiara_load_acquire(&head->seq);
    if (seq != a->seq) {
        if (!on->word)
            *on = (struct tiara_wait_on){&head->seq, seq};
        return false;
    }
    r->err = tiara_arena_compare(a, peer);
    return true;
}

/* Whether @peer (a rank) has reached @step; compares digests when it is first heard of in this
 * call. */
static bool has_reached(struct tiara_run *r, const struct tiara_chunk *c, int slot,
    struct tiara_plan_wait wait, struct tiara_wait_on *on)
{
    struct tiara_arena *a = r->x->arena;
    int peer = r->x->node_index[wait.peer];
    uint64_t *seen = &a->seen[peer * TIARA_SLOTS + slot];
    uint64_t want = c->base + (uint64_t)wait.step;

    if (r->call->plan->single_copy && !has_begun(r, peer, on))
        return false;
    if (*seen < want) {
        tiara_u64 *word = &a->ctl[peer]->progress[slot];
        /* [arena.progress] acquire: pairs with publish(). */
        *seen = tiara_load_acquire(word);
        if (*seen < want) {
            if (!on->word)
                *on = (struct tiara_wait_on){word, *seen};
            return false;
        }
    }
    /* A step of this call's chunk cannot have been done before the peer began the call. */
    if (a->checked[peer] != a->seq && wait.step > 0)
        r->err = tiara_arena_compare(a, peer);
    return true;
}

/* ---- messages ---- */

static enum tiara_err start_message(
    struct tiara_run *r, struct tiara_chunk *c, int slot, const struct tiara_op *op)
{
    struct tiara_exec *x = r->x;
    bool sends = op->kind == TIARA_OP_SEND;
    const struct tiara_slice *slice = sends ? &r->call->plan->srcs[op->src] : &op->dst;
    struct tiara_place p = tiara_run_place(r, c, slot, slice, op->block);
    struct tiara_xport_req *req = &c->reqs[c->started];
    int peer = x->net_rank ? x->net_rank[op->peer] : op->peer;
    size_t bytes = p.bytes * (size_t)p.pieces;
    enum tiara_err err = TIARA_OK;

    if (p.pieces > 1 && p.stride != p.bytes) {
        tiara_error("a message cannot be sent from, or received into, blocks that lie apart");
        return TIARA_ERR_PLAN;
    }
    *req = (struct tiara_xport_req){.peer = peer, .len = bytes};
    if (bytes == 0)
        req->done = true;
    else if (sends)
        err = x->net->send(x->net_obj, peer, c->tag, p.at, bytes, req);
    else
        err = x->net->recv(x->net_obj, peer, c->tag, p.at, bytes, req);
    if (err == TIARA_OK)
        c->started++;
    return err;
}

/* Moves c->done over the messages that are complete. True when it moved. */
static bool collect_messages(struct tiara_run *r, struct tiara_chunk *c)
{
    int before = c->done;

    while (c->done < c->started && r->err == TIARA_OK) {
        struct tiara_xport_req *req = &c->reqs[c->done];
        if (!req->done)
            r->err = r->x->net->test(r->x->net_obj, req);
        if (!req->done)
            break;
        c->done++;
    }
    return c->done != before;
}

/* ---- a chunk ---- */

/* Posts of the ops behind the program counter whose messages are complete, in order. */
static bool flush_posts(struct tiara_run *r, struct tiara_chunk *c, int slot)
{
    const struct tiara_plan *plan = r->call->plan;
    int before = c->post_pc;

    for (; c->post_pc < c->pc; c->post_pc++) {
        const struct tiara_op *op = &plan->ops[c->post_pc];
        if (op->post == 0)
            continue;
        if (c->done < op->post_await)
            break;
        publish(r, c, slot, op->post);
    }
    return c->post_pc != before;
}

static bool waits_hold(struct tiara_run *r, const struct tiara_chunk *c, int slot, int first, int n,
    struct tiara_wait_on *on)
{
    for (int i = first; i < first + n; i++)
        if (!has_reached(r, c, slot, r->call->plan->waits[i], on))
            return false;
    return true;
}

static enum tiara_err execute_untraced(
    struct tiara_run *r, struct tiara_chunk *c, int slot, const struct tiara_op *op)
{
    switch (op->kind) {
    case TIARA_OP_COPY:
        return tiara_run_copy(r, c, slot, op);
    case TIARA_OP_REDUCE:
        return tiara_run_reduce(r, c, slot, op);
    default:
        return start_message(r, c, slot, op);
    }
}

static enum tiara_err execute(
    struct tiara_run *r, struct tiara_chunk *c, int slot, const struct tiara_op *op)
{
    size_t step = r->call->chunk_elems ? r->call->chunk_elems : r->call->count;
    enum tiara_err err;
    double begin;

    if (__builtin_expect(!r->x->trace, 1))
        return execute_untraced(r, c, slot, op);
    begin = tiara_now();
    err = execute_untraced(r, c, slot, op);
    tiara_trace_op(r->x->trace, op, slot, c->first / step, begin, tiara_now());
    return err;
}

/* The result of chunk @c is complete in OUT. */
static void finish_result(struct tiara_run *r, const struct tiara_chunk *c)
{
    const struct tiara_exec_call *call = r->call;
    char *result = c->room_out ? c->room_out : (char *)call->out + c->first * call->elem_size;

    if (call->op && call->op->finish)
        call->op->finish(call->op, result, c->count, call->finish_ranks);
}

static void start_chunk(struct tiara_run *r, int slot)
{
    const struct tiara_exec_call *call = r->call;
    struct tiara_chunk *c = &r->chunk[slot];
    struct tiara_exec *x = r->x;
    size_t step = call->chunk_elems ? call->chunk_elems : call->count;

    tiara_assert(c->state == TIARA_CHUNK_FREE);
    c->state = TIARA_CHUNK_RUN;
    c->first = r->next_chunk * step;
    c->count = call->count - c->first < step ? call->count - c->first : step;
    c->len = call->plan->coll == TIARA_COLL_ALLREDUCE
                 ? tiara_block_uniform(c->count, (size_t)call->plan->nblocks, 0, r->align).count
                 : c->count;
    c->pc = c->post_pc = c->started = c->done = 0;
    if (x->arena) {
        c->base = x->arena->base[slot];
        x->arena->base[slot] += (uint64_t)call->plan->nsteps;
    }
    c->tag = tiara_exec_tag(x->tag_bits, x->chunk_seq, call->digest);
    c->tmp = r->scratch + r->next_chunk % (size_t)r->slots * r->scratch_bytes;
    c->reqs = (struct tiara_xport_req *)(void *)(c->tmp + r->tmp_bytes);
    if (r->room)
        r->err = tiara_run_fetch(r, c, slot, r->next_chunk % (size_t)r->slots);
    x->chunk_seq++;
    r->next_chunk++;
}

/*
 * Moves one chunk as far as it goes. True when it moved at all. Messages are tested only where the
 * chunk cannot go on without: a test costs a system call in some networks, and the next op may be a
 * send that a peer waits for.
 */
static bool run_chunk(struct tiara_run *r, int slot, struct tiara_wait_on *on)
{
    struct tiara_chunk *c = &r->chunk[slot];
    const struct tiara_plan *plan = r->call->plan;
    bool moved = false;

    while (r->err == TIARA_OK && c->pc < plan->nops) {
        const struct tiara_op *op = &plan->ops[c->pc];

        if (c->done < op->await && collect_messages(r, c)) {
            moved = true;
            continue;
        }
        if (c->done < op->await || !waits_hold(r, c, slot, op->wait, op->nwait, on))
            break;
        if (r->err == TIARA_OK)
            r->err = execute(r, c, slot, op);
        c->pc++;
        moved = true;
        flush_posts(r, c, slot);
    }
    moved |= collect_messages(r, c);
    moved |= flush_posts(r, c, slot);
    if (r->err == TIARA_OK && c->pc < plan->nops)
        return moved;
    if (r->err != TIARA_OK)
        return true;
    if (c->done < c->started || c->post_pc < plan->nops ||
        !waits_hold(r, c, slot, plan->exit_wait, plan->exit_nwait, on))
        return moved;
    publish(r, c, slot, plan->nsteps);
    finish_result(r, c);
    c->state = TIARA_CHUNK_FREE;
    if (c->room_out)
        r->err = tiara_run_store(r, c, slot);
    return true;
}

/* Whether the copies of a chunk that comes or goes are done; its state moves on then. */
static bool end_copies(struct tiara_run *r, struct tiara_chunk *c, int slot)
{
    bool done = false;

    r->err = r->x->stage->test(r->x->stage_obj, slot, &done);
    if (done)
        c->state = c->state == TIARA_CHUNK_FETCH ? TIARA_CHUNK_RUN : TIARA_CHUNK_FREE;
    return done || r->err != TIARA_OK;
}

/* True when the chunk moved at all. */
static bool step_chunk(struct tiara_run *r, int slot, struct tiara_wait_on *on)
{
    struct tiara_chunk *c = &r->chunk[slot];

    if (c->state != TIARA_CHUNK_RUN)
        return end_copies(r, c, slot);
    return run_chunk(r, slot, on);
}

/* Chunks walk over all cells of the arena, from call to call: a cell that a peer has just read is
 * slow to write. */
static int slot_of(const struct tiara_run *r, size_t chunk)
{
    return (int)((r->first_slot + chunk) % TIARA_SLOTS);
}

/*
 * Tries every chunk in flight, oldest first. True when something moved, failed, or all is finished.
 */
static bool advance(void *arg, struct tiara_wait_on *on)
{
    struct tiara_run *r = arg;
    bool moved = false, elsewhere = false;

    for (size_t i = r->oldest;
         i < r->oldest + (size_t)r->slots && i < r->nchunks && r->err == TIARA_OK; i++) {
        int slot = slot_of(r, i);
        struct tiara_chunk *c = &r->chunk[slot];

        if (i == r->next_chunk) {
            start_chunk(r, slot);
            moved = true;
        }
        if (r->err == TIARA_OK && c->state != TIARA_CHUNK_FREE)
            moved |= step_chunk(r, slot, on);
        elsewhere |=
            c->state != TIARA_CHUNK_FREE && (c->state != TIARA_CHUNK_RUN || c->done < c->started);
    }
    while (r->oldest < r->next_chunk && r->chunk[slot_of(r, r->oldest)].state == TIARA_CHUNK_FREE)
        r->oldest++;
    if (elsewhere) /* messages and copies have no word to sleep on */
        on->word = NULL;
    return moved || r->err != TIARA_OK || r->oldest == r->nchunks;
}

/* ---- a call ---- */

/* Block boundaries on cache lines where elements allow it. */
static size_t block_align(size_t elem_size)
{
    return elem_size <= 64 && 64 % elem_size == 0 ? 64 / elem_size : 1;
}

/* How the private memory of a call is divided. */
struct scratch {
    size_t tmp; /* bytes of TMP of one slot */
    size_t reqs; /* bytes of the request table of one slot */
    size_t pull; /* bytes of one pulled source */
    int npull; /* most sources that a reduction pulls */
};

/* Most sources of one op that lie in peers' private memory, and the most blocks of one. */
static int most_pulled(const struct tiara_plan *plan, int *blocks_out)
{
    int most = 0;

    *blocks_out = 0;
    for (int i = 0; plan->single_copy && i < plan->nops; i++) {
        int pulled = 0;
        for (int k = 0; k < plan->ops[i].nsrc && plan->ops[i].kind == TIARA_OP_REDUCE; k++) {
            const struct tiara_slice *s = &plan->srcs[plan->ops[i].src + k];
            bool remote =
                s->owner != plan->rank && (s->buf == TIARA_BUF_IN || s->buf == TIARA_BUF_OUT);
            pulled += remote;
            if (remote && s->count > *blocks_out)
                *blocks_out = s->count;
        }
        most = pulled > most ? pulled : most;
    }
    return most;
}

static struct scratch scratch_of(const struct tiara_exec_call *call)
{
    const struct tiara_plan *plan = call->plan;
    size_t elems = call->chunk_elems ? call->chunk_elems : call->count;
    struct scratch s;
    int blocks;

    if (plan->coll == TIARA_COLL_ALLREDUCE)
        elems = tiara_block_uniform(elems, (size_t)plan->nblocks, 0, block_align(call->elem_size))
                    .count;
    s.npull = most_pulled(plan, &blocks);
    s.pull = (elems * call->elem_size * (size_t)blocks + 63) / 64 * 64;
    s.tmp = (elems * call->elem_size * (size_t)plan->tmp_blocks + 63) / 64 * 64;
    s.reqs = ((size_t)plan->nasync * sizeof(struct tiara_xport_req) + 63) / 64 * 64;
    return s;
}

enum tiara_err tiara_exec_reserve(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    struct scratch s = scratch_of(call);
    size_t need = (size_t)call->slots * (s.tmp + s.reqs) + (size_t)s.npull * s.pull;

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

/* Divides the scratch memory: a part for each chunk in flight, then the room for pulled sources. */
static void divide_scratch(struct tiara_run *r)
{
    struct scratch s = scratch_of(r->call);

    r->scratch = r->x->tmp;
    r->tmp_bytes = s.tmp;
    r->scratch_bytes = s.tmp + s.reqs;
    r->pull_room = r->scratch + (size_t)r->slots * r->scratch_bytes;
    r->pull_bytes = s.pull;
}

/* After an error: no message may write into memory that is the caller's again. */
static void cancel_messages(struct tiara_run *r)
{
    for (int slot = 0; slot < TIARA_SLOTS; slot++) {
        struct tiara_chunk *c = &r->chunk[slot];
        for (int i = c->done; c->state == TIARA_CHUNK_RUN && i < c->started; i++)
            if (!c->reqs[i].done)
                r->x->net->cancel(r->x->net_obj, &c->reqs[i]);
    }
}

struct tiara_run *tiara_exec_run_new(void)
{
    return tiara_alloc(1, sizeof(struct tiara_run));
}

enum tiara_err tiara_exec_open(
    struct tiara_run *r, struct tiara_exec *x, const struct tiara_exec_call *call)
{
    size_t step = call->chunk_elems ? call->chunk_elems : call->count;
    enum tiara_err err;

    *r = (struct tiara_run){.x = x, .call = call, .align = block_align(call->elem_size)};
    if (call->count == 0)
        return TIARA_OK;
    r->nchunks = call->count / step + (call->count % step != 0);
    r->slots = r->nchunks < (size_t)call->slots ? (int)r->nchunks : call->slots;
    r->first_slot = x->arena ? x->arena->next_slot : 0;
    err = tiara_exec_reserve(x, call);
    divide_scratch(r);
    if (err == TIARA_OK && (call->stage_in || call->stage_out))
        err = tiara_run_stage_open(r);
    return err;
}

bool tiara_exec_poll(
    struct tiara_run *r, struct tiara_wait_on *on, bool *moved_out, enum tiara_err *err_out)
{
    *on = (struct tiara_wait_on){0};
    *moved_out = r->oldest < r->nchunks && advance(r, on);
    *err_out = r->err;
    return r->err != TIARA_OK || r->oldest == r->nchunks;
}

enum tiara_err tiara_exec_close(struct tiara_run *r, enum tiara_err err)
{
    struct tiara_arena *a = r->x->arena;

    if (err != TIARA_OK) {
        cancel_messages(r);
        tiara_run_stage_drain(r);
    } else if (a) {
        a->next_slot = (r->first_slot + r->nchunks) % TIARA_SLOTS;
    }
    return err;
}

enum tiara_err tiara_exec_run(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    struct tiara_run r;
    enum tiara_err err = tiara_exec_open(&r, x, call);

    while (err == TIARA_OK && r.oldest < r.nchunks) {
        err = tiara_wait(x->wait, advance, &r);
        err = tiara_err_first(err, r.err);
    }
    return tiara_exec_close(&r, err);
}

void tiara_exec_fini(struct tiara_exec *x)
{
    tiara_free(x->tmp);
    x->tmp = NULL;
    x->tmp_bytes = 0;
}
