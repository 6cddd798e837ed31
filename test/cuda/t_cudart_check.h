/*
 * What the tests of the stand-in share: checks of results, and a gate that holds a stream until the
 * test opens it, so that "not yet" can be seen without clocks.
 *
 * Each test is a process of its own (CK_FORK_GETENV): its variables are set before its first CUDA
 * call.
 */
#ifndef TIARA_TEST_CUDART_CHECK_H
#define TIARA_TEST_CUDART_CHECK_H

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
void be_lenient(void);

/*
 * A byte of device memory as the host sees it now: the stand-in's device memory is the host's too.
 */
int look(const unsigned char *at);
unsigned char *device_bytes(size_t bytes);
cudaStream_t stream_new(unsigned flags);
cudaEvent_t event_new(unsigned flags);

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int is_open;
};

#define GATE_CLOSED                                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                     \
    }

void gate_open(struct gate *gate);

/* For cudaLaunchHostFunc; also to wait for what a stream opens. */
void gate_pass(void *arg);
void gate_open_host(void *arg);

/* Launches the kernel that waits for *expect_at to be @expect, and then writes @value to @word. */
void probe(cudaStream_t stream, uint64_t *word, uint64_t value, const uint64_t *expect_at,
    uint64_t expect);

#endif
