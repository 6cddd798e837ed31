/*
 * The C ABI between libtiara-cuda's host code and its kernels.
 *
 * Plain structures of fixed-size fields: they cross from a C compiler to a device compiler, by
 * value in a kernel's arguments or in device memory. Nothing of lib/ is included here, and nothing
 * of CUDA.
 *
 * A rank has one *segment* of device memory, which its node peers map through IPC. In it, one
 * writer per field:
 *
 *   offset      field     writer             what
 *   0           calls     peer p, line p     (call number << 32 | digest) of p's present call
 *   ...         progress  peer p             [slot][thread block][p], 128 bytes each: base + steps
 *                                            done by p's thread block;
 *                                            in slot 0's line also: begun
 *   ...         packets   peer p             [parity][p]: small vectors as packets of 16 bytes:
 *                                            data, flag, data, flag
 *   ...         cells     the owner          [slot]: what peers read, TIARA_KERNEL_SLOTS of
 *                                            cell_bytes each
 *
 * Flags are pushed into the memory of who waits for them, so that a wait polls near memory; data is
 * fetched by who needs it.
 *
 * A thread block works on its own *stripe*: the same part of each block of the plan. It writes and
 * reads nothing of the vector outside it, so that it waits only for the thread blocks of the same
 * number of its peers, and needs no barrier with its own rank's other thread blocks.
 *
 * Why cells can be overwritten by the next launch. The last launch of a chunk ends only when each
 * of its thread blocks has seen the same one of every peer at the chunk's last step; so when a
 * launch is over, no peer reads this rank's cells any more, however the next one divides them.
 */
#ifndef TIARA_KERNELS_H
#define TIARA_KERNELS_H

#include "types.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIARA_KERNEL_PEERS 16 /* most ranks of a node */
#define TIARA_KERNEL_BLOCKS 32 /* most thread blocks of a launch */
#define TIARA_KERNEL_SLOTS 4 /* most chunks in flight */
#define TIARA_KERNEL_THREADS 512 /* of a thread block */
#define TIARA_KERNEL_LINE 128 /* bytes between words of different writers */
#define TIARA_KERNEL_PACKET 16 /* bytes of a packet, of which 8 are data */
#define TIARA_KERNEL_SMALL_MAX 16384 /* most bytes of a vector that goes in packets */

/* ---- the segment ---- */

#define TIARA_KERNEL_CALLS_AT ((size_t)0)
#define TIARA_KERNEL_PROGRESS_AT ((size_t)TIARA_KERNEL_PEERS * TIARA_KERNEL_LINE)
#define TIARA_KERNEL_PACKETS_AT                                                                    \
    (TIARA_KERNEL_PROGRESS_AT +                                                                    \
        (size_t)TIARA_KERNEL_SLOTS * TIARA_KERNEL_BLOCKS * TIARA_KERNEL_PEERS * TIARA_KERNEL_LINE)
/* A head packet {digest, flag, bytes, flag}, then one packet for each 8 bytes. */
#define TIARA_KERNEL_PACKETS_BYTES ((size_t)TIARA_KERNEL_SMALL_MAX * 2 + TIARA_KERNEL_LINE)
#define TIARA_KERNEL_CELLS_AT                                                                      \
    ((TIARA_KERNEL_PACKETS_AT + 2 * TIARA_KERNEL_PEERS * TIARA_KERNEL_PACKETS_BYTES + 4095) /      \
        4096 * 4096)

#ifdef __CUDACC__
#define TIARA_KERNEL_INLINE static __host__ __device__ inline
#else
#define TIARA_KERNEL_INLINE static inline
#endif

/* Bytes from the beginning of a segment to the word that @from pushes. */
TIARA_KERNEL_INLINE size_t tiara_kernel_call_at(int from)
{
    return TIARA_KERNEL_CALLS_AT + (size_t)from * TIARA_KERNEL_LINE;
}
TIARA_KERNEL_INLINE size_t tiara_kernel_progress_at(int slot, int block, int from)
{
    size_t i = ((size_t)slot * TIARA_KERNEL_BLOCKS + (size_t)block) * TIARA_KERNEL_PEERS;

    return TIARA_KERNEL_PROGRESS_AT + (i + (size_t)from) * TIARA_KERNEL_LINE;
}
/* Calls of single-copy plans that a thread block of @from has begun: its IN and OUT may be read in
 * this one. */
