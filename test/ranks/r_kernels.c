/* tiara-test: timeout 300 */
/*
 * The kernels' protocols, in their CPU build: a thread for each thread of each thread block of each
 * rank.
 *
 * Ranks run through a list of calls without meeting between them, so that the same words and cells
 * serve calls of different sizes and grids in a row. Under ThreadSanitizer every access to a cell,
 * a packet or a peer's buffer that the protocol does not order is seen.
 */
#include "algo/algo.h"
#include "test/harness/expect.h"
#include "test/harness/test.h"
#include "test/harness/threads.h"
#include "test/ranks/kernel_node.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static uint64_t seed; /* of all tests; printed by main */

/* Plays all calls of the node, as one rank. */
static int play(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct node *n = arg;
    struct tiara_expect e = {.rank = rank};

    (void)group;
    for (int i = 0; i < n->ncalls && e.failures == 0; i++) {
        const struct call *c = &n->call[i];
        kernel_node_fill(n, c, i, rank);
        if (c->kind.algo) {
            kernel_node_run(&e, n, c);
        } else {
            struct tiara_kernel_small_args a = kernel_node_small_args(n, c, rank);
            kernel_node_launch(tiara_kernel_small_on_cpu, &a, 1, c->nthreads);
        }
        for (unsigned b = 0; b < c->grid; b++)
            EXPECT(&e, n->status[rank][b].code == TIARA_KERNEL_OK);
        if (!EXPECT(&e, kernel_node_look(n, c, i, rank) == 0))
            fprintf(stderr,
                "call %d: %s coll %d, %d%d, type %d, %zu in %zu, slots %d+%d, grid %u x %u, in "
                "place "
                "%d, average %d, split %d\n",
                i, c->kind.algo ? c->kind.algo->name : "packets", c->kind.coll, c->kind.one_shot,
                c->kind.single_copy, c->type, c->count, c->chunk_elems, c->slot, c->nslots, c->grid,
                c->nthreads, c->in_place, c->average, c->split);
    }
    if (e.failures > 0) /* the peers would wait */
        __atomic_store_n(&n->abort, 1, __ATOMIC_RELAXED);
    return e.failures;
}

static void play_all(struct node *n)
{
    ck_assert_int_eq(tiara_threads_run(n->nranks, play, n), 0);
}

/* ---- calls at random ---- */

static struct call random_call(
    struct tiara_test_random *random, int nranks, const struct kind *kind)
{
    static const int types[] = {TIARA_TYPE_I16, TIARA_TYPE_I32, TIARA_TYPE_I64, TIARA_TYPE_F64};
    struct call c = {.kind = *kind};
    bool is_vector = kind->coll == TIARA_COLL_ALLREDUCE;
    size_t most;

    c.type = types[tiara_test_random_below(random, kind->is_ordered ? 4 : 3)];
    /* Blocks are padded: so many elements fit a cell for sure. */
    most = CELL_BYTES / kernel_node_size_of(c.type);
    most = is_vector ? most - (size_t)nranks * 16 : most / (size_t)nranks;
    c.count =
        1 + tiara_test_random_below(random, tiara_test_random_below(random, 2) ? 12 : MAX_COUNT);
    c.nslots = 1 + (int)tiara_test_random_below(random, TIARA_KERNEL_SLOTS);
    c.slot = (int)tiara_test_random_below(random, (uint64_t)c.nslots);
    c.chunk_elems = 1 + c.count / (1 + tiara_test_random_below(random, 8));
    c.split = tiara_test_random_below(random, 3) == 0;
    if (c.chunk_elems > most)
        c.chunk_elems = most;
    c.grid = 1 + (unsigned)tiara_test_random_below(random, 3);
    c.nthreads = 1 + (unsigned)tiara_test_random_below(random, 3);
    c.in_place = kind->coll != TIARA_COLL_REDUCE_SCATTER && tiara_test_random_below(random, 2);
    c.average = kind->coll != TIARA_COLL_ALLGATHER && tiara_test_random_below(random, 3) == 0;
    c.align = tiara_test_random_below(random, 2) ? 1 : 16 / kernel_node_size_of(c.type);
    return c;
}

