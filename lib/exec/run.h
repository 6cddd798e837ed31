/*
 * Private to lib/exec: one running call, its chunks in flight, and where slices lie in memory.
 */
#ifndef TIARA_EXEC_RUN_H
#define TIARA_EXEC_RUN_H

#include "base/block.h"
#include "exec/arena.h"
#include "exec/exec.h"

/* Staged buffers: a chunk's part comes first, and goes back last. */
enum tiara_chunk_state {
    TIARA_CHUNK_FREE,
    TIARA_CHUNK_FETCH,
    TIARA_CHUNK_RUN,
    TIARA_CHUNK_STORE
};

/* A chunk in flight. */
struct tiara_chunk {
    enum tiara_chunk_state state;
    char *room_in,
        *room_out; /* host copies of its part of staged buffers, blocks packed; NULL: not staged */
    size_t first; /* first element in the vector, or in each block */
    size_t count; /* elements */
    size_t len; /* elements of every block but the last non-empty one */
    int pc; /* next op */
    int post_pc; /* next op whose post is to be looked at */
    int started; /* asyncs started */
    int done; /* asyncs complete, in order of start */
    uint64_t base;
    uint32_t tag;
    char *tmp; /* its part of the scratch memory */
    struct tiara_xport_req *reqs; /* [plan->nasync] */
};

struct tiara_run {
    struct tiara_exec *x;
    const struct tiara_exec_call *call;
    size_t align; /* elements; block boundaries are multiples of it */
    size_t nchunks;
    size_t next_chunk; /* the next to start */
    size_t oldest; /* all before it are finished */
    size_t first_slot; /* the slot of chunk 0 */
    int slots;
    enum tiara_err err;
    char *scratch; /* TMP and requests of the chunks in flight, in turn */
    size_t tmp_bytes, scratch_bytes; /* of TMP, and of both, per chunk */
    char *room; /* staged buffers: host copies of the chunks in flight, in turn */
    size_t room_in,
        room_out; /* bytes of both buffers, per chunk; 0: not staged, or in place with the other */
    char *pull_room; /* single-copy plans: sources pulled for one reduction */
    size_t pull_bytes; /* of each */
    struct tiara_chunk chunk[TIARA_SLOTS];
};

/* Elements [first, first + count) of the chunk that blocks @block .. @block + @nblocks - 1 cover
 * (ALLREDUCE). */
static inline struct tiara_range tiara_run_range(
    const struct tiara_chunk *c, int block, int nblocks)
{
    size_t first = c->len * (size_t)block, end = c->len * (size_t)(block + nblocks);

    first = first < c->count ? first : c->count;
    end = end < c->count ? end : c->count;
    return (struct tiara_range){first, end - first};
}

/*
 * A slice in memory: @pieces pieces of @bytes each, @stride apart. One piece, but for slices of
 * several blocks in REDUCE_SCATTER and ALLGATHER, where the caller's blocks lie apart: then all
 * slices of the op have a piece per block.
 */
struct tiara_place {
    char *at;
    size_t bytes; /* of each piece; 0: the slice is empty in this chunk */
    size_t stride;
    int pieces;
    bool cell; /* exposed memory */
    /*
     * node index of the peer in whose own memory it lies, to be pulled; -1: it can be read in place
     */
    int pull;
};

/* Where @slice, which holds blocks @block .., lies for chunk @c in slot @slot. */
struct tiara_place tiara_run_place(const struct tiara_run *r, const struct tiara_chunk *c, int slot,
    const struct tiara_slice *slice, int block);

/* ---- staged buffers: staged.c ---- */

/* Takes the rooms. Errors: TIARA_ERR_NOMEM. */
TIARA_MUST_USE enum tiara_err tiara_run_stage_open(struct tiara_run *r);
/* Chunk @c of slot @slot begins, as number @turn of those in flight: starts what has to come in. */
TIARA_MUST_USE enum tiara_err tiara_run_fetch(
    struct tiara_run *r, struct tiara_chunk *c, int slot, size_t turn);
/* Its result is complete: starts what has to go back. */
TIARA_MUST_USE enum tiara_err tiara_run_store(
    struct tiara_run *r, const struct tiara_chunk *c, int slot);
/* Waits for all copies, after an error: the caller's buffers are its own again. */
void tiara_run_stage_drain(struct tiara_run *r);

/* COPY and REDUCE of the chunk: move.c */
TIARA_MUST_USE enum tiara_err tiara_run_copy(
    const struct tiara_run *r, const struct tiara_chunk *c, int slot, const struct tiara_op *op);
TIARA_MUST_USE enum tiara_err tiara_run_reduce(
    const struct tiara_run *r, const struct tiara_chunk *c, int slot, const struct tiara_op *op);

#endif
