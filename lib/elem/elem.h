/*
 * Elements and operators: what MPI's handles are to the engine, and how to combine two elements.
 */
#ifndef TIARA_ELEM_ELEM_H
#define TIARA_ELEM_ELEM_H

#include "redop/redop.h"
#include <mpi.h>

/* What one element is to the engine, and how to combine two. */
struct tiara_elem {
    int type; /* enum tiara_type, or -1 */
    int oper; /* enum tiara_operator, TIARA_NOPER for AVG, or -1 */
    size_t size; /* bytes as the engine moves it */
    bool packed; /* the caller's layout has holes: the call works on packed copies */
    bool own; /* a type or operator that MPI does not know */
    const struct tiara_redop *redop; /* NULL: pass the call on to MPI */
};

/* Native element and operator; false when either is not. The fast path's look-up: no MPI call. */
bool tiara_elem_native(MPI_Datatype type, MPI_Op op, struct tiara_elem *elem_out);
/* A float of 16 or 8 bits: sums are rounded once per fold. */
bool tiara_elem_is_small_float(const struct tiara_elem *elem);
/* Strict rounding for reproducible mode: folds of small floats two by two. */
const struct tiara_redop *tiara_elem_strict(
    const struct tiara_redop *redop, struct tiara_redop *storage);
/*
 * What the MPI below is to be called with for @op, which it may not know; one of Tiara's combines
 * two elements at a time. The call is over after tiara_elem_finish on the result.
 */
MPI_Op tiara_elem_op_below(const struct tiara_elem *elem, MPI_Op op);
/* Divides the sum of @nranks ranks where the operator is AVG. */
void tiara_elem_finish(const struct tiara_elem *elem, void *buf, size_t n, int nranks);
/* Handles that Tiara makes: freed at MPI_Finalize. */
void tiara_elem_release(void);

#endif