START_TEST(test_exec_any_plan_computes_call_after_call)
{
    struct tiara_test_random random = {seed + (uint64_t)_i};
    struct node n;

    kernel_node_init(&n, _i);
    for (n.ncalls = 0; n.ncalls < MAX_CALLS; n.ncalls++)
        n.call[n.ncalls] = random_call(
            &random, _i, &kernel_node_kinds[(size_t)n.ncalls % LENGTH(kernel_node_kinds)]);
    play_all(&n);
    kernel_node_fini(&n);
}
END_TEST

/* Fewer elements than stripes, blocks and threads. */
START_TEST(test_exec_few_elements_computes)
{
    struct node n;

    kernel_node_init(&n, 4);
    for (size_t count = 1; count <= 9; count += 2) {
        n.ncalls = 0;
        for (size_t k = 0; k < LENGTH(kernel_node_kinds); k++)
            n.call[n.ncalls++] = (struct call){.kind = kernel_node_kinds[k],
                .type = TIARA_TYPE_I32,
                .count = count,
                .chunk_elems = 1 + count / 2,
                .nslots = 2,
                .grid = 3,
                .nthreads = 2,
                .align = 1};
        play_all(&n);
    }
    kernel_node_fini(&n);
}
END_TEST

START_TEST(test_exec_ring_needs_only_neighbours)
{
    struct tiara_test_random random = {seed + 50};
    struct node n;

    kernel_node_init(&n, 5);
    n.is_ring = true;
    while (n.ncalls < 30) {
        const struct kind *kind =
            &kernel_node_kinds[LENGTH(kernel_node_kinds) - 3 + (size_t)n.ncalls % 3];
        ck_assert_ptr_eq(kind->algo, &tiara_algo_node_ring);
        n.call[n.ncalls++] = random_call(&random, 5, kind);
    }
    play_all(&n);
    kernel_node_fini(&n);
}
END_TEST

/* Numbers that pass 32 bits between two calls. */
START_TEST(test_exec_numbers_grow_beyond_32_bits)
{
    struct tiara_test_random random = {seed + 60};
    struct node n;

    kernel_node_init(&n, 3);
    for (int r = 0; r < n.nranks; r++) {
        n.memory[r].calls = UINT64_C(0xfffffffd);
        for (int s = 0; s < TIARA_KERNEL_SLOTS; s++)
            for (int b = 0; b < TIARA_KERNEL_BLOCKS; b++) {
                n.memory[r].base[s][b] = UINT64_C(0xfffffffe);
                for (int q = 0; q < n.nranks; q++) {
                    uint64_t word = UINT64_C(0xfffffffe);
                    memcpy(n.segment[q] + tiara_kernel_progress_at(s, b, r), &word, sizeof(word));
                }
            }
    }
    while (n.ncalls < 12)
        n.call[n.ncalls++] = random_call(&random, 3, &kernel_node_kinds[0]);
    play_all(&n);
    ck_assert(n.memory[0].calls == UINT64_C(0xfffffffd) + 12);
    kernel_node_fini(&n);
}
END_TEST

/* Ops on several blocks, scratch memory, and the place of a message, in a program written by hand:
 * OUT = IN + IN, of one rank. */
START_TEST(test_exec_ops_on_several_blocks)
{
    enum {
        BLOCKS = 4
    };
    struct tiara_kernel_slice srcs[] = {{0, TIARA_KERNEL_IN, 0, BLOCKS},
        {0, TIARA_KERNEL_TMP, 0, BLOCKS}, {0, TIARA_KERNEL_IN, 0, BLOCKS}};
    struct tiara_kernel_op ops[] = {
        {.kind = TIARA_KERNEL_COPY, .dst = {0, TIARA_KERNEL_TMP, 0, BLOCKS}, .src = 0, .nsrc = 1},
        {.kind = TIARA_KERNEL_PAUSE},
        {.kind = TIARA_KERNEL_REDUCE, .dst = {0, TIARA_KERNEL_OUT, 0, BLOCKS}, .src = 1, .nsrc = 2},
    };
    struct tiara_plan plan = {.nops = 3, .nsteps = 1, .nblocks = BLOCKS};
    struct call c = {.type = TIARA_TYPE_I32,
        .count = 403,
        .chunk_elems = 100,
        .nslots = 2,
        .align = 1,
        .grid = 2,
        .nthreads = 3};
    struct tiara_kernel_exec_args a;
    struct node n;

    kernel_node_init(&n, 1);
    kernel_node_fill(&n, &c, 0, 0);
    a = kernel_node_exec_args(&n, &c, 0, &plan);
    a.program.ops = ops;
    a.program.srcs = srcs;
    kernel_node_launch(tiara_kernel_exec_on_cpu, &a, c.grid, c.nthreads);
    for (size_t i = 0; i < c.count; i++) {
        int32_t result;
        memcpy(&result, kernel_node_user(&n, &c, 0, true) + i * sizeof(result), sizeof(result));
        ck_assert_int_eq(result, 2 * tiara_test_value(0, i));
    }
    ck_assert_uint_eq(n.memory[0].base[0][1], 3);
    ck_assert_uint_eq(n.memory[0].base[1][0], 2);
    kernel_node_fini(&n);
}
END_TEST

