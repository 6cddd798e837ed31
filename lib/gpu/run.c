/*
 * Calls: the host's part of the device executor.
 *
 * Nothing here waits but the exchange of buffers at a start: the scheduler of the host executor
 * (exec/sched.c) takes each chunk in flight as far through its actions as messages and events
 * allow. A chunk has a slot, and the slot a stream, so that chunks overlap. On one node there are
 * no messages: the whole vector is one launch, whose thread blocks take the chunks by themselves.
 *
 * After an error the kernels are told to end, and waited for, so that nothing works in the caller's
 * memory when its call returns.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "gpu/node.h"
#include "gpu/range.h"

/* Seconds that kernels have to end after they were told to; they look at the abort word all the
 * time. */
#define END_S 10

struct chunk {
    struct tiara_part part;
    int at; /* next action */
    bool launched; /* the slot's stream may be busy */
    uint64_t range;
};

/* Peers' buffers. */
struct mappings {
    struct tiara_gpu_import *in[TIARA_KERNEL_PEERS], *out[TIARA_KERNEL_PEERS];
};

struct tiara_gpu_run {
    struct tiara_sched s; /* the first, so that it can be found from it */
    struct tiara_gpu_node *node;
    const struct tiara_gpu_call *gpu;
    struct mappings maps;
    bool small; /* in packets: the rest but range is not used */
    uint64_t range; /* of a call in packets */
    const struct tiara_gpu_program *program;
    struct tiara_gpu_shape shape;
    struct tiara_kernel_exec_args args;
    struct tiara_gpu_net net;
    bool whole; /* one launch */
    bool greeted; /* the first launch of the call is on its way */
    struct chunk chunk[TIARA_KERNEL_SLOTS];
};
_Static_assert(TIARA_KERNEL_SLOTS <= TIARA_SLOTS, "the scheduler has a place for each slot");

static struct tiara_gpu_run *run_of(struct tiara_sched *s)
{
    return (struct tiara_gpu_run *)(void *)s;
}

/* ---- messages ---- */

/* Where @slice, which holds blocks @block .., lies in device memory for @part. */
static struct tiara_place locate(const struct tiara_gpu_run *r, const struct tiara_part *part,
    const struct tiara_slice *slice, int block)
{
    const struct tiara_exec_call *call = r->s.call;
    char *base;

    if (slice->buf == TIARA_BUF_CELL)
        base = r->args.peer[r->s.x->node_index[slice->owner]].segment +
               tiara_kernel_cell_at(part->slot, r->args.cell_bytes);
    else if (slice->buf == TIARA_BUF_TMP)
        base = r->args.tmp + (size_t)part->slot * r->args.tmp_bytes;
    else
        base = slice->buf == TIARA_BUF_IN ? (char *)(uintptr_t)call->in : call->out;
    return tiara_part_place(call, part, slice, block, base,
        slice->buf == TIARA_BUF_CELL || slice->buf == TIARA_BUF_TMP);
}

static enum tiara_err start_message(
    struct tiara_gpu_run *r, const struct tiara_part *part, const struct tiara_op *op)
{
    const struct tiara_slice *slice = tiara_message_slice(r->s.call->plan, op);
    struct tiara_place place = locate(r, part, slice, op->block);
    struct tiara_message m;
    enum tiara_err err = tiara_message_of(r->s.x, part, op, &place, &m);

    if (err != TIARA_OK)
        return err;
    return tiara_gpu_mail_start(&r->node->slot[part->slot].mail, &r->net, &m, r->gpu->direct);
}

/* ---- a chunk ---- */

static void start_chunk(struct tiara_sched *s, const struct tiara_part *part)
{
    struct tiara_gpu_run *r = run_of(s);
    struct tiara_gpu_mail *mail = &r->node->slot[part->slot].mail;

    r->chunk[part->slot] = (struct chunk){.part = *part};
    if (r->whole) /* counted as the host executor counts them */
        s->x->chunk_seq += r->shape.nchunks - 1;
    mail->started = mail->done = 0;
}

/* A launch that would do nothing: the greeting of a later chunk, or the end of one that has no
 * peers. */
static bool is_needless(const struct tiara_gpu_run *r, const struct tiara_gpu_action *a)
{
    if (a->greets)
        return r->greeted;
    return a->first_op == a->end_op && r->args.nranks == 1 && r->args.finish_ranks == 0;
}

static enum tiara_err launch(struct tiara_gpu_run *r, int slot, const struct tiara_gpu_action *a)
{
    struct tiara_gpu_slot *s = &r->node->slot[slot];
    struct chunk *c = &r->chunk[slot];
    enum tiara_err err;

