/*
 * Calls to their end: the host's part of the device executor.
 *
 * As in exec/exec.c, nothing here waits but the call itself, with advance() as the condition: it
 * takes each chunk in flight, oldest first, as far through its actions as messages and events
 * allow. A chunk has a slot, and the slot a stream, so that chunks overlap. On one node there are
 * no messages: the whole vector is one launch, whose thread blocks take the chunks by themselves.
 *
 * After an error the kernels are told to end, and waited for, so that nothing works in the caller's
 * memory when its call returns.
 */
#include "base/block.h"
#include "base/log.h"
#include "exec/exec.h"
#include "gpu/node.h"
#include "gpu/range.h"
#include <string.h>

/* Seconds that kernels have to end after they were told to; they look at the abort word all the
 * time. */
#define END_S 10

struct chunk {
    bool active;
    size_t first, count; /* elements of the vector, or of each block */
    int at; /* next action */
    bool launched; /* the slot's stream may be busy */
    uint32_t tag;
    uint64_t range;
};

struct run {
    struct tiara_gpu_node *node;
    struct tiara_exec *x;
    const struct tiara_exec_call *call;
    const struct tiara_gpu_call *gpu;
    const struct tiara_gpu_program *program;
    struct tiara_gpu_shape shape;
    struct tiara_kernel_exec_args args;
    struct tiara_gpu_net net;
    bool whole; /* one launch */
    bool greeted; /* the first launch of the call is on its way */
    size_t nchunks, next_chunk, oldest;
    enum tiara_err err;
    struct chunk chunk[TIARA_KERNEL_SLOTS];
};

/* ---- memory of messages ---- */

/* Where @slice, which holds blocks @block .., lies in device memory for the chunk in @slot. False:
 * its blocks lie apart. */
static bool locate(const struct run *r, int slot, const struct tiara_slice *slice, int block,
    struct tiara_gpu_letter *to)
{
    const struct tiara_exec_call *call = r->call;
    const struct chunk *c = &r->chunk[slot];
    size_t es = call->elem_size, len = tiara_gpu_block_len(call, c->count);
    size_t n = (size_t)slice->count, first = (size_t)slice->first;
    bool user = slice->buf == TIARA_BUF_IN || slice->buf == TIARA_BUF_OUT;
    int64_t stride = slice->buf == TIARA_BUF_IN ? r->args.in_stride : r->args.out_stride;
    size_t offset = len * first, end = len * (size_t)(block + slice->count);

    if (user && stride >= 0)
        offset = (size_t)stride * first;
    if (slice->buf == TIARA_BUF_CELL)
        to->at = r->args.peer[r->x->node_index[slice->owner]].segment +
                 tiara_kernel_cell_at(slot, r->args.cell_bytes);
    else if (slice->buf == TIARA_BUF_TMP)
        to->at = r->args.tmp + (size_t)slot * r->args.tmp_bytes;
    else
        to->at =
            (slice->buf == TIARA_BUF_IN ? (char *)(uintptr_t)call->in : call->out) + c->first * es;
    to->at += offset * es;
    to->bytes = n * len * es;
    if (call->plan->coll == TIARA_COLL_ALLREDUCE && end > c->count)
        to->bytes = len * (size_t)block < c->count ? (c->count - len * (size_t)block) * es : 0;
    return !(user && stride >= 0 && n > 1 && c->count != call->count);
}

static enum tiara_err start_message(struct run *r, int slot, const struct tiara_op *op)
{
    struct tiara_exec *x = r->x;
    bool sends = op->kind == TIARA_OP_SEND;
    const struct tiara_slice *slice = sends ? &r->call->plan->srcs[op->src] : &op->dst;
    struct tiara_gpu_letter letter = {.sends = sends,
        .direct = r->gpu->direct,
        .peer = x->net_rank ? x->net_rank[op->peer] : op->peer,
        .tag = r->chunk[slot].tag};

    if (!locate(r, slot, slice, op->block, &letter)) {
        tiara_error("a message cannot be sent from, or received into, blocks that lie apart");
        return TIARA_ERR_PLAN;
    }
    return tiara_gpu_mail_start(&r->node->slot[slot].mail, &r->net, &letter);
}

/* ---- a chunk ---- */

