/*
 * Threads as ranks with arena, network and executors: see scene.h.
 */
#include "test/harness/scene.h"
#include "base/alloc.h"
#include "test/harness/staged.h"
#include "test/harness/test.h"
#include "test/harness/threads.h"
#include "test/harness/xport_inproc.h"
#include <stdio.h>
#include <string.h>

struct scene {
    struct tiara_layout layout;
    struct tiara_exchange **nodes; /* [nnodes] */
    size_t cell_bytes;
    tiara_play_fn play;
    void *arg;
};

/* ---- plans ---- */

enum tiara_err tiara_scene_plan(const struct tiara_layout *l, int rank,
    const struct tiara_algo *algo, const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    int node = l->node_of[rank], n = tiara_layout_local_size(l, node);
    struct tiara_plan *peers = tiara_alloc((size_t)n, sizeof(*peers));
    const struct tiara_plan **list = tiara_alloc((size_t)n, sizeof(*list));
    enum tiara_err err = peers && list ? TIARA_OK : TIARA_ERR_NOMEM;

    memset(plan_out, 0, sizeof(*plan_out));
    for (int i = 0; i < n && err == TIARA_OK; i++) {
        list[i] = &peers[i];
        err = tiara_algo_generate(algo, l, tiara_layout_rank(l, node, i), opts, &peers[i]);
    }
    if (err == TIARA_OK)
        err = tiara_algo_generate(algo, l, rank, opts, plan_out);
    if (err == TIARA_OK)
        err = tiara_plan_depend(plan_out, list, algo->flags & TIARA_ALGO_FLAT ? 0 : n);
    if (err == TIARA_OK)
        err = tiara_plan_resolve(plan_out);
    for (int i = 0; peers && i < n; i++)
        tiara_plan_fini(&peers[i]);
    tiara_free(list);
    tiara_free(peers);
    return err;
}

enum tiara_err tiara_scene_plan_between(const struct tiara_layout *l, int rank,
    const struct tiara_algo *algo, struct tiara_plan *plan_out)
{
    /* Flat algorithms look at the number of ranks only. */
    const struct tiara_layout nodes = {.nranks = l->nnodes};
    const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    enum tiara_err err = tiara_algo_generate(algo, &nodes, l->node_of[rank], &opts, plan_out);

    if (err == TIARA_OK)
        err = tiara_plan_depend(plan_out, NULL, 0);
    if (err == TIARA_OK)
        err = tiara_plan_resolve(plan_out);
    return err;
}

/* ---- calls ---- */

struct poll {
    struct tiara_run *run;
    bool over;
    enum tiara_err err;
};

static bool has_moved(void *arg, struct tiara_wait_on *on)
{
    struct poll *p = arg;
    bool moved;

    p->over = tiara_exec_poll(p->run, on, &moved, &p->err);
    return p->over || moved;
}

/* Runs @call to its end. */
static enum tiara_err run_plan(struct tiara_exec *x, const struct tiara_exec_call *call)
{
    struct poll poll = {.run = tiara_exec_run_new()};
    enum tiara_err err;

    if (!poll.run)
        return TIARA_ERR_NOMEM;
    err = tiara_exec_open(poll.run, x, call);
    while (err == TIARA_OK && !poll.over)
        err = tiara_wait(x->wait, has_moved, &poll);
    err = tiara_exec_close(poll.run, tiara_err_first(err, poll.err));
    tiara_free(poll.run);
    return err;
}

/* The part between nodes, of a node's first rank. */
static enum tiara_err call_between(
    struct tiara_actor *a, const struct tiara_act *act, const struct tiara_small_call *small)
{
    struct tiara_exec_call call = {.plan = act->between,
        .op = a->op,
        .in = small->out,
        .out = small->out,
        .count = small->count,
        .elem_size = sizeof(int64_t),
        .slots = 1,
        .digest = act->digest};

    return run_plan(&a->between, &call);
}

struct part {
    struct tiara_actor *actor;
    const struct tiara_small_call *small;
    int peer;
    enum tiara_err err;
};

static bool is_folded(void *arg, struct tiara_wait_on *on)
{
    struct part *p = arg;

    return tiara_small_poll(&p->actor->arena, p->small, &p->peer, on, &p->err);
}

static bool is_taken(void *arg, struct tiara_wait_on *on)
{
    struct part *p = arg;

    return tiara_small_take_result(&p->actor->arena, p->small, on, &p->err);
}

/* On several nodes: the first rank of each speaks for it. */
static enum tiara_err call_hier(
    struct tiara_actor *a, const struct tiara_act *act, const struct tiara_small_call *small)
{
    struct part part = {.actor = a, .small = small};
    bool leads = a->arena.index == 0;
    enum tiara_err err;

    if (leads)
        tiara_small_keep(&a->arena, small);
    else
        tiara_small_publish(&a->arena, small);
    err = tiara_wait(&a->arena.wait, leads ? is_folded : is_taken, &part);
    err = tiara_err_first(err, part.err);
    if (err != TIARA_OK || !leads)
        return err;
    err = call_between(a, act, small);
    if (err == TIARA_OK)
        tiara_small_publish_result(&a->arena, small);
    return err;
}

