/*
 * Threads as ranks.
 */
#ifndef TIARA_TEST_THREADS_H
#define TIARA_TEST_THREADS_H

#include "test/harness/exchange.h"

/*
 * tiara_threads_run() - run @fn as @nranks ranks, each a thread; returns the sum of their failures
 * A rank that returns leaves the group. @arg is the same for all. A thread that cannot be started
 * is a failure.
 */
int tiara_threads_run(int nranks, tiara_rank_fn fn, void *arg);

/*
 * An exchange for a part of the ranks (a node, say): created before the run, used through
 * tiara_exchange_group(x, index), destroyed after it. NULL when there is no memory.
 */
struct tiara_exchange *tiara_threads_exchange_create(int size);
void tiara_threads_exchange_destroy(struct tiara_exchange *x);

#endif
