/*
 * The stand-in for the CUDA runtime: what is ordered behind what. Streams, events, kernels.
 *
 * A gate holds a stream, so that what must wait is seen not to have happened, and what need not is
 * waited for.
 */
#include "test/cuda/t_cudart_check.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void nothing(void *arg)
{
    (void)arg;
}

/* Lets all that can run do so, as far as can be known: wrong order shows itself here, right order
 * does not depend on it. */
static void others_run(void)
{
    cudaStream_t stream = stream_new(cudaStreamNonBlocking);

    for (int i = 0; i < 20; i++) {
        CK_CUDA(cudaLaunchHostFunc(stream, nothing, NULL));
        CK_CUDA(cudaStreamSynchronize(stream));
    }
    CK_CUDA(cudaStreamDestroy(stream));
}

/* ---- streams ---- */

START_TEST(test_stream_runs_in_order_and_later)
{
    struct gate gate = GATE_CLOSED;
    cudaStream_t stream = stream_new(cudaStreamNonBlocking);
    unsigned char *device = device_bytes(1000), *host;

    CK_CUDA(cudaMallocHost((void **)&host, 1000));
    CK_CUDA(cudaLaunchHostFunc(stream, gate_pass, &gate));
    CK_CUDA(cudaMemsetAsync(device, 1, 1000, stream));
    CK_CUDA(cudaMemcpyAsync(host, device, 1000, cudaMemcpyDeviceToHost, stream));
    CK_CUDA(cudaMemsetAsync(device, 2, 1000, stream));
    memset(host, 9, 1000);
    others_run();
    CK_CODE(cudaErrorNotReady, cudaStreamQuery(stream));
    ck_assert_int_eq(look(device), 0);
    gate_open(&gate);
    CK_CUDA(cudaStreamSynchronize(stream));
    CK_CUDA(cudaStreamQuery(stream));
    ck_assert_int_eq(host[999], 1);
    ck_assert_int_eq(look(device + 999), 2);
    CK_CUDA(cudaStreamDestroy(stream));
    CK_CUDA(cudaFree(device));
    CK_CUDA(cudaFreeHost(host));
}
END_TEST

START_TEST(test_delay_delays_copies)
{
    cudaStream_t stream = (setenv("STANDIN_DELAY_US", "30000", 1), stream_new(0));
    cudaEvent_t begin = event_new(0), end = event_new(0);
    unsigned char *device = device_bytes(10);
    float ms;

    CK_CUDA(cudaEventRecord(begin, stream));
    CK_CUDA(cudaMemsetAsync(device, 1, 10, stream));
    CK_CUDA(cudaEventRecord(end, stream));
    CK_CUDA(cudaEventSynchronize(end));
    CK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    ck_assert_msg(ms >= 30, "%g ms", ms);
}
END_TEST

/* @flags: of a stream beside the legacy default stream: blocking ones wait for it and hold it up,
 * others do not. */
static void check_legacy(unsigned flags, bool held_is_legacy)
{
    struct gate gate = GATE_CLOSED;
    cudaStream_t stream = stream_new(flags), held = held_is_legacy ? NULL : stream;
    cudaStream_t other = held_is_legacy ? stream : NULL;
    unsigned char *device = device_bytes(10);

    CK_CUDA(cudaLaunchHostFunc(held, gate_pass, &gate));
    CK_CUDA(cudaMemsetAsync(device, 1, 10, other));
    if (flags == cudaStreamNonBlocking) {
        CK_CUDA(cudaStreamSynchronize(other));
        ck_assert_int_eq(look(device), 1);
    } else {
        others_run();
        CK_CODE(cudaErrorNotReady, cudaStreamQuery(other));
        ck_assert_int_eq(look(device), 0);
    }
    gate_open(&gate);
    CK_CUDA(cudaDeviceSynchronize());
    ck_assert_int_eq(look(device), 1);
}

START_TEST(test_legacy_stream_waits_for_blocking_ones)
{
    check_legacy(_i & 1 ? cudaStreamNonBlocking : cudaStreamDefault, _i & 2);
}
END_TEST

START_TEST(test_legacy_stream_is_of_its_device)
{
    struct gate gate = GATE_CLOSED;
    unsigned char *device;

    CK_CUDA(cudaLaunchHostFunc(NULL, gate_pass, &gate));
    CK_CUDA(cudaSetDevice(1));
    device = device_bytes(10);
    CK_CUDA(cudaMemset(device, 1, 10));
    CK_CUDA(cudaStreamSynchronize(NULL));
    ck_assert_int_eq(look(device), 1);
    gate_open(&gate);
    CK_CUDA(cudaSetDevice(0));
    CK_CUDA(cudaDeviceSynchronize());
}
END_TEST

