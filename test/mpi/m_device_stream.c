/*
 * TIARA_Allreduce_on_stream: the call takes its place among the copies of a stream, and no host
 * waits in between; alone, in two streams, beside blocking calls, captured into a graph, and across
 * nodes with a thread that drives the network and without one.
 *
 * TIARA_TEST_MULTIPLE=1 initialises MPI with MPI_THREAD_MULTIPLE; 2: on even ranks only.
 */
/* tiara-test: mpirun 1 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=ring */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=none */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_DELAY_US=2000 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_TEST_NODES=2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_TEST_NODES=2 TIARA_TEST_MULTIPLE=1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3+1
 * TIARA_TEST_NODES=2 TIARA_TEST_MULTIPLE=1 STANDIN_DELAY_US=1000 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_TEST_NODES=2 TIARA_TEST_MULTIPLE=2 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"
#include "tiara_cuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM = 400000 /* ints of a lane */
};

/* A stream, and what flows through it: pinned input to device memory, a call, and pinned output.
 * Parts of all four arrays are used once. */
struct lane {
    mt_stream stream;
    int *input, *output; /* [ROOM], pinned */
    int *send, *recv; /* [ROOM], of the device */
    size_t used;
    MPI_Comm comm;
};

/* A call that has been enqueued: what to look at when the stream is through. */
struct step {
    struct lane *lane;
    size_t first, count;
    uint64_t seed;
};

static struct lane lane_new(MPI_Comm comm)
{
    struct lane lane = {.comm = comm};
    const size_t bytes = ROOM * sizeof(int);
    MT_CUDA(StreamCreateWithFlags(&lane.stream, MT_CUDA_NON_BLOCKING));
    lane.input = mt_device_new(MT_PLACE_PINNED, bytes);
    lane.output = mt_device_new(MT_PLACE_PINNED, bytes);
    lane.send = mt_device_new(MT_PLACE_DEVICE, bytes);
    lane.recv = mt_device_new(MT_PLACE_DEVICE, bytes);
    memset(lane.output, 0x77, bytes);
    return lane;
}

static void lane_free(struct lane *lane)
{
    const size_t bytes = ROOM * sizeof(int);
    MT_CUDA(StreamSynchronize(lane->stream));
    MT_CUDA(StreamDestroy(lane->stream));
    mt_device_free(MT_PLACE_PINNED, lane->input, bytes);
    mt_device_free(MT_PLACE_PINNED, lane->output, bytes);
    mt_device_free(MT_PLACE_DEVICE, lane->send, bytes);
    mt_device_free(MT_PLACE_DEVICE, lane->recv, bytes);
}

static int datum(uint64_t seed, int rank, size_t i)
{
    return (int)(mt_hash(seed * 64 + (uint64_t)rank, i) % 100000);
}

/* Is @data the sum over all ranks? */
static void check_sum(const char *what, const int *data, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        int want = 0;
        for (int r = 0; r < mt_size; r++)
            want += datum(seed, r, i);
        if (!mt_check(data[i] == want, "%s of %zu, seed %d: element %zu is %d, not %d", what, count,
                (int)seed, i, data[i], want))
            return;
    }
}

/* The copies around a call, and the call. Nothing waits; the receive buffer is spoiled first. */
static int enqueue_around(
    struct lane *lane, size_t first, size_t count, bool in_place, MPI_Datatype type)
{
    size_t bytes = count * sizeof(int);
    int size = 0;
    MPI_Type_size(type, &size);
    MT_CUDA(MemsetAsync(lane->recv + first, 0xee, bytes, lane->stream));
    MT_CUDA(MemcpyAsync((in_place ? lane->recv : lane->send) + first, lane->input + first, bytes,
        MT_CUDA_COPY_ANY, lane->stream));
    int err =
        TIARA_Allreduce_on_stream(in_place ? MPI_IN_PLACE : lane->send + first, lane->recv + first,
            (MPI_Count)(bytes / (size_t)size), type, MPI_SUM, lane->comm, lane->stream);
    MT_CUDA(MemsetAsync(lane->send + first, 0xdd, bytes, lane->stream));
    MT_CUDA(MemcpyAsync(
        lane->output + first, lane->recv + first, bytes, MT_CUDA_COPY_ANY, lane->stream));
    return err;
}

static struct step enqueue(struct lane *lane, size_t count, bool in_place, uint64_t seed)
{
    struct step step = {lane, lane->used, count, seed};
    lane->used += count;
    mt_note("on stream, count %zu, in place %d, seed %d", count, in_place, (int)seed);
    if (lane->used > ROOM)
        abort();
    for (size_t i = 0; i < count; i++)
        lane->input[step.first + i] = datum(seed, mt_rank, i);
    int err = enqueue_around(lane, step.first, count, in_place, MPI_INT);
    mt_check(err == MPI_SUCCESS, "count %zu, seed %d: error %d", count, (int)seed, err);
    return step;
}

