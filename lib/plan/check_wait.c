/*
 * The proof that the derived waits are enough.
 *
 * Three parts. (1) Posts are honest: when a rank posts step t, all its ops up to step t are behind
 * it, and so are those of their sends and receives that peers could notice. (2) Every pair of a
 * remote read and a write of the same memory is ordered by a wait of whichever comes later in
 * logical time; every op and an earlier send or receive of the same rank that touch the same memory
 * are ordered by an await. (3) Nobody waits for ever: waits only ask that others have moved on and
 * nothing is ever taken back, so one greedy run that ends shows that every run ends.
 */
#include "plan/check_priv.h"
#include "base/alloc.h"
#include "plan/slice.h"
#include <string.h>

/* A source of some op that lies in a peer's memory. */
struct remote_read {
    int reader;
    int step;
    struct tiara_slice slice;
};

struct proof {
    struct tiara_check *c;
    struct remote_read *reads; /* grouped by the slice's owner */
    int *first_read; /* [nranks + 1] */
    /* [nranks] */
    int *reached; /* what the rank under proof knows of others' progress; -1 nothing */
    int *progress; /* in the greedy run */
    int *nposted; /* ops whose post has been seen to */
    int *ncomplete; /* asyncs known to be complete, from the first on */
};

static enum tiara_err check_posts(struct tiara_check *c, int rank)
{
    const struct tiara_plan *plan = c->plans[rank];
    const struct tiara_op *ops = plan->ops;
    int last = 0, issued = 0, noticed = 0, noticed_op = -1;

    for (int i = 0; i < plan->nops; i++) {
        int post = ops[i].post;

        issued += tiara_op_is_async(&ops[i]);
        if (tiara_op_is_noticed(plan, &ops[i])) {
            noticed = issued;
            noticed_op = i;
        }
        if (post == 0)
            continue;
        if (post <= last)
            return tiara_check_fail(c, rank, i, "posts step %d twice", post);
        if (i + 1 < plan->nops && ops[i + 1].step <= post)
            return tiara_check_fail(c, rank, i, "posts step %d before op %d", post, i + 1);
        if (ops[i].post_await < 0 || ops[i].post_await > plan->nasync)
            return tiara_check_fail(c, rank, i, "posts after %d asyncs", ops[i].post_await);
        if (ops[i].post_await < noticed)
            return tiara_check_fail(
                c, rank, i, "posts step %d before op %d is complete", post, noticed_op);
        last = post;
    }
    if (plan->nops > 0 && (last != plan->nsteps || ops[plan->nops - 1].post_await != plan->nasync))
        return tiara_check_fail(c, rank, plan->nops - 1, "does not post the end of the plan");
    return TIARA_OK;
}

/* Every op against the sends and receives before it that may still be under way. */
static enum tiara_err check_awaits(struct tiara_check *c, int rank)
{
    const struct tiara_plan *plan = c->plans[rank];
    int complete = 0, issued = 0;

    for (int i = 0; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];

        if (op->await > issued)
            return tiara_check_fail(c, rank, i, "awaits async %d, not yet begun", op->await - 1);
        if (op->await > complete)
            complete = op->await;
        for (int k = complete; k < issued; k++) {
            int other = c->match.op[c->match.first[rank] + k];

            if (tiara_op_conflicts(plan, op, &plan->ops[other], c->in_place))
                return tiara_check_fail(c, rank, i, "does not await op %d", other);
        }
        issued += tiara_op_is_async(op);
    }
    return TIARA_OK;
}

static enum tiara_err learn_waits(struct proof *p, int rank, int op, int first, int n)
{
    const struct tiara_plan *plan = p->c->plans[rank];

    if (first < 0 || n < 0 || first > plan->nwaits - n)
        return tiara_check_fail(p->c, rank, op, "has no waits %d to %d", first, first + n - 1);
    for (int i = first; i < first + n; i++) {
        struct tiara_plan_wait w = plan->waits[i];

        if (w.peer < 0 || w.peer >= p->c->nranks || w.peer == rank ||
            p->c->layout->node_of[w.peer] != p->c->layout->node_of[rank])
            return tiara_check_fail(
                p->c, rank, op, "waits for rank %d, no peer of its node", w.peer);
        if (w.step > p->reached[w.peer])
            p->reached[w.peer] = w.step;
    }
    return TIARA_OK;
}

