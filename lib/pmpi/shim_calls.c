/*
 * The C calls that the shim takes. Each asks for the engine, and goes there or on to the next
 * definition, with its arguments as they are: a few instructions and a jump.
 */
#include "pmpi/shim_priv.h"

/*
 * Where handles are ints here, the program's MPI, which may be another, can have pointers: whole
 * words go through. The definitions have names of their own, since mpi.h has declared MPI's with
 * its own types.
 */
#ifndef OPEN_MPI
#define MPI_Comm intptr_t
#define MPI_Datatype intptr_t
#define MPI_Op intptr_t
#define MPI_Info intptr_t
#undef TIARA_PMPI_REQUEST
#define TIARA_PMPI_REQUEST intptr_t
#endif

/* The longer way is apart, so that the shortest saves no registers. */
#define DEFINE(mpi_name, name, parameters, arguments)                                              \
    static __attribute__((noinline)) int away_##mpi_name parameters                                \
    {                                                                                              \
        static tiara_u64 kept;                                                                     \
        const struct tiara_engine *engine = tiara_shim_engine();                                   \
        int(*next) parameters;                                                                     \
                                                                                                   \
        if (engine)                                                                                \
            return engine->calls.name arguments;                                                   \
        next = (int(*) parameters)tiara_shim_next_kept(#mpi_name, &kept);                          \
        return next arguments;                                                                     \
    }                                                                                              \
    int taken_##mpi_name parameters __asm__(#mpi_name);                                            \
    int taken_##mpi_name parameters                                                                \
    {                                                                                              \
        /* [pmpi.engine] acquire: as in tiara_shim_engine */                                       \
        uintptr_t at = tiara_load_acquire(&tiara_shim_current);                                    \
                                                                                                   \
        if (TIARA_SHIM_LIKELY(at > TIARA_SHIM_UNSETTLED))                                          \
            return ((const struct tiara_engine *)at)->calls.name arguments;                        \
        return away_##mpi_name arguments;                                                          \
    }
#define X(name, parameters, arguments) DEFINE(MPI_##name, name, parameters, arguments)
TIARA_PMPI_COLLECTIVE_CALLS(X)
TIARA_PMPI_REQUEST_CALLS(X)
#ifdef HAVE_MPI_LARGE_COUNT
TIARA_PMPI_LARGE_CALLS(X)
#endif
#ifdef HAVE_MPI_ALLREDUCE_INIT
TIARA_PMPI_PERSISTENT_CALLS(X)
#endif
#undef X
#if defined(HAVE_MPIX_ALLREDUCE_INIT) && !defined(HAVE_MPI_ALLREDUCE_INIT)
#define X(name, parameters, arguments) DEFINE(MPIX_##name, name, parameters, arguments)
TIARA_PMPI_PERSISTENT_CALLS(X)
#undef X
#endif

#ifndef OPEN_MPI
#undef MPI_Comm
#undef MPI_Datatype
#undef MPI_Op
#undef MPI_Info
#undef TIARA_PMPI_REQUEST
#define TIARA_PMPI_REQUEST MPI_Request
#endif

#define X(name, parameters, arguments) DEFINE(MPI_##name, name, parameters, arguments)
TIARA_PMPI_COMM_CALLS(X)
#undef X

int MPI_Init(int *argc, char ***argv)
{
    static tiara_u64 kept;
    int (*next)(int *, char ***) =
        (int (*)(int *, char ***))tiara_shim_next_kept("MPI_Init", &kept);
    int rc;

    tiara_shim_initializing();
    rc = next(argc, argv);
    if (rc == MPI_SUCCESS)
        tiara_shim_initialized();
    return rc;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    static tiara_u64 kept;
    int (*next)(int *, char ***, int, int *) =
        (int (*)(int *, char ***, int, int *))tiara_shim_next_kept("MPI_Init_thread", &kept);
    int rc;

    tiara_shim_initializing();
    rc = next(argc, argv, required, provided);
    if (rc == MPI_SUCCESS)
        tiara_shim_initialized();
    return rc;
}

int MPI_Finalize(void)
{
    static tiara_u64 kept;
    int (*next)(void) = (int (*)(void))tiara_shim_next_kept("MPI_Finalize", &kept);

    tiara_shim_finalizing();
    return next();
}
