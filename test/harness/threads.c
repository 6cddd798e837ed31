/*
 * Threads as ranks: see threads.h.
 */
#include "test/harness/threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread {
    pthread_t id;
    bool is_running;
    int rank;
    struct tiara_exchange *exchange;
    tiara_rank_fn fn;
    void *arg;
    int failures;
};

struct tiara_exchange *tiara_threads_exchange_create(int size)
{
    size_t bytes = (tiara_exchange_bytes(size) + TIARA_LINE - 1) / TIARA_LINE * TIARA_LINE;
    struct tiara_exchange *x = aligned_alloc(TIARA_LINE, bytes);

    if (x == NULL)
        return NULL;
    memset(x, 0, bytes);
    tiara_exchange_init(x, size);
    return x;
}

void tiara_threads_exchange_destroy(struct tiara_exchange *x)
{
    free(x);
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    struct tiara_xport_group group = tiara_exchange_group(t->exchange, t->rank);

    t->failures = t->fn(t->rank, &group, t->arg);
    tiara_exchange_leave(t->exchange, t->rank);
    return NULL;
}

static void thread_start(struct thread *t)
{
    int number = pthread_create(&t->id, NULL, thread_main, t);

    t->is_running = number == 0;
    if (number != 0) {
        fprintf(stderr, "no thread for rank %d: %s\n", t->rank, strerror(number));
        t->failures = 1;
        tiara_exchange_leave(t->exchange, t->rank);
    }
}

int tiara_threads_run(int nranks, tiara_rank_fn fn, void *arg)
{
    struct tiara_exchange *x = tiara_threads_exchange_create(nranks);
    struct thread *threads = calloc((size_t)nranks, sizeof *threads);
    int failures = 0;

    if (x == NULL || threads == NULL) {
        fprintf(stderr, "no memory for %d threads\n", nranks);
        failures = 1;
        goto out_free;
    }
    for (int i = 0; i < nranks; i++) {
        threads[i] = (struct thread){.rank = i, .exchange = x, .fn = fn, .arg = arg};
        thread_start(&threads[i]);
    }
    for (int i = 0; i < nranks; i++) {
        if (threads[i].is_running)
            pthread_join(threads[i].id, NULL);
        failures += threads[i].failures;
    }
out_free:
    free(threads);
    tiara_threads_exchange_destroy(x);
    return failures;
}
