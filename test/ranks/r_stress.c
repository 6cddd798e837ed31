/* tiara-test: timeout 300 */
/*
 * Thousands of mixed calls over one arena: small slots and plans of all kinds in random order, with
 * random sizes, chunks and slots, the same on all ranks.
 *
 * What one call leaves behind in a slot, a cell, a counter or a queue meets the next one. So that
 * ranks overtake each other in ways that a quiet machine does not show, they lose the core at
 * random moments: between calls, and before and after every copy and reduction inside them.
 */
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include "base/alloc.h"
#include <sched.h>
#include <string.h>

#define CELL_BYTES ((size_t)8192)
#define NCALLS 2000 /* per layout; small ones count for several */
#define MAX_PLANS 64

/* ---- losing the core ---- */

/* Each rank's own stream of random numbers: what is delayed differs from rank to rank. */
static _Thread_local struct tiara_test_random shakes;

static void shake(void)
{
    if (tiara_test_random_below(&shakes, 16) == 0)
        for (uint64_t i = tiara_test_random_below(&shakes, 4); i > 0; i--)
            sched_yield();
}

static void shaky_copy(void *dst, const void *src, size_t bytes)
{
    shake();
    memcpy(dst, src, bytes);
    shake();
}

static enum tiara_err shaky_fold(
    const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)
{
    const struct tiara_redop *real = op->ctx;
    enum tiara_err err;

    shake();
    err = real->fold(real, dst, src, nsrc, n);
    shake();
    return err;
}

/* ---- what the ranks can do ---- */

/* What all ranks of a scene know; read-only while they play. */
struct script {
    uint64_t seed;
};

struct repertoire {
    int n;
    struct tiara_plan plans[MAX_PLANS];
    struct tiara_plan between;
};

static enum tiara_err add_plan(struct repertoire *r, const struct tiara_actor *a,
    const struct tiara_algo *algo, struct tiara_algo_opts opts)
{
    if (!(algo->colls & (1u << opts.coll)))
        return TIARA_OK;
    if (r->n == MAX_PLANS)
        return TIARA_ERR_NOSPACE;
    return tiara_scene_plan(a->layout, a->rank, algo, &opts, &r->plans[r->n++]);
}

/* The plans of @algo for one collective, with the options that it has. */
static enum tiara_err add_algo(struct repertoire *r, const struct tiara_actor *a,
    const struct tiara_algo *algo, enum tiara_coll coll)
{
    enum tiara_err err;

    if (algo->flags & TIARA_ALGO_NODE && a->layout->nnodes > 1)
        return TIARA_OK;
    err = add_plan(r, a, algo, (struct tiara_algo_opts){.coll = coll});
    if (err == TIARA_OK && algo->flags & TIARA_ALGO_NODE)
        err = add_plan(r, a, algo, (struct tiara_algo_opts){.coll = coll, .single_copy = true});
    if (err == TIARA_OK && algo->flags & TIARA_ALGO_NODE && coll == TIARA_COLL_ALLREDUCE)
        err = add_plan(r, a, algo, (struct tiara_algo_opts){.coll = coll, .one_shot = true});
    if (err == TIARA_OK && algo->flags & TIARA_ALGO_HIER)
        err = add_plan(r, a, algo,
            (struct tiara_algo_opts){.coll = coll, .leaders = 1, .inter = &tiara_algo_recdbl});
    return err;
}

static enum tiara_err repertoire_init(struct repertoire *r, const struct tiara_actor *a)
{
    enum tiara_err err =
        tiara_scene_plan_between(a->layout, a->rank, &tiara_algo_recdbl, &r->between);

    for (int i = 0; tiara_algo_table[i] != NULL; i++)
        for (int coll = TIARA_COLL_ALLREDUCE; coll <= TIARA_COLL_ALLGATHER; coll++)
            if (err == TIARA_OK)
                err = add_algo(r, a, tiara_algo_table[i], (enum tiara_coll)coll);
    return err;
}

static void repertoire_fini(struct repertoire *r)
{
    for (int i = 0; i < r->n; i++)
        tiara_plan_fini(&r->plans[i]);
    tiara_plan_fini(&r->between);
    tiara_free(r);
}

