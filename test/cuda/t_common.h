/*
 * What tests of the CUDA part's memory side share. Ranks are forked processes, and only they call
 * CUDA: a runtime does not survive a fork. So settings of the stand-in are variables that a rank
 * sets before its first call.
 */
#ifndef TIARA_TEST_CUDA_COMMON_H
#define TIARA_TEST_CUDA_COMMON_H

#include "test/harness/expect.h"
#include "test/harness/procs.h"
#include "test/harness/test.h"
#include "base/alloc.h"
#include "gpu/gpu.h"
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT_CUDA(e, call) EXPECT((e), (call) == cudaSuccess)

/* Opens the CUDA part and makes device @rank modulo their number current; returns that device, or
 * -1. */
int gpu_begin(struct tiara_expect *e, enum tiara_log_level level);

/* Whether this is the stand-in, with its settings, and not a GPU that others use too. */
bool gpu_is_standin(void);
/* The same for whoever is no rank, and may not call CUDA: asks a rank, once. */
bool gpu_have_standin(void);

/* Waits for all ranks of the group. */
bool gpu_barrier(struct tiara_expect *e, const struct tiara_xport_group *group);

/* Descriptors that this process has open. */
int gpu_descriptors(void);

/* Free bytes of the current device. */
size_t gpu_free_bytes(void);

/* @n words at device address @at become tiara_test_bits(@key, index). */
bool gpu_fill(struct tiara_expect *e, void *at, int key, size_t n);

/* Whether they are words @first and so on of that. */
bool gpu_is_filled(const void *at, int key, size_t first, size_t n);

/* ---- memory that is mapped piece by piece ---- */

#define GPU_PIECES 4

/* Pieces side by side. */
struct gpu_vmm {
    CUdeviceptr base;
    size_t piece_bytes;
    int pieces;
};

/* Maps new memory for piece @i; @vmm has addresses already. */
void gpu_vmm_map(
    struct tiara_expect *e, const struct gpu_vmm *vmm, int i, int device, bool can_share);
void gpu_vmm_unmap(struct tiara_expect *e, const struct gpu_vmm *vmm, int i);

/* @pieces of the smallest size; space for GPU_PIECES. */
void gpu_vmm_make(
    struct tiara_expect *e, struct gpu_vmm *vmm, int device, int pieces, bool can_share);
void gpu_vmm_free(struct tiara_expect *e, struct gpu_vmm *vmm);

#endif
