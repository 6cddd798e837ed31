/*
 * Waiting: every way in which a wait begins, goes on and ends. Counters say what happened, never
 * clocks.
 */
#include "base/progress.h"
#include "base/wait.h"
#include "test/harness/test.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One wait and what is counted in it. */
struct watched {
    struct tiara_wait wait;
    tiara_u32 sleeping;
    tiara_u64 word;
    bool is_network; /* there is no word to look at */
    uint64_t want; /* over when word has this value; 0: only by the counters */
    int tests, sleeps; /* calls of ready; with the sleeping flag set, just before a sleep */
    int ready_at_test; /* 0: never */
    int ready_at_progress, progresses;
    int moves_until; /* so many turns of progress move something */
    int ready_at_sleep;
    int tests_at_move, still_at_sleep; /* tests at the last move; after it, at the first sleep */
    int ready_at_stuck, stucks, firsts, stuck_fails_at;
    double last_waited_s;
};

static bool is_ready(void *arg, struct tiara_wait_on *on)
{
    struct watched *w = arg;
    /* [u_wait.word] acquire: what the waker counted before is seen */
    uint64_t seen = tiara_load_acquire(&w->word);

    w->tests++;
    if (tiara_load_relaxed(&w->sleeping) != 0 && w->sleeps++ == 0) /* relaxed: own flag */
        w->still_at_sleep = w->tests - w->tests_at_move;
    if (!w->is_network)
        *on = (struct tiara_wait_on){&w->word, seen};
    return (w->want && seen == w->want) || (w->ready_at_test && w->tests >= w->ready_at_test) ||
           (w->ready_at_progress && w->progresses >= w->ready_at_progress) ||
           (w->ready_at_sleep && w->sleeps >= w->ready_at_sleep) ||
           (w->ready_at_stuck && w->stucks >= w->ready_at_stuck);
}

static struct watched *owing; /* whose test runs: a test has a process of its own, and one wait */

static bool progress(void)
{
    if (!owing || ++owing->progresses > owing->moves_until)
        return false;
    owing->tests_at_move = owing->tests;
    return true;
}

static enum tiara_err stuck(void *arg, double waited_s, bool first)
{
    struct watched *w = arg;

    ck_assert(waited_s >= w->last_waited_s);
    w->last_waited_s = waited_s;
    w->firsts += first;
    return ++w->stucks == w->stuck_fails_at ? TIARA_ERR_PEER : TIARA_OK;
}

/* Never ends by itself, but for the limit. */
static void watched_init(struct watched *w)
{
    *w = (struct watched){
        .wait = {.spins = 10, .yields = 10, .limit_s = 30, .stuck = stuck, .stuck_arg = w}};
    owing = w;
    tiara_progress_add(progress);
}

START_TEST(test_wait_ready_at_once_tests_once)
{
    struct watched w;

    watched_init(&w);
    w.ready_at_test = 1;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.tests, 1);
}
END_TEST

START_TEST(test_wait_ready_while_spinning_looks_at_nothing_else)
{
    struct watched w;

    watched_init(&w);
    w.wait.spins = 2000;
    w.ready_at_test = 1999;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.tests, 1999);
    ck_assert_int_eq(w.progresses + w.stucks, 0);
}
END_TEST

START_TEST(test_wait_ready_after_yields_ends)
{
    struct watched w;

    watched_init(&w);
    w.ready_at_test = 15;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.tests, 15);
}
END_TEST

START_TEST(test_wait_without_spins_still_tests)
{
    struct watched w;

    watched_init(&w);
    w.wait.spins = 0;
    w.ready_at_test = 1;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.tests, 1);
}
END_TEST

START_TEST(test_wait_long_drives_progress)
{
    struct watched w;

    watched_init(&w);
    w.ready_at_progress = 50;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.progresses, 50);
    ck_assert_int_ge(w.tests, 50);
}
END_TEST

/* It would spin for a minute, and the limit is only looked at after that. */
START_TEST(test_wait_for_the_network_on_a_crowded_core_does_not_spin)
{
    struct watched w;

    watched_init(&w);
    w.is_network = true;
    w.wait.crowded = true;
    w.wait.spins = INT_MAX;
    w.wait.limit_s = 0.05;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_TIMEOUT);
}
END_TEST

/* Also where the condition's own test may happen to drive it, as one of a message does. */
START_TEST(test_wait_for_the_network_drives_progress)
{
    struct watched w;

    watched_init(&w);
    w.is_network = true;
    w.ready_at_progress = 50;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.progresses, 50);
}
END_TEST