/* ---- packets ---- */

static struct call small_call(struct tiara_test_random *random, size_t count)
{
    struct call c = random_call(random, 2, &kernel_node_kinds[0]);

    c.kind.algo = NULL;
    c.grid = 1;
    c.nthreads = 1 + (unsigned)tiara_test_random_below(random, 6);
    if (count > 0)
        c.count = count;
    if (c.count > TIARA_KERNEL_SMALL_MAX / kernel_node_size_of(c.type))
        c.count = TIARA_KERNEL_SMALL_MAX / kernel_node_size_of(c.type);
    return c;
}

START_TEST(test_packets_any_size_computes_call_after_call)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, TIARA_KERNEL_SMALL_MAX};
    struct tiara_test_random random = {seed + 70 + (uint64_t)_i};
    struct node n;

    kernel_node_init(&n, _i);
    for (int r = 0; r < n.nranks; r++)
        n.memory[r].packets =
            UINT64_C(0xfffffffe); /* the first flag would be 0, like fresh memory */
    for (n.ncalls = 0; n.ncalls < 48; n.ncalls++) {
        size_t i = (size_t)n.ncalls;
        n.call[i] = small_call(&random, i < LENGTH(counts) ? counts[i] : 0);
    }
    play_all(&n);
    kernel_node_fini(&n);
}
END_TEST

/* Plans and packets in turn do not disturb each other. */
START_TEST(test_packets_and_plans_share_a_segment)
{
    struct tiara_test_random random = {seed + 80};
    struct node n;

    kernel_node_init(&n, 3);
    for (n.ncalls = 0; n.ncalls < 30; n.ncalls++)
        n.call[n.ncalls] =
            n.ncalls % 2 ? small_call(&random, 0)
                         : random_call(&random, 3,
                               &kernel_node_kinds[(size_t)n.ncalls % LENGTH(kernel_node_kinds)]);
    play_all(&n);
    kernel_node_fini(&n);
}
END_TEST

/* ---- what goes wrong ---- */

static struct call plain_call(const struct kind *kind)
{
    return (struct call){.kind = *kind,
        .type = TIARA_TYPE_I32,
        .count = 100,
        .chunk_elems = 100,
        .nslots = 1,
        .grid = 1,
        .nthreads = 2,
        .align = 4};
}

/* Rank 1 calls with more elements than the others. */
static int play_differently(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct node *n = arg;
    struct tiara_expect e = {.rank = rank};
    struct call c = n->call[0];

    (void)group;
    c.count += rank == 1;
    c.chunk_elems += rank == 1;
    if (c.kind.algo) {
        kernel_node_run(&e, n, &c);
    } else {
        struct tiara_kernel_small_args a = kernel_node_small_args(n, &c, rank);
        a.digest = rank == 1 ? 101 * 31 + TIARA_TYPE_I32 : 100 * 31 + TIARA_TYPE_I32;
        kernel_node_launch(tiara_kernel_small_on_cpu, &a, 1, c.nthreads);
    }
    EXPECT(&e, n->status[rank][0].code == TIARA_KERNEL_MISMATCH);
    EXPECT(&e, n->status[rank][0].op == -1);
    EXPECT(&e, rank == 1 ? n->status[rank][0].peer != 1 : n->status[rank][0].peer == 1);
    EXPECT(&e, n->status[rank][0].seen == (rank == 1 ? 100u : 101u) * 31 + TIARA_TYPE_I32);
    return e.failures;
}

