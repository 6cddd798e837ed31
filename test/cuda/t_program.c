/*
 * Programs: plans cut into launches and messages. All ranks of a call are run here by what the
 * tables say, with no data, in random order: hosts that take their actions, streams that run
 * launches behind them, and messages that are complete at any time after both ends have started.
 * Whatever the order: no op runs before what its plan says that it waits for, no step is told too
 * early, and nothing is stuck. What the plan says is read from the plan, and not from the tables.
 */
#include "algo/algo.h"
#include "base/alloc.h"
#include "gpu/node.h"
#include "test/harness/test.h"
#include "test/plan/plan_set.h"

#include <stdio.h>
#include <string.h>

/* ---- the world ---- */

/* A rank: its host, and its stream, which is always behind. */
struct actor {
    const struct tiara_plan *plan;
    struct tiara_gpu_tables tables;
    int node_index[PLAN_SET_MAX];
    int host; /* next action */
    bool greeted; /* the first launch, which says what the call is, has begun */
    bool met; /* and has seen the same of all peers, as it does before anything else */
    int stream; /* next action that the stream runs: all before it are over */
    int op; /* next op of the launch that runs; -1: it has not begun */
    bool ended; /* LAST has told its step */
    int progress; /* told to peers */
    bool *done; /* [nops] executed, or started */
    int *async; /* [nasync] op of each message, in order of start */
    bool *complete; /* [nasync] */
    int started, ncomplete; /* ncomplete: in order */
};

struct world {
    struct plan_set set;
    struct actor actors[PLAN_SET_MAX];
    struct tiara_test_random random;
    const char *what;
    bool synchronous; /* a send is complete only when it is received */
};

static bool is_message(const struct tiara_op *op)
{
    return op->kind == TIARA_OP_SEND || op->kind == TIARA_OP_RECV;
}

static struct actor *actor_on(struct world *w, const struct actor *a, int index)
{
    const struct tiara_layout *l = &w->set.layout;

    return &w->actors[tiara_layout_rank(l, l->node_of[a->plan->rank], index)];
}

static bool waits_hold(struct world *w, const struct actor *a, int wait, int nwait)
{
    for (int i = wait; i < wait + nwait; i++) {
        const struct tiara_kernel_wait *k = &a->tables.waits[i];

        if (actor_on(w, a, k->peer)->progress < k->step)
            return false;
    }
    return true;
}

/* ---- what the plan demands ---- */

static void assert_may_start(struct world *w, struct actor *a, int i)
{
    const struct tiara_op *op = &a->plan->ops[i];

    ck_assert_msg(a->ncomplete >= op->await, "%s: rank %d, op %d does not await message %d",
        w->what, a->plan->rank, i, op->await - 1);
    for (int k = op->wait; k < op->wait + op->nwait; k++) {
        const struct tiara_plan_wait *p = &a->plan->waits[k];

        ck_assert_msg(w->actors[p->peer].progress >= p->step,
            "%s: rank %d, op %d does not wait for step %d of rank %d", w->what, a->plan->rank, i,
            p->step, p->peer);
    }
    ck_assert_msg(!a->done[i], "%s: rank %d, op %d twice", w->what, a->plan->rank, i);
    a->done[i] = true;
}

static bool touches(const struct tiara_slice *a, const struct tiara_slice *b)
{
    bool io = a->buf <= TIARA_BUF_OUT && b->buf <= TIARA_BUF_OUT;

    return a->owner == b->owner && (a->buf == b->buf || io) && a->first < b->first + b->count &&
           b->first < a->first + a->count;
}

