/*
 * Calls on GPU memory when CUDA fails: every function that the library calls, one after the other,
 * and a rank that stops or dies in the middle. A call ends with the right result or with an error
 * that says why, on all ranks, in time; then the communicator goes on, and so does the next one.
 *
 * The program starts jobs of itself, in which TIARA_TEST_ROLE says what a rank does. The stand-in
 * for the runtime counts the calls of one job (STANDIN_COUNT), and makes chosen ones fail on rank 1
 * of others (STANDIN_FAIL). A job has several rounds, each with a communicator of its own, so that
 * it can bear several failures.
 */
/* tiara-test: env TIARA_TEST_MEMORY=device */
/* tiara-test: timeout 240 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "test.h"
#include "tiara.h"
#include "tiara_cuda.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST = 300000, /* floats: enough that peers' buffers are mapped */
    JOB_ROUNDS = 6,
    JOB_SECONDS = 30
};

/* ---- a rank of a job ---- */

static const char failed_calls[] = "f_device: calls failed on this rank"; /* what it says then */

/* A call of the test's own, which may be the one that is told to fail: then it is made again. */
#define AGAIN(call)                                                                                \
    do {                                                                                           \
        if (mt_cuda()->call != 0)                                                                  \
            MT_CUDA(call);                                                                         \
    } while (0)

static float *send, *recv; /* [MOST], of the device */
static float view[MOST];
static mt_stream stream;
static int wrong; /* results, and what else must not be */
static int failed; /* calls */
static char doing[100]; /* for who hangs */

static void begin(int *argc, char ***argv)
{
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mt_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mt_size);
    if (mt_device_open() && mt_device_open())
        exit(77);
    AGAIN(Malloc((void **)&send, MOST * sizeof *send));
    AGAIN(Malloc((void **)&recv, MOST * sizeof *recv));
    AGAIN(StreamCreateWithFlags(&stream, MT_CUDA_NON_BLOCKING));
}

enum kind {
    BLOCKING,
    IN_PLACE,
    UNKNOWN_TYPE, /* to kernels */
    ON_STREAM,
    AHEAD
};

/* Calls on the stream that nobody waits for in between, so that ranks are several calls apart when
 * one fails. All are made. */
static int make_calls_ahead(int count, MPI_Comm comm)
{
    enum {
        PARTS = 5
    };
    int part = count / PARTS, err = MPI_SUCCESS;
    for (int k = 0; k < PARTS; k++) {
        int now = TIARA_Allreduce_on_stream(
            send + k * part, recv + k * part, part, MPI_FLOAT, MPI_SUM, comm, stream);
        err = err == MPI_SUCCESS ? now : err;
    }
    int now = TIARA_Comm_synchronize(comm);
    return err == MPI_SUCCESS ? now : err;
}

/* After an error calls may still be under way in the stream. */
static int end_calls(int err)
{
    if (err != MPI_SUCCESS)
        AGAIN(StreamSynchronize(stream));
    return err;
}

static int make_call(enum kind kind, int count, MPI_Comm comm)
{
    int err;
    switch (kind) {
    case IN_PLACE:
        return TIARA_Allreduce(MPI_IN_PLACE, recv, count, MPI_FLOAT, MPI_SUM, comm);
    case UNKNOWN_TYPE:
        return TIARA_Allreduce(send, recv, count / 2, MPI_C_FLOAT_COMPLEX, MPI_SUM, comm);
    case ON_STREAM:
        err = TIARA_Allreduce_on_stream(send, recv, count, MPI_FLOAT, MPI_SUM, comm, stream);
        return end_calls(err == MPI_SUCCESS ? TIARA_Comm_synchronize(comm) : err);
    case AHEAD:
        return end_calls(make_calls_ahead(count, comm));
    default:
        return TIARA_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
    }
}

