/*
 * Forked processes as ranks.
 */
#ifndef TIARA_TEST_PROCS_H
#define TIARA_TEST_PROCS_H

#include "test/harness/exchange.h"

#define TIARA_PROCS_MAX 64

/*
 * tiara_procs_run() - run @fn as @nranks ranks, each a child process; returns how many failed A
 * rank fails when @fn returns failures, or when its process ends otherwise. All are reaped; they
 * die with their parent; what does not end in time is killed. @arg is as it was at the fork:
 * results do not come back.
 */
int tiara_procs_run(int nranks, tiara_rank_fn fn, void *arg);

#endif
