/* tiara-test: timeout 300 */
/*
 * Calls that are ordered in streams of the caller: many in a row, in two streams, in graphs, mixed
 * with calls that return when they are over; failures, which a poll finds; and gates.
 *
 * Where order counts, calls are in place on one buffer: after k calls of n ranks each element is
 * n^(k-1) times the sum, modulo 2^32, and with n = 3 no call can be missing, doubled or overtaken
 * unseen.
 */
#include "gpu/node.h"
#include "test/cuda/t_scene.h"

#define CELL_BYTES ((size_t)65536)
#define RANKS 3
#define LAYOUT "1x3"

struct chain {
    struct gpu_act act;
    struct gpu_data data;
    struct tiara_plan plan;
    cudaStream_t stream[2];
    uint32_t factor; /* of the sum, after the calls so far */
};

static void chain_init(struct chain *c, struct gpu_actor *a, size_t count)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};

    *c = (struct chain){.act = {.coll = TIARA_COLL_ALLREDUCE,
                            .count = count,
                            .chunk_elems = 2000,
                            .slots = 2,
                            .in_place = true,
                            .digest = 4711}};
    EXPECT(&a->e, gpu_plan_make(a, &tiara_algo_direct, &opts, &c->plan) == TIARA_OK);
    gpu_data_init(&c->data, a, &c->act);
    gpu_data_fill(&c->data, a, &c->act, 0);
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(&a->e, cudaStreamCreateWithFlags(&c->stream[i], cudaStreamNonBlocking));
}

static void chain_fini(struct chain *c, struct gpu_actor *a)
{
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(&a->e, cudaStreamDestroy(c->stream[i]));
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    gpu_data_fini(&c->data, a);
    tiara_plan_fini(&c->plan);
}

/* One more call has been made. */
static void chain_count(struct chain *c)
{
    c->factor = c->factor ? c->factor * RANKS : 1;
}

static void chain_enqueue(struct chain *c, struct gpu_actor *a, int stream, bool packets)
{
    c->act.plan = packets ? NULL : &c->plan;
    EXPECT(&a->e, gpu_enqueue(a, &c->act, c->data.in, c->data.out, c->stream[stream]) == TIARA_OK);
    chain_count(c);
}

