/*
 * Device memory, streams, gates and the probe of the tests of the stand-in.
 */
#include "test/cuda/t_cudart_check.h"

void be_lenient(void)
{
    setenv("STANDIN_STRICT", "0", 1);
}

int look(const unsigned char *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

unsigned char *device_bytes(size_t bytes)
{
    void *at;

    CK_CUDA(cudaMalloc(&at, bytes));
    memset(at, 0, bytes);
    return at;
}

cudaStream_t stream_new(unsigned flags)
{
    cudaStream_t stream;

    CK_CUDA(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

cudaEvent_t event_new(unsigned flags)
{
    cudaEvent_t event;

    CK_CUDA(cudaEventCreateWithFlags(&event, flags));
    return event;
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

void gate_pass(void *arg)
{
    struct gate *gate = arg;

    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

void gate_open_host(void *arg)
{
    gate_open(arg);
}

void probe(
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
