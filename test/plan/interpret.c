/*
 * The interpreter in which ranks drift apart.
 */
#include "test/plan/interpret.h"
#include "test/harness/test.h"
#include "base/alloc.h"
#include <string.h>

#define INTERPRET_CHUNKS 3

enum interpret_order {
    INTERPRET_RANDOM,
    INTERPRET_LOWEST_FIRST,
    INTERPRET_HIGHEST_FIRST,
    INTERPRET_ROUND_ROBIN,
    INTERPRET_NORDERS
};

struct interpret_value {
    uint64_t hash;
    int block;
    unsigned char count[PLAN_SET_MAX];
};

/* One send under way. */
struct interpret_message {
    int src_op, chunk; /* the source is read when it is delivered, unless it is eager */
    int async;
    bool is_eager; /* taken from the source when it was sent */
    struct interpret_value *values;
};

struct interpret_rank {
    int cursor, chunk, nissued;
    bool is_posting;
    int64_t progress;
    bool *is_complete; /* [nasync] */
    struct interpret_value *io[INTERPRET_CHUNKS][2]; /* in, out */
    struct interpret_value *cell, *tmp;
};

/* Sends and receives from one rank to another that have not met yet. */
struct interpret_channel {
    struct interpret_message *sends;
    int *recv_ops, *recv_asyncs;
    int nsent, nposted, ndone;
};

struct interpret {
    const struct plan_set *set;
    int nranks, nblocks;
    bool in_place, is_synchronous;
    struct interpret_rank ranks[PLAN_SET_MAX];
    struct interpret_channel channels[PLAN_SET_MAX][PLAN_SET_MAX];
    struct tiara_test_random random;
    uint64_t expected[INTERPRET_CHUNKS][64]; /* hash of each result block once a rank has it */
    bool is_wrong;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u + (b ^ (b >> 29)) * 0xbf58476d1ce4e5b9u + 1;

    return h ^ (h >> 31);
}

static struct interpret_value *value_at(struct interpret *x, int chunk, const struct tiara_slice *s)
{
    struct interpret_rank *owner = &x->ranks[s->owner];

    if (s->buf == TIARA_BUF_CELL)
        return owner->cell + s->first;
    if (s->buf == TIARA_BUF_TMP)
        return owner->tmp + s->first;
    return owner->io[chunk][s->buf == TIARA_BUF_OUT && !x->in_place] + s->first;
}

static struct interpret_value add(struct interpret_value a, struct interpret_value b)
{
    a.hash = mix(a.hash, b.hash);
    a.block = a.block == b.block ? a.block : -1;
    for (int r = 0; r < PLAN_SET_MAX; r++)
        a.count[r] += b.count[r];
    return a;
}

static void compute(struct interpret *x, int rank, const struct tiara_op *op)
{
    int chunk = x->ranks[rank].chunk;
    const struct tiara_slice *src = x->set->plans[rank].srcs + op->src;
    struct interpret_value *dst = value_at(x, chunk, &op->dst);

    for (int b = 0; b < op->dst.count; b++) {
        struct interpret_value acc = value_at(x, chunk, &src[0])[b];

        for (int i = 1; i < op->nsrc; i++)
            acc = add(acc, value_at(x, chunk, &src[i])[b]);
        dst[b] = acc;
    }
}

static void issue(struct interpret *x, int rank, int at)
{
    struct interpret_rank *me = &x->ranks[rank];
    const struct tiara_plan *plan = &x->set->plans[rank];
    const struct tiara_op *op = &plan->ops[at];
    struct interpret_channel *c;

    if (op->kind == TIARA_OP_RECV) {
        c = &x->channels[op->peer][rank];
        c->recv_ops[c->nposted] = at;
        c->recv_asyncs[c->nposted++] = me->nissued++;
        return;
    }
    c = &x->channels[rank][op->peer];
    c->sends[c->nsent] = (struct interpret_message){at, me->chunk, me->nissued, false, NULL};
    if (!x->is_synchronous && tiara_test_random_below(&x->random, 2)) {
        const struct tiara_slice *src = &plan->srcs[op->src];

        c->sends[c->nsent].is_eager = true;
        c->sends[c->nsent].values = plan_set_copy_array(
            value_at(x, me->chunk, src), src->count, sizeof(struct interpret_value));
        me->is_complete[me->nissued] = true;
    }
    c->nsent++;
    me->nissued++;
}