static enum tiara_err call_small(
    struct tiara_actor *a, const struct tiara_act *act, const int64_t *in, int64_t *out)
{
    struct tiara_small_call small = {.op = a->op,
        .mem = a->mem,
        .in = in,
        .out = out,
        .count = act->count,
        .bytes = act->count * sizeof(int64_t)};

    if (a->layout->nnodes == 1)
        return tiara_small_node(&a->arena, &small);
    return call_hier(a, act, &small);
}

enum tiara_err tiara_actor_call(
    struct tiara_actor *a, const struct tiara_act *act, const int64_t *in, int64_t *out)
{
    struct tiara_exec_call call = {.plan = act->plan,
        .op = act->coll == TIARA_COLL_ALLGATHER ? NULL : a->op,
        .in = in,
        .out = out,
        .count = act->count,
        .elem_size = sizeof(int64_t),
        .chunk_elems = act->chunk_elems,
        .slots = act->slots,
        .digest = act->digest};
    struct tiara_arena_desc desc = {.in_addr = (uintptr_t)in,
        .out_addr = (uintptr_t)out,
        .count = act->count,
        .elem_size = sizeof(int64_t),
        .coll = act->coll,
        .type = TIARA_TYPE_I64,
        .oper = act->coll == TIARA_COLL_ALLGATHER ? -1 : TIARA_OPER_SUM};

    call.stage_in = act->device_in && a->rank % 2 == 0;
    call.stage_out = act->device_out && a->rank % 2 == 0;
    call.in = call.stage_in ? tiara_test_device(in) : in;
    call.out = call.stage_out ? tiara_test_device(out) : out;
    a->arena.call++;
    tiara_arena_begin(&a->arena, act->digest, &desc);
    if (!act->plan)
        return call_small(a, act, in, out);
    tiara_arena_publish(&a->arena);
    return run_plan(&a->exec, &call);
}

/* ---- data ---- */

struct data {
    int64_t *in, *out;
    size_t nin, nout;
    size_t in_skip, out_skip; /* index in the whole vector of in[0] and out[0] */
};

static void data_init(struct data *d, const struct tiara_actor *a, const struct tiara_act *act)
{
    size_t whole = act->count * (act->coll == TIARA_COLL_ALLREDUCE ? 1 : (size_t)a->layout->nranks);
    size_t own = (size_t)a->rank * act->count;
    bool gathers = act->coll == TIARA_COLL_ALLGATHER;
    bool scatters = act->coll == TIARA_COLL_REDUCE_SCATTER;

    *d = (struct data){.nin = gathers && !act->in_place ? act->count : whole,
        .nout = scatters ? act->count : whole,
        .in_skip = gathers && !act->in_place ? own : 0,
        .out_skip = scatters ? own : 0};
    d->out = tiara_alloc(d->nout, sizeof(int64_t));
    d->in = act->in_place ? d->out : tiara_alloc(d->nin, sizeof(int64_t));
}

static void data_fini(struct data *d)
{
    if (d->in != d->out)
        tiara_free(d->in);
    tiara_free(d->out);
}

/* The input depends on rank, index and round; what is no input is of no use to anybody. */
static void data_fill(
    struct data *d, const struct tiara_actor *a, const struct tiara_act *act, int round)
{
    size_t first = 0, end = d->nin;

    memset(d->out, 0x5a, d->nout * sizeof(*d->out));
    if (act->coll == TIARA_COLL_ALLGATHER && act->in_place) {
        first = (size_t)a->rank * act->count;
        end = first + act->count;
    }
    for (size_t i = first; i < end; i++)
        d->in[i] = tiara_test_value(a->rank, d->in_skip + i + (size_t)round);
}

static const char *coll_name(enum tiara_coll coll)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather"};

    return names[coll];
}

static void data_verify(
    const struct data *d, struct tiara_actor *a, const struct tiara_act *act, int round)
{
    for (size_t i = 0; i < d->nout; i++) {
        size_t at = d->out_skip + i + (size_t)round;
        int64_t want = act->coll == TIARA_COLL_ALLGATHER
                           ? tiara_test_value((int)(i / act->count), at)
                           : tiara_test_sum(a->layout->nranks, at);

        if (d->out[i] == want)
            continue;
        if (a->wrong++ == 0)
            fprintf(stderr,
                "%s %s%s, count %zu, chunks of %zu, %d slots, rank %d of %d on %d nodes, round %d: "
                "element %zu is %lld, not %lld\n",
                act->plan ? "plan" : "small", coll_name(act->coll),
                act->in_place ? " in place" : "", act->count, act->chunk_elems, act->slots, a->rank,
                a->layout->nranks, a->layout->nnodes, round, i, (long long)d->out[i],
                (long long)want);
        return;
    }
}

