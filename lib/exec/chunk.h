/*
 * What a chunk is to whatever executes it: which part of the vector, where the slices of its plan
 * lie in a buffer, and its messages. Pure arithmetic, alike on the host and for devices.
 */
#ifndef TIARA_EXEC_CHUNK_H
#define TIARA_EXEC_CHUNK_H

#include "base/block.h"
#include "base/log.h"
#include "exec/exec.h"

/* The part of a call that one chunk is. */
struct tiara_part {
    size_t index; /* of the chunk in the call */
    size_t first; /* first element in the vector, or in each block */
    size_t count; /* elements */
    size_t len; /* elements of every block but the last non-empty one */
    int slot;
    uint32_t tag; /* of its messages */
};

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
};

/* Block boundaries lie on cache lines where elements allow it. Elements. */
static inline size_t tiara_exec_block_align(size_t elem_size)
{
    return elem_size <= 64 && 64 % elem_size == 0 ? 64 / elem_size : 1;
}

/* Elements of each block but the last non-empty one of a chunk of @count elements; of each block in
 * REDUCE_SCATTER and ALLGATHER. */
static inline size_t tiara_exec_block_len(const struct tiara_exec_call *call, size_t count)
{
    if (call->plan->coll != TIARA_COLL_ALLREDUCE)
        return count;
    return tiara_block_uniform(
        count, (size_t)call->plan->nblocks, 0, tiara_exec_block_align(call->elem_size))
        .count;
}

/* Whether the caller's buffer @buf holds one block only: its own, or the whole vector. */
static inline bool tiara_exec_is_single(const struct tiara_exec_call *call, enum tiara_buf buf)
{
    switch (call->plan->coll) {
    case TIARA_COLL_ALLGATHER:
        return buf == TIARA_BUF_IN && call->in != call->out;
    case TIARA_COLL_REDUCE_SCATTER:
        return buf == TIARA_BUF_OUT;
    default:
        return true;
    }
}

/*
 * Where @slice, which holds blocks @block .. of @part, lies in the buffer that begins at @base.
 * @packed: the buffer holds this chunk alone, its blocks one behind the other (cells, TMP, bounce
 * buffers); else it is the caller's.
 */
static inline struct tiara_place tiara_part_place(const struct tiara_exec_call *call,
    const struct tiara_part *part, const struct tiara_slice *slice, int block, char *base,
    bool packed)
{
    bool dense = call->plan->coll == TIARA_COLL_ALLREDUCE;
    bool user = slice->buf == TIARA_BUF_IN || slice->buf == TIARA_BUF_OUT;
    bool single = user && !dense && tiara_exec_is_single(call, slice->buf);
    size_t es = call->elem_size, n = (size_t)slice->count;
    size_t stride = packed || dense ? part->len : call->count;
    size_t offset = packed ? 0 : part->first;
    struct tiara_place p = {.pieces = 1, .stride = stride * es};

    if (!single)
        offset += stride * (size_t)slice->first;
    p.at = base + offset * es;
    if (dense) {
        size_t from = part->len * (size_t)block, end = from + part->len * n;

        end = end < part->count ? end : part->count;
        p.bytes = from < end ? (end - from) * es : 0;
    } else if (n == 1 || part->count == call->count) {
        p.bytes = n * part->count * es;
    } else {
        p.bytes = part->count * es;
        p.pieces = slice->count;
    }
    return p;
}

/* A message of a plan, as it goes to a transport. */
struct tiara_message {
    bool sends;
    int peer; /* in the transport */
    uint32_t tag;
    char *at; /* borrowed until it is complete */
    size_t bytes;
};

/* What SEND or RECV @op is about. */
static inline const struct tiara_slice *tiara_message_slice(
    const struct tiara_plan *plan, const struct tiara_op *op)
{
    return op->kind == TIARA_OP_SEND ? &plan->srcs[op->src] : &op->dst;
}
/* The message of @op, whose slice is at @place. Errors: TIARA_ERR_PLAN (its blocks lie apart). */
TIARA_MUST_USE static inline enum tiara_err tiara_message_of(const struct tiara_exec *x,
    const struct tiara_part *part, const struct tiara_op *op, const struct tiara_place *place,
    struct tiara_message *message_out)
{
    if (place->pieces > 1 && place->stride != place->bytes) {
        tiara_error("a message cannot be sent from, or received into, blocks that lie apart");
        return TIARA_ERR_PLAN;
    }
    message_out->sends = op->kind == TIARA_OP_SEND;
    message_out->peer = x->net_rank ? x->net_rank[op->peer] : op->peer;
    message_out->tag = part->tag;
    message_out->at = place->at;
    message_out->bytes = place->bytes * (size_t)place->pieces;
    return TIARA_OK;
}

/* Hands @m to the transport. One of no bytes is complete at once. Errors: the transport's. */
TIARA_MUST_USE static inline enum tiara_err tiara_message_start(const struct tiara_message *m,
    const struct tiara_xport *net, void *net_obj, struct tiara_xport_req *req)
{
    *req = (struct tiara_xport_req){.peer = m->peer, .len = m->bytes, .done = m->bytes == 0};
    if (req->done)
        return TIARA_OK;
    if (m->sends)
        return net->send(net_obj, m->peer, m->tag, m->at, m->bytes, req);
    return net->recv(net_obj, m->peer, m->tag, m->at, m->bytes, req);
}

#endif
