/*
 * Ranks that start different calls, preloaded: a rank that looks for the end in a loop, its own or
 * MPI_Waitany's, is told that there will be none, as one in MPI_Wait is.
 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
#include "s_suite.h"

enum way {
    WAIT,
    WAITALL,
    WAITANY,
    WAITSOME,
    TEST,
    TESTALL,
    TESTANY,
    TESTSOME,
    GET_STATUS,
    NWAYS
};
enum {
    LARGE = 100000 /* elements: more than what is exchanged at once */
};

/* Returns what was said of the call. */
static int complete(enum way way, MPI_Request *request)
{
    MPI_Status status = {.MPI_ERROR = MPI_SUCCESS};
    int flag = 0, index = 0, err = MPI_SUCCESS;
    if (way == WAIT)
        err = MPI_Wait(request, &status);
    else if (way == WAITALL)
        err = MPI_Waitall(1, request, &status);
    else if (way == WAITANY)
        err = MPI_Waitany(1, request, &index, &status);
    else if (way == WAITSOME)
        err = MPI_Waitsome(1, request, &flag, &index, &status);
    while (way == TESTALL && !flag)
        err = MPI_Testall(1, request, &flag, &status);
    while (way == TESTANY && !flag)
        err = MPI_Testany(1, request, &index, &flag, &status);
    while (way == TESTSOME && !flag)
        err = MPI_Testsome(1, request, &flag, &index, &status);
    while (way == GET_STATUS && !flag)
        MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE);
    for (flag = 0; (way == TEST || way == GET_STATUS) && !flag;)
        err = MPI_Test(request, &flag, &status);
    mt_check(*request == MPI_REQUEST_NULL, "way %d: a request is left", (int)way);
    return err;
}

START_TEST(test_calls_that_differ_end_in_every_loop)
{
    for (int way = 0; way < NWAYS; way++) {
        int odd = way % mt_size, mine, anyone = 0;
        static int data[LARGE], sums[LARGE];
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        s_warm_up(comm);
        mt_note("way %d, rank %d calls differently", way, odd);
        mt_stderr_begin();
        MPI_Iallreduce(data, sums, mt_rank == odd ? LARGE : 1, MPI_INT, MPI_SUM, comm, &request);
        mine = complete((enum way)way, &request) != MPI_SUCCESS;
        free(mt_stderr_end());
        PMPI_Allreduce(&mine, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
        mt_check(anyone, "way %d: nobody was told", way);
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "w_watchdog", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_calls_that_differ_end_in_every_loop);
    return mt_end();
}
