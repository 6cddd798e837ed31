/*
 * The reduction kernel: one fold over the whole grid.
 *
 * The lanes of the fold are all threads of all thread blocks, so there are no tiles and no barrier,
 * but for the table of sources, which lies in shared memory because it is indexed.
 */
#ifndef TIARA_KERNELS_REDUCE_H
#define TIARA_KERNELS_REDUCE_H

#include "table.h"

struct k_reduce_shared {
    const char *src[TIARA_KERNEL_PEERS];
};

K_FN void k_reduce_run(struct k_lane &lane, const struct tiara_kernel_reduce_args &args,
    struct k_reduce_shared &shared)
{
    const uint32_t index = lane.block * lane.count + lane.index;
    const uint32_t lanes = lane.nblocks * lane.count;
    char *dst = (char *)args.dst;
    bool skew;

    for (uint32_t k = lane.index; k < (uint32_t)args.nsrc; k += lane.count)
        shared.src[k] = (const char *)args.src[k];
    k_sync(lane);
    skew = k_skewed(dst, shared.src, args.nsrc);
    k_fold(args.type, args.oper, dst, shared.src, args.nsrc, args.count, skew, index, lanes);
    if (args.finish_ranks)
        k_divide(args.type, dst, args.finish_ranks, args.count, skew, index, lanes);
}

#endif
