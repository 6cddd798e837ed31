/*
 * Whoever waits in Tiara moves all that its process owes to others, also what is MPI's.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 2 TIARA_PROGRESS=call OMPI_MCA_btl=self,tcp */
#include "m_requests_case.h"
#include <stdlib.h>

enum way {
    BLOCKING,
    WAIT,
    TEST,
    GET_STATUS,
    PERSISTENT,
    NWAYS
};

enum {
    ROUNDS = 30,
    BYTES = 4 << 20
};

static MPI_Comm prepared(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    TIARA_Comm_prepare(comm);
    mt_check(mr_is_served(comm), "nonblocking calls are left to MPI");
    return comm;
}

/* A sum of ints on @comm. @persistent: of the int at mine, into *result. */
static void sum_in(enum way way, MPI_Comm comm, TIARA_Request *persistent, int *mine, int *result)
{
    TIARA_Request request = TIARA_REQUEST_NULL, *r = way == PERSISTENT ? persistent : &request;
    int flag = 0, err = MPI_SUCCESS;
    *result = -1;
    if (way == BLOCKING)
        err = TIARA_Allreduce(mine, result, 1, MPI_INT, MPI_SUM, comm);
    else if (way == PERSISTENT)
        TIARA_Start(persistent);
    else
        TIARA_Iallreduce(mine, result, 1, MPI_INT, MPI_SUM, comm, &request);
    while (way == GET_STATUS && !flag)
        TIARA_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    for (flag = 0; way == TEST && !flag;)
        err = TIARA_Test(&request, &flag, MPI_STATUS_IGNORE);
    if (way != BLOCKING)
        err = TIARA_Wait(r, MPI_STATUS_IGNORE);
    mt_check(err == MPI_SUCCESS && *result == mt_size * (mt_size + 1) / 2, "way %d: error %d, %d",
        (int)way, err, *result);
}

/* One rank wants the end of a barrier of MPI's, or messages, before it comes to the sum. */
START_TEST(test_requests_that_are_waited_for_let_mpi_go_on)
{
    MPI_Comm comm = prepared();
    TIARA_Request persistent;
    int mine = mt_rank + 1, result;
    char *data = calloc(1, BYTES);
    TIARA_Allreduce_init(&mine, &result, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &persistent);
    for (int round = 0; round < ROUNDS * NWAYS; round++) {
        int late = round / NWAYS % mt_size;
        bool message = round < NWAYS;
        MPI_Request request;
        mt_note("way %d, rank %d wants %s first", round % NWAYS, late, message ? "data" : "all");
        if (!message)
            MPI_Ibarrier(MPI_COMM_WORLD, &request);
        else if (mt_rank != late)
            MPI_Isend(data, BYTES, MPI_BYTE, late, round, MPI_COMM_WORLD, &request);
        for (int k = 1; message && mt_rank == late && k < mt_size; k++)
            MPI_Recv(
                data, BYTES, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!message && mt_rank == late)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        sum_in(round % NWAYS, comm, &persistent, &mine, &result);
        if (mt_rank != late)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    TIARA_Request_free(&persistent);
    free(data);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_requests_progress", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_requests_that_are_waited_for_let_mpi_go_on);
    return mt_end();
}
