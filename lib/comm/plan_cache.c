/*
 * The plans of a communicator: made when first needed, kept until it is freed.
 *
 * A plan depends on the algorithm and its options, never on the size of a call, so that a
 * communicator has a handful. Making one ends with an agreement: a rank without memory says so
 * before anybody waits for it.
 */
#include "comm/plan_cache.h"
#include "base/alloc.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/net.h"
#include <string.h>

struct tiara_cached_plan {
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
    enum tiara_plan_use use;
    /* Agreed: a rank could not prepare it. Kept, as others' GPUs may know it by its address. */
    bool unfit;
    struct tiara_plan plan;
    struct tiara_cached_plan *next;
};

static struct tiara_cached_plan *find(
    const struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use)
{
    /* Between nodes there are no options. */
    for (struct tiara_cached_plan *p = c->plans; p; p = p->next)
        if (p->algo == choice->algo && p->use == use &&
            (use == TIARA_PLAN_BETWEEN || tiara_algo_opts_same(p->algo, &p->opts, &choice->opts)))
            return p;
    return NULL;
}

bool tiara_plan_is_cached(
    const struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use)
{
    return find(c, choice, use) != NULL;
}

/* The plans of the ranks of one's own node, from which the waits follow. */
static enum tiara_err depend_on_node(
    const struct tiara_comm *c, const struct tiara_tune_choice *choice, struct tiara_plan *plan)
{
    const struct tiara_layout *l = &c->layout;
    int node = l->node_of[c->rank], n = tiara_layout_local_size(l, node);
    struct tiara_plan *peers = tiara_alloc((size_t)n, sizeof(*peers));
    const struct tiara_plan **list = tiara_alloc((size_t)n, sizeof(*list));
    enum tiara_err err = peers && list ? TIARA_OK : TIARA_ERR_NOMEM;

    for (int i = 0; i < n && err == TIARA_OK; i++) {
        list[i] = &peers[i];
        err = tiara_algo_generate(
            choice->algo, l, tiara_layout_rank(l, node, i), &choice->opts, &peers[i]);
    }
    if (err == TIARA_OK)
        err = tiara_plan_depend(plan, list, n);
    for (int i = 0; peers && i < n; i++)
        tiara_plan_fini(&peers[i]);
    tiara_free(list);
    tiara_free(peers);
    return err;
}

static enum tiara_err build(struct tiara_comm *c, const struct tiara_tune_choice *choice,
    enum tiara_plan_use use, struct tiara_plan *plan)
{
    bool between = use == TIARA_PLAN_BETWEEN;
    const struct tiara_layout *l = between ? &c->nodes_layout : &c->layout;
    int rank = between ? c->layout.node_of[c->rank] : c->rank;
    bool flat = choice->algo->flags & TIARA_ALGO_FLAT;
    enum tiara_err err;

    err = tiara_algo_generate(choice->algo, l, rank, &choice->opts, plan);
    if (err == TIARA_OK)
        err = flat ? tiara_plan_depend(plan, NULL, 0) : depend_on_node(c, choice, plan);
    if (err == TIARA_OK)
        err = tiara_plan_resolve(plan);
    return err;
}

/* Scratch memory for the largest chunks that calls with this plan usually have. */
static enum tiara_err reserve(struct tiara_comm *c, const struct tiara_tune_choice *choice,
    enum tiara_plan_use use, const struct tiara_plan *plan)
{
    const size_t most[] = {[TIARA_PLAN_HOST] = c->facts.cell_bytes,
        [TIARA_PLAN_BETWEEN] = c->facts.small_max,
        [TIARA_PLAN_DEVICE] = c->device.facts.cell_bytes};
    size_t blocks = plan->coll == TIARA_COLL_ALLREDUCE ? 1 : (size_t)plan->nblocks;
    bool between = use == TIARA_PLAN_BETWEEN;
    struct tiara_exec_call call = {.plan = plan,
        .count = most[use] / (between ? 1 : blocks),
        .elem_size = 1,
        .slots = between ? 1 : choice->slots};

