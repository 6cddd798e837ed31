/*
 * Where slices lie, and the two ops that touch memory: copy and reduce.
 *
 * Reductions work through the vector in tiles that stay in the nearest cache, so that a long list
 * of sources does not push the target out, and so that a target in exposed memory can be written by
 * the store that suits it (mem.h) instead of by the reduction's.
 */
#include "exec/run.h"
#include "base/alloc.h"
#include "base/log.h"

/* Bytes of one tile of a reduction: the target and a few sources fit in a first-level cache. */
#define TILE_BYTES ((size_t)8192)
/* Sources whose pointers fit on the stack. */
#define FEW 64

static char *cell_of(const struct tiara_run *r, int owner, int slot)
{
    const struct tiara_exec *x = r->x;

    return x->arena->cells[x->node_index[owner]] + (size_t)slot * x->arena->cell_bytes;
}

/* Element offset of block @block in storage whose blocks are packed. */
static size_t packed_offset(const struct tiara_run *r, const struct tiara_chunk *c, int block)
{
    if (r->call->plan->coll == TIARA_COLL_ALLREDUCE)
        return tiara_run_range(c, block, 1).first;
    return (size_t)block * c->count;
}

static char *room_of(const struct tiara_chunk *c, enum tiara_buf buf)
{
    return buf == TIARA_BUF_IN ? c->room_in : c->room_out;
}

/*
 * Bytes from the beginning of the caller's buffer: blocks of REDUCE_SCATTER and ALLGATHER are
 * call->count elements apart. In the room of a staged buffer they are packed.
 */
static size_t user_offset(
    const struct tiara_run *r, const struct tiara_chunk *c, enum tiara_buf buf, int block)
{
    const struct tiara_exec_call *call = r->call;
    bool single = (buf == TIARA_BUF_IN && call->plan->coll == TIARA_COLL_ALLGATHER &&
                      call->in != call->out) ||
                  (buf == TIARA_BUF_OUT && call->plan->coll == TIARA_COLL_REDUCE_SCATTER);
    bool staged = room_of(c, buf) != NULL;
    size_t skip = 0;

    if (call->plan->coll == TIARA_COLL_ALLREDUCE)
        skip = packed_offset(r, c, block);
    else if (!single)
        skip = (size_t)block * (staged ? c->count : call->count);
    return ((staged ? 0 : c->first) + skip) * call->elem_size;
}

/* The beginning of the caller's buffer on @owner, in that process's addresses; of the chunk's room
 * when it is staged. */
static char *user_base(
    const struct tiara_run *r, const struct tiara_chunk *c, int owner, enum tiara_buf buf)
{
    const struct tiara_exec *x = r->x;
    const struct tiara_arena_desc *desc;

    if (owner == x->rank && room_of(c, buf))
        return room_of(c, buf);
    if (owner == x->rank)
        return buf == TIARA_BUF_IN ? (char *)(uintptr_t)r->call->in : r->call->out;
    desc = &x->arena->ctl[x->node_index[owner]]->desc;
    return (char *)(uintptr_t)(buf == TIARA_BUF_IN ? desc->in_addr : desc->out_addr);
}

struct tiara_place tiara_run_place(const struct tiara_run *r, const struct tiara_chunk *c, int slot,
    const struct tiara_slice *slice, int block)
{
    const struct tiara_exec_call *call = r->call;
    size_t es = call->elem_size, n = (size_t)slice->count, stride = c->count;
    struct tiara_place p = {.pieces = 1, .pull = -1};

    if (slice->buf == TIARA_BUF_CELL) {
        p.at = cell_of(r, slice->owner, slot) + packed_offset(r, c, slice->first) * es;
        p.cell = true;
    } else if (slice->buf == TIARA_BUF_TMP) {
        p.at = c->tmp + (size_t)slice->first * c->len * es;
    } else {
        p.at =
            user_base(r, c, slice->owner, slice->buf) + user_offset(r, c, slice->buf, slice->first);
        p.pull = slice->owner == r->x->rank ? -1 : r->x->node_index[slice->owner];
        stride = room_of(c, slice->buf) ? c->count : call->count;
    }
    if (call->plan->coll == TIARA_COLL_ALLREDUCE) {
        p.bytes = tiara_run_range(c, block, slice->count).count * es;
    } else if (n == 1 || c->count == call->count) {
        p.bytes = n * c->count * es;
    } else {
        p.bytes = c->count * es;
        p.stride = stride * es;
        p.pieces = slice->count;
    }
    tiara_assert(
        !p.cell || packed_offset(r, c, slice->first) * es + p.bytes <= r->x->arena->cell_bytes);
    return p;
}