/* ---- the calls ---- */

/* 1 .. max, as likely below 10 as between 100 and 1000. */
static size_t random_size(struct tiara_test_random *random, size_t max)
{
    size_t limit = 1;

    for (uint64_t i = tiara_test_random_below(random, 11); i > 0 && limit < max; i--)
        limit *= 2;
    return 1 + (size_t)tiara_test_random_below(random, limit < max ? limit : max);
}

static struct tiara_act small_act(struct tiara_test_random *random, const struct repertoire *r)
{
    return (struct tiara_act){.coll = TIARA_COLL_ALLREDUCE,
        .between = &r->between,
        .count = random_size(random, TIARA_ARENA_SMALL_MAX / sizeof(int64_t)),
        .in_place = tiara_test_random_below(random, 2)};
}

static struct tiara_act plan_act(
    struct tiara_test_random *random, const struct repertoire *r, int nranks)
{
    const struct tiara_plan *plan = &r->plans[tiara_test_random_below(random, (uint64_t)r->n)];
    size_t blocks = plan->coll == TIARA_COLL_ALLREDUCE ? 1 : (size_t)nranks;
    size_t chunk = random_size(random, CELL_BYTES / sizeof(int64_t) / blocks);

    return (struct tiara_act){.coll = plan->coll,
        .plan = plan,
        .count = random_size(random, 24 * chunk),
        .chunk_elems = chunk,
        .slots = 1 + (int)tiara_test_random_below(random, TIARA_SLOTS),
        .in_place = tiara_test_random_below(random, 2) && plan->coll != TIARA_COLL_REDUCE_SCATTER};
}

static enum tiara_err perform_all(
    struct tiara_actor *actor, const struct script *script, const struct repertoire *r)
{
    struct tiara_test_random random = {script->seed};
    enum tiara_err err = TIARA_OK;

    for (int i = 0; i < NCALLS && err == TIARA_OK; i++) {
        /* Runs of small calls: they overtake each other furthest. */
        bool is_small = tiara_test_random_below(&random, 3) == 0;
        uint64_t repeats = is_small ? 1 + tiara_test_random_below(&random, 8) : 1;

        for (uint64_t k = 0; k < repeats && err == TIARA_OK; k++) {
            struct tiara_act act =
                is_small ? small_act(&random, r) : plan_act(&random, r, actor->layout->nranks);

            act.digest = (uint32_t)tiara_test_random_next(&random);
            shake();
            err = tiara_actor_perform(actor, &act, i);
        }
    }
    return err;
}

static int play(struct tiara_actor *actor, void *arg)
{
    const struct script *script = arg;
    struct tiara_mem shaky_mem = tiara_mem_host;
    struct tiara_redop shaky_op = *actor->op;
    struct repertoire *r = tiara_alloc(1, sizeof(*r));
    enum tiara_err err = TIARA_ERR_NOMEM;

    shakes.state = script->seed ^ ((uint64_t)actor->rank + 1) << 32;
    shaky_op.fold = shaky_fold;
    shaky_op.ctx = actor->op;
    shaky_mem.copy = shaky_mem.copy_to_cell = shaky_copy;
    actor->op = &shaky_op;
    actor->mem = actor->exec.mem = actor->between.mem = &shaky_mem;
    if (r)
        err = repertoire_init(r, actor);
    if (err == TIARA_OK)
        err = perform_all(actor, script, r);
    if (r)
        repertoire_fini(r);
    return err != TIARA_OK;
}

static const char *const layouts[] = {"1x2", "1x3", "1x4", "2x2", "2x2:rr", "3+1", "1+2", "2x1"};
#define NLAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

static uint64_t seed;

START_TEST(test_stress_mixed_calls_compute)
{
    struct script script = {.seed = seed + (uint64_t)_i};
    uint64_t live = tiara_alloc_live();
    int failures = tiara_scene_run(layouts[_i], CELL_BYTES, play, &script);

    ck_assert_msg(failures == 0, "%s: %d failures", layouts[_i], failures);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("stress");

    seed = tiara_test_seed();
    tcase_add_loop_test(tcase, test_stress_mixed_calls_compute, 0, NLAYOUTS);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
