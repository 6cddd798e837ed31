/*
 * Short vectors in packets: an all-reduce in one step, with no flag but those that travel beside
 * the data.
 *
 * Each rank writes its vector into an inbox on every peer, as packets {data, flag, data, flag}, and
 * folds all vectors itself, in rank order. Half a packet arrives whole, so a flag that is right
 * means that the data beside it is; no order among packets is needed, and no release or acquire.
 * The flag is the call's number, counted alike on all ranks.
 *
 * Why two inboxes, used in turn, are enough. Rank A writes into B's inbox of call n, which was that
 * of call n - 2, when its call n has begun; so its call n - 1 is over; so it had all packets of B's
 * call n - 1; so B's call n - 1 had begun, and B's call n - 2 was over before that, as launches of
 * one rank run one after the other. So B does not read the packets of call n - 2 any more. And B
 * does not take those of n - 2 for those of n, since the flags differ: they return after 2^32 - 1
 * calls, and then in the other inbox.
 *
 * A call that ends with an error is not counted, and the segments are not used again.
 */
#ifndef TIARA_KERNELS_SMALL_H
#define TIARA_KERNELS_SMALL_H

#include "table.h"
#include "wait.h"

#define K_TILE_BYTES 32768 /* of all ranks' parts together */
#define K_BATCH 4 /* packets that a thread waits for at a time */

struct k_small_shared {
    alignas(16) char tile[K_TILE_BYTES];
    struct k_watch watch;
};

struct k_small {
    const struct tiara_kernel_small_args &a;
    struct k_lane &lane;
    struct k_small_shared &shared;
    uint32_t flag;
    int parity;
    uint32_t bytes, npackets; /* of the vector */
    uint32_t stride; /* bytes of one rank's part of a tile, a multiple of 16 */
};

/* Packet @i of what @from wrote to @owner; 0: the head. */
K_FN char *k_inbox(const struct k_small &x, int owner, int from, uint32_t i)
{
    return x.a.segment[owner] + tiara_kernel_packets_at(x.parity, from) +
           (size_t)i * TIARA_KERNEL_PACKET;
}

/* Bytes [8 i, 8 i + 8) of the own vector, zeros behind its end, in words 0 and 2. */
K_FN struct k_vec k_own_packet(const struct k_small &x, uint32_t i)
{
    const char *in = (const char *)x.a.in + i * 8;
    uint64_t data = 0;

    if (x.bytes - i * 8 >= 8 && (uintptr_t)in % 8 == 0) {
        data = k_load<uint64_t>(in);
    } else {
        for (uint32_t j = 0; j < 8 && i * 8 + j < x.bytes; j++)
            data |= (uint64_t)k_load<uint8_t>(in + j) << (8 * j);
    }
    return {{(uint32_t)data, x.flag, (uint32_t)(data >> 32), x.flag}};
}

K_FN void k_push(const struct k_small &x)
{
    for (uint32_t i = x.lane.index; i <= x.npackets; i += x.lane.count) {
        struct k_vec packet = {{x.a.digest, x.flag, x.bytes, x.flag}};

        if (i > 0)
            packet = k_own_packet(x, i - 1);
        for (int j = 1; j < x.a.nranks; j++)
            k_packet_put(k_inbox(x, (x.a.rank + j) % x.a.nranks, x.a.rank, i), packet);
    }
}

K_FN bool k_has_come(const struct k_small &x, const struct k_vec &packet)
{
    return packet.w[1] == x.flag && packet.w[3] == x.flag;
}

/* Whether the peers call the same; by the first threads, one peer each. */
K_FN bool k_same_heads(const struct k_small &x)
{
    bool same = true;

    for (int q = (int)x.lane.index; q < x.a.nranks; q += (int)x.lane.count) {
        const char *at = k_inbox(x, x.a.rank, q, 0);
        struct k_spin spin = {0, 0};
        struct k_vec head;

        if (q == x.a.rank)
            continue;
        while (head = k_packet_get(at), !k_has_come(x, head))
            if (!k_spin_on(spin, x.lane, x.shared.watch, x.a.guard, q, 0))
                return false;
        if (head.w[0] != x.a.digest || head.w[2] != x.bytes) {
            k_give_up(x.lane, x.shared.watch, TIARA_KERNEL_MISMATCH, q, 0, head.w[0]);
            same = false;
        }
    }
    return same;
}