static void check_step(const struct step *step)
{
    check_sum("stream", step->lane->output + step->first, step->count, step->seed);
}

static const size_t counts[] = {1, 3, 4096, 12, 30000, 4097, 2, 70000, 777, 16};

START_TEST(test_stream_calls_are_ordered_among_copies)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    struct step steps[20];
    for (unsigned k = 0; k < 20; k++)
        steps[k] = enqueue(&lane, counts[k % 10], k % 3 == 1, k);
    MT_CUDA(StreamSynchronize(lane.stream));
    for (unsigned k = 0; k < 20; k++)
        check_step(&steps[k]);
    mt_check(TIARA_Comm_synchronize(MPI_COMM_WORLD) == MPI_SUCCESS, "synchronize failed");
    lane_free(&lane);
    mt_agree();
}
END_TEST

/* Each call may overtake those of the other stream as far as its stream goes; the communicator's
 * memory serves both. */
START_TEST(test_stream_calls_in_two_streams_are_right)
{
    enum {
        CALLS = 200
    };
    struct lane lanes[2] = {lane_new(MPI_COMM_WORLD), lane_new(MPI_COMM_WORLD)};
    struct step steps[CALLS];
    unsigned n = mt_sweep() > 0 ? CALLS : CALLS / 4;
    for (unsigned k = 0; k < n; k++) {
        size_t count = k % 20 == 7 ? 20000 : 1 + mt_hash(mt_seed(), k) % 600;
        steps[k] = enqueue(&lanes[k % 2 ^ (k % 7 == 3)], count, k % 4 == 2, 100 + k);
    }
    mt_check(TIARA_Comm_synchronize(MPI_COMM_WORLD) == MPI_SUCCESS, "synchronize failed");
    for (int k = 0; k < 2; k++)
        MT_CUDA(StreamSynchronize(lanes[k].stream));
    for (unsigned k = 0; k < n; k++)
        check_step(&steps[k]);
    lane_free(&lanes[0]);
    lane_free(&lanes[1]);
    mt_agree();
}
END_TEST

/* Blocking calls between enqueued ones, without a wait for the stream: on host memory, and on GPU
 * memory of their own. */
START_TEST(test_stream_calls_beside_blocking_ones_are_right)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    struct step steps[24];
    for (unsigned k = 0; k < 24; k++) {
        int mine = mt_rank + (int)k, sum = -1;
        struct mt_case c = {.type = mt_type_find(MPI_FLOAT),
            .oper = MT_SUM,
            .count = counts[(k + 3) % 10],
            .in_place = k % 2,
            .seed = mt_seed() + k,
            .comm = MPI_COMM_WORLD};
        steps[k] = enqueue(&lane, counts[k % 7], k % 2, 300 + k);
        if (k % 3 == 0)
            mt_allreduce(&c);
        if (k % 4 == 1) {
            TIARA_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            mt_check(sum == mt_size * (int)k + mt_size * (mt_size - 1) / 2, "host sum is %d", sum);
        }
        if (k % 5 == 2)
            MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    MT_CUDA(StreamSynchronize(lane.stream));
    for (unsigned k = 0; k < 24; k++)
        check_step(&steps[k]);
    lane_free(&lane);
    mt_agree();
}
END_TEST

/* After it, results are there for a stream that never waited. */
START_TEST(test_stream_synchronize_waits_for_calls)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    mt_stream other;
    MT_CUDA(StreamCreateWithFlags(&other, MT_CUDA_NON_BLOCKING));
    for (unsigned k = 0; k < 10; k++) {
        struct step step = enqueue(&lane, counts[k], false, 400 + k);
        mt_check(TIARA_Comm_synchronize(MPI_COMM_WORLD) == MPI_SUCCESS, "synchronize failed");
        int *view = mt_device_new(MT_PLACE_PINNED, step.count * sizeof *view);
        MT_CUDA(MemcpyAsync(
            view, lane.recv + step.first, step.count * sizeof *view, MT_CUDA_COPY_ANY, other));
        MT_CUDA(StreamSynchronize(other));
        check_sum("synchronized", view, step.count, step.seed);
        mt_device_free(MT_PLACE_PINNED, view, step.count * sizeof *view);
    }
    MT_CUDA(StreamDestroy(other));
    lane_free(&lane);
    mt_agree();
}
END_TEST

