/*
 * The stand-in for the CUDA runtime: stream capture and graphs, and what breaks a capture.
 */
#include "test/cuda/t_cudart_check.h"

static void count_call(void *arg)
{
    ++*(int *)arg;
}

START_TEST(test_graph_replays)
{
    cudaStream_t stream = stream_new(cudaStreamNonBlocking), side = stream_new(0);
    cudaEvent_t fork_at = event_new(cudaEventDisableTiming), join = event_new(0);
    unsigned char *device = device_bytes(10);
    struct gate gate = GATE_CLOSED;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    int calls = 0;

    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CK_CUDA(cudaLaunchHostFunc(stream, count_call, &calls));
    CK_CUDA(cudaEventRecord(fork_at, stream));
    CK_CUDA(cudaStreamWaitEvent(side, fork_at, 0));
    /* A branch that waits for the other: they run at the same time, in any order. */
    CK_CUDA(cudaLaunchHostFunc(stream, gate_pass, &gate));
    CK_CUDA(cudaMemsetAsync(device + 1, 3, 1, side));
    CK_CUDA(cudaLaunchHostFunc(side, gate_open_host, &gate));
    CK_CUDA(cudaEventRecord(join, side));
    CK_CUDA(cudaStreamWaitEvent(stream, join, 0));
    CK_CUDA(cudaMemcpyAsync(device, device + 1, 1, cudaMemcpyDeviceToDevice, stream));
    CK_CUDA(cudaStreamEndCapture(stream, &graph));
    CK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CK_CUDA(cudaGraphDestroy(graph));
    ck_assert_int_eq(calls, 0);
    for (int i = 0; i < 1000; i++) {
        device[0] = 0;
        gate.is_open = 0;
        CK_CUDA(cudaGraphLaunch(exec, i & 1 ? stream : side));
        CK_CUDA(cudaStreamSynchronize(i & 1 ? stream : side));
        ck_assert_int_eq(look(device), 3);
        ck_assert_int_eq(calls, i + 1);
    }
    CK_CUDA(cudaGraphExecDestroy(exec));
}
END_TEST

/* What is not allowed while @stream is captured, and what it returns. */
static void capture_break(int how, cudaStream_t stream, cudaStream_t other)
{
    cudaEvent_t event = event_new(0);
    void *at;

    switch (how) {
    case 0:
        CK_CODE(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
        break;
    case 1:
        CK_CODE(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream));
        break;
    case 2:
        CK_CODE(cudaErrorStreamCaptureUnsupported, cudaMalloc(&at, 10));
        break;
    case 3:
        CK_CUDA(cudaEventRecord(event, other));
        CK_CODE(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream, event, 0));
        break;
    case 4:
        CK_CUDA(cudaEventRecord(event, stream));
        CK_CODE(cudaErrorCapturedEvent, cudaEventSynchronize(event));
        break;
    case 5:
        CK_CODE(cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize());
        break;
    default:
        CK_CODE(cudaErrorStreamCaptureImplicit, cudaLaunchHostFunc(NULL, count_call, NULL));
        break;
    }
}

START_TEST(test_capture_is_broken_by)
{
    cudaStream_t stream = stream_new(cudaStreamDefault), other = stream_new(0);
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph;

    CK_CUDA(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    capture_break(_i, stream, other);
    CK_CUDA(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL));
    ck_assert_int_eq(status, cudaStreamCaptureStatusInvalidated);
    CK_CODE(cudaErrorStreamCaptureInvalidated, cudaLaunchHostFunc(stream, count_call, NULL));
    CK_CODE(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
    CK_CUDA(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(test_capture_by_mode_allows)
{
    enum cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = stream_new(cudaStreamNonBlocking);
    cudaGraph_t graph;
    void *at;

    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
    CK_CUDA(cudaMalloc(&at, 10));
    CK_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
    ck_assert_int_eq(relaxed, cudaStreamCaptureModeRelaxed);
    CK_CUDA(cudaStreamEndCapture(stream, &graph));
    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CK_CUDA(cudaFree(at));
    CK_CUDA(cudaStreamEndCapture(stream, &graph));
}
END_TEST

START_TEST(test_capture_ends_as_it_should)
{
    cudaStream_t stream = stream_new(cudaStreamNonBlocking), side = stream_new(0);
    cudaEvent_t event = event_new(0);
    cudaGraph_t graph;

    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaEventRecord(event, stream));
    CK_CUDA(cudaStreamWaitEvent(side, event, 0));
    CK_CUDA(cudaLaunchHostFunc(side, count_call, NULL));
    CK_CODE(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &graph));
    CK_CODE(cudaErrorStreamCaptureUnsupported,
        cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaEventRecord(event, stream));
    CK_CUDA(cudaStreamWaitEvent(side, event, 0));
    CK_CODE(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(side, &graph));
    CK_CODE(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
}
END_TEST

START_TEST(test_kernel_in_a_graph)
{
    cudaStream_t stream = stream_new(cudaStreamNonBlocking);
    uint64_t *words = (uint64_t *)device_bytes(16);
    cudaGraphExec_t exec;
    cudaGraph_t graph;

    CK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CK_CUDA(cudaMemsetAsync(words, 0, 16, stream));
    probe(stream, &words[0], 5, NULL, 0);
    probe(stream, &words[1], 6, &words[0], 5);
    CK_CUDA(cudaStreamEndCapture(stream, &graph));
    CK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 10; i++) {
        words[1] = 0;
        CK_CUDA(cudaGraphLaunch(exec, stream));
        CK_CUDA(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(words[1], 6);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cudart_graph");
    TCase *capture = tcase_create("capture");

    tcase_add_test(capture, test_graph_replays);
    tcase_add_test(capture, test_kernel_in_a_graph);
    tcase_add_loop_test(capture, test_capture_is_broken_by, 0, 7);
    tcase_add_test(capture, test_capture_by_mode_allows);
    tcase_add_test(capture, test_capture_ends_as_it_should);
    suite_add_tcase(suite, capture);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