enum tiara_err tiara_actor_perform(struct tiara_actor *a, const struct tiara_act *act, int round)
{
    struct data d;
    enum tiara_err err = TIARA_ERR_NOMEM;

    data_init(&d, a, act);
    if (d.in && d.out) {
        data_fill(&d, a, act, round);
        err = tiara_actor_call(a, act, d.in, d.out);
    }
    if (err == TIARA_OK) {
        data_verify(&d, a, act, round);
    } else {
        fprintf(stderr, "rank %d, round %d: %s\n", a->rank, round, tiara_err_text(err));
        tiara_arena_fail(&a->arena, false);
    }
    data_fini(&d);
    return err;
}

/* ---- the stage ---- */

static enum tiara_err open_arena(struct tiara_actor *a, const struct scene *s)
{
    const struct tiara_layout *l = a->layout;
    int node = l->node_of[a->rank];
    struct tiara_xport_group group = tiara_exchange_group(s->nodes[node], l->local_of[a->rank]);
    enum tiara_err err = tiara_arena_open(&a->arena, &tiara_xport_inproc, &group, s->cell_bytes);

    tiara_wait_policy(&a->arena.wait, l->nranks, 2);
    a->arena.wait.limit_s = TIARA_TEST_PATIENCE_S;
    return err;
}

/* Who is where, for the executors. */
static enum tiara_err make_tables(struct tiara_actor *a)
{
    const struct tiara_layout *l = a->layout;
    int node = l->node_of[a->rank];

    a->node_index = tiara_alloc((size_t)l->nranks, sizeof(int));
    a->leaders = tiara_alloc((size_t)l->nnodes, sizeof(int));
    if (!a->node_index || !a->leaders)
        return TIARA_ERR_NOMEM;
    for (int r = 0; r < l->nranks; r++)
        a->node_index[r] = l->node_of[r] == node ? l->local_of[r] : -1;
    for (int n = 0; n < l->nnodes; n++)
        a->leaders[n] = tiara_layout_rank(l, n, 0);
    return TIARA_OK;
}

static void make_executors(struct tiara_actor *a)
{
    a->op = tiara_redop_find(TIARA_TYPE_I64, TIARA_OPER_SUM, "portable");
    a->mem = &tiara_mem_host;
    a->exec = (struct tiara_exec){.rank = a->rank,
        .nranks = a->layout->nranks,
        .arena = &a->arena,
        .node_index = a->node_index,
        .net = &tiara_xport_inproc,
        .net_obj = a->net,
        .getter = &tiara_xport_inproc,
        .getter_obj = a->arena.xport_obj,
        .stage = &tiara_test_stage,
        .stage_obj = a->stage,
        .mem = &tiara_mem_host,
        .wait = &a->arena.wait,
        .tag_bits = 15};
    a->between = a->exec;
    a->between.rank = a->layout->node_of[a->rank];
    a->between.nranks = a->layout->nnodes;
    a->between.arena = NULL;
    a->between.net_rank = a->leaders;
}

static int enter(int rank, const struct tiara_xport_group *group, void *arg)
{
    const struct scene *s = arg;
    struct tiara_actor a = {.rank = rank, .layout = &s->layout};
    enum tiara_err err;
    int failures = 1;

    a.net = tiara_alloc(1, tiara_xport_inproc.size);
    a.stage = tiara_alloc(1, tiara_test_stage.size);
    err = open_arena(&a, s);
    err = tiara_err_first(err, tiara_xport_inproc.open(a.net, group, 0));
    err = tiara_err_first(err, make_tables(&a));
    if (err == TIARA_OK) {
        make_executors(&a);
        failures = s->play(&a, s->arg);
    }
    tiara_exec_fini(&a.between);
    tiara_exec_fini(&a.exec);
    tiara_xport_inproc.close(a.net);
    tiara_arena_close(&a.arena);
    tiara_free(a.leaders);
    tiara_free(a.node_index);
    tiara_test_stage.close(a.stage);
    tiara_free(a.stage);
    tiara_free(a.net);
    return failures + a.wrong;
}

int tiara_scene_run(const char *layout, size_t cell_bytes, tiara_play_fn play, void *arg)
{
    struct scene s = {.cell_bytes = cell_bytes, .play = play, .arg = arg};
    int failures;

    if (tiara_layout_parse(&s.layout, layout, 0, NULL, 0) != TIARA_OK)
        return 1;
    s.nodes = tiara_alloc((size_t)s.layout.nnodes, sizeof(*s.nodes));
    for (int n = 0; n < s.layout.nnodes; n++)
        s.nodes[n] = tiara_threads_exchange_create(tiara_layout_local_size(&s.layout, n));
    failures = tiara_threads_run(s.layout.nranks, enter, &s);
    for (int n = 0; n < s.layout.nnodes; n++)
        tiara_threads_exchange_destroy(s.nodes[n]);
    tiara_free(s.nodes);
    tiara_layout_fini(&s.layout);
    return failures;
}
