/*
 * Waiting: spin, yield, sleep; progress; watchdog.
 *
 * The spin phase looks at nothing but the condition. From the first yield on, what the process owes
 * is moved and the watchdog runs; none of that is on the path of a wait that ends while spinning.
 */
#include "base/wait.h"
#include "base/log.h"
#include "base/progress.h"
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Turns between two looks around: progress and the clock. */
#define YIELDS_PER_LOOK 8

/* Of the turns of a wait that may sleep, one in so many is a sleep; in all of them it looks around:
 * a step of MPI's that takes too little time to be noticed is not half a millisecond from the next.
 */
#define TURNS_PER_SLEEP 16

/* The first sleep of a wait. The next ones are longer and longer, while nothing moves. */
#define FIRST_SLEEP_NS (TIARA_WAIT_SLEEP_NS / 16)

/* Who looks no more often than that is busy with something else, and does not wait. */
#define PAUSE_S 1.0

double tiara_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void tiara_wait_policy(struct tiara_wait *w, int ranks, int cores)
{
    /* A rank that shares its core must let the others run at once; one that does not should not
     * enter the kernel before a node-local exchange could have ended (some microseconds). */
    w->crowded = ranks > cores;
    w->spins = w->crowded ? 4 : 2000;
    w->yields = w->crowded ? 1000 : 4000;
}

/* The word's low half, as the kernel compares it. */
static uint32_t *futex_word(tiara_u64 *word)
{
    uint32_t *half = (uint32_t *)(void *)word;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    half++;
#endif
    return half;
}

void tiara_wait_wake_slow(tiara_u64 *word)
{
    syscall(SYS_futex, futex_word(word), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until the word changes, @ns at most. True when the wait is over. */
static bool sleep_on(struct tiara_wait *w, tiara_ready_fn ready, void *arg, long ns)
{
    struct timespec limit = {0, ns};
    struct tiara_wait_on on = {0};
    bool done;

    /* relaxed: a publisher that misses the flag costs one bounded sleep */
    tiara_store_relaxed(w->sleeping, 1);
    done = ready(arg, &on);
    if (!done && on.word)
        syscall(SYS_futex, futex_word(on.word), FUTEX_WAIT, (uint32_t)on.seen, &limit, NULL, 0);
    tiara_store_relaxed(w->sleeping, 0);
    return done;
}

enum tiara_err tiara_wait_watch(const struct tiara_wait *w, struct tiara_watch *watch)
{
    double now = tiara_now(), waited;
    enum tiara_err err = TIARA_OK;

    if (watch->next == 0)
        watch->next = now + 0.1;
    if (now - watch->seen > PAUSE_S)
        watch->start = now;
    watch->seen = now;
    waited = now - watch->start;
    if (now < watch->next)
        return TIARA_OK;
    watch->next = now + 1.0;
    if (w->stuck) {
        bool first = !watch->spoke && w->warn_s > 0 && waited >= w->warn_s;
        watch->spoke |= first;
        err = w->stuck(w->stuck_arg, waited, first);
    }
    if (err == TIARA_OK && w->limit_s > 0 && waited >= w->limit_s) {
        tiara_error(
            "a call waited %.1f s, TIARA_TIMEOUT is %.1f s: it is given up", waited, w->limit_s);
        err = TIARA_ERR_TIMEOUT;
    }
    return err;
}

/* The part of a wait that has left the spin phase. */
static enum tiara_err wait_long(struct tiara_wait *w, tiara_ready_fn ready, void *arg)
{
    struct tiara_watch watch = {0};
    struct tiara_wait_on on = {0};
    long sleep_ns = FIRST_SLEEP_NS;
    enum tiara_err err = TIARA_OK;

    /* @still: turns since something moved. */
    for (long still = 1; err == TIARA_OK; still++) {
        /* not without a word to sleep on, and not shortly after something moved */
        bool quiet = w->sleeping && w->yields >= 0 && still > w->yields && on.word;

        if (quiet && still % TURNS_PER_SLEEP == 0) {
            if (sleep_on(w, ready, arg, sleep_ns))
                return TIARA_OK;
            sleep_ns += sleep_ns / 8;
            sleep_ns = sleep_ns < TIARA_WAIT_SLEEP_NS ? sleep_ns : TIARA_WAIT_SLEEP_NS;
        } else {
            sched_yield();
        }
        on.word = NULL;
        if (ready(arg, &on))
            return TIARA_OK;
        if (!quiet && still % YIELDS_PER_LOOK != 0)
            continue;
        if (tiara_progress()) {
            still = 0;
            sleep_ns = FIRST_SLEEP_NS;
        }
        err = tiara_wait_watch(w, &watch);
    }
    return err;
}

enum tiara_err tiara_wait(struct tiara_wait *w, tiara_ready_fn ready, void *arg)
{
    for (int i = 0; i < w->spins; i++) {
        struct tiara_wait_on on = {0};

        if (ready(arg, &on))
            return TIARA_OK;
        /* A test of the network takes about as long as a peer on this core needs to send what is
         * waited for. */
        if (w->crowded && !on.word)
            break;
        tiara_cpu_relax();
    }
    return wait_long(w, ready, arg);
}
