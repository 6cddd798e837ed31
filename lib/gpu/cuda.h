/*
 * Private to lib/gpu: how the CUDA runtime is called.
 *
 * Every call's result goes through tiara_gpu_ok(), which logs what failed, with CUDA's own words,
 * and takes the error away from the thread, so that the program never meets an error of ours in
 * cudaGetLastError().
 */
#ifndef TIARA_GPU_CUDA_H
#define TIARA_GPU_CUDA_H

#include "base/err.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* TIARA_OK, or TIARA_ERR_SYS (TIARA_ERR_NOMEM for cudaErrorMemoryAllocation) after logging
 * "cudaMalloc: out of memory". @call: its name. */
TIARA_MUST_USE enum tiara_err tiara_gpu_ok(cudaError_t code, const char *call);
/* The same, logged as info: another way exists. */
TIARA_MUST_USE enum tiara_err tiara_gpu_try(cudaError_t code, const char *call);

/* Whether all that was enqueued before @event is done. Errors: as tiara_gpu_ok. */
TIARA_MUST_USE enum tiara_err tiara_gpu_event_test(cudaEvent_t event, bool *done_out);

#endif
