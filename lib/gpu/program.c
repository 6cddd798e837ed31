/*
 * Programs: a plan as kernels run it, and the actions that the host takes.
 *
 * Kernels run copies and reductions; sends and receives are the host's. So a plan is cut at its
 * messages into *groups*, maximal runs of node ops, each one launch. A group is launched when all
 * messages are complete that any op in it needs, or whose completion any of its posts tells; what a
 * message needs of peers are the last waits of the launch before it, and what it tells them is the
 * first post of the launch behind it. Messages with nothing to launch between them get an empty
 * launch where one of these is needed.
 *
 * Why launching a group as a whole cannot deadlock, where the host executor, which takes op by op,
 * does not. All messages that were started before a group have steps no higher than its first op's.
 * What a group delays are its own ops and posts. A post tells a step that is over, so a peer that
 * waits for it is in a higher step; messages behind the group in the same step come behind the op
 * that awaits, in either executor. So each wait that is added leads from an op to messages of lower
 * steps, or to such of the same step as the op waited for anyway. The same holds for a post between
 * two messages, which here delays the second one: it ends a step.
 *
 * The waits at the plan's end are those of the last launch, which divides the result by them for
 * averages: no peer may read it then.
 */
#include "gpu/node.h"
#include "base/alloc.h"
#include "base/log.h"
#include <string.h>

/* Chunks in flight within one launch, whatever the call says. */
#define LEAST_SLOTS 2

/* ---- tables ---- */

/* Where the translation stands. */
struct cutter {
    struct tiara_gpu_tables *t;
    const struct tiara_plan *plan;
    int complete; /* messages that are complete by what was awaited */
    int issued; /* messages started */
    int post, post_await; /* of a message, still to be told */
    int exit_wait, exit_nwait; /* in the tables */
};

