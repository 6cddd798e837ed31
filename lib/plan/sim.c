/*
 * The simulator: how long the plans would take on a cluster that exists on paper.
 *
 * A rank does one thing at a time, from whichever of its chunks in flight is oldest and can go on:
 * a copy, a reduction, or a message to a rank of its own node. Messages between nodes run beside
 * that. They pass two queues, out of the sender's node and into the receiver's, each at net_beta
 * per byte; net_alpha is latency and occupies nothing. A message is sent without asking the
 * receiver (eager); its source is free when it has left the node. Time only moves when an op or a
 * message ends, and the next end is always the earliest.
 *
 *   copy    bytes x shm_beta, and shm_alpha when the source is a peer's
 *   reduce  gamma per byte and operator, and shm_alpha + bytes x shm_beta for each source that is a
 *           peer's
 *   send    to another node: as above; within the node: shm_alpha + bytes x shm_beta of the
 *           sender's time
 */
#include "plan/plan.h"
#include "base/alloc.h"
#include "base/log.h"
#include "plan/array.h"
#include "plan/match.h"
#include "plan/slice.h"
#include <math.h>

/* An async of a chunk is complete, or (async -1) the op at work on a rank has ended. */
struct event {
    double time;
    int rank, slot, async;
};

/* A binary heap, the earliest first. */
struct events {
    struct event *items;
    int n, cap;
};

