/*
 * Faults inside a node: ranks that call differently, that give up, that never come, and that have
 * no memory.
 *
 * Nobody may hang, nobody may return a result, and the log says who did what. Every wait here has a
 * limit, far beyond what the right answer takes, so that a hang shows as TIARA_ERR_TIMEOUT.
 */
#include "base/alloc.h"
#include "test/harness/procs.h"
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include "test/harness/threads.h"
#include "test/harness/xport_inproc.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define CELL_BYTES ((size_t)8192)
#define MAX_RANKS 4
#define COUNT 3000
#define LIMIT_S 20.0

/* How the ranks of a scene call, and what came of it. Each rank writes its own result only. */
struct fault {
    const struct tiara_algo *algo; /* NULL: small slots */
    int odd; /* the rank that does otherwise */
    bool odd_is_small; /* it takes the small slots and the others a plan */
    enum {
        CALLS_DIFFERENTLY,
        GIVES_UP,
        GIVES_UP_LATE,
        LEAVES,
        NEVER_COMES
    } what;
    double limit_s; /* 0: LIMIT_S */
    enum tiara_err result[MAX_RANKS];
};

/* The call that all make, or that the odd rank makes in its own way. */
static struct tiara_act act_of(const struct fault *f, int rank, const struct tiara_plan *plan)
{
    bool differs = rank == f->odd && f->what == CALLS_DIFFERENTLY;
    struct tiara_act act = {.coll = TIARA_COLL_ALLREDUCE,
        .plan = plan,
        .count = COUNT,
        .chunk_elems = 500,
        .slots = 3,
        .digest = 1000};

    if (differs) {
        act.digest = 1001;
        act.count = COUNT - 7;
        if (f->odd_is_small)
            act.plan = NULL;
    }
    return act;
}

/* The odd rank begins a call and gives it up: before its peers hear of it, or after that. Or it
 * leaves without a fault of this call. */
static enum tiara_err give_up(struct tiara_actor *actor, const struct fault *f)
{
    struct tiara_arena_desc desc = {.count = COUNT, .type = -1, .oper = -1};

    actor->arena.call++;
    tiara_arena_begin(&actor->arena, 1000, &desc);
    if (f->what == GIVES_UP_LATE)
        tiara_arena_publish(&actor->arena);
    tiara_arena_fail(&actor->arena, f->what == LEAVES);
    return TIARA_ERR_PEER;
}

static enum tiara_err misbehave(struct tiara_actor *actor, const struct fault *f,
    const struct tiara_act *act, int64_t *in, int64_t *out)
{
    if (actor->rank == f->odd && f->what == NEVER_COMES)
        return TIARA_ERR_PEER;
    if (actor->rank == f->odd && f->what != CALLS_DIFFERENTLY)
        return give_up(actor, f);
    return tiara_actor_call(actor, act, in, out);
}

static const int world_rank[MAX_RANKS] = {40, 41, 42, 43};

static int play(struct tiara_actor *actor, void *arg)
{
    struct fault *f = arg;
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_plan plan = {0};
    struct tiara_act act;
    int64_t *in = tiara_alloc(COUNT, sizeof(*in)), *out = tiara_alloc(COUNT, sizeof(*out));
    enum tiara_err err = TIARA_OK;

    actor->arena.world_rank = world_rank;
    actor->arena.wait.limit_s = f->limit_s > 0 ? f->limit_s : LIMIT_S;
    if (f->what == NEVER_COMES) {
        actor->arena.wait.warn_s = 0.05;
        actor->arena.wait.limit_s = 0.08;
    }
    if (f->algo)
        err = tiara_scene_plan(actor->layout, actor->rank, f->algo, &opts, &plan);
    act = act_of(f, actor->rank, f->algo ? &plan : NULL);
    if (err == TIARA_OK) {
        f->result[actor->rank] = misbehave(actor, f, &act, in, out);
        if (f->result[actor->rank] != TIARA_OK &&
            (actor->rank != f->odd || f->what == CALLS_DIFFERENTLY))
            tiara_arena_fail(&actor->arena, f->result[actor->rank] == TIARA_ERR_UNSUPPORTED);
    }
    tiara_plan_fini(&plan);
    tiara_free(in);
    tiara_free(out);
    return err != TIARA_OK;
}

