/*
 * The dependency pass: who waits for whom follows from the slices.
 *
 * Everything rests on one function of two plans, waits_on(p, q): what p must know of q's progress
 * before each of its ops. A rank calls it for itself against each peer to get its waits, and for
 * each peer against itself to learn which of its steps anybody waits for, and posts just those.
 * Both sides run the same function on the same two plans, so that they cannot disagree.
 *
 * Calls may be in place, and the plan does not say: IN and OUT of a rank count as one buffer.
 */
#include "plan/plan.h"
#include "base/log.h"
#include "plan/array.h"
#include "plan/slice.h"
#include <stdlib.h>

/* A source of some op that lies in another rank's memory. */
struct remote_read {
    int step;
    struct tiara_slice slice;
};

/* Before op @op (nops: before the end) @peer must have reached @step. */
struct need {
    int op, peer, step;
};

struct needs {
    struct need *items;
    int n, cap;
};

/* The pass's scratch. */
struct pass {
    struct tiara_plan *plan;
    struct remote_read *reads; /* [most sources of any plan here] */
    struct needs own; /* the plan's waits, by peer */
    struct needs peers; /* one peer's waits for the plan's rank; reused */
    bool *is_needed; /* [nsteps + 1] some peer waits for the step */
    int *asyncs; /* [nasync] their ops */
};

static bool add_need(struct needs *to, int op, int peer, int step)
{
    if (!tiara_array_grow(&to->items, &to->cap, to->n, sizeof(*to->items)))
        return false;
    to->items[to->n++] = (struct need){op, peer, step};
    return true;
}

/* @reads_out: what @reader reads of @owner's memory, in program order. Returns how many. */
static int list_reads(const struct tiara_plan *reader, int owner, struct remote_read *reads_out)
{
    int n = 0;

    for (int i = 0; i < reader->nops; i++) {
        const struct tiara_op *op = &reader->ops[i];

        for (int k = op->src; k < op->src + op->nsrc; k++) {
            if (reader->srcs[k].owner == owner)
                reads_out[n++] = (struct remote_read){op->step, reader->srcs[k]};
        }
    }
    return n;
}

/* The last step before @step in which @owner writes @slice, 0 when there is none, -1 when there
 * must be one. */
static int step_written(const struct tiara_plan *owner, int step, struct tiara_slice slice)
{
    int last = slice.buf == TIARA_BUF_IN ? 0 : -1;

    for (int i = 0; i < owner->nops && owner->ops[i].step < step; i++) {
        if (tiara_op_writes(&owner->ops[i]) && tiara_slice_overlap(owner->ops[i].dst, slice, true))
            last = owner->ops[i].step;
    }
    return last;
}

/* The last step before @op in which @reads[@n] read what it writes; with NULL: in which they read
 * the caller's own buffers. -1 when there is none. */