/* One call; true when it succeeded. */
static bool try_call(enum kind kind, int count, int salt, MPI_Comm comm)
{
    size_t bytes = (size_t)count * sizeof *view;
    for (int i = 0; i < count; i++)
        view[i] = (float)((i + salt) % 997 + mt_rank);
    AGAIN(Memcpy(kind == IN_PLACE ? recv : send, view, bytes, MT_CUDA_COPY_ANY));
    snprintf(doing, sizeof doing, "kind %d, count %d, salt %d", kind, count, salt);
    if (make_call(kind, count, comm) != MPI_SUCCESS) {
        failed++;
        return false;
    }
    int bad = 0;
    AGAIN(Memcpy(view, recv, bytes, MT_CUDA_COPY_ANY));
    for (int i = 0; i < count; i++)
        bad += view[i] != (float)(mt_size * ((i + salt) % 997) + mt_size * (mt_size - 1) / 2);
    if (bad > 0)
        fprintf(stderr, "rank %d: kind %d, count %d: %d wrong\n", mt_rank, kind, count, bad);
    wrong += bad > 0;
    return true;
}

/* After a failure the call that follows may fail on ranks that did not see it at once; the last
 * ones must not. */
static void run_round(int round)
{
    static const struct {
        enum kind kind;
        int count;
    } calls[] = {{BLOCKING, 4}, {IN_PLACE, 6000}, {BLOCKING, MOST}, {ON_STREAM, 300},
        {UNKNOWN_TYPE, 2000}, {AHEAD, 500}, {IN_PLACE, 30000}, {BLOCKING, 4}, {BLOCKING, 9000}};
    enum {
        CALLS = sizeof calls / sizeof calls[0]
    };
    MPI_Comm comm;
    int failures = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int k = 0; k < CALLS; k++)
        failures += !try_call(calls[k].kind, calls[k].count, 10 * round + k, comm);
    if (failures > 4) {
        fprintf(stderr, "rank %d: round %d: %d calls failed\n", mt_rank, round, failures);
        wrong++;
    }
    MPI_Comm_free(&comm);
}

static int be_calling_rank(int rounds)
{
    for (int round = 0; round < rounds; round++)
        run_round(round);
    if (failed > 0)
        fprintf(stderr, "%s\n", failed_calls);
    MPI_Finalize();
    return wrong > 0;
}

/* Stops the process at some moment of the calls that go on in the main thread. */
static volatile int is_time_to_stop;
static void *stop_process(void *arg)
{
    uint64_t turns = mt_hash((uint64_t)getpid(), 1) % 2000;
    while (!is_time_to_stop)
        sched_yield();
    while (turns-- > 0)
        sched_yield();
    kill(getpid(), SIGSTOP);
    return arg;
}