/* Plays @f, and returns what was logged. */
static const char *run_fault(const char *layout, struct fault *f)
{
    static char log[2048];
    uint64_t live = tiara_alloc_live();
    int failures;

    tiara_test_stderr_begin();
    failures = tiara_scene_run(layout, CELL_BYTES, play, f);
    tiara_test_stderr_end(log, sizeof(log));
    ck_assert_msg(failures == 0, "%d failures: %s", failures, log);
    ck_assert_uint_eq(tiara_alloc_live(), live);
    return log;
}

/* ---- ranks that call differently ---- */

/* Who meets the difference says so; who meets a rank that gave up for it says that. */
static void assert_mismatch(const struct fault *f, int nranks, const char *log)
{
    int seen = 0;

    for (int r = 0; r < nranks; r++) {
        char said[40];

        snprintf(said, sizeof(said), "ranks disagree: rank %d called", world_rank[r]);
        ck_assert_msg(f->result[r] == TIARA_ERR_MISMATCH ||
                          (f->result[r] == TIARA_ERR_PEER && !strstr(log, said)),
            "%s, rank %d of %d, rank %d is odd: %s; log: %s", f->algo ? f->algo->name : "small", r,
            nranks, f->odd, tiara_err_text(f->result[r]), log);
        seen += f->result[r] == TIARA_ERR_MISMATCH;
    }
    ck_assert_int_ge(seen, 1);
    ck_assert_msg(strstr(log, "ranks disagree") && strstr(log, "2993") && strstr(log, "3000"),
        "log: %s", log);
}

static const struct tiara_algo *const paths[] = {
    NULL, &tiara_algo_direct, &tiara_algo_ring, &tiara_algo_recdbl, &tiara_algo_chain};
#define NPATHS ((int)(sizeof(paths) / sizeof(paths[0])))

START_TEST(test_mismatch_on_any_path_is_seen)
{
    static const char *const nodes[] = {"1x2", "1x3", "1x4"};

    for (int i = 0; i < 3; i++)
        for (int odd = 0; odd < i + 2; odd++) {
            struct fault f = {.algo = paths[_i], .odd = odd, .what = CALLS_DIFFERENTLY};

            assert_mismatch(&f, i + 2, run_fault(nodes[i], &f));
        }
}
END_TEST

START_TEST(test_mismatch_of_small_slots_and_a_plan_is_seen)
{
    for (int odd = 0; odd < 3; odd++) {
        struct fault f = {.algo = &tiara_algo_direct,
            .odd = odd,
            .odd_is_small = true,
            .what = CALLS_DIFFERENTLY};

        assert_mismatch(&f, 3, run_fault("1x3", &f));
    }
}
END_TEST

/* The other node hears nothing of it: it waits for messages that never match, until the limit. */
START_TEST(test_mismatch_in_a_hierarchy_is_seen_on_its_node)
{
    for (int odd = 0; odd < 4; odd += 3) {
        struct fault f = {
            .algo = &tiara_algo_hier, .odd = odd, .what = CALLS_DIFFERENTLY, .limit_s = 2};
        int peer = odd ^ 1;

        run_fault("2x2", &f);
        ck_assert(f.result[odd] == TIARA_ERR_MISMATCH || f.result[odd] == TIARA_ERR_PEER);
        ck_assert(f.result[peer] == TIARA_ERR_MISMATCH || f.result[peer] == TIARA_ERR_PEER);
        ck_assert(f.result[odd] == TIARA_ERR_MISMATCH || f.result[peer] == TIARA_ERR_MISMATCH);
        for (int r = 0; r < 4; r++)
            ck_assert_int_ne(f.result[r], TIARA_OK);
    }
}
END_TEST

/* ---- ranks that give up ---- */

START_TEST(test_rank_that_gave_up_ends_the_wait_of_its_peers)
{
    for (int late = 0; late < 2; late++) {
        struct fault f = {.algo = paths[_i], .odd = 1, .what = late ? GIVES_UP_LATE : GIVES_UP};
        const char *log;

        if (late && !paths[_i])
            continue; /* whoever has published in a small call has done all that its peers need */
        log = run_fault("1x3", &f);
        ck_assert_msg(f.result[0] == TIARA_ERR_PEER && f.result[2] == TIARA_ERR_PEER,
            "ranks 0 and 2: %s, %s; log: %s", tiara_err_text(f.result[0]),
            tiara_err_text(f.result[2]), log);
    }
}
END_TEST