static int step_read(const struct tiara_op *op, const struct remote_read *reads, int n)
{
    int last = -1;

    for (int i = 0; i < n && (op == NULL || reads[i].step < op->step); i++) {
        if (op == NULL ? tiara_buf_is_io(reads[i].slice.buf)
                       : tiara_slice_overlap(reads[i].slice, op->dst, true))
            last = reads[i].step;
    }
    return last;
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

static bool is_into_cell(const struct tiara_op *op)
{
    return tiara_op_writes(op) && op->dst.buf == TIARA_BUF_CELL;
}

/*
 * Appends what @p must know of @q's progress, in program order, each stronger than the one before.
 */
static enum tiara_err waits_on(
    struct pass *pass, const struct tiara_plan *p, const struct tiara_plan *q, struct needs *to)
{
    int nreads = list_reads(q, p->rank, pass->reads);
    int reached = -1, strongest;
    bool cell_written = false;

    for (int i = 0; i < p->nops; i++) {
        const struct tiara_op *op = &p->ops[i];

        strongest = is_into_cell(op) && !cell_written ? 0 : -1;
        cell_written = cell_written || is_into_cell(op);
        for (int k = op->src; k < op->src + op->nsrc; k++) {
            int step;

            if (p->srcs[k].owner != q->rank)
                continue;
            step = step_written(q, op->step, p->srcs[k]);
            if (step < 0) {
                tiara_error("plan of rank %d, op %d: nothing fills the blocks of rank %d that it "
                            "reads in step %d",
                    p->rank, i, q->rank, op->step);
                return TIARA_ERR_PLAN;
            }
            strongest = later(strongest, step);
        }
        if (tiara_op_writes(op))
            strongest = later(strongest, step_read(op, pass->reads, nreads));
        if (strongest > reached && !add_need(to, i, q->rank, strongest))
            return TIARA_ERR_NOMEM;
        reached = later(reached, strongest);
    }
    strongest = step_read(NULL, pass->reads, nreads);
    if (strongest > reached && !add_need(to, p->nops, q->rank, strongest))
        return TIARA_ERR_NOMEM;
    return TIARA_OK;
}

/* Both directions between the plan and @peer. */
static enum tiara_err learn_peer(struct pass *pass, const struct tiara_plan *peer)
{
    enum tiara_err err = waits_on(pass, pass->plan, peer, &pass->own);

    pass->peers.n = 0;
    if (err == TIARA_OK)
        err = waits_on(pass, peer, pass->plan, &pass->peers);
    for (int i = 0; err == TIARA_OK && i < pass->peers.n; i++)
        pass->is_needed[pass->peers.items[i].step] = true;
    return err;
}

static int need_compare(const void *a, const void *b)
{
    const struct need *x = a, *y = b;

    return x->op != y->op ? x->op - y->op : x->peer - y->peer;
}

/* Moves the needs into plan->waits, grouped by op. @waits_out[own.n], which becomes the plan's. */
static void write_waits(struct pass *pass, struct tiara_plan_wait *waits_out)
{
    struct tiara_plan *plan = pass->plan;
    const struct need *needs = pass->own.items;
    int n = pass->own.n, at = 0;

    if (n > 0)
        qsort(pass->own.items, (size_t)n, sizeof(*needs), need_compare);
    for (int i = 0; i < n; i++)
        waits_out[i] = (struct tiara_plan_wait){needs[i].peer, needs[i].step};
    for (int i = 0; i < plan->nops; i++) {
        plan->ops[i].wait = at;
        while (at < n && needs[at].op == i)
            at++;
        plan->ops[i].nwait = at - plan->ops[i].wait;
    }
    plan->exit_wait = at;
    plan->exit_nwait = n - at;
    tiara_free(plan->waits);
    plan->waits = waits_out;
    plan->nwaits = plan->cap_waits = n;
}

/* Own order: an op after the sends and receives whose memory it touches. */
static void write_awaits(struct pass *pass)
{
    struct tiara_plan *plan = pass->plan;
    int complete = 0, issued = 0;

    for (int i = 0; i < plan->nops; i++) {
        struct tiara_op *op = &plan->ops[i];
        int k = issued;

        while (k > complete && !tiara_op_conflicts(plan, op, &plan->ops[pass->asyncs[k - 1]], true))
            k--;
        op->await = k > complete ? k : 0;
        complete = k;
        if (tiara_op_is_async(op))
            pass->asyncs[issued++] = i;
    }
}

/* Posts the steps that somebody waits for, each after its last op; and the end of the plan. */
static void write_posts(struct pass *pass)
{
    struct tiara_plan *plan = pass->plan;
    int issued = 0, noticed = 0;

    for (int i = 0; i < plan->nops; i++) {
        struct tiara_op *op = &plan->ops[i];
        bool is_last = i + 1 == plan->nops;
        int next_step = is_last ? plan->nsteps + 1 : plan->ops[i + 1].step;
        int step = next_step - 1;

        issued += tiara_op_is_async(op);
        if (tiara_op_is_noticed(plan, op))
            noticed = issued;
        while (!is_last && step >= op->step && !pass->is_needed[step])
            step--;
        op->post = step >= op->step ? step : 0;
        op->post_await = op->post == 0 ? 0 : is_last ? plan->nasync : noticed;
    }
}

static enum tiara_err derive(struct pass *pass, const struct tiara_plan *const *peers, int npeers)
{
    struct tiara_plan_wait *waits;
    enum tiara_err err = TIARA_OK;

    for (int i = 0; err == TIARA_OK && i < npeers; i++) {
        if (peers[i]->rank != pass->plan->rank)
            err = learn_peer(pass, peers[i]);
    }
    if (err != TIARA_OK)
        return err;
    waits = tiara_alloc((size_t)pass->own.n, sizeof(*waits));
    if (waits == NULL)
        return TIARA_ERR_NOMEM;
    write_waits(pass, waits);
    write_awaits(pass);
    write_posts(pass);
    return TIARA_OK;
}

enum tiara_err tiara_plan_depend(
    struct tiara_plan *plan, const struct tiara_plan *const *peers, int npeers)
{
    struct pass pass = {.plan = plan};
    int most = plan->nsrcs, steps = plan->nsteps;
    enum tiara_err err = TIARA_ERR_NOMEM;

    for (int i = 0; i < npeers; i++) {
        most = later(most, peers[i]->nsrcs);
        steps = later(steps, peers[i]->nsteps);
    }
    pass.reads = tiara_alloc((size_t)most, sizeof(*pass.reads));
    pass.is_needed = tiara_alloc((size_t)steps + 1, sizeof(*pass.is_needed));
    pass.asyncs = tiara_alloc((size_t)plan->nasync, sizeof(*pass.asyncs));
    if (pass.reads && pass.is_needed && pass.asyncs)
        err = derive(&pass, peers, npeers);
    if (err == TIARA_ERR_NOMEM)
        tiara_error("dependencies of rank %d: no memory for %d ops", plan->rank, plan->nops);
    tiara_free(pass.asyncs);
    tiara_free(pass.is_needed);
    tiara_free(pass.peers.items);
    tiara_free(pass.own.items);
    tiara_free(pass.reads);
    return err;
}
