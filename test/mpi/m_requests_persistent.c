/*
 * TIARA_Allreduce_init: started again and again with new data, alone and together, in any order,
 * beside other calls, on communicators that go before their requests; and what may not be started.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 TIARA_PROGRESS=call */
/* tiara-test: mpirun 5 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=socket */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 TIARA_PROGRESS=thread */
/* tiara-test: mpirun 3 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: vcluster 2x2 TIARA_PROGRESS=call */
#include "m_requests_case.h"
#include <stdlib.h>
#include <string.h>

enum {
    JOBS = 8,
    ROUNDS = 6
};

static uint64_t salt = 1; /* of the next call; alike on all ranks */

static void init_all(struct mr_job *jobs, TIARA_Request *requests, MPI_Comm comm)
{
    for (int k = 0; k < JOBS; k++) {
        struct mt_case c = mr_case(comm, salt++);
        jobs[k] = mr_new(&c);
        mr_init(&jobs[k]);
        requests[k] = jobs[k].request;
    }
}

/* New data for the next start. The request has the addresses of the buffers, which stay. */
static void renew(struct mr_job *job)
{
    job->c.seed = mt_hash(job->c.seed, 1);
    if (!job->c.in_place)
        mt_buf_take(&job->send);
    mt_buf_take(&job->recv);
    mr_fill(job);
    mr_lend(job);
    mt_buf_lend(&job->recv);
}

static void free_all(struct mr_job *jobs, TIARA_Request *requests)
{
    for (int k = 0; k < JOBS; k++) {
        int err = TIARA_Request_free(&requests[k]);
        mt_check(err == MPI_SUCCESS && requests[k] == TIARA_REQUEST_NULL, "free: error %d", err);
        mr_free(&jobs[k]);
    }
}

