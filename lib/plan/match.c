/*
 * Pairing of sends and receives.
 *
 * Both are brought into the order (sender, receiver, program order) by stable counting sorts; then
 * the pairs stand side by side.
 */
#include "plan/match.h"
#include "base/alloc.h"
#include "plan/slice.h"
#include <string.h>

static const struct tiara_op *op_of(
    const struct tiara_match *m, const struct tiara_plan *const *plans, int async)
{
    return &plans[m->rank[async]]->ops[m->op[async]];
}

/* The end of @async that a sort looks at: its own rank or its peer. */
static int key_of(
    const struct tiara_match *m, const struct tiara_plan *const *plans, int async, bool by_peer)
{
    return by_peer ? op_of(m, plans, async)->peer : m->rank[async];
}

struct sorter {
    const struct tiara_match *match;
    const struct tiara_plan *const *plans;
    int nranks;
    int *count; /* [nranks + 1] */
};

/* @to[n] := @from[n], stably sorted. */
static void sort_by(struct sorter *s, int *to, const int *from, int n, bool by_peer)
{
    memset(s->count, 0, ((size_t)s->nranks + 1) * sizeof(*s->count));
    for (int i = 0; i < n; i++)
        s->count[key_of(s->match, s->plans, from[i], by_peer) + 1]++;
    for (int r = 0; r < s->nranks; r++)
        s->count[r + 1] += s->count[r];
    for (int i = 0; i < n; i++)
        to[s->count[key_of(s->match, s->plans, from[i], by_peer)]++] = from[i];
}

static enum tiara_err fail(struct tiara_match *m, int async, const char *why)
{
    m->bad_rank = m->rank[async];
    m->bad_op = m->op[async];
    m->bad_why = why;
    return TIARA_ERR_PLAN;
}

/* < 0 when @send's pair of ranks comes before @recv's, 0 when they are the same pair. */
static int compare_ends(
    const struct tiara_match *m, const struct tiara_plan *const *plans, int send, int recv)
{
    int from = m->rank[send] - op_of(m, plans, recv)->peer;

    return from != 0 ? from : op_of(m, plans, send)->peer - m->rank[recv];
}

static enum tiara_err zip(struct tiara_match *m, const struct tiara_plan *const *plans,
    const int *sends, int nsends, const int *recvs, int nrecvs)
{
    int both = nsends < nrecvs ? nsends : nrecvs;

    for (int i = 0; i < both; i++) {
        const struct tiara_op *send = op_of(m, plans, sends[i]);
        const struct tiara_op *recv = op_of(m, plans, recvs[i]);
        int ends = compare_ends(m, plans, sends[i], recvs[i]);

        if (ends < 0)
            return fail(m, sends[i], "no receive matches this send");
        if (ends > 0)
            return fail(m, recvs[i], "no send matches this receive");
        if (send->step != recv->step)
            return fail(m, recvs[i], "the matching send is in another step");
        if (plans[m->rank[sends[i]]]->srcs[send->src].count != recv->dst.count)
            return fail(m, recvs[i], "the matching send has another count");
        m->partner[sends[i]] = recvs[i];
        m->partner[recvs[i]] = sends[i];
    }
    if (nsends > both)
        return fail(m, sends[both], "no receive matches this send");
    if (nrecvs > both)
        return fail(m, recvs[both], "no send matches this receive");
    return TIARA_OK;
}

/* Lists the asyncs of all ranks in first, rank and op. */
static void list_asyncs(struct tiara_match *m, const struct tiara_plan *const *plans, int nranks)
{
    int n = 0;

    for (int r = 0; r < nranks; r++) {
        m->first[r] = n;
        for (int i = 0; i < plans[r]->nops; i++) {
            if (!tiara_op_is_async(&plans[r]->ops[i]))
                continue;
            m->rank[n] = r;
            m->op[n++] = i;
        }
    }
    m->first[nranks] = n;
}

/* @scratch[4 * n] */
static enum tiara_err pair_up(struct sorter *s, struct tiara_match *m, int *scratch)
{
    int *sends = scratch, *recvs = scratch + m->n;
    int *by_dst = scratch + 2 * m->n, *sorted = scratch + 3 * m->n;
    int nsends = 0, nrecvs = 0;

    for (int i = 0; i < m->n; i++) {
        if (op_of(m, s->plans, i)->kind == TIARA_OP_SEND)
            sends[nsends++] = i;
        else
            recvs[nrecvs++] = i;
    }
    sort_by(s, by_dst, sends, nsends, true);
    sort_by(s, sends, by_dst, nsends, false);
    sort_by(s, sorted, recvs, nrecvs, true);
    return zip(m, s->plans, sends, nsends, sorted, nrecvs);
}

enum tiara_err tiara_match_init(
    struct tiara_match *match_out, const struct tiara_plan *const *plans, int nranks)
{
    struct tiara_match *m = match_out;
    struct sorter sorter = {m, plans, nranks, NULL};
    enum tiara_err err = TIARA_ERR_NOMEM;
    int *scratch;

    memset(m, 0, sizeof(*m));
    for (int r = 0; r < nranks; r++)
        m->n += plans[r]->nasync;
    m->first = tiara_alloc((size_t)nranks + 1, sizeof(int));
    m->rank = tiara_alloc((size_t)m->n, sizeof(int));
    m->op = tiara_alloc((size_t)m->n, sizeof(int));
    m->partner = tiara_alloc((size_t)m->n, sizeof(int));
    sorter.count = tiara_alloc((size_t)nranks + 1, sizeof(int));
    scratch = tiara_alloc((size_t)m->n * 4, sizeof(int));
    if (m->first && m->rank && m->op && m->partner && sorter.count && scratch) {
        list_asyncs(m, plans, nranks);
        err = pair_up(&sorter, m, scratch);
    }
    tiara_free(scratch);
    tiara_free(sorter.count);
    return err;
}

void tiara_match_fini(struct tiara_match *match)
{
    tiara_free(match->first);
    tiara_free(match->rank);
    tiara_free(match->op);
    tiara_free(match->partner);
    memset(match, 0, sizeof(*match));
}