START_TEST(test_memset_and_device_copies_return_early)
{
    struct gate gate = GATE_CLOSED;
    unsigned char *device = device_bytes(10), *to = device_bytes(10);

    CK_CUDA(cudaLaunchHostFunc(NULL, gate_pass, &gate));
    CK_CUDA(cudaMemset(device, 1, 10));
    CK_CUDA(cudaMemcpy(to, device, 10, cudaMemcpyDeviceToDevice));
    ck_assert_int_eq(look(to), 0);
    gate_open(&gate);
    CK_CUDA(cudaStreamSynchronize(NULL));
    ck_assert_int_eq(look(to), 1);
}
END_TEST

static void call_cuda(void *arg)
{
    *(cudaError_t *)arg = cudaGetDevice(&(int){0});
}

START_TEST(test_host_function_may_not_call)
{
    cudaError_t code = cudaSuccess;
    cudaStream_t stream;

    be_lenient();
    stream = stream_new(0);
    CK_CUDA(cudaLaunchHostFunc(stream, call_cuda, &code));
    CK_CUDA(cudaStreamSynchronize(stream));
    ck_assert_int_eq(code, cudaErrorNotPermitted);
}
END_TEST

START_TEST(test_exit_does_not_wait_for_streams)
{
    static struct gate gate = GATE_CLOSED;
    int status;
    pid_t child = fork();

    if (child == 0) {
        if (cudaLaunchHostFunc(NULL, gate_pass, &gate) != cudaSuccess)
            exit(1);
        exit(7);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %d", status);
}
END_TEST

/* ---- events ---- */

START_TEST(test_event_orders_streams)
{
    struct gate gate = GATE_CLOSED;
    cudaStream_t first = stream_new(cudaStreamNonBlocking);
    cudaEvent_t event = event_new(cudaEventDisableTiming);
    unsigned char *device = device_bytes(10);
    cudaStream_t second;

    CK_CUDA(cudaEventQuery(event));
    CK_CUDA(cudaLaunchHostFunc(first, gate_pass, &gate));
    CK_CUDA(cudaMemsetAsync(device, 1, 10, first));
    CK_CUDA(cudaEventRecord(event, first));
    CK_CUDA(cudaSetDevice(1));
    second = stream_new(cudaStreamNonBlocking);
    CK_CUDA(cudaStreamWaitEvent(second, event, 0));
    CK_CUDA(cudaMemcpyAsync(device + 5, device, 1, cudaMemcpyDeviceToDevice, second));
    others_run();
    CK_CODE(cudaErrorNotReady, cudaEventQuery(event));
    CK_CODE(cudaErrorNotReady, cudaStreamQuery(second));
    gate_open(&gate);
    CK_CUDA(cudaStreamSynchronize(second));
    CK_CUDA(cudaEventSynchronize(event));
    ck_assert_int_eq(look(device + 5), 1);
}
END_TEST

/* A wait is for the record at the time of the call, whatever is recorded later and elsewhere. */
START_TEST(test_event_recorded_again_changes_no_wait)
{
    struct gate gate = GATE_CLOSED;
    cudaStream_t slow = stream_new(cudaStreamNonBlocking);
    cudaStream_t fast = stream_new(cudaStreamNonBlocking);
    cudaStream_t waiter = stream_new(cudaStreamNonBlocking);
    cudaEvent_t event = event_new(0);
    float ms;

    CK_CUDA(cudaLaunchHostFunc(slow, gate_pass, &gate));
    CK_CUDA(cudaEventRecord(event, slow));
    CK_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    CK_CUDA(cudaEventRecord(event, fast));
    CK_CUDA(cudaEventSynchronize(event));
    others_run();
    CK_CODE(cudaErrorNotReady, cudaStreamQuery(waiter));
    gate_open(&gate);
    CK_CUDA(cudaStreamSynchronize(waiter));
    CK_CUDA(cudaEventElapsedTime(&ms, event, event));
    ck_assert(ms == 0);
}
END_TEST

/* ---- kernels ---- */

#define COUNT 10007

START_TEST(test_kernel_runs_on_its_arguments)
{
    struct tiara_kernel_reduce_args args = {TIARA_TYPE_I32, TIARA_OPER_SUM, 0, 3, COUNT, 0, {0}};
    void *argv[] = {&args};
    struct gate gate = GATE_CLOSED;
    int32_t *dst, *src[3];
    cudaStream_t stream;

    setenv("STANDIN_THREADS", _i ? "3" : "1", 1);
    stream = stream_new(0);
    args.dst = dst = (int32_t *)device_bytes(COUNT * 4);
    for (int k = 0; k < 3; k++) {
        args.src[k] = src[k] = (int32_t *)device_bytes(COUNT * 4);
        for (size_t i = 0; i < COUNT; i++)
            src[k][i] = tiara_test_value(k, i);
    }
    CK_CUDA(cudaLaunchHostFunc(stream, gate_pass, &gate));
    CK_CUDA(cudaLaunchKernel(
        (const void *)tiara_kernel_reduce, (dim3){100, 1, 1}, (dim3){64, 1, 1}, argv, 0, stream));
    memset(&args, 0, sizeof args);
    gate_open(&gate);
    CK_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(dst[i], tiara_test_sum(3, i));
}
END_TEST

/*
 * Kernels of 12 streams, each of which waits for the one of the stream that was launched after it.
 */
START_TEST(test_kernels_run_at_the_same_time)
{
    enum {
        N = 12
    };
    uint64_t *words = (uint64_t *)device_bytes((N + 1) * 8);

    for (int i = 0; i < N; i++)
        probe(stream_new(cudaStreamNonBlocking), &words[i], 1, &words[i + 1], 1);
    others_run();
    ck_assert_uint_eq(__atomic_load_n(&words[0], __ATOMIC_ACQUIRE), 0);
    probe(stream_new(cudaStreamNonBlocking), &words[N], 1, NULL, 0);
    CK_CUDA(cudaDeviceSynchronize());
    ck_assert_uint_eq(words[0], 1);
}
END_TEST

START_TEST(test_launch_misuse_is_an_error)
{
    struct tiara_kernel_probe_args args = {NULL, 0, NULL, 0, {NULL, NULL, 0}};
    const void *kernel = (const void *)tiara_kernel_probe;
    void *argv[] = {&args};
    const dim3 one = {1, 1, 1}, none = {0, 1, 1}, many = {2048, 1, 1};
    cudaStream_t stream;
    struct cudaFuncAttributes attributes;
    int blocks;

    be_lenient();
    stream = stream_new(0);
    CK_CODE(cudaErrorInvalidDeviceFunction,
        cudaLaunchKernel((const void *)probe, one, one, argv, 0, stream));
    CK_CODE(cudaErrorInvalidConfiguration, cudaLaunchKernel(kernel, none, one, argv, 0, stream));
    CK_CODE(cudaErrorInvalidConfiguration, cudaLaunchKernel(kernel, one, many, argv, 0, stream));
    CK_CUDA(cudaSetDevice(1));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaLaunchKernel(kernel, one, one, argv, 0, stream));
    CK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    ck_assert_int_ge(attributes.maxThreadsPerBlock, TIARA_KERNEL_THREADS);
    CK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 512, 0));
    ck_assert_int_gt(blocks, 0);
    CK_CODE(
        cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&attributes, (const void *)probe));
}
END_TEST

