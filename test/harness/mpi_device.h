/*
 * Memory of CUDA for tests under mpirun, which are not linked with it: the runtime is opened by
 * name, when TIARA_TEST_MEMORY asks for a kind of memory that needs it. So the same programs run
 * without CUDA, on the stand-in for its runtime (test/cuda/cudart) and on GPUs.
 *
 * Rank r of a node works on device r modulo their number.
 */
#ifndef TIARA_TEST_MPI_DEVICE_H
#define TIARA_TEST_MPI_DEVICE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where one buffer lives. */
enum mt_place {
    MT_PLACE_HOST,
    MT_PLACE_DEVICE, /* cudaMalloc */
    MT_PLACE_MANAGED,
    MT_PLACE_PINNED,
    MT_PLACE_POOL, /* cudaMallocAsync */
    MT_PLACE_VMM, /* cuMemCreate, with a file descriptor to share it by */
    MT_PLACE_SUB /* somewhere inside a large cudaMalloc */
};

/*
 * Where this rank's buffers live by TIARA_TEST_MEMORY: one of the above in small letters, "mixed":
 * on the device on even ranks only, whose peers do not know CUDA then, or "mixed-inout": one of the
 * two buffers of each call. @is_result: the buffer that the result goes to. Ends the process when
 * the variable names no kind.
 */
enum mt_place mt_place_of(bool is_result);

/*
 * Opens the runtime and makes this rank's device current, if this rank's buffers will need it.
 * NULL, or why that is impossible, with static storage. Local; once.
 */
const char *mt_device_open(void);
/*
 * Memory of @place, not MT_PLACE_HOST, on this rank's device. Failure ends the process. Any thread.
 */
void *mt_device_new(enum mt_place place, size_t bytes);
void mt_device_free(enum mt_place place, void *at, size_t bytes);
/* Copies between any two places; done on return. */
void mt_device_copy(void *to, const void *from, size_t bytes);

/* ---- for tests of the device paths themselves ---- */

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
typedef struct CUstream_st *mt_stream;

/* The functions of the runtime that tests call: name, arguments. All return 0 or an error. */
#define MT_CUDA_FUNCTIONS(X)                                                                       \
    X(GetDeviceCount, int *count_out)                                                              \
    X(SetDevice, int device)                                                                       \
    X(Malloc, void **at_out, size_t bytes)                                                         \
    X(MallocManaged, void **at_out, size_t bytes, unsigned flags)                                  \
    X(HostAlloc, void **at_out, size_t bytes, unsigned flags)                                      \
    X(MallocAsync, void **at_out, size_t bytes, mt_stream stream)                                  \
    X(Free, void *at)                                                                              \
    X(FreeHost, void *at)                                                                          \
    X(FreeAsync, void *at, mt_stream stream)                                                       \
    X(Memcpy, void *to, const void *from, size_t bytes, int kind)                                  \
    X(MemcpyAsync, void *to, const void *from, size_t bytes, int kind, mt_stream stream)           \
    X(MemsetAsync, void *at, int value, size_t bytes, mt_stream stream)                            \
    X(StreamCreateWithFlags, mt_stream *stream_out, unsigned flags)                                \
    X(StreamDestroy, mt_stream stream)                                                             \
    X(StreamSynchronize, mt_stream stream)                                                         \
    X(StreamQuery, mt_stream stream)                                                               \
    X(StreamBeginCapture, mt_stream stream, int mode)                                              \
    X(StreamEndCapture, mt_stream stream, struct CUgraph_st **graph_out)                           \
    X(GraphInstantiate, struct CUgraphExec_st **exec_out, struct CUgraph_st *graph,                \
        unsigned long long flags)                                                                  \
    X(GraphLaunch, struct CUgraphExec_st *exec, mt_stream stream)                                  \
    X(GraphExecDestroy, struct CUgraphExec_st *exec)                                               \
    X(GraphDestroy, struct CUgraph_st *graph)                                                      \
    X(LaunchHostFunc, mt_stream stream, void (*function)(void *), void *arg)                       \
    X(GetLastError, void)                                                                          \
    X(GetDriverEntryPointByVersion, const char *name, void **at_out, unsigned version,             \
        unsigned long long flags, int *found_out)

enum {
    MT_CUDA_COPY_ANY = 4, /* cudaMemcpyDefault */
    MT_CUDA_NON_BLOCKING = 1, /* cudaStreamNonBlocking */
    MT_CUDA_CAPTURE_RELAXED = 2, /* cudaStreamCaptureModeRelaxed */
    MT_CUDA_CAPTURE_THREAD = 1, /* cudaStreamCaptureModeThreadLocal */
    MT_CUDA_NOT_READY = 600 /* cudaErrorNotReady */
};

struct mt_cuda {
#define X(name, ...) int (*name)(__VA_ARGS__);
    MT_CUDA_FUNCTIONS(X)
#undef X
};
/* Valid after mt_device_open() returned NULL and this rank's buffers need CUDA; else NULL. */
const struct mt_cuda *mt_cuda(void);
/* The call of the table, which must succeed: else says so and ends the process, as a job without
 * its GPU can only hang. */
#define MT_CUDA(call) mt_cuda_must(mt_cuda()->call, #call)
void mt_cuda_must(int code, const char *call);

/* Calls on @comm that ran on the GPUs, and that were staged through host memory; by this rank's
 * count. Collective. */
struct mt_paths {
    unsigned long long gpus, staged;
};
struct mt_paths mt_paths(MPI_Comm comm);

#endif
