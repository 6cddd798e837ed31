/* tiara-test: timeout 300 */
/*
 * Posted calls with threads as ranks: each rank starts its calls ahead of its peers and moves them
 * on in an order of its own, which a seed gives; small ones and ones with a plan are mixed. Under
 * ThreadSanitizer the labelled edges of posted.c are what orders all accesses.
 */
#include "base/alloc.h"
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CELL_BYTES ((size_t)16384)
#define NCALLS 120
#define SMALL_MOST 300 /* elements */
#define LARGE_MOST 20000

/* A call of one rank. */
struct posting {
    struct tiara_posted posted;
    struct tiara_small_call small;
    struct tiara_exec_call plan;
    int64_t *buf;
    bool large, published, over;
};

struct ahead {
    uint64_t seed;
    const struct tiara_algo *algo;
    int wrong_call; /* whose count differs on rank 0; -1: none */
};

struct rank_state {
    struct tiara_actor *actor;
    struct posting calls[NCALLS];
    struct tiara_plan plan;
    struct tiara_run *run;
    struct tiara_test_random random;
    int started;
};

/* What call @i is: alike on all ranks. */
static size_t count_of(const struct ahead *t, int i, bool *large_out)
{
    struct tiara_test_random random = {t->seed + (uint64_t)i * 7919u};

    *large_out = tiara_test_random_below(&random, 5) == 0;
    return 1 + tiara_test_random_below(&random, *large_out ? LARGE_MOST : SMALL_MOST);
}

static void prepare(struct rank_state *s, const struct ahead *t, int i)
{
    struct posting *p = &s->calls[i];
    struct tiara_actor *a = s->actor;
    size_t count = count_of(t, i, &p->large);

    if (i == t->wrong_call && a->rank == 0)
        count++;
    p->buf = tiara_alloc(count, sizeof(int64_t));
    ck_assert_ptr_nonnull(p->buf);
    for (size_t k = 0; k < count; k++)
        p->buf[k] = tiara_test_value(a->rank, k + (size_t)i);
    p->posted = (struct tiara_posted){.ring = TIARA_POSTED_ALL,
        .seq = (uint64_t)i + 1,
        .digest = (uint32_t)count * 31u + p->large,
        .desc = {.count = count,
            .elem_size = sizeof(int64_t),
            .type = TIARA_TYPE_I64,
            .oper = TIARA_OPER_SUM}};
    p->small = (struct tiara_small_call){.op = a->op,
        .mem = a->mem,
        .in = p->buf,
        .out = p->buf,
        .count = count,
        .bytes = count * sizeof(int64_t)};
    p->plan = (struct tiara_exec_call){.plan = &s->plan,
        .op = a->op,
        .in = p->buf,
        .out = p->buf,
        .count = count,
        .elem_size = sizeof(int64_t),
        .chunk_elems = CELL_BYTES / sizeof(int64_t),
        .slots = 4,
        .digest = p->posted.digest};
}

/* All calls up to the first that is not over are over for this rank. */
static void finish(struct rank_state *s)
{
    int first = 0;

    while (first < NCALLS && s->calls[first].over)
        first++;
    tiara_posted_finish(&s->actor->arena, (uint64_t)first);
}

/* Whether an earlier call with a plan has not ended: they run one after the other. */
static bool must_queue(const struct rank_state *s, const struct posting *p)
{
    for (const struct posting *q = s->calls; q < p; q++)
        if (q->large && !q->over)
            return true;
    return false;
}

static enum tiara_err step_plan(struct rank_state *s, struct posting *p)
{
    enum tiara_err err = TIARA_OK;
    struct tiara_wait_on on;
    bool moved;

    if (!p->published) {
        if (must_queue(s, p) || !tiara_posted_has_slot(&s->actor->arena, &p->posted))
            return TIARA_OK;
        tiara_posted_begin(&s->actor->arena, &p->posted);
        p->published = true;
        err = tiara_exec_open(s->run, &s->actor->exec, &p->plan);
    }
    if (err == TIARA_OK && !tiara_exec_poll(s->run, &on, &moved, &err))
        return TIARA_OK;
    p->over = true;
    return tiara_exec_close(s->run, err);
}

static enum tiara_err step_small(struct rank_state *s, struct posting *p)
{
    struct tiara_arena *arena = &s->actor->arena;
    enum tiara_err err = TIARA_OK;

    if (!p->published) {
        if (!tiara_posted_has_slot(arena, &p->posted))
            return TIARA_OK;
        tiara_posted_publish(arena, &p->posted, &p->small);
        p->published = true;
    }
    p->over = tiara_posted_poll(arena, &p->posted, &p->small, &err);
    return err;
}

