/*
 * Which algorithm, and how many leaders: for host and for GPU memory alike.
 */
#include "tune/tune_priv.h"

/* Between nodes, in bytes of a leader's shard: below, fewer rounds win; above, fewer bytes. Virtual
 * nodes, TCP. */
#define INTER_ROUNDS_MAX ((size_t)16384)

static bool has_cells(const struct tiara_tune_facts *f)
{
    return f->has_arena && f->cell_bytes > 0;
}

bool tiara_tune_needs_strict_order(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    return c->coll != TIARA_COLL_ALLGATHER &&
           (f->reproducible || (!c->commutative && !tiara_layout_is_block(f->layout)));
}

const struct tiara_algo *tiara_tune_inter(
    const struct tiara_tune_facts *f, const struct tiara_tune_call *c, size_t shard_bytes)
{
    if (f->inter && (c->commutative || f->inter->flags & TIARA_ALGO_ORDERED))
        return f->inter;
    if (!c->commutative || shard_bytes <= INTER_ROUNDS_MAX)
        return &tiara_algo_recdbl;
    return &tiara_algo_ring;
}

/* Whether @algo may run this call at all; the reason when not. */
static const char *unfit(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    const struct tiara_algo *algo)
{
    bool ordered = algo->flags & TIARA_ALGO_ORDERED ||
                   (algo->flags & TIARA_ALGO_ORDERED_BLOCK && tiara_layout_is_block(f->layout));

    if (!(algo->colls & (1u << c->coll)))
        return "it does not do this collective";
    if (algo->flags & TIARA_ALGO_NODE && f->layout->nnodes > 1)
        return "it works on one node only";
    if (!(algo->flags & TIARA_ALGO_FLAT) && !has_cells(f))
        return "there is no shared memory for it";
    if (!c->commutative && !ordered)
        return "the operator is not commutative";
    if (f->reproducible && !(algo->flags & TIARA_ALGO_LEFT_FOLD))
        return "TIARA_REPRODUCIBLE asks for a fixed order";
    return NULL;
}

const struct tiara_algo *tiara_tune_algo(const struct tiara_tune_facts *f,
    const struct tiara_tune_call *c, const char **why, const char **unfit_out)
{
    if (f->algo) {
        *unfit_out = unfit(f, c, f->algo);
        if (!*unfit_out) {
            *why = "TIARA_ALGO";
            return f->algo;
        }
    }
    if (!has_cells(f)) {
        *why = "no shared memory on the nodes";
        if (f->reproducible && c->coll == TIARA_COLL_ALLREDUCE)
            return &tiara_algo_chain;
        return NULL;
    }
    if (f->layout->nnodes == 1) {
        *why = "one node";
        return &tiara_algo_direct;
    }
    if (tiara_tune_needs_strict_order(f, c)) {
        *why = f->reproducible ? "TIARA_REPRODUCIBLE"
                               : "a non-commutative operator, ranks not in blocks";
        return c->coll == TIARA_COLL_ALLREDUCE ? &tiara_algo_hier_chain : NULL;
    }
    *why = "several nodes";
    return &tiara_algo_hier;
}

int tiara_tune_leaders(const struct tiara_tune_facts *f)
{
    int most = f->layout->min_local;

    return f->leaders > 0 && f->leaders < most ? f->leaders : most;
}