    if (use == TIARA_PLAN_DEVICE)
        return tiara_device()->node->prepare(c->device.node, &c->exec, &call);
    return tiara_exec_reserve(between ? &c->between : &c->exec, &call);
}

static void plan_free(struct tiara_cached_plan *p)
{
    if (p)
        tiara_plan_fini(&p->plan);
    tiara_free(p);
}

/* A new one, made and prepared by this rank; with an error, when it exists. NULL: no memory. What
 * is collective comes first, whatever this rank meets later. */
static struct tiara_cached_plan *make(struct tiara_comm *c, const struct tiara_tune_choice *choice,
    enum tiara_plan_use use, enum tiara_err *err_out)
{
    bool needs_net = choice->algo->flags & TIARA_ALGO_FLAT && !c->net_obj;
    enum tiara_err err = needs_net ? tiara_net_open(c) : TIARA_OK;
    struct tiara_cached_plan *p = tiara_alloc(1, sizeof(*p));

    *err_out = p ? err : TIARA_ERR_NOMEM;
    if (!p)
        return NULL;
    p->algo = choice->algo;
    p->opts = choice->opts;
    p->use = use;
    if (*err_out == TIARA_OK)
        *err_out = build(c, choice, use, &p->plan);
    if (*err_out == TIARA_OK)
        *err_out = reserve(c, choice, use, &p->plan);
    return p;
}

static void keep(struct tiara_comm *c, struct tiara_cached_plan *p)
{
    p->next = c->plans;
    c->plans = p;
}

enum tiara_err tiara_plan_get(struct tiara_comm *c, const struct tiara_tune_choice *choice,
    enum tiara_plan_use use, const struct tiara_plan **plan_out)
{
    struct tiara_cached_plan *p = find(c, choice, use);
    enum tiara_err err;

    if (p) {
        *plan_out = &p->plan;
        return p->unfit ? TIARA_ERR_UNSUPPORTED : TIARA_OK;
    }
    p = make(c, choice, use, &err);
    err = tiara_agree_ready(c, err == TIARA_OK);
    if (err == TIARA_ERR_UNSUPPORTED && use != TIARA_PLAN_DEVICE)
        tiara_state_fall_back(c, "a rank could not prepare a plan");
    if (!p || (err != TIARA_OK && use != TIARA_PLAN_DEVICE)) {
        plan_free(p);
        return err;
    }
    p->unfit = err != TIARA_OK;
    keep(c, p);
    *plan_out = &p->plan;
    return err;
}

enum tiara_err tiara_plan_prepare(
    struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use)
{
    struct tiara_cached_plan *p;
    enum tiara_err err;

    if (find(c, choice, use))
        return TIARA_OK;
    p = make(c, choice, use, &err);
    if (err == TIARA_OK)
        keep(c, p);
    else
        plan_free(p);
    return err;
}

enum tiara_err tiara_plan_prepare_usual(struct tiara_comm *c)
{
    static const size_t bytes[] = {8, 16384, 65536, 1 << 20, 16 << 20};
    enum tiara_err err = TIARA_OK;

    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]) && err == TIARA_OK; i++) {
        struct tiara_tune_call call = {
            .coll = TIARA_COLL_ALLREDUCE, .count = bytes[i], .elem_size = 1, .commutative = true};
        struct tiara_tune_choice choice;

        tiara_tune_choose(&c->facts, &call, &choice);
        if (choice.path == TIARA_PATH_PLAN)
            err = tiara_plan_prepare(c, &choice, TIARA_PLAN_HOST);
        if (choice.path == TIARA_PATH_ONESHOT && c->layout.nnodes > 1) {
            struct tiara_tune_choice inter = {.algo = choice.opts.inter};

            err = tiara_plan_prepare(c, &inter, TIARA_PLAN_BETWEEN);
        }
    }
    return err;
}

void tiara_plan_free_all(struct tiara_comm *c)
{
    while (c->plans) {
        struct tiara_cached_plan *p = c->plans;

        c->plans = p->next;
        plan_free(p);
    }
}
