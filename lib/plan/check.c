/*
 * The checker: proves that the plans of all ranks together compute the collective.
 *
 * Each block of memory holds the number of an expression tree. A wrong plan then shows itself as a
 * wrong tree, whatever the data: a contribution missing or doubled, blocks mixed, or two ranks
 * that would add the same numbers in different order and so end with different bits.
 */
#include "plan/check_priv.h"
#include "base/alloc.h"
#include "base/log.h"
#include "plan/slice.h"
#include <string.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What one rank does, in blocks. */
struct tally {
    int64_t sent, received, read, reduced;
    int64_t left_node, entered_node; /* the part of sent and received that crosses nodes */
    int rounds;
};

static void tally_op(
    const struct tiara_check *c, int rank, const struct tiara_op *op, struct tally *t)
{
    const struct tiara_slice *src = c->plans[rank]->srcs + op->src;
    const int *node_of = c->layout->node_of;

    for (int i = 0; i < op->nsrc; i++)
        t->read += src[i].owner != rank ? src[i].count : 0;
    if (op->kind == TIARA_OP_REDUCE)
        t->reduced += (int64_t)(op->nsrc - 1) * op->dst.count;
    if (op->kind == TIARA_OP_SEND) {
        t->sent += src[0].count;
        t->left_node += node_of[rank] != node_of[op->peer] ? src[0].count : 0;
    }
    if (op->kind == TIARA_OP_RECV) {
        t->received += op->dst.count;
        t->entered_node += node_of[rank] != node_of[op->peer] ? op->dst.count : 0;
    }
}

static struct tally tally_rank(const struct tiara_check *c, int rank)
{
    const struct tiara_plan *plan = c->plans[rank];
    struct tally t = {0};
    int last_round = 0;

    for (int i = 0; i < plan->nops; i++) {
        tally_op(c, rank, &plan->ops[i], &t);
        if (tiara_op_is_async(&plan->ops[i]) && plan->ops[i].step != last_round) {
            last_round = plan->ops[i].step;
            t.rounds++;
        }
    }
    return t;
}

static void fill_report(struct tiara_check *c)
{
    struct tiara_plan_report *report = c->report;

    report->nsteps = c->plans[0]->nsteps;
    for (int node = 0; node < c->layout->nnodes; node++) {
        int64_t node_sent = 0, node_received = 0;

        for (int i = 0; i < tiara_layout_local_size(c->layout, node); i++) {
            int rank = tiara_layout_rank(c->layout, node, i);
            struct tally t = tally_rank(c, rank);

            node_sent += t.left_node;
            node_received += t.entered_node;
            report->net_sent_total += t.sent;
            report->net_sent_max = larger(report->net_sent_max, t.sent);
            report->shm_read_max = larger(report->shm_read_max, t.read);
            report->reduce_max = larger(report->reduce_max, t.reduced);
            report->net_rounds = (int)larger(report->net_rounds, t.rounds);
            report->rank0_sent += rank == 0 ? t.sent : 0;
            report->rank0_received += rank == 0 ? t.received : 0;
        }
        report->net_node_sent_max = larger(report->net_node_sent_max, node_sent);
        report->net_node_recv_max = larger(report->net_node_recv_max, node_received);
    }
}

/* Block @b of @rank's result is @tree: the right leaves, each once? */
static enum tiara_err check_value(struct tiara_check *c, int rank, int b)
{
    int id = c->tree[tiara_check_at(c, rank, TIARA_BUF_OUT, b)];
    const struct tiara_tree *tree = &c->trees.trees[id];

    if (id == 0)
        return tiara_check_fail(c, rank, -1, "out[%d] was never written", b);
    if (c->plans[0]->coll == TIARA_COLL_ALLGATHER) {
        if (tree->left != 0 || tree->right != b)
            return tiara_check_fail(c, rank, -1, "out[%d] is not rank %d's input", b, b);
        return TIARA_OK;
    }
    if (!tiara_trees_covers(&c->trees, id, c->nranks, c->scratch))
        return tiara_check_fail(c, rank, -1,
            "out[%d] does not hold every contribution exactly once (%lld leaves)", b,
            (long long)tree->nleaves);
    c->report->ordered = c->report->ordered && tree->ordered;
    return TIARA_OK;
}