static bool is_message(const struct tiara_op *op)
{
    return op->kind == TIARA_OP_SEND || op->kind == TIARA_OP_RECV;
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

/* The action that is appended next; there is space: see tiara_gpu_tables_init. */
static struct tiara_gpu_action *append(struct cutter *c, enum tiara_gpu_action_kind kind, int op)
{
    struct tiara_gpu_action *a = &c->t->actions[c->t->nactions++];

    *a = (struct tiara_gpu_action){.kind = kind, .first_op = op, .end_op = op};
    return a;
}

/* A launch that begins before op @op, with what is to be told. */
static struct tiara_gpu_action *append_launch(struct cutter *c, int op)
{
    struct tiara_gpu_action *a = append(c, TIARA_GPU_LAUNCH, op);

    c->complete = later(c->complete, c->post_await);
    a->head_post = c->post;
    c->post = c->post_await = 0;
    return a;
}

/* Two slices of one rank; IN and OUT are one buffer, as the call may be in place. */
static bool overlap(const struct tiara_slice *a, const struct tiara_slice *b)
{
    bool a_io = a->buf == TIARA_BUF_IN || a->buf == TIARA_BUF_OUT;
    bool b_io = b->buf == TIARA_BUF_IN || b->buf == TIARA_BUF_OUT;

    return a->owner == b->owner && (a->buf == b->buf || (a_io && b_io)) &&
           a->first < b->first + b->count && b->first < a->first + a->count;
}

/*
 * Whether kernels of this chunk, or of peers, may be at work on what op @at of the plan receives
 * into. Waits that earlier ones imply are not in the plan, so that nothing can be said about memory
 * that peers read.
 */
static bool is_target_busy(const struct tiara_plan *plan, int at)
{
    const struct tiara_slice *dst = &plan->ops[at].dst;
    bool exposed = dst->buf == TIARA_BUF_CELL || (plan->single_copy && dst->buf != TIARA_BUF_TMP);
    bool busy = exposed || plan->ops[at].nwait > 0;

    for (int i = 0; i < at && !busy; i++) {
        const struct tiara_op *op = &plan->ops[i];

        if (is_message(op))
            continue;
        busy = overlap(&op->dst, dst);
        for (int k = op->src; k < op->src + op->nsrc; k++)
            busy = busy || overlap(&plan->srcs[k], dst);
    }
    return busy;
}

static void cut_message(struct cutter *c, int i)
{
    const struct tiara_op *op = &c->plan->ops[i];
    struct tiara_gpu_tables *t = c->t;
    int wait = t->ops[i].wait, nwait = t->ops[i].nwait;
    struct tiara_gpu_action *before = t->nactions ? &t->actions[t->nactions - 1] : NULL, *a;
    bool can_wait = before && before->kind == TIARA_GPU_LAUNCH && !before->greets;

    if (c->post > 0 || (nwait > 0 && !can_wait)) {
        before = append_launch(c, i);
        before->await = c->complete;
    }
    if (nwait > 0) {
        before->tail_wait = wait;
        before->tail_nwait = nwait;
    }
    a = append(c, TIARA_GPU_MESSAGE, i);
    a->await = op->await;
    a->idle = op->kind == TIARA_OP_SEND || is_target_busy(c->plan, i);
    c->complete = later(c->complete, op->await);
    c->issued++;
    t->window = later(t->window, c->issued - c->complete);
    c->post = op->post;
    c->post_await = op->post_await;
}

/* A group: the node ops from @first on. Returns its end. */
static int cut_group(struct cutter *c, int first)
{
    const struct tiara_plan *plan = c->plan;
    struct tiara_gpu_action *a = append_launch(c, first);
    int i = first;

    for (; i < plan->nops && !is_message(&plan->ops[i]); i++) {
        c->complete = later(c->complete, plan->ops[i].await);
        c->complete = later(c->complete, plan->ops[i].post > 0 ? plan->ops[i].post_await : 0);
    }
    a->end_op = i;
    a->await = c->complete;
    return i;
}

/* The launch that ends the chunk: the last group, or an empty one. */
static void cut_end(struct cutter *c)
{
    struct tiara_gpu_tables *t = c->t;
    struct tiara_gpu_action *last = t->nactions ? &t->actions[t->nactions - 1] : NULL;

    if (!last || last->kind != TIARA_GPU_LAUNCH || last->greets)
        last = append_launch(c, c->plan->nops);
    last->await = c->plan->nasync;
    last->tail_wait = c->exit_wait;
    last->tail_nwait = c->exit_nwait;
    last->last = true;
}

/* Kernels of a call compare digests first, for which all ranks of the node must launch something
 * that waits for no message. */
static bool needs_greeting(const struct tiara_plan *plan, const int *node_index)
{
    int nlocal = 0;

    for (int r = 0; r < plan->nranks; r++)
        nlocal += node_index[r] >= 0;
    return nlocal > 1 && plan->nops > 0 && is_message(&plan->ops[0]);
}

static void cut(struct cutter *c, const int *node_index)
{
    if (needs_greeting(c->plan, node_index))
        append(c, TIARA_GPU_LAUNCH, 0)->greets = true;
    for (int i = 0; i < c->plan->nops;) {
        if (is_message(&c->plan->ops[i]))
            cut_message(c, i++);
        else
            i = cut_group(c, i);
    }
    cut_end(c);
}

/* ---- translation ---- */

static bool is_reached(const struct tiara_plan *plan, int rank, const int *node_index,
    const bool *reached, const char *what)
{
    int index = node_index[rank];

    if (index >= 0 && index < TIARA_KERNEL_PEERS && reached[index])
        return true;
    tiara_info("plan of rank %d: %s rank %d, which this GPU cannot reach", plan->rank, what, rank);
    return false;
}

static bool translate_slice(const struct tiara_plan *plan, const struct tiara_slice *s,
    const int *node_index, const bool *reached, struct tiara_kernel_slice *slice_out)
{
    static const int32_t bufs[TIARA_NBUF] = {[TIARA_BUF_IN] = TIARA_KERNEL_IN,
        [TIARA_BUF_OUT] = TIARA_KERNEL_OUT,
        [TIARA_BUF_CELL] = TIARA_KERNEL_CELL,
        [TIARA_BUF_TMP] = TIARA_KERNEL_TMP};

    if (!is_reached(plan, s->owner, node_index, reached, "reads memory of"))
        return false;
    *slice_out =
        (struct tiara_kernel_slice){node_index[s->owner], bufs[s->buf], s->first, s->count};
    return true;
}

/*
 * Appends waits [first, first + n) of the plan; *n_out: how many there are. A peer that is out of
 * reach has no cell of this rank to read: its previous chunk is nobody's concern.
 */
static bool translate_waits(struct tiara_gpu_tables *t, const struct tiara_plan *plan, int first,
    int n, const int *node_index, const bool *reached, int32_t *n_out)
{
    int begin = t->nwaits;

    for (int k = first; k < first + n; k++) {
        const struct tiara_plan_wait *w = &plan->waits[k];
        int index = node_index[w->peer];

        if (w->step == 0 && index >= 0 && index < TIARA_KERNEL_PEERS && !reached[index])
            continue;
        if (!is_reached(plan, w->peer, node_index, reached, "waits for"))
            return false;
        t->waits[t->nwaits++] = (struct tiara_kernel_wait){index, w->step};
    }
    *n_out = t->nwaits - begin;
    return true;
}

static bool translate_op(struct tiara_gpu_tables *t, const struct tiara_plan *plan, int i,
    const int *node_index, const bool *reached)
{
    const struct tiara_op *from = &plan->ops[i];
    struct tiara_kernel_op *to = &t->ops[i];
    bool ok;

    to->wait = t->nwaits;
    ok = translate_waits(t, plan, from->wait, from->nwait, node_index, reached, &to->nwait);
    to->kind = from->kind == TIARA_OP_COPY     ? TIARA_KERNEL_COPY
               : from->kind == TIARA_OP_REDUCE ? TIARA_KERNEL_REDUCE
                                               : TIARA_KERNEL_PAUSE;
    to->block = from->block;
    to->src = from->src;
    to->nsrc = is_message(from) ? 0 : from->nsrc;
    to->post = is_message(from) ? 0 : from->post; /* what messages post is told by launches */
    if (from->nsrc > TIARA_KERNEL_PEERS) {
        tiara_info("plan of rank %d: op %d has %d sources, kernels take %d", plan->rank, i,
            from->nsrc, TIARA_KERNEL_PEERS);
        return false;
    }
    if (from->kind != TIARA_OP_SEND)
        ok = ok && translate_slice(plan, &from->dst, node_index, reached, &to->dst);
    for (int k = from->src; k < from->src + from->nsrc; k++)
        ok = ok && translate_slice(plan, &plan->srcs[k], node_index, reached, &t->srcs[k]);
    return ok;
}

enum tiara_err tiara_gpu_tables_init(struct tiara_gpu_tables *t, const struct tiara_plan *plan,
    const int *node_index, const bool *reached)
{
    struct cutter c = {.t = t, .plan = plan};

    memset(t, 0, sizeof(*t));
    t->nops = plan->nops;
    t->nsrcs = plan->nsrcs;
    t->ops = tiara_alloc((size_t)plan->nops, sizeof(*t->ops));
    t->srcs = tiara_alloc((size_t)plan->nsrcs, sizeof(*t->srcs));
    t->waits = tiara_alloc((size_t)plan->nwaits, sizeof(*t->waits));
    /* An action for each op, a launch before each, a greeting and an end. */
    t->actions = tiara_alloc(2 * (size_t)plan->nops + 2, sizeof(*t->actions));
    if (!t->ops || !t->srcs || !t->waits || !t->actions)
        return TIARA_ERR_NOMEM;
    for (int i = 0; i < plan->nops; i++)
        if (!translate_op(t, plan, i, node_index, reached))
            return TIARA_ERR_UNSUPPORTED;
    c.exit_wait = t->nwaits;
    if (!translate_waits(
            t, plan, plan->exit_wait, plan->exit_nwait, node_index, reached, &c.exit_nwait))
        return TIARA_ERR_UNSUPPORTED;
    cut(&c, node_index);
    return TIARA_OK;
}

void tiara_gpu_tables_fini(struct tiara_gpu_tables *t)
{
    tiara_free(t->actions);
    tiara_free(t->waits);
    tiara_free(t->srcs);
    tiara_free(t->ops);
    memset(t, 0, sizeof(*t));
}

/* ---- programs ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static void fill(char *to, const void *from, int n, size_t size)
{
    if (n > 0)
        memcpy(to, from, (size_t)n * size);
}

/* Copies the tables to the device. @stream is a private one: nothing else of the program is waited
 * for. */
static enum tiara_err upload(struct tiara_gpu_program *p, cudaStream_t stream)
{
    const struct tiara_gpu_tables *t = &p->tables;
    size_t srcs = padded((size_t)t->nops * sizeof(*t->ops));
    size_t waits = srcs + padded((size_t)t->nsrcs * sizeof(*t->srcs));
    size_t bytes = waits + padded((size_t)t->nwaits * sizeof(*t->waits)) + 16;
    char *at;
    enum tiara_err err =
        tiara_gpu_ok(cudaHostAlloc(&p->image, bytes, cudaHostAllocDefault), "cudaHostAlloc");

    if (err != TIARA_OK)
        return err;
    fill(p->image, t->ops, t->nops, sizeof(*t->ops));
    fill((char *)p->image + srcs, t->srcs, t->nsrcs, sizeof(*t->srcs));
    fill((char *)p->image + waits, t->waits, t->nwaits, sizeof(*t->waits));
    err = tiara_gpu_ok(cudaMalloc(&p->memory, bytes), "cudaMalloc");
    if (err == TIARA_OK)
        err = tiara_gpu_ok(
            cudaMemcpyAsync(p->memory, p->image, bytes, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    at = p->memory;
    p->device = (struct tiara_kernel_program){
        .ops = (const struct tiara_kernel_op *)(const void *)at,
        .srcs = (const struct tiara_kernel_slice *)(const void *)(at + srcs),
        .waits = (const struct tiara_kernel_wait *)(const void *)(at + waits),
        .nops = t->nops,
        .nsteps = p->plan->nsteps,
        .nblocks = p->plan->nblocks,
    };
    return err;
}

enum tiara_err tiara_gpu_program_create(struct tiara_gpu_node *node, const struct tiara_plan *plan,
    const int *node_index, struct tiara_gpu_program **program_out)
{
    struct tiara_gpu_program *p = tiara_alloc(1, sizeof(*p));
    bool reached[TIARA_KERNEL_PEERS] = {false};
    enum tiara_err err;

    if (!p)
        return TIARA_ERR_NOMEM;
    for (int i = 0; i < node->segments.size; i++)
        reached[i] = node->segments.segment[i] != NULL;
    p->plan = plan;
    err = tiara_gpu_tables_init(&p->tables, plan, node_index, reached);
    if (err == TIARA_OK)
        err = upload(p, node->slot[0].stream);
    if (err != TIARA_OK) {
        tiara_gpu_program_destroy(p);
        return err;
    }
    *program_out = p;
    return TIARA_OK;
}

void tiara_gpu_program_destroy(struct tiara_gpu_program *p)
{
    if (p->memory && tiara_gpu_ok(cudaFree(p->memory), "cudaFree") != TIARA_OK)
        tiara_debug("the tables of a plan stay in device memory");
    if (p->image && tiara_gpu_ok(cudaFreeHost(p->image), "cudaFreeHost") != TIARA_OK)
        tiara_debug("the tables of a plan stay pinned");
    tiara_gpu_tables_fini(&p->tables);
    tiara_free(p);
}

/* ---- what is prepared ---- */

struct tiara_gpu_program *tiara_gpu_program_find(
    const struct tiara_gpu_node *node, const struct tiara_plan *plan)
{
    struct tiara_gpu_program *p = node->programs;

    while (p && p->plan != plan)
        p = p->next;
    return p;
}

/* What calls up to @call take: bytes of TMP in all slots, and of the largest message. */
static void measure(const struct tiara_gpu_node *node, const struct tiara_exec_call *call,
    size_t *scratch_out, size_t *message_out)
{
    const struct tiara_plan *plan = call->plan;
    size_t chunk = tiara_gpu_chunk_elems(node, call), len = tiara_exec_block_len(call, chunk);
    size_t slots = (size_t)(call->slots > LEAST_SLOTS ? call->slots : LEAST_SLOTS);
    int blocks = 0;

    slots = slots < TIARA_KERNEL_SLOTS ? slots : TIARA_KERNEL_SLOTS;
    *scratch_out = tiara_gpu_tmp_bytes(call, chunk) * slots;
    for (int i = 0; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];
        int n = op->kind == TIARA_OP_SEND   ? plan->srcs[op->src].count
                : op->kind == TIARA_OP_RECV ? op->dst.count
                                            : 0;
        blocks = n > blocks ? n : blocks;
    }
    *message_out = len * call->elem_size * (size_t)blocks;
}

static enum tiara_err reserve_scratch(struct tiara_gpu_node *node, size_t bytes)
{
    struct tiara_gpu_scratch *s;
    void *at = NULL;
    enum tiara_err err;

    if (bytes == 0 || (node->scratch && node->scratch->bytes >= bytes))
        return TIARA_OK;
    s = tiara_alloc(1, sizeof(*s));
    if (!s)
        return TIARA_ERR_NOMEM;
    err = tiara_gpu_ok(cudaMalloc(&at, bytes), "cudaMalloc");
    if (err != TIARA_OK) {
        tiara_free(s);
        return err;
    }
    *s = (struct tiara_gpu_scratch){node->scratch, at, bytes};
    node->scratch = s;
    return TIARA_OK;
}

enum tiara_err tiara_gpu_node_prepare(
    struct tiara_gpu_node *node, const struct tiara_exec *x, const struct tiara_exec_call *largest)
{
    struct tiara_gpu_program *p = tiara_gpu_program_find(node, largest->plan);
    size_t scratch, message;
    enum tiara_err err;

    measure(node, largest, &scratch, &message);
    err = reserve_scratch(node, scratch);
    if (err == TIARA_OK && !p) {
        err = tiara_gpu_program_create(node, largest->plan, x->node_index, &p);
        if (err == TIARA_OK) {
            p->next = node->programs;
            node->programs = p;
        }
    }
    if (err == TIARA_OK && p->tables.window > 0)
        err = tiara_gpu_mail_reserve(node, p->tables.window, message);
    return err;
}

bool tiara_gpu_node_is_prepared(
    const struct tiara_gpu_node *node, const struct tiara_exec_call *call)
{
    const struct tiara_gpu_program *p = tiara_gpu_program_find(node, call->plan);
    size_t scratch, message;

    measure(node, call, &scratch, &message);
    message = message < TIARA_GPU_PIECE_BYTES ? message : TIARA_GPU_PIECE_BYTES;
    return p && (scratch == 0 || (node->scratch && node->scratch->bytes >= scratch)) &&
           (p->tables.window == 0 ||
               (p->tables.window <= node->slot[0].mail.window && message <= node->bounce_bytes));
}
