/*
 * The device executor: each thread block interprets a plan on its stripe of every block of the
 * vector.
 *
 * A thread block of one rank has to do with the same thread block of the peers only. It runs its
 * chunks one after the other, and the program of each in order: before an op, a few threads wait
 * for the peers' progress words, all of them in own memory; then all threads do the op; then, where
 * a peer waits for it, the threads release the new progress into the peers' memory.
 *
 * Why a barrier stands before each op: the waits of a few threads then hold for all, and an op may
 * read what other threads wrote in the one before. Why one stands before each post: the release by
 * one thread covers what all wrote.
 *
 * What can be left for the next launch: base counts the steps of all finished chunks, in the same
 * way on all ranks, so progress words never go back, and nothing is reset between launches. A
 * launch that is not the last of its chunks leaves base alone. After a failure nothing is counted:
 * the segments are not used again.
 */
#ifndef TIARA_KERNELS_EXEC_H
#define TIARA_KERNELS_EXEC_H

#include "table.h"
#include "wait.h"

struct k_exec_shared {
    struct k_watch watch;
    const char *src
        [2]
        [TIARA_KERNEL_PEERS]; /* sources of a fold; in turn, so that one barrier a fold is enough */
};

/* A launch, as one thread sees it. */
struct k_exec {
    const struct tiara_kernel_exec_args &a;
    struct k_lane &lane;
    struct k_exec_shared &shared;
    uint32_t shift; /* of the element's size */
    uint32_t fold; /* number of the next one */
    /* The present chunk. */
    int slot;
    uint64_t base; /* progress before its first step */
    int posted; /* step */
    uint64_t first, count; /* elements */
    uint64_t len; /* of a block */
};

/* ---- progress ---- */

/* Behind a barrier: all that this thread block did for steps <= @step is done. */
K_FN void k_post(struct k_exec &x, int step)
{
    const struct tiara_kernel_exec_args &a = x.a;

    for (int q = (int)x.lane.index; q < a.nranks; q += (int)x.lane.count) {
        size_t at = tiara_kernel_progress_at(x.slot, (int)x.lane.block, a.rank);
        /* [kernel.progress] release: what this thread block wrote is visible to the one that
         * acquires the word. */
        if (q != a.rank && a.peer[q].segment)
            k_release((uint64_t *)(a.peer[q].segment + at), x.base + (uint64_t)step);
    }
    x.posted = step;
}

/* Whether @peer has come to @want in @slot, by one thread. */
K_FN bool k_reached(struct k_exec &x, int slot, int peer, uint64_t want, int step)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const char *word =
        a.peer[a.rank].segment + tiara_kernel_progress_at(slot, (int)x.lane.block, peer);

    /* [kernel.progress] acquire */
    return k_await((const uint64_t *)word, want, x.lane, x.shared.watch, a.guard, peer, step);
}

/*
 * All threads; a barrier. Whether waits [first, first + n) hold. When not, the thread block must
 * leave. A peer out of reach reads nothing here, so what a plan waits for before it overwrites its
 * cells holds for it.
 */
K_FN bool k_hold(struct k_exec &x, int first, int n, int op)
{
    bool held = true;

    for (int i = (int)x.lane.index; i < n; i += (int)x.lane.count) {
        struct tiara_kernel_wait w = x.a.program.waits[first + i];
        if (x.a.peer[w.peer].segment)
            held = held && k_reached(x, x.slot, w.peer, x.base + (uint64_t)w.step, w.step);
    }
    if (!k_any(x.lane, !held))
        return true;
    k_report(x.lane, x.shared.watch, x.a.guard, op);
    return false;
}

/* ---- the call ---- */

