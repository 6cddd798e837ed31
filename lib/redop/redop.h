/*
 * The seam of reductions: element type x operator -> fold.
 *
 * A redop folds n-ary, from the left, elementwise: dst[i] = (src[0][i] op src[1][i]) op src[2][i]
 * and so on. The result of an element never depends on its position, its neighbours, alignment or
 * the instruction set, so that chunking and CPU differences between ranks cannot change bits. 8-
 * and 16-bit floats accumulate in float over one fold and round once (nsrc == 2: each step rounds).
 *
 * Implementations (rows): portable C, AVX2, AVX-512 here; PMPI_Reduce_local lives in elem. Integer
 * SUM and PROD wrap as C's unsigned arithmetic does. MIN and MAX of floats are the choices (b < a)
 * ? b : a and (a < b) ? b : a, where a is the accumulated left operand; with NaN and signed zero
 * too, which they copy as they are. A SUM or PROD that is NaN is always the positive quiet NaN
 * without payload, because compilers and CPUs disagree about payloads. The sums and products of
 * 8-bit floats saturate: never an infinity, but the largest number of its sign; NaN is 0x7f. The
 * complex product is (ac - bd) + (ad + bc)i, without fused operations. Denormals are kept, and
 * rounding is to nearest even, as long as the caller has not switched the CPU to something else.
 */
#ifndef TIARA_REDOP_REDOP_H
#define TIARA_REDOP_REDOP_H

#include "base/err.h"
#include "kernels/types.h"
#include <stdbool.h>
#include <stddef.h>

struct tiara_redop {
    const char *name; /* "f32 sum avx512" */
    size_t elem_size; /* bytes of one element as the engine moves it */
    bool commutative;
    /*
     * dst[0..n) = src[0] op ... op src[nsrc-1]; nsrc >= 1 (1: a copy). Any alignment of every
     * pointer. dst may be exactly equal to any of the sources, and overlaps none otherwise. May not
     * block. Any thread. Errors: none here; a user's operator may fail.
     */
    enum tiara_err (*fold)(
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n);
    /* Divides the finished result by @nranks (AVG); NULL for all others. */
    void (*finish)(const struct tiara_redop *op, void *buf, size_t n, int nranks);
    const void *ctx; /* private to the implementation */
};

/* One instruction set. */
struct tiara_redop_isa {
    const char *name; /* "portable", "avx2", "avx512" */
    bool (*supported)(void); /* this CPU and OS */
    const struct tiara_redop_rows *rows;
};
/* Best first: avx512, avx2, portable; NULL-terminated; only what was compiled in. */
extern const struct tiara_redop_isa *const tiara_redop_isas[];
/* NULL where the combination does not exist in @isa (then a lower one's is used) or nowhere. */
const struct tiara_redop *tiara_redop_in(
    const struct tiara_redop_isa *isa, enum tiara_type type, enum tiara_operator oper);

/*
 * The best supported redop; NULL when the combination is not defined (floats have no logical and
 * bitwise operators). @isa_limit: name of the best row allowed; NULL and a name that is no row's
 * ("auto") mean no limit. All rows give equal bits.
 */
const struct tiara_redop *tiara_redop_find(
    enum tiara_type type, enum tiara_operator oper, const char *isa_limit);
/* AVG of a type: SUM plus finish. Defined where SUM is. Integers divide towards zero. */
const struct tiara_redop *tiara_redop_find_avg(enum tiara_type type, const char *isa_limit);

/* Lower-case names ("f32", "sum"), static storage, and the bytes of an element. */
const char *tiara_type_name(enum tiara_type type);
const char *tiara_operator_name(enum tiara_operator oper);
size_t tiara_type_size(enum tiara_type type);
enum tiara_class tiara_type_class(enum tiara_type type);

#endif
