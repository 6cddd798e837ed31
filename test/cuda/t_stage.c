/*
 * The stage of CUDA device memory: what is fetched and stored arrives, test tells when, slots do
 * not wait for each other's copies, and nothing is taken once it has grown.
 *
 *     tiara-test: env STANDIN_STRICT=1
 */
#include "test/cuda/t_common.h"

#include <sched.h>

#define SLOTS TIARA_SLOTS
#define WORDS ((size_t)5000)
#define BYTES (WORDS * sizeof(uint64_t))

static const struct tiara_stage *stage;

struct scene {
    struct tiara_expect e;
    void *s;
    char *device; /* [2 * SLOTS] of BYTES */
};

/* A rank with an open stage; false: it has none. */
static bool scene_begin(struct scene *scene, int rank, const char *fail)
{
    memset(scene, 0, sizeof *scene);
    scene->e.rank = rank;
    if (fail != NULL)
        setenv("STANDIN_FAIL", fail, 1);
    if (gpu_begin(&scene->e, TIARA_LOG_WARN) < 0)
        return false;
    stage = tiara_gpu.stage;
    scene->s = calloc(1, stage->size);
    return EXPECT_CUDA(&scene->e, cudaMalloc((void **)&scene->device, 2 * SLOTS * BYTES));
}

static int scene_end(struct scene *scene)
{
    stage->close(scene->s);
    stage->close(scene->s);
    free(scene->s);
    EXPECT_CUDA(&scene->e, cudaFree(scene->device));
    EXPECT(&scene->e, cudaGetLastError() == cudaSuccess);
    EXPECT(&scene->e, tiara_alloc_live() == 0);
    return scene->e.failures;
}

/* Tests until it is done; bounded. */
static enum tiara_err done_wait(struct scene *scene, int slot)
{
    double begin = tiara_test_now();
    bool done = false;
    enum tiara_err err = TIARA_OK;

    while (!done && err == TIARA_OK) {
        err = stage->test(scene->s, slot, &done);
        sched_yield();
        if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S)
            err = TIARA_ERR_TIMEOUT;
    }
    return err;
}

static bool is_bits(const uint64_t *words, int key, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (words[i] != tiara_test_bits(key, i))
            return false;
    }
    return true;
}

/* ---- copies ---- */

/* Chunks of all slots come, are changed, and go to another place. */
static void chunks_run(struct scene *scene, char *bounce, int key)
{
    struct tiara_expect *e = &scene->e;
    char *from = scene->device, *to = scene->device + SLOTS * BYTES;

    for (int i = 0; i < SLOTS; i++)
        gpu_fill(e, from + (size_t)i * BYTES, key + i, WORDS);
    for (int i = 0; i < SLOTS; i++)
        EXPECT(e, stage->fetch(scene->s, i, bounce + (size_t)i * BYTES, from + (size_t)i * BYTES,
                      BYTES) == TIARA_OK);
    /* The last slot first: none has to be waited for in the order of the others. */
    for (int i = SLOTS - 1; i >= 0; i--) {
        uint64_t *words = (uint64_t *)(void *)(bounce + (size_t)i * BYTES);

        EXPECT(e, done_wait(scene, i) == TIARA_OK && is_bits(words, key + i, WORDS));
        for (size_t k = 0; k < WORDS; k++)
            words[k] = tiara_test_bits(key + 50 + i, k);
        EXPECT(e, stage->store(scene->s, i, to + (size_t)i * BYTES, words, BYTES) == TIARA_OK);
    }
    for (int i = 0; i < SLOTS; i++) {
        EXPECT(e, done_wait(scene, i) == TIARA_OK);
        EXPECT(e, gpu_is_filled(to + (size_t)i * BYTES, key + 50 + i, 0, WORDS));
        EXPECT(e, gpu_is_filled(from + (size_t)i * BYTES, key + i, 0, WORDS));
    }
}

static int rank_copies(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct scene scene;
    char *bounce, *more;
    int now = -1, count = 0, elsewhere;

    (void)group;
    if (!scene_begin(&scene, rank, arg))
        return scene.e.failures;
    /* The program has another device current, where there is one. */
    EXPECT_CUDA(&scene.e, cudaGetDeviceCount(&count));
    elsewhere = (rank + 1) % count;
    EXPECT_CUDA(&scene.e, cudaSetDevice(elsewhere));
    EXPECT(&scene.e, stage->open(scene.s, scene.device + 1000) == TIARA_OK);
    bounce = stage->bounce(scene.s, SLOTS * BYTES);
    if (EXPECT(&scene.e, bounce != NULL)) {
        for (int i = 0; i < 10; i++)
            chunks_run(&scene, bounce, 100 * i + rank);
    }
    /* What is there is given again; more is more. */
    EXPECT(&scene.e, stage->bounce(scene.s, 10) == bounce && stage->bounce(scene.s, 0) == bounce);
    if (arg == NULL) {
        more = stage->bounce(scene.s, 3 * SLOTS * BYTES);
        if (EXPECT(&scene.e, more != NULL))
            chunks_run(&scene, more + 2 * SLOTS * BYTES, 7);
    }
    EXPECT(&scene.e, cudaGetDevice(&now) == cudaSuccess && now == elsewhere);
    return scene_end(&scene);
}

START_TEST(test_stage_copies_arrive)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_copies, NULL), 0);
}
END_TEST

/* Calls that may not happen, or not again, are made to fail. */
START_TEST(test_stage_takes_nothing_once_grown)
{
    static char fail[] = "cudaHostAlloc:2,cudaDeviceSynchronize:1,cudaStreamCreateWithFlags:3,"
                         "cudaEventCreateWithFlags:17,cudaStreamSynchronize:3";

    ck_assert_int_eq(tiara_procs_run(1, rank_copies, fail), 0);
}
END_TEST

