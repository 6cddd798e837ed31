/*
 * What MPI 4.1 has beside MPI_Request_get_status, for lists, made of that: stands behind the
 * library in the place of an MPI that has it. MPI_Request_get_status gives an inactive request a
 * status that says nothing; so this is for requests that have something to say, or are null.
 */
#include <mpi.h>

static int is_inactive(const MPI_Status *status)
{
    int n;

    PMPI_Get_count(status, MPI_BYTE, &n);
    return status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && n == 0;
}

/* Of all that are complete the first @most; *active_out: how many are active. */
static int look(int count, const MPI_Request requests[], int most, int indices[], int *active_out)
{
    int n = 0;

    *active_out = 0;
    for (int i = 0; i < count; i++) {
        MPI_Status status;
        int flag;

        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        PMPI_Request_get_status(requests[i], &flag, &status);
        if (flag && is_inactive(&status))
            continue;
        ++*active_out;
        if (flag && n < most)
            indices[n++] = i;
    }
    return n;
}

int MPI_Request_get_status_any(
    int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status);
int MPI_Request_get_status_any(
    int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    int active;

    (void)status;
    *flag = look(count, requests, 1, index, &active) > 0;
    if (active == 0)
        *index = MPI_UNDEFINED;
    *flag = *flag || active == 0;
    return MPI_SUCCESS;
}

int MPI_Request_get_status_all(
    int count, const MPI_Request requests[], int *flag, MPI_Status *statuses);
int MPI_Request_get_status_all(
    int count, const MPI_Request requests[], int *flag, MPI_Status *statuses)
{
    int indices[64], active, n = look(count, requests, 64, indices, &active);

    (void)statuses;
    *flag = n == active;
    return MPI_SUCCESS;
}

int MPI_Request_get_status_some(
    int incount, const MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
int MPI_Request_get_status_some(
    int incount, const MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    int active;

    (void)statuses;
    *outcount = look(incount, requests, incount, indices, &active);
    if (active == 0)
        *outcount = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
