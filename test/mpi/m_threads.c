/*
 * Four threads of each rank, each on its own communicator, at the same time.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_LAYOUT=1+2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=sub */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    THREADS = 4,
    STEPS = 60
};

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number;
};

static void *work(void *arg)
{
    const struct worker *w = arg;
    static const int counts[] = {1, 4, 70, 1500, 20000};
    for (int step = 0; step < STEPS; step++) {
        int count = counts[(step + w->number) % 5];
        struct mt_buf send = mt_buf_new((size_t)count * sizeof(long), 0),
                      recv = mt_buf_new_result(send.bytes, 0);
        long *in = (long *)send.data, *out = (long *)recv.data;
        for (int i = 0; i < count; i++)
            in[i] = (long)i * (w->number + 1) + step + mt_rank;
        int err = TIARA_Allreduce(
            mt_buf_lend(&send), mt_buf_lend(&recv), count, MPI_LONG, MPI_SUM, w->comm);
        mt_buf_take(&recv);
        long base = (long)mt_size * (mt_size - 1) / 2;
        int wrong = 0;
        for (int i = 0; i < count; i++)
            wrong += out[i] != mt_size * ((long)i * (w->number + 1) + step) + base;
        mt_check(err == MPI_SUCCESS && wrong == 0, "thread %d step %d count %d: error %d, %d wrong",
            w->number, step, count, err, wrong);
        mt_buf_free(&send);
        mt_buf_free(&recv);
    }
    return NULL;
}

START_TEST(test_threads_on_own_communicators_are_right)
{
    struct worker workers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        workers[t].number = t;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm);
        MPI_Comm_set_errhandler(workers[t].comm, MPI_ERRORS_RETURN);
    }
    mt_note("threads at work");
    for (int t = 0; t < THREADS; t++)
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&workers[t].comm);
    mt_agree();
}
END_TEST

/* Threads take turns on one communicator, which is allowed as the calls do not overlap. */
START_TEST(test_threads_in_turn_on_one_communicator_are_right)
{
    struct worker worker = {.comm = MPI_COMM_WORLD};
    for (int t = 0; t < THREADS; t++) {
        worker.number = t;
        pthread_create(&worker.thread, NULL, work, &worker);
        pthread_join(worker.thread, NULL);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_threads", MPI_THREAD_MULTIPLE);
    int provided;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return mt_skip("this MPI does not provide MPI_THREAD_MULTIPLE");
    tcase_add_test(tests, test_threads_on_own_communicators_are_right);
    tcase_add_test(tests, test_threads_in_turn_on_one_communicator_are_right);
    return mt_end();
}