/* Whether @peer's present call is this one; by one thread. */
K_FN bool k_same_call(struct k_exec &x, int peer, uint32_t number)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const char *at = a.peer[a.rank].segment + tiara_kernel_call_at(peer);
    struct k_spin spin = {0, 0};
    uint64_t word;

    /* [kernel.call] acquire. A number that differs is an older one: nobody goes on to the next call
     * before all ended this. */
    for (;;) {
        word = k_acquire((const uint64_t *)at);
        if ((uint32_t)(word >> 32) == number)
            break;
        if (!k_spin_on(spin, x.lane, x.shared.watch, a.guard, peer, 0))
            return false;
    }
    if ((uint32_t)word == a.digest)
        return true;
    k_give_up(x.lane, x.shared.watch, TIARA_KERNEL_MISMATCH, peer, 0, (uint32_t)word);
    return false;
}

/* All threads of thread block 0: tells the peers which call this is, and compares. False: leave. */
K_FN bool k_compare_calls(struct k_exec &x)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const uint32_t number = (uint32_t)(a.memory->calls + 1);
    bool same = true;

    for (int q = (int)x.lane.index; q < a.nranks; q += (int)x.lane.count)
        /* [kernel.call] release */
        if (q != a.rank && a.peer[q].segment)
            k_release((uint64_t *)(a.peer[q].segment + tiara_kernel_call_at(a.rank)),
                (uint64_t)number << 32 | a.digest);
    for (int q = (int)x.lane.index; q < a.nranks; q += (int)x.lane.count)
        if (q != a.rank && a.peer[q].segment)
            same = k_same_call(x, q, number) && same;
    if (k_any(x.lane, !same)) {
        k_report(x.lane, x.shared.watch, a.guard, -1);
        return false;
    }
    if (x.lane.index == 0)
        a.memory->calls++; /* read by all before the barrier */
    return true;
}

/*
 * All threads: whether peers' IN and OUT may be read. A plan that reads cells waits for steps of
 * this call anyway; one that reads a peer's IN does not, as no step writes it.
 */
K_FN bool k_begin_single_copy(struct k_exec &x)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const int block = (int)x.lane.block;
    const uint64_t number = a.memory->begun[block] + 1;
    const char *own = a.peer[a.rank].segment;
    bool begun = true;

    for (int q = (int)x.lane.index; q < a.nranks; q += (int)x.lane.count)
        /* [kernel.begun] release: what was written into IN before this launch */
        if (q != a.rank && (a.peer[q].in || a.peer[q].out))
            k_release(
                (uint64_t *)(a.peer[q].segment + tiara_kernel_begun_at(block, a.rank)), number);
    for (int q = (int)x.lane.index; q < a.nranks; q += (int)x.lane.count)
        /* [kernel.begun] acquire */
        if (q != a.rank && (a.peer[q].in || a.peer[q].out))
            begun = begun && k_await((const uint64_t *)(own + tiara_kernel_begun_at(block, q)),
                                 number, x.lane, x.shared.watch, a.guard, q, 0);
    if (k_any(x.lane, !begun)) {
        k_report(x.lane, x.shared.watch, a.guard, -1);
        return false;
    }
    if (x.lane.index == 0)
        a.memory->begun[block] = number; /* read by all before the barrier */
    return true;
}

/* ---- places ---- */

/* Elements from the beginning of a user buffer to block @b of the chunk. */
K_FN uint64_t k_user_offset(const struct k_exec &x, int64_t stride, int b)
{
    return x.first + (uint64_t)b * (stride < 0 ? x.len : (uint64_t)stride);
}

/* Where block @i of @slice begins. */
K_FN char *k_place(const struct k_exec &x, const struct tiara_kernel_slice &slice, int i)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const bool own = slice.owner == a.rank;
    const int b = slice.first + i;

    switch (slice.buf) {
    case TIARA_KERNEL_IN:
        return (char *)(uintptr_t)(own ? a.in : a.peer[slice.owner].in) +
               (k_user_offset(x, a.in_stride, b) << x.shift);
    case TIARA_KERNEL_OUT:
        return (char *)(uintptr_t)(own ? a.out : a.peer[slice.owner].out) +
               (k_user_offset(x, a.out_stride, b) << x.shift);
    case TIARA_KERNEL_CELL:
        return a.peer[slice.owner].segment + tiara_kernel_cell_at(x.slot, a.cell_bytes) +
               ((uint64_t)b * a.block_len << x.shift);
    default:
        return a.tmp + (uint64_t)x.slot * a.tmp_bytes + ((uint64_t)b * a.block_len << x.shift);
    }
}