/* Block @b of the result, on all ranks that have it. */
static enum tiara_err check_block(struct tiara_check *c, int b)
{
    bool own_only = c->plans[0]->coll == TIARA_COLL_REDUCE_SCATTER;
    int first = own_only ? b : 0;
    int last = own_only ? b : c->nranks - 1;
    enum tiara_err err = check_value(c, first, b);
    int tree = c->tree[tiara_check_at(c, first, TIARA_BUF_OUT, b)];

    for (int r = first + 1; err == TIARA_OK && r <= last; r++) {
        if (c->tree[tiara_check_at(c, r, TIARA_BUF_OUT, b)] == tree)
            continue;
        /* A wrong value has a clearer message than a different one. */
        err = check_value(c, r, b);
        if (err == TIARA_OK)
            err = tiara_check_fail(
                c, r, -1, "out[%d] was added up in another order than rank 0's", b);
    }
    return err;
}

static enum tiara_err check_results(struct tiara_check *c)
{
    enum tiara_err err = TIARA_OK;

    c->report->ordered = true;
    for (int b = 0; err == TIARA_OK && b < c->nblocks; b++)
        err = check_block(c, b);
    return err;
}

/* After the rules: memory for the run. Freed by close_check. */
static enum tiara_err open_check(struct tiara_check *c)
{
    size_t nranks = (size_t)c->nranks, n = 0;

    c->first = tiara_alloc(nranks + 1, sizeof(*c->first));
    c->cursor = tiara_alloc(6 * nranks, sizeof(*c->cursor));
    if (c->first == NULL || c->cursor == NULL)
        return TIARA_ERR_NOMEM;
    c->nissued = c->cursor + nranks;
    c->first_async = c->nissued + nranks;
    c->scratch = c->first_async + nranks;
    for (int r = 0; r < c->nranks; r++) {
        c->first[r] = n;
        n += (size_t)c->nblocks * TIARA_BUF_TMP + (size_t)c->plans[r]->tmp_blocks;
    }
    c->first[nranks] = n;
    c->tree = tiara_alloc(n, sizeof(*c->tree));
    c->written_step = tiara_alloc(n, sizeof(*c->written_step));
    return c->tree != NULL && c->written_step != NULL ? TIARA_OK : TIARA_ERR_NOMEM;
}

static void close_check(struct tiara_check *c)
{
    tiara_trees_fini(&c->trees);
    tiara_match_fini(&c->match);
    tiara_free(c->written_step);
    tiara_free(c->tree);
    tiara_free(c->cursor);
    tiara_free(c->first);
}

/* True when at least one plan carries derived waits; then all must. */
static bool has_waits(const struct tiara_check *c)
{
    for (int r = 0; r < c->nranks; r++) {
        if (tiara_plan_has_depend(c->plans[r]))
            return true;
    }
    return false;
}

static enum tiara_err prove(struct tiara_check *c)
{
    enum tiara_err err = tiara_check_rules(c);

    if (err != TIARA_OK)
        return err;
    err = tiara_match_init(&c->match, c->plans, c->nranks);
    if (err == TIARA_ERR_PLAN)
        return tiara_check_fail(c, c->match.bad_rank, c->match.bad_op, "%s", c->match.bad_why);
    if (err == TIARA_OK)
        err = open_check(c);
    if (err == TIARA_OK)
        err = tiara_check_run(c);
    if (err == TIARA_OK)
        err = check_results(c);
    if (err == TIARA_OK && has_waits(c))
        err = tiara_check_waits(c);
    return err;
}

enum tiara_err tiara_plan_check(const struct tiara_plan *const *plans,
    const struct tiara_layout *layout, bool in_place, struct tiara_plan_report *report_out)
{
    struct tiara_plan_report report = {0};
    struct tiara_check c = {.plans = plans,
        .layout = layout,
        .nranks = layout->nranks,
        .nblocks = plans[0]->nblocks,
        .in_place = in_place && plans[0]->coll != TIARA_COLL_REDUCE_SCATTER,
        .report = &report};
    enum tiara_err err = prove(&c);

    if (err == TIARA_OK)
        fill_report(&c);
    if (err != TIARA_OK && report_out == NULL)
        tiara_error("plan check: %s", err == TIARA_ERR_PLAN ? report.text : tiara_err_text(err));
    if (report_out != NULL)
        *report_out = report;
    close_check(&c);
    return err;
}
