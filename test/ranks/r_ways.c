/* tiara-test: timeout 300 */
/*
 * What calls on one node stand on, with threads as ranks that have a bare state of a communicator:
 * agreement, the state and its end, and the table of ways.
 */
#include "algo/algo.h"
#include "base/alloc.h"
#include "call/way.h"
#include "comm/agree.h"
#include "test/harness/expect.h"
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include <sched.h>
#include <string.h>

#define CELL_BYTES ((size_t)16384)

enum {
    COUNT = 5000,
    ID = 7
};

/* A state that serves, on the actor's arena. */
static struct tiara_comm *state_new(struct tiara_actor *a)
{
    struct tiara_comm *c = tiara_alloc(1, sizeof(*c));

    ck_assert_ptr_nonnull(c);
    c->rank = a->rank;
    c->size = a->layout->nranks;
    c->id = ID;
    c->layout = *a->layout;
    c->arena = &a->arena;
    c->apart = MPI_COMM_NULL;
    c->exec = a->exec;
    c->run = tiara_exec_run_new();
    c->fast_max = 64;
    a->arena.comm_id = ID;
    tiara_state_serve(c);
    return c;
}

static void state_free(struct tiara_comm *c)
{
    tiara_free(c->run);
    tiara_free(c);
}

/* ---- agreement ---- */

static int play_agreement(struct tiara_actor *a, void *arg)
{
    struct tiara_expect e = {.rank = a->rank};
    struct tiara_comm *c = state_new(a);
    unsigned all;

    (void)arg;
    for (unsigned round = 0; round < 200; round++) {
        int odd = (int)(round % (unsigned)c->size); /* the rank that lacks what all others have */
        unsigned common = TIARA_AGREE_READY | (round % 3 ? TIARA_AGREE_LINKED : 0);
        unsigned mine = a->rank == odd ? common : common | TIARA_AGREE_CUDA;

        EXPECT(&e, tiara_agree(c, mine | 1u << (8 + a->rank), &all) == TIARA_OK);
        EXPECT(&e, all == (c->size == 1 ? common | 1u << 8 : common));
    }
    state_free(c);
    return e.failures;
}

/* ---- the state ---- */

/* One rank revokes in call 5, or leaves it in innocence; the peers see which. */
static int play_end(struct tiara_actor *a, void *arg)
{
    bool revoke = *(bool *)arg;
    struct tiara_expect e = {.rank = a->rank};
    struct tiara_comm *c = state_new(a);
    uint64_t said = 0;

    c->ncalls = 5;
    a->arena.call = 5;
    EXPECT(&e, tiara_comm_serves(c) && c->state.why == NULL);
    EXPECT(&e, tiara_arena_has_left(&a->arena, 0) == TIARA_OK);
    EXPECT(&e, tiara_small_and(&a->arena, 1, &said) == TIARA_OK);
    if (a->rank == 0) {
        EXPECT(&e, tiara_state_leave(c, 5, revoke) == 0);
        EXPECT(&e, c->state.phase == (revoke ? TIARA_COMM_REVOKED : TIARA_COMM_FALLEN_BACK));
        EXPECT(&e, c->state.call == 5 && c->state.why != NULL && c->state.behind == 0);
        EXPECT(&e, c->fast_max == 0 && !tiara_comm_serves(c));
        /* It ends once. */
        EXPECT(&e, tiara_state_leave(c, 6, !revoke) == 0);
        EXPECT(&e, c->state.call == 5 && (c->state.phase == TIARA_COMM_REVOKED) == revoke);
    } else {
        enum tiara_err err;
        while ((err = tiara_arena_has_left(&a->arena, 0)) == TIARA_OK)
            sched_yield();
        EXPECT(&e, err == (revoke ? TIARA_ERR_PEER : TIARA_ERR_UNSUPPORTED));
        a->arena.call = 6;
        EXPECT(&e, tiara_arena_has_left(&a->arena, 0) == TIARA_ERR_UNSUPPORTED);
    }
    EXPECT(&e, a->arena.dead == (a->rank == 0 && c->size > 1));
    state_free(c);
    return e.failures;
}

/* ---- ways ---- */

/* Starts and polls; a poll that says nothing moved has not waited. */
static enum tiara_err drive(struct tiara_task *t)
{
    struct tiara_wait_on on;
    enum tiara_err err = t->way->start(t);

    if (err != TIARA_OK)
        return err;
    while (!t->way->poll(t, &on, &err))
        if (!t->moved)
            sched_yield();
    return t->way->finish(t, err);
}

struct ways {
    enum tiara_path path;
    bool posted;
};