/* This thread block's part of vector block @b: elements [*from_out, *from_out + returned) of it. */
K_FN uint64_t k_stripe(const struct k_exec &x, int b, uint64_t *from_out)
{
    const bool apart = x.a.in_stride >= 0 || x.a.out_stride >= 0;
    const uint64_t before = apart ? 0 : (uint64_t)b * x.len;
    const uint64_t left = x.count > before ? x.count - before : 0;
    const uint64_t size = apart || left < x.len ? left : x.len;
    const uint64_t from = x.lane.block * x.a.stripe;
    const uint64_t rest = size > from ? size - from : 0;

    *from_out = from;
    return rest < x.a.stripe ? rest : x.a.stripe;
}

/* ---- ops ---- */

K_FN void k_exec_copy(struct k_exec &x, const struct tiara_kernel_op *op)
{
    const struct tiara_kernel_slice to = op->dst, from = x.a.program.srcs[op->src];

    for (int i = 0; i < to.count; i++) {
        uint64_t skip, n = k_stripe(x, op->block + i, &skip);
        char *dst = k_place(x, to, i), *src = k_place(x, from, i);

        if (from.owner != x.a.rank)
            k_count_link(x.lane, n << x.shift);
        if (dst != src && n > 0)
            k_copy(dst + (skip << x.shift), src + (skip << x.shift), 1, n << x.shift, x.lane.index,
                x.lane.count);
    }
}

K_FN void k_exec_fold(struct k_exec &x, const struct tiara_kernel_op *op)
{
    const struct tiara_kernel_slice to = op->dst;

    for (int i = 0; i < to.count; i++) {
        const char **src = x.shared.src[x.fold & 1];
        uint64_t skip, n = k_stripe(x, op->block + i, &skip);
        char *dst = k_place(x, to, i) + (skip << x.shift);

        if (n == 0) /* alike on all threads */
            continue;
        for (int k = 0; k < op->nsrc; k++)
            if (x.a.program.srcs[op->src + k].owner != x.a.rank)
                k_count_link(x.lane, n << x.shift);
        for (int k = (int)x.lane.index; k < op->nsrc; k += (int)x.lane.count)
            src[k] = k_place(x, x.a.program.srcs[op->src + k], i) + (skip << x.shift);
        k_sync(x.lane);
        k_fold(x.a.type, x.a.oper, dst, src, op->nsrc, n, k_skewed(dst, src, op->nsrc),
            x.lane.index, x.lane.count);
        x.fold++;
    }
}

/* The division of AVG, on the finished OUT. */
K_FN void k_exec_finish(struct k_exec &x)
{
    const int nblocks = x.a.out_stride == 0 ? 1 : x.a.program.nblocks;

    for (int b = 0; b < nblocks; b++) {
        const struct tiara_kernel_slice out = {x.a.rank, TIARA_KERNEL_OUT, b, 1};
        uint64_t skip, n = k_stripe(x, b, &skip);

        if (n > 0)
            k_divide(x.a.type, k_place(x, out, 0) + (skip << x.shift), x.a.finish_ranks, n, false,
                x.lane.index, x.lane.count);
    }
}

/* ---- chunks ---- */

/* Steps of the launch's chunks in a slot, once @nchunks of them have gone through all slots in
 * turn. */
K_FN uint64_t k_steps_in(const struct k_exec &x, uint64_t turn, uint64_t nchunks)
{
    const uint64_t nslots = (uint64_t)x.a.nslots;
    const uint64_t chunks = nchunks > turn ? (nchunks - turn + nslots - 1) / nslots : 0;

    return chunks * (uint64_t)x.a.program.nsteps;
}

