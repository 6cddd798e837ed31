/*
 * Persistent all-reduces (MPI 4.0, section 6.13): started again and again with new data, in any
 * order, beside other requests of every kind, and persistent messages (section 3.9) beside them.
 * Where an MPI has the calls under another name, that name is used; where it has none, the messages
 * remain.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PROGRESS=call */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/*
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 TIARA_PROGRESS=call
 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify */
#include "s_suite.h"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#if MPI_VERSION >= 4
#define ALLREDUCE_INIT MPI_Allreduce_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif

/*
 * MPICH 4.0 takes a persistent collective for active for ever: Waitany, Waitsome and their kind
 * report it again and again, Wait waits for it. There, what is active is completed by calls of all.
 */
#ifdef MPICH
#define KNOWS_INACTIVE false
#else
#define KNOWS_INACTIVE true
#endif

#ifdef ALLREDUCE_INIT
enum {
    JOBS = 6,
    ROUNDS = 8
};

static const size_t sizes[JOBS] = {1, 7, 300, 1000, 20000, 90000};

static void init(struct s_job *job, MPI_Request *request)
{
    int err = ALLREDUCE_INIT(s_job_from(job), job->recv.data, (int)job->count, MPI_INT, MPI_SUM,
        job->comm, MPI_INFO_NULL, request);
    mt_check(
        err == MPI_SUCCESS && *request != MPI_REQUEST_NULL, "count %zu: error %d", job->count, err);
}

static void init_all(struct s_job *jobs, MPI_Request *requests, MPI_Comm comm)
{
    for (int k = 0; k < JOBS; k++) {
        jobs[k] = s_job_new(comm, sizes[k], (uint64_t)k, k % 2);
        init(&jobs[k], &requests[k]);
    }
}

/* New data for the next start, and no trace of the last result. */
static void renew(struct s_job *job, uint64_t salt)
{
    job->salt = mt_seed() + salt;
    memset(job->recv.data, 0x7f, job->recv.bytes);
    s_fill((int *)(job->in_place ? job->recv.data : job->send.data), job->count, job->salt,
        s_rank(job->comm));
    job->digest = mt_digest(job->send.data, job->send.bytes);
}

static void check(const struct s_job *job)
{
    s_verify((const int *)job->recv.data, job->count, 0, job->salt, MPI_COMM_WORLD);
    mt_check(mt_buf_intact(&job->recv) && mt_buf_intact(&job->send), "count %zu: guards damaged",
        job->count);
    mt_check(mt_digest(job->send.data, job->send.bytes) == job->digest, "count %zu: input changed",
        job->count);
}

static void free_all(struct s_job *jobs, MPI_Request *requests)
{
    for (int k = 0; k < JOBS; k++) {
        int err = MPI_Request_free(&requests[k]);
        mt_check(err == MPI_SUCCESS && requests[k] == MPI_REQUEST_NULL, "free: error %d", err);
        mt_buf_free(&jobs[k].send);
        mt_buf_free(&jobs[k].recv);
    }
}