/* A message may overtake only ops that have nothing to do with its memory. */
static void assert_overtakes_well(struct world *w, const struct actor *a, int at)
{
    const struct tiara_op *m = &a->plan->ops[at];
    const struct tiara_slice *held = m->kind == TIARA_OP_SEND ? &a->plan->srcs[m->src] : &m->dst;

    for (int i = 0; i < at; i++) {
        const struct tiara_op *op = &a->plan->ops[i];

        if (a->done[i] || is_message(op))
            continue;
        ck_assert_msg(m->kind == TIARA_OP_RECV && !touches(&op->dst, held),
            "%s: rank %d, message %d overtakes op %d", w->what, a->plan->rank, at, i);
        for (int k = op->src; k < op->src + op->nsrc; k++)
            ck_assert_msg(!touches(&a->plan->srcs[k], held),
                "%s: rank %d, message %d overtakes op %d", w->what, a->plan->rank, at, i);
    }
}

/* Step @post is told: all its ops have run, and the messages that this tells of are complete. */
static void tell(struct world *w, struct actor *a, int post)
{
    for (int i = 0; i < a->plan->nops; i++) {
        const struct tiara_op *op = &a->plan->ops[i];

        ck_assert_msg(op->step > post || a->done[i], "%s: rank %d tells step %d before op %d",
            w->what, a->plan->rank, post, i);
        if (op->post == post)
            ck_assert_msg(a->ncomplete >= op->post_await,
                "%s: rank %d tells step %d before message %d", w->what, a->plan->rank, post,
                op->post_await - 1);
    }
    ck_assert_int_ge(post, a->progress);
    a->progress = post;
}

/* ---- moves ---- */

/* The host takes its next action, when it can. */
static bool move_host(struct world *w, struct actor *a)
{
    const struct tiara_gpu_action *x = &a->tables.actions[a->host];

    if (a->host == a->tables.nactions || a->ncomplete < x->await ||
        (x->idle && a->stream < a->host))
        return false;
    if (x->kind == TIARA_GPU_MESSAGE) {
        assert_may_start(w, a, x->first_op);
        assert_overtakes_well(w, a, x->first_op);
        ck_assert_msg(a->started - a->ncomplete < a->tables.window,
            "%s: rank %d needs more bounce buffers", w->what, a->plan->rank);
        a->async[a->started++] = x->first_op;
    }
    a->host++;
    return true;
}

static bool are_all_at_end(struct world *w, const struct actor *a)
{
    const struct tiara_layout *l = &w->set.layout;
    int node = l->node_of[a->plan->rank];

    for (int i = 0; i < tiara_layout_local_size(l, node); i++)
        if (actor_on(w, a, i)->progress < a->plan->nsteps)
            return false;
    return true;
}

/* The first launch of a call compares the calls of all ranks of the node. */
static bool has_met(struct world *w, struct actor *a)
{
    const struct tiara_layout *l = &w->set.layout;

    a->greeted = true;
    for (int i = 0; i < tiara_layout_local_size(l, l->node_of[a->plan->rank]) && !a->met; i++)
        if (!actor_on(w, a, i)->greeted)
            return false;
    a->met = true;
    return true;
}

/* What a launch does behind its ops. True when it did something; it may be over then. */
static bool move_tail(struct world *w, struct actor *a, const struct tiara_gpu_action *x)
{
    if (!waits_hold(w, a, x->tail_wait, x->tail_nwait))
        return false;
    if (x->last && !a->ended) {
        for (int k = a->plan->exit_wait; k < a->plan->exit_wait + a->plan->exit_nwait; k++)
            ck_assert_msg(w->actors[a->plan->waits[k].peer].progress >= a->plan->waits[k].step,
                "%s: rank %d does not wait at its end", w->what, a->plan->rank);
        tell(w, a, a->plan->nsteps);
        a->ended = true;
        return true;
    }
    if (x->last && !are_all_at_end(w, a))
        return false;
    a->stream++;
    a->op = -1;
    return true;
}