    if (is_needless(r, a))
        return TIARA_OK;
    if (r->whole)
        tiara_gpu_args_whole(&r->args, r->s.call, &r->shape);
    else
        tiara_gpu_args_chunk(&r->args, r->s.call, c->part.first, c->part.count, slot);
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
static bool are_launches_over(struct tiara_gpu_run *r, int slot)
{
    struct chunk *c = &r->chunk[slot];
    bool done = true;

    if (!c->launched)
        return true;
    r->s.err = tiara_gpu_event_test(r->node->slot[slot].launched, &done);
    if (r->s.err == TIARA_OK)
        r->s.err = tiara_gpu_node_status(r->node);
    if (r->s.err != TIARA_OK || !done)
        return false;
    tiara_gpu_range_end(c->range);
    c->launched = false;
    return true;
}

/* Takes action @a when it can start. True when it was taken. */
static bool take(struct tiara_gpu_run *r, int slot, const struct tiara_gpu_action *a)
{
    const struct tiara_gpu_mail *mail = &r->node->slot[slot].mail;

    if (mail->done < a->await || (a->idle && !are_launches_over(r, slot)))
        return false;
    r->s.err = a->kind == TIARA_GPU_LAUNCH
                   ? launch(r, slot, a)
                   : start_message(r, &r->chunk[slot].part, &r->s.call->plan->ops[a->first_op]);
    r->chunk[slot].at++;
    return true;
}

static bool step_chunk(struct tiara_sched *s, int slot, struct tiara_wait_on *on)
{
    struct tiara_gpu_run *r = run_of(s);
    const struct tiara_gpu_tables *t = &r->program->tables;
    struct tiara_gpu_mail *mail = &r->node->slot[slot].mail;
    struct chunk *c = &r->chunk[slot];
    bool moved = false;

    (void)on;
    for (;;) {
        bool more = false;

        while (r->s.err == TIARA_OK && c->at < t->nactions && take(r, slot, &t->actions[c->at]))
            moved = true;
        if (r->s.err == TIARA_OK && mail->done < mail->started)
            r->s.err = tiara_gpu_mail_drive(mail, &r->net, &more);
        moved |= more;
        if (r->s.err != TIARA_OK)
            return true;
        if (!more)
            break;
    }
    if (c->at < t->nactions || mail->done < mail->started || !are_launches_over(r, slot))
        return moved;
    s->busy[slot] = false;
    return true;
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
static void revoke_node(struct tiara_gpu_node *node)
{
    struct tiara_wait wait = {.spins = 100, .yields = -1, .stuck = end_late};

    node->dead = node->reported = true;
    tiara_gpu_node_abort(node);
    if (tiara_wait(&wait, are_streams_idle, node) != TIARA_OK)
        tiara_error("kernels of a call that failed did not end within %d s", END_S);
}

/* Its kernels are ended by revoke_node(), with those of all chunks. */
static void drain_chunk(struct tiara_sched *s, int slot)
{
    struct tiara_gpu_run *r = run_of(s);

    tiara_gpu_mail_cancel(&r->node->slot[slot].mail, &r->net);
}

static const struct tiara_sched_ops device_ops = {
    .start = start_chunk, .step = step_chunk, .drain = drain_chunk};

/* ---- single copy ---- */

/* What a rank tells its node peers about the buffers of a call. */
struct buffers {
    struct tiara_gpu_export in, out;
    uint32_t digest;
    int32_t err;
};

/* Bytes of the buffers from their beginning. */
static size_t span(const struct tiara_exec_call *call, int64_t stride)
{
    size_t blocks = stride > 0 ? (size_t)call->plan->nblocks : 1;

    return blocks * call->count * call->elem_size;
}

static enum tiara_err export_buffers(const struct tiara_gpu_run *r, struct buffers *mine)
{
    const struct tiara_exec_call *call = r->s.call;
    enum tiara_err err = tiara_gpu_export(call->in, span(call, r->args.in_stride), &mine->in);

    if (err == TIARA_OK)
        err = tiara_gpu_export(call->out, span(call, r->args.out_stride), &mine->out);
    return err;
}

static void drop_mappings(struct tiara_gpu_run *r)
{
    for (int i = 0; i < r->node->group.size; i++) {
        if (r->maps.in[i])
            tiara_gpu_import_drop(r->node->imports, r->maps.in[i]);
        if (r->maps.out[i])
            tiara_gpu_import_drop(r->node->imports, r->maps.out[i]);
    }
    r->maps = (struct mappings){0};
}

static enum tiara_err map_peer(struct tiara_gpu_run *r, int i, const struct buffers *theirs)
{
    void *in = NULL, *out = NULL;
    enum tiara_err err;

    if (i == r->node->group.rank || !r->args.peer[i].segment)
        return TIARA_OK;
    err = tiara_gpu_import(r->node->imports, &theirs->in, &r->maps.in[i], &in);
    if (err == TIARA_OK)
        err = tiara_gpu_import(r->node->imports, &theirs->out, &r->maps.out[i], &out);
    r->args.peer[i].in = in;
    r->args.peer[i].out = out;
    return err;
}

/*
 * Maps the buffers of all peers. Collective over the node; TIARA_ERR_UNSUPPORTED on all ranks when
 * one cannot, and nothing is mapped then. All ranks are in the call when it returns: their buffers
 * may be read.
 */
static enum tiara_err map_buffers(struct tiara_gpu_run *r)
{
    struct tiara_xport_group *group = &r->node->group;
    struct buffers mine = {.digest = r->s.call->digest}, all[TIARA_KERNEL_PEERS];
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
        err = all[i].err == TIARA_OK ? map_peer(r, i, &all[i]) : TIARA_ERR_UNSUPPORTED;
    err = tiara_xport_agree(group, err == TIARA_OK ? TIARA_OK : TIARA_ERR_UNSUPPORTED);
    if (err != TIARA_OK)
        drop_mappings(r);
    return err;
}

/* ---- calls ---- */

static struct tiara_gpu_net net_of(const struct tiara_gpu_node *node, const struct tiara_exec *x)
{
    return (struct tiara_gpu_net){x->net, x->net_obj, node->down, node->up};
}

static enum tiara_err start_plan(struct tiara_gpu_run *r)
{
    const struct tiara_exec_call *call = r->s.call;
    struct tiara_gpu_node *node = r->node;
    bool single = call->plan->single_copy;
    enum tiara_err err;

    if (single && !r->gpu->share)
        return TIARA_ERR_UNSUPPORTED;
    r->program = tiara_gpu_program_find(node, call->plan);
    r->whole = r->s.x->nranks == node->group.size && call->plan->nasync == 0;
    err = tiara_gpu_shape_init(&r->shape, node, call, r->gpu, r->whole);
    if (err != TIARA_OK)
        return err;
    r->s.chunk_elems = r->whole ? call->count : r->shape.chunk;
    r->s.nchunks = r->whole ? 1 : r->shape.nchunks;
    r->s.window = r->s.nslots = r->shape.slots;
    tiara_gpu_args_init(&r->args, node, r->program, call, r->gpu, &r->shape);
    if (single)
        err = map_buffers(r);
    for (int i = 0; i < r->shape.slots && err == TIARA_OK; i++)
        err = tiara_gpu_node_order(node, node->slot[i].stream);
    return err;
}

/* In packets. */
static enum tiara_err start_small(struct tiara_gpu_run *r)
{
    struct tiara_gpu_slot *slot = &r->node->slot[0];
    enum tiara_err err = tiara_gpu_node_order(r->node, slot->stream);

    r->range = tiara_gpu_range_begin(TIARA_GPU_RANGE_NODE);
    if (err == TIARA_OK)
        err = tiara_gpu_launch_small(r->node, r->s.call, r->gpu, slot->stream);
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaEventRecord(slot->launched, slot->stream), "cudaEventRecord");
    if (err != TIARA_OK)
        tiara_gpu_range_end(r->range);
    return err;
}

struct tiara_gpu_run *tiara_gpu_run_new(void)
{
    return tiara_alloc(1, sizeof(struct tiara_gpu_run));
}

enum tiara_err tiara_gpu_run_start(struct tiara_gpu_node *node, struct tiara_exec *x,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu)
{
    struct tiara_gpu_run *r = node->run;
    enum tiara_err err;

