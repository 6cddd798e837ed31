/*
 * The shim: the preloaded object. It takes the program's MPI calls and hands them to the engine
 * (engine.h) or, while there is none, to the next definition of the same name.
 *
 * It is loaded into everything that the job starts: mpirun, shells, children, programs of another
 * MPI. So it is linked with no MPI and refers to no symbol of one; mpi.h is for types only, and
 * handles (MPI_COMM_WORLD, MPI_INT) must not be named.
 */
#ifndef TIARA_PMPI_SHIM_H
#define TIARA_PMPI_SHIM_H

#include "base/sync.h"
#include "pmpi/engine.h"
#include <stddef.h>

#define TIARA_SHIM_LIKELY(condition) __builtin_expect(!!(condition), 1)

/*
 * tiara_shim_next() - the definition of a function, or of a variable, behind us
 * Returns NULL when neither a later object of the global scope nor the MPI of the process has it.
 * Any thread; costs a search, so the caller keeps the result.
 */
void *tiara_shim_next(const char *name);
/* The same for what must exist: ends the process with a clear line when it does not. @kept: 0, or
 * what an earlier call found. */
void *tiara_shim_next_kept(const char *name, tiara_u64 *kept);
/* The same, also looking where the object looks that @caller, the address of its code, is in. */
void *tiara_shim_next_by(const char *name, tiara_u64 *kept, void *caller);

/* The address of the engine; 0: there is none; 1: not known yet. */
extern tiara_u64 tiara_shim_current __attribute__((visibility("hidden")));
#define TIARA_SHIM_UNSETTLED 1
/* Finds out whether there is an engine for a process whose MPI may have been initialised behind our
 * back. */
const struct tiara_engine *tiara_shim_settle(void) __attribute__((cold));

/*
 * The engine, which must be asked about each call: NULL before MPI_Init, once MPI_Finalize has
 * begun, in a child after fork, with TIARA_PMPI=off, and where the process has another MPI.
 */
static inline const struct tiara_engine *tiara_shim_engine(void)
{
    /* [pmpi.engine] acquire: the engine was initialised before its address was stored. */
    uintptr_t at = tiara_load_acquire(&tiara_shim_current);

    if (TIARA_SHIM_LIKELY(at != TIARA_SHIM_UNSETTLED))
        return (const struct tiara_engine *)at;
    return tiara_shim_settle();
}

/* Before MPI_Init or MPI_Init_thread, of any language, is passed on. Local. */
void tiara_shim_initializing(void);
/* After MPI_Init or MPI_Init_thread, of any language, succeeded; once is enough, more do no harm.
 * Collective over MPI_COMM_WORLD, where all ranks have the shim. */
void tiara_shim_initialized(void);
/* Before MPI_Finalize, of any language, is passed on; further calls do nothing. Collective over
 * MPI_COMM_WORLD, where all ranks have the shim. */
void tiara_shim_finalizing(void);

#endif
