/*
 * MPI_THREAD_MULTIPLE (MPI 4.0, section 11.6): calls of several threads at once, each on its own
 * communicator; requests that another thread completes; and a thread that waits in MPI while the
 * others call.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=1+2
 * TIARA_PROGRESS=thread */
#include "s_suite.h"

#include <pthread.h>

enum {
    THREADS = 4,
    STEPS = 60
};

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number, steps;
};

/* All kinds in turn, by the thread's own number, so that different kinds meet. */
static void *work(void *arg)
{
    const struct worker *w = arg;
    static const size_t counts[] = {1, 4, 70, 1500, 20000};
    for (int step = 0; step < w->steps; step++) {
        size_t count = counts[(step + w->number) % 5];
        uint64_t salt = (uint64_t)(1000 * w->number + step);
        struct s_job jobs[2];
        MPI_Request requests[2];
        int kind = (step + w->number) % 4, at, flag = 0;
        if (kind == 0) {
            s_allreduce(w->comm, count, salt, step % 2);
            continue;
        }
        for (int k = 0; k < 2; k++) {
            jobs[k] = s_job_new(w->comm, count + (size_t)k, salt + 500 * (uint64_t)k, k);
            s_start(&jobs[k], &requests[k]);
        }
        if (kind == 1) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else if (kind == 2) {
            MPI_Waitany(2, requests, &at, MPI_STATUS_IGNORE);
            MPI_Wait(&requests[1 - at], MPI_STATUS_IGNORE);
        } else {
            s_allreduce(w->comm, 9, salt, false);
            while (!flag)
                MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        }
        for (int k = 0; k < 2; k++)
            s_job_end(&jobs[k], w->comm);
    }
    return NULL;
}

static void workers_new(struct worker *workers)
{
    for (int t = 0; t < THREADS; t++) {
        workers[t].number = t;
        workers[t].steps = s_often(STEPS, 8);
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm);
        s_warm_up(workers[t].comm);
    }
    mt_seed(); /* it is drawn in the first call, which is collective */
}

static void workers_free(struct worker *workers)
{
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&workers[t].comm);
}

START_TEST(test_threads_on_own_communicators_are_right)
{
    struct worker workers[THREADS];
    workers_new(workers);
    mt_note("threads at work");
    for (int t = 0; t < THREADS; t++)
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    workers_free(workers);
    mt_agree();
}
END_TEST

/* A call is started by one thread and completed by another. */
struct handover {
    struct s_job job;
    MPI_Request request;
};

static void *complete(void *arg)
{
    struct handover *h = arg;
    int err = MPI_Wait(&h->request, MPI_STATUS_IGNORE);
    mt_check(err == MPI_SUCCESS && h->request == MPI_REQUEST_NULL, "wait: error %d", err);
    return NULL;
}

START_TEST(test_threads_complete_what_others_started)
{
    for (int round = 0; round < s_often(20, 5); round++) {
        struct handover all[THREADS];
        pthread_t threads[THREADS];
        mt_note("handover, round %d", round);
        for (int t = 0; t < THREADS; t++) {
            size_t count = t % 2 ? 4 : 6000;
            all[t].job = s_job_new(MPI_COMM_WORLD, count, (uint64_t)(8 * round + t), false);
            s_start(&all[t].job, &all[t].request);
        }
        for (int t = THREADS - 1; t >= 0; t--)
            pthread_create(&threads[t], NULL, complete, &all[t]);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        for (int t = 0; t < THREADS; t++)
            s_job_end(&all[t].job, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

/* One thread waits for a message that is sent when the others have ended. */
static void *wait_for_message(void *arg)
{
    int *word = arg;
    MPI_Recv(word, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

START_TEST(test_threads_that_wait_hold_nobody_up)
{
    struct worker workers[THREADS];
    pthread_t waiting;
    int word = -1;
    workers_new(workers);
    mt_note("one thread waits");
    pthread_create(&waiting, NULL, wait_for_message, &word);
    for (int t = 0; t < 2; t++)
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    for (int t = 0; t < 2; t++)
        pthread_join(workers[t].thread, NULL);
    MPI_Send(&mt_rank, 1, MPI_INT, mt_rank, 4, MPI_COMM_WORLD);
    pthread_join(waiting, NULL);
    mt_check(word == mt_rank, "received %d", word);
    workers_free(workers);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_threads", MPI_THREAD_MULTIPLE);
    int provided;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return mt_skip("this MPI does not provide MPI_THREAD_MULTIPLE");
    tcase_add_test(tests, test_threads_on_own_communicators_are_right);
    tcase_add_test(tests, test_threads_complete_what_others_started);
    tcase_add_test(tests, test_threads_that_wait_hold_nobody_up);
    return mt_end();
}
