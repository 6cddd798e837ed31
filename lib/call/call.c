/*
 * One call, from checked arguments to its path: small slots, a plan, or back to the caller for the
 * MPI below.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"
#include <string.h>

int tiara_core_raise_code(MPI_Comm comm, int code)
{
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

int tiara_core_raise(MPI_Comm comm, enum tiara_err err)
{
    int code = MPI_ERR_OTHER;

    if (err == TIARA_OK)
        return MPI_SUCCESS;
    if (err == TIARA_ERR_NOMEM || err == TIARA_ERR_NOSPACE)
        code = MPI_ERR_NO_MEM;
    else if (err == TIARA_ERR_ARG)
        code = MPI_ERR_BUFFER;
    return tiara_core_raise_code(comm, code);
}

void tiara_call_query(const struct tiara_call *call, bool device, struct tiara_tune_call *q)
{
    *q = (struct tiara_tune_call){.coll = call->coll,
        .count = call->count,
        .elem_size = call->elem.size,
        .commutative = !call->elem.redop || call->elem.redop->commutative,
        .device = device};
}

/*
 * 32 bits that differ, with overwhelming odds, when two ranks call differently. Each bit depends on
 * all that is hashed, since message tags have room for the lower ones only. Source: the finalizer
 * of MurmurHash3 (Appleby, public domain).
 */
uint32_t tiara_call_digest(const struct tiara_comm *c, const struct tiara_call *call)
{
    uint64_t h = call->count * call->elem.size;

    h ^= (uint64_t)call->coll << 60 ^ (uint64_t)(call->elem.type + 1) << 50 ^
         (uint64_t)(call->elem.oper + 1) << 55;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h ^ h >> 33) ^ c->id * 0x9e3779b9u;
}

struct tiara_arena_desc tiara_call_desc(const struct tiara_call *call)
{
    return (struct tiara_arena_desc){.in_addr = (uintptr_t)call->in,
        .out_addr = (uintptr_t)call->out,
        .count = call->count,
        .elem_size = (uint32_t)call->elem.size,
        .coll = call->coll,
        .type = call->elem.type,
        .oper = call->elem.oper < TIARA_NOPER ? call->elem.oper : -1};
}

void tiara_call_begin(struct tiara_comm *c, struct tiara_call *call)
{
    struct tiara_arena_desc d = tiara_call_desc(call);

    if (call->begun)
        return;
    call->begun = true;
    tiara_comm_wait(c);
    c->digest = tiara_call_digest(c, call);
    if (c->arena) {
        c->arena->comm_id = c->id;
        c->arena->call = call->number ? call->number : c->ncalls;
        tiara_arena_begin(c->arena, c->digest, &d);
    }
}

/*
 * An error of a call whose result buffer may hold partial sums: when that was also the input, the
 * call cannot go another way any more (TIARA_ERR_UNSUPPORTED) and has failed.
 */
static enum tiara_err after_partial_sums(struct tiara_call *call, enum tiara_err err)
{
    if (err != TIARA_ERR_UNSUPPORTED || call->in != call->out)
        return err;
    call->is_missed = true;
    return TIARA_ERR_PEER;
}

/* ---- small calls ---- */

struct tiara_small_call tiara_call_small(const struct tiara_call *call)
{
    return (struct tiara_small_call){.op = call->elem.redop,
        .mem = &tiara_mem_host,
        .in = call->in,
        .out = call->out,
        .count = call->count,
        .bytes = call->count * call->elem.size};
}

struct between_arg {
    struct tiara_comm *c;
    const struct tiara_call *call;
    const struct tiara_plan *plan;
    uint32_t digest;
};

/* The part between nodes of a small call. */
static enum tiara_err run_between(void *arg, void *buf, size_t count)
{
    struct between_arg *b = arg;
    struct tiara_exec_call x = {.plan = b->plan,
        .op = b->call->elem.redop,
        .in = buf,
        .out = buf,
        .count = count,
        .elem_size = b->call->elem.size,
        .slots = 1,
        .digest = b->digest};
    struct tiara_redop bare = *b->call->elem.redop;

    bare.finish = NULL; /* every rank finishes its own copy */
    x.op = &bare;
    return tiara_exec_run(&b->c->between, &x);
}

/* Every rank reduces its node's vectors, then combines with its column: more messages, but nobody
 * waits for a leader. */
