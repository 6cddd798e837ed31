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
 * Describes a call on @comm, whose state is @c. Returns MPI_SUCCESS, and then call.count is what is
 * to be done: 0: nothing. Or the error that was raised. MPI judges counts and buffers of
 * intercommunicators, and where there is no state (@c is NULL). Given back with tiara_describe_end,
 * whatever was returned.
 */
int tiara_describe(struct tiara_description *d, MPI_Comm comm, struct tiara_comm *c,
    enum tiara_coll coll, const struct tiara_args *args);
void tiara_describe_end(struct tiara_description *d);

/* Null, aliased or misplaced buffers of a call with data. Absolute addresses (MPI_BOTTOM) are for
 * derived types. */
bool tiara_describe_bad_buffers(const void *sendbuf, const void *recvbuf, bool native);
/* Null handles, and what Tiara adds to MPI in a pair that is not defined (@other: not native); the
 * error class or MPI_SUCCESS. */
int tiara_describe_bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other);

#endif
