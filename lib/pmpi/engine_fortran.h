/*
 * The Fortran calls in which the engine takes part.
 *
 * What is needed depends on what an MPI's Fortran layer calls below itself (seen with gfortran 12):
 *
 *   Open MPI 4.1   mpif.h and `use mpi` call mpi_wait_ (also there as mpi_wait, mpi_wait__ and
 *                  MPI_WAIT), mpi_f08 calls mpi_wait_f08_. Both end
 *                  in PMPI_Wait, so the C entry points see nothing of Fortran. No descriptors:
 *                  buffers are addresses in all bindings.
 *   MPICH 4.0      mpif.h and `use mpi` call mpi_wait_, and that MPI_Wait. Calls of mpi_f08 with
 *                  buffers (mpi_allreduce_f08ts_, with
 *                  descriptors) also end in the MPI_ name. Those without (mpi_wait_f08_,
 *                  mpi_init_f08_, ...) end in the PMPI_ one.
 *
 * So of Open MPI the shim takes everything, and of MPICH the calls of mpi_f08 without buffers.
 * MPICH's descriptors and its sentinels of buffers stay with MPICH. An MPI of another family is
 * left alone. In either MPI, all bindings that are taken count and answer alike.
 *
 * The bare lower-case name (mpi_wait) is not taken: C libraries have functions of such names
 * (Rmpi's mpi_wait), and would call ours.
 */
#ifndef TIARA_PMPI_ENGINE_FORTRAN_H
#define TIARA_PMPI_ENGINE_FORTRAN_H

#include <mpi.h>
#include <stdbool.h>

/* Which calls end in a PMPI_ name: all, or those of mpi_f08 without buffers. */
#if defined(OPEN_MPI)
#define TIARA_FORTRAN_ALL_ENTRIES 1
#elif defined(MPICH_VERSION)
#define TIARA_FORTRAN_F08_REQUEST_ENTRIES 1
#endif

/*
 * X(name, NAME, parameters, arguments). A handle is an integer in every binding (a structure of
 * one, in mpi_f08), and a status as many integers as MPI_Status has. @ierror is NULL where a
 * program of mpi_f08 leaves it out.
 */
#define TIARA_FORTRAN_COLLECTIVE_CALLS(X)                                                          \
    X(allreduce, ALLREDUCE,                                                                        \
        (char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,              \
            MPI_Fint *comm, MPI_Fint *ierror),                                                     \
        (sendbuf, recvbuf, count, type, op, comm, ierror))                                         \
    X(iallreduce, IALLREDUCE,                                                                      \
        (char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,              \
            MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror),                                  \
        (sendbuf, recvbuf, count, type, op, comm, request, ierror))                                \
    X(reduce_scatter_block, REDUCE_SCATTER_BLOCK,                                                  \
        (char *sendbuf, char *recvbuf, MPI_Fint *recvcount, MPI_Fint *type, MPI_Fint *op,          \
            MPI_Fint *comm, MPI_Fint *ierror),                                                     \
        (sendbuf, recvbuf, recvcount, type, op, comm, ierror))                                     \
    X(allgather, ALLGATHER,                                                                        \
        (char *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, char *recvbuf,                    \
            MPI_Fint *recvcount, MPI_Fint *recvtype, MPI_Fint *comm, MPI_Fint *ierror),            \
        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, ierror))

#define TIARA_FORTRAN_PERSISTENT_CALLS(X)                                                          \
    X(allreduce_init, ALLREDUCE_INIT,                                                              \
        (char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,              \
            MPI_Fint *comm, MPI_Fint *info, MPI_Fint *request, MPI_Fint *ierror),                  \
        (sendbuf, recvbuf, count, type, op, comm, info, request, ierror))

