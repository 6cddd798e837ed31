/* tiara-test: timeout 300 */
/*
 * Calls on the GPUs of one node: every node algorithm and collective, packets, averages, chunks and
 * thread blocks, single copy; and calls that must end with an error on all ranks.
 */
#include "test/cuda/t_scene.h"

#include <sched.h>
#include <unistd.h>

#define CELL_BYTES ((size_t)65536)

/* ---- results ---- */

struct test_case {
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
};

static const struct test_case cases[] = {
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLREDUCE}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLREDUCE, .one_shot = true}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLREDUCE, .single_copy = true}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLREDUCE, .one_shot = true, .single_copy = true}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_REDUCE_SCATTER}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLGATHER}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_REDUCE_SCATTER, .single_copy = true}},
    {&tiara_algo_direct, {.coll = TIARA_COLL_ALLGATHER, .single_copy = true}},
    {&tiara_algo_node_ring, {.coll = TIARA_COLL_ALLREDUCE}},
    {&tiara_algo_node_ring, {.coll = TIARA_COLL_REDUCE_SCATTER}},
    {&tiara_algo_node_ring, {.coll = TIARA_COLL_ALLGATHER}},
    {&tiara_algo_ring, {.coll = TIARA_COLL_ALLREDUCE}},
};
#define NCASES ((int)(sizeof(cases) / sizeof(cases[0])))

/* Below, at and above a vector load, a stripe, a cell, and many cells: with several thread blocks,
 * chunks and slots. */
static const size_t counts[] = {1, 7, 64, 1000, 4096, 16383, 100003};
#define NCOUNTS (sizeof(counts) / sizeof(counts[0]))

static void play_case(struct gpu_actor *a, void *arg)
{
    const struct test_case *t = arg;
    struct tiara_plan plan = {0};
    enum tiara_err err = gpu_plan_make(a, t->algo, &t->opts, &plan);
    bool gathers = t->opts.coll == TIARA_COLL_ALLGATHER;

    for (size_t i = 0; i < NCOUNTS && err == TIARA_OK && a->e.failures == 0; i++) {
        struct gpu_act act = {.coll = t->opts.coll,
            .plan = &plan,
            .count = counts[i] / (t->opts.coll == TIARA_COLL_ALLREDUCE ? 1 : 4) + 1,
            .chunk_elems = i % 2 ? 0 : 3001,
            .slots = i % 3 == 0 ? 1 : 4,
            .in_place = i % 2 && t->opts.coll != TIARA_COLL_REDUCE_SCATTER,
            .share = t->opts.single_copy,
            .average = !gathers && i % 3 == 2,
            .skew = i % 4,
            .digest = 1000 + (uint32_t)i};

        gpu_perform(a, &act, 2);
    }
    EXPECT(&a->e, err == TIARA_OK);
    /* The node keeps the plan's address. */
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_run_every_algorithm_computes)
{
    static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x4"};

    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        struct gpu_scene s = {.layout = layouts[l],
            .cell_bytes = CELL_BYTES,
            .play = play_case,
            .arg = (void *)(uintptr_t)&cases[_i]};

        ck_assert_msg(gpu_scene_run(&s) == 0, "%s, coll %d, on %s", cases[_i].algo->name,
            (int)cases[_i].opts.coll, layouts[l]);
    }
}
END_TEST

/* Ranks that share a device share its room for thread blocks. */
START_TEST(test_run_ranks_share_a_device)
{
    struct gpu_scene s = {.layout = "1x3",
        .cell_bytes = CELL_BYTES,
        .play = play_case,
        .arg = (void *)(uintptr_t)&cases[0],
        .devices = "1"};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* The same plan and packets in turn; what one leaves behind must not disturb the other. */
static void play_packets(struct gpu_actor *a, void *arg)
{
    static const size_t sizes[] = {1, 2, 3, 100, 1001, 4095, 4096};
    const struct test_case *t = &cases[0];
    struct tiara_plan plan = {0};

    (void)arg;
    EXPECT(&a->e, gpu_plan_make(a, t->algo, &t->opts, &plan) == TIARA_OK);
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]) && a->e.failures == 0; i++) {
        struct gpu_act act = {.coll = TIARA_COLL_ALLREDUCE,
            .count = sizes[i / 2],
            .slots = 1,
            .in_place = i % 2,
            .average = i % 3 == 1,
            .skew = i % 4,
            .digest = 5 + (uint32_t)i};

        gpu_perform(a, &act, 3);
        act.plan = &plan;
        gpu_perform(a, &act, 1);
    }
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_run_packets_compute)
{
    static const char *const layouts[] = {"1x1", "1x2", "1x4"};

    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        struct gpu_scene s = {.layout = layouts[l], .cell_bytes = CELL_BYTES, .play = play_packets};

        ck_assert_msg(gpu_scene_run(&s) == 0, "on %s", layouts[l]);
    }
}
END_TEST

