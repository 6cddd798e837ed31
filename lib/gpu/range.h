/*
 * Private to lib/gpu: ranges on the time line of NVIDIA's profilers, where their header was found.
 *
 * A range begins when the host starts a stage and ends when the host sees that it is over; ranges
 * of different chunks overlap. Without a profiler a range costs the test of a pointer.
 */
#ifndef TIARA_GPU_RANGE_H
#define TIARA_GPU_RANGE_H

#include <stdint.h>

#define TIARA_GPU_RANGE_NODE "tiara node" /* kernels among the GPUs of the node */
#define TIARA_GPU_RANGE_NET "tiara net" /* a message between nodes */
#define TIARA_GPU_RANGE_COPY "tiara copy" /* between device memory and pinned memory */

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
static inline uint64_t tiara_gpu_range_begin(const char *name)
{
    return nvtxRangeStartA(name);
}
static inline void tiara_gpu_range_end(uint64_t range)
{
    nvtxRangeEnd(range);
}
#else
static inline uint64_t tiara_gpu_range_begin(const char *name)
{
    (void)name;
    return 0;
}
static inline void tiara_gpu_range_end(uint64_t range)
{
    (void)range;
}
#endif

#endif
