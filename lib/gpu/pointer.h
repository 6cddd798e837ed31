/*
 * Private to lib/gpu: what a pointer is (tiara_gpu.look).
 */
#ifndef TIARA_GPU_POINTER_H
#define TIARA_GPU_POINTER_H

#include "gpu/gpu.h"

/*
 * As tiara_gpu.look. Any thread. id is 0, and share NONE, where the driver cannot tell allocations
 * from each other. Also TIARA_ERR_SYS: CUDA does not answer.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_pointer_look(
    const void *ptr, size_t bytes, struct tiara_gpu_pointer *pointer_out);

/* Is the allocation that look() described still there? */
bool tiara_gpu_pointer_lives(const struct tiara_gpu_pointer *pointer);

/* Forgets all that was seen. */
void tiara_gpu_pointer_forget(void);

#endif