/*
 * A copy of the stand-in takes a while: starting it does not. What is not done is not said to be.
 */
static int rank_is_asynchronous(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct scene scene;
    bool done = true;
    uint64_t *bounce;

    (void)group;
    (void)arg;
    setenv("STANDIN_DELAY_US", "200000", 1);
    if (!scene_begin(&scene, rank, NULL) || !gpu_is_standin())
        return scene.e.failures;
    gpu_fill(&scene.e, scene.device, rank, WORDS);
    EXPECT(&scene.e, stage->open(scene.s, scene.device) == TIARA_OK);
    bounce = stage->bounce(scene.s, 2 * BYTES);
    if (!EXPECT(&scene.e, bounce != NULL))
        return scene.e.failures;
    /* Nothing was started in the slot: there is nothing to wait for. */
    EXPECT(&scene.e, stage->test(scene.s, 0, &done) == TIARA_OK && done);
    EXPECT(&scene.e, stage->fetch(scene.s, 0, bounce, scene.device, BYTES) == TIARA_OK);
    EXPECT(&scene.e, stage->test(scene.s, 0, &done) == TIARA_OK && !done);
    EXPECT(&scene.e, stage->test(scene.s, 1, &done) == TIARA_OK && done);
    EXPECT(&scene.e, stage->fetch(scene.s, 1, bounce, scene.device, 0) == TIARA_OK);
    EXPECT(&scene.e, done_wait(&scene, 0) == TIARA_OK && is_bits(bounce, rank, WORDS));
    /* Both ways at once: the slot is done when both are. */
    EXPECT(&scene.e, stage->store(scene.s, 2, scene.device + BYTES, bounce, BYTES) == TIARA_OK);
    EXPECT(&scene.e, stage->test(scene.s, 2, &done) == TIARA_OK && !done);
    EXPECT(&scene.e, stage->fetch(scene.s, 2, bounce + WORDS, scene.device, BYTES) == TIARA_OK);
    EXPECT(&scene.e, done_wait(&scene, 2) == TIARA_OK && is_bits(bounce + WORDS, rank, WORDS));
    EXPECT(&scene.e, gpu_is_filled(scene.device + BYTES, rank, 0, WORDS));
    /* Close waits for what is under way. */
    EXPECT(&scene.e, stage->store(scene.s, 3, scene.device + 2 * BYTES, bounce, BYTES) == TIARA_OK);
    stage->close(scene.s);
    EXPECT(&scene.e, gpu_is_filled(scene.device + 2 * BYTES, rank, 0, WORDS));
    return scene_end(&scene);
}

START_TEST(test_stage_starts_and_returns)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_is_asynchronous, NULL), 0);
}
END_TEST

/* ---- failures ---- */

static const char *const calls[] = {"cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
    "cudaHostAlloc", "cudaMemcpyAsync", "cudaEventRecord", "cudaEventQuery", "cudaStreamDestroy",
    "cudaEventDestroy", "cudaFreeHost", "cudaStreamSynchronize", "cuPointerGetAttribute"};

/* The n-th call fails: an error, and close has nothing left; or it did not matter. Of three times,
 * one at most fails. */
static int rank_fails(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct scene scene;
    enum tiara_err err = TIARA_OK;
    uint64_t *bounce = NULL;
    int failed = 0;

    (void)group;
    if (!scene_begin(&scene, rank, arg) || !gpu_is_standin())
        return scene.e.failures;
    gpu_fill(&scene.e, scene.device, rank, WORDS);
    for (int i = 0; i < 3; i++) {
        err = stage->open(scene.s, scene.device);
        if (err == TIARA_OK) {
            bounce = stage->bounce(scene.s, BYTES);
            err = bounce != NULL ? TIARA_OK : TIARA_ERR_NOMEM;
        }
        if (err == TIARA_OK)
            err = stage->fetch(scene.s, 5, bounce, scene.device, BYTES);
        if (err == TIARA_OK)
            err = done_wait(&scene, 5);
        if (err == TIARA_OK)
            EXPECT(&scene.e, is_bits(bounce, rank, WORDS));
        EXPECT(&scene.e, err == TIARA_OK || err == TIARA_ERR_SYS || err == TIARA_ERR_NOMEM);
        failed += err != TIARA_OK;
        stage->close(scene.s);
    }
    EXPECT(&scene.e, failed <= 1);
    return scene_end(&scene);
}

START_TEST(test_stage_failing_calls)
{
    for (int n = 1; n <= 4 && gpu_have_standin(); n++) {
        char fail[64];

        snprintf(fail, sizeof fail, "%s:%d", calls[_i], n);
        ck_assert_msg(tiara_procs_run(1, rank_fails, fail) == 0, "%s", fail);
    }
}
END_TEST

/* What it is not for. */
static int rank_refuses(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct scene scene;
    uint64_t host = 0;

    (void)group;
    (void)arg;
    if (!scene_begin(&scene, rank, NULL))
        return scene.e.failures;
    stage->close(scene.s);
    EXPECT(&scene.e, stage->open(scene.s, &host) == TIARA_ERR_SYS);
    return scene_end(&scene);
}

START_TEST(test_stage_of_host_memory_is_refused)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_refuses, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stage");
    TCase *all = tcase_create("all");

    tcase_add_test(all, test_stage_copies_arrive);
    tcase_add_test(all, test_stage_takes_nothing_once_grown);
    tcase_add_test(all, test_stage_starts_and_returns);
    tcase_add_loop_test(all, test_stage_failing_calls, 0, (int)(sizeof calls / sizeof calls[0]));
    tcase_add_test(all, test_stage_of_host_memory_is_refused);
    suite_add_tcase(suite, all);
    return tiara_test_run(suite, CK_NOFORK);
}
