/*
 * Conformance of the transports that need no MPI: inproc with threads as ranks, shm, cma and socket
 * with forked processes as ranks. Then what is special about each: failures that shm must survive,
 * reading from a process that has ended, and requests that are never finished.
 */
#include "test/harness/expect.h"
#include "test/harness/procs.h"
#include "test/harness/test.h"
#include "test/harness/threads.h"
#include "test/harness/xport_inproc.h"
#include "test/harness/xport_suite.h"
#include "base/alloc.h"
#include "xport/xport_priv.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the suite ---- */

struct run {
    struct tiara_xport_suite suite;
    int i;
};

static int run_case(int rank, const struct tiara_xport_group *group, void *arg)
{
    const struct run *run = arg;

    (void)rank;
    return tiara_xport_suite_run(&run->suite, run->i, group);
}

/* Case @i on @row for groups of a few sizes. */
static void case_assert(
    const struct tiara_xport *row, enum tiara_suite_ranks ranks, int descriptors, int i)
{
    static const int sizes[] = {1, 2, 3, 5};
    struct run run = {{row, ranks, true, descriptors}, i};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int failures = ranks == TIARA_SUITE_THREADS ? tiara_threads_run(sizes[k], run_case, &run)
                                                    : tiara_procs_run(sizes[k], run_case, &run);

        ck_assert_msg(
            failures == 0, "%s, %d ranks: %s", row->name, sizes[k], tiara_xport_suite_name(i));
    }
}

START_TEST(test_xport_inproc_conforms)
{
    case_assert(&tiara_xport_inproc, TIARA_SUITE_THREADS, 0, _i);
}
END_TEST

START_TEST(test_xport_shm_conforms)
{
    case_assert(&tiara_xport_shm, TIARA_SUITE_PROCESSES, 0, _i);
}
END_TEST

START_TEST(test_xport_socket_conforms)
{
    case_assert(&tiara_xport_socket, TIARA_SUITE_PROCESSES, 1, _i);
}
END_TEST

START_TEST(test_xport_cma_conforms)
{
    case_assert(&tiara_xport_cma, TIARA_SUITE_PROCESSES, 0, _i);
}
END_TEST

/* ---- shm ---- */

/* An object of any transport, on a test's stack. */
union object {
    long double align;
    unsigned char bytes[256];
};

/* What goes wrong on a rank. */
enum lack {
    LACK_NONE,
    LACK_FILES, /* no further descriptor */
    LACK_ROOM, /* no file as large as its segment */
    LACK_PEER, /* nothing that its peers say leads to them */
    LACK_COOKIE /* what it finds is not the file that its peers mean */
};

struct garbled {
    const struct tiara_xport_group *group;
    enum lack lack;
};

/* Exchanges what is longer than the byte of an agreement, cookies first, and spoils what came. */
static enum tiara_err garbled_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    const struct garbled *g = arg;
    enum tiara_err err = g->group->allgather(g->group->arg, in, out, bytes);

    for (int i = 0; i < g->group->size && bytes > 1; i++)
        for (size_t k = 0; k < (g->lack == LACK_COOKIE ? sizeof(uint64_t) : bytes); k++)
            ((unsigned char *)out)[(size_t)i * bytes + k] ^= 0x55;
    return err;
}

/* Sets a soft limit, and returns the one that it was. */
static rlim_t limit_set(int resource, rlim_t limit)
{
    struct rlimit limits = {0};
    rlim_t before;

    (void)getrlimit(resource, &limits);
    before = limits.rlim_cur;
    limits.rlim_cur = limit;
    (void)setrlimit(resource, &limits);
    return before;
}

/* Opens shm where the last rank has @lack. */
static enum tiara_err shm_open_lacking(
    union object *x, const struct tiara_xport_group *group, enum lack lack, size_t bytes)
{
    struct garbled garbled = {group, lack};
    struct tiara_xport_group with = *group;
    int resource = lack == LACK_FILES ? RLIMIT_NOFILE : RLIMIT_FSIZE;
    bool is_limited = lack == LACK_FILES || lack == LACK_ROOM;
    rlim_t before = 0;
    enum tiara_err err;

    memset(x, 0, sizeof *x);
    if (group->rank != group->size - 1 || lack == LACK_NONE)
        return tiara_xport_shm.open(x, group, bytes);
    if (is_limited)
        before = limit_set(resource, lack == LACK_FILES ? 0 : bytes);
    else
        with =
            (struct tiara_xport_group){group->rank, group->size, garbled_allgather, &garbled, NULL};
    err = tiara_xport_shm.open(x, &with, bytes);
    if (is_limited)
        limit_set(resource, before);
    return err;
}