/* Lets the oldest message from @from to @to arrive, if both ends are there. */
static bool deliver(struct interpret *x, int from, int to)
{
    struct interpret_channel *c = &x->channels[from][to];
    struct interpret_message *m = &c->sends[c->ndone];
    const struct tiara_op *send, *recv;
    const struct tiara_slice *src;

    if (c->ndone == c->nsent || c->ndone == c->nposted)
        return false;
    send = &x->set->plans[from].ops[m->src_op];
    recv = &x->set->plans[to].ops[c->recv_ops[c->ndone]];
    src = &x->set->plans[from].srcs[send->src];
    memcpy(value_at(x, x->ranks[to].chunk, &recv->dst),
        m->is_eager ? m->values : value_at(x, m->chunk, src),
        (size_t)src->count * sizeof(struct interpret_value));
    if (!m->is_eager)
        x->ranks[from].is_complete[m->async] = true;
    x->ranks[to].is_complete[c->recv_asyncs[c->ndone]] = true;
    c->ndone++;
    return true;
}

static bool asyncs_hold(const struct interpret_rank *me, int n)
{
    for (int k = 0; k < n; k++) {
        if (!me->is_complete[k])
            return false;
    }
    return true;
}

static bool waits_hold(const struct interpret *x, int rank, int first, int n)
{
    const struct tiara_plan *plan = &x->set->plans[rank];
    int64_t base = (int64_t)x->ranks[rank].chunk * plan->nsteps;

    for (int i = first; i < first + n; i++) {
        if (x->ranks[plan->waits[i].peer].progress < base + plan->waits[i].step)
            return false;
    }
    return true;
}

/* The rank's result of its chunk; afterwards the caller does what it likes with its memory. */
static void judge(struct interpret *x, int rank)
{
    struct interpret_rank *me = &x->ranks[rank];
    enum tiara_coll coll = x->set->plans[rank].coll;
    struct interpret_value *out = me->io[me->chunk][!x->in_place];

    for (int b = 0; b < x->nblocks; b++) {
        uint64_t *expected = &x->expected[me->chunk][b];
        bool is_right = out[b].block == b;

        if (coll == TIARA_COLL_REDUCE_SCATTER && b != rank)
            continue;
        for (int r = 0; r < x->nranks; r++)
            is_right = is_right && out[b].count[r] == (coll != TIARA_COLL_ALLGATHER || r == b);
        if (*expected == 0)
            *expected = out[b].hash;
        x->is_wrong = x->is_wrong || !is_right || *expected != out[b].hash;
    }
    for (int i = 0; i < 2; i++)
        memset(me->io[me->chunk][i], 0x5a, (size_t)x->nblocks * sizeof(*out));
}

static bool finish_chunk(struct interpret *x, int rank)
{
    struct interpret_rank *me = &x->ranks[rank];
    const struct tiara_plan *plan = &x->set->plans[rank];

    if (!asyncs_hold(me, plan->nasync) || !waits_hold(x, rank, plan->exit_wait, plan->exit_nwait))
        return false;
    judge(x, rank);
    memset(me->is_complete, 0, (size_t)plan->nasync);
    me->chunk++;
    me->progress = (int64_t)me->chunk * plan->nsteps;
    me->cursor = 0;
    me->nissued = 0;
    return true;
}

/* One move of @rank, if it can make one. */
static bool move_rank(struct interpret *x, int rank)
{
    struct interpret_rank *me = &x->ranks[rank];
    const struct tiara_plan *plan = &x->set->plans[rank];
    const struct tiara_op *op = &plan->ops[me->cursor];

    if (me->chunk == INTERPRET_CHUNKS)
        return false;
    if (me->is_posting) {
        if (!asyncs_hold(me, op[-1].post_await))
            return false;
        me->progress = (int64_t)me->chunk * plan->nsteps + op[-1].post;
        me->is_posting = false;
        return true;
    }
    if (me->cursor == plan->nops)
        return finish_chunk(x, rank);
    if (!asyncs_hold(me, op->await) || !waits_hold(x, rank, op->wait, op->nwait))
        return false;
    if (op->kind == TIARA_OP_SEND || op->kind == TIARA_OP_RECV)
        issue(x, rank, me->cursor);
    else
        compute(x, rank, op);
    me->cursor++;
    me->is_posting = op->post > 0;
    return true;
}

static struct interpret_value *values_alloc(int n)
{
    struct interpret_value *v = tiara_alloc((size_t)n + 1, sizeof(*v));

    ck_assert_ptr_nonnull(v);
    memset(v, 0xa5, (size_t)n * sizeof(*v));
    return v;
}