K_FN int k_slot_of(const struct k_exec &x, uint64_t chunk)
{
    return (int)(((uint64_t)x.a.slot + chunk) % (uint64_t)x.a.nslots);
}

K_FN void k_chunk_begin(struct k_exec &x, uint64_t c)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const uint64_t left = a.count - c * a.chunk_elems;

    x.slot = k_slot_of(x, c);
    x.base = a.memory->base[x.slot][x.lane.block] + k_steps_in(x, c % (uint64_t)a.nslots, c);
    x.posted = 0;
    x.first = c * a.chunk_elems;
    x.count = left < a.chunk_elems ? left : a.chunk_elems;
    x.len = c == a.nchunks - 1 ? a.last_block_len : a.block_len;
}

/* False: leave. */
K_FN bool k_chunk(struct k_exec &x)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const bool last = (a.flags & TIARA_KERNEL_LAST) != 0;

    if (a.head_post > 0)
        k_post(x, a.head_post);
    for (int i = a.first_op; i < a.end_op; i++) {
        const struct tiara_kernel_op *op = &a.program.ops[i];
        const int post = op->post;

        if (!k_hold(x, op->wait, op->nwait, i))
            return false;
        if (op->kind == TIARA_KERNEL_COPY)
            k_exec_copy(x, op);
        else if (op->kind == TIARA_KERNEL_REDUCE)
            k_exec_fold(x, op);
        if (post > 0) {
            k_sync(x.lane);
            k_post(x, post);
        }
    }
    if (!k_hold(x, a.tail_wait, a.tail_nwait, a.end_op))
        return false;
    if (last && a.finish_ranks > 0)
        k_exec_finish(x);
    if (last && x.posted < a.program.nsteps) {
        k_sync(x.lane);
        k_post(x, a.program.nsteps);
    }
    return true;
}

/* Until all peers have ended the last chunk in each slot; then counts the chunks. */
K_FN void k_exec_end(struct k_exec &x)
{
    const struct tiara_kernel_exec_args &a = x.a;
    const int used = (int)(a.nchunks < (uint64_t)a.nslots ? a.nchunks : (uint64_t)a.nslots);
    bool reached = true;

    for (int i = (int)x.lane.index; i < used * a.nranks; i += (int)x.lane.count) {
        int turn = i / a.nranks, peer = i % a.nranks, slot = k_slot_of(x, (uint64_t)turn);
        uint64_t end =
            a.memory->base[slot][x.lane.block] + k_steps_in(x, (uint64_t)turn, a.nchunks);

        if (peer != a.rank && a.peer[peer].segment)
            reached = reached && k_reached(x, slot, peer, end, a.program.nsteps);
    }
    if (k_any(x.lane, !reached)) {
        k_report(x.lane, x.shared.watch, a.guard, -1);
        return;
    }
    for (int turn = (int)x.lane.index; turn < used; turn += (int)x.lane.count)
        a.memory->base[k_slot_of(x, (uint64_t)turn)][x.lane.block] +=
            k_steps_in(x, (uint64_t)turn, a.nchunks);
}

K_FN void k_exec_run(
    struct k_lane &lane, const struct tiara_kernel_exec_args &args, struct k_exec_shared &shared)
{
    struct k_exec x = {args, lane, shared, k_size_shift(args.type), 0, 0, 0, 0, 0, 0, 0};

    k_watch_begin(lane, shared.watch);
    k_count_launch(lane);
    if (args.flags & TIARA_KERNEL_FIRST) {
        if (lane.block == 0 && !k_compare_calls(x))
            return;
        if (!k_begin_single_copy(x))
            return;
    }
    for (uint64_t c = 0; c < args.nchunks; c++) {
        k_chunk_begin(x, c);
        if (!k_chunk(x))
            return;
    }
    if (args.flags & TIARA_KERNEL_LAST)
        k_exec_end(x);
}

#endif