static enum tiara_err run_columns(
    struct tiara_comm *c, const struct tiara_small_call *small, struct between_arg *between)
{
    enum tiara_err err = tiara_small_node(c->arena, small);

    if (err == TIARA_OK)
        err = run_between(between, small->out, small->count);
    if (err == TIARA_ERR_UNSUPPORTED)
        tiara_small_restore(c->arena, small);
    return err;
}

static enum tiara_err run_small(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    struct tiara_small_call small = tiara_call_small(call);
    struct between_arg between = {.c = c, .call = call};
    struct tiara_tune_choice inter = {.algo = choice->opts.inter};
    enum tiara_err err = TIARA_OK;

    tiara_call_begin(c, call);
    between.digest = c->digest;
    if (c->layout.nnodes == 1) {
        err = tiara_small_node(c->arena, &small);
    } else {
        err = tiara_core_plan(c, &inter, TIARA_PLAN_BETWEEN, &between.plan);
        if (err != TIARA_OK)
            return err;
        /* The one chunk counts on all ranks, also those that send nothing, since message tags hold
         * the count. */
        c->between.chunk_seq = c->exec.chunk_seq++;
        if (choice->opts.leaders > 1)
            err = run_columns(c, &small, &between);
        else
            err = tiara_small_hier(c->arena, &small, run_between, &between);
    }
    if (err == TIARA_OK && small.op->finish)
        small.op->finish(small.op, small.out, small.count, c->size);
    return err;
}

/* The same on GPU memory, through a copy. */
static enum tiara_err run_small_staged(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    struct tiara_call near;
    enum tiara_err err = tiara_device_small_begin(c, call, &near);

    if (err == TIARA_OK)
        err = run_small(c, &near, choice);
    if (err == TIARA_OK)
        err = tiara_device_small_end(c, call, &near);
    c->calls[TIARA_COUNT_STAGED] += err == TIARA_OK;
    return err;
}

static enum tiara_err run_fast(struct tiara_comm *c, struct tiara_call *call)
{
    struct tiara_small_call small = tiara_call_small(call);
    enum tiara_err err;

    tiara_call_begin(c, call);
    err = tiara_small_node(c->arena, &small);
    if (__builtin_expect(err != TIARA_OK, 0))
        return err;
    c->calls[TIARA_COUNT_SMALL]++;
    if (small.op->finish)
        small.op->finish(small.op, small.out, small.count, c->size);
    return TIARA_OK;
}

/* ---- plans ---- */

static enum tiara_err run_plan(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    struct tiara_exec_call x = {.op = call->elem.redop,
        .in = call->in,
        .out = call->out,
        .count = call->count,
        .elem_size = call->elem.size,
        .chunk_elems = choice->chunk_elems,
        .slots = choice->slots,
        .finish_ranks = c->size,
        .stage_in = call->far_in,
        .stage_out = call->far_out};
    bool staged = call->far_in || call->far_out;
    enum tiara_err err;

    tiara_call_begin(c, call);
    x.digest = c->digest;
    if (staged) {
        err = tiara_device_stage(c, call->far_in ? call->in : call->out);
        if (err != TIARA_OK)
            return err;
    }
    /* Before a plan is made, which takes an exchange: a peer that called differently is not in it,
     * but can be seen here. */
    if (c->arena)
        tiara_arena_publish(c->arena, 0);
    err = tiara_core_plan(c, choice, TIARA_PLAN_HOST, &x.plan);
    if (err != TIARA_OK)
        return err;
    err = tiara_exec_run(&c->exec, &x);
    c->calls[TIARA_COUNT_STAGED] += err == TIARA_OK && staged;
    /* Plans through cells write results only when all ranks have contributed; those without work in
     * the result buffer. */
    return choice->algo->flags & TIARA_ALGO_FLAT || c->layout.nnodes == c->size
               ? after_partial_sums(call, err)
               : err;
}

/* The caller's result, from host memory. */
static enum tiara_err write_result(
    struct tiara_comm *c, const struct tiara_call *call, const void *from)
{
    size_t bytes = call->count * call->elem.size;

    if (call->far_out)
        return tiara_device_copy(c, call->out, from, bytes, true);
    memcpy(call->out, from, bytes);
    return TIARA_OK;
}