START_TEST(test_rank_that_left_sends_its_peers_another_way)
{
    struct fault f = {.algo = paths[_i], .odd = 1, .what = LEAVES};
    const char *log = run_fault("1x3", &f);

    ck_assert_msg(f.result[0] == TIARA_ERR_UNSUPPORTED && f.result[2] == TIARA_ERR_UNSUPPORTED,
        "ranks 0 and 2: %s, %s; log: %s", tiara_err_text(f.result[0]), tiara_err_text(f.result[2]),
        log);
}
END_TEST

/* Rank 1 gives up a call that its peer has finished: the peer meets that in the next one. */
static int play_late_failure(struct tiara_actor *actor, void *arg)
{
    struct fault *f = arg;
    struct tiara_act act = {.coll = TIARA_COLL_ALLREDUCE, .count = 8, .digest = 5};
    int64_t in[8] = {0}, out[8];
    enum tiara_err err = tiara_actor_call(actor, &act, in, out);

    actor->arena.wait.limit_s = LIMIT_S;
    if (err == TIARA_OK && actor->rank == 0)
        f->result[0] = tiara_actor_call(actor, &act, in, out);
    if (actor->rank == 1)
        tiara_arena_fail(&actor->arena, false);
    return err != TIARA_OK;
}

START_TEST(test_rank_that_gave_up_an_earlier_call_sends_its_peers_another_way)
{
    struct fault f = {0};

    ck_assert_int_eq(tiara_scene_run("1x2", CELL_BYTES, play_late_failure, &f), 0);
    ck_assert_msg(f.result[0] == TIARA_ERR_UNSUPPORTED, "%s", tiara_err_text(f.result[0]));
}
END_TEST

/* ---- ranks that never come ---- */

START_TEST(test_missing_rank_ends_in_a_timeout_that_names_it)
{
    struct fault f = {.algo = paths[_i], .odd = 1, .what = NEVER_COMES};
    const char *log = run_fault("1x2", &f);

    ck_assert_msg(
        f.result[0] == TIARA_ERR_TIMEOUT, "%s; log: %s", tiara_err_text(f.result[0]), log);
    ck_assert_msg(strstr(log, "rank 41 has not called"), "log: %s", log);
    ck_assert_msg(!strstr(log, "rank 40 has not called"), "log: %s", log);
    ck_assert_msg(strstr(log, "allreduce of 3000"), "log: %s", log);
}
END_TEST

START_TEST(test_missing_rank_on_another_node_ends_in_a_timeout)
{
    struct fault f = {.algo = &tiara_algo_recdbl, .odd = 1, .what = NEVER_COMES};

    run_fault("2x1", &f);
    ck_assert_int_eq(f.result[0], TIARA_ERR_TIMEOUT);
}
END_TEST

/* ---- ranks without memory ---- */

/* Shared by the processes of a sweep; a rank writes its own fields only. */
struct sweep {
    const struct tiara_xport *xport;
    const char *layout;
    uint64_t fail_after;
    int victim; /* -1: all ranks; only in processes */
    bool failed[MAX_RANKS];
};

/* A hierarchy's plan and a node's plan, and scratch memory for them. */
static enum tiara_err prepare_plans(const struct tiara_layout *l, int rank, struct tiara_exec *x)
{
    static const struct tiara_algo *const algos[] = {
        &tiara_algo_direct, &tiara_algo_hier, &tiara_algo_ring};
    struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    enum tiara_err err = TIARA_OK;

    for (size_t i = 0; i < 3 && err == TIARA_OK; i++) {
        struct tiara_plan plan = {0};
        struct tiara_exec_call call = {.plan = &plan,
            .count = 100 + 1000 * i,
            .elem_size = sizeof(int64_t),
            .slots = 2 + (int)i};

        err = tiara_scene_plan(l, rank, algos[i], &opts, &plan);
        if (err == TIARA_OK)
            err = tiara_exec_reserve(x, &call);
        tiara_plan_fini(&plan);
    }
    return err;
}

/* The answers of all ranks to @mine; the number of those that are true, or -1. */
static int count_true(const struct tiara_xport_group *group, bool mine)
{
    unsigned char in = mine, all[MAX_RANKS];
    int n = 0;

    if (group->allgather(group->arg, &in, all, 1) != TIARA_OK)
        return -1;
    for (int i = 0; i < group->size; i++)
        n += all[i];
    return n;
}

/* Sets up as comm does. Failures: ranks that do not agree about the arena, and success without
 * memory. */
