/*
 * Private to lib/tune: what the choices for host and for GPU memory share.
 */
#ifndef TIARA_TUNE_PRIV_H
#define TIARA_TUNE_PRIV_H

#include "tune/tune.h"

/* Blocks of a vector; and its bytes, of all blocks. */
static inline size_t tiara_tune_blocks(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    return c->coll == TIARA_COLL_ALLREDUCE ? 1 : (size_t)f->layout->nranks;
}
static inline size_t tiara_tune_bytes(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    return c->count * c->elem_size * tiara_tune_blocks(f, c);
}
/* Elements of a block in a chunk of @bytes: whole cache lines where it can be, so that chunks do
 * not share one. */
static inline size_t tiara_tune_elems(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c, size_t bytes)
{
    size_t elems = bytes / tiara_tune_blocks(f, c) / c->elem_size;

    return elems > 64 ? elems - elems % 64 : elems;
}
static inline size_t tiara_tune_clamp(size_t value, size_t least, size_t most)
{
    if (value < least)
        value = least;
    return value < most ? value : most;
}

/* Rank-ordered operands are needed, and the layout does not give them to the ordinary hierarchy. */
bool tiara_tune_needs_strict_order(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c);
/* The algorithm by layout, setting and order; NULL: the MPI below. */
const struct tiara_algo *tiara_tune_algo(const struct tiara_tune_facts *f,
    const struct tiara_tune_call *c, const char **why, const char **unfit_out);
/* Between nodes, for a leader's part of @shard_bytes. */
const struct tiara_algo *tiara_tune_inter(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c, size_t shard_bytes);
/* Ranks of each node that speak to other nodes. */
int tiara_tune_leaders(const struct tiara_tune_facts *f);

/* Fills the rest of a choice whose path is still the MPI's, which stands for host memory here. */
void tiara_tune_choose_device(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    struct tiara_tune_choice *out);

#endif