/* MPI puts the result of an in-place reduce-scatter over the first block of the input, which is
 * needed until the end. */
static enum tiara_err run_scatter_in_place(
    struct tiara_comm *c, const struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    size_t bytes = call->count * call->elem.size;
    struct tiara_call aside = *call;
    enum tiara_err err;

    aside.out = tiara_alloc_aligned(64, bytes);
    aside.far_out = false;
    if (!aside.out)
        return TIARA_ERR_NOMEM;
    err = run_plan(c, &aside, choice);
    if (err == TIARA_OK)
        err = write_result(c, call, aside.out);
    tiara_free(aside.out);
    return err;
}

/* ---- types and operators that MPI does not know, where Tiara has no path ---- */

/* Bytes gathered from each rank at a time. */
#define GATHER_BYTES ((size_t)65536)

/* All-reduce of @n elements: gather all, fold in rank order. */
static enum tiara_err gather_fold_piece(struct tiara_comm *c, const struct tiara_call *call,
    size_t first, size_t n, char *all, const void **src)
{
    size_t bytes = n * call->elem.size;
    char *out = (char *)call->out + first * call->elem.size;
    enum tiara_err err;

    if (PMPI_Allgather((const char *)call->in + first * call->elem.size, (int)bytes, MPI_BYTE, all,
            (int)bytes, MPI_BYTE, c->comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    for (int r = 0; r < c->size; r++)
        src[r] = all + (size_t)r * bytes;
    err = call->elem.redop->fold(call->elem.redop, out, src, c->size, n);
    if (err == TIARA_OK && call->elem.redop->finish)
        call->elem.redop->finish(call->elem.redop, out, n, c->size);
    return err;
}

enum tiara_err tiara_call_gather_fold(struct tiara_comm *c, const struct tiara_call *call)
{
    size_t piece = GATHER_BYTES / call->elem.size;
    char *all = tiara_alloc((size_t)c->size, GATHER_BYTES);
    const void **src = tiara_alloc((size_t)c->size, sizeof(*src));
    enum tiara_err err = all && src ? TIARA_OK : TIARA_ERR_NOMEM;

    for (size_t at = 0; at < call->count && err == TIARA_OK; at += piece)
        err = gather_fold_piece(
            c, call, at, call->count - at < piece ? call->count - at : piece, all, src);
    tiara_free(src);
    tiara_free(all);
    return err;
}

enum tiara_err tiara_call_scatter_fold(struct tiara_comm *c, const struct tiara_call *call)
{
    size_t bytes = call->count * call->elem.size;
    char *unwanted = tiara_alloc(call->count, call->elem.size);
    enum tiara_err err = unwanted ? TIARA_OK : TIARA_ERR_NOMEM;

    /* In place, the result goes over block 0, which has been read when any other block's result is
     * there. */
    for (int b = 0; b < c->size && err == TIARA_OK; b++) {
        struct tiara_call block = *call;

        block.in = (const char *)call->in + (size_t)b * bytes;
        block.out = b == c->rank ? call->out : unwanted;
        err = tiara_call_gather_fold(c, &block);
    }
    tiara_free(unwanted);
    return err;
}

/* ---- the path ---- */

/* What the end of a call means for the next ones. Peers must see which call it is that failed, also
 * when it had hardly begun. */
static enum tiara_err settle(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err)
{
    if (err == TIARA_ERR_UNSUPPORTED) {
        tiara_comm_leave(c);
    } else if (err != TIARA_OK) {
        tiara_call_begin(c, call);
        tiara_comm_give_up(c);
        /* Within a node the arena's last call tells, and give_up has seen to it. */
        if (call->is_missed && c->layout.nnodes > 1)
            err = tiara_near_agree(c, err);
    }
    return err;
}

int tiara_call_abandon(struct tiara_comm *c, struct tiara_call *call)
{
    if (call->number == 0)
        c->ncalls++;
    tiara_call_begin(c, call);
    tiara_comm_give_up(c);
    return MPI_ERR_OTHER;
}

int tiara_call_fail(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err)
{
    tiara_stream_rest(c);
    if (c->facts.mpi_only)
        err = tiara_near_agree(c, err);
    else
        tiara_call_abandon(c, call);
    return tiara_core_raise(c->comm, err);
}

static enum tiara_err run_path(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice)
{
    enum tiara_err err;

    if (choice->path == TIARA_PATH_SMALL && (call->far_in || call->far_out))
        err = run_small_staged(c, call, choice);
    else if (choice->path == TIARA_PATH_SMALL)
        err = run_small(c, call, choice);
    else if (call->coll == TIARA_COLL_REDUCE_SCATTER && call->in == call->out)
        err = run_scatter_in_place(c, call, choice);
    else
        err = run_plan(c, call, choice);
    if (err == TIARA_OK)
        c->calls[choice->path == TIARA_PATH_SMALL ? TIARA_COUNT_SMALL : TIARA_COUNT_PLAN]++;
    return settle(c, call, err);
}

void tiara_call_log(const struct tiara_comm *c, const struct tiara_tune_call *q,
    const struct tiara_tune_choice *choice)
{
    char text[256];

    if (!tiara_log_enabled(TIARA_LOG_DEBUG))
        return;
    tiara_tune_describe(&c->facts, q, choice, text, sizeof(text));
    tiara_debug("communicator %u, %s of %zu x %zu bytes: %s", c->id, tiara_coll_name(q->coll),
        q->count, q->elem_size, text);
}

static enum tiara_err run_host(struct tiara_comm *c, struct tiara_call *call);

/* Reproducible mode has the strict order between nodes for whole vectors only: all blocks are
 * reduced, the own one is kept. */
static enum tiara_err scatter_by_allreduce(struct tiara_comm *c, const struct tiara_call *call)
{
    size_t bytes = call->count * call->elem.size;
    struct tiara_call whole = *call;
    enum tiara_err err;

    whole.coll = TIARA_COLL_ALLREDUCE;
    whole.count = call->count * (size_t)c->size;
    whole.out = tiara_alloc((size_t)c->size, bytes);
    if (!whole.out)
        return TIARA_ERR_NOMEM;
    whole.far_out = false;
    err = run_host(c, &whole);
    if (err == TIARA_OK)
        err = write_result(c, call, (char *)whole.out + (size_t)c->rank * bytes);
    tiara_free(whole.out);
    return err;
}

static enum tiara_err run_host(struct tiara_comm *c, struct tiara_call *call)
{
    struct tiara_tune_choice choice;
    struct tiara_tune_call q;
    struct tiara_redop strict;

    tiara_call_query(call, false, &q);
    tiara_tune_choose(&c->facts, &q, &choice);
    tiara_call_log(c, &q, &choice);
    if (choice.path == TIARA_PATH_MPI && c->facts.reproducible && !c->facts.mpi_only &&
        call->coll == TIARA_COLL_REDUCE_SCATTER)
        return scatter_by_allreduce(c, call);
    if (choice.path == TIARA_PATH_MPI)
        return TIARA_ERR_UNSUPPORTED;
    if (c->facts.reproducible && call->elem.redop && tiara_elem_is_small_float(&call->elem))
        call->elem.redop = tiara_elem_strict(call->elem.redop, &strict);
    return run_path(c, call, &choice);
}

enum tiara_err tiara_call_run(struct tiara_comm *c, const struct tiara_call *call)
{
    struct tiara_call exact = *call;
    bool done = false;
    enum tiara_err err = TIARA_OK;

    c->ncalls++;
    if (c->arena && c->arena->dead)
        tiara_comm_leave(c);
    if (c->device.possible && !c->facts.mpi_only) {
        err = tiara_stream_drain(c);
        if (err == TIARA_OK)
            err = tiara_device_classify(c, &exact);
        if (err == TIARA_OK)
            err = tiara_device_run(c, &exact, &done);
    }
    if (err != TIARA_OK)
        return settle(c, &exact, err);
    return done ? TIARA_OK : run_host(c, &exact);
}

/*
 * Whether the call may be on GPU memory, or there is something to vote on: then it is no fast one.
 */
static inline bool is_device_business(const struct tiara_comm *c)
{
    return c->device.possible && (tiara_device() || c->ncalls + 1 >= c->device.next_vote);
}

enum tiara_err tiara_call_fast(struct tiara_comm *c, struct tiara_call *call)
{
    if (__builtin_expect(
            c->arena->dead || tiara_log_enabled(TIARA_LOG_DEBUG) || is_device_business(c), 0))
        return tiara_call_run(c, call);
    c->ncalls++;
    return settle(c, call, run_fast(c, call));
}