    *r = (struct tiara_gpu_run){.s = {.ops = &device_ops, .x = x, .call = call},
        .node = node,
        .gpu = gpu,
        .small = !call->plan && call->count > 0,
        .net = net_of(node, x)};
    if (call->count == 0)
        return TIARA_OK; /* over at once */
    err = r->small ? start_small(r) : start_plan(r);
    if (err == TIARA_OK || err == TIARA_ERR_UNSUPPORTED)
        return err;
    revoke_node(node);
    drop_mappings(r);
    return err;
}

enum tiara_err tiara_gpu_run_poll(struct tiara_gpu_node *node, bool *moved_out, bool *over_out)
{
    struct tiara_gpu_run *r = node->run;
    struct tiara_wait_on on; /* neither devices nor networks have a word to sleep on */
    enum tiara_err err;

    if (!r->small) {
        *over_out = tiara_sched_poll(&r->s, &on, moved_out);
        return r->s.err;
    }
    *moved_out = false;
    err = tiara_gpu_event_test(node->slot[0].launched, over_out);
    return err == TIARA_OK ? tiara_gpu_node_status(node) : err;
}

void tiara_gpu_run_finish(struct tiara_gpu_node *node, enum tiara_err err)
{
    struct tiara_gpu_run *r = node->run;

    if (r->small)
        tiara_gpu_range_end(r->range);
    else if (err != TIARA_OK)
        tiara_sched_drain(&r->s);
    if (err != TIARA_OK)
        revoke_node(node);
    drop_mappings(r);
}