static int set_up(int rank, const struct tiara_xport_group *group, struct sweep *sweep)
{
    struct tiara_layout l = {0};
    struct tiara_arena arena = {0};
    struct tiara_exec x = {0};
    enum tiara_err err = tiara_arena_open(&arena, sweep->xport, group, CELL_BYTES);
    int nopen = count_true(group, err == TIARA_OK);
    bool is_false;

    if (err == TIARA_OK)
        err = tiara_layout_parse(&l, sweep->layout, 0, NULL, 0);
    if (err == TIARA_OK)
        err = prepare_plans(&l, rank, &x);
    sweep->failed[rank] = err != TIARA_OK;
    is_false = err == TIARA_OK && x.tmp == NULL;
    tiara_exec_fini(&x);
    tiara_layout_fini(&l);
    tiara_arena_close(&arena);
    return is_false || (nopen != 0 && nopen != group->size);
}

static int play_process(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct sweep *sweep = arg;
    uint64_t live = tiara_alloc_live();
    int failures;

    if (sweep->victim < 0 || sweep->victim == rank)
        tiara_alloc_fail_after(sweep->fail_after);
    failures = set_up(rank, group, sweep);
    tiara_alloc_fail_after(0);
    return failures + (tiara_alloc_live() != live);
}

static int play_thread(int rank, const struct tiara_xport_group *group, void *arg)
{
    return set_up(rank, group, arg);
}

/* One run, with its log; true when somebody had no memory. */
static bool run_sweep(struct sweep *sweep, int nranks, bool in_processes)
{
    char log[2048];
    uint64_t live = tiara_alloc_live();
    bool is_hit = false;
    int failures;

    memset(sweep->failed, 0, sizeof(sweep->failed));
    tiara_test_stderr_begin();
    if (in_processes) {
        failures = tiara_procs_run(nranks, play_process, sweep);
    } else {
        tiara_alloc_fail_after(sweep->fail_after);
        failures = tiara_threads_run(nranks, play_thread, sweep);
        tiara_alloc_fail_after(0);
    }
    tiara_test_stderr_end(log, sizeof(log));
    ck_assert_msg(failures == 0, "allocation %d of rank %d fails: %d failures; log: %s",
        (int)sweep->fail_after, sweep->victim, failures, log);
    ck_assert_uint_eq(tiara_alloc_live(), live);
    for (int r = 0; r < nranks; r++)
        is_hit |= sweep->failed[r];
    return is_hit;
}

static struct sweep *sweep_create(const struct tiara_xport *xport)
{
    struct sweep *sweep =
        mmap(NULL, sizeof(*sweep), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(sweep, MAP_FAILED);
    *sweep = (struct sweep){.xport = xport, .layout = "1x3", .fail_after = 1, .victim = -1};
    return sweep;
}

/* _i: the rank without memory; 3: all of them. */
START_TEST(test_no_memory_in_processes_all_ranks_agree)
{
    struct sweep *sweep = sweep_create(&tiara_xport_shm);

    sweep->victim = _i < 3 ? _i : -1;
    while (run_sweep(sweep, 3, true))
        sweep->fail_after++;
    ck_assert_uint_gt(sweep->fail_after, 20);
    munmap(sweep, sizeof(*sweep));
}
END_TEST

START_TEST(test_no_memory_in_threads_all_ranks_agree)
{
    struct sweep *sweep = sweep_create(&tiara_xport_inproc);

    while (run_sweep(sweep, 3, false))
        sweep->fail_after++;
    ck_assert_uint_gt(sweep->fail_after, 60);
    munmap(sweep, sizeof(*sweep));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("faults");

    tcase_add_loop_test(tcase, test_mismatch_on_any_path_is_seen, 0, NPATHS);
    tcase_add_test(tcase, test_mismatch_of_small_slots_and_a_plan_is_seen);
    tcase_add_test(tcase, test_mismatch_in_a_hierarchy_is_seen_on_its_node);
    tcase_add_loop_test(tcase, test_rank_that_gave_up_ends_the_wait_of_its_peers, 0, NPATHS);
    tcase_add_loop_test(tcase, test_rank_that_left_sends_its_peers_another_way, 0, NPATHS);
    tcase_add_test(tcase, test_rank_that_gave_up_an_earlier_call_sends_its_peers_another_way);
    tcase_add_loop_test(tcase, test_missing_rank_ends_in_a_timeout_that_names_it, 0, NPATHS);
    tcase_add_test(tcase, test_missing_rank_on_another_node_ends_in_a_timeout);
    tcase_add_loop_test(tcase, test_no_memory_in_processes_all_ranks_agree, 0, 4);
    tcase_add_test(tcase, test_no_memory_in_threads_all_ranks_agree);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
