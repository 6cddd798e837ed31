/*
 * What tiara-bench needs of a GPU machine: memory, copies and a stream of the CUDA runtime, and
 * NCCL to compare with.
 *
 * The program links against neither. Both are opened at run time, when an option asks for them,
 * through small tables of functions whose few types are written here by hand: enumerations and
 * error codes are int, handles are pointers. So one program serves machines with and without GPUs.
 */
#ifndef TIARA_BENCH_DEVICE_H
#define TIARA_BENCH_DEVICE_H

#include "bench.h"

/* The functions of the CUDA runtime, without "cuda" in front. 0 is success. */
struct bench_cuda {
    const char *(*GetErrorString)(int code);
    int (*GetDeviceCount)(int *count);
    int (*SetDevice)(int device);
    int (*RuntimeGetVersion)(int *version);
    int (*DeviceGetAttribute)(int *value, int attribute, int device);
    int (*MemGetInfo)(size_t *available, size_t *total);
    int (*Malloc)(void **ptr, size_t bytes);
    int (*Free)(void *ptr);
    int (*MallocHost)(void **ptr, size_t bytes);
    int (*FreeHost)(void *ptr);
    int (*MemsetAsync)(void *dst, int value, size_t bytes, void *stream);
    int (*MemcpyAsync)(void *dst, const void *src, size_t bytes, int kind, void *stream);
    int (*StreamCreateWithFlags)(void **stream, unsigned flags);
    int (*StreamSynchronize)(void *stream);
    int (*StreamDestroy)(void *stream);
};

/* This rank's GPU. The failure is of the first CUDA or NCCL call that failed, for whoever reports
 * that the run did. */
struct bench_device {
    struct bench_cuda cuda;
    int version; /* of the runtime: 13000 = 13.0 */
    int node_ranks, node_gpus; /* of this rank's node, and how many GPUs they use */
    int sharers; /* ranks that have this GPU; the most of all ranks' */
    int ordinal; /* in this process */
    void *stream; /* for everything that is done here; waits for no other stream */
    bool mpi_direct; /* the MPI takes GPU memory on all ranks */
    struct bench_why failure;
};

/*
 * Opens the runtime and takes a GPU: the rank on the node, modulo the number of GPUs. Collective:
 * all ranks succeed, or all return false with the sentence of the lowest rank that could not.
 * @device can be closed either way.
 */
bool bench_device_open(struct bench_device *device, MPI_Comm comm, struct bench_why *why);
void bench_device_close(struct bench_device *device);
/* Each false after keeping the failure. The copies are complete on return. */
bool bench_device_fetch(struct bench_device *device, void *near, const void *far, size_t bytes);
bool bench_device_store(struct bench_device *device, void *far, const void *near, size_t bytes);
bool bench_device_wait(struct bench_device *device);
/* GPU memory, cleared, and pinned host memory; NULL after keeping the failure. */
void *bench_device_alloc(struct bench_device *device, size_t bytes);
void *bench_device_alloc_host(struct bench_device *device, size_t bytes);
/* NULL is allowed. */
void bench_device_free(struct bench_device *device, void *far);
void bench_device_free_host(struct bench_device *device, void *near);
/* The GPU's L2 cache. */
size_t bench_device_cache_bytes(const struct bench_device *device);
/* Bytes of GPU memory that this rank may take, when all that share the GPU take as much. */
size_t bench_device_available(struct bench_device *device);
/* Whether the MPI below says that it takes GPU memory, or TIARA_CUDA_AWARE says it. Local. */
bool bench_device_mpi_is_direct(void);

/* ---- NCCL (bench_nccl.c) ---- */

struct bench_nccl; /* opaque: the functions and a communicator */

/* False with a sentence when NCCL has no such type or operator. Needs neither NCCL nor MPI. */
bool bench_nccl_knows(
    const struct bench_type *type, const struct bench_op *op, struct bench_why *why);
/*
 * Opens NCCL and makes its communicator of @comm's ranks. Collective: all ranks succeed, or all
 * return NULL with the sentence of the lowest rank that could not. @device must be open, and
 * outlive it.
 */
struct bench_nccl *bench_nccl_open(struct bench_device *device, const struct bench_options *opts,
    MPI_Comm comm, struct bench_why *why);
/* NULL is allowed. */
void bench_nccl_close(struct bench_nccl *nccl);
/* Enqueued in the device's stream. False after keeping the failure. */
bool bench_nccl_allreduce(struct bench_nccl *nccl, const void *send, void *recv, size_t count);
/* 22105 = 2.21.5; 0 when it does not tell. */
int bench_nccl_version(const struct bench_nccl *nccl);

/* True on all ranks when @mine is on all; else @why becomes the sentence of the lowest rank that
 * had one. Collective. */
bool bench_all_ranks(bool mine, MPI_Comm comm, struct bench_why *why);

#endif
