/*
 * A handle that MPI gives out again, to another thread, while the thread that has just completed
 * its last request is still in the completing call: what the latter ended with is not the former's.
 *
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 */
#include "mpi_run.h"
#include "s_suite.h"

#include <pthread.h>

static MPI_Request first, again; /* one handle, before and after */
static void *(*with_again)(void *);

static int say_nothing(void *extra, MPI_Status *status)
{
    (void)extra;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int end_quietly(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

static int never_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

/* MPI is completing a list, and has freed all before this one. */
static int start_again(void *extra)
{
    pthread_t thread;

    (void)extra;
    PMPI_Grequest_start(say_nothing, end_quietly, never_cancel, NULL, &again);
    pthread_create(&thread, NULL, with_again, NULL);
    pthread_join(thread, NULL);
    return MPI_SUCCESS;
}

static void *complete_again(void *arg)
{
    int flag = 1, err;

    mt_check(again == first, "no handle was given out again");
    err = MPI_Test(&again, &flag, MPI_STATUS_IGNORE);
    mt_check(err == MPI_SUCCESS && !flag, "not complete: error %d, flag %d", err, flag);
    MPI_Grequest_complete(again);
    err = MPI_Wait(&again, MPI_STATUS_IGNORE);
    mt_check(err == MPI_SUCCESS && again == MPI_REQUEST_NULL, "another request's error %d", err);
    return arg;
}

/* A sum for which the ranks have different counts, in a list. */
START_TEST(test_handle_given_again_is_another_request)
{
    int in[2] = {1, 2}, out[2], err;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Iallreduce(in, out, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm);
    MPI_Iallreduce(in, out, 1 + mt_rank, MPI_INT, MPI_SUM, comm, &requests[0]);
    PMPI_Grequest_start(say_nothing, start_again, never_cancel, NULL, &requests[1]);
    MPI_Grequest_complete(requests[1]);
    first = requests[0];
    with_again = complete_again;
    mt_stderr_begin();
    err = MPI_Waitall(2, requests, statuses);
    free(mt_stderr_end());
    mt_check(s_class(err) == MPI_ERR_IN_STATUS && statuses[0].MPI_ERROR != MPI_SUCCESS,
        "the sum's own error is lost: %d", err);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* ---- whether this MPI does so ---- */

static void *end_again(void *arg)
{
    MPI_Request request = again;

    PMPI_Grequest_complete(request);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    return arg;
}

static bool gives_again(void)
{
    MPI_Request requests[2];

    PMPI_Grequest_start(say_nothing, end_quietly, never_cancel, NULL, &requests[0]);
    PMPI_Grequest_start(say_nothing, start_again, never_cancel, NULL, &requests[1]);
    PMPI_Grequest_complete(requests[0]);
    PMPI_Grequest_complete(requests[1]);
    first = requests[0];
    with_again = end_again;
    PMPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return again == first;
}

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "p_handles", MPI_THREAD_MULTIPLE);
    int provided;

    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return mt_skip("this MPI has no MPI_THREAD_MULTIPLE");
    if (!gives_again())
        return mt_skip("this MPI gives no handle out again at once");
    tcase_add_test(tests, test_handle_given_again_is_another_request);
    return mt_end();
}
