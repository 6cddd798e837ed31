/*
 * Calls that are ordered in a stream of the program's.
 */
#ifndef TIARA_CALL_STREAM_H
#define TIARA_CALL_STREAM_H

#include "call/call.h"

/* An all-reduce whose arguments are checked, in @stream (cudaStream_t). The process uses CUDA.
 * Returns MPI_SUCCESS, also when it is only enqueued, or a raised error. */
int tiara_stream_run(struct tiara_comm *c, struct tiara_call *call, void *stream);
/* Waits for all calls in streams. Returns what they ended with, raised. */
int tiara_stream_synchronize(struct tiara_comm *c);

#endif