START_TEST(test_persistent_one_at_a_time_is_right)
{
    struct mr_job jobs[JOBS];
    TIARA_Request requests[JOBS];
    init_all(jobs, requests, MPI_COMM_WORLD);
    for (int n = 0; n < ROUNDS * JOBS; n++) {
        int k = n % JOBS, flag = 0;
        TIARA_Request before = requests[k];
        mt_note("one at a time, %d", n);
        renew(&jobs[k]);
        int err = TIARA_Start(&requests[k]);
        mt_check(err == MPI_SUCCESS, "start: error %d", err);
        while (n % 3 == 1 && !flag)
            TIARA_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
        if (!flag)
            TIARA_Wait(&requests[k], MPI_STATUS_IGNORE);
        mt_check(requests[k] == before, "start %d: the handle changed", n);
        mr_check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* Completes all; where parts are reported, each of them once, and when its result is there. */
static void complete(struct mr_job *jobs, TIARA_Request *requests, int way)
{
    int ndone[JOBS] = {0}, n = 0, at = 0, flag = 0, indices[JOBS];
    if (way == 0)
        TIARA_Waitall(JOBS, requests, MPI_STATUSES_IGNORE);
    while (way == 1 && !flag)
        TIARA_Testall(JOBS, requests, &flag, MPI_STATUSES_IGNORE);
    while (way == 2) {
        TIARA_Waitany(JOBS, requests, &at, MPI_STATUS_IGNORE);
        if (at == MPI_UNDEFINED)
            break;
        ndone[at]++;
        mr_check(&jobs[at]);
    }
    while (way > 2) {
        if (way == 3)
            TIARA_Waitsome(JOBS, requests, &n, indices, MPI_STATUSES_IGNORE);
        else
            TIARA_Testsome(JOBS, requests, &n, indices, MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            break;
        for (int k = 0; k < n; k++) {
            ndone[indices[k]]++;
            mr_check(&jobs[indices[k]]);
        }
    }
    for (int k = 0; k < JOBS; k++)
        mt_check(ndone[k] == (way > 1), "way %d: %d was reported %d times", way, k, ndone[k]);
}

START_TEST(test_persistent_started_together_is_right)
{
    struct mr_job jobs[JOBS];
    TIARA_Request requests[JOBS];
    init_all(jobs, requests, MPI_COMM_WORLD);
    for (int n = 0; n < ROUNDS; n++) {
        struct mr_job other;
        struct mt_case blocking = mr_case(MPI_COMM_WORLD, salt++);
        mt_note("together, round %d", n);
        for (int k = 0; k < JOBS; k++)
            renew(&jobs[k]);
        int err = TIARA_Startall(JOBS, requests);
        mt_check(err == MPI_SUCCESS, "startall: error %d", err);
        mr_start_all(&other, 1, MPI_COMM_WORLD, salt++);
        if (n % 3 == 0)
            mt_allreduce(&blocking);
        complete(jobs, requests, (n + mt_rank) % 5);
        mr_wait(&other);
        for (int k = 0; k < JOBS; k++)
            mr_check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* Only the calls of init are ordered; starts are not (MPI 4.0, section 6.13). Where Tiara does
 * them, see TIARA_Allreduce_init. */
START_TEST(test_persistent_started_in_another_order_is_right)
{
    struct mr_job jobs[JOBS];
    TIARA_Request requests[JOBS];
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    if (!mr_is_served(MPI_COMM_WORLD))
        return;
    for (int k = 0; k < JOBS; k++) {
        struct mt_case c = mr_case(MPI_COMM_WORLD, salt++);
        while (c.oper == MT_MINLOC)
            c = mr_case(MPI_COMM_WORLD, salt++);
        jobs[k] = mr_new(&c);
        mr_init(&jobs[k]);
        requests[k] = jobs[k].request;
    }
    for (int n = 0; n < ROUNDS; n++) {
        int order[JOBS];
        mt_note("another order, round %d", n);
        mr_shuffle(order, JOBS, (uint64_t)n);
        for (int k = 0; k < JOBS; k++)
            renew(&jobs[k]);
        for (int k = 0; k < JOBS; k++)
            TIARA_Start(&requests[order[k]]);
        complete(jobs, requests, (n + mt_rank) % 5);
        for (int k = 0; k < JOBS; k++)
            mr_check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* The communicator may be freed before the start. Only where the calls are Tiara's: an MPI need not
 * bear it of its own. */
START_TEST(test_persistent_outlives_its_communicator)
{
    for (int n = 0; n < 3; n++) {
        struct mt_case c = {.type = mt_type_find(MPI_DOUBLE),
            .oper = MT_SUM,
            .count = n == 1 ? 20000 : 3,
            .seed = salt++};
        MPI_Comm_dup(MPI_COMM_WORLD, &c.comm);
        MPI_Comm_set_errhandler(c.comm, MPI_ERRORS_RETURN);
        struct mr_job job = mr_new(&c);
        mr_init(&job);
        bool served = mr_is_served(c.comm);
        mt_note("freed communicator, round %d", n);
        MPI_Comm_free(&c.comm);
        for (int k = 0; k < 3 && served; k++) {
            renew(&job);
            TIARA_Start(&job.request);
            if (k == 2)
                TIARA_Comm_prepare(MPI_COMM_WORLD);
            TIARA_Wait(&job.request, MPI_STATUS_IGNORE);
            mr_check(&job);
        }
        TIARA_Request_free(&job.request);
        mr_free(&job);
    }
    mt_agree();
}
END_TEST

START_TEST(test_persistent_on_many_communicators_is_right)
{
    for (int n = 0; n < 6; n++) {
        struct mr_job jobs[JOBS];
        TIARA_Request requests[JOBS];
        MPI_Comm comm;
        mt_note("communicator %d", n);
        MPI_Comm_split(MPI_COMM_WORLD, n % 3 == 2 ? mt_rank % 2 : 0, -n * mt_rank, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        init_all(jobs, requests, comm);
        TIARA_Startall(JOBS, requests);
        TIARA_Waitall(JOBS, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < JOBS; k++)
            mr_check(&jobs[k]);
        free_all(jobs, requests);
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

/* Null, not persistent, or active: nothing is started, also of what is right in the same list. */
START_TEST(test_persistent_start_refuses_what_cannot_be_started)
{
    TIARA_Request null = TIARA_REQUEST_NULL, requests[2];
    struct mr_job once, again;
    struct mt_case c = mr_case(MPI_COMM_WORLD, salt++);
    int flag = 0;
    mt_check(class_of(TIARA_Start(&null)) == MPI_ERR_REQUEST, "a null request was started");
    mr_start_all(&once, 1, MPI_COMM_WORLD, salt++);
    mt_check(class_of(TIARA_Start(&once.request)) == MPI_ERR_REQUEST,
        "a request that is not persistent was started");
    mr_wait(&once);
    again = mr_new(&c);
    mr_init(&again);
    requests[0] = again.request;
    requests[1] = TIARA_REQUEST_NULL;
    mt_check(class_of(TIARA_Startall(2, requests)) == MPI_ERR_REQUEST, "a list with null started");
    TIARA_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE);
    mt_check(flag, "the other request of the list is active");
    mt_check(TIARA_Start(&requests[0]) == MPI_SUCCESS, "it cannot be started");
    mt_check(class_of(TIARA_Start(&requests[0])) == MPI_ERR_REQUEST,
        "an active request was started again");
    TIARA_Wait(&requests[0], MPI_STATUS_IGNORE);
    mr_check(&again);
    mt_check(class_of(TIARA_Startall(-1, requests)) != MPI_SUCCESS, "a negative number started");
    mt_check(TIARA_Startall(0, NULL) == MPI_SUCCESS, "an empty list is an error");
    TIARA_Request_free(&requests[0]);
    mt_check(class_of(TIARA_Request_free(&null)) == MPI_ERR_REQUEST, "a null request was freed");
    mr_free(&again);
    mt_agree();
}
END_TEST

/* An active request that is given up: its result arrives. */
START_TEST(test_persistent_given_up_while_active_goes_on)
{
    for (int n = 0; n < 4 && !getenv("TIARA_TEST_MEMORY"); n++) {
        struct mt_case c = {.type = mt_type_find(MPI_LONG),
            .oper = MT_SUM,
            .count = n % 2 ? 15000 : 2,
            .seed = salt++,
            .comm = MPI_COMM_WORLD};
        struct mr_job job = mr_new(&c);
        unsigned char *wanted = malloc(job.recv.bytes);
        int all_there = 0;
        PMPI_Allreduce(job.send.data, wanted, (int)c.count, MPI_LONG, MPI_SUM, mt_private);
        mt_note("given up, round %d", n);
        mr_init(&job);
        TIARA_Start(&job.request);
        TIARA_Request_free(&job.request);
        mt_check(job.request == TIARA_REQUEST_NULL, "the request is left");
        while (!all_there) {
            int there = memcmp(wanted, job.recv.data, job.recv.bytes) == 0, one = 1, sum = 0;
            TIARA_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            PMPI_Allreduce(&there, &all_there, 1, MPI_INT, MPI_LAND, mt_private);
        }
        mr_end(&job);
        free(wanted);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_requests_persistent", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_persistent_one_at_a_time_is_right);
    tcase_add_test(tests, test_persistent_started_together_is_right);
    tcase_add_test(tests, test_persistent_on_many_communicators_is_right);
    tcase_add_test(tests, test_persistent_start_refuses_what_cannot_be_started);
    tcase_add_test(tests, test_persistent_given_up_while_active_goes_on);
    tcase_add_test(tests, test_persistent_started_in_another_order_is_right);
    tcase_add_test(tests, test_persistent_outlives_its_communicator);
    return mt_end();
}