enum tiara_err tiara_run_copy(
    const struct tiara_run *r, const struct tiara_chunk *c, int slot, const struct tiara_op *op)
{
    const struct tiara_slice *from = &r->call->plan->srcs[op->src];
    struct tiara_place dst = tiara_run_place(r, c, slot, &op->dst, op->block);
    struct tiara_place src = tiara_run_place(r, c, slot, from, op->block);
    void (*copy)(void *, const void *, size_t) =
        dst.cell ? r->x->mem->copy_to_cell : r->x->mem->copy;

    if (dst.bytes == 0)
        return TIARA_OK;
    if (src.pull >= 0)
        return r->x->puller->pull(r->x->puller_obj, src.pull, (uintptr_t)src.at, dst.at, dst.bytes);
    if (dst.at == src.at)
        return TIARA_OK;
    for (size_t i = 0; i < (size_t)dst.pieces; i++)
        copy(dst.at + i * dst.stride, src.at + i * src.stride, dst.bytes);
    return TIARA_OK;
}

/* One piece of a reduction, tile by tile; moves the pointers in @src along. */
static enum tiara_err reduce_piece(
    const struct tiara_run *r, struct tiara_place dst, const void **src, int nsrc)
{
    const struct tiara_redop *op = r->call->op;
    size_t es = r->call->elem_size;
    size_t tile = TILE_BYTES / es > 0 ? TILE_BYTES / es * es : es;
    _Alignas(64) char scratch[TILE_BYTES];
    bool aside = dst.cell && tile <= sizeof(scratch);
    enum tiara_err err = TIARA_OK;

    for (size_t at = 0; at < dst.bytes && err == TIARA_OK; at += tile) {
        size_t bytes = dst.bytes - at < tile ? dst.bytes - at : tile;
        char *to = aside ? scratch : dst.at + at;

        err = op->fold(op, to, src, nsrc, bytes / es);
        for (int i = 0; i < nsrc; i++)
            src[i] = (const char *)src[i] + bytes;
        if (aside && err == TIARA_OK)
            r->x->mem->copy_to_cell(dst.at + at, scratch, bytes);
    }
    return err;
}

/* Where source @i of a reduction can be read: a peer's private memory is pulled into the @pulled-th
 * part of the scratch. */
static enum tiara_err reach(
    const struct tiara_run *r, const struct tiara_place *from, int *pulled, const void **at_out)
{
    char *to;

    if (from->pull < 0) {
        *at_out = from->at;
        return TIARA_OK;
    }
    to = r->pull_room + (size_t)(*pulled)++ * r->pull_bytes;
    *at_out = to;
    return r->x->puller->pull(r->x->puller_obj, from->pull, (uintptr_t)from->at, to, from->bytes);
}

enum tiara_err tiara_run_reduce(
    const struct tiara_run *r, const struct tiara_chunk *c, int slot, const struct tiara_op *op)
{
    struct tiara_place dst = tiara_run_place(r, c, slot, &op->dst, op->block);
    const void *few[FEW], **src = few;
    enum tiara_err err = TIARA_OK;

    if (dst.bytes == 0)
        return TIARA_OK;
    if (op->nsrc > FEW)
        src = tiara_alloc((size_t)op->nsrc, sizeof(*src));
    if (!src)
        return TIARA_ERR_NOMEM;
    for (size_t piece = 0; piece < (size_t)dst.pieces && err == TIARA_OK; piece++) {
        struct tiara_place to = dst;
        int pulled = 0;

        to.at += piece * dst.stride;
        for (int i = 0; i < op->nsrc && err == TIARA_OK; i++) {
            struct tiara_place from =
                tiara_run_place(r, c, slot, &r->call->plan->srcs[op->src + i], op->block);
            from.at += piece * from.stride;
            err = reach(r, &from, &pulled, &src[i]);
        }
        if (err == TIARA_OK)
            err = reduce_piece(r, to, src, op->nsrc);
    }
    if (src != few)
        tiara_free(src);
    return err;
}
