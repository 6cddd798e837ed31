/*
 * The shim inside: what its C files share.
 */
#ifndef TIARA_PMPI_SHIM_PRIV_H
#define TIARA_PMPI_SHIM_PRIV_H

#include "pmpi/shim.h"

/* ---- shim_find.c ---- */

/* Writes "tiara: [RANK] warn: TEXT: DETAIL". @detail may be NULL. */
void tiara_shim_say(const char *text, const char *detail);
/* The same from rank 0 of the job alone, where the process can tell. */
void tiara_shim_warn(const char *text, const char *detail);
/* Fills @host->next with what stands behind the shim. */
void tiara_shim_next_calls(struct tiara_pmpi_host *host);
/* Calls that complete requests, of C and of Fortran, by name: the shim defines them, and no tool in
 * front may take them. Ends in NULL. */
extern const char *const tiara_shim_completions[];
/* Whether the MPI of the process is the one that Tiara was built with, by its name and version;
 * says so when it is not, once. */
bool tiara_shim_mpi_fits(void);

/* ---- shim_ranks.c ---- */

/* Before MPI_Init is passed on, where the mark cannot be left later. */
void tiara_shim_leave_mark(void);
/*
 * Whether all ranks of MPI_COMM_WORLD, of which this one is @rank of @size, have the shim and an
 * MPI that fits; says so when they have not, if interception @is_wanted. MPI is initialised. Local,
 * and alike on all ranks.
 */
bool tiara_shim_is_everywhere(int rank, int size, bool is_wanted);

#endif
