/*
 * The one way to wait.
 *
 * Every wait of the library goes through tiara_wait(). It spins for a while that depends on how
 * many ranks share how many cores, then yields the core, then sleeps on a futex. From the first
 * yield on it moves all that the process owes to others (progress.h), also where the test of its
 * condition happens to move some of it, and does not sleep as long as anything moves; a watchdog
 * says who is missing. A wait is described by a function that tests the condition and, when it does
 * not hold, names the word whose change could make it hold.
 *
 * Sleeping needs a wake-up: whoever publishes a word calls tiara_wait_wake() after the store. It
 * costs a load per node peer unless a peer sleeps. A wake-up may be missed (no fence between the
 * publisher's store and its look at the sleepers), so that every sleep is bounded by
 * TIARA_WAIT_SLEEP_NS; that bound is the whole price of leaving the fence out of the fast path.
 */
#ifndef TIARA_BASE_WAIT_H
#define TIARA_BASE_WAIT_H

#include "base/err.h"
#include "base/sync.h"
#include <stdbool.h>
#include <stddef.h>

#define TIARA_WAIT_SLEEP_NS 500000L

/* What a failed test wants to see change. */
struct tiara_wait_on {
    /* NULL: nothing to sleep on (a network request). A change must show in its low half: the kernel
     * compares no more before it lets a sleeper sleep. */
    tiara_u64 *word;
    uint64_t seen; /* the value with which the test failed */
};

/*
 * True when the wait is over. Otherwise fills @on. Must be cheap and free of side effects that a
 * second call would repeat. Called with the wait's @arg.
 */
typedef bool (*tiara_ready_fn)(void *arg, struct tiara_wait_on *on);

struct tiara_wait {
    bool crowded; /* ranks share cores */
    int spins; /* tests before the first yield */
    int yields; /* turns in which nothing moves before the first sleep; < 0: never sleep */
    tiara_u32 *sleeping; /* own flag that node peers read in tiara_wait_wake; NULL: never sleep */
    tiara_u32 **peers; /* [npeers] the node peers' flags; borrowed */
    int npeers;
    double warn_s; /* the watchdog speaks after this many seconds, once per wait; 0: never */
    double limit_s; /* TIARA_ERR_TIMEOUT after this many; 0: never */
    /*
     * Called by the watchdog at warn_s and then about once a second: prints who is missing when
     * @first, and returns TIARA_ERR_PEER or TIARA_ERR_MISMATCH to end a wait that cannot end well.
     * NULL: none.
     */
    enum tiara_err (*stuck)(void *arg, double waited_s, bool first);
    void *stuck_arg;
};

/*
 * tiara_wait() - return when @ready(@arg) holds
 * Context: any thread that owns @w. Errors: TIARA_ERR_TIMEOUT, and what stuck returns.
 */
TIARA_MUST_USE enum tiara_err tiara_wait(struct tiara_wait *w, tiara_ready_fn ready, void *arg);

/* The watchdog of one wait. Zeroed: begins. */
struct tiara_watch {
    double start; /* of the wait */
    double seen; /* the last look */
    double next; /* when stuck is asked again */
    bool spoke;
};

/*
 * One look of the watchdog of @w, for a wait that is a loop of the program's; tiara_wait() looks by
 * itself. A program that comes by now and then, and computes meanwhile, does not wait: the time of
 * the wait begins again. Cheap but for one look in a second. Errors: as tiara_wait.
 */
TIARA_MUST_USE enum tiara_err tiara_wait_watch(
    const struct tiara_wait *w, struct tiara_watch *watch);

/* After a release store to @word: wakes peers that sleep on it. */
void tiara_wait_wake_slow(tiara_u64 *word);
static inline void tiara_wait_wake(const struct tiara_wait *w, tiara_u64 *word)
{
    for (int i = 0; i < w->npeers; i++) {
        /* relaxed: a missed flag costs at most one bounded sleep */
        if (__builtin_expect(tiara_load_relaxed(w->peers[i]) != 0, 0)) {
            tiara_wait_wake_slow(word);
            return;
        }
    }
}

/*
 * Spins and yields for @ranks runnable ranks on @cores cores; overridden by TIARA_SPIN (caller).
 */
void tiara_wait_policy(struct tiara_wait *w, int ranks, int cores);

/* Monotonic seconds. */
double tiara_now(void);

#endif