static enum tiara_err step(struct rank_state *s, struct posting *p)
{
    enum tiara_err err = TIARA_OK;

    if (!p->over) {
        err = p->large ? step_plan(s, p) : step_small(s, p);
        finish(s);
    }
    return err;
}

/* Starts the calls in order, some time or other, and moves on any of those that are started. */
static enum tiara_err run_all(struct rank_state *s)
{
    enum tiara_err err = TIARA_OK;
    int over = 0;

    for (long turn = 0; over < NCALLS && err == TIARA_OK; turn++) {
        if (s->started < NCALLS && tiara_test_random_below(&s->random, 3) != 0)
            s->started++;
        if (s->started > 0)
            err = step(s, &s->calls[tiara_test_random_below(&s->random, (uint64_t)s->started)]);
        over = 0;
        for (int i = 0; i < NCALLS; i++)
            over += s->calls[i].over;
        if (turn % 8 == 0)
            sched_yield();
        if (over < NCALLS && turn > 1000 && turn % 1000 == 0 && err == TIARA_OK) {
            int first = 0;
            while (s->calls[first].over)
                first++;
            err = tiara_posted_inspect(&s->actor->arena, &s->calls[first].posted, 0, false);
        }
    }
    return err;
}

static int count_wrong(const struct rank_state *s)
{
    int wrong = 0;

    for (int i = 0; i < NCALLS; i++) {
        const struct posting *p = &s->calls[i];

        for (size_t k = 0; k < p->small.count; k++)
            if (p->buf[k] != tiara_test_sum(s->actor->layout->nranks, k + (size_t)i)) {
                fprintf(stderr, "rank %d, call %d (%s, %zu elements): element %zu is wrong\n",
                    s->actor->rank, i, p->large ? "plan" : "small", p->small.count, k);
                wrong++;
                break;
            }
    }
    return wrong;
}

static int play(struct tiara_actor *actor, void *arg)
{
    const struct ahead *t = arg;
    const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct rank_state *s = tiara_alloc(1, sizeof(*s));
    enum tiara_err err;
    int failures;

    ck_assert_ptr_nonnull(s);
    s->actor = actor;
    s->random.state = t->seed * 31u + (uint64_t)actor->rank;
    s->run = tiara_exec_run_new();
    actor->arena.posted = true;
    err = tiara_scene_plan(actor->layout, actor->rank, t->algo, &opts, &s->plan);
    for (int i = 0; i < NCALLS; i++)
        prepare(s, t, i);
    if (err == TIARA_OK)
        err = run_all(s);
    if (err != TIARA_OK)
        tiara_arena_fail(&actor->arena, false);
    if (t->wrong_call >= 0)
        failures = err != TIARA_ERR_MISMATCH && err != TIARA_ERR_PEER;
    else
        failures = (err != TIARA_OK) + count_wrong(s);
    for (int i = 0; i < NCALLS; i++)
        tiara_free(s->calls[i].buf);
    tiara_plan_fini(&s->plan);
    tiara_free(s->run);
    tiara_free(s);
    return failures;
}

static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x5"};

static void run_ahead(const char *layout, const struct tiara_algo *algo, int wrong_call)
{
    struct ahead t = {.seed = tiara_test_seed(), .algo = algo, .wrong_call = wrong_call};
    int failures = tiara_scene_run(layout, CELL_BYTES, play, &t);

    ck_assert_msg(failures == 0, "%s on %s, seed %llu: %d failures", algo->name, layout,
        (unsigned long long)t.seed, failures);
}

START_TEST(test_posted_calls_in_any_order_compute)
{
    run_ahead(layouts[_i], &tiara_algo_direct, -1);
    run_ahead(layouts[_i], &tiara_algo_hier, -1);
}
END_TEST

/* The rank that differs, and all others, learn of it; nobody waits for ever. */
START_TEST(test_posted_calls_that_differ_fail_everywhere)
{
    char said[8192];

    tiara_test_stderr_begin();
    run_ahead(layouts[_i], &tiara_algo_direct, 40);
    tiara_test_stderr_end(said, sizeof(said));
    ck_assert_msg(strstr(said, "ranks disagree") != NULL, "said: %s", said);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("posted");

    tcase_add_loop_test(tcase, test_posted_calls_in_any_order_compute, 0, 4);
    tcase_add_loop_test(tcase, test_posted_calls_that_differ_fail_everywhere, 1, 4);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
