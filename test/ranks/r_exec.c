/* tiara-test: timeout 300 */
/*
 * The executor and the small slots with threads as ranks: every algorithm, several layouts, chunks
 * in flight, in place and not. The same program runs under ThreadSanitizer, which sees every access
 * that the labelled edges do not order.
 */
#include "test/harness/scene.h"
#include "test/harness/test.h"

#define CELL_BYTES ((size_t)16384)

/* One case: what all ranks run. */
struct test_case {
    const struct tiara_algo *algo; /* NULL: small slots */
    struct tiara_algo_opts opts;
    struct tiara_act act;
};

static int play(struct tiara_actor *actor, void *arg)
{
    const struct test_case *t = arg;
    struct tiara_act act = t->act;
    struct tiara_plan plan = {0};
    enum tiara_err err = TIARA_OK;

    if (t->algo) {
        err = tiara_scene_plan(actor->layout, actor->rank, t->algo, &t->opts, &plan);
        act.plan = &plan;
    }
    for (int round = 0; round < 4 && err == TIARA_OK; round++)
        err = tiara_actor_perform(actor, &act, round);
    tiara_plan_fini(&plan);
    return err != TIARA_OK;
}

static void run_case(const char *layout, struct test_case *t)
{
    int failures = tiara_scene_run(layout, CELL_BYTES, play, t);

    ck_assert_msg(failures == 0, "%s on %s: %d failures", t->algo ? t->algo->name : "small slots",
        layout, failures);
}

/* Vectors below, at and above a block, a chunk and all chunks in flight. */
static const size_t counts[] = {1, 7, 64, 1000, 4096, 20011};
#define NCOUNTS (sizeof(counts) / sizeof(counts[0]))

static void run_counts(const char *layout, int nranks, struct test_case *t)
{
    bool is_allreduce = t->opts.coll == TIARA_COLL_ALLREDUCE;
    size_t per_cell = CELL_BYTES / sizeof(int64_t) / (is_allreduce ? 1 : (size_t)nranks);

    for (size_t i = 0; i < NCOUNTS; i++) {
        t->act.count = is_allreduce ? counts[i] : counts[i] / 4 + 1;
        t->act.chunk_elems = i % 2 ? per_cell : per_cell / 3;
        t->act.slots = i % 3 == 0 ? 1 : (i % 3 == 1 ? 3 : TIARA_SLOTS);
        run_case(layout, t);
    }
}

static void run_algo(
    const struct tiara_algo *algo, const char *layout, enum tiara_coll coll, bool in_place)
{
    struct test_case t = {.algo = algo, .opts = {.coll = coll}};
    struct tiara_layout l;

    t.act = (struct tiara_act){.coll = coll, .in_place = in_place, .digest = 12345};
    ck_assert_int_eq(tiara_layout_parse(&l, layout, 0, NULL, 0), TIARA_OK);
    if ((algo->colls & (1u << coll)) && !(algo->flags & TIARA_ALGO_NODE && l.nnodes > 1) &&
        !(in_place && coll == TIARA_COLL_REDUCE_SCATTER))
        run_counts(layout, l.nranks, &t);
    tiara_layout_fini(&l);
}

static const char *const layouts[] = {"1x1", "1x2", "1x3", "2x2", "3+1", "2x2:rr", "1+2+3"};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

START_TEST(test_exec_every_algorithm_and_layout_computes)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];

    for (size_t l = 0; l < NLAYOUTS; l++)
        for (int coll = TIARA_COLL_ALLREDUCE; coll <= TIARA_COLL_ALLGATHER; coll++)
            for (int in_place = 0; in_place < 2; in_place++)
                run_algo(algo, layouts[l], (enum tiara_coll)coll, in_place);
}
END_TEST

/* Some ranks have their buffers, or one of them, where the CPU cannot reach them; the others do
 * not. */
START_TEST(test_exec_staged_buffers_compute)
{
    static const char *const some[] = {"1x3", "2x2", "1+2+3"};
    const struct tiara_algo *const algos[] = {
        &tiara_algo_direct, &tiara_algo_hier, &tiara_algo_rabenseifner};
    const struct tiara_algo *algo = algos[_i / 3];
    enum tiara_coll coll = (enum tiara_coll)(_i % 3);

    for (size_t l = 0; l < sizeof(some) / sizeof(some[0]); l++) {
        for (int where = 1; where <= 4; where++) {
            struct test_case t = {.algo = algo, .opts = {.coll = coll}};
            struct tiara_layout layout;

            ck_assert_int_eq(tiara_layout_parse(&layout, some[l], 0, NULL, 0), TIARA_OK);
            t.act = (struct tiara_act){.coll = coll,
                .in_place = where == 4,
                .device_in = where != 2,
                .device_out = where != 1,
                .digest = 99};
            if ((algo->colls & (1u << coll)) &&
                !(algo->flags & TIARA_ALGO_NODE && layout.nnodes > 1) &&
                !(where == 4 && coll == TIARA_COLL_REDUCE_SCATTER))
                run_counts(some[l], layout.nranks, &t);
            tiara_layout_fini(&layout);
        }
    }
}
END_TEST

START_TEST(test_small_slots_any_number_of_ranks_computes)
{
    static const size_t sizes[] = {1, 5, 6, 7, 100, TIARA_ARENA_SMALL_MAX / sizeof(int64_t)};
    char layout[16];

    for (int ranks = 1; ranks <= 6; ranks++) {
        struct test_case t = {.act = {.in_place = ranks % 2, .digest = 777}};

        snprintf(layout, sizeof(layout), "1x%d", ranks);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            t.act.count = sizes[i];
            run_case(layout, &t);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("exec");
    int nalgos = 0;

    while (tiara_algo_table[nalgos])
        nalgos++;
    tcase_add_loop_test(tcase, test_exec_every_algorithm_and_layout_computes, 0, nalgos);
    tcase_add_loop_test(tcase, test_exec_staged_buffers_compute, 0, 9);
    tcase_add_test(tcase, test_small_slots_any_number_of_ranks_computes);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