static int play_way(struct tiara_actor *a, void *arg)
{
    const struct ways *w = arg;
    const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_expect e = {.rank = a->rank};
    struct tiara_comm *c = state_new(a);
    int64_t *buf = tiara_alloc(COUNT, sizeof(*buf));
    struct tiara_plan plan;

    a->arena.posted = w->posted;
    EXPECT(&e, tiara_scene_plan(a->layout, a->rank, &tiara_algo_hier, &opts, &plan) == TIARA_OK);
    for (int number = 1; number <= 40 && e.failures == 0; number++) {
        size_t count = w->path == TIARA_PATH_PLAN ? COUNT - (size_t)number : (size_t)number * 9;
        struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE,
            .elem = {.redop = a->op, .size = sizeof(*buf), .type = TIARA_TYPE_I64},
            .in = buf,
            .out = buf,
            .count = count,
            .number = (uint64_t)number};
        struct tiara_posted posted = {.ring = TIARA_POSTED_ALL,
            .seq = (uint64_t)number,
            .digest = tiara_call_digest(c, &call),
            .desc = tiara_call_desc(&call)};
        struct tiara_task t = {.c = c,
            .call = &call,
            .choice = {.path = w->path,
                .algo = &tiara_algo_hier,
                .chunk_elems = CELL_BYTES / sizeof(*buf),
                .slots = 3},
            .plan = &plan,
            .posted = w->posted ? &posted : NULL};

        t.way = tiara_way_of(&t.choice, w->posted);
        for (size_t i = 0; i < count; i++)
            buf[i] = tiara_test_value(a->rank, i + (size_t)number);
        while (w->posted && !tiara_posted_has_slot(&a->arena, &posted))
            sched_yield();
        EXPECT(&e, drive(&t) == TIARA_OK);
        for (size_t i = 0; i < count && e.failures == 0; i++)
            EXPECT(&e, buf[i] == tiara_test_sum(c->size, i + (size_t)number));
        if (w->posted)
            tiara_posted_finish(&a->arena, (uint64_t)number);
    }
    tiara_plan_fini(&plan);
    tiara_free(buf);
    state_free(c);
    return e.failures;
}

/* ---- on several layouts ---- */

static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x5"};

static void on(const char *layout, tiara_play_fn play, void *arg)
{
    int failures = tiara_scene_run(layout, CELL_BYTES, play, arg);

    ck_assert_msg(failures == 0, "%s: %d failures", layout, failures);
}

START_TEST(test_agreement_is_what_all_have_in_common)
{
    on(layouts[_i], play_agreement, NULL);
}
END_TEST

START_TEST(test_state_ends_once_and_peers_see_why)
{
    bool revoke = true;

    on(layouts[_i], play_end, &revoke);
    revoke = false;
    on(layouts[_i], play_end, &revoke);
}
END_TEST

START_TEST(test_state_falls_back_where_all_agreed)
{
    struct tiara_comm c = {.ncalls = 3, .fast_max = 64};

    tiara_state_serve(&c);
    tiara_state_fall_back(&c, "a reason");
    ck_assert_int_eq(c.state.phase, TIARA_COMM_FALLEN_BACK);
    ck_assert_str_eq(c.state.why, "a reason");
    ck_assert_uint_eq(c.state.call, 3);
    ck_assert_uint_eq(c.fast_max, 0);
    ck_assert_uint_eq(tiara_state_leave(&c, 4, true), 0);
    ck_assert_int_eq(c.state.phase, TIARA_COMM_FALLEN_BACK);
}
END_TEST

START_TEST(test_ways_give_the_sum)
{
    static const struct ways ways[] = {
        {TIARA_PATH_ONESHOT, false},
        {TIARA_PATH_ONESHOT, true},
        {TIARA_PATH_PLAN, false},
        {TIARA_PATH_PLAN, true},
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct ways w = ways[i];
        on(layouts[_i], play_way, &w);
    }
}
END_TEST

START_TEST(test_ways_of_the_table)
{
    struct tiara_tune_choice choice = {.path = TIARA_PATH_MPI};

    ck_assert_ptr_null(tiara_way_of(&choice, false));
    ck_assert_ptr_null(tiara_way_of(&choice, true));
    choice.path = TIARA_PATH_ONESHOT;
    ck_assert_ptr_eq(tiara_way_of(&choice, false), &tiara_way_oneshot);
    ck_assert_ptr_eq(tiara_way_of(&choice, true), &tiara_way_posted);
    choice.path = TIARA_PATH_PLAN;
    ck_assert_ptr_eq(tiara_way_of(&choice, false), &tiara_way_plan);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("ways");

    tcase_add_loop_test(tcase, test_agreement_is_what_all_have_in_common, 0, 4);
    tcase_add_loop_test(tcase, test_state_ends_once_and_peers_see_why, 0, 4);
    tcase_add_test(tcase, test_state_falls_back_where_all_agreed);
    tcase_add_loop_test(tcase, test_ways_give_the_sum, 0, 4);
    tcase_add_test(tcase, test_ways_of_the_table);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
