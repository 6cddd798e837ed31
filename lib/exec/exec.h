/*
 * The host executor: interprets a plan, chunk by chunk, with up to W chunks in flight.
 *
 * Each chunk in flight sits in a slot and has its own program counter; a chunk that would wait
 * yields to the next, so that the three stages of a hierarchy overlap without being written so.
 * Waiting for a peer is a comparison with the peer's 64-bit progress word of that slot, which only
 * grows: base + step, where base advances by nsteps with every chunk that used the slot, alike on
 * all ranks of the node.
 */
#ifndef TIARA_EXEC_EXEC_H
#define TIARA_EXEC_EXEC_H

#include "base/wait.h"
#include "mem/mem.h"
#include "plan/plan.h"
#include "redop/redop.h"
#include "xport/xport.h"

#define TIARA_SLOTS 8 /* most chunks in flight */

/* A node's shared memory (arena.h); the executor is its only user while a call runs. */
struct tiara_arena;
struct tiara_trace;

/*
 * The seam of staging: how chunks of buffers that the CPU cannot reach come to host memory and go
 * back, behind the chunks that are being worked on. One row per kind of such memory. An object
 * belongs to one executor.
 */
struct tiara_stage {
    const char *name;
    size_t size; /* bytes of an object; zeroed by the caller; close accepts it in any state */
    /* @like: some address in the memory to be staged. Errors: TIARA_ERR_SYS, TIARA_ERR_NOMEM. */
    enum tiara_err (*open)(void *s, const void *like);
    void (*close)(void *s);
    /* A bounce buffer: memory of at least @bytes that copies are fast from and to, owned by the
     * object; good until the next bounce or close. NULL: there is none. */
    void *(*bounce)(void *s, size_t bytes);
    /* Starts a copy from staged memory into the bounce buffer, or from it into staged memory.
     * Copies of one slot are done in order. Errors: TIARA_ERR_SYS. */
    enum tiara_err (*fetch)(void *s, int slot, void *bounce, const void *from, size_t bytes);
    enum tiara_err (*store)(void *s, int slot, void *to, const void *bounce, size_t bytes);
    /* Whether all copies of @slot that were started are done. Errors: TIARA_ERR_SYS. */
    enum tiara_err (*test)(void *s, int slot, bool *done_out);
};

/* The ranks one executor works for: positions are plan ranks. */
struct tiara_exec {
    int rank;
    int nranks;
    struct tiara_arena *arena; /* NULL: no exposed buffers (flat plans only) */
    const int *node_index; /* [nranks] a rank's index in the arena, -1 when on another node */
    const struct tiara_xport *net; /* message transport; NULL: none */
    const int *net_rank; /* [nranks] a plan rank's position in the transport; NULL: the same */
    void *net_obj;
    const struct tiara_xport *getter; /* for single_copy plans; NULL: none */
    void *getter_obj;
    const struct tiara_stage *stage; /* for calls with staged buffers; NULL: none */
    void *stage_obj;
    const struct tiara_mem *mem;
    struct tiara_wait *wait;
    struct tiara_trace *trace; /* NULL: off */
    uint32_t tag_bits; /* usable bits of a tag */
    uint64_t chunk_seq; /* chunks run so far, alike on all ranks; low bits go into tags */
    void *tmp; /* scratch of all slots; grown on demand, freed by tiara_exec_fini */
    size_t tmp_bytes;
};

/*
 * Tags of messages: the chunk's number, then the call's digest, so that calls that differ never
 * match; the highest bit is left for control messages (tiara_xport_control).
 */
static inline uint32_t tiara_exec_seq_bits(uint32_t tag_bits)
{
    return tag_bits >= 24 ? 12 : 8;
}
static inline uint32_t tiara_exec_tag(uint32_t tag_bits, uint64_t chunk_seq, uint32_t digest)
{
    uint32_t seq_bits = tiara_exec_seq_bits(tag_bits), digest_bits = tag_bits - 1 - seq_bits;

    return (uint32_t)(chunk_seq & ((1u << seq_bits) - 1)) | (digest & ((1u << digest_bits) - 1))
                                                                << seq_bits;
}

/* One call. Where a block of a chunk lies in its buffers: chunk.h. */
struct tiara_exec_call {
    const struct tiara_plan *plan;
    const struct tiara_redop *op; /* NULL for ALLGATHER */
    const void *in; /* may equal out (in place) */
    void *out;
    size_t count; /* elements: of the vector (ALLREDUCE), of one block (others) */
    size_t elem_size;
    size_t chunk_elems; /* elements of the vector (or of one block) per chunk; 0: all at once */
    int slots; /* chunks in flight, 1..TIARA_SLOTS */
    uint32_t digest; /* of the call: goes into message tags */
    int finish_ranks; /* N for op->finish */
    /* The CPU cannot reach this buffer: its chunks go through x->stage. Both when in == out. Not
     * with single_copy plans. */
    bool stage_in, stage_out;
};

/*
 * One call, collective over the plan's ranks, with equal calls: open, poll until it says so, close.
 * Errors end the call on this rank only; the communicator must then be revoked. Open returns
 * TIARA_ERR_NOMEM before the first op. One call of an executor at a time; no other thread
 * meanwhile.
 * @run: from tiara_exec_run_new, freed with tiara_free; used for one call at a time. @call is
 * borrowed until close.
 */
struct tiara_run;
struct tiara_run *tiara_exec_run_new(void); /* NULL: no memory */
TIARA_MUST_USE enum tiara_err tiara_exec_open(
    struct tiara_run *run, struct tiara_exec *x, const struct tiara_exec_call *call);
/* Moves each chunk in flight once, as far as it can without waiting. True when the call is done, or
 * has failed (*err_out). *moved_out: something was done, and there may be more to do; else @on is
 * what is waited for. */
bool tiara_exec_poll(
    struct tiara_run *run, struct tiara_wait_on *on, bool *moved_out, enum tiara_err *err_out);
/* After open failed, or poll said that it is over: @err is what it ended with, and is returned. */
enum tiara_err tiara_exec_close(struct tiara_run *run, enum tiara_err err);
/* Takes the private memory that calls like @call with chunks up to call->chunk_elems need, so that
 * a rank that has none says so before it leaves others waiting. Errors: TIARA_ERR_NOMEM. */
TIARA_MUST_USE enum tiara_err tiara_exec_reserve(
    struct tiara_exec *x, const struct tiara_exec_call *call);
void tiara_exec_fini(struct tiara_exec *x);

#endif
