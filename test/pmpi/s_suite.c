/*
 * Data, calls and checks of the suite, and the test that a run is what it is meant to be.
 */
#include "test/pmpi/s_suite.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int s_rank(MPI_Comm comm)
{
    int rank;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

int s_size(MPI_Comm comm)
{
    int size;
    PMPI_Comm_size(comm, &size);
    return size;
}

int s_class(int err)
{
    int class;
    PMPI_Error_class(err, &class);
    return class;
}

int s_datum(uint64_t salt, int rank, size_t i)
{
    return (int)(mt_hash(salt * 1024 + (uint64_t)rank, i) % 100000) - 50000;
}

void s_fill(int *data, size_t count, uint64_t salt, int rank)
{
    for (size_t i = 0; i < count; i++)
        data[i] = s_datum(salt, rank, i);
}

int s_sum(uint64_t salt, int nranks, size_t i)
{
    int sum = 0;
    for (int r = 0; r < nranks; r++)
        sum += s_datum(salt, r, i);
    return sum;
}

bool s_verify(const int *data, size_t count, size_t first, uint64_t salt, MPI_Comm comm)
{
    int nranks = s_size(comm);
    for (size_t i = 0; i < count; i++) {
        int want = s_sum(salt, nranks, first + i);
        if (data[i] != want)
            return mt_check(false, "call %llu count %zu: element %zu is %d, not %d",
                (unsigned long long)salt, count, first + i, data[i], want);
    }
    return true;
}

int s_often(int usual, int few)
{
#ifdef MPICH
    return mt_size > 2 ? few : usual;
#else
    (void)few;
    return usual;
#endif
}

bool s_is_driven(void)
{
    const char *progress = getenv("TIARA_PROGRESS");
    return progress && strcmp(progress, "call") == 0;
}

struct s_job s_job_new(MPI_Comm comm, size_t count, uint64_t salt, bool in_place)
{
    struct s_job job = {
        .count = count, .salt = salt + mt_seed(), .comm = comm, .in_place = in_place};
    job.send = mt_buf_new(in_place ? 0 : count * sizeof(int), 0);
    job.recv = mt_buf_new_result(count * sizeof(int), 0);
    s_fill((int *)(in_place ? job.recv.data : job.send.data), count, job.salt, s_rank(comm));
    job.digest = mt_digest(job.send.data, job.send.bytes);
    return job;
}

const void *s_job_from(const struct s_job *job)
{
    return job->in_place ? MPI_IN_PLACE : job->send.data;
}

bool s_job_end(struct s_job *job, MPI_Comm comm)
{
    bool ok = s_verify((int *)job->recv.data, job->count, 0, job->salt, comm);
    ok &= mt_check(mt_buf_intact(&job->recv) && mt_buf_intact(&job->send),
        "count %zu: guards damaged", job->count);
    ok &= mt_check(mt_digest(job->send.data, job->send.bytes) == job->digest,
        "count %zu: input changed", job->count);
    mt_buf_free(&job->send);
    mt_buf_free(&job->recv);
    return ok;
}

bool s_allreduce(MPI_Comm comm, size_t count, uint64_t salt, bool in_place)
{
    struct s_job job = s_job_new(comm, count, salt, in_place);
    int err = MPI_Allreduce(s_job_from(&job), job.recv.data, (int)count, MPI_INT, MPI_SUM, comm);
    bool ok = mt_check(err == MPI_SUCCESS, "count %zu: error %d", count, err);
    return s_job_end(&job, comm) && ok;
}

void s_start(struct s_job *job, MPI_Request *request)
{
    int err = MPI_Iallreduce(
        s_job_from(job), job->recv.data, (int)job->count, MPI_INT, MPI_SUM, job->comm, request);
    mt_check(err == MPI_SUCCESS, "count %zu: error %d", job->count, err);
}

bool s_has_library(void)
{
    Dl_info info = {0};
    void *call = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
    return call && dladdr(call, &info) != 0 && strstr(info.dli_fname, "libtiara-pmpi");
}

struct s_served s_count_served(MPI_Comm comm)
{
    enum {
        STATE = 4 /* TIARA_REPORT_STATE */
    };
    static int (*report)(int, MPI_Comm, char *, int, int *);
    struct s_served served = {0, 0};
    char text[4096] = "";
    long slots = 0, plans = 0;
    const char *line;
    void *library;

    if (!s_has_library() || s_size(comm) == 1)
        return served;
    if (!report && (library = dlopen("libtiara.so.0", RTLD_LAZY | RTLD_NOLOAD)))
        report = (int (*)(int, MPI_Comm, char *, int, int *))dlsym(library, "TIARA_Report");
    if (!mt_check(report != NULL, "the library is not there") ||
        !mt_check(report(STATE, comm, text, sizeof text, NULL) == MPI_SUCCESS, "no report"))
        return served;
    line = strstr(text, "calls through small slots, plans, MPI");
    mt_check(line && sscanf(line, "%*[^0-9]%ld, %ld", &slots, &plans) == 2,
        "no count of blocking calls in the report: %s", text);
    served.blocking = slots + plans;
    line = strstr(text, "nonblocking calls by Tiara, by MPI");
    mt_check(line && sscanf(line, "%*[^0-9]%ld", &served.nonblocking) == 1,
        "no count of nonblocking calls in the report: %s", text);
    return served;
}

bool s_serves_nonblocking(MPI_Comm comm)
{
    MPI_Comm node;
    int size;
    PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    size = s_size(node);
    PMPI_Comm_free(&node);
    return s_is_driven() || (!getenv("TIARA_LAYOUT") && size == s_size(comm));
}

void s_check_served(MPI_Comm comm, struct s_served before, long blocking, long nonblocking)
{
    struct s_served now = s_count_served(comm);

    if (!s_has_library() || s_size(comm) == 1)
        return;
    mt_check(now.blocking == before.blocking + blocking, "Tiara has served %ld of %ld calls",
        now.blocking - before.blocking, blocking);
    if (s_serves_nonblocking(comm))
        mt_check(now.nonblocking == before.nonblocking + nonblocking,
            "Tiara has served %ld of %ld nonblocking calls", now.nonblocking - before.nonblocking,
            nonblocking);
}

static void s_call_both(MPI_Comm comm, uint64_t salt)
{
    struct s_job job = s_job_new(comm, 20, salt, false);
    MPI_Request request;
    s_start(&job, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, comm);
    s_allreduce(comm, 20, salt + 1, false);
}

void s_warm_up(MPI_Comm comm)
{
    enum {
        CALLS = 5
    };
    struct s_served before;

    for (uint64_t salt = 0; salt < CALLS; salt++)
        s_call_both(comm, 2 * salt);
    before = s_count_served(comm);
    s_call_both(comm, 2 * CALLS);
    s_check_served(comm, before, 1, 1);
}

void s_use(MPI_Comm comm, uint64_t salt)
{
    const size_t counts[] = {1, 300, 9000};
    for (unsigned k = 0; k < COUNT_OF(counts); k++)
        s_allreduce(comm, counts[k], salt + k, k % 2 == salt % 2);
}

/* A run that is meant to have the preload library, and does not, would prove nothing. */
START_TEST(test_suite_runs_as_it_is_meant_to)
{
    mt_check(s_has_library() == (mt_env("TIARA_TEST_PRELOAD", 0) != 0),
        "MPI_Allreduce is not of whom it is meant to be");
    s_warm_up(MPI_COMM_WORLD);
    mt_agree();
}
END_TEST

TCase *s_begin(int *argc, char ***argv, const char *name, int required)
{
    TCase *tests = mt_begin(argc, argv, name, required);
    tcase_add_test(tests, test_suite_runs_as_it_is_meant_to);
    return tests;
}
