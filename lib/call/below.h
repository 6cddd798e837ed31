/*
 * The MPI below: what Tiara does not do, or not faster.
 */
#ifndef TIARA_CALL_BELOW_H
#define TIARA_CALL_BELOW_H

#include "call/call.h"

/*
 * Has the MPI below do the call as the caller described it, with an operator that it knows. @c:
 * NULL, the communicator has no state. Returns MPI's code, which it has raised.
 */
int tiara_below_run(MPI_Comm comm, struct tiara_comm *c, const struct tiara_call *call);
/*
 * Makes a persistent all-reduce of the MPI below; of MPI 4.0, or of Open MPI before. Collective.
 * Returns MPI's code, which it has raised; MPI_ERR_UNSUPPORTED_OPERATION where it has none.
 */
int tiara_below_init(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Request *request);
/*
 * Before a call goes to the MPI below: whether all ranks can begin it, with the copies that it
 * needs. Collective, where GPU memory is possible at all.
 * Errors: @mine; TIARA_ERR_PEER when another rank cannot, or has failed in this call.
 */
TIARA_MUST_USE enum tiara_err tiara_below_agree(struct tiara_comm *c, enum tiara_err mine);
/* Ranks whose data a reduction on @comm combines: of an intercommunicator, the other group's. */
int tiara_below_ranks(MPI_Comm comm);
/* Has MPI judge handles that Tiara does not know, without data: it returns or raises its own error.
 * Collective only where an MPI makes a call without elements collective. */
int tiara_below_judge(MPI_Comm comm, MPI_Datatype type, MPI_Op op);

/* Raises @err on @comm as an MPI error code, which is returned. */
int tiara_below_raise(MPI_Comm comm, enum tiara_err err);
/* Raises the MPI error @code on @comm, and returns it. */
int tiara_below_raise_code(MPI_Comm comm, int code);

#endif
