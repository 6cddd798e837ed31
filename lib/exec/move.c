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

static char *bounce_of(const struct tiara_chunk *c, enum tiara_buf buf)
{
    return buf == TIARA_BUF_IN ? c->bounce_in : c->bounce_out;
}

/* The beginning of the caller's buffer on @owner, in that process's addresses. */
static char *user_base(const struct tiara_run *r, int owner, enum tiara_buf buf)
{
    const struct tiara_exec *x = r->s.x;
    const struct tiara_arena_desc *desc;

    if (owner == x->rank)
        return buf == TIARA_BUF_IN ? (char *)(uintptr_t)r->s.call->in : r->s.call->out;
    desc = tiara_arena_desc_of(x->arena, x->node_index[owner]);
    return (char *)(uintptr_t)(buf == TIARA_BUF_IN ? desc->in_addr : desc->out_addr);
}

struct tiara_place tiara_run_place(const struct tiara_run *r, const struct tiara_chunk *c,
    const struct tiara_slice *slice, int block)
{
    const struct tiara_exec *x = r->s.x;
    struct tiara_place p;
    char *base;
    bool packed = true;

    if (slice->buf == TIARA_BUF_CELL) {
        base = tiara_arena_cell(x->arena, x->node_index[slice->owner], c->part.slot);
    } else if (slice->buf == TIARA_BUF_TMP) {
        base = c->tmp;
    } else {
        packed = slice->owner == x->rank && bounce_of(c, slice->buf);
        base = packed ? bounce_of(c, slice->buf) : user_base(r, slice->owner, slice->buf);
    }
    p = tiara_part_place(r->s.call, &c->part, slice, block, base, packed);
    tiara_assert(slice->buf != TIARA_BUF_CELL || p.bytes == 0 ||
                 (size_t)(p.at - base) + p.bytes <= x->arena->cell_bytes);
    return p;
}

static enum tiara_err get(
    const struct tiara_run *r, int owner, const struct tiara_place *from, void *to)
{
    const struct tiara_exec *x = r->s.x;

    return x->getter->get(
        x->getter_obj, x->node_index[owner], (uintptr_t)from->at, to, from->bytes);
}

enum tiara_err tiara_run_copy(
    const struct tiara_run *r, const struct tiara_chunk *c, const struct tiara_op *op)
{
    const struct tiara_slice *from = &r->s.call->plan->srcs[op->src];
    struct tiara_place dst = tiara_run_place(r, c, &op->dst, op->block);
    struct tiara_place src = tiara_run_place(r, c, from, op->block);
    const struct tiara_mem *mem = r->s.x->mem;
    void (*copy)(void *, const void *, size_t) =
        op->dst.buf == TIARA_BUF_CELL ? mem->copy_to_cell : mem->copy;

    if (dst.bytes == 0)
        return TIARA_OK;
    if (tiara_run_is_fetched(r->s.call->plan, from))
        return get(r, from->owner, &src, dst.at);
    if (dst.at == src.at)
        return TIARA_OK;
    for (size_t i = 0; i < (size_t)dst.pieces; i++)
        copy(dst.at + i * dst.stride, src.at + i * src.stride, dst.bytes);
    return TIARA_OK;
}

/* One piece of a reduction, into a cell or not, tile by tile; moves the pointers in @src along. */
static enum tiara_err reduce_piece(
    const struct tiara_run *r, struct tiara_place dst, bool cell, const void **src, int nsrc)
{
    const struct tiara_redop *op = r->s.call->op;
    size_t es = r->s.call->elem_size;
    size_t tile = TILE_BYTES / es > 0 ? TILE_BYTES / es * es : es;
    _Alignas(64) char scratch[TILE_BYTES];
    bool aside = cell && tile <= sizeof(scratch);
    enum tiara_err err = TIARA_OK;

    for (size_t at = 0; at < dst.bytes && err == TIARA_OK; at += tile) {
        size_t bytes = dst.bytes - at < tile ? dst.bytes - at : tile;
        char *to = aside ? scratch : dst.at + at;

        err = op->fold(op, to, src, nsrc, bytes / es);
        for (int i = 0; i < nsrc; i++)
            src[i] = (const char *)src[i] + bytes;
        if (aside && err == TIARA_OK)
            r->s.x->mem->copy_to_cell(dst.at + at, scratch, bytes);
    }
    return err;
}

enum tiara_err tiara_run_reduce(
    const struct tiara_run *r, const struct tiara_chunk *c, const struct tiara_op *op)
{
    const struct tiara_plan *plan = r->s.call->plan;
    struct tiara_place dst = tiara_run_place(r, c, &op->dst, op->block);
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
        char *here = (char *)r->s.x->tmp + (size_t)r->s.window * r->scratch.chunk;

        to.at += piece * dst.stride;
        for (int i = 0; i < op->nsrc && err == TIARA_OK; i++) {
            const struct tiara_slice *slice = &plan->srcs[op->src + i];
            struct tiara_place from = tiara_run_place(r, c, slice, op->block);

            src[i] = from.at += piece * from.stride;
            if (tiara_run_is_fetched(plan, slice)) {
                src[i] = here;
                err = get(r, slice->owner, &from, here);
                here += (size_t)slice->count * r->scratch.block;
            }
        }
        if (err == TIARA_OK)
            err = reduce_piece(r, to, op->dst.buf == TIARA_BUF_CELL, src, op->nsrc);
    }
    if (src != few)
        tiara_free(src);
    return err;
}