START_TEST(test_calls_that_differ_are_told)
{
    struct node n;

    kernel_node_init(&n, 3);
    n.call[0] = plain_call(&kernel_node_kinds[0]);
    if (_i == 1)
        n.call[0].kind.algo = NULL;
    ck_assert_int_eq(tiara_threads_run(3, play_differently, &n), 0);
    kernel_node_fini(&n);
}
END_TEST

/* Of equal digests, but other sizes: the head of the packets says so. */
START_TEST(test_packets_of_other_size_are_told)
{
    struct node n;
    struct tiara_kernel_small_args a;
    struct call c = plain_call(&kernel_node_kinds[0]);

    kernel_node_init(&n, 2);
    a = kernel_node_small_args(&n, &c, 1);
    /* Rank 1 has pushed one element and left. */
    a.count = 1;
    n.abort = 1;
    kernel_node_launch(tiara_kernel_small_on_cpu, &a, 1, 1);
    ck_assert_uint_eq(n.status[1][0].code, TIARA_KERNEL_ABORTED);
    n.abort = 0;
    a = kernel_node_small_args(&n, &c, 0);
    kernel_node_launch(tiara_kernel_small_on_cpu, &a, 1, 4);
    ck_assert_uint_eq(n.status[0][0].code, TIARA_KERNEL_MISMATCH);
    ck_assert_int_eq(n.status[0][0].peer, 1);
    ck_assert_uint_eq(n.status[0][0].seen, a.digest);
    kernel_node_fini(&n);
}
END_TEST

/* OUT of @rank is as it was. */
static bool is_untouched(const struct node *n, int rank)
{
    for (size_t i = 0; i < USER_BYTES; i++)
        if (n->user[rank][1][i] != (char)0xa5)
            return false;
    return true;
}

/* Rank 0 alone, of two; returns what its thread block says. */
static struct tiara_kernel_status run_alone(struct node *n, bool first)
{
    struct call c = n->call[0];

    kernel_node_fill(n, &c, 0, 0);
    if (c.kind.algo) {
        struct tiara_plan plan = {0};
        struct program p;
        struct tiara_kernel_exec_args a;

        ck_assert_int_eq(kernel_node_plan(n, &c, 0, &plan), TIARA_OK);
        kernel_node_program_init(&p, &plan);
        a = kernel_node_exec_args(n, &c, 0, &plan);
        a.program.ops = p.ops;
        a.program.srcs = p.srcs;
        a.program.waits = p.waits;
        if (!first)
            a.flags = TIARA_KERNEL_LAST;
        kernel_node_launch(tiara_kernel_exec_on_cpu, &a, c.grid, c.nthreads);
        kernel_node_program_fini(&p);
        tiara_plan_fini(&plan);
    } else {
        struct tiara_kernel_small_args a = kernel_node_small_args(n, &c, 0);
        kernel_node_launch(tiara_kernel_small_on_cpu, &a, 1, c.nthreads);
    }
    ck_assert(is_untouched(n, 0));
    ck_assert_uint_eq(n->memory[0].calls, 0);
    ck_assert_uint_eq(n->memory[0].packets, 0);
    ck_assert_uint_eq(n->memory[0].base[0][0], 0);
    return n->status[0][0];
}

START_TEST(test_a_peer_that_does_not_come_is_told)
{
    struct tiara_kernel_status s;
    struct node n;

    kernel_node_init(&n, 2);
    n.spin_ns = 1000;
    n.call[0] = plain_call(&kernel_node_kinds[0]);
    n.call[0].grid = 3;
    s = run_alone(&n, true);
    ck_assert_uint_eq(s.code, TIARA_KERNEL_TIMEOUT);
    ck_assert_int_eq(s.peer, 1);
    ck_assert_int_eq(s.op, -1);
    /* Direct, rank 0: one copy into the cell, then the fold that reads what rank 1 exposes in step
     * 1. */
    ck_assert_uint_eq(n.status[0][2].code, TIARA_KERNEL_TIMEOUT);
    ck_assert_int_eq(n.status[0][2].peer, 1);
    ck_assert_int_eq(n.status[0][2].op, 1);
    ck_assert_int_eq(n.status[0][2].step, 1);
    memset(n.status, 0, sizeof(n.status));
    s = run_alone(&n, false);
    ck_assert_uint_eq(s.code, TIARA_KERNEL_TIMEOUT);
    ck_assert_int_eq(s.op, 1);
    memset(n.status, 0, sizeof(n.status));
    n.call[0].kind.algo = NULL;
    s = run_alone(&n, true);
    ck_assert_uint_eq(s.code, TIARA_KERNEL_TIMEOUT);
    ck_assert_int_eq(s.peer, 1);
    kernel_node_fini(&n);
}
END_TEST

