/*
 * Private to lib/exec: one running call, its chunks in flight, and where slices lie in memory.
 */
#ifndef TIARA_EXEC_RUN_H
#define TIARA_EXEC_RUN_H

#include "exec/arena.h"
#include "exec/sched.h"

/* Staged buffers: a chunk's part comes first, and goes back last. */
enum tiara_chunk_state {
    TIARA_CHUNK_RUN,
    TIARA_CHUNK_FETCH,
    TIARA_CHUNK_STORE
};

/* A chunk in flight. */
struct tiara_chunk {
    struct tiara_part part;
    enum tiara_chunk_state state;
    /* Host copies of its part of staged buffers, blocks packed; NULL: not staged. */
    char *bounce_in, *bounce_out;
    int pc; /* next op */
    int post_pc; /* next op whose post is to be looked at */
    int started; /* asyncs started */
    int done; /* asyncs complete, in order of start */
    uint64_t base; /* of the slot's progress word */
    char *tmp; /* its part of the scratch memory */
    struct tiara_xport_req *reqs; /* [plan->nasync] */
};

/* How the private memory of a call is divided, in bytes. */
struct tiara_scratch {
    size_t tmp; /* TMP of a chunk in flight */
    size_t chunk; /* that and its requests */
    size_t block; /* behind those of all chunks: of the blocks that are fetched for a reduction */
    size_t all;
};

struct tiara_run {
    struct tiara_sched s; /* the first, so that it can be found from it */
    struct tiara_scratch scratch;
    char *bounce; /* staged buffers: bounce buffers of the chunks in flight, in turn */
    /* Bytes of both buffers, per chunk; 0: not staged, or in place with the other. */
    size_t bounce_in, bounce_out;
    struct tiara_chunk chunk[TIARA_SLOTS];
};

/* Whether @slice is a peer's private memory, to be fetched; else it can be read in place. */
static inline bool tiara_run_is_fetched(
    const struct tiara_plan *plan, const struct tiara_slice *slice)
{
    return slice->owner != plan->rank && slice->buf != TIARA_BUF_CELL;
}

/* Where @slice, which holds blocks @block .., lies for chunk @c; in the addresses of the process
 * that owns it. */
struct tiara_place tiara_run_place(const struct tiara_run *r, const struct tiara_chunk *c,
    const struct tiara_slice *slice, int block);

/* COPY and REDUCE of the chunk: move.c */
TIARA_MUST_USE enum tiara_err tiara_run_copy(
    const struct tiara_run *r, const struct tiara_chunk *c, const struct tiara_op *op);
TIARA_MUST_USE enum tiara_err tiara_run_reduce(
    const struct tiara_run *r, const struct tiara_chunk *c, const struct tiara_op *op);

#endif