TIARA_KERNEL_INLINE size_t tiara_kernel_begun_at(int block, int from)
{
    return tiara_kernel_progress_at(0, block, from) + sizeof(uint64_t);
}
TIARA_KERNEL_INLINE size_t tiara_kernel_packets_at(int parity, int from)
{
    return TIARA_KERNEL_PACKETS_AT +
           ((size_t)parity * TIARA_KERNEL_PEERS + (size_t)from) * TIARA_KERNEL_PACKETS_BYTES;
}
TIARA_KERNEL_INLINE size_t tiara_kernel_cell_at(int slot, size_t cell_bytes)
{
    return TIARA_KERNEL_CELLS_AT + (size_t)slot * cell_bytes;
}
TIARA_KERNEL_INLINE size_t tiara_kernel_segment_bytes(size_t cell_bytes)
{
    return tiara_kernel_cell_at(TIARA_KERNEL_SLOTS, cell_bytes);
}

/*
 * What a rank's kernels remember from launch to launch, in its own device memory, zeroed with the
 * segment. In memory, and not in arguments, so that a CUDA graph can be replayed.
 */
struct tiara_kernel_memory {
    uint64_t
        base[TIARA_KERNEL_SLOTS]
            [TIARA_KERNEL_BLOCKS]; /* steps of all chunks before, alike on all ranks of the node */
    uint64_t begun[TIARA_KERNEL_BLOCKS]; /* single-copy calls so far */
    uint64_t calls; /* checked calls so far; written by thread block 0 */
    uint64_t packets; /* calls by packets so far; its lowest bit is the parity */
};

/* ---- results, in host memory that the device can write ---- */

enum tiara_kernel_code {
    TIARA_KERNEL_OK,
    TIARA_KERNEL_ABORTED, /* the abort word was set */
    TIARA_KERNEL_TIMEOUT, /* a peer did not come within spin_ns */
    TIARA_KERNEL_MISMATCH /* a peer's digest differs: @seen */
};

/* One line per thread block, which is its writer; @code is written last. The host clears it when no
 * launch is running. */
struct tiara_kernel_status {
    uint32_t code; /* enum tiara_kernel_code */
    int32_t peer; /* who was waited for, or differs */
    int32_t op; /* index in the program, -1: none */
    int32_t step; /* that was waited for */
    uint32_t seen; /* digest */
    uint32_t reserved[27];
};

/* How a launch can be ended from outside, and says what became of it. */
struct tiara_kernel_guard {
    const uint32_t *abort; /* host memory mapped for the device: not 0: give up */
    struct tiara_kernel_status *status; /* [TIARA_KERNEL_BLOCKS] the same */
    uint64_t spin_ns; /* longest wait; 0: no limit */
};

/* ---- the device executor ---- */

/* As in lib/plan/plan.h, but owner and peer are indices of the node's ranks. */
enum tiara_kernel_buf {
    TIARA_KERNEL_IN,
    TIARA_KERNEL_OUT,
    TIARA_KERNEL_CELL,
    TIARA_KERNEL_TMP
};
enum tiara_kernel_op_kind {
    TIARA_KERNEL_COPY,
    TIARA_KERNEL_REDUCE,
    /* nothing: the place of a send or receive, whose posts and waits count here too */
    TIARA_KERNEL_PAUSE
};

struct tiara_kernel_slice {
    int32_t owner;
    int32_t buf; /* enum tiara_kernel_buf */
    int32_t first; /* block */
    int32_t count;
};
struct tiara_kernel_wait {
    int32_t peer;
    int32_t step; /* 0: the peer's previous chunk in this slot is over */
};
struct tiara_kernel_op {
    int32_t kind;
    /* the op works on blocks block .. block + dst.count - 1 of the vector: how long they are
     * follows from it */
    int32_t block;
    struct tiara_kernel_slice dst;
    int32_t src, nsrc; /* in srcs */
    int32_t wait, nwait; /* in waits */
    int32_t post; /* then push progress base + post to all peers; 0: nothing to push */
    int32_t reserved;
};

/* A plan for one rank, in device memory. Read-only; the same for all launches. */
struct tiara_kernel_program {
    const struct tiara_kernel_op *ops;
    const struct tiara_kernel_slice *srcs;
    const struct tiara_kernel_wait *waits;
    int32_t nops, nsteps, nblocks, reserved;
};

/* A node rank as this rank's kernels see it. */
struct tiara_kernel_peer {
    /* mapped; the own one too; NULL: out of reach, and neither read nor told anything */
    char *segment;
    const char *in, *out; /* mapped user buffers, in all launches of single-copy plans; else NULL */
};

/* The first launch of a call: compare digests; in single-copy plans each thread block waits until
 * its peers have begun. */
