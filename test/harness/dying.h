/*
 * Jobs whose ranks end without MPI_Finalize: a program starts them of itself, and looks how they
 * ended.
 */
#ifndef TIARA_TEST_DYING_H
#define TIARA_TEST_DYING_H

/*
 * Runs a job of @nranks ranks of this program, with TIARA_TEST_ROLE=@role and the @variables (A=B
 * ...), by TIARA_TEST_MPIRUN. Fails the test unless it ends, in time and with an error, and leaves
 * nothing of Tiara's in /dev/shm.
 */
void tiara_dying_job(const char *role, int nranks, const char *variables);

#endif