START_TEST(test_wait_long_asks_the_watchdog_and_says_first_once)
{
    struct watched w;

    watched_init(&w);
    w.wait.warn_s = 0.01;
    w.ready_at_stuck = 3;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.stucks, 3);
    ck_assert_int_eq(w.firsts, 1);
    ck_assert(w.last_waited_s >= w.wait.warn_s);
}
END_TEST

START_TEST(test_wait_without_warning_never_says_first)
{
    struct watched w;

    watched_init(&w);
    w.wait.warn_s = 0;
    w.ready_at_stuck = 2;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.firsts, 0);
}
END_TEST

START_TEST(test_wait_two_waits_each_may_warn)
{
    struct watched w;

    watched_init(&w);
    w.wait.warn_s = 0.01;
    for (int i = 1; i <= 2; i++) {
        w.last_waited_s = 0;
        w.ready_at_stuck = i;
        ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
        ck_assert_int_eq(w.firsts, i);
    }
}
END_TEST

START_TEST(test_wait_watchdog_error_ends_it)
{
    struct watched w;

    watched_init(&w);
    w.stuck_fails_at = 1;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_PEER);
}
END_TEST

START_TEST(test_wait_limit_is_a_timeout)
{
    struct watched w;

    watched_init(&w);
    w.wait.limit_s = 0.05;
    w.wait.stuck = NULL;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_TIMEOUT);
    ck_assert_int_gt(w.tests, w.wait.spins);
}
END_TEST

START_TEST(test_wait_watchdog_speaks_before_the_limit)
{
    struct watched w;

    watched_init(&w);
    w.wait.warn_s = 0.01;
    w.wait.limit_s = 0.01;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_TIMEOUT);
    ck_assert_int_eq(w.firsts, 1);
}
END_TEST

/* ---- sleeping ---- */

struct waker {
    struct watched *waited;
    struct tiara_wait wait; /* of the thread that wakes: its peers' flags */
    tiara_u32 *flag;
    bool forgets; /* to wake */
};

/* Changes the word once the waiter has gone to sleep. */
static void *wake_sleeper(void *arg)
{
    struct waker *k = arg;

    while (tiara_load_relaxed(k->flag) == 0) /* relaxed: only a signal to begin */
        sched_yield();
    /* [u_wait.word] release: ends the wait */
    tiara_store_release(&k->waited->word, 7);
    if (!k->forgets)
        tiara_wait_wake(&k->wait, &k->waited->word);
    return NULL;
}

/* _i: the waker forgets to wake; the sleep ends all the same. */
START_TEST(test_wait_sleeper_sees_the_word_change)
{
    struct watched w;
    struct waker k = {.waited = &w, .forgets = _i};
    pthread_t thread;

    for (int round = 0; round < 50; round++) {
        watched_init(&w);
        w.want = 7;
        w.wait.yields = 0;
        w.wait.sleeping = &w.sleeping;
        k.flag = &w.sleeping;
        k.wait = (struct tiara_wait){.peers = &k.flag, .npeers = 1};
        ck_assert_int_eq(pthread_create(&thread, NULL, wake_sleeper, &k), 0);
        ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
        pthread_join(thread, NULL);
        ck_assert_int_gt(w.sleeps, 0);
        ck_assert_uint_eq(tiara_load_relaxed(&w.sleeping), 0); /* relaxed: own flag */
    }
}
END_TEST

/* Sleeping waits must look around, too: peers may have died meanwhile. */
START_TEST(test_wait_sleeper_looks_around)
{
    struct watched w;

    watched_init(&w);
    w.want = 7;
    w.wait.yields = 0;
    w.wait.sleeping = &w.sleeping;
    w.stuck_fails_at = 1;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_PEER);
    ck_assert_int_gt(w.sleeps, 0);
    /* Many turns for each sleep: the network may go on in each, whatever its steps say. */
    ck_assert_int_ge(w.progresses, 8 * w.sleeps);
    ck_assert_uint_eq(tiara_load_relaxed(&w.sleeping), 0); /* relaxed: own flag */
}
END_TEST