static void start_chunk(struct run *r, int slot)
{
    const struct tiara_exec_call *call = r->call;
    struct chunk *c = &r->chunk[slot];

    *c = (struct chunk){.active = true, .count = call->count};
    if (!r->whole) {
        c->first = r->next_chunk * r->shape.chunk;
        c->count =
            call->count - c->first < r->shape.chunk ? call->count - c->first : r->shape.chunk;
    }
    c->tag = tiara_exec_tag(r->x->tag_bits, r->x->chunk_seq, call->digest);
    r->x->chunk_seq += r->whole ? r->shape.nchunks : 1;
    r->node->slot[slot].mail.started = r->node->slot[slot].mail.done = 0;
    r->next_chunk++;
}

/* A launch that would do nothing: the greeting of a later chunk, or the end of one that has no
 * peers. */
static bool is_needless(const struct run *r, const struct tiara_gpu_action *a)
{
    if (a->greets)
        return r->greeted;
    return a->first_op == a->end_op && r->args.nranks == 1 && r->args.finish_ranks == 0;
}

static enum tiara_err launch(struct run *r, int slot, const struct tiara_gpu_action *a)
{
    struct tiara_gpu_slot *s = &r->node->slot[slot];
    struct chunk *c = &r->chunk[slot];
    enum tiara_err err;

    if (is_needless(r, a))
        return TIARA_OK;
    if (r->whole)
        tiara_gpu_args_whole(&r->args, r->call, &r->shape);
    else
        tiara_gpu_args_chunk(&r->args, r->call, c->first, c->count, slot);
    tiara_gpu_args_action(&r->args, a);
    if (!r->greeted)
        r->args.flags |= TIARA_KERNEL_FIRST;
    r->greeted = true;
    if (!c->launched)
        c->range = tiara_gpu_range_begin(TIARA_GPU_RANGE_NODE);
    err = tiara_gpu_launch_exec(&r->args, &r->shape, s->stream);
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaEventRecord(s->launched, s->stream), "cudaEventRecord");
    c->launched = true;
    return err;
}

/* Whether the slot's launches are over, and well. */
static bool are_launches_over(struct run *r, int slot)
{
    struct chunk *c = &r->chunk[slot];
    bool done = true;

    if (!c->launched)
        return true;
    r->err = tiara_gpu_event_test(r->node->slot[slot].launched, &done);
    if (r->err == TIARA_OK)
        r->err = tiara_gpu_node_status(r->node);
    if (r->err != TIARA_OK || !done)
        return false;
    tiara_gpu_range_end(c->range);
    c->launched = false;
    return true;
}

/* Takes action @a when it can start. True when it was taken. */
static bool take(struct run *r, int slot, const struct tiara_gpu_action *a)
{
    const struct tiara_gpu_mail *mail = &r->node->slot[slot].mail;

    if (mail->done < a->await || (a->idle && !are_launches_over(r, slot)))
        return false;
    r->err = a->kind == TIARA_GPU_LAUNCH ? launch(r, slot, a)
                                         : start_message(r, slot, &r->call->plan->ops[a->first_op]);
    r->chunk[slot].at++;
    return true;
}

/* Moves one chunk as far as it goes. True when it moved at all. */
static bool step_chunk(struct run *r, int slot)
{
    const struct tiara_gpu_tables *t = &r->program->tables;
    struct tiara_gpu_mail *mail = &r->node->slot[slot].mail;
    struct chunk *c = &r->chunk[slot];
    bool moved = false;

    for (;;) {
        bool more = false;

        while (r->err == TIARA_OK && c->at < t->nactions && take(r, slot, &t->actions[c->at]))
            moved = true;
        if (r->err == TIARA_OK && mail->done < mail->started)
            r->err = tiara_gpu_mail_drive(mail, &r->net, &more);
        moved |= more;
        if (r->err != TIARA_OK)
            return true;
        if (!more)
            break;
    }
    if (c->at < t->nactions || mail->done < mail->started || !are_launches_over(r, slot))
        return moved;
    c->active = false;
    return true;
}

/*
 * Tries every chunk in flight, oldest first. True when something moved, failed, or all is finished.
 */
static bool advance(void *arg, struct tiara_wait_on *on)
{
    struct run *r = arg;
    size_t slots = (size_t)r->shape.slots;
    bool moved = false;

    (void)on; /* neither devices nor networks have a word to sleep on */
    for (size_t i = r->oldest; i < r->oldest + slots && i < r->nchunks && r->err == TIARA_OK; i++) {
        int slot = (int)(i % slots);

        if (i == r->next_chunk) {
            start_chunk(r, slot);
            moved = true;
        }
        if (r->chunk[slot].active)
            moved |= step_chunk(r, slot);
    }
    while (r->oldest < r->next_chunk && !r->chunk[r->oldest % slots].active)
        r->oldest++;
    return moved || r->err != TIARA_OK || r->oldest == r->nchunks;
}

