/* See mpi_run.h. */
#include "mpi_run.h"
#include "mpi_buf.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PRINTED = 5,
    TEXT = 300,
    EXIT_SKIP = 77
};

int mt_rank, mt_size;
MPI_Comm mt_private;

static Suite *suite;
static const char *suite_name;
static pthread_mutex_t failed_lock = PTHREAD_MUTEX_INITIALIZER;
static int nfailed; /* of the current test, on this rank */
static char first_failure[TEXT];
static char note[TEXT] = "before the first test";

static void on_alarm(int sig)
{
    char text[2 * TEXT];
    int len = snprintf(text, sizeof text, "%s: rank %d hangs: %s\n", suite_name, mt_rank, note);
    if (write(mt_stderr_real(), text, (size_t)len) < 0)
        _exit(2);
    (void)sig;
    _exit(1);
}

/* A process without the memory that is to be tested skips all tests, and all ranks do. */
static void open_device(void)
{
    const char *why = mt_device_open();
    int lowest = why ? mt_rank : mt_size, any = 0;
    char reason[TEXT] = "";
    PMPI_Allreduce(&lowest, &any, 1, MPI_INT, MPI_MIN, mt_private);
    if (any == mt_size)
        return;
    snprintf(reason, sizeof reason, "%s", why ? why : "");
    PMPI_Bcast(reason, sizeof reason, MPI_CHAR, any, mt_private);
    exit(mt_skip(reason));
}

/* Again when tests start: Check has taken the signal for itself by then, and would end the process
 * without a word. */
static void watch_alarm(void)
{
    signal(SIGALRM, on_alarm);
}

TCase *mt_begin(int *argc, char ***argv, const char *name, int required)
{
    suite_name = name;
    watch_alarm();
    alarm((unsigned)mt_env("TIARA_TEST_ALARM", 120));
    int provided;
    MPI_Init_thread(argc, argv, required, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mt_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mt_size);
    MPI_Comm_dup(MPI_COMM_WORLD, &mt_private);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    suite = suite_create(name);
    TCase *tests = tcase_create(name);
    tcase_add_unchecked_fixture(tests, watch_alarm, NULL);
    suite_add_tcase(suite, tests);
    open_device();
    return tests;
}

int mt_end(void)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, mt_rank == 0 ? CK_NORMAL : CK_SILENT);
    int failed = srunner_ntests_failed(runner) != 0, any = 1;
    srunner_free(runner);
    mt_note("in MPI_Finalize");
    PMPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, mt_private);
    MPI_Comm_free(&mt_private);
    MPI_Finalize();
    return any ? EXIT_FAILURE : EXIT_SUCCESS;
}

int mt_skip(const char *reason)
{
    if (mt_rank == 0)
        printf("%s: skipped: %s\n", suite_name, reason);
    srunner_free(srunner_create(suite));
    MPI_Comm_free(&mt_private);
    MPI_Finalize();
    return EXIT_SKIP;
}

bool mt_check(bool ok, const char *format, ...)
{
    if (ok)
        return true;
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&failed_lock);
    if (nfailed == 0)
        memcpy(first_failure, text, sizeof text);
    if (nfailed++ < MAX_PRINTED)
        fprintf(stderr, "%s: rank %d of %d: %s\n", suite_name, mt_rank, mt_size, text);
    pthread_mutex_unlock(&failed_lock);
    return false;
}

bool mt_all_well(void)
{
    int total = 1;
    PMPI_Allreduce(&nfailed, &total, 1, MPI_INT, MPI_SUM, mt_private);
    return total == 0;
}

void mt_agree(void)
{
    int total = 1, mine = nfailed;
    PMPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, mt_private);
    nfailed = 0;
    if (total != 0)
        ck_abort_msg("%d checks failed on all ranks, %d of them here: %s", total, mine,
            mine ? first_failure : "see the other ranks");
}

void mt_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(note, sizeof note, format, args);
    va_end(args);
}

uint64_t mt_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        seed = (uint64_t)mt_env("TIARA_TEST_SEED", time(NULL));
        PMPI_Bcast(&seed, 1, MPI_UINT64_T, 0, mt_private);
        if (mt_rank == 0)
            printf("%s: TIARA_TEST_SEED=%llu\n", suite_name, (unsigned long long)seed);
    }
    return seed;
}

long mt_env(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : fallback;
}

int mt_sweep(void)
{
    return (int)mt_env("TIARA_TEST_SWEEP", 1);
}
