/*
 * Progress (MPI 4.0, section 3.7.4): a rank that waits for an all-reduce, of whatever kind, goes on
 * with all else that it has started, since another rank may need that before it comes to the
 * all-reduce: its part of a barrier, the rest of a large message.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_LAYOUT=2x2 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 OMPI_MCA_btl=self,tcp */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 OMPI_MCA_btl_vader_single_copy_mechanism=none */
#include "s_suite.h"

enum {
    ROUNDS = 60,
    BYTES = 4 << 20
};

/* How a rank waits for its all-reduce. */
enum way {
    BLOCKING,
    WAIT,
    WAITALL,
    WAITANY,
    WAITSOME,
    TEST,
    TESTALL,
    GET_STATUS,
    NWAYS
};

static void wait_in(enum way way, MPI_Request *request)
{
    int flag = 0, index = 0;
    if (way == WAIT)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    else if (way == WAITALL)
        MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
    else if (way == WAITANY)
        MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
    else if (way == WAITSOME)
        MPI_Waitsome(1, request, &flag, &index, MPI_STATUSES_IGNORE);
    while (way == TEST && !flag)
        MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    while (way == TESTALL && !flag)
        MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
    while (way == GET_STATUS && !flag)
        MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE);
    if (way == GET_STATUS)
        MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void sum_in(enum way way, uint64_t salt)
{
    struct s_job job = s_job_new(MPI_COMM_WORLD, 1 + salt % 3, salt, false);
    MPI_Request request;
    if (way == BLOCKING) {
        MPI_Allreduce(job.send.data, job.recv.data, (int)job.count, MPI_INT, MPI_SUM, job.comm);
    } else {
        s_start(&job, &request);
        wait_in(way, &request);
    }
    s_job_end(&job, MPI_COMM_WORLD);
}

/* After it an all-reduce of any kind is a library's that takes its time. */
static void warm_up(void)
{
    for (uint64_t k = 0; k < 20; k++)
        s_allreduce(MPI_COMM_WORLD, 1, k, false);
    s_warm_up(MPI_COMM_WORLD);
}

/* One rank wants the end of a barrier before it comes to the all-reduce. */
START_TEST(test_progress_of_a_barrier_goes_on)
{
    warm_up();
    for (int round = 0; round < ROUNDS; round++) {
        int late = round / NWAYS % mt_size;
        enum way way = round % NWAYS;
        MPI_Request barrier;
        mt_note("way %d, rank %d wants the barrier first", (int)way, late);
        MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
        if (mt_rank == late)
            MPI_Wait(&barrier, MPI_STATUS_IGNORE);
        sum_in(way, (uint64_t)round);
        MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    }
    mt_agree();
}
END_TEST

/* The last rank wants a message from each other one. With a message to itself under way, an MPI
 * that is asked for messages has an answer without looking any further. */
START_TEST(test_progress_of_a_large_message_goes_on)
{
    char *data = malloc(BYTES), self = 0, mine = 1;
    MPI_Request send, to_self;
    warm_up();
    MPI_Isend(&mine, 1, MPI_BYTE, 0, 5, MPI_COMM_SELF, &to_self);
    for (int way = 0; way < NWAYS; way++) {
        mt_note("way %d, large messages", way);
        memset(data, mt_rank, BYTES);
        if (mt_rank < mt_size - 1)
            MPI_Isend(data, BYTES, MPI_BYTE, mt_size - 1, way, MPI_COMM_WORLD, &send);
        for (int r = 0; mt_rank == mt_size - 1 && r < mt_size - 1; r++) {
            MPI_Recv(data, BYTES, MPI_BYTE, r, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            mt_check(data[0] == r && data[BYTES - 1] == r, "rank %d: another's message", r);
        }
        sum_in((enum way)way, (uint64_t)way);
        if (mt_rank < mt_size - 1)
            MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&self, 1, MPI_BYTE, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&to_self, MPI_STATUS_IGNORE);
    mt_check(self == 1, "the message to itself is %d", self);
    free(data);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "w_progress", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_progress_of_a_barrier_goes_on);
    tcase_add_test(tests, test_progress_of_a_large_message_goes_on);
    return mt_end();
}