/* The stream goes on by an op, when it can. */
static bool move_stream(struct world *w, struct actor *a)
{
    const struct tiara_gpu_action *x = &a->tables.actions[a->stream];
    const struct tiara_kernel_op *op;

    if (a->stream == a->host)
        return false;
    if (x->kind == TIARA_GPU_MESSAGE) {
        a->stream++;
        return true;
    }
    if (!a->greeted) {
        (void)has_met(w, a);
        return true;
    }
    if (!has_met(w, a))
        return false;
    if (a->op < 0) {
        if (x->head_post > 0)
            tell(w, a, x->head_post);
        a->op = x->first_op;
        return true;
    }
    if (a->op == x->end_op)
        return move_tail(w, a, x);
    op = &a->tables.ops[a->op];
    if (!waits_hold(w, a, op->wait, op->nwait))
        return false;
    assert_may_start(w, a, a->op);
    if (op->post > 0)
        tell(w, a, op->post);
    a->op++;
    return true;
}

/* The message of @a that matches number @k of @b, or -1 when it has not been started. */
static int match(const struct actor *b, int k, const struct actor *a)
{
    const struct tiara_op *op = &b->plan->ops[b->async[k]];
    enum tiara_op_kind other = op->kind == TIARA_OP_SEND ? TIARA_OP_RECV : TIARA_OP_SEND;
    int nth = 0;

    for (int i = 0; i < k; i++) {
        const struct tiara_op *before = &b->plan->ops[b->async[i]];
        nth += before->kind == op->kind && before->peer == op->peer;
    }
    for (int i = 0; i < a->started; i++) {
        const struct tiara_op *m = &a->plan->ops[a->async[i]];
        if (m->kind == other && m->peer == b->plan->rank && nth-- == 0)
            return i;
    }
    return -1;
}

/* Some message of @a becomes complete, when its other end has been started. */
static bool move_message(struct world *w, struct actor *a)
{
    for (int k = 0; k < a->started; k++) {
        const struct tiara_op *op = &a->plan->ops[a->async[k]];
        bool may = op->kind == TIARA_OP_SEND && !w->synchronous;

        if (a->complete[k] || (!may && match(a, k, &w->actors[op->peer]) < 0))
            continue;
        a->complete[k] = true;
        while (a->ncomplete < a->started && a->complete[a->ncomplete])
            a->ncomplete++;
        return true;
    }
    return false;
}

/* ---- runs ---- */

static bool move_any(struct world *w)
{
    int n = 3 * w->set.layout.nranks;
    int first = (int)tiara_test_random_below(&w->random, (uint64_t)n);

    for (int i = 0; i < n; i++) {
        struct actor *a = &w->actors[(first + i) % n / 3];
        int what = (first + i) % 3;
        bool moved = what == 0   ? move_host(w, a)
                     : what == 1 ? move_stream(w, a)
                                 : move_message(w, a);
        if (moved)
            return true;
    }
    return false;
}

static void actor_init(struct world *w, int rank)
{
    const struct tiara_layout *l = &w->set.layout;
    struct actor *a = &w->actors[rank];
    bool reached[TIARA_KERNEL_PEERS];

    memset(a, 0, sizeof(*a));
    a->plan = &w->set.plans[rank];
    for (int r = 0; r < l->nranks; r++)
        a->node_index[r] = l->node_of[r] == l->node_of[rank] ? l->local_of[r] : -1;
    for (int i = 0; i < TIARA_KERNEL_PEERS; i++)
        reached[i] = true;
    ck_assert_int_eq(tiara_gpu_tables_init(&a->tables, a->plan, a->node_index, reached), TIARA_OK);
    a->op = -1;
    a->done = tiara_alloc((size_t)a->plan->nops, sizeof(bool));
    a->async = tiara_alloc((size_t)a->plan->nasync, sizeof(int));
    a->complete = tiara_alloc((size_t)a->plan->nasync, sizeof(bool));
    ck_assert(a->done && a->async && a->complete);
}

static void actor_fini(struct actor *a)
{
    tiara_free(a->complete);
    tiara_free(a->async);
    tiara_free(a->done);
    tiara_gpu_tables_fini(&a->tables);
}