static void *run_alone_main(void *arg)
{
    struct node *n = arg;
    struct tiara_kernel_status s = run_alone(n, true);

    return s.code == TIARA_KERNEL_ABORTED && s.peer == 1 ? NULL : n;
}

START_TEST(test_the_abort_word_ends_waits)
{
    struct node n;
    pthread_t id;
    void *failed;

    kernel_node_init(&n, 2);
    n.spin_ns = 0;
    n.call[0] = plain_call(&kernel_node_kinds[0]);
    if (_i == 1)
        n.call[0].kind.algo = NULL;
    ck_assert_int_eq(pthread_create(&id, NULL, run_alone_main, &n), 0);
    __atomic_store_n(&n.abort, 1, __ATOMIC_RELAXED);
    ck_assert_int_eq(pthread_join(id, &failed), 0);
    ck_assert_ptr_null(failed);
    kernel_node_fini(&n);
}
END_TEST

/* ---- the probe ---- */

struct probe {
    struct tiara_kernel_probe_args args;
};

static void *probe_main(void *arg)
{
    struct probe *p = arg;

    kernel_node_launch(tiara_kernel_probe_on_cpu, &p->args, 1, 1);
    return NULL;
}

START_TEST(test_probe_answers_and_gives_up)
{
    uint32_t abort_word = 0;
    struct tiara_kernel_status status[2] = {0};
    uint64_t there = 0, back = 0;
    struct probe a = {{.word = &there, .value = 7, .guard = {&abort_word, &status[0], 0}}};
    struct probe b = {{.word = &back,
        .value = 9,
        .expect_at = &there,
        .expect = 7,
        .guard = {&abort_word, &status[1], 0}}};
    pthread_t id;

    ck_assert_int_eq(pthread_create(&id, NULL, probe_main, &b), 0);
    probe_main(&a);
    ck_assert_int_eq(pthread_join(id, NULL), 0);
    ck_assert_uint_eq(there, 7);
    ck_assert_uint_eq(back, 9);
    ck_assert_uint_eq(status[0].code | status[1].code, TIARA_KERNEL_OK);
    b.args.expect = 8;
    b.args.value = 10;
    b.args.guard.spin_ns = 1000;
    probe_main(&b);
    ck_assert_uint_eq(status[1].code, TIARA_KERNEL_TIMEOUT);
    ck_assert_uint_eq(back, 9);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("kernels");

    seed = tiara_test_seed();
    tcase_add_loop_test(tcase, test_exec_any_plan_computes_call_after_call, 1, MAX_RANKS + 1);
    tcase_add_test(tcase, test_exec_few_elements_computes);
    tcase_add_test(tcase, test_exec_ops_on_several_blocks);
    tcase_add_test(tcase, test_exec_ring_needs_only_neighbours);
    tcase_add_test(tcase, test_exec_numbers_grow_beyond_32_bits);
    tcase_add_loop_test(tcase, test_packets_any_size_computes_call_after_call, 1, MAX_RANKS + 1);
    tcase_add_test(tcase, test_packets_and_plans_share_a_segment);
    tcase_add_loop_test(tcase, test_calls_that_differ_are_told, 0, 2);
    tcase_add_test(tcase, test_packets_of_other_size_are_told);
    tcase_add_test(tcase, test_a_peer_that_does_not_come_is_told);
    tcase_add_loop_test(tcase, test_the_abort_word_ends_waits, 0, 2);
    tcase_add_test(tcase, test_probe_answers_and_gives_up);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