/* False when memory ran out. */
static bool events_push(struct events *events, struct event event)
{
    int at = events->n;
    struct event *items;

    if (!tiara_array_grow(&events->items, &events->cap, at, sizeof(event)))
        return false;
    items = events->items;
    events->n++;
    while (at > 0 && items[(at - 1) / 2].time > event.time) {
        items[at] = items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    items[at] = event;
    return true;
}

/* The earliest one, which leaves the queue; n > 0. */
static struct event events_pop(struct events *events)
{
    struct event *items = events->items;
    struct event first = items[0], last = items[--events->n];
    int at = 0;

    for (int child = 1; child < events->n; child = 2 * at + 1) {
        if (child + 1 < events->n && items[child + 1].time < items[child].time)
            child++;
        if (items[child].time >= last.time)
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = last;
    return first;
}

/* One chunk in flight on one rank. */
struct slot {
    int rank, index; /* where it is */
    int chunk; /* >= nchunks: the slot has no more work */
    int cursor; /* next op */
    int nwaited; /* waits of that op that hold already */
    int ncomplete; /* asyncs complete, from the first on */
    int nissued;
    bool is_stuck; /* cannot move before a message of it arrives or a peer posts in this slot */
    bool is_posting; /* the op before the cursor still has to post */
    int64_t progress; /* what peers see: rounds of this slot x nsteps + step */
};

struct sim {
    const struct tiara_plan *const *plans;
    const struct tiara_layout *layout;
    const struct tiara_sim_model *model;
    int nslots, nchunks;
    double block_bytes;
    struct tiara_match match;
    struct events events;
    struct slot *slots; /* [nranks * nslots] */
    int *rounds; /* [match.n * nslots] in how many rounds of the slot the async has been complete */
    int *running; /* [nranks] slot whose op occupies the rank, -1 none */
    double *out_free; /* [nnodes] when the link out of the node is free */
    double *in_free; /* [nnodes] and the link into it; same allocation */
    int *ready; /* [nranks] ranks that may be able to go on now */
    int nready;
    bool *is_ready; /* [nranks] is in that list */
    double now;
    enum tiara_err err; /* sticky: memory ran out */
};

static struct slot *slot_of(struct sim *s, int rank, int slot)
{
    return &s->slots[(size_t)rank * (size_t)s->nslots + (size_t)slot];
}

/* The round of the slot that its chunk belongs to. */
static int round_of(const struct sim *s, const struct slot *slot)
{
    return slot->chunk / s->nslots;
}

static int *rounds_of(struct sim *s, int async, const struct slot *slot)
{
    return &s->rounds[(size_t)async * (size_t)s->nslots + (size_t)slot->index];
}

/* Something happened that may let the rank's chunk in @slot go on. */
static void wake(struct sim *s, int rank, int slot)
{
    slot_of(s, rank, slot)->is_stuck = false;
    if (s->is_ready[rank])
        return;
    s->is_ready[rank] = true;
    s->ready[s->nready++] = rank;
}

static void push(struct sim *s, double time, int rank, int slot, int async)
{
    if (!events_push(&s->events, (struct event){time, rank, slot, async}))
        s->err = TIARA_ERR_NOMEM;
}

static bool asyncs_hold(struct sim *s, struct slot *at, int n)
{
    int first = s->match.first[at->rank];

    while (at->ncomplete<n && * rounds_of(s, first + at->ncomplete, at)> round_of(s, at))
        at->ncomplete++;
    return at->ncomplete >= n;
}

static bool waits_hold(struct sim *s, struct slot *at, int first, int n)
{
    const struct tiara_plan *plan = s->plans[at->rank];
    int64_t base = (int64_t)round_of(s, at) * plan->nsteps;

    while (at->nwaited < n) {
        const struct tiara_plan_wait *wait = &plan->waits[first + at->nwaited];

        if (slot_of(s, wait->peer, at->index)->progress < base + wait->step)
            return false;
        at->nwaited++;
    }
    return true;
}

static double duration(const struct sim *s, int rank, const struct tiara_op *op)
{
    const struct tiara_plan *plan = s->plans[rank];
    const struct tiara_sim_model *m = s->model;
    double bytes = s->block_bytes * plan->srcs[op->src].count;
    double time = 0;

    if (op->kind == TIARA_OP_SEND)
        return m->shm_alpha + bytes * m->shm_beta;
    if (op->kind == TIARA_OP_COPY)
        return bytes * m->shm_beta + (plan->srcs[op->src].owner != rank ? m->shm_alpha : 0);
    for (int i = 0; i < op->nsrc; i++) {
        if (plan->srcs[op->src + i].owner != rank)
            time += m->shm_alpha + bytes * m->shm_beta;
    }
    return time + m->gamma * bytes * (op->nsrc - 1);
}

static bool is_on_network(const struct sim *s, int rank, const struct tiara_op *op)
{
    return s->layout->node_of[rank] != s->layout->node_of[op->peer];
}

/* A message leaves now, or as soon as the links let it. */
static void send_message(struct sim *s, const struct slot *at, const struct tiara_op *op, int async)
{
    double *out_free = &s->out_free[s->layout->node_of[at->rank]];
    double *in_free = &s->in_free[s->layout->node_of[op->peer]];
    double busy = s->block_bytes * s->plans[at->rank]->srcs[op->src].count * s->model->net_beta;
    double out = fmax(s->now, *out_free);
    double in = fmax(out, *in_free);

    *out_free = out + busy;
    *in_free = in + busy;
    push(s, *out_free, at->rank, at->index, async);
    push(s, *in_free + s->model->net_alpha, op->peer, at->index, s->match.partner[async]);
}

/* Posts what the op before the cursor posts, if it may. */
static bool try_post(struct sim *s, struct slot *at)
{
    const struct tiara_plan *plan = s->plans[at->rank];
    const struct tiara_op *op = &plan->ops[at->cursor - 1];
    int node = s->layout->node_of[at->rank];

    if (!asyncs_hold(s, at, op->post_await))
        return false;
    at->progress = (int64_t)round_of(s, at) * plan->nsteps + op->post;
    at->is_posting = false;
    for (int i = 0; i < tiara_layout_local_size(s->layout, node); i++)
        wake(s, tiara_layout_rank(s->layout, node, i), at->index);
    return true;
}

static void end_op(struct sim *s, struct slot *at)
{
    at->is_posting = s->plans[at->rank]->ops[at->cursor].post > 0;
    at->cursor++;
    at->nwaited = 0;
}

static bool try_op(struct sim *s, struct slot *at)
{
    const struct tiara_op *op = &s->plans[at->rank]->ops[at->cursor];
    int async = s->match.first[at->rank] + at->nissued;

    if (!asyncs_hold(s, at, op->await) || !waits_hold(s, at, op->wait, op->nwait))
        return false;
    at->nissued += tiara_op_is_async(op);
    if (tiara_op_is_async(op) && (op->kind == TIARA_OP_RECV || is_on_network(s, at->rank, op))) {
        if (op->kind == TIARA_OP_SEND)
            send_message(s, at, op, async);
        end_op(s, at);
        return true;
    }
    s->running[at->rank] = at->index;
    push(s, s->now + duration(s, at->rank, op), at->rank, at->index, -1);
    return true;
}

/* The chunk is finished: the slot takes its next one. */
static bool try_finish(struct sim *s, struct slot *at)
{
    const struct tiara_plan *plan = s->plans[at->rank];

    if (!asyncs_hold(s, at, plan->nasync) || !waits_hold(s, at, plan->exit_wait, plan->exit_nwait))
        return false;
    *at = (struct slot){.rank = at->rank,
        .index = at->index,
        .chunk = at->chunk + s->nslots,
        .progress = (int64_t)(round_of(s, at) + 1) * plan->nsteps};
    return true;
}

/* One move of the slot's chunk, if one can be made now. */
static bool try_slot(struct sim *s, struct slot *at)
{
    if (at->chunk >= s->nchunks)
        return false;
    if (at->is_posting)
        return try_post(s, at);
    if (at->cursor < s->plans[at->rank]->nops)
        return try_op(s, at);
    return try_finish(s, at);
}

/*
 * The slot that can move and has the oldest chunk moves; again, until the rank is at work or stuck.
 */
static void advance(struct sim *s, int rank)
{
    bool moved = true;

    while (moved && s->running[rank] < 0) {
        int oldest = 0;

        moved = false;
        for (int i = 1; i < s->nslots; i++) {
            if (slot_of(s, rank, i)->chunk < slot_of(s, rank, oldest)->chunk)
                oldest = i;
        }
        for (int i = 0; i < s->nslots && !moved; i++) {
            struct slot *at = slot_of(s, rank, (oldest + i) % s->nslots);

            moved = !at->is_stuck && try_slot(s, at);
            at->is_stuck = !moved;
        }
    }
}

static void handle(struct sim *s, struct event event)
{
    struct slot *at = slot_of(s, event.rank, event.slot);
    const struct tiara_op *op;

    wake(s, event.rank, event.slot);
    if (event.async >= 0) {
        ++*rounds_of(s, event.async, at);
        return;
    }
    op = &s->plans[event.rank]->ops[at->cursor];
    if (op->kind == TIARA_OP_SEND) {
        int async = s->match.first[event.rank] + at->nissued - 1;

        ++*rounds_of(s, async, at);
        ++*rounds_of(s, s->match.partner[async], at);
        wake(s, op->peer, event.slot);
    }
    s->running[event.rank] = -1;
    end_op(s, at);
}

static enum tiara_err check_end(struct sim *s)
{
    for (int r = 0; r < s->layout->nranks; r++) {
        for (int i = 0; i < s->nslots; i++) {
            const struct slot *at = slot_of(s, r, i);

            if (at->chunk < s->nchunks) {
                tiara_error("simulation: rank %d never gets past op %d of chunk %d", r, at->cursor,
                    at->chunk);
                return TIARA_ERR_PLAN;
            }
        }
    }
    return TIARA_OK;
}

static enum tiara_err run(struct sim *s)
{
    for (int r = 0; r < s->layout->nranks; r++) {
        s->running[r] = -1;
        for (int i = 0; i < s->nslots; i++)
            *slot_of(s, r, i) = (struct slot){.rank = r, .index = i, .chunk = i};
        wake(s, r, 0);
    }
    for (;;) {
        struct event event;

        while (s->nready > 0) {
            int rank = s->ready[--s->nready];

            s->is_ready[rank] = false;
            advance(s, rank);
        }
        if (s->err != TIARA_OK || s->events.n == 0)
            break;
        event = events_pop(&s->events);
        s->now = event.time;
        handle(s, event);
    }
    return s->err != TIARA_OK ? s->err : check_end(s);
}

static enum tiara_err check_plans(const struct sim *s)
{
    for (int r = 0; r < s->layout->nranks; r++) {
        if (s->plans[r]->nops == 0 || tiara_plan_has_depend(s->plans[r]))
            continue;
        tiara_error("simulation: the dependencies of rank %d's plan have not been derived", r);
        return TIARA_ERR_PLAN;
    }
    return TIARA_OK;
}

static enum tiara_err allocate(struct sim *s)
{
    size_t nranks = (size_t)s->layout->nranks, nnodes = (size_t)s->layout->nnodes;

    s->slots = tiara_alloc(nranks * (size_t)s->nslots, sizeof(*s->slots));
    s->rounds = tiara_alloc((size_t)s->match.n * (size_t)s->nslots, sizeof(*s->rounds));
    s->running = tiara_alloc(nranks, sizeof(*s->running));
    s->out_free = tiara_alloc(2 * nnodes, sizeof(*s->out_free));
    s->ready = tiara_alloc(nranks, sizeof(*s->ready));
    s->is_ready = tiara_alloc(nranks, sizeof(*s->is_ready));
    if (!s->slots || !s->rounds || !s->running || !s->out_free || !s->ready || !s->is_ready)
        return TIARA_ERR_NOMEM;
    s->in_free = s->out_free + nnodes;
    return TIARA_OK;
}

static void release(struct sim *s)
{
    tiara_free(s->is_ready);
    tiara_free(s->ready);
    tiara_free(s->out_free);
    tiara_free(s->running);
    tiara_free(s->rounds);
    tiara_free(s->slots);
    tiara_free(s->events.items);
    tiara_match_fini(&s->match);
}

enum tiara_err tiara_plan_simulate(const struct tiara_plan *const *plans,
    const struct tiara_layout *layout, const struct tiara_sim_model *model, double bytes,
    double chunk_bytes, int slots, double *seconds_out)
{
    struct sim s = {.plans = plans, .layout = layout, .model = model, .nslots = slots};
    enum tiara_err err = check_plans(&s);

    s.nchunks = chunk_bytes > 0 && chunk_bytes < bytes ? (int)ceil(bytes / chunk_bytes) : 1;
    s.block_bytes = bytes / s.nchunks / plans[0]->nblocks;
    if (err == TIARA_OK)
        err = tiara_match_init(&s.match, plans, layout->nranks);
    if (err == TIARA_OK)
        err = allocate(&s);
    if (err == TIARA_OK)
        err = run(&s);
    if (err == TIARA_OK)
        *seconds_out = s.now;
    release(&s);
    return err;
}