#define TIARA_KERNEL_FIRST 1
#define TIARA_KERNEL_LAST                                                                          \
    2 /* the launch ends its chunks: push their last step, count them in base, wait for all peers */

struct tiara_kernel_exec_args {
    struct tiara_kernel_program program;
    /*
     * This launch's part of the program. Not the whole of it: then nchunks is 1, since peers may do
     * all of a chunk before they begin the next.
     */
    int32_t first_op, end_op;
    int32_t head_post; /* step to push before the first op; 0: none */
    /*
     * Waits that hold before the launch ends, and before it divides: those of the network op after
     * end_op, or with LAST the plan's exit waits (peers that still read this rank's IN or OUT).
     */
    int32_t tail_wait, tail_nwait;
    int32_t flags;
    int32_t type, oper;
    int32_t finish_ranks; /* AVG: with LAST, OUT is divided by it; else 0 */
    int32_t rank, nranks; /* on the node */
    int32_t slot, nslots; /* chunk c of the launch is in slot (slot + c) % nslots */
    uint32_t digest;
    /*
     * The vector: @count elements in @nchunks chunks of @chunk_elems, of which the last may be
     * shorter. In a chunk, block b of the plan has elements [b * len, (b + 1) * len), cut off at
     * the chunk's end: len is @block_len, in the last chunk @last_block_len. IN block b of a chunk
     * lies in_stride * b elements behind the chunk's first; the same for OUT; stride -1: len.
     * In_stride 0: there is one block only, whatever its number. When a stride is not -1, every
     * block has as many elements as the chunk (reduce-scatter, all-gather), and @block_len is
     * @chunk_elems.
     * CELL and TMP block b lie b * block_len elements behind the beginning of their slot.
     */
    uint64_t count, chunk_elems, nchunks, block_len, last_block_len;
    int64_t in_stride, out_stride;
    /* Elements of each block that a thread block works on: block i of the grid has [i * stripe, (i
     * + 1) * stripe). */
    uint64_t stripe;
    uint64_t cell_bytes;
    const void *in; /* may be out */
    void *out;
    char *tmp; /* [nslots] of tmp_bytes */
    uint64_t tmp_bytes;
    struct tiara_kernel_peer peer[TIARA_KERNEL_PEERS];
    struct tiara_kernel_memory *memory;
    struct tiara_kernel_guard guard;
};

/* ---- small vectors in packets ---- */

/* All-reduce in one step: every rank pushes its vector to all peers and folds all of them itself,
 * in rank order. */
struct tiara_kernel_small_args {
    int32_t type, oper;
    int32_t finish_ranks;
    int32_t rank, nranks;
    uint32_t digest;
    uint64_t count; /* elements; count * size <= TIARA_KERNEL_SMALL_MAX */
    const void *in; /* may be out */
    void *out;
    char *segment[TIARA_KERNEL_PEERS];
    struct tiara_kernel_memory *memory;
    struct tiara_kernel_guard guard;
};

/* ---- the rest ---- */

/* dst[0..count) = src[0] op src[1] ...; nsrc 1..TIARA_KERNEL_PEERS; dst may be one of them. Any
 * number of thread blocks. */
struct tiara_kernel_reduce_args {
    int32_t type, oper;
    int32_t finish_ranks;
    int32_t nsrc;
    uint64_t count;
    void *dst;
    const void *src[TIARA_KERNEL_PEERS];
};

/* One thread: *word = value with release at system scope, after reading *expect_at until it is
 * @expect (NULL: at once). */
struct tiara_kernel_probe_args {
    uint64_t *word;
    uint64_t value;
    const uint64_t *expect_at;
    uint64_t expect;
    struct tiara_kernel_guard guard; /* status[0] */
};

/*
 * The kernels. Never called: the host code takes their addresses for cudaLaunchKernel, with one
 * argument. exec: at most TIARA_KERNEL_BLOCKS thread blocks of TIARA_KERNEL_THREADS or fewer
 * threads, all of which must be able to run at the same time; small, probe: one thread block. No
 * dynamic shared memory.
 */
#ifndef __CUDACC__ /* the device compiler sees the definitions, whose arguments are constant */
void tiara_kernel_exec(struct tiara_kernel_exec_args args);
void tiara_kernel_small(struct tiara_kernel_small_args args);
void tiara_kernel_reduce(struct tiara_kernel_reduce_args args);
void tiara_kernel_probe(struct tiara_kernel_probe_args args);
#endif

#ifdef __cplusplus
}
#endif

#endif
