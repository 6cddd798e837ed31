/*
 * Plans of all ranks, proved, and run with numbers step by step.
 */
#include "test/plan/proof.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The plans of one node's ranks, for its ranks' dependencies. */
static void depend_node(struct proof *proof, int node)
{
    const struct tiara_layout *layout = &proof->layout;
    int nlocal = tiara_layout_local_size(layout, node);
    const struct tiara_plan **peers = calloc((size_t)nlocal, sizeof(*peers));

    for (int i = 0; i < nlocal; i++)
        peers[i] = proof->views[tiara_layout_rank(layout, node, i)];
    for (int i = 0; i < nlocal; i++) {
        struct tiara_plan *plan = &proof->plans[tiara_layout_rank(layout, node, i)];

        ck_assert_msg(tiara_plan_depend(plan, peers, nlocal) == TIARA_OK,
            "%s: no dependencies for rank %d", proof->name, plan->rank);
        ck_assert_msg(tiara_plan_resolve(plan) == TIARA_OK, "%s: blocks of rank %d do not follow",
            proof->name, plan->rank);
    }
    free(peers);
}

void proof_init(struct proof *proof, const struct tiara_algo *algo, const char *layout,
    const struct tiara_algo_opts *opts)
{
    char why[200] = "";
    int n;

    *proof = (struct proof){.algo = algo, .opts = *opts};
    snprintf(proof->name, sizeof(proof->name), "%s %s of %s, leaders %d, inter %s%s%s", algo->name,
        tiara_coll_name(opts->coll), layout, opts->leaders,
        opts->inter != NULL ? opts->inter->name : "-", opts->one_shot ? ", one-shot" : "",
        opts->single_copy ? ", single copy" : "");
    ck_assert_msg(
        tiara_layout_parse(&proof->layout, layout, 0, why, sizeof(why)) == TIARA_OK, "%s", why);
    n = proof->layout.nranks;
    proof->plans = calloc((size_t)n, sizeof(*proof->plans));
    proof->views = calloc((size_t)n, sizeof(*proof->views));
    for (int r = 0; r < n; r++) {
        proof->views[r] = &proof->plans[r];
        ck_assert_msg(tiara_algo_generate(
                          algo, &proof->layout, r, &proof->opts, &proof->plans[r]) == TIARA_OK,
            "%s: rank %d cannot be generated", proof->name, r);
    }
    for (int node = 0; node < proof->layout.nnodes; node++)
        depend_node(proof, node);
}

void proof_fini(struct proof *proof)
{
    for (int r = 0; r < proof->layout.nranks; r++)
        tiara_plan_fini(&proof->plans[r]);
    free(proof->plans);
    free(proof->views);
    tiara_layout_fini(&proof->layout);
}

/* ---- operators on 64 bits ---- */

static uint64_t op_sum(uint64_t a, uint64_t b)
{
    return a + b;
}

/* Composition of the maps x -> s x + t over 32-bit words: associative, but not commutative. */
static uint64_t op_affine(uint64_t a, uint64_t b)
{
    uint32_t s = (uint32_t)(a >> 32) | 1, t = (uint32_t)a;
    uint32_t u = (uint32_t)(b >> 32) | 1, v = (uint32_t)b;

    return (uint64_t)(s * u) << 32 | (uint32_t)(s * v + t);
}

uint64_t proof_op_tree(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + (b ^ b >> 29) * UINT64_C(0xd6e8feb86659fd93);

    return x ^ x >> 32;
}

/* ---- the interpreter ---- */

/* A send or receive whose partner has not come yet. */
struct proof_async {
    bool is_send;
    int from, to;
    int ordinal; /* among its rank's sends and receives */
    struct tiara_slice slice;
};

static uint64_t *slice_at(const struct proof_machine *m, struct tiara_slice s)
{
    return m->mem[s.owner * TIARA_NBUF + (int)s.buf] + s.first;
}

/*
 * Begins a send or receive. Data move when both partners have come, which may be long after the
 * first one's op: a source that is overwritten too early, or a target read too early, shows.
 */
