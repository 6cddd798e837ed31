/*
 * Blocking calls.
 */
#ifndef TIARA_CALL_RUN_H
#define TIARA_CALL_RUN_H

#include "call/call.h"

struct tiara_task;

/* Starts @t, waits until it is over, and finishes it. Errors: its way's, and those of the wait. */
TIARA_MUST_USE enum tiara_err tiara_run_task(struct tiara_task *t);
/*
 * Carries out a call whose arguments are checked, by Tiara or the MPI below, wherever its buffers
 * are. elem.redop NULL, but for an all-gather: only MPI can. @mine: an error that this rank has met
 * while it described the call, which the others need not have. Returns MPI_SUCCESS or a raised
 * error.
 */
int tiara_run(struct tiara_comm *c, struct tiara_call *call, enum tiara_err mine);

#endif