/*
 * Items of a tile are its @n packets of rank 0, those of rank 1, and so on. This thread brings
 * items i, i + step, ... into shared memory, K_BATCH at most.
 */
K_FN bool k_gather(const struct k_small &x, uint32_t first, uint32_t n, uint32_t i, uint32_t step)
{
    const uint32_t items = n * (uint32_t)x.a.nranks;
    struct k_vec packet[K_BATCH];
    struct k_spin spin = {0, 0};

    for (;;) {
        uint32_t late = items;

        K_UNROLL
        for (uint32_t j = 0; j < K_BATCH; j++) {
            uint32_t item = i + j * step < items ? i + j * step : i;
            int from = (int)(item / n);
            packet[j] = from == x.a.rank
                            ? k_own_packet(x, first + item % n)
                            : k_packet_get(k_inbox(x, x.a.rank, from, 1 + first + item % n));
        }
        K_UNROLL
        for (uint32_t j = 0; j < K_BATCH; j++)
            if (i + j * step < items && !k_has_come(x, packet[j]))
                late = i + j * step;
        if (late == items)
            break;
        if (!k_spin_on(spin, x.lane, x.shared.watch, x.a.guard, (int)(late / n), 0))
            return false;
    }
    K_UNROLL
    for (uint32_t j = 0; j < K_BATCH; j++) {
        uint32_t item = i + j * step;
        if (item < items)
            k_store(x.shared.tile + item / n * x.stride + item % n * 8,
                packet[j].w[0] | (uint64_t)packet[j].w[2] << 32);
    }
    return true;
}

/* Packets [first, first + n) of all ranks: brought, folded, divided, and written to OUT. False:
 * leave. */
K_FN bool k_tile(const struct k_small &x, bool good, uint32_t first, uint32_t n)
{
    const uint32_t nvec = (n + 1) / 2, size_shift = k_size_shift(x.a.type);
    const uint32_t left = x.bytes - first * 8, bytes = left < n * 8 ? left : n * 8;
    char *tile = x.shared.tile;

    for (uint32_t i = x.lane.index; good && i < n * (uint32_t)x.a.nranks;
         i += K_BATCH * x.lane.count)
        good = k_gather(x, first, n, i, x.lane.count);
    if (k_any(x.lane, !good)) {
        k_report(x.lane, x.shared.watch, x.a.guard, -1);
        return false;
    }
    if (x.a.nranks > 1)
        k_fold_tile(
            x.a.type, x.a.oper, tile, x.stride, x.a.nranks, nvec, x.lane.index, x.lane.count);
    if (x.a.finish_ranks > 0) /* whole vectors, so each thread divides what it folded */
        k_divide(x.a.type, tile, x.a.finish_ranks, nvec * (16u >> size_shift), false, x.lane.index,
            x.lane.count);
    k_sync(x.lane);
    k_copy((char *)x.a.out + first * 8, tile, 1, bytes, x.lane.index, x.lane.count);
    return true;
}

K_FN void k_small_run(
    struct k_lane &lane, const struct tiara_kernel_small_args &args, struct k_small_shared &shared)
{
    const uint64_t number = args.memory->packets + 1;
    const uint32_t bytes = (uint32_t)(args.count << k_size_shift(args.type));
    const uint32_t stride = K_TILE_BYTES / (uint32_t)args.nranks / 16 * 16;
    /* Never 0, which is what a fresh segment holds. */
    struct k_small x = {args, lane, shared, (uint32_t)(number % 0xffffffffu) + 1, (int)(number & 1),
        bytes, (bytes + 7) / 8, stride};
    bool good;

    k_watch_begin(lane, shared.watch);
    k_push(x);
    good = k_same_heads(x);
    for (uint32_t first = 0; first < x.npackets; first += stride / 8) {
        uint32_t left = x.npackets - first;

        if (!k_tile(x, good, first, left < stride / 8 ? left : stride / 8))
            return;
        k_sync(lane); /* the next tile takes the place of this */
    }
    if (x.npackets == 0 && k_any(lane, !good)) {
        k_report(lane, shared.watch, args.guard, -1);
        return;
    }
    if (lane.index == 0)
        args.memory->packets = number;
}

#endif