/* How many calls there are, which rank 0 tells when one has failed. */
static bool is_last_call(int k, int *last)
{
    int flag = 0;
    if (mt_rank != 0 && *last < 0)
        MPI_Iprobe(0, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (flag)
        MPI_Recv(last, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return k == *last;
}

/* Rank 1 of two stops amid its calls, and is not heard of until rank 0 has had enough of it. Then
 * some more calls, by MPI. */
static int be_stopping_rank(void)
{
    pthread_t stopper;
    int pid = getpid(), failures = 0, last = -1;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Bcast(&pid, 1, MPI_INT, 1, MPI_COMM_WORLD);
    if (mt_rank == 1)
        pthread_create(&stopper, NULL, stop_process, NULL);
    for (int k = 0; !is_last_call(k, &last); k++) {
        is_time_to_stop = k > 10;
        bool ok = try_call(k % 2 ? BLOCKING : IN_PLACE, k % 4 ? 9000 : 150000, k, comm);
        failures += !ok;
        if (!ok && mt_rank == 0 && last < 0) {
            last = k + 6;
            MPI_Send(&last, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
            kill(pid, SIGCONT);
        }
    }
    if (mt_rank == 1)
        pthread_join(stopper, NULL);
    if (failures > 1)
        fprintf(stderr, "rank %d: %d calls failed\n", mt_rank, failures);
    MPI_Finalize();
    return wrong > 0 || failures > 1;
}

static int be_dying_rank(void)
{
    for (int k = 0; k < 20; k++) {
        if (k == 10 && mt_rank == 1)
            kill(getpid(), SIGKILL);
        try_call(BLOCKING, k % 2 ? 500 : MOST, k, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}

static void on_alarm(int sig)
{
    fprintf(stderr, "rank %d hangs: %s\n", mt_rank, doing);
    _exit(sig);
}

static int be_rank(const char *role, int argc, char **argv)
{
    signal(SIGALRM, on_alarm);
    alarm(JOB_SECONDS - 5);
    begin(&argc, &argv);
    if (strcmp(role, "stop") == 0)
        return be_stopping_rank();
    return strcmp(role, "die") == 0 ? be_dying_rank() : be_calling_rank(atoi(role));
}

/* ---- jobs ---- */

static char scratch[300]; /* of names of files */

/* Runs a job of ranks as @role with the @variables. Returns the status of the shell; what was said
 * is in scratch.out. */
static int run_job(const char *role, int nranks, const char *variables)
{
    char self[500], command[2500];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(len, 0);
    self[len] = '\0';
    snprintf(command, sizeof command,
        "TIARA_TEST_ROLE=%s %s timeout -k 5 %d %s -n %d '%s' </dev/null >%s.out 2>&1", role,
        variables, JOB_SECONDS, getenv("TIARA_TEST_MPIRUN"), nranks, self, scratch);
    return system(command);
}

/* Whether a job said @words. */
static bool has_said(const char *words)
{
    char text[400];
    bool found = false;
    snprintf(text, sizeof text, "%s.out", scratch);
    FILE *file = fopen(text, "r");
    while (file && !found && fgets(text, sizeof text, file))
        found = strstr(text, words) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* Whether a job of @status is as it must be: calls fail only with a word of Tiara's. Else prints
 * what it said. */
static bool is_good(int status, const char *title)
{
    char text[400];
    int n = 0;
    if (status == 0 && (!has_said(failed_calls) || has_said("error: ")))
        return true;
    fprintf(stderr, "---- status %x: %s\n", (unsigned)status, title);
    snprintf(text, sizeof text, "%s.out", scratch);
    FILE *file = fopen(text, "r");
    while (file && n++ < 25 && fgets(text, sizeof text, file))
        fputs(text, stderr);
    if (file)
        fclose(file);
    return false;
}

struct function {
    char name[64];
    long calls[2]; /* of rank 1, in a job of 2 and of 4 rounds */
};
enum {
    MAX_FUNCTIONS = 100
};

/* What rank 1 calls in a job of 2 and of 4 rounds. Returns the number of functions; 0: this is not
 * the stand-in. */
static int count_functions(struct function *functions, const char *variables)
{
    int n = 0;
    for (int k = 0; k < 2; k++) {
        char text[600], name[64];
        int rank;
        long calls;
        snprintf(text, sizeof text, "%s STANDIN_COUNT=%s.count", variables, scratch);
        ck_assert(is_good(run_job(k == 0 ? "2" : "4", 2, text), text));
        snprintf(text, sizeof text, "%s.count", scratch);
        FILE *file = fopen(text, "r");
        while (file && fgets(text, sizeof text, file)) {
            int i = 0;
            if (sscanf(text, "%d %63s %ld", &rank, name, &calls) != 3 || rank != 1 ||
                strncmp(name, "cu", 2) != 0)
                continue;
            while (i < n && strcmp(functions[i].name, name) != 0)
                i++;
            if (i == n && n < MAX_FUNCTIONS)
                strcpy(functions[n++].name, name);
            functions[i].calls[k] = calls;
        }
        if (file)
            fclose(file);
        snprintf(text, sizeof text, "%s.count", scratch);
        unlink(text);
    }
    return n;
}

/* Failures that wait for a job: "NAME:N,NAME:N", one a round. */
struct batch {
    char failures[1000];
    int n, bad;
    const char *variables;
};

static void run_batch(struct batch *batch)
{
    char text[1500], rounds[20];
    if (batch->n == 0)
        return;
    /*
     * What could not be closed is open still when it is opened again, and what is called on a
     * device that could not be made current is called on another. The stand-in would end the
     * process for either.
     */
    bool is_strict = !strstr(batch->failures, "Close") && !strstr(batch->failures, "SetDevice");
    snprintf(text, sizeof text, "%s STANDIN_STRICT=%d STANDIN_FAIL_RANK=1 STANDIN_FAIL=%s",
        batch->variables, is_strict, batch->failures);
    snprintf(rounds, sizeof rounds, "%d", JOB_ROUNDS);
    batch->bad += !is_good(run_job(rounds, 2, text), text);
    batch->failures[0] = '\0';
    batch->n = 0;
}

/*
 * The @nth call of a round, or of the process if rounds do not call the function, is to fail.
 * Counts are those of a job in which nothing fails, so that later rounds are hit somewhere near.
 */
static void add_failure(struct batch *batch, const struct function *f, long nth, long per_round)
{
    long once = f->calls[0] > 2 * per_round ? f->calls[0] - 2 * per_round : 0;
    size_t used = strlen(batch->failures);
    snprintf(batch->failures + used, sizeof batch->failures - used, "%s%s:%ld", used ? "," : "",
        f->name, per_round > 0 ? once + batch->n * per_round + nth : nth);
    batch->n++;
    if (batch->n == JOB_ROUNDS - 1 || per_round <= 0)
        run_batch(batch);
}

/* @variables: of the jobs. */
static void check_failures(const char *variables, bool all)
{
    static struct function functions[MAX_FUNCTIONS];
    struct batch batch = {.variables = variables};
    int n = count_functions(functions, variables);
    if (n == 0)
        fprintf(stderr, "f_device: not tested, as this runtime does not fail when it is told to\n");
    /* What a process calls once first: each such failure has a job of its own. */
    for (int i = 0; i < n; i++) {
        if (functions[i].calls[1] <= functions[i].calls[0])
            add_failure(&batch, &functions[i], 1, 0);
    }
    for (int turn = 0; turn < (all ? 3 : 1); turn++) {
        for (int i = 0; i < n; i++) {
            long per_round = (functions[i].calls[1] - functions[i].calls[0]) / 2;
            long nth[] = {1, per_round, (per_round + 1) / 2};
            if (per_round > 0 && (turn == 0 || nth[turn] > nth[turn - 1]))
                add_failure(&batch, &functions[i], all ? nth[turn] : nth[2], per_round);
        }
        run_batch(&batch);
    }
    ck_assert_msg(batch.bad == 0, "%d jobs failed", batch.bad);
}

START_TEST(test_device_failing_calls_on_one_node_are_survived)
{
    check_failures("TIARA_TIMEOUT=8", true);
}
END_TEST

START_TEST(test_device_failing_calls_on_two_nodes_are_survived)
{
    check_failures("TIARA_TIMEOUT=8 TIARA_LAYOUT=2x1", false);
}
END_TEST

START_TEST(test_device_rank_that_stops_is_an_error_in_time)
{
    static const char *const variables[] = {"TIARA_TIMEOUT=2", "TIARA_TIMEOUT=2 TIARA_LAYOUT=2x1",
        "TIARA_TIMEOUT=2 STANDIN_PEERS=none"};
    ck_assert(is_good(run_job("stop", 2, variables[_i]), variables[_i]));
}
END_TEST

START_TEST(test_device_rank_that_dies_ends_the_job)
{
    static const char *const variables[] = {"", "TIARA_LAYOUT=2x2"};
    int status = run_job("die", 4, variables[_i]);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 124,
        "status %x", (unsigned)status);
}
END_TEST

int main(int argc, char **argv)
{
    const char *role = getenv("TIARA_TEST_ROLE");
    if (role)
        return be_rank(role, argc, argv);
    if (!getenv("TIARA_TEST_MPIRUN"))
        tiara_test_skip("TIARA_TEST_MPIRUN does not say how to start a job");
    snprintf(scratch, sizeof scratch, "%s/f_device.%d",
        getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    Suite *suite = suite_create("f_device");
    TCase *tests = tcase_create("device");
    tcase_add_test(tests, test_device_failing_calls_on_one_node_are_survived);
    tcase_add_test(tests, test_device_failing_calls_on_two_nodes_are_survived);
    tcase_add_loop_test(tests, test_device_rank_that_stops_is_an_error_in_time, 0, 3);
    tcase_add_loop_test(tests, test_device_rank_that_dies_ends_the_job, 0, 2);
    suite_add_tcase(suite, tests);
    int status = tiara_test_run(suite, CK_FORK_GETENV);
    char text[400];
    snprintf(text, sizeof text, "%s.out", scratch);
    unlink(text);
    return status;
}
