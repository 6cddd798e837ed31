/*
 * The first calls of a process, by two threads at once. While MPI makes a key for attributes, other
 * keys may stand where the new one will: Open MPI writes 0 first, the key of MPI_TAG_UB. A thread
 * that looks there meanwhile takes a number for the state of its communicator.
 *
 * tiara-test: mpirun 2
 */
#include "mpi_run.h"
#include "tiara.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* The program's own attribute. */
static int decoy;
static char value[1 << 14];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool making, answered; /* lock */

/* In the place of MPI's: as slow as can be, and with the program's key in between. */
int PMPI_Comm_create_keyval(
    MPI_Comm_copy_attr_function *copy, MPI_Comm_delete_attr_function *del, int *keyval, void *extra)
{
    int (*next)(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *);
    struct timespec until;

    *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Comm_create_keyval");
    *keyval = decoy;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&lock);
    making = true;
    pthread_cond_broadcast(&changed);
    while (!answered && pthread_cond_timedwait(&changed, &lock, &until) == 0)
        ;
    pthread_mutex_unlock(&lock);
    return next(copy, del, keyval, extra);
}

static void ask(MPI_Comm comm)
{
    int answer = TIARA_SERVES_NO, err;
    const char *why = "";

    err = TIARA_Comm_serves(comm, 0, 1, MPI_INT, MPI_SUM, &answer, &why);
    mt_check(err == MPI_SUCCESS && answer == TIARA_SERVES_UNKNOWN,
        "error %d, answer %d about a communicator without calls", err, answer);
}

static void *second(void *arg)
{
    pthread_mutex_lock(&lock);
    while (!making)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    ask(*(MPI_Comm *)arg);
    pthread_mutex_lock(&lock);
    answered = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

START_TEST(test_first_calls_of_two_threads_are_right)
{
    MPI_Comm comm;
    pthread_t thread;
    int one = 1, sum = 0;

    memset(value, 0xff, sizeof(value));
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &decoy, NULL);
    MPI_Comm_set_attr(comm, decoy, value);
    pthread_create(&thread, NULL, second, &comm);
    ask(MPI_COMM_WORLD);
    pthread_join(thread, NULL);
    mt_check(
        TIARA_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == mt_size,
        "sum %d", sum);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&decoy);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_first_call", MPI_THREAD_MULTIPLE);
    int provided;

    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return mt_skip("this MPI has no MPI_THREAD_MULTIPLE");
    tcase_add_test(tests, test_first_calls_of_two_threads_are_right);
    return mt_end();
}
