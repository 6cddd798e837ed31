/*
 * Threads under MPI_THREAD_MULTIPLE: each calls on its own communicator, blocking and nonblocking
 * calls, and waits for what it started, while the others do the same; some make and free
 * communicators in between.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=2 TIARA_LAYOUT=2x2
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_REPORT=1
 */
#include "mpi_run.h"
#include "s_suite.h"

#include <pthread.h>

enum {
    THREADS = 4,
    ROUNDS = 60,
    COUNT = 50,
    DEPTH = 3
};

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm; /* its own */
};

static void blocking(const struct worker *w, uint64_t salt)
{
    int in[COUNT], out[COUNT];

    s_fill(in, COUNT, salt, mt_rank);
    MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, w->comm);
    for (size_t i = 0; i < COUNT; i++)
        if (!mt_check(out[i] == s_sum(salt, mt_size, i), "thread %d: element %zu is %d", w->number,
                i, out[i]))
            return;
}

/*
 * A few started together, and a message to oneself; completed in a way that depends on the round.
 */
static void nonblocking(const struct worker *w, uint64_t salt, int round)
{
    static _Thread_local int in[DEPTH][COUNT], out[DEPTH][COUNT];
    MPI_Request requests[DEPTH + 2];
    int sent = (int)salt, got = 0, index, flag = 0;

    for (int k = 0; k < DEPTH; k++) {
        s_fill(in[k], COUNT, salt + (uint64_t)k, mt_rank);
        MPI_Iallreduce(in[k], out[k], COUNT, MPI_INT, MPI_SUM, w->comm, &requests[k]);
    }
    MPI_Irecv(&got, 1, MPI_INT, mt_rank, w->number, w->comm, &requests[DEPTH]);
    MPI_Isend(&sent, 1, MPI_INT, mt_rank, w->number, w->comm, &requests[DEPTH + 1]);
    if (round % 3 == 0)
        MPI_Waitall(DEPTH + 2, requests, MPI_STATUSES_IGNORE);
    else if (round % 3 == 1)
        for (int k = 0; k < DEPTH + 2; k++)
            MPI_Waitany(DEPTH + 2, requests, &index, MPI_STATUS_IGNORE);
    else
        while (!flag)
            MPI_Testall(DEPTH + 2, requests, &flag, MPI_STATUSES_IGNORE);
    mt_check(got == sent, "thread %d: message of %d is %d", w->number, sent, got);
    for (int k = 0; k < DEPTH; k++)
        for (size_t i = 0; i < COUNT; i++)
            if (!mt_check(out[k][i] == s_sum(salt + (uint64_t)k, mt_size, i),
                    "thread %d: call %d: element %zu is %d", w->number, k, i, out[k][i]))
                return;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t salt = (uint64_t)(w->number * 100000 + round * 10);

        blocking(w, salt);
        nonblocking(w, salt + 1, round);
        /* Every other thread goes on with a copy of its communicator. */
        if (w->number % 2 == 1 && round % 7 == 6) {
            MPI_Comm copy;

            MPI_Comm_dup(w->comm, &copy);
            MPI_Comm_free(&w->comm);
            w->comm = copy;
        }
    }
    return NULL;
}

START_TEST(test_threads_on_communicators_of_their_own_are_right)
{
    struct worker workers[THREADS];

    for (int t = 0; t < THREADS; t++) {
        workers[t].number = t;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm);
    }
    mt_note("%d threads", THREADS);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&workers[t].comm);
    mt_agree();
}
END_TEST

/* One thread starts, another one completes. */
static void *complete(void *arg)
{
    MPI_Waitall(DEPTH, arg, MPI_STATUSES_IGNORE);
    return NULL;
}

START_TEST(test_threads_may_complete_for_each_other)
{
    static int in[DEPTH][COUNT], out[DEPTH][COUNT];
    MPI_Request requests[DEPTH];
    pthread_t thread;

    for (int round = 0; round < 20; round++) {
        mt_note("handed over, round %d", round);
        for (int k = 0; k < DEPTH; k++) {
            s_fill(in[k], COUNT, (uint64_t)(round * 10 + k), mt_rank);
            MPI_Iallreduce(in[k], out[k], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k]);
        }
        pthread_create(&thread, NULL, complete, requests);
        pthread_join(thread, NULL);
        for (int k = 0; k < DEPTH; k++)
            for (size_t i = 0; i < COUNT; i++)
                mt_check(out[k][i] == s_sum((uint64_t)(round * 10 + k), mt_size, i),
                    "call %d: element %zu is %d", k, i, out[k][i]);
        MPI_Allreduce(in[0], out[0], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "p_threads", MPI_THREAD_MULTIPLE);
    int provided;

    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return mt_skip("this MPI has no MPI_THREAD_MULTIPLE");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_threads_on_communicators_of_their_own_are_right);
    tcase_add_test(tests, test_threads_may_complete_for_each_other);
    return mt_end();
}