static void open_rank(struct interpret *x, int rank)
{
    struct interpret_rank *me = &x->ranks[rank];
    const struct tiara_plan *plan = &x->set->plans[rank];

    me->is_complete = tiara_alloc((size_t)plan->nasync + 1, 1);
    me->cell = values_alloc(x->nblocks);
    me->tmp = values_alloc(plan->tmp_blocks);
    for (int c = 0; c < INTERPRET_CHUNKS; c++) {
        me->io[c][0] = values_alloc(x->nblocks);
        me->io[c][1] = values_alloc(x->nblocks);
        for (int b = 0; b < x->nblocks; b++) {
            struct interpret_value leaf = {
                .hash = tiara_test_bits(rank, (size_t)(64 * c + b)), .block = b};

            leaf.count[rank] = 1;
            if (plan->coll != TIARA_COLL_ALLGATHER || b == rank)
                me->io[c][0][b] = leaf;
        }
    }
    for (int to = 0; to < x->nranks; to++) {
        size_t n = (size_t)plan->nasync * INTERPRET_CHUNKS + 1;

        x->channels[rank][to].sends = tiara_alloc(n, sizeof(struct interpret_message));
        n = (size_t)x->set->plans[to].nasync * INTERPRET_CHUNKS + 1;
        x->channels[rank][to].recv_ops = tiara_alloc(n, sizeof(int));
        x->channels[rank][to].recv_asyncs = tiara_alloc(n, sizeof(int));
    }
}

static void close_rank(struct interpret *x, int rank)
{
    struct interpret_rank *me = &x->ranks[rank];

    tiara_free(me->is_complete);
    tiara_free(me->cell);
    tiara_free(me->tmp);
    for (int c = 0; c < INTERPRET_CHUNKS; c++) {
        tiara_free(me->io[c][0]);
        tiara_free(me->io[c][1]);
    }
    for (int to = 0; to < x->nranks; to++) {
        struct interpret_channel *channel = &x->channels[rank][to];

        for (int i = 0; i < channel->nsent; i++)
            tiara_free(channel->sends[i].values);
        tiara_free(channel->sends);
        tiara_free(channel->recv_ops);
        tiara_free(channel->recv_asyncs);
    }
}

/* The first in @order that can move does: ranks, and messages as actors nranks and up. @turn counts
 * calls. */
static bool step_any(struct interpret *x, enum interpret_order order, int turn)
{
    int n = x->nranks, nactors = n + n * n;
    int start = order == INTERPRET_RANDOM
                    ? (int)tiara_test_random_below(&x->random, (uint64_t)nactors)
                : order == INTERPRET_ROUND_ROBIN ? turn % nactors
                                                 : 0;

    for (int i = 0; i < nactors; i++) {
        int actor = (start + i) % nactors;
        bool has_moved;

        if (order == INTERPRET_HIGHEST_FIRST && actor < n)
            actor = n - 1 - actor;
        has_moved = actor < n ? move_rank(x, actor) : deliver(x, (actor - n) / n, (actor - n) % n);
        if (has_moved)
            return true;
    }
    return false;
}

/*
 * Runs @set, which must have its dependencies, and says whether every rank ended every chunk with
 * the right result. @nblocks <= 64.
 * @is_synchronous: sends complete only when they are received.
 */
static bool run(const struct plan_set *set, bool in_place, bool is_synchronous,
    enum interpret_order order, uint64_t seed)
{
    static struct interpret x;
    bool is_right = true;
    int turn = 0;

    memset(&x, 0, sizeof(x));
    x.set = set;
    x.nranks = set->layout.nranks;
    x.nblocks = set->plans[0].nblocks;
    x.in_place = in_place && set->plans[0].coll != TIARA_COLL_REDUCE_SCATTER;
    x.is_synchronous = is_synchronous;
    x.random.state = seed;
    for (int r = 0; r < x.nranks; r++)
        open_rank(&x, r);
    while (step_any(&x, order, turn))
        turn++;
    for (int r = 0; r < x.nranks; r++)
        is_right = is_right && x.ranks[r].chunk == INTERPRET_CHUNKS;
    for (int r = 0; r < x.nranks; r++)
        close_rank(&x, r);
    return is_right && !x.is_wrong;
}

bool interpret_all(const struct plan_set *set, bool in_place, uint64_t seed)
{
    for (int order = 0; order < INTERPRET_NORDERS; order++) {
        if (!run(set, in_place, true, (enum interpret_order)order, seed) ||
            !run(set, in_place, false, (enum interpret_order)order, seed))
            return false;
    }
    return true;
}
