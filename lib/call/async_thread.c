/*
 * The thread that goes on with nonblocking operations where the program does not come by.
 *
 * The one idea: it sleeps as long as the program drives its operations itself, and looks now and
 * then whether that is still so. So a program that starts an operation and waits for it pays
 * nothing, and one that computes, or waits inside MPI for a rank that waits for the operation, is
 * not in anybody's way. Below MPI_THREAD_MULTIPLE it makes no MPI call.
 */
#include "call/async.h"
#include "base/log.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Between two looks while operations are outstanding; it doubles while there is nothing to do. */
#define LOOK_NS_MIN 100000L
#define LOOK_NS_MAX 1000000L
/* Looks without any operation before it sleeps for good: starting it again costs a system call. */
#define IDLE_LOOKS 50
/* Turns without progress before it gives up its turn. */
#define PATIENCE 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static const struct tiara_async_work *work; /* set before there is a thread */
static bool exists, refused, stop; /* lock */
static tiara_u32 awake; /* the thread will look again by itself */

/* Drives what there is while it moves. True when it moved at all; *left_out: whether operations are
 * left. */
static bool drive(bool *left_out)
{
    bool moved = false;

    for (int still = 0; still < PATIENCE; still++) {
        if (work->progress(left_out)) {
            moved = true;
            still = 0;
        }
        if (!*left_out)
            break;
        sched_yield();
    }
    return moved;
}

/* Sleeps until there may be something to do. False: the end. */
static bool sleep_until_called(void)
{
    bool go_on;

    pthread_mutex_lock(&lock);
    /* relaxed: the lock orders it; tiara_async_thread_call reads it outside only to save taking the
     * lock */
    tiara_store_relaxed(&awake, 0);
    /* After that: who starts a task now, after this look, finds the thread asleep. */
    if (work->has_tasks())
        tiara_store_relaxed(&awake, 1); /* relaxed: as above */
    while (!stop && !tiara_load_relaxed(&awake)) /* relaxed: as above */
        pthread_cond_wait(&called, &lock);
    go_on = !stop;
    pthread_mutex_unlock(&lock);
    return go_on;
}

static bool is_stopped(void)
{
    bool stopped;

    pthread_mutex_lock(&lock);
    stopped = stop;
    pthread_mutex_unlock(&lock);
    return stopped;
}

static void *run(void *arg)
{
    uint64_t visits = 0;
    long pause_ns = LOOK_NS_MIN;
    int idle = 0;

    (void)arg;
    while (!is_stopped()) {
        struct timespec pause = {0, pause_ns};
        uint64_t before = visits;
        bool left = true, moved = false;

        nanosleep(&pause, NULL);
        visits = work->visits();
        if (visits == before)
            moved = drive(&left);
        pause_ns = moved ? LOOK_NS_MIN : pause_ns * 2 < LOOK_NS_MAX ? pause_ns * 2 : LOOK_NS_MAX;
        idle = left ? 0 : idle + 1;
        if (idle > IDLE_LOOKS) {
            if (!sleep_until_called())
                break;
            idle = 0;
        }
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static int create_thread(void)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void tiara_async_thread_call(const struct tiara_async_work *all)
{
    int rc;

    if (tiara_load_relaxed(
            &awake)) /* relaxed: see sleep_until_called, whose look takes the tasks' lock */
        return;
    pthread_mutex_lock(&lock);
    tiara_store_relaxed(&awake, 1); /* relaxed: the lock orders it */
    if (exists) {
        pthread_cond_signal(&called);
    } else if (!refused) {
        stop = false;
        work = all;
        rc = create_thread();
        exists = rc == 0;
        refused = rc != 0;
        if (refused)
            tiara_warn("no thread for nonblocking calls (%s): they go on in the program's own "
                       "calls only",
                strerror(rc));
    }
    pthread_mutex_unlock(&lock);
}

void tiara_async_thread_stop(void)
{
    bool join;

    pthread_mutex_lock(&lock);
    join = exists;
    stop = true;
    exists = false;
    pthread_cond_signal(&called);
    pthread_mutex_unlock(&lock);
    if (join)
        pthread_join(thread, NULL);
    tiara_store_relaxed(&awake, 0); /* relaxed: there is no other thread */
}
