/*
 * From the arguments of a call to its description, once; what is wrong with them is found here.
 */
#ifndef TIARA_API_DESCRIBE_H
#define TIARA_API_DESCRIBE_H

#include "call/call.h"
#include "elem/elem_mpi.h"

/* A call, and what its element needs while it lasts. */
struct tiara_description {
    struct tiara_call call;
    struct tiara_elem_mpi combiner;
    enum tiara_err err; /* that this rank alone may have met: no memory */
};

/*
 * Describes a reduction (ALLREDUCE, REDUCE_SCATTER) on @c. Returns MPI_SUCCESS, and then
 * call.count is what is to be done: 0: nothing. Or the error that was raised. MPI judges counts
 * and buffers of intercommunicators. Given back with tiara_describe_end, whatever was returned.
 */
int tiara_describe_reduction(struct tiara_description *d, struct tiara_comm *c,
    enum tiara_coll coll, const struct tiara_args *args);
/* The same for an all-gather. */
int tiara_describe_allgather(
    struct tiara_description *d, struct tiara_comm *c, const struct tiara_args *args);
void tiara_describe_end(struct tiara_description *d);
/* A call that goes to the MPI below as it is. */
void tiara_describe_raw(
    struct tiara_call *call_out, enum tiara_coll coll, const struct tiara_args *args);

/* Null, aliased or misplaced buffers of a call with data. Absolute addresses (MPI_BOTTOM) are for
 * derived types. */
bool tiara_describe_bad_buffers(const void *sendbuf, const void *recvbuf, bool native);
/* Null handles, and what Tiara adds to MPI in a pair that is not defined (@other: not native); the
 * error class or MPI_SUCCESS. */
int tiara_describe_bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other);

#endif