#define TIARA_FORTRAN_REQUEST_CALLS(X)                                                             \
    X(wait, WAIT, (MPI_Fint * request, MPI_Fint * status, MPI_Fint * ierror),                      \
        (request, status, ierror))                                                                 \
    X(waitall, WAITALL,                                                                            \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * statuses, MPI_Fint * ierror),           \
        (count, requests, statuses, ierror))                                                       \
    X(waitany, WAITANY,                                                                            \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * index, MPI_Fint * status,               \
            MPI_Fint * ierror),                                                                    \
        (count, requests, index, status, ierror))                                                  \
    X(waitsome, WAITSOME,                                                                          \
        (MPI_Fint * incount, MPI_Fint * requests, MPI_Fint * outcount, MPI_Fint * indices,         \
            MPI_Fint * statuses, MPI_Fint * ierror),                                               \
        (incount, requests, outcount, indices, statuses, ierror))                                  \
    X(test, TEST, (MPI_Fint * request, MPI_Fint * flag, MPI_Fint * status, MPI_Fint * ierror),     \
        (request, flag, status, ierror))                                                           \
    X(testall, TESTALL,                                                                            \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * flag, MPI_Fint * statuses,              \
            MPI_Fint * ierror),                                                                    \
        (count, requests, flag, statuses, ierror))                                                 \
    X(testany, TESTANY,                                                                            \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * index, MPI_Fint * flag,                 \
            MPI_Fint * status, MPI_Fint * ierror),                                                 \
        (count, requests, index, flag, status, ierror))                                            \
    X(testsome, TESTSOME,                                                                          \
        (MPI_Fint * incount, MPI_Fint * requests, MPI_Fint * outcount, MPI_Fint * indices,         \
            MPI_Fint * statuses, MPI_Fint * ierror),                                               \
        (incount, requests, outcount, indices, statuses, ierror))                                  \
    X(request_free, REQUEST_FREE, (MPI_Fint * request, MPI_Fint * ierror), (request, ierror))      \
    X(request_get_status, REQUEST_GET_STATUS,                                                      \
        (MPI_Fint * request, MPI_Fint * flag, MPI_Fint * status, MPI_Fint * ierror),               \
        (request, flag, status, ierror))                                                           \
    X(request_get_status_any, REQUEST_GET_STATUS_ANY,                                              \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * index, MPI_Fint * flag,                 \
            MPI_Fint * status, MPI_Fint * ierror),                                                 \
        (count, requests, index, flag, status, ierror))                                            \
    X(request_get_status_all, REQUEST_GET_STATUS_ALL,                                              \
        (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * flag, MPI_Fint * statuses,              \
            MPI_Fint * ierror),                                                                    \
        (count, requests, flag, statuses, ierror))                                                 \
    X(request_get_status_some, REQUEST_GET_STATUS_SOME,                                            \
        (MPI_Fint * incount, MPI_Fint * requests, MPI_Fint * outcount, MPI_Fint * indices,         \
            MPI_Fint * statuses, MPI_Fint * ierror),                                               \
        (incount, requests, outcount, indices, statuses, ierror))                                  \
    X(start, START, (MPI_Fint * request, MPI_Fint * ierror), (request, ierror))                    \
    X(startall, STARTALL, (MPI_Fint * count, MPI_Fint * requests, MPI_Fint * ierror),              \
        (count, requests, ierror))

#define TIARA_FORTRAN_COMM_CALLS(X)                                                                \
    X(comm_free, COMM_FREE, (MPI_Fint * comm, MPI_Fint * ierror), (comm, ierror))                  \
    X(comm_disconnect, COMM_DISCONNECT, (MPI_Fint * comm, MPI_Fint * ierror), (comm, ierror))

/*
 * Each returns whether it did the call. If not, it has touched no argument, and the shim hands the
 * call to the next definition of the same Fortran name; a collective call has been counted then.
 */
struct tiara_engine_fortran {
#define X(name, NAME, parameters, arguments) bool(*name) parameters;
    TIARA_FORTRAN_COLLECTIVE_CALLS(X)
    TIARA_FORTRAN_PERSISTENT_CALLS(X) TIARA_FORTRAN_REQUEST_CALLS(X) TIARA_FORTRAN_COMM_CALLS(X)
#undef X
};

extern const struct tiara_engine_fortran tiara_engine_fortran;

#endif