static int rank_shm_fails(int rank, const struct tiara_xport_group *group, void *arg)
{
    static const struct {
        enum lack lack;
        enum tiara_err err;
    } tries[] = {
        {LACK_FILES, TIARA_ERR_NOSPACE},
        {LACK_ROOM, TIARA_ERR_NOSPACE},
        {LACK_PEER, TIARA_ERR_UNSUPPORTED},
        {LACK_COOKIE, TIARA_ERR_UNSUPPORTED},
    };
    struct tiara_expect e = {.rank = rank};
    uint64_t live = tiara_alloc_live();
    int fd_before = dup(0), fd_after;
    union object x;

    (void)arg;
    close(fd_before);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        EXPECT(&e, shm_open_lacking(&x, group, tries[i].lack, 10000) == tries[i].err);
        tiara_xport_shm.close(&x);
        EXPECT(&e, tiara_alloc_live() == live);
        /* The lowest free descriptor is the one it was: all others are closed. */
        fd_after = dup(0);
        EXPECT(&e, fd_after == fd_before);
        close(fd_after);
    }
    EXPECT(&e, shm_open_lacking(&x, group, LACK_NONE, 10000) == TIARA_OK);
    tiara_xport_shm.close(&x);
    return e.failures;
}

START_TEST(test_xport_shm_failure_on_one_rank_fails_all)
{
    ck_assert_int_eq(tiara_procs_run(3, rank_shm_fails, NULL), 0);
}
END_TEST

/* Each way hands over the files of all ranks, to each the right ones, and leaves no name. */
static int rank_shm_way(int rank, const struct tiara_xport_group *group, void *arg)
{
    unsigned ways = 1u << *(const int *)arg;
    struct tiara_xport_group with = *group;
    struct tiara_expect e = {.rank = rank};
    union object x = {0};
    uint64_t mine = 1000 + (uint64_t)rank, all[TIARA_PROCS_MAX];

    with.params = &ways;
    if (!EXPECT(&e, tiara_xport_shm.open(&x, &with, 100) == TIARA_OK))
        return e.failures;
    memcpy(tiara_xport_base(&x, rank), &mine, sizeof mine);
    EXPECT(&e, group->allgather(group->arg, &mine, all, sizeof mine) == TIARA_OK);
    for (int peer = 0; peer < group->size; peer++)
        EXPECT(&e, memcmp(tiara_xport_base(&x, peer), &all[peer], sizeof mine) == 0);
    EXPECT(&e, tiara_test_count_entries("/dev/shm", "tiara-") == 0);
    EXPECT(&e, tiara_test_count_entries("/tmp", "tiara-0") == 0);
    tiara_xport_shm.close(&x);
    return e.failures;
}

START_TEST(test_xport_shm_ways_hand_over)
{
    static const int sizes[] = {2, 3, 20};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        ck_assert_int_eq(tiara_procs_run(sizes[k], rank_shm_way, &_i), 0);
}
END_TEST

/* No rank may have files this large: by default a fatal signal. A large limit, as stderr may be a
 * file, too. */
static int rank_shm_limited(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct rlimit limit = {(rlim_t)1 << 30, RLIM_INFINITY};
    union object x = {0};

    (void)arg;
    EXPECT(&e, setrlimit(RLIMIT_FSIZE, &limit) == 0);
    EXPECT(&e, tiara_xport_shm.open(&x, group, (size_t)1 << 31) == TIARA_ERR_NOSPACE);
    EXPECT(&e, tiara_xport_shm.open(&x, group, SIZE_MAX - 4) == TIARA_ERR_NOSPACE);
    EXPECT(&e, tiara_xport_shm.open(&x, group, SIZE_MAX / 2) == TIARA_ERR_NOSPACE);
    return e.failures;
}

START_TEST(test_xport_shm_no_room_is_error)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_shm_limited, NULL), 0);
}
END_TEST

/*
 * Rank 0 wakes rank 1, which sleeps on a word that it has mapped read-only. FUTEX_WAKE says how
 * many it woke: 1 proves that both mean the same word.
 */
static int rank_shm_futex(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct timespec patience = {TIARA_TEST_PATIENCE_S, 0};
    double begin = tiara_test_now();
    union object x = {0};
    uint32_t *word;
    long woken = 0;

    (void)arg;
    if (!EXPECT(&e, tiara_xport_shm.open(&x, group, 100) == TIARA_OK))
        return e.failures;
    word = tiara_xport_base(&x, 0);
    if (rank == 1)
        EXPECT(&e, syscall(SYS_futex, word, FUTEX_WAIT, 0, &patience, NULL, 0) == 0);
    while (rank == 0 && woken == 0 && tiara_test_now() - begin < TIARA_TEST_PATIENCE_S) {
        woken = syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        sched_yield();
    }
    EXPECT(&e, rank != 0 || woken == 1);
    tiara_xport_shm.close(&x);
    return e.failures;
}

