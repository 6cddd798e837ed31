/*
 * What the programs of this suite share. Each is a plain MPI program: it says what the standard
 * demands of the calls that the preload library takes over, and must pass with the library and
 * without it, on any MPI. Where an MPI is wrong itself, the program says so and looks away.
 *
 * What is under test is called by its MPI_ name; the harness, and what plain MPI would do, by the
 * PMPI_ name, which no preload library sees.
 */
#ifndef TIARA_TEST_PMPI_SUITE_H
#define TIARA_TEST_PMPI_SUITE_H

#include "mpi_buf.h"
#include "mpi_run.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline int s_rank(MPI_Comm comm)
{
    int rank;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

static inline int s_size(MPI_Comm comm)
{
    int size;
    PMPI_Comm_size(comm, &size);
    return size;
}

static inline int s_class(int err)
{
    int class;
    PMPI_Error_class(err, &class);
    return class;
}

/* Element @i of rank @rank's data of call @salt; sums over many ranks fit in an int. */
static inline int s_datum(uint64_t salt, int rank, size_t i)
{
    return (int)(mt_hash(salt * 1024 + (uint64_t)rank, i) % 100000) - 50000;
}

static inline void s_fill(int *data, size_t count, uint64_t salt, int rank)
{
    for (size_t i = 0; i < count; i++)
        data[i] = s_datum(salt, rank, i);
}

static inline int s_sum(uint64_t salt, int nranks, size_t i)
{
    int sum = 0;
    for (int r = 0; r < nranks; r++)
        sum += s_datum(salt, r, i);
    return sum;
}

/* Is data[@count] the sum over the ranks of @comm, from element @first of the vector on? Else a
 * check fails. */
static inline bool s_verify(
    const int *data, size_t count, size_t first, uint64_t salt, MPI_Comm comm)
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

/*
 * How often to do something that takes long where the ranks of an MPI spin without giving way, as
 * MPICH's do: each step of it takes a time slice of the system there, as soon as there are more
 * ranks than cores.
 */
static inline int s_often(int usual, int few)
{
#ifdef MPICH
    return mt_size > 2 ? few : usual;
#else
    (void)few;
    return usual;
#endif
}

/* A run in which the user has given up MPI's promise of progress: only the program's own calls on
 * requests drive them. */
static inline bool s_is_driven(void)
{
    const char *progress = getenv("TIARA_PROGRESS");
    return progress && strcmp(progress, "call") == 0;
}

/* Two guarded buffers of ints, filled for an all-reduce of call @salt on @comm: what each call of
 * these tests needs. */
struct s_job {
    struct mt_buf send, recv;
    size_t count;
    uint64_t salt;
    MPI_Comm comm;
    bool in_place;
    uint64_t digest;
};

static inline struct s_job s_job_new(MPI_Comm comm, size_t count, uint64_t salt, bool in_place)
{
    struct s_job job = {
        .count = count, .salt = salt + mt_seed(), .comm = comm, .in_place = in_place};
    job.send = mt_buf_new(in_place ? 0 : count * sizeof(int), 0);
    job.recv = mt_buf_new_result(count * sizeof(int), 0);
    s_fill((int *)(in_place ? job.recv.data : job.send.data), count, job.salt, s_rank(comm));
    job.digest = mt_digest(job.send.data, job.send.bytes);
    return job;
}

static inline const void *s_job_from(const struct s_job *job)
{
    return job->in_place ? MPI_IN_PLACE : job->send.data;
}

/* Checks what came out, and frees the buffers. The communicator may be gone: @comm has as many
 * ranks. */
static inline bool s_job_end(struct s_job *job, MPI_Comm comm)
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

/* One blocking all-reduce of @count ints on @comm, and everything that is to hold after it. */
static inline bool s_allreduce(MPI_Comm comm, size_t count, uint64_t salt, bool in_place)
{
    struct s_job job = s_job_new(comm, count, salt, in_place);
    int err = MPI_Allreduce(s_job_from(&job), job.recv.data, (int)count, MPI_INT, MPI_SUM, comm);
    bool ok = mt_check(err == MPI_SUCCESS, "count %zu: error %d", count, err);
    return s_job_end(&job, comm) && ok;
}

static inline void s_start(struct s_job *job, MPI_Request *request)
{
    int err = MPI_Iallreduce(
        s_job_from(job), job->recv.data, (int)job->count, MPI_INT, MPI_SUM, job->comm, request);
    mt_check(err == MPI_SUCCESS, "count %zu: error %d", job->count, err);
}

static inline bool s_has_library(void)
{
    Dl_info info = {0};
    void *call = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
    return call && dladdr(call, &info) != 0 && strstr(info.dli_fname, "libtiara-pmpi");
}

/* How many calls on a communicator Tiara has served so far. */
struct s_served {
    long blocking, nonblocking;
};

/* As Tiara's report of @comm says. The process has opened the library, and no test is linked with
 * it. */
static inline struct s_served s_count_served(MPI_Comm comm)
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

/* Nonblocking calls that need messages are MPI's, unless the program's calls are said to drive
 * them. */
static inline bool s_serves_nonblocking(MPI_Comm comm)
{
    MPI_Comm node;
    int size;
    PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    size = s_size(node);
    PMPI_Comm_free(&node);
    return s_is_driven() || (!getenv("TIARA_LAYOUT") && size == s_size(comm));
}

/* Checks that since @before Tiara has served so many calls, if the library is there. */
static inline void s_check_served(
    MPI_Comm comm, struct s_served before, long blocking, long nonblocking)
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

static inline void s_call_both(MPI_Comm comm, uint64_t salt)
{
    struct s_job job = s_job_new(comm, 20, salt, false);
    MPI_Request request;
    s_start(&job, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, comm);
    s_allreduce(comm, 20, salt + 1, false);
}

/*
 * So many calls on @comm, of both kinds, that the library takes it over; and a check that it has. A
 * program that stops short of that tests the MPI below.
 */
static inline void s_warm_up(MPI_Comm comm)
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

/* Sizes of every class, and two in place. */
static inline void s_use(MPI_Comm comm, uint64_t salt)
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

/* As mt_begin(). */
static inline TCase *s_begin(int *argc, char ***argv, const char *name, int required)
{
    TCase *tests = mt_begin(argc, argv, name, required);
    tcase_add_test(tests, test_suite_runs_as_it_is_meant_to);
    return tests;
}

#endif
