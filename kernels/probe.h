/*
 * The probe: one thread waits for a word and writes another; with it the host finds out which
 * mappings work.
 */
#ifndef TIARA_KERNELS_PROBE_H
#define TIARA_KERNELS_PROBE_H

#include "wait.h"

struct k_probe_shared {
    struct k_watch watch;
};

K_FN void k_probe_run(
    struct k_lane &lane, const struct tiara_kernel_probe_args &args, struct k_probe_shared &shared)
{
    struct k_spin spin = {0, 0};

    k_watch_begin(lane, shared.watch);
    if (lane.index != 0)
        return;
    /* [kernel.probe] acquire: the word of another launch's release. */
    while (args.expect_at && k_acquire(args.expect_at) != args.expect) {
        if (!k_spin_on(spin, lane, shared.watch, args.guard, -1, 0)) {
            k_report(lane, shared.watch, args.guard, -1);
            return;
        }
    }
    /* [kernel.probe] release. */
    k_release(args.word, args.value);
}

#endif
