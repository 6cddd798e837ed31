/*
 * What the tests of the stand-in share: checks of results, and a gate that holds a stream until the
 * test opens it, so that "not yet" can be seen without clocks.
 *
 * Each test is a process of its own (CK_FORK_GETENV): its variables are set before its first CUDA
 * call.
 */
#ifndef STANDIN_CHECK_H
#define STANDIN_CHECK_H

#include "kernels/kernels.h"
#include "test/harness/test.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CK_CUDA(call) CK_CODE(cudaSuccess, call)
#define CK_CODE(code, call)                                                                        \
    do {                                                                                           \
        cudaError_t got_ = (call);                                                                 \
        ck_assert_msg(                                                                             \
            got_ == (code), #call ": %s, not %s", cudaGetErrorName(got_), cudaGetErrorName(code)); \
    } while (0)

/* Misuse is only an error from now on, so that a test can look at it. */
static inline void be_lenient(void)
{
    setenv("STANDIN_STRICT", "0", 1);
}

/*
 * A byte of device memory as the host sees it now: the stand-in's device memory is the host's too.
 */
static inline int look(const unsigned char *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline unsigned char *device_bytes(size_t bytes)
{
    void *at;

    CK_CUDA(cudaMalloc(&at, bytes));
    memset(at, 0, bytes);
    return at;
}

static inline cudaStream_t stream_new(unsigned flags)
{
    cudaStream_t stream;

    CK_CUDA(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static inline cudaEvent_t event_new(unsigned flags)
{
    cudaEvent_t event;

    CK_CUDA(cudaEventCreateWithFlags(&event, flags));
    return event;
}

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int is_open;
};
#define GATE_CLOSED                                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                     \
    }

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}
/* For cudaLaunchHostFunc; also to wait for what a stream opens. */
static inline void gate_pass(void *arg)
{
    struct gate *gate = arg;

    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}
static inline void gate_open_host(void *arg)
{
    gate_open(arg);
}

/* Launches the kernel that waits for *expect_at to be @expect, and then writes @value to @word. */
static inline void probe(
    cudaStream_t stream, uint64_t *word, uint64_t value, const uint64_t *expect_at, uint64_t expect)
{
    static uint32_t abort_word;
    static struct tiara_kernel_status status;
    struct tiara_kernel_probe_args args = {
        word, value, expect_at, expect, {&abort_word, &status, 0}};
    void *argv[] = {&args};

    CK_CUDA(cudaLaunchKernel(
        (const void *)tiara_kernel_probe, (dim3){1, 1, 1}, (dim3){32, 1, 1}, argv, 0, stream));
}

#endif
