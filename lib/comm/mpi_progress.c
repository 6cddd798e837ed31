/*
 * Driving the MPI below: most MPIs move a message only while the program is in one of their calls.
 *
 * The one idea: a generalized request that is never complete. To ask about it drives MPI, and it
 * belongs to no communicator: a probe would need one of the program's, would break what that one
 * was promised about wildcards, and drives nothing where it finds a message.
 *
 * Threads. Below MPI_THREAD_MULTIPLE the library's own threads wait for nobody. The others are the
 * program's, inside a call of Tiara's; such a call is one of MPI's by the rules of thread levels.
 */
#include "comm/mpi_progress.h"
#include "base/progress.h"
#include "base/wait.h"
#include <mpi.h>
#include <stddef.h>

/*
 * MPI does not say whether it moved anything. A step that only looks takes some 50 ns through
 * shared memory and up to a microsecond where it asks the kernel; one that moves a fragment of a
 * large message takes several. A wrong guess costs a sleep, or one that could have been slept.
 */
#define MOVED_S 2e-6

static MPI_Request never = MPI_REQUEST_NULL; /* complete */

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int ignore_free(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

static int ignore_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

static bool drive(void)
{
    double before = tiara_now();
    int flag;

    if (never == MPI_REQUEST_NULL)
        return false;
    PMPI_Request_get_status(never, &flag, MPI_STATUS_IGNORE);
    return tiara_now() - before > MOVED_S;
}

int tiara_mpi_progress_open(void)
{
    int rc = PMPI_Grequest_start(query, ignore_free, ignore_cancel, NULL, &never);

    if (rc == MPI_SUCCESS)
        tiara_progress_add(drive);
    return rc;
}

void tiara_mpi_progress_close(void)
{
    if (never == MPI_REQUEST_NULL)
        return;
    PMPI_Grequest_complete(never);
    PMPI_Wait(&never, MPI_STATUS_IGNORE);
}