/* ---- the end ---- */

/* A stream that fails has nothing running any more. */
static bool is_busy(cudaStream_t stream)
{
    cudaError_t code = cudaStreamQuery(stream);

    (void)cudaGetLastError(); /* the error of the call is already known */
    return code == cudaErrorNotReady;
}

static bool are_streams_idle(void *arg, struct tiara_wait_on *on)
{
    const struct tiara_gpu_node *node = arg;
    bool busy = is_busy(node->down) || is_busy(node->up);

    (void)on;
    for (int i = 0; i < TIARA_KERNEL_SLOTS && !busy; i++)
        busy = is_busy(node->slot[i].stream);
    return !busy;
}

static enum tiara_err end_late(void *arg, double waited_s, bool first)
{
    (void)arg;
    (void)first;
    return waited_s < END_S ? TIARA_OK : TIARA_ERR_TIMEOUT;
}

/* After an error: ends what runs. The node object is of no use any more. */
static void give_up(struct tiara_gpu_node *node)
{
    struct tiara_wait wait = {.spins = 100, .yields = -1, .stuck = end_late};

    node->dead = node->reported = true;
    tiara_gpu_node_abort(node);
    if (tiara_wait(&wait, are_streams_idle, node) != TIARA_OK)
        tiara_error("kernels of a call that failed did not end within %d s", END_S);
}

static void cancel_messages(struct run *r)
{
    for (int slot = 0; slot < TIARA_KERNEL_SLOTS; slot++)
        if (r->chunk[slot].active && r->program->tables.window > 0)
            tiara_gpu_mail_cancel(&r->node->slot[slot].mail, &r->net);
}

static enum tiara_err run_chunks(struct run *r)
{
    enum tiara_err err = TIARA_OK;

    for (int i = 0; i < r->shape.slots && err == TIARA_OK; i++)
        err = tiara_gpu_node_order(r->node, r->node->slot[i].stream);
    while (err == TIARA_OK && r->oldest < r->nchunks) {
        err = tiara_wait(r->x->wait, advance, r);
        err = tiara_err_first(err, r->err);
    }
    if (err != TIARA_OK) {
        cancel_messages(r);
        give_up(r->node);
    }
    return err;
}

/* ---- single copy ---- */

/* What a rank tells its node peers about the buffers of a call. */
struct buffers {
    struct tiara_gpu_export in, out;
    uint32_t digest;
    int32_t err;
};

struct mappings {
    struct tiara_gpu_import *in[TIARA_KERNEL_PEERS], *out[TIARA_KERNEL_PEERS];
};

/* Bytes of the buffers from their beginning. */
static size_t span(const struct tiara_exec_call *call, int64_t stride)
{
    size_t blocks = stride > 0 ? (size_t)call->plan->nblocks : 1;

    return blocks * call->count * call->elem_size;
}

static enum tiara_err export_buffers(const struct run *r, struct buffers *mine)
{
    const struct tiara_exec_call *call = r->call;
    enum tiara_err err = tiara_gpu_export(call->in, span(call, r->args.in_stride), &mine->in);

    if (err == TIARA_OK)
        err = tiara_gpu_export(call->out, span(call, r->args.out_stride), &mine->out);
    return err;
}

static void drop_mappings(const struct run *r, const struct mappings *maps)
{
    for (int i = 0; i < r->node->group.size; i++) {
        if (maps->in[i])
            tiara_gpu_import_drop(r->node->imports, maps->in[i]);
        if (maps->out[i])
            tiara_gpu_import_drop(r->node->imports, maps->out[i]);
    }
}

static enum tiara_err map_peer(
    struct run *r, int i, const struct buffers *theirs, struct mappings *maps)
{
    void *in = NULL, *out = NULL;
    enum tiara_err err;

    if (i == r->node->group.rank || !r->args.peer[i].segment)
        return TIARA_OK;
    err = tiara_gpu_import(r->node->imports, &theirs->in, &maps->in[i], &in);
    if (err == TIARA_OK)
        err = tiara_gpu_import(r->node->imports, &theirs->out, &maps->out[i], &out);
    r->args.peer[i].in = in;
    r->args.peer[i].out = out;
    return err;
}