START_TEST(test_wait_does_not_sleep_while_anything_moves)
{
    struct watched w;

    watched_init(&w);
    w.wait.yields = 100;
    w.wait.sleeping = &w.sleeping;
    w.moves_until = w.ready_at_progress = 5000;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_eq(w.sleeps, 0);

    /* Nor shortly after; and then it does. */
    watched_init(&w);
    w.wait.yields = 100;
    w.wait.sleeping = &w.sleeping;
    w.moves_until = 1000;
    w.ready_at_sleep = 3;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_OK);
    ck_assert_int_ge(w.still_at_sleep, w.wait.yields);
}
END_TEST

/* _i 0: yields < 0; 1: no flag; 2: no word. */
START_TEST(test_wait_that_may_not_sleep_does_not)
{
    struct watched w;

    watched_init(&w);
    w.wait.yields = _i == 0 ? -1 : 0;
    w.wait.sleeping = _i == 1 ? NULL : &w.sleeping;
    w.is_network = _i == 2;
    w.stuck_fails_at = 1;
    ck_assert_int_eq(tiara_wait(&w.wait, is_ready, &w), TIARA_ERR_PEER);
    ck_assert_int_eq(w.sleeps, 0);
}
END_TEST

/* A thread in the kernel that only a wake-up of its word ends in time. */
struct sleeper {
    tiara_u64 word;
    tiara_u32 done;
    int number; /* errno of the sleep, 0: woken */
};

static void *sleep_long(void *arg)
{
    struct sleeper *s = arg;
    struct timespec limit = {60, 0};

    /* little endian: the low half comes first */
    if (syscall(SYS_futex, &s->word, FUTEX_WAIT, 5, &limit, NULL, 0) != 0)
        s->number = errno;
    /* [u_wait.done] release: number is written */
    tiara_store_release(&s->done, 1);
    return NULL;
}

START_TEST(test_wake_reaches_who_sleeps_on_the_word)
{
    static struct sleeper s[2];
    tiara_u32 flags[3] = {0, 0, 1}, *peers[3] = {&flags[0], &flags[1], &flags[2]};
    struct tiara_wait wait = {.peers = peers, .npeers = 3};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        /* relaxed: before the thread exists */
        tiara_store_relaxed(&s[i].word, UINT64_C(0x300000005));
        ck_assert_int_eq(pthread_create(&threads[i], NULL, sleep_long, &s[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        /* [u_wait.done] acquire: number may be read */
        while (!tiara_load_acquire(&s[i].done)) {
            tiara_wait_wake(&wait, &s[i].word);
            sched_yield();
        }
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(s[i].number, 0);
    }
}
END_TEST

START_TEST(test_policy_crowded_ranks_give_way_sooner)
{
    struct tiara_wait alone = {0}, crowded = {0};

    tiara_wait_policy(&alone, 2, 2);
    tiara_wait_policy(&crowded, 3, 2);
    ck_assert_int_lt(crowded.spins, alone.spins);
    ck_assert_int_lt(crowded.yields, alone.yields);
    ck_assert_int_ge(crowded.yields, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait");
    TCase *tcase = tcase_create("wait");

    tcase_add_test(tcase, test_wait_ready_at_once_tests_once);
    tcase_add_test(tcase, test_wait_ready_while_spinning_looks_at_nothing_else);
    tcase_add_test(tcase, test_wait_ready_after_yields_ends);
    tcase_add_test(tcase, test_wait_without_spins_still_tests);
    tcase_add_test(tcase, test_wait_long_drives_progress);
    tcase_add_test(tcase, test_wait_for_the_network_on_a_crowded_core_does_not_spin);
    tcase_add_test(tcase, test_wait_for_the_network_drives_progress);
    tcase_add_test(tcase, test_wait_long_asks_the_watchdog_and_says_first_once);
    tcase_add_test(tcase, test_wait_without_warning_never_says_first);
    tcase_add_test(tcase, test_wait_two_waits_each_may_warn);
    tcase_add_test(tcase, test_wait_watchdog_error_ends_it);
    tcase_add_test(tcase, test_wait_limit_is_a_timeout);
    tcase_add_test(tcase, test_wait_watchdog_speaks_before_the_limit);
    tcase_add_loop_test(tcase, test_wait_sleeper_sees_the_word_change, 0, 2);
    tcase_add_test(tcase, test_wait_sleeper_looks_around);
    tcase_add_test(tcase, test_wait_does_not_sleep_while_anything_moves);
    tcase_add_loop_test(tcase, test_wait_that_may_not_sleep_does_not, 0, 3);
    tcase_add_test(tcase, test_wake_reaches_who_sleeps_on_the_word);
    tcase_add_test(tcase, test_policy_crowded_ranks_give_way_sooner);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
