/*
 * Forked processes as ranks: see procs.h. The exchange lies in a shared anonymous mapping, at the
 * same address in all of them.
 */
#include "test/harness/procs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Longer than any wait inside a rank, so that ranks report for themselves. */
#define LIMIT_S (3 * TIARA_TEST_PATIENCE_S)

/* What a child does; never returns. */
static void child_main(
    struct tiara_exchange *x, int rank, tiara_rank_fn fn, void *arg, pid_t parent)
{
    struct tiara_xport_group group = tiara_exchange_group(x, rank);
    int failures;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    failures = fn(rank, &group, arg);
    tiara_exchange_leave(x, rank);
    fflush(NULL);
    _exit(failures != 0);
}

/* True when @rank's process has ended and been reaped; counts it when it failed. */
static bool child_ended(struct tiara_exchange *x, int rank, pid_t pid, int *failed)
{
    int status;
    pid_t ended;

    do {
        ended = waitpid(pid, &status, WNOHANG);
    } while (ended < 0 && errno == EINTR);
    if (ended == 0)
        return false;
    tiara_exchange_leave(x, rank);
    if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (ended > 0 && WIFSIGNALED(status))
        fprintf(stderr, "rank %d ended by signal %d\n", rank, WTERMSIG(status));
    (*failed)++;
    return true;
}

/* Reaps all children; returns how many failed. A pid of 0 is a child that was never made. */
static int children_reap(struct tiara_exchange *x, pid_t *pids, int nranks)
{
    const struct timespec nap = {0, 1000000}; /* between looks; nothing depends on it */
    double begin = tiara_test_now();
    bool killed = false;
    int left = 1, failed = 0;

    while (left > 0) {
        left = 0;
        for (int i = 0; i < nranks; i++) {
            if (pids[i] != 0 && child_ended(x, i, pids[i], &failed))
                pids[i] = 0;
            left += pids[i] != 0;
        }
        if (left > 0 && !killed && tiara_test_now() - begin > LIMIT_S) {
            killed = true;
            for (int i = 0; i < nranks; i++) {
                if (pids[i] != 0)
                    kill(pids[i], SIGKILL);
            }
        }
        if (left > 0)
            nanosleep(&nap, NULL);
    }
    return failed;
}

int tiara_procs_run(int nranks, tiara_rank_fn fn, void *arg)
{
    size_t bytes = tiara_exchange_bytes(nranks);
    pid_t pids[TIARA_PROCS_MAX] = {0}, parent = getpid();
    struct tiara_exchange *x;
    int failed = 0;

    if (nranks > TIARA_PROCS_MAX)
        return nranks;
    x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED) {
        perror("mmap");
        return nranks;
    }
    tiara_exchange_init(x, nranks);
    fflush(NULL);
    for (int i = 0; i < nranks; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            child_main(x, i, fn, arg, parent);
        if (pids[i] > 0)
            continue;
        perror("fork");
        pids[i] = 0;
        tiara_exchange_leave(x, i);
        failed++;
    }
    failed += children_reap(x, pids, nranks);
    munmap(x, bytes);
    return failed;
}
