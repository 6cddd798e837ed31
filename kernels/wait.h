/*
 * Waiting in a kernel: how a thread polls, what ends a wait that does not end by itself, and how a
 * thread block leaves.
 *
 * One idea: a thread that gives up writes why into its own record in shared memory, and sets the
 * stop word, which makes the block's other waiting threads give up too. At the next barrier all
 * know (k_any), one thread turns the records into the status line for the host, and the block
 * leaves as a whole.
 */
#ifndef TIARA_KERNELS_WAIT_H
#define TIARA_KERNELS_WAIT_H

#include "device.h"

/*
 * Looks at a word between two looks at the clock and at the abort word, which lies in host memory.
 */
#define K_POLLS 64

/* Why a thread gave up. */
struct k_record {
    uint32_t code; /* enum tiara_kernel_code */
    int32_t peer, step;
    uint32_t seen;
};

/* In shared memory. Thread i writes record i. */
struct k_watch {
    struct k_record record[TIARA_KERNEL_THREADS];
    uint32_t stop;
};

/* One wait of one thread. */
struct k_spin {
    uint32_t polls;
    uint64_t since; /* the first look at the clock; 0: none yet */
};

/* The first thing that a kernel does; ends in a barrier. */
K_FN void k_watch_begin(struct k_lane &lane, struct k_watch &watch)
{
    watch.record[lane.index].code = TIARA_KERNEL_OK;
    if (lane.index == 0)
        watch.stop = 0;
    k_sync(lane);
}

K_FN void k_give_up(const struct k_lane &lane, struct k_watch &watch, uint32_t code, int peer,
    int step, uint32_t seen)
{
    if (watch.record[lane.index].code == TIARA_KERNEL_OK)
        watch.record[lane.index] = {code, peer, step, seen};
    k_poke(&watch.stop, 1);
}

/* After a look at a word that has not come: whether to look again. False: this thread, or another,
 * has given up. */
K_FN bool k_spin_on(struct k_spin &spin, const struct k_lane &lane, struct k_watch &watch,
    const struct tiara_kernel_guard &guard, int peer, int step)
{
    uint64_t now;

    k_pause();
    if (++spin.polls % K_POLLS != 0)
        return true;
    if (k_peek(&watch.stop) != 0)
        return false;
    if (k_peek(guard.abort) != 0) {
        k_give_up(lane, watch, TIARA_KERNEL_ABORTED, peer, step, 0);
        return false;
    }
    if (guard.spin_ns == 0)
        return true;
    now = k_clock_ns();
    if (spin.since == 0)
        spin.since = now;
    if (now - spin.since <= guard.spin_ns)
        return true;
    k_give_up(lane, watch, TIARA_KERNEL_TIMEOUT, peer, step, 0);
    return false;
}

/* Until *word >= want. */
K_FN bool k_await(const uint64_t *word, uint64_t want, const struct k_lane &lane,
    struct k_watch &watch, const struct tiara_kernel_guard &guard, int peer, int step)
{
    struct k_spin spin = {0, 0};

    while (k_acquire(word) < want)
        if (!k_spin_on(spin, lane, watch, guard, peer, step))
            return false;
    return true;
}

/* Behind a barrier after which all threads leave: tells the host why. A difference between calls
 * explains the rest. */
K_FN void k_report(const struct k_lane &lane, const struct k_watch &watch,
    const struct tiara_kernel_guard &guard, int op)
{
    struct tiara_kernel_status *line = &guard.status[lane.block];
    const struct k_record *why = &watch.record[0];

    if (lane.index != 0)
        return;
    for (uint32_t i = 1; i < lane.count; i++) {
        const struct k_record *r = &watch.record[i];
        if (why->code == TIARA_KERNEL_OK ||
            (r->code == TIARA_KERNEL_MISMATCH && why->code != TIARA_KERNEL_MISMATCH))
            why = r;
    }
    line->peer = why->peer;
    line->op = op;
    line->step = why->step;
    line->seen = why->seen;
    /* [kernel.status] release: the host that acquires the code sees the rest of the line. */
    k_release32(&line->code, why->code);
}

#endif
