/*
 * A tool of the kind that is preloaded beside others: counts the program's calls of two functions,
 * and passes them on. Rank 0 prints "count: ALLREDUCES allreduces, WAITS waits" at the end.
 */
#include <mpi.h>
#include <stdio.h>

static int allreduces, waits;

int MPI_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    allreduces++;
    return PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    waits++;
    return PMPI_Wait(request, status);
}

int MPI_Finalize(void)
{
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "count: %d allreduces, %d waits\n", allreduces, waits);
    return PMPI_Finalize();
}