static void run(struct world *w)
{
    int nranks = w->set.layout.nranks;

    for (int r = 0; r < nranks; r++)
        actor_init(w, r);
    while (move_any(w))
        ;
    for (int r = 0; r < nranks; r++) {
        const struct actor *a = &w->actors[r];

        ck_assert_msg(a->stream == a->tables.nactions && a->ncomplete == a->plan->nasync,
            "%s: rank %d is stuck at action %d of %d", w->what, r, a->stream, a->tables.nactions);
        for (int i = 0; i < a->plan->nops; i++)
            ck_assert_msg(a->done[i], "%s: rank %d, op %d was left out", w->what, r, i);
    }
    for (int r = 0; r < nranks; r++)
        actor_fini(&w->actors[r]);
}

/* Builds the plans; false when the algorithm is not for this layout. */
static bool build(struct world *w, const char *layout, const struct tiara_algo *algo,
    const struct tiara_algo_opts *opts)
{
    enum tiara_err err = TIARA_OK;

    plan_set_init(&w->set, layout);
    for (int r = 0; r < w->set.layout.nranks && err == TIARA_OK; r++)
        err = tiara_algo_generate(algo, &w->set.layout, r, opts, &w->set.plans[r]);
    if (err != TIARA_OK) {
        ck_assert_int_eq(err, TIARA_ERR_UNSUPPORTED);
        plan_set_fini(&w->set);
        return false;
    }
    if (!(algo->flags & TIARA_ALGO_FLAT))
        ck_assert_int_eq(plan_set_depend(&w->set), TIARA_OK);
    for (int r = 0; r < w->set.layout.nranks; r++) {
        if (algo->flags & TIARA_ALGO_FLAT)
            ck_assert_int_eq(tiara_plan_depend(&w->set.plans[r], NULL, 0), TIARA_OK);
        ck_assert_int_eq(tiara_plan_resolve(&w->set.plans[r]), TIARA_OK);
    }
    return true;
}

static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x4", "2x1", "3x1", "4x1", "5x1", "2x2",
    "3+1", "2x2:rr", "1+2+3", "4x2", "2x4", "3x3", "4x4"};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static int runs;

static void run_orders(struct world *w, const char *layout, const struct tiara_algo *algo,
    const struct tiara_algo_opts *opts)
{
    char what[160];

    if (!build(w, layout, algo, opts))
        return;
    snprintf(what, sizeof(what), "%s on %s, coll %d, leaders %d, between nodes %s%s%s%s",
        algo->name, layout, (int)opts->coll, opts->leaders, opts->inter ? opts->inter->name : "-",
        opts->one_shot ? ", one-shot" : "", opts->single_copy ? ", single copy" : "",
        opts->node_ring ? ", node ring" : "");
    w->what = what;
    for (int i = 0; i < 6; i++) {
        w->synchronous = i % 2 == 0;
        run(w);
        runs++;
    }
    plan_set_fini(&w->set);
}

static void run_variants(struct world *w, const char *layout, const struct tiara_algo *algo)
{
    for (int coll = TIARA_COLL_ALLREDUCE; coll <= TIARA_COLL_ALLGATHER; coll++) {
        struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll};

        run_orders(w, layout, algo, &opts);
        opts.one_shot = true;
        run_orders(w, layout, algo, &opts);
        opts.one_shot = false;
        opts.single_copy = true;
        run_orders(w, layout, algo, &opts);
        opts.single_copy = false;
        opts.node_ring = true;
        run_orders(w, layout, algo, &opts);
        opts.node_ring = false;
        for (int i = 0; algo->flags & TIARA_ALGO_HIER && tiara_algo_table[i]; i++) {
            if (!(tiara_algo_table[i]->flags & TIARA_ALGO_FLAT))
                continue;
            opts.inter = tiara_algo_table[i];
            for (opts.leaders = 0; opts.leaders < 3; opts.leaders++)
                run_orders(w, layout, algo, &opts);
        }
    }
}