static void begin_async(struct proof_machine *m, struct proof_async a)
{
    for (int i = 0; i < m->nopen; i++) {
        struct proof_async b = m->open[i];
        struct proof_async send = a.is_send ? a : b, recv = a.is_send ? b : a;

        if (a.is_send == b.is_send || a.from != b.from || a.to != b.to)
            continue;
        if (send.slice.count != recv.slice.count)
            ck_abort_msg("%s: rank %d sends %d blocks, rank %d takes %d", m->proof->name, send.from,
                send.slice.count, recv.to, recv.slice.count);
        memcpy(slice_at(m, recv.slice), slice_at(m, send.slice),
            (size_t)send.slice.count * sizeof(uint64_t));
        m->is_done[send.from][send.ordinal] = true;
        m->is_done[recv.to][recv.ordinal] = true;
        m->nopen--;
        memmove(&m->open[i], &m->open[i + 1], (size_t)(m->nopen - i) * sizeof(*m->open));
        return;
    }
    if (m->nopen == m->cap_open) {
        m->cap_open = 2 * m->cap_open + 64;
        m->open = realloc(m->open, (size_t)m->cap_open * sizeof(*m->open));
    }
    m->open[m->nopen++] = a;
}

static void compute(
    struct proof_machine *m, const struct tiara_op *op, const struct tiara_slice *src)
{
    for (int b = 0; b < op->dst.count; b++) {
        uint64_t acc = slice_at(m, src[0])[b];

        for (int i = 1; i < op->nsrc; i++)
            acc = m->op(acc, slice_at(m, src[i])[b]);
        slice_at(m, op->dst)[b] = acc;
    }
}

/* False when the op must wait for a send or receive of its own rank. */
static bool step_op(
    struct proof_machine *m, const struct tiara_plan *plan, const struct tiara_op *op)
{
    const struct tiara_slice *src = plan->srcs + op->src;
    int r = plan->rank;

    while (m->ndone[r] < m->nissued[r] && m->is_done[r][m->ndone[r]])
        m->ndone[r]++;
    if (m->ndone[r] < op->await)
        return false;
    if (op->kind == TIARA_OP_RECV)
        begin_async(m, (struct proof_async){false, op->peer, r, m->nissued[r]++, op->dst});
    else if (op->kind == TIARA_OP_SEND)
        begin_async(m, (struct proof_async){true, r, op->peer, m->nissued[r]++, src[0]});
    else
        compute(m, op, src);
    return true;
}

void proof_run_step(struct proof_machine *m, int step)
{
    int nranks = m->proof->layout.nranks;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int r = 0; r < nranks; r++) {
            const struct tiara_plan *plan = m->proof->views[r];

            while (m->cursor[r] < plan->nops && plan->ops[m->cursor[r]].step == step &&
                   step_op(m, plan, &plan->ops[m->cursor[r]])) {
                m->cursor[r]++;
                moved = true;
            }
        }
    }
    ck_assert_msg(
        m->nopen == 0, "%s: step %d leaves sends or receives alone", m->proof->name, step);
}

/* What the fold from the left over all ranks gives for block @b; ALLGATHER: the owner's block. */
static uint64_t left_fold(const struct proof *proof, proof_op op, int b)
{
    uint64_t acc = tiara_test_bits(0, (size_t)b);

    if (proof->opts.coll == TIARA_COLL_ALLGATHER)
        return tiara_test_bits(b, (size_t)b);
    for (int r = 1; r < proof->layout.nranks; r++)
        acc = op(acc, tiara_test_bits(r, (size_t)b));
    return acc;
}

static void compare(const struct proof_machine *m, bool to_left_fold)
{
    const struct proof *proof = m->proof;
    bool own_only = proof->opts.coll == TIARA_COLL_REDUCE_SCATTER;

    for (int b = 0; b < m->nblocks; b++) {
        uint64_t expected = m->mem[TIARA_BUF_OUT][b];

        if (to_left_fold)
            expected = left_fold(proof, m->op, b);
        for (int r = own_only ? b : 0; r < (own_only ? b + 1 : proof->layout.nranks); r++) {
            uint64_t got = m->mem[r * TIARA_NBUF + TIARA_BUF_OUT][b];

            /* No assertion here: Check writes down every one that holds. */
            if (got != expected && (to_left_fold || !own_only))
                ck_abort_msg("%s: rank %d has a wrong block %d", proof->name, r, b);
        }
    }
}

