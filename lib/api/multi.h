/*
 * Private to lib/core: the packed all-reduce, TIARA_Allreduce_multi.
 */
#ifndef TIARA_API_MULTI_H
#define TIARA_API_MULTI_H

/* Frees the memory that calls keep for the next one; at MPI_Finalize. */
void tiara_multi_release(void);

#endif
