/*
 * An MPI that computes wrongly, for the tests of verify: on rank 1, the last element of each
 * MPI_Allreduce and MPI_Iallreduce of integers is one more than it should be. Preloaded behind the
 * library under test, it is what that takes for the MPI.
 */
#include <mpi.h>

static void spoil(void *recvbuf, int count, MPI_Datatype type)
{
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && count > 0 && type == MPI_INT)
        ((int *)recvbuf)[count - 1]++;
}

int MPI_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rc = PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);

    spoil(recvbuf, count, type);
    return rc;
}

/* Complete at once. */
int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Request *request)
{
    static char nothing;
    int rc = PMPI_Iallreduce(sendbuf, recvbuf, count, type, op, comm, request);

    if (rc == MPI_SUCCESS)
        rc = PMPI_Wait(request, MPI_STATUS_IGNORE);
    spoil(recvbuf, count, type);
    /* What completes at once, as a request that the program still has to wait for. */
    return rc == MPI_SUCCESS ? PMPI_Irecv(&nothing, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, request)
                             : rc;
}