START_TEST(test_xport_shm_futex_meets_across_mappings)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_shm_futex, NULL), 0);
}
END_TEST

/* The kernel writes one byte to @at for us, and says whether it may. */
static bool is_writable(void *at)
{
    int pipe_fds[2];
    bool wrote;

    if (pipe(pipe_fds) != 0)
        return false;
    wrote = write(pipe_fds[1], "x", 1) == 1 && read(pipe_fds[0], at, 1) == 1;
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return wrote;
}

static int rank_shm_writes(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    union object x = {0};

    (void)arg;
    if (!EXPECT(&e, tiara_xport_shm.open(&x, group, 100) == TIARA_OK))
        return e.failures;
    for (int peer = 0; peer < group->size; peer++)
        EXPECT(&e, is_writable(tiara_xport_base(&x, peer)) == (peer == rank));
    tiara_xport_shm.close(&x);
    return e.failures;
}

START_TEST(test_xport_shm_peer_segment_is_read_only)
{
    ck_assert_int_eq(tiara_procs_run(3, rank_shm_writes, NULL), 0);
}
END_TEST

/* ---- cma ---- */

/* Rank 1 ends while rank 0 reads from it: at some time the answer is that it is gone. */
static int rank_cma_gone(int rank, const struct tiara_xport_group *group, void *arg)
{
    static int word;
    struct tiara_expect e = {.rank = rank};
    double begin = tiara_test_now();
    enum tiara_err err = TIARA_OK;
    union object x = {0};
    int copy;

    (void)arg;
    if (!EXPECT(&e, tiara_xport_cma.open(&x, group, 0) == TIARA_OK))
        return e.failures;
    while (rank == 0 && err == TIARA_OK && tiara_test_now() - begin < TIARA_TEST_PATIENCE_S) {
        err = tiara_xport_cma.get(&x, 1, (uint64_t)(uintptr_t)&word, &copy, sizeof copy);
        sched_yield();
    }
    EXPECT(&e, rank != 0 || err == TIARA_ERR_PEER);
    tiara_xport_cma.close(&x);
    return e.failures;
}

START_TEST(test_xport_cma_peer_gone_is_error)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_cma_gone, NULL), 0);
}
END_TEST

/* ---- inproc ---- */

/* Ranks leave sends and receives of both sizes unfinished and close. */
static int rank_inproc_abandons(int rank, const struct tiara_xport_group *group, void *arg)
{
    static unsigned char from[8000];
    const struct tiara_xport *row = &tiara_xport_inproc;
    int next = (rank + 1) % group->size;
    struct tiara_expect e = {.rank = rank};
    struct tiara_xport_req req[4];
    unsigned char to[8000];
    union object x = {0};

    (void)arg;
    if (!EXPECT(&e, row->open(&x, group, 100) == TIARA_OK))
        return e.failures;
    EXPECT(&e, row->send(&x, next, 1, from, 10, &req[0]) == TIARA_OK);
    EXPECT(&e, row->send(&x, next, 2, from, sizeof from, &req[1]) == TIARA_OK);
    EXPECT(&e, row->recv(&x, next, 3, to, sizeof to, &req[2]) == TIARA_OK);
    EXPECT(&e, row->recv(&x, next, 2, to, sizeof to, &req[3]) == TIARA_OK);
    EXPECT(&e, row->test(&x, &req[2]) == TIARA_OK);
    EXPECT(&e, !req[2].done);
    row->close(&x);
    return e.failures;
}

START_TEST(test_xport_inproc_close_takes_back_requests)
{
    uint64_t live = tiara_alloc_live();

    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(tiara_threads_run(2, rank_inproc_abandons, NULL), 0);
    ck_assert_uint_eq(tiara_alloc_live(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xport");
    TCase *all = tcase_create("suite"), *own = tcase_create("special");
    int n = tiara_xport_suite_count();

    tcase_add_loop_test(all, test_xport_inproc_conforms, 0, n);
    tcase_add_loop_test(all, test_xport_shm_conforms, 0, n);
    tcase_add_loop_test(all, test_xport_cma_conforms, 0, n);
    tcase_add_loop_test(all, test_xport_socket_conforms, 0, n);
    tcase_add_test(own, test_xport_shm_failure_on_one_rank_fails_all);
    tcase_add_loop_test(own, test_xport_shm_ways_hand_over, 0, TIARA_XPORT_SHM_NWAYS);
    tcase_add_test(own, test_xport_shm_no_room_is_error);
    tcase_add_test(own, test_xport_shm_futex_meets_across_mappings);
    tcase_add_test(own, test_xport_shm_peer_segment_is_read_only);
    tcase_add_test(own, test_xport_cma_peer_gone_is_error);
    tcase_add_test(own, test_xport_inproc_close_takes_back_requests);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, own);
    return tiara_test_run(suite, CK_NOFORK);
}