/* Types that kernels do not know, the default stream, no data, a communicator of one rank. */
START_TEST(test_stream_calls_that_are_special_are_right)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    int mine = mt_rank;
    for (unsigned k = 0; k < 4; k++) {
        size_t n = k % 2 ? 20000 : 6, first = lane.used;
        lane.used += n;
        float *in = (float *)lane.input + first, *out = (float *)lane.output + first;
        for (size_t i = 0; i < n; i++)
            in[i] = (float)(i % 1000 + (size_t)mt_rank);
        mt_note("complex on stream, count %zu", n);
        int err = enqueue_around(&lane, first, n, k / 2, MPI_C_FLOAT_COMPLEX);
        MT_CUDA(StreamSynchronize(lane.stream));
        size_t wrong = 0;
        for (size_t i = 0; i < n; i++)
            wrong += out[i] !=
                     (float)((size_t)mt_size * (i % 1000) + (size_t)(mt_size * (mt_size - 1) / 2));
        mt_check(err == MPI_SUCCESS && wrong == 0, "complex, %zu floats: error %d, %zu wrong", n,
            err, wrong);
    }
    mt_note("no data on stream");
    mt_check(TIARA_Allreduce_on_stream(lane.send, lane.recv, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                 lane.stream) == MPI_SUCCESS,
        "no data: an error");
    mt_note("default stream");
    mt_device_copy(lane.send, &mine, sizeof mine);
    int err =
        TIARA_Allreduce_on_stream(lane.send, lane.recv, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, NULL);
    mt_device_copy(&mine, lane.recv, sizeof mine);
    mt_check(err == MPI_SUCCESS && mine == mt_size * (mt_size - 1) / 2,
        "default stream: error %d, sum %d", err, mine);
    mt_note("self on stream");
    mt_device_copy(lane.send, &mt_rank, sizeof mine);
    err = TIARA_Allreduce_on_stream(
        lane.send, lane.recv, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, lane.stream);
    MT_CUDA(StreamSynchronize(lane.stream));
    mt_device_copy(&mine, lane.recv, sizeof mine);
    mt_check(err == MPI_SUCCESS && mine == mt_rank, "self: error %d, sum %d", err, mine);
    lane_free(&lane);
    mt_agree();
}
END_TEST

/* ---- graphs ---- */

/* Captures a call with the copies around it. Returns what the call returned. */
static int capture(struct lane *lane, size_t count, bool in_place, struct CUgraph_st **graph_out)
{
    MT_CUDA(StreamBeginCapture(lane->stream, MT_CUDA_CAPTURE_THREAD));
    int err = enqueue_around(lane, 0, count, in_place, MPI_INT);
    MT_CUDA(StreamEndCapture(lane->stream, graph_out));
    return err;
}

/* One graph, replayed with other data each time. */
static void replay(size_t count, bool in_place, int times)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *exec = NULL;
    struct step first = enqueue(&lane, count, in_place, 500);
    MT_CUDA(StreamSynchronize(lane.stream));
    check_step(&first);
    mt_note("capture of %zu", count);
    int err = capture(&lane, count, in_place, &graph);
    if (mt_check(err == MPI_SUCCESS, "capture of %zu: error %d", count, err)) {
        MT_CUDA(GraphInstantiate(&exec, graph, 0));
        for (int k = 0; k < times; k++) {
            uint64_t seed = 1000 + (uint64_t)k;
            mt_note("replay %d of %zu", k, count);
            for (size_t i = 0; i < count; i++)
                lane.input[i] = datum(seed, mt_rank, i);
            MT_CUDA(GraphLaunch(exec, lane.stream));
            MT_CUDA(StreamSynchronize(lane.stream));
            check_sum("replay", lane.output, count, seed);
        }
        MT_CUDA(GraphExecDestroy(exec));
    }
    MT_CUDA(GraphDestroy(graph));
    lane_free(&lane);
}

START_TEST(test_stream_graph_of_a_call_can_be_replayed)
{
    int most = mt_sweep() > 0 ? 1000 : 100;
    replay(300, false, most);
    replay(4, true, most / 10);
    replay(50000, false, most / 50);
    replay(9000, true, most / 50);
    mt_check(TIARA_Comm_synchronize(MPI_COMM_WORLD) == MPI_SUCCESS, "synchronize failed");
    struct mt_case c = {.type = mt_type_find(MPI_INT),
        .oper = MT_SUM,
        .count = 5000,
        .seed = mt_seed(),
        .comm = MPI_COMM_WORLD};
    mt_allreduce(&c);
    mt_agree();
}
END_TEST

/* Several launches are in flight at a time, as in a training loop. */
START_TEST(test_stream_graph_launches_may_pile_up)
{
    struct lane lane = lane_new(MPI_COMM_WORLD);
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *exec = NULL;
    enqueue(&lane, 200, false, 600);
    MT_CUDA(StreamSynchronize(lane.stream));
    if (mt_check(capture(&lane, 200, false, &graph) == MPI_SUCCESS, "capture failed")) {
        MT_CUDA(GraphInstantiate(&exec, graph, 0));
        for (int k = 0; k < 40; k++)
            MT_CUDA(GraphLaunch(exec, lane.stream));
        MT_CUDA(StreamSynchronize(lane.stream));
        check_sum("piled up", lane.output, 200, 600);
        MT_CUDA(GraphExecDestroy(exec));
    }
    MT_CUDA(GraphDestroy(graph));
    lane_free(&lane);
    mt_agree();
}
END_TEST

