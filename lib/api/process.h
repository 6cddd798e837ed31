/*
 * The library in a process: from the first call to MPI_Finalize; and the states of communicators.
 */
#ifndef TIARA_API_PROCESS_H
#define TIARA_API_PROCESS_H

#include "comm/comm.h"

/*
 * The state of @comm for a call that may make it: tiara_comm_get. A nonblocking call that came
 * before gets what it needs here.
 */
struct tiara_comm *tiara_process_get(MPI_Comm comm, int *rc_out);
/* The same, if there is one: tiara_comm_find. */
int tiara_process_find(MPI_Comm comm, bool wanted, struct tiara_comm **c_out);

#endif