/* ---- errors ---- */

/* How a call of a test ends: a small plan, or packets. */
static enum tiara_err call_once(
    struct gpu_actor *a, const struct tiara_plan *plan, uint32_t digest, size_t count)
{
    struct gpu_act act = {
        .coll = TIARA_COLL_ALLREDUCE, .plan = plan, .count = count, .slots = 2, .digest = digest};
    struct gpu_data d;
    enum tiara_err err;

    gpu_data_init(&d, a, &act);
    gpu_data_fill(&d, a, &act, 0);
    err = gpu_run(a, &act, d.in, d.out);
    if (err == TIARA_OK)
        gpu_data_verify(&d, a, &act, 0);
    gpu_data_fini(&d, a);
    return err;
}

/* A fault that the last rank has, or makes. */
struct fault {
    bool packets;
    bool differs; /* calls differently */
    bool is_late; /* does not call for a while, and then does */
    bool is_gone; /* does not call */
    bool dies; /* ends in the call, while the first rank has not come yet */
    enum tiara_err err; /* of the other ranks */
};

static enum tiara_err die(void *arg, double waited_s, bool first)
{
    (void)arg;
    (void)waited_s;
    (void)first;
    _exit(0);
}

/* Returns when the last rank is gone. */
static void watch_death(struct gpu_actor *a)
{
    struct tiara_exchange *x = ((struct tiara_exchange_rank *)a->all.arg)->whole;

    /* relaxed: nothing else is read */
    while (!tiara_load_relaxed(&x->ranks[x->size - 1].has_left))
        sched_yield();
}