START_TEST(test_program_any_order_keeps_the_plan)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];
    struct world w = {.random = {tiara_test_seed()}};

    runs = 0;
    for (size_t l = 0; l < NLAYOUTS; l++) {
        struct tiara_layout layout;

        ck_assert_int_eq(tiara_layout_parse(&layout, layouts[l], 0, NULL, 0), TIARA_OK);
        if (!(algo->flags & TIARA_ALGO_NODE) || layout.nnodes == 1)
            run_variants(&w, layouts[l], algo);
        tiara_layout_fini(&layout);
    }
    ck_assert_int_gt(runs, 50);
}
END_TEST

/* Layout "2x2": ranks 0 and 1 receive into cells, and fill the rest of them with what awaits no
 * message. Peers read all of it. */
static enum tiara_err build_noticed(struct tiara_plan *p, int r)
{
    int twin = (r + 2) % 4, other = r ^ 1;

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 4, 2);
    if (r < 2) {
        tiara_plan_recv(p, 1, twin, tiara_slice(r, TIARA_BUF_CELL, 0, 1));
        tiara_plan_copy(
            p, 2, tiara_slice(r, TIARA_BUF_CELL, 1, 1), tiara_slice(r, TIARA_BUF_IN, 1, 1));
        tiara_plan_copy(
            p, 3, tiara_slice(r, TIARA_BUF_OUT, 0, 2), tiara_slice(other, TIARA_BUF_CELL, 0, 2));
        tiara_plan_send(p, 4, twin, tiara_slice(r, TIARA_BUF_OUT, 0, 1));
    } else {
        tiara_plan_send(p, 1, twin, tiara_slice(r, TIARA_BUF_IN, 0, 1));
        tiara_plan_recv(p, 4, twin, tiara_slice(r, TIARA_BUF_OUT, 0, 1));
    }
    return tiara_plan_finish(p, 4);
}

START_TEST(test_program_told_only_with_message)
{
    static const struct plan_sample sample = {"noticed", "2x2", build_noticed};
    struct world w = {.what = "noticed", .random = {tiara_test_seed()}};

    plan_set_sample(&w.set, &sample);
    ck_assert_int_eq(plan_set_depend(&w.set), TIARA_OK);
    for (int i = 0; i < 20; i++) {
        w.synchronous = i % 2 == 0;
        run(&w);
    }
    plan_set_fini(&w.set);
}
END_TEST

START_TEST(test_program_samples_keep_the_plan)
{
    struct world w = {.random = {tiara_test_seed()}};

    plan_set_sample(&w.set, &plan_samples[_i]);
    ck_assert_int_eq(plan_set_depend(&w.set), TIARA_OK);
    w.what = plan_samples[_i].name;
    for (int i = 0; i < 20; i++) {
        w.synchronous = i % 2 == 0;
        run(&w);
    }
    plan_set_fini(&w.set);
}
END_TEST

/* ---- the shape of programs ---- */

/* hier on two nodes of two: node part, the network's two rounds, and the result. */
START_TEST(test_program_hier_has_three_launches)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct world w = {.what = "hier"};
    int launches = 0;

    ck_assert(build(&w, "2x2", &tiara_algo_hier, &opts));
    actor_init(&w, 0);
    for (int i = 0; i < w.actors[0].tables.nactions; i++)
        launches += w.actors[0].tables.actions[i].kind == TIARA_GPU_LAUNCH;
    ck_assert_int_eq(launches, 3);
    ck_assert(w.actors[0].tables.actions[0].kind == TIARA_GPU_LAUNCH);
    ck_assert_int_eq(w.actors[0].tables.actions[0].end_op, 2);
    actor_fini(&w.actors[0]);
    plan_set_fini(&w.set);
}
END_TEST