/* The owner's writes before the read of @src by @rank's op @op. */
static enum tiara_err check_read(struct proof *p, int rank, int op, const struct tiara_slice *src)
{
    const struct tiara_plan *owner = p->c->plans[src->owner];
    int step = p->c->plans[rank]->ops[op].step, last = 0;

    for (int i = 0; i < owner->nops && owner->ops[i].step < step; i++) {
        if (tiara_op_writes(&owner->ops[i]) &&
            tiara_slice_overlap(owner->ops[i].dst, *src, p->c->in_place))
            last = owner->ops[i].step;
    }
    if (p->reached[src->owner] < last)
        return tiara_check_fail(p->c, rank, op,
            "reads %s[%d] of rank %d without waiting for step %d", tiara_buf_name(src->buf),
            src->first, src->owner, last);
    return TIARA_OK;
}

/* Peers' reads before the write by @rank's op @op; @first_cell: it is the first of this chunk into
 * the cell. */
static enum tiara_err check_write(struct proof *p, int rank, int op, bool first_cell)
{
    const struct tiara_op *o = &p->c->plans[rank]->ops[op];
    int node = p->c->layout->node_of[rank];

    for (int i = p->first_read[rank]; i < p->first_read[rank + 1]; i++) {
        const struct remote_read *read = &p->reads[i];

        if (read->step < o->step && p->reached[read->reader] < read->step &&
            tiara_slice_overlap(read->slice, o->dst, p->c->in_place))
            return tiara_check_fail(p->c, rank, op,
                "overwrites what rank %d reads in step %d without waiting", read->reader,
                read->step);
    }
    for (int i = 0; first_cell && i < tiara_layout_local_size(p->c->layout, node); i++) {
        int peer = tiara_layout_rank(p->c->layout, node, i);

        if (peer != rank && p->reached[peer] < 0)
            return tiara_check_fail(p->c, rank, op,
                "overwrites the cell of an earlier chunk without waiting for rank %d", peer);
    }
    return TIARA_OK;
}

/* Nobody reads the caller's buffers any more when the call returns. */
static enum tiara_err check_exit(struct proof *p, int rank)
{
    for (int i = p->first_read[rank]; i < p->first_read[rank + 1]; i++) {
        const struct remote_read *read = &p->reads[i];

        if (tiara_buf_is_io(read->slice.buf) && p->reached[read->reader] < read->step)
            return tiara_check_fail(p->c, rank, -1,
                "ends without waiting for rank %d, which reads %s in step %d", read->reader,
                tiara_buf_name(read->slice.buf), read->step);
    }
    return TIARA_OK;
}

static enum tiara_err check_orders(struct proof *p, int rank)
{
    const struct tiara_plan *plan = p->c->plans[rank];
    bool cell_written = false;

    memset(p->reached, 0xff, (size_t)p->c->nranks * sizeof(*p->reached));
    p->reached[rank] = plan->nsteps;
    for (int i = 0; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];
        bool into_cell = tiara_op_writes(op) && op->dst.buf == TIARA_BUF_CELL;
        enum tiara_err err = learn_waits(p, rank, i, op->wait, op->nwait);

        for (int k = 0; err == TIARA_OK && k < op->nsrc; k++)
            err = check_read(p, rank, i, &plan->srcs[op->src + k]);
        if (err == TIARA_OK && tiara_op_writes(op) && tiara_buf_is_exposed(plan, op->dst.buf))
            err = check_write(p, rank, i, into_cell && !cell_written);
        if (err != TIARA_OK)
            return err;
        cell_written = cell_written || into_cell;
    }
    if (learn_waits(p, rank, -1, plan->exit_wait, plan->exit_nwait) != TIARA_OK)
        return TIARA_ERR_PLAN;
    return check_exit(p, rank);
}

static bool waits_hold(const struct proof *p, int rank, int first, int n)
{
    const struct tiara_plan_wait *waits = p->c->plans[rank]->waits;

    for (int i = first; i < first + n; i++) {
        if (p->progress[waits[i].peer] < waits[i].step)
            return false;
    }
    return true;
}

static bool asyncs_hold(struct proof *p, int rank, int n)
{
    while (p->ncomplete[rank] < n && tiara_check_is_complete(p->c, rank, p->ncomplete[rank]))
        p->ncomplete[rank]++;
    return p->ncomplete[rank] >= n;
}