static void play_fault(struct gpu_actor *a, void *arg)
{
    const struct fault *f = arg;
    const struct test_case *t = &cases[0];
    bool is_last = a->rank == a->layout->nranks - 1;
    struct tiara_plan plan = {0};
    const struct tiara_plan *p = f->packets ? NULL : &plan;
    enum tiara_err err;

    EXPECT(&a->e, gpu_plan_make(a, t->algo, &t->opts, &plan) == TIARA_OK);
    EXPECT(&a->e, call_once(a, p, 1, 1000) == TIARA_OK);
    a->is_alone = true;
    if (is_last && f->is_gone)
        _exit(0);
    if (is_last && f->is_late)
        (void)gpu_barrier(&a->e, &a->all);
    if (is_last && f->dies)
        a->wait.stuck = die;
    if (a->rank == 0 && f->dies)
        watch_death(a);
    err = call_once(a, p, is_last && f->differs ? 3 : 2, 1000);
    /* Who is late with packets finds all that it needs, once. */
    if (is_last)
        EXPECT(&a->e, err != TIARA_OK || (f->is_late && f->packets));
    else
        EXPECT(&a->e, err == f->err);
    if (!is_last && f->is_late)
        (void)gpu_barrier(&a->e, &a->all);
    /* Later calls are refused, before they wait for anybody. */
    if (err != TIARA_OK)
        EXPECT(&a->e, call_once(a, p, 4, 10) == TIARA_ERR_PEER);
    else
        EXPECT(&a->e, call_once(a, p, 4, 10) != TIARA_OK);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

static const struct fault faults[] = {
    {.differs = true, .err = TIARA_ERR_MISMATCH},
    {.differs = true, .packets = true, .err = TIARA_ERR_MISMATCH},
    {.is_late = true, .err = TIARA_ERR_TIMEOUT},
    {.is_late = true, .packets = true, .err = TIARA_ERR_TIMEOUT},
    {.is_gone = true, .err = TIARA_ERR_PEER},
    {.is_gone = true, .packets = true, .err = TIARA_ERR_PEER},
    {.dies = true, .err = TIARA_ERR_PEER},
};
#define NFAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

START_TEST(test_run_fault_ends_call_on_all_ranks)
{
    struct gpu_scene s = {.layout = "1x3",
        .cell_bytes = CELL_BYTES,
        .spin_s = faults[_i].is_late ? 0.3 : 0,
        .play = play_fault,
        .arg = (void *)(uintptr_t)&faults[_i]};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* A rank's buffer that peers cannot map: all ranks hear of it, nothing was moved, and the plan
 * through cells is still to be had. */
static void play_unshared(struct gpu_actor *a, void *arg)
{
    const struct test_case *through = &cases[0], *single = &cases[2];
    struct gpu_act act = {.coll = TIARA_COLL_ALLREDUCE, .count = 3000, .slots = 2, .share = true};
    struct tiara_plan plans[2] = {{0}, {0}};
    struct gpu_data d;
    void *pool = NULL;
    int32_t *in;

    (void)arg;
    EXPECT(&a->e, gpu_plan_make(a, single->algo, &single->opts, &plans[0]) == TIARA_OK);
    EXPECT(&a->e, gpu_plan_make(a, through->algo, &through->opts, &plans[1]) == TIARA_OK);
    gpu_data_init(&d, a, &act);
    gpu_data_fill(&d, a, &act, 0);
    in = d.in;
    if (a->rank == 1) {
        EXPECT_CUDA(&a->e, cudaMallocAsync(&pool, act.count * sizeof(int32_t), NULL));
        EXPECT_CUDA(
            &a->e, cudaMemcpy(pool, d.in, act.count * sizeof(int32_t), cudaMemcpyDeviceToDevice));
        EXPECT_CUDA(&a->e, cudaStreamSynchronize(NULL));
        in = pool;
    }
    act.plan = &plans[0];
    EXPECT(&a->e, gpu_run(a, &act, in, d.out) == TIARA_ERR_UNSUPPORTED);
    act.share = false;
    EXPECT(&a->e, gpu_run(a, &act, d.in, d.out) == TIARA_ERR_UNSUPPORTED);
    act.plan = &plans[1];
    EXPECT(&a->e, gpu_run(a, &act, in, d.out) == TIARA_OK);
    gpu_data_verify(&d, a, &act, 0);
    if (pool)
        EXPECT_CUDA(&a->e, cudaFreeAsync(pool, NULL));
    gpu_data_fini(&d, a);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plans[0]);
    tiara_plan_fini(&plans[1]);
}

START_TEST(test_run_buffer_out_of_reach_is_agreed)
{
    struct gpu_scene s = {.layout = "1x3", .cell_bytes = CELL_BYTES, .play = play_unshared};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* Single copy with different calls: no rank may read beyond a peer's buffer. */
static void play_single_mismatch(struct gpu_actor *a, void *arg)
{
    const struct test_case *t = &cases[2];
    struct gpu_act act = {.coll = TIARA_COLL_ALLREDUCE,
        .count = 1000,
        .slots = 2,
        .share = true,
        .digest = a->rank == 0 ? 1 : 2};
    struct tiara_plan plan = {0};
    struct gpu_data d;

    (void)arg;
    EXPECT(&a->e, gpu_plan_make(a, t->algo, &t->opts, &plan) == TIARA_OK);
    gpu_data_init(&d, a, &act);
    gpu_data_fill(&d, a, &act, 0);
    act.plan = &plan;
    EXPECT(&a->e, gpu_run(a, &act, d.in, d.out) == TIARA_ERR_MISMATCH);
    gpu_data_fini(&d, a);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_run_single_copy_compares_calls)
{
    struct gpu_scene s = {.layout = "1x2", .cell_bytes = CELL_BYTES, .play = play_single_mismatch};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* One CUDA call after the other fails on the last rank: every rank comes to an end, with an error
 * or without. */
static void play_failing(struct gpu_actor *a, void *arg)
{
    const struct test_case *t = &cases[0];
    struct tiara_plan plan = {0};
    enum tiara_err err = TIARA_OK;

    (void)arg;
    a->is_alone = true;
    EXPECT(&a->e, gpu_plan_make(a, t->algo, &t->opts, &plan) == TIARA_OK);
    for (int i = 0; i < 3 && err == TIARA_OK; i++)
        err = call_once(a, i == 1 ? NULL : &plan, 9, 3000);
    EXPECT(&a->e, err == TIARA_OK || err == TIARA_ERR_SYS || err == TIARA_ERR_PEER ||
                      err == TIARA_ERR_TIMEOUT || err == TIARA_ERR_NOMEM);
    if (err != TIARA_OK)
        tiara_gpu.node->abort(a->node);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_run_cuda_failure_ends_on_all_ranks)
{
    static const char *const calls[] = {"cudaLaunchKernel", "cudaEventRecord", "cudaEventQuery",
        "cudaMemcpyAsync", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
        "cudaStreamSynchronize", "cudaThreadExchangeStreamCaptureMode"};

    if (!gpu_have_standin())
        return;
    for (int n = 1; n <= 10; n++) {
        char fail[64];
        struct gpu_scene s = {.layout = "1x2",
            .cell_bytes = CELL_BYTES,
            .spin_s = 5,
            .play = play_failing,
            .fail = fail};

        snprintf(fail, sizeof(fail), "%s:%d", calls[_i], n);
        ck_assert_msg(gpu_scene_run(&s) == 0, "%s", fail);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run");
    TCase *tcase = tcase_create("run");

    tcase_add_loop_test(tcase, test_run_every_algorithm_computes, 0, NCASES);
    tcase_add_test(tcase, test_run_ranks_share_a_device);
    tcase_add_test(tcase, test_run_packets_compute);
    tcase_add_loop_test(tcase, test_run_fault_ends_call_on_all_ranks, 0, NFAULTS);
    tcase_add_test(tcase, test_run_buffer_out_of_reach_is_agreed);
    tcase_add_test(tcase, test_run_single_copy_compares_calls);
    tcase_add_loop_test(tcase, test_run_cuda_failure_ends_on_all_ranks, 0, 9);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