START_TEST(test_program_more_than_kernels_take_is_unsupported)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_layout layout;
    struct tiara_gpu_tables tables;
    struct tiara_plan plan;
    int node_index[TIARA_KERNEL_PEERS + 1];
    bool reached[TIARA_KERNEL_PEERS];

    ck_assert_int_eq(tiara_layout_parse(&layout, "1x17", 0, NULL, 0), TIARA_OK);
    ck_assert_int_eq(tiara_algo_generate(&tiara_algo_direct, &layout, 0, &opts, &plan), TIARA_OK);
    ck_assert_int_eq(tiara_plan_resolve(&plan), TIARA_OK);
    for (int i = 0; i < TIARA_KERNEL_PEERS; i++)
        reached[i] = true;
    for (int i = 0; i <= TIARA_KERNEL_PEERS; i++)
        node_index[i] = i;
    ck_assert_int_eq(
        tiara_gpu_tables_init(&tables, &plan, node_index, reached), TIARA_ERR_UNSUPPORTED);
    tiara_gpu_tables_fini(&tables);
    tiara_plan_fini(&plan);
    tiara_layout_fini(&layout);
}
END_TEST

/* A ring of four needs no access across; direct does. */
START_TEST(test_program_peers_out_of_reach)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    static const bool reached[TIARA_KERNEL_PEERS] = {true, true, false, true};
    static const int node_index[4] = {0, 1, 2, 3};
    struct tiara_gpu_tables tables;
    struct world w = {.what = "reach"};

    ck_assert(build(&w, "1x4", &tiara_algo_node_ring, &opts));
    ck_assert_int_eq(
        tiara_gpu_tables_init(&tables, &w.set.plans[0], node_index, reached), TIARA_OK);
    for (int i = 0; i < tables.nwaits; i++)
        ck_assert_int_ne(tables.waits[i].peer, 2);
    tiara_gpu_tables_fini(&tables);
    plan_set_fini(&w.set);
    ck_assert(build(&w, "1x4", &tiara_algo_direct, &opts));
    ck_assert_int_eq(tiara_gpu_tables_init(&tables, &w.set.plans[0], node_index, reached),
        TIARA_ERR_UNSUPPORTED);
    tiara_gpu_tables_fini(&tables);
    plan_set_fini(&w.set);
}
END_TEST

START_TEST(test_program_without_memory_is_an_error)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    static const bool reached[TIARA_KERNEL_PEERS] = {true, true};
    static const int node_index[4] = {0, 1, -1, -1};
    struct tiara_gpu_tables tables;
    struct world w = {.what = "memory"};
    enum tiara_err err = TIARA_ERR_NOMEM;
    uint64_t live, n;

    ck_assert(build(&w, "2x2", &tiara_algo_hier, &opts));
    live = tiara_alloc_live();
    for (n = 1; err != TIARA_OK; n++) {
        tiara_alloc_fail_after(n);
        err = tiara_gpu_tables_init(&tables, &w.set.plans[0], node_index, reached);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        tiara_gpu_tables_fini(&tables);
        ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    ck_assert_uint_gt(n, 2);
    plan_set_fini(&w.set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("program");
    TCase *tcase = tcase_create("program");
    int nalgos = 0;

    while (tiara_algo_table[nalgos])
        nalgos++;
    tcase_add_loop_test(tcase, test_program_any_order_keeps_the_plan, 0, nalgos);
    tcase_add_loop_test(tcase, test_program_samples_keep_the_plan, 0, (int)PLAN_NSAMPLES);
    tcase_add_test(tcase, test_program_told_only_with_message);
    tcase_add_test(tcase, test_program_hier_has_three_launches);
    tcase_add_test(tcase, test_program_more_than_kernels_take_is_unsupported);
    tcase_add_test(tcase, test_program_peers_out_of_reach);
    tcase_add_test(tcase, test_program_without_memory_is_an_error);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
