/*
 * The Fortran calls that the shim takes; engine_fortran.h says which and why. Each asks the engine,
 * when there is one, and goes on to the next definition of the same name, with its arguments as
 * they are, when the engine does not want it.
 */
#include "pmpi/engine_fortran.h"
#include "pmpi/shim.h"

#define ENTRY(symbol, name, parameters, arguments)                                                 \
    void symbol parameters                                                                         \
    {                                                                                              \
        static tiara_u64 kept;                                                                     \
        const struct tiara_engine *engine = tiara_shim_engine();                                   \
        void(*next) parameters;                                                                    \
                                                                                                   \
        if (TIARA_SHIM_LIKELY(engine) && engine->fortran->name arguments)                          \
            return;                                                                                \
        next =                                                                                     \
            (void(*) parameters)tiara_shim_next_by(#symbol, &kept, __builtin_return_address(0));   \
        next arguments;                                                                            \
    }

#define INIT_ENTRY(symbol)                                                                         \
    void symbol(MPI_Fint *ierror)                                                                  \
    {                                                                                              \
        static tiara_u64 kept;                                                                     \
        void (*next)(MPI_Fint *) =                                                                 \
            (void (*)(MPI_Fint *))tiara_shim_next_by(#symbol, &kept, __builtin_return_address(0)); \
        MPI_Fint err = MPI_SUCCESS;                                                                \
                                                                                                   \
        tiara_shim_initializing();                                                                 \
        next(&err);                                                                                \
        if (ierror)                                                                                \
            *ierror = err;                                                                         \
        if (err == MPI_SUCCESS)                                                                    \
            tiara_shim_initialized();                                                              \
    }

#define INIT_THREAD_ENTRY(symbol)                                                                  \
    void symbol(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror)                          \
    {                                                                                              \
        static tiara_u64 kept;                                                                     \
        void (*next)(MPI_Fint *, MPI_Fint *, MPI_Fint *) = (void (*)(MPI_Fint *, MPI_Fint *,       \
            MPI_Fint *))tiara_shim_next_by(#symbol, &kept, __builtin_return_address(0));           \
        MPI_Fint err = MPI_SUCCESS;                                                                \
                                                                                                   \
        tiara_shim_initializing();                                                                 \
        next(required, provided, &err);                                                            \
        if (ierror)                                                                                \
            *ierror = err;                                                                         \
        if (err == MPI_SUCCESS)                                                                    \
            tiara_shim_initialized();                                                              \
    }

#define FINALIZE_ENTRY(symbol)                                                                     \
    void symbol(MPI_Fint *ierror)                                                                  \
    {                                                                                              \
        static tiara_u64 kept;                                                                     \
        void (*next)(MPI_Fint *) =                                                                 \
            (void (*)(MPI_Fint *))tiara_shim_next_by(#symbol, &kept, __builtin_return_address(0)); \
                                                                                                   \
        tiara_shim_finalizing();                                                                   \
        next(ierror);                                                                              \
    }

/* The names that compilers give to `mpi_wait`, and the one of mpi_f08. */
#define PLAIN(name, NAME, parameters, arguments)                                                   \
    ENTRY(mpi_##name##_, name, parameters, arguments)                                              \
    ENTRY(mpi_##name##__, name, parameters, arguments)                                             \
    ENTRY(MPI_##NAME, name, parameters, arguments)
#define F08(name, NAME, parameters, arguments) ENTRY(mpi_##name##_f08_, name, parameters, arguments)
#define PLAIN_X(name, NAME, parameters, arguments)                                                 \
    ENTRY(mpix_##name##_, name, parameters, arguments)                                             \
    ENTRY(mpix_##name##__, name, parameters, arguments)                                            \
    ENTRY(MPIX_##NAME, name, parameters, arguments)
#define F08_X(name, NAME, parameters, arguments)                                                   \
    ENTRY(mpix_##name##_f08_, name, parameters, arguments)

#ifdef TIARA_FORTRAN_ALL_ENTRIES
TIARA_FORTRAN_COLLECTIVE_CALLS(PLAIN)
TIARA_FORTRAN_COLLECTIVE_CALLS(F08)
TIARA_FORTRAN_REQUEST_CALLS(PLAIN)
TIARA_FORTRAN_COMM_CALLS(PLAIN)
INIT_ENTRY(mpi_init_)
INIT_ENTRY(mpi_init__)
INIT_ENTRY(MPI_INIT)
INIT_THREAD_ENTRY(mpi_init_thread_)
INIT_THREAD_ENTRY(mpi_init_thread__)
INIT_THREAD_ENTRY(MPI_INIT_THREAD)
FINALIZE_ENTRY(mpi_finalize_)
FINALIZE_ENTRY(mpi_finalize__)
FINALIZE_ENTRY(MPI_FINALIZE)
#if defined(HAVE_MPI_ALLREDUCE_INIT)
TIARA_FORTRAN_PERSISTENT_CALLS(PLAIN)
TIARA_FORTRAN_PERSISTENT_CALLS(F08)
#elif defined(HAVE_MPIX_ALLREDUCE_INIT)
TIARA_FORTRAN_PERSISTENT_CALLS(PLAIN_X)
TIARA_FORTRAN_PERSISTENT_CALLS(F08_X)
#endif
#endif

#if defined(TIARA_FORTRAN_ALL_ENTRIES) || defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)
TIARA_FORTRAN_REQUEST_CALLS(F08)
TIARA_FORTRAN_COMM_CALLS(F08)
INIT_ENTRY(mpi_init_f08_)
INIT_THREAD_ENTRY(mpi_init_thread_f08_)
FINALIZE_ENTRY(mpi_finalize_f08_)
#endif
