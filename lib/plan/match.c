/*
 * Pairing of sends and receives: both are sorted by sender, receiver and program order; then the
 * pairs stand side by side.
 */
#include "plan/match.h"
#include "base/alloc.h"
#include "plan/slice.h"
#include <stdlib.h>
#include <string.h>

/* An async, and the two ranks of its message. */
struct end {
    int from, to, async;
};

static int pair_compare(const struct end *x, const struct end *y)
{
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static int end_compare(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    int pair = pair_compare(x, y);

    return pair != 0 ? pair : x->async - y->async;
}

static enum tiara_err fail(struct tiara_match *m, int async, const char *why)
{
    m->bad_rank = m->rank[async];
    m->bad_op = m->op[async];
    m->bad_why = why;
    return TIARA_ERR_PLAN;
}

/* A @send and a @recv that belong together. */
static enum tiara_err join(
    struct tiara_match *m, const struct tiara_plan *const *plans, int send, int recv)
{
    const struct tiara_plan *from = plans[m->rank[send]];
    const struct tiara_op *s = &from->ops[m->op[send]];
    const struct tiara_op *r = &plans[m->rank[recv]]->ops[m->op[recv]];

    if (s->step != r->step)
        return fail(m, recv, "the matching send is in another step");
    if (from->srcs[s->src].count != r->dst.count)
        return fail(m, recv, "the matching send has another count");
    m->partner[send] = recv;
    m->partner[recv] = send;
    return TIARA_OK;
}

/* Lists the asyncs of all ranks in first, rank and op, and joins them. @ends[2 * m->n]: scratch. */
static enum tiara_err pair_up(
    struct tiara_match *m, const struct tiara_plan *const *plans, int nranks, struct end *ends)
{
    struct end *sends = ends, *recvs = ends + m->n;
    int n = 0, nsends = 0, nrecvs = 0;
    enum tiara_err err = TIARA_OK;

    for (int r = 0; r < nranks; r++) {
        m->first[r] = n;
        for (int i = 0; i < plans[r]->nops; i++) {
            const struct tiara_op *op = &plans[r]->ops[i];

            if (op->kind == TIARA_OP_SEND)
                sends[nsends++] = (struct end){r, op->peer, n};
            else if (op->kind == TIARA_OP_RECV)
                recvs[nrecvs++] = (struct end){op->peer, r, n};
            else
                continue;
            m->rank[n] = r;
            m->op[n++] = i;
        }
    }
    m->first[nranks] = n;
    qsort(sends, (size_t)nsends, sizeof(*sends), end_compare);
    qsort(recvs, (size_t)nrecvs, sizeof(*recvs), end_compare);
    for (int i = 0; err == TIARA_OK && (i < nsends || i < nrecvs); i++) {
        /* < 0: the send belongs to an earlier pair of ranks, which has no receive for it */
        int order = i == nsends ? 1 : i == nrecvs ? -1 : pair_compare(&sends[i], &recvs[i]);

        if (order < 0)
            err = fail(m, sends[i].async, "no receive matches this send");
        else if (order > 0)
            err = fail(m, recvs[i].async, "no send matches this receive");
        else
            err = join(m, plans, sends[i].async, recvs[i].async);
    }
    return err;
}

enum tiara_err tiara_match_init(
    struct tiara_match *match_out, const struct tiara_plan *const *plans, int nranks)
{
    struct tiara_match *m = match_out;
    enum tiara_err err = TIARA_ERR_NOMEM;
    struct end *ends;

    memset(m, 0, sizeof(*m));
    for (int r = 0; r < nranks; r++)
        m->n += plans[r]->nasync;
    m->first = tiara_alloc((size_t)nranks + 1 + 3 * (size_t)m->n, sizeof(int));
    ends = tiara_alloc(2 * (size_t)m->n, sizeof(*ends));
    if (m->first != NULL && ends != NULL) {
        m->rank = m->first + nranks + 1;
        m->op = m->rank + m->n;
        m->partner = m->op + m->n;
        err = pair_up(m, plans, nranks, ends);
    }
    tiara_free(ends);
    return err;
}

void tiara_match_fini(struct tiara_match *match)
{
    tiara_free(match->first);
    memset(match, 0, sizeof(*match));
}