/* Where a call cannot be captured, it is refused on all ranks alike, and the communicator goes on.
 * @warm: after a call of the kind. */
static void check_refused(MPI_Comm comm, bool warm)
{
    struct lane lane = lane_new(comm);
    struct CUgraph_st *graph = NULL;
    int class = MPI_SUCCESS;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (warm)
        enqueue(&lane, 2000, false, 700);
    MT_CUDA(StreamSynchronize(lane.stream));
    mt_note("refused capture");
    mt_stderr_begin();
    MPI_Error_class(capture(&lane, 2000, false, &graph), &class);
    char *text = mt_stderr_end();
    mt_check(class == MPI_ERR_UNSUPPORTED_OPERATION, "error class %d", class);
    mt_check(strstr(text, "captured") != NULL, "said %s", text);
    free(text);
    MT_CUDA(GraphDestroy(graph));
    struct step next = enqueue(&lane, 3000, false, 701);
    MT_CUDA(StreamSynchronize(lane.stream));
    check_step(&next);
    lane_free(&lane);
}

START_TEST(test_stream_capture_that_cannot_be_is_refused)
{
    if (mt_size > 1) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        check_refused(comm, mt_env("TIARA_TEST_NODES", 1) > 1);
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

/* ---- wrong buffers ---- */

/* @all: every rank passes host memory; else the last one. */
static void check_host_memory(bool all)
{
    MPI_Comm comm;
    int class = MPI_SUCCESS, here[100] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    struct lane lane = lane_new(comm);
    struct step warm = enqueue(&lane, 100, false, 800);
    MT_CUDA(StreamSynchronize(lane.stream));
    check_step(&warm);
    bool wrong = all || mt_rank == mt_size - 1;
    mt_note("host memory on %s", all ? "all ranks" : "one rank");
    mt_stderr_begin();
    int err = TIARA_Allreduce_on_stream(
        wrong ? here : lane.send, lane.recv, 100, MPI_INT, MPI_SUM, comm, lane.stream);
    int later = wrong ? MPI_SUCCESS : TIARA_Comm_synchronize(comm);
    char *text = mt_stderr_end();
    MPI_Error_class(err, &class);
    mt_check(!wrong || class == MPI_ERR_BUFFER, "error class %d", class);
    mt_check(!wrong || (strstr(text, "sendbuf") && strstr(text, "host memory")), "said %s", text);
    mt_check(err != MPI_SUCCESS || later != MPI_SUCCESS,
        "another rank's host memory was no error, said %s", text);
    free(text);
    mt_note("after host memory on %s", all ? "all ranks" : "one rank");
    struct mt_case c = {.type = mt_type_find(MPI_INT),
        .oper = MT_SUM,
        .count = 100,
        .seed = mt_seed(),
        .comm = comm};
    mt_allreduce(&c);
    lane_free(&lane);
    MPI_Comm_free(&comm);
}

START_TEST(test_stream_host_memory_is_an_error)
{
    check_host_memory(true);
    if (mt_size > 1)
        check_host_memory(false);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    long multiple = mt_env("TIARA_TEST_MULTIPLE", 0);
    /* Before MPI_Init: Open MPI's variable, and that of the others. */
    bool odd = (mt_env("OMPI_COMM_WORLD_RANK", 0) + mt_env("PMI_RANK", 0)) % 2 != 0;
    int required =
        multiple == 1 || (multiple == 2 && !odd) ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    TCase *tests = mt_begin(&argc, &argv, "m_device_stream", required);
    bool one_node = mt_env("TIARA_TEST_NODES", 1) == 1;
    const char *peers = getenv("STANDIN_PEERS");
    if (!mt_cuda())
        return mt_skip("TIARA_TEST_MEMORY is not device");
    tcase_add_test(tests, test_stream_calls_are_ordered_among_copies);
    tcase_add_test(tests, test_stream_calls_in_two_streams_are_right);
    tcase_add_test(tests, test_stream_calls_beside_blocking_ones_are_right);
    tcase_add_test(tests, test_stream_synchronize_waits_for_calls);
    tcase_add_test(tests, test_stream_calls_that_are_special_are_right);
    if (one_node && !(peers && strcmp(peers, "none") == 0)) {
        tcase_add_test(tests, test_stream_graph_of_a_call_can_be_replayed);
        tcase_add_test(tests, test_stream_graph_launches_may_pile_up);
    }
    tcase_add_test(tests, test_stream_capture_that_cannot_be_is_refused);
    tcase_add_test(tests, test_stream_host_memory_is_an_error);
    return mt_end();
}