/*
 * Maps the buffers of all peers. Collective over the node; TIARA_ERR_UNSUPPORTED on all ranks when
 * one cannot, and nothing is mapped then. All ranks are in the call when it returns: their buffers
 * may be read.
 */
static enum tiara_err map_buffers(struct run *r, struct mappings *maps)
{
    struct tiara_xport_group *group = &r->node->group;
    struct buffers mine = {.digest = r->call->digest}, all[TIARA_KERNEL_PEERS];
    enum tiara_err err;

    mine.err = export_buffers(r, &mine);
    err = group->allgather(group->arg, &mine, all, sizeof(mine));
    if (err != TIARA_OK)
        return err;
    for (int i = 0; i < group->size; i++) {
        if (all[i].digest != mine.digest) {
            tiara_error("rank %d of the node called differently: digest %08x, rank %d has %08x", i,
                (unsigned)all[i].digest, group->rank, (unsigned)mine.digest);
            return TIARA_ERR_MISMATCH;
        }
    }
    for (int i = 0; i < group->size && err == TIARA_OK; i++)
        err = all[i].err == TIARA_OK ? map_peer(r, i, &all[i], maps) : TIARA_ERR_UNSUPPORTED;
    err = tiara_xport_agree(group, err == TIARA_OK ? TIARA_OK : TIARA_ERR_UNSUPPORTED);
    if (err != TIARA_OK) {
        drop_mappings(r, maps);
        memset(maps, 0, sizeof(*maps));
    }
    return err;
}

/* ---- calls ---- */

static struct tiara_gpu_net net_of(const struct tiara_gpu_node *node, const struct tiara_exec *x)
{
    return (struct tiara_gpu_net){x->net, x->net_obj, node->down, node->up};
}

enum tiara_err tiara_gpu_run_plan(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu)
{
    struct run r = {.node = node, .x = x, .call = call, .gpu = gpu, .net = net_of(node, x)};
    struct mappings maps = {0};
    bool single = call->plan->single_copy;
    enum tiara_err err;

    r.program = tiara_gpu_program_find(node, call->plan);
    r.whole = x->nranks == node->group.size && call->plan->nasync == 0;
    if (single && !gpu->share)
        return TIARA_ERR_UNSUPPORTED;
    err = tiara_gpu_shape_init(&r.shape, node, call, gpu, r.whole);
    if (err != TIARA_OK)
        return err;
    r.nchunks = r.whole ? 1 : r.shape.nchunks;
    tiara_gpu_args_init(&r.args, node, r.program, call, gpu, &r.shape);
    if (single)
        err = map_buffers(&r, &maps);
    if (err == TIARA_ERR_UNSUPPORTED)
        return err;
    if (err != TIARA_OK)
        give_up(node);
    else
        err = run_chunks(&r);
    drop_mappings(&r, &maps);
    return err;
}

/* A call in packets. */
struct small {
    struct tiara_gpu_node *node;
    enum tiara_err err;
};

static bool is_small_over(void *arg, struct tiara_wait_on *on)
{
    struct small *s = arg;
    bool done = true;

    (void)on;
    s->err = tiara_gpu_event_test(s->node->slot[0].launched, &done);
    if (s->err == TIARA_OK)
        s->err = tiara_gpu_node_status(s->node);
    return done || s->err != TIARA_OK;
}

enum tiara_err tiara_gpu_run_small(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu)
{
    struct tiara_gpu_slot *slot = &node->slot[0];
    struct small s = {.node = node};
    uint64_t range = tiara_gpu_range_begin(TIARA_GPU_RANGE_NODE);
    enum tiara_err err = tiara_gpu_node_order(node, slot->stream);

    if (err == TIARA_OK)
        err = tiara_gpu_launch_small(node, call, gpu, slot->stream);
    if (err == TIARA_ERR_UNSUPPORTED) {
        tiara_gpu_range_end(range);
        return err;
    }
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaEventRecord(slot->launched, slot->stream), "cudaEventRecord");
    if (err == TIARA_OK) {
        err = tiara_wait(x->wait, is_small_over, &s);
        err = tiara_err_first(err, s.err);
    }
    tiara_gpu_range_end(range);
    if (err != TIARA_OK)
        give_up(node);
    return err;
}