void proof_machine_init(
    struct proof_machine *m, const struct proof *proof, proof_op op, bool in_place)
{
    int nranks = proof->layout.nranks, nblocks = proof->plans[0].nblocks;

    *m = (struct proof_machine){.proof = proof, .op = op, .nblocks = nblocks};
    m->mem = calloc((size_t)nranks * TIARA_NBUF, sizeof(*m->mem));
    m->cursor = calloc((size_t)nranks, sizeof(*m->cursor));
    m->nissued = calloc((size_t)nranks, sizeof(*m->nissued));
    m->ndone = calloc((size_t)nranks, sizeof(*m->ndone));
    m->is_done = calloc((size_t)nranks, sizeof(*m->is_done));
    for (int r = 0; r < nranks; r++) {
        uint64_t **mem = m->mem + (size_t)r * TIARA_NBUF;

        m->is_done[r] = calloc((size_t)proof->plans[r].nasync + 1, sizeof(**m->is_done));
        for (int i = 0; i < TIARA_NBUF; i++) {
            int size = i == TIARA_BUF_TMP ? proof->plans[r].tmp_blocks : nblocks;

            mem[i] = calloc((size_t)size + 1, sizeof(**mem));
        }
        for (int b = 0; b < nblocks; b++) {
            if (proof->opts.coll != TIARA_COLL_ALLGATHER || b == r)
                mem[TIARA_BUF_IN][b] = tiara_test_bits(r, (size_t)b);
        }
        if (in_place) {
            free(mem[TIARA_BUF_OUT]);
            mem[TIARA_BUF_OUT] = mem[TIARA_BUF_IN];
        }
    }
}

void proof_machine_fini(struct proof_machine *m, bool in_place)
{
    for (int i = 0; i < m->proof->layout.nranks * TIARA_NBUF; i++) {
        if (!in_place || i % TIARA_NBUF != TIARA_BUF_OUT)
            free(m->mem[i]);
    }
    for (int r = 0; r < m->proof->layout.nranks; r++)
        free(m->is_done[r]);
    free(m->mem);
    free(m->cursor);
    free(m->nissued);
    free(m->ndone);
    free(m->is_done);
    free(m->open);
}

/*
 * Runs the plans with numbers. All ranks must end with equal results, and with those of the left
 * fold when @to_left_fold.
 */
static void run_with_numbers(
    const struct proof *proof, proof_op op, bool in_place, bool to_left_fold)
{
    struct proof_machine m;

    proof_machine_init(&m, proof, op, in_place);
    for (int step = 1; step <= proof->plans[0].nsteps; step++)
        proof_run_step(&m, step);
    for (int r = 0; r < proof->layout.nranks; r++)
        ck_assert_msg(m.cursor[r] == proof->plans[r].nops, "%s: rank %d is stuck", proof->name, r);
    compare(&m, to_left_fold);
    proof_machine_fini(&m, in_place);
}

/* ---- one case ---- */

void proof_all(const struct proof *proof, bool is_ordered, bool is_left_fold,
    struct tiara_plan_report *report_out)
{
    for (int in_place = 1; in_place >= 0; in_place--) {
        enum tiara_err err = tiara_plan_check(proof->views, &proof->layout, in_place, report_out);

        ck_assert_msg(err == TIARA_OK, "%s%s: %s", proof->name, in_place ? ", in place" : "",
            report_out->text);
        ck_assert_msg(report_out->ordered || !is_ordered, "%s: is not in rank order", proof->name);
        run_with_numbers(proof, op_sum, in_place, true);
        run_with_numbers(proof, proof_op_tree, in_place, is_left_fold);
        if (is_ordered)
            run_with_numbers(proof, op_affine, in_place, true);
    }
}

int proof_net_steps(const struct proof *proof)
{
    bool *is_busy = calloc((size_t)proof->plans[0].nsteps + 1, sizeof(*is_busy));
    int n = 0;

    for (int r = 0; r < proof->layout.nranks; r++) {
        for (int i = 0; i < proof->plans[r].nops; i++) {
            const struct tiara_op *op = &proof->plans[r].ops[i];

            if (op->kind == TIARA_OP_SEND && !is_busy[op->step]) {
                is_busy[op->step] = true;
                n++;
            }
        }
    }
    free(is_busy);
    return n;
}