static void chain_verify(struct chain *c, struct gpu_actor *a)
{
    struct gpu_data *d = &c->data;
    size_t wrong = 0;

    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(&a->e, cudaStreamSynchronize(c->stream[i]));
    EXPECT_CUDA(&a->e, cudaMemcpy(d->host, d->all, d->n * sizeof(int32_t), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < d->nout; i++)
        wrong += (uint32_t)d->host[d->out_at + i] != (uint32_t)tiara_test_sum(RANKS, i) * c->factor;
    EXPECT(&a->e, wrong == 0);
    EXPECT(&a->e, d->host[d->out_at - 1] == 0x5a5a5a5a && d->host[d->n - 1] == 0x5a5a5a5a);
}

static void poll_until_idle(struct gpu_actor *a)
{
    bool moved, idle = false;

    while (!idle && EXPECT(&a->e, tiara_gpu.node->poll(a->node, &moved, &idle) == TIARA_OK))
        ;
}

/* ---- order ---- */

static void play_two_streams(struct gpu_actor *a, void *arg)
{
    struct chain c;

    (void)arg;
    chain_init(&c, a, 4000);
    for (int i = 0; i < 100; i++)
        chain_enqueue(&c, a, (i / 3) % 2, i % 5 == 4);
    chain_verify(&c, a);
    poll_until_idle(a);
    /* A call that returns when it is over comes behind those that are enqueued. */
    for (int i = 0; i < 10; i++) {
        chain_enqueue(&c, a, i % 2, i % 3 == 1);
        c.act.plan = i % 2 ? NULL : &c.plan;
        EXPECT(&a->e, gpu_run(a, &c.act, c.data.in, c.data.out) == TIARA_OK);
        chain_count(&c);
    }
    chain_verify(&c, a);
    chain_fini(&c, a);
}

START_TEST(test_stream_calls_are_ordered)
{
    struct gpu_scene s = {.layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_two_streams};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* Nothing is lost when the node is closed at once, nor when the stream of the last call is gone. */
static void play_close_at_once(struct gpu_actor *a, void *arg)
{
    struct chain c;

    (void)arg;
    chain_init(&c, a, 4000);
    for (int i = 0; i < 5; i++)
        chain_enqueue(&c, a, 0, false);
    EXPECT_CUDA(&a->e, cudaStreamDestroy(c.stream[0]));
    EXPECT_CUDA(&a->e, cudaStreamCreateWithFlags(&c.stream[0], cudaStreamNonBlocking));
    for (int i = 0; i < 5; i++)
        chain_enqueue(&c, a, i % 2, i == 3);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    chain_verify(&c, a);
    chain_fini(&c, a);
}

START_TEST(test_stream_close_waits)
{
    struct gpu_scene s = {.layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_close_at_once};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* ---- graphs ---- */

#define REPLAYS 1000

static cudaGraphExec_t capture(struct chain *c, struct gpu_actor *a, bool packets)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    uint32_t factor = c->factor;

    EXPECT_CUDA(&a->e, cudaStreamBeginCapture(c->stream[0], cudaStreamCaptureModeThreadLocal));
    chain_enqueue(c, a, 0, packets);
    EXPECT_CUDA(&a->e, cudaStreamEndCapture(c->stream[0], &graph));
    EXPECT_CUDA(&a->e, cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_CUDA(&a->e, cudaGraphDestroy(graph));
    c->factor = factor; /* nothing has run yet */
    return exec;
}

static void play_graph(struct gpu_actor *a, void *arg)
{
    const bool packets = *(const int *)arg;
    cudaGraphExec_t exec;
    struct chain c;

    chain_init(&c, a, 4000);
    chain_enqueue(&c, a, 0, packets);
    exec = capture(&c, a, packets);
    for (int i = 0; i < REPLAYS; i++) {
        EXPECT_CUDA(&a->e, cudaGraphLaunch(exec, c.stream[0]));
        chain_count(&c);
        if (i % 100 == 50)
            chain_enqueue(&c, a, 0, !packets);
    }
    chain_verify(&c, a);
    c.act.plan = packets ? NULL : &c.plan;
    EXPECT(&a->e, gpu_run(a, &c.act, c.data.in, c.data.out) == TIARA_OK);
    chain_count(&c);
    chain_verify(&c, a);
    EXPECT_CUDA(&a->e, cudaGraphExecDestroy(exec));
    chain_fini(&c, a);
}

START_TEST(test_stream_graph_is_replayed)
{
    int packets = _i;
    struct gpu_scene s = {
        .layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_graph, .arg = &packets};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* What must not be captured is refused, and the capture goes on. */
static void play_refused(struct gpu_actor *a, void *arg)
{
    static const struct tiara_algo_opts single = {
        .coll = TIARA_COLL_ALLREDUCE, .single_copy = true};
    static const struct tiara_algo_opts flat = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_plan plans[2] = {{0}, {0}};
    cudaGraph_t graph = NULL;
    bool yes = false;
    struct chain c;

    (void)arg;
    chain_init(&c, a, 1000);
    EXPECT(&a->e, gpu_plan_make(a, &tiara_algo_direct, &single, &plans[0]) == TIARA_OK);
    EXPECT(&a->e, gpu_plan_make(a, &tiara_algo_ring, &flat, &plans[1]) == TIARA_OK);
    for (int i = 0; i < 2; i++) {
        c.act.plan = &plans[i];
        EXPECT(&a->e,
            gpu_enqueue(a, &c.act, c.data.in, c.data.out, c.stream[0]) == TIARA_ERR_UNSUPPORTED);
    }
    EXPECT(&a->e, tiara_gpu.stream->capturing(c.stream[0], &yes) == TIARA_OK && !yes);
    EXPECT_CUDA(&a->e, cudaStreamBeginCapture(c.stream[0], cudaStreamCaptureModeThreadLocal));
    EXPECT(&a->e, tiara_gpu.stream->capturing(c.stream[0], &yes) == TIARA_OK && yes);
    c.act.plan = &c.plan;
    EXPECT(
        &a->e, gpu_enqueue(a, &c.act, c.data.in, c.data.out, c.stream[0]) == TIARA_ERR_UNSUPPORTED);
    EXPECT_CUDA(&a->e, cudaStreamEndCapture(c.stream[0], &graph));
    EXPECT_CUDA(&a->e, cudaGraphDestroy(graph));
    chain_enqueue(&c, a, 0, false);
    chain_verify(&c, a);
    chain_fini(&c, a);
    tiara_plan_fini(&plans[0]);
    tiara_plan_fini(&plans[1]);
}

START_TEST(test_stream_what_cannot_be_enqueued_is_refused)
{
    struct gpu_scene s = {.layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_refused};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* A capture that forbids unsafe calls to the whole process does not disturb a call on private
 * streams, nor the call the capture. */
static void play_beside_capture(struct gpu_actor *a, void *arg)
{
    cudaGraph_t graph = NULL;
    struct chain c;

    (void)arg;
    chain_init(&c, a, 4000);
    EXPECT_CUDA(&a->e, cudaStreamBeginCapture(c.stream[0], cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 4; i++) {
        c.act.plan = i % 2 ? NULL : &c.plan;
        EXPECT(&a->e, gpu_run(a, &c.act, c.data.in, c.data.out) == TIARA_OK);
        chain_count(&c);
    }
    EXPECT_CUDA(&a->e, cudaStreamEndCapture(c.stream[0], &graph));
    EXPECT_CUDA(&a->e, cudaGraphDestroy(graph));
    chain_verify(&c, a);
    chain_fini(&c, a);
}

START_TEST(test_stream_call_beside_capture)
{
    struct gpu_scene s = {.layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_beside_capture};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* ---- failures ---- */

static void play_mismatch(struct gpu_actor *a, void *arg)
{
    const bool packets = *(const int *)arg;
    enum tiara_err err = TIARA_OK;
    bool moved, idle = false;
    struct chain c;

    chain_init(&c, a, 1000);
    chain_enqueue(&c, a, 0, packets);
    poll_until_idle(a);
    a->is_alone = true;
    c.act.digest += a->rank == 1;
    chain_enqueue(&c, a, 1, packets);
    while (!idle && err == TIARA_OK)
        err = tiara_gpu.node->poll(a->node, &moved, &idle);
    /* Said once. */
    EXPECT(&a->e, err == TIARA_ERR_MISMATCH);
    EXPECT(&a->e, tiara_gpu.node->poll(a->node, &moved, &idle) == TIARA_OK);
    EXPECT(&a->e, gpu_enqueue(a, &c.act, c.data.in, c.data.out, c.stream[0]) == TIARA_ERR_PEER);
    chain_fini(&c, a);
}

START_TEST(test_stream_mismatch_is_found_by_poll)
{
    int packets = _i;
    struct gpu_scene s = {
        .layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_mismatch, .arg = &packets};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/*
 * The last rank never comes; abort ends the kernels of the others, and close does not wait for it.
 */
static void play_abort(struct gpu_actor *a, void *arg)
{
    bool moved, idle = false;
    enum tiara_err err = TIARA_OK;
    struct chain c;

    (void)arg;
    chain_init(&c, a, 1000);
    if (a->rank < RANKS - 1) {
        chain_enqueue(&c, a, 0, false);
        EXPECT(&a->e, tiara_gpu.node->poll(a->node, &moved, &idle) == TIARA_OK && !idle);
        tiara_gpu.node->abort(a->node);
        while (!idle && err == TIARA_OK)
            err = tiara_gpu.node->poll(a->node, &moved, &idle);
        EXPECT(&a->e, err == TIARA_ERR_PEER);
    }
    chain_fini(&c, a);
}

START_TEST(test_stream_abort_ends_kernels)
{
    struct gpu_scene s = {.layout = LAYOUT, .cell_bytes = CELL_BYTES, .play = play_abort};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* ---- gates ---- */

/* Copies 1 in front of the gate, 2 behind it. */
static void pass_gate(struct gpu_actor *a, struct chain *c, int32_t *pinned, int32_t *device)
{
    void *gate = NULL;
    bool reached = false;

    pinned[0] = 1;
    pinned[1] = 2;
    pinned[2] = 0;
    EXPECT_CUDA(
        &a->e, cudaMemcpyAsync(device, &pinned[0], 4, cudaMemcpyHostToDevice, c->stream[0]));
    if (!EXPECT(&a->e, tiara_gpu.stream->gate(c->stream[0], a->device, &gate) == TIARA_OK))
        return;
    EXPECT(&a->e,
        tiara_gpu.stream->copy(c->stream[0], device + 2, device, sizeof(*device)) == TIARA_OK);
    EXPECT_CUDA(
        &a->e, cudaMemcpyAsync(device, &pinned[1], 4, cudaMemcpyHostToDevice, c->stream[0]));
    while (!reached && EXPECT(&a->e, tiara_gpu.stream->reached(gate, &reached) == TIARA_OK))
        ;
    EXPECT_CUDA(
        &a->e, cudaMemcpyAsync(&pinned[2], device, 4, cudaMemcpyDeviceToHost, c->stream[1]));
    EXPECT_CUDA(&a->e, cudaStreamSynchronize(c->stream[1]));
    EXPECT(&a->e, pinned[2] == 1);
    EXPECT(&a->e, cudaStreamQuery(c->stream[0]) == cudaErrorNotReady);
    (void)cudaGetLastError();
    tiara_gpu.stream->pass(gate);
    EXPECT_CUDA(&a->e, cudaStreamSynchronize(c->stream[0]));
    EXPECT_CUDA(&a->e, cudaMemcpy(pinned, device, 12, cudaMemcpyDeviceToHost));
    EXPECT(&a->e, pinned[0] == 2 && pinned[2] == 1);
}

static void play_gates(struct gpu_actor *a, void *arg)
{
    void *pinned = NULL, *device = NULL, *held[3] = {NULL};
    uint64_t live = 0;
    struct chain c;

    (void)arg;
    chain_init(&c, a, 10);
    EXPECT_CUDA(&a->e, cudaMallocHost(&pinned, 64));
    EXPECT_CUDA(&a->e, cudaMalloc(&device, 64));
    for (int i = 0; i < 50; i++) {
        pass_gate(a, &c, pinned, device);
        live = i == 0 ? tiara_alloc_live() : live;
    }
    /* One gate was enough for all. */
    EXPECT(&a->e, tiara_alloc_live() == live);
    for (int i = 0; i < 3; i++)
        EXPECT(&a->e, tiara_gpu.stream->gate(c.stream[i % 2], a->device, &held[i]) == TIARA_OK);
    EXPECT(&a->e, tiara_alloc_live() == live + 2);
    tiara_gpu_stream_close();
    EXPECT(&a->e, tiara_alloc_live() == live + 2);
    for (int i = 0; i < 3; i++)
        tiara_gpu.stream->pass(held[i]);
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(&a->e, cudaStreamSynchronize(c.stream[i]));
    tiara_gpu_stream_close();
    EXPECT(&a->e, tiara_alloc_live() == live - 1);
    chain_fini(&c, a);
    EXPECT_CUDA(&a->e, cudaFree(device));
    EXPECT_CUDA(&a->e, cudaFreeHost(pinned));
}

START_TEST(test_stream_gate_holds)
{
    struct gpu_scene s = {.layout = "1x1", .cell_bytes = CELL_BYTES, .play = play_gates};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = tcase_create("stream");

    tcase_add_test(tcase, test_stream_calls_are_ordered);
    tcase_add_test(tcase, test_stream_close_waits);
    tcase_add_loop_test(tcase, test_stream_graph_is_replayed, 0, 2);
    tcase_add_test(tcase, test_stream_what_cannot_be_enqueued_is_refused);
    tcase_add_test(tcase, test_stream_call_beside_capture);
    tcase_add_loop_test(tcase, test_stream_mismatch_is_found_by_poll, 0, 2);
    tcase_add_test(tcase, test_stream_abort_ends_kernels);
    tcase_add_test(tcase, test_stream_gate_holds);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