/* ---- threads ---- */

static void *thread_work(void *arg)
{
    unsigned char *device, *host, value = (unsigned char)(uintptr_t)arg;
    cudaStream_t stream;

    for (int i = 0; i < 100; i++) {
        if (cudaStreamCreate(&stream) || cudaMalloc((void **)&device, 5000) ||
            cudaMallocHost((void **)&host, 5000) || cudaMemsetAsync(device, value, 5000, stream) ||
            cudaMemcpyAsync(host, device, 5000, cudaMemcpyDeviceToHost, stream) ||
            cudaStreamSynchronize(stream) || host[4999] != value || cudaFree(device) ||
            cudaFreeHost(host) || cudaStreamDestroy(stream))
            return (void *)1;
    }
    return NULL;
}

START_TEST(test_threads_do_not_disturb_each_other)
{
    pthread_t threads[4];
    void *failed;

    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_work, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cudart_order");
    TCase *streams = tcase_create("streams"), *kernels = tcase_create("kernels");

    tcase_add_test(streams, test_stream_runs_in_order_and_later);
    tcase_add_test(streams, test_delay_delays_copies);
    tcase_add_loop_test(streams, test_legacy_stream_waits_for_blocking_ones, 0, 4);
    tcase_add_test(streams, test_legacy_stream_is_of_its_device);
    tcase_add_test(streams, test_memset_and_device_copies_return_early);
    tcase_add_test(streams, test_host_function_may_not_call);
    tcase_add_test(streams, test_exit_does_not_wait_for_streams);
    tcase_add_test(streams, test_event_orders_streams);
    tcase_add_test(streams, test_event_recorded_again_changes_no_wait);
    tcase_add_test(streams, test_threads_do_not_disturb_each_other);
    tcase_add_loop_test(kernels, test_kernel_runs_on_its_arguments, 0, 2);
    tcase_add_test(kernels, test_kernels_run_at_the_same_time);
    tcase_add_test(kernels, test_launch_misuse_is_an_error);
    suite_add_tcase(suite, streams);
    suite_add_tcase(suite, kernels);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