START_TEST(test_persistent_calls_one_at_a_time_are_right)
{
    struct s_job jobs[JOBS];
    MPI_Request requests[JOBS];
    init_all(jobs, requests, MPI_COMM_WORLD);
    for (int n = 0; n < ROUNDS * JOBS; n++) {
        int k = n % JOBS, flag = n % 3 == 0;
        mt_note("one at a time, %d", n);
        renew(&jobs[k], (uint64_t)n);
        MPI_Request before = requests[k];
        MPI_Start(&requests[k]);
        if (n % 3 == 1)
            while (!flag)
                MPI_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
        else
            MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        mt_check(requests[k] == before, "start %d: the handle changed", n);
        check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* Completes all; where parts are reported, each of them once, and when its result is there. */
static void complete(const struct s_job *jobs, MPI_Request *requests, int way)
{
    int ndone[JOBS] = {0}, n = 0, at = 0, flag = 0, indices[JOBS];
    if (way == 0)
        MPI_Waitall(JOBS, requests, MPI_STATUSES_IGNORE);
    while (way == 1 && !flag)
        MPI_Testall(JOBS, requests, &flag, MPI_STATUSES_IGNORE);
    while (way == 2) {
        MPI_Waitany(JOBS, requests, &at, MPI_STATUS_IGNORE);
        if (at == MPI_UNDEFINED)
            break;
        ndone[at]++;
        check(&jobs[at]);
    }
    while (way > 2) {
        if (way == 3)
            MPI_Waitsome(JOBS, requests, &n, indices, MPI_STATUSES_IGNORE);
        else
            MPI_Testsome(JOBS, requests, &n, indices, MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            break;
        for (int k = 0; k < n; k++) {
            ndone[indices[k]]++;
            check(&jobs[indices[k]]);
        }
    }
    for (int k = 0; k < JOBS; k++)
        mt_check(ndone[k] == (way > 1), "way %d: %d was reported %d times", way, k, ndone[k]);
}

START_TEST(test_persistent_calls_started_together_are_right)
{
    struct s_job jobs[JOBS];
    MPI_Request requests[JOBS], before[JOBS];
    init_all(jobs, requests, MPI_COMM_WORLD);
    memcpy(before, requests, sizeof before);
    for (int n = 0; n < 2 * ROUNDS; n++) {
        struct s_job other;
        MPI_Request request;
        mt_note("together, round %d", n);
        for (int k = 0; k < JOBS; k++)
            renew(&jobs[k], (uint64_t)(n * JOBS + k));
        MPI_Startall(JOBS, requests);
        other = s_job_new(MPI_COMM_WORLD, n % 2 ? 3 : 5000, 99, false);
        s_start(&other, &request);
        if (n % 3 == 0)
            s_allreduce(MPI_COMM_WORLD, 1 + (size_t)n * 100, 98, n % 2);
        complete(jobs, requests, (n + mt_rank) % (KNOWS_INACTIVE ? 5 : 2));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        s_job_end(&other, MPI_COMM_WORLD);
        mt_check(memcmp(before, requests, sizeof before) == 0, "round %d: handles changed", n);
        for (int k = 0; k < JOBS; k++)
            check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* "Once initialized, persistent collective operations can be started in any order", another one on
 * each rank. */
START_TEST(test_persistent_calls_started_in_different_order_are_right)
{
    struct s_job jobs[JOBS];
    MPI_Request requests[JOBS];
    init_all(jobs, requests, MPI_COMM_WORLD);
    for (int n = 0; n < ROUNDS; n++) {
        mt_note("different order, round %d", n);
        for (int k = 0; k < JOBS; k++)
            renew(&jobs[k], (uint64_t)(n * JOBS + k));
        for (int k = 0; k < JOBS; k++)
            MPI_Start(&requests[(mt_rank % 2 ? JOBS - 1 - k : k + mt_rank + n) % JOBS]);
        complete(jobs, requests, (n + mt_rank) % (KNOWS_INACTIVE ? 5 : 2));
        for (int k = 0; k < JOBS; k++)
            check(&jobs[k]);
    }
    free_all(jobs, requests);
    mt_agree();
}
END_TEST

/* Looking at a request tells of its start, not of its past; and one that was never started is
 * complete. */
START_TEST(test_persistent_calls_are_inactive_between_starts)
{
    struct s_job job = s_job_new(MPI_COMM_WORLD, 50, 3, false);
    MPI_Request request;
    init(&job, &request);
    for (int n = 0; n < 4 && KNOWS_INACTIVE; n++) {
        int flag = 0, at = 0, count = -1;
        MPI_Status status;
        MPI_Request_get_status(request, &flag, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        mt_check(flag && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG &&
                     count == 0,
            "inactive: flag %d source %d", flag, status.MPI_SOURCE);
        MPI_Waitany(1, &request, &at, &status);
        mt_check(at == MPI_UNDEFINED, "inactive: index %d", at);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        renew(&job, (uint64_t)n);
        MPI_Start(&request);
        flag = 0;
        while (!flag)
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
        MPI_Waitany(1, &request, &at, MPI_STATUS_IGNORE);
        mt_check(at == 0, "active: index %d", at);
        check(&job);
    }
    MPI_Request_free(&request);
    mt_buf_free(&job.send);
    mt_buf_free(&job.recv);
    mt_agree();
}
END_TEST

/* Rank 0: start, wait, answer. The others: start, wait for the answer, then for their call. */
START_TEST(test_persistent_calls_go_on_while_a_rank_blocks_elsewhere)
{
    static const size_t counts[] = {1, 3000, 100000};
    for (unsigned n = 0; n < COUNT_OF(counts) && !s_is_driven(); n++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, counts[n], n, false);
        MPI_Request request;
        int word = 0;
        mt_note("progress, count %zu", job.count);
        init(&job, &request);
        MPI_Start(&request);
        if (mt_rank > 0)
            MPI_Recv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int r = 1; r < mt_size && mt_rank == 0; r++)
            MPI_Send(&word, 1, MPI_INT, r, 5, MPI_COMM_WORLD);
        MPI_Request_free(&request);
        s_job_end(&job, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

static int ncopied;

static int count_copy(
    MPI_Comm comm, int keyval, void *extra, void *value, void *value_out, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)value;
    (void)value_out;
    *flag = 0;
    ncopied++;
    return MPI_SUCCESS;
}

/* The first one of the process: what the library makes for it is no copy of MPI_COMM_SELF. */
START_TEST(test_persistent_calls_copy_no_attributes)
{
    struct s_job job;
    MPI_Request request;
    int keyval;
    MPI_Comm_create_keyval(count_copy, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &keyval);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &keyval);
    job = s_job_new(MPI_COMM_WORLD, 5, 1, false);
    init(&job, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(&job);
    MPI_Request_free(&request);
    mt_check(ncopied == 0, "%d copies of the program's attributes", ncopied);
    MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
    mt_agree();
}
END_TEST

/* On communicators that come and go: nothing of a freed request is found again. */
START_TEST(test_persistent_calls_on_many_communicators_are_right)
{
    for (int n = 0; n < 12; n++) {
        struct s_job jobs[JOBS];
        MPI_Request requests[JOBS];
        MPI_Comm comm;
        mt_note("communicator %d", n);
        MPI_Comm_split(MPI_COMM_WORLD, 0, n % 2 ? -mt_rank : mt_rank, &comm);
        if (n % 3 == 0)
            s_warm_up(comm);
        init_all(jobs, requests, comm);
        MPI_Startall(JOBS, requests);
        MPI_Waitall(JOBS, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < JOBS; k++)
            check(&jobs[k]);
        free_all(jobs, requests);
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST
#endif

/* A ring of persistent messages, beside a call. */
START_TEST(test_persistent_messages_beside_a_call_are_right)
{
    int in[2] = {-1, -1}, out[2], prev = (mt_rank + mt_size - 1) % mt_size;
    MPI_Request requests[4];
    s_warm_up(MPI_COMM_WORLD);
    MPI_Recv_init(&in[0], 1, MPI_INT, prev, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(&out[0], 1, MPI_INT, (mt_rank + 1) % mt_size, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv_init(&in[1], 1, MPI_INT, prev, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Send_init(&out[1], 1, MPI_INT, (mt_rank + 1) % mt_size, 2, MPI_COMM_WORLD, &requests[3]);
    for (int n = 0; n < 20; n++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, n % 2 ? 6 : 4000, (uint64_t)n, n % 3 == 0);
        MPI_Request all[5];
        mt_note("messages, round %d", n);
        out[0] = n;
        out[1] = -n;
        MPI_Start(&requests[0]);
        s_start(&job, &all[4]);
        MPI_Startall(3, &requests[1]);
        memcpy(all, requests, sizeof requests);
        MPI_Waitall(5, all, MPI_STATUSES_IGNORE);
        mt_check(memcmp(all, requests, sizeof requests) == 0 && all[4] == MPI_REQUEST_NULL,
            "round %d: wrong handles", n);
        mt_check(in[0] == n && in[1] == -n, "round %d: got %d, %d", n, in[0], in[1]);
        s_job_end(&job, MPI_COMM_WORLD);
    }
    for (int k = 0; k < 4; k++)
        MPI_Request_free(&requests[k]);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_persistent", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_persistent_messages_beside_a_call_are_right);
#ifdef ALLREDUCE_INIT
    tcase_add_test(tests, test_persistent_calls_copy_no_attributes);
    tcase_add_test(tests, test_persistent_calls_one_at_a_time_are_right);
    tcase_add_test(tests, test_persistent_calls_started_together_are_right);
    tcase_add_test(tests, test_persistent_calls_started_in_different_order_are_right);
    tcase_add_test(tests, test_persistent_calls_are_inactive_between_starts);
    tcase_add_test(tests, test_persistent_calls_go_on_while_a_rank_blocks_elsewhere);
    tcase_add_test(tests, test_persistent_calls_on_many_communicators_are_right);
#endif
    return mt_end();
}