/* The post of the op before @rank's cursor, which holds up the ops after it. */
static bool try_post(struct proof *p, int rank)
{
    int last = p->c->cursor[rank] - 1;
    const struct tiara_op *op = &p->c->plans[rank]->ops[last];

    if (op->post > 0 && !asyncs_hold(p, rank, op->post_await))
        return false;
    if (op->post > 0)
        p->progress[rank] = op->post;
    p->nposted[rank] = last + 1;
    return true;
}

static bool try_op(struct proof *p, int rank)
{
    const struct tiara_plan *plan = p->c->plans[rank];
    const struct tiara_op *op = &plan->ops[p->c->cursor[rank]];

    if (p->c->cursor[rank] == plan->nops || !asyncs_hold(p, rank, op->await) ||
        !waits_hold(p, rank, op->wait, op->nwait))
        return false;
    p->c->cursor[rank]++;
    return true;
}

static enum tiara_err run_greedily(struct proof *p)
{
    struct tiara_check *c = p->c;
    bool moved = true;

    memset(c->cursor, 0, (size_t)c->nranks * sizeof(*c->cursor));
    while (moved) {
        moved = false;
        for (int r = 0; r < c->nranks; r++) {
            while (p->nposted[r] < c->cursor[r] ? try_post(p, r) : try_op(p, r))
                moved = true;
        }
    }
    for (int r = 0; r < c->nranks; r++) {
        if (p->nposted[r] < c->cursor[r] || c->cursor[r] < c->plans[r]->nops)
            return tiara_check_fail(
                c, r, c->cursor[r] - (p->nposted[r] < c->cursor[r]), "waits for ever: deadlock");
        if (!waits_hold(p, r, c->plans[r]->exit_wait, c->plans[r]->exit_nwait))
            return tiara_check_fail(c, r, -1, "waits for ever at its end: deadlock");
    }
    return TIARA_OK;
}

/* Counts @rank's remote reads in first_read[owner + 1], or, once reads is there, files them at
 * first_read[owner]++. */
static void visit_reads(struct proof *p, int rank)
{
    const struct tiara_plan *plan = p->c->plans[rank];

    for (int i = 0; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];

        for (int k = op->src; k < op->src + op->nsrc; k++) {
            struct tiara_slice slice = plan->srcs[k];

            if (slice.owner != rank && p->reads == NULL)
                p->first_read[slice.owner + 1]++;
            else if (slice.owner != rank)
                p->reads[p->first_read[slice.owner]++] =
                    (struct remote_read){rank, op->step, slice};
        }
    }
}

/* Fills reads and first_read by a counting sort on the owner. */
static enum tiara_err collect_reads(struct proof *p)
{
    int *first = p->first_read, nranks = p->c->nranks;

    for (int r = 0; r < nranks; r++)
        visit_reads(p, r);
    for (int r = 0; r < nranks; r++)
        first[r + 1] += first[r];
    p->reads = tiara_alloc((size_t)first[nranks], sizeof(*p->reads));
    if (p->reads == NULL)
        return TIARA_ERR_NOMEM;
    for (int r = 0; r < nranks; r++)
        visit_reads(p, r);
    memmove(first + 1, first, (size_t)nranks * sizeof(*first));
    first[0] = 0;
    return TIARA_OK;
}

static enum tiara_err check_all(struct proof *p)
{
    enum tiara_err err = collect_reads(p);

    for (int r = 0; err == TIARA_OK && r < p->c->nranks; r++) {
        err = check_posts(p->c, r);
        if (err == TIARA_OK)
            err = check_awaits(p->c, r);
        if (err == TIARA_OK)
            err = check_orders(p, r);
    }
    if (err == TIARA_OK)
        err = run_greedily(p);
    return err;
}

enum tiara_err tiara_check_waits(struct tiara_check *c)
{
    int n = c->nranks, *each = tiara_alloc(5 * (size_t)n + 1, sizeof(*each));
    struct proof p = {.c = c};
    enum tiara_err err;

    if (each == NULL)
        return TIARA_ERR_NOMEM;
    p.reached = each;
    p.progress = each + n;
    p.nposted = each + 2 * n;
    p.ncomplete = each + 3 * n;
    p.first_read = each + 4 * n;
    err = check_all(&p);
    tiara_free(p.reads);
    tiara_free(each);
    return err;
}
