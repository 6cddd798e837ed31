/*
 * Private to lib/comm: the MPI below goes on while this process waits in Tiara.
 */
#ifndef TIARA_COMM_MPI_PROGRESS_H
#define TIARA_COMM_MPI_PROGRESS_H

/* From now on whoever waits drives MPI (base/progress.h). Once. Returns MPI's code. */
int tiara_mpi_progress_open(void);
/* MPI_Finalize has begun: nobody does any more. */
void tiara_mpi_progress_close(void);

#endif
