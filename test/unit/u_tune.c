/*
 * The choice of the algorithm: what holds for every choice, over many random facts and calls.
 *
 * Which algorithm is fastest is for benchmarks to say. Here: the choice can be carried out, keeps
 * what was promised (order, reproducibility, room in the cells), does what the user forced or says
 * why not, and always explains itself.
 */
#include "tune/tune.h"
#include "base/alloc.h"
#include "exec/exec.h"
#include "test/harness/test.h"
#include "test/plan/proof.h"
#include <stdio.h>
#include <string.h>

#define NCASES 6000
#define MAX_PROVED 1024

static const char *const texts[] = {"1x1", "1x2", "1x3", "1x8", "2x1", "5x1", "2x2", "2x2:rr",
    "3+1", "1+2+3", "3x3", "2x3:rr", "0,1,1,0", "4x4"};
#define NLAYOUTS (sizeof(texts) / sizeof(texts[0]))

struct test_case {
    const char *text; /* of the layout */
    struct tiara_layout layout;
    struct tiara_tune_facts facts;
    struct tiara_tune_call call;
    struct tiara_tune_choice choice;
    size_t blocks; /* of the caller's vector */
    char name[400];
};

static uint64_t below(struct tiara_test_random *random, uint64_t n)
{
    return tiara_test_random_below(random, n);
}

/* 0 .. 2^@bits - 1, any order of magnitude as likely as any other. */
static size_t any_size(struct tiara_test_random *random, uint64_t bits)
{
    return (size_t)below(random, UINT64_C(1) << below(random, bits + 1));
}

static const struct tiara_algo *any_algo(struct tiara_test_random *random, unsigned flags)
{
    int n = 0, pick;

    while (tiara_algo_table[n])
        n++;
    do
        pick = (int)below(random, (uint64_t)n);
    while ((tiara_algo_table[pick]->flags & flags) != flags);
    return tiara_algo_table[pick];
}

static void random_facts(struct tiara_test_random *random, struct tiara_tune_facts *f)
{
    bool is_forced = below(random, 2);

    f->algo = is_forced && below(random, 2) ? any_algo(random, 0) : NULL;
    f->inter = is_forced && below(random, 2) ? any_algo(random, TIARA_ALGO_FLAT) : NULL;
    f->mpi_only = below(random, 16) == 0 ? "the test says so" : NULL;
    f->reproducible = below(random, 4) == 0;
    f->has_arena = below(random, 8) != 0;
    f->has_get = below(random, 2);
    f->crowded = below(random, 2);
    f->leaders = is_forced ? (int)below(random, 6) : 0;
    f->slots = is_forced ? (int)below(random, TIARA_SLOTS + 1) : 0;
    f->chunk_bytes = is_forced ? any_size(random, 22) : 0;
    f->one_shot_max = is_forced ? any_size(random, 18) : 0;
    f->small_max = 32768;
    f->cell_bytes = f->has_arena && below(random, 8) != 0 ? 4096 * (1 + below(random, 64)) : 0;
}

/* Rings of 1 .. 8 ranks that are not in ascending order. */
static const int rings[9][8] = {{0}, {0}, {0, 1}, {0, 2, 1}, {0, 2, 1, 3}, {0, 2, 4, 1, 3},
    {0, 2, 4, 1, 3, 5}, {0, 2, 4, 6, 1, 3, 5}, {0, 2, 4, 6, 1, 3, 5, 7}};

static void random_device(struct tiara_test_random *random, struct tiara_tune_facts *f)
{
    f->device = (struct tiara_tune_device){.ring = below(random, 2),
        .order = rings[f->layout->max_local],
        .share = below(random, 2),
        .packets_max = 16384,
        .cell_bytes = 4096 * (1 + below(random, 512)),
        .slots = 4};
}

static void random_call(struct tiara_test_random *random, struct tiara_tune_call *c)
{
    static const size_t odd_sizes[] = {1, 2, 3, 4, 8, 12, 16, 32, 100, 5000, 300000};

    c->coll = (enum tiara_coll)below(random, 3);
    c->count = 1 + any_size(random, 24);
    c->elem_size = below(random, 2) ? 8 : odd_sizes[below(random, 11)];
    c->commutative = c->coll == TIARA_COLL_ALLGATHER || below(random, 4) != 0;
    c->device = below(random, 3) == 0;
}

static const char *name_of(const struct tiara_algo *algo)
{
    return algo ? algo->name : "-";
}

static void test_case_init(struct test_case *t, struct tiara_test_random *random)
{
    const struct tiara_tune_facts *f = &t->facts;
    const struct tiara_tune_call *c = &t->call;

    memset(t, 0, sizeof(*t));
    t->text = texts[below(random, NLAYOUTS)];
    ck_assert_int_eq(tiara_layout_parse(&t->layout, t->text, 0, NULL, 0), TIARA_OK);
    random_facts(random, &t->facts);
    random_call(random, &t->call);
    t->facts.layout = &t->layout;
    random_device(random, &t->facts);
    t->blocks = c->coll == TIARA_COLL_ALLREDUCE ? 1 : (size_t)t->layout.nranks;
    tiara_tune_choose(&t->facts, &t->call, &t->choice);
    snprintf(t->name, sizeof(t->name),
        "%s: algo %s inter %s%s%s%s leaders %d slots %d chunk %zu one-shot %zu cell %zu%s%s; %s of "
        "%zu x %zu%s -> path %d, %s between %s, chunks of %zu, %d slots: %s",
        t->text, name_of(f->algo), name_of(f->inter), f->mpi_only ? " mpi-only" : "",
        f->reproducible ? " reproducible" : "", f->has_arena ? " arena" : "", f->leaders, f->slots,
        f->chunk_bytes, f->one_shot_max, c->device ? f->device.cell_bytes : f->cell_bytes,
        c->device ? " GPUs" : "", c->device && f->device.ring ? " in a ring" : "",
        tiara_coll_name(c->coll), c->count, c->elem_size, c->commutative ? "" : " not commutative",
        t->choice.path, name_of(t->choice.algo), name_of(t->choice.opts.inter),
        t->choice.chunk_elems, t->choice.slots, t->choice.why ? t->choice.why : "NULL");
}

static void test_case_fini(struct test_case *t)
{
    tiara_layout_fini(&t->layout);
}

#define holds(t, condition)                                                                        \
    ck_assert_msg((condition), "%s does not hold for %s", #condition, (t)->name)

/* Runs @check on many random cases. */
static void for_many(void (*check)(struct test_case *t))
{
    struct tiara_test_random random = {tiara_test_seed()};

    for (int i = 0; i < NCASES; i++) {
        struct test_case t;

        test_case_init(&t, &random);
        check(&t);
        test_case_fini(&t);
    }
}

/* ---- a choice can be carried out ---- */

static bool is_ordered(const struct tiara_algo *algo, const struct tiara_layout *layout)
{
    return algo->flags & TIARA_ALGO_ORDERED ||
           (algo->flags & TIARA_ALGO_ORDERED_BLOCK && tiara_layout_is_block(layout));
}

/* Where GPUs reach their neighbours only, plans read nobody else. */
static void check_ring(struct test_case *t)
{
    const struct tiara_tune_choice *ch = &t->choice;
    bool around = ch->algo->flags & TIARA_ALGO_NEIGHBOURS || ch->opts.node_ring;

    if (!t->call.device || !t->facts.device.ring || t->layout.max_local == 1)
        return;
    holds(t, around || ch->algo->flags & TIARA_ALGO_FLAT);
    holds(t, !around || ch->opts.order == t->facts.device.order);
}

static void check_plan(struct test_case *t)
{
    const struct tiara_tune_choice *ch = &t->choice;
    const struct tiara_tune_facts *f = &t->facts;

    holds(t, ch->algo != NULL);
    holds(t, ch->algo->colls & (1u << t->call.coll));
    holds(t, ch->opts.coll == t->call.coll);
    holds(t, !(ch->algo->flags & TIARA_ALGO_NODE) || t->layout.nnodes == 1);
    holds(t, t->call.commutative || is_ordered(ch->algo, &t->layout));
    holds(t, ch->chunk_elems >= 1 || (t->call.device && ch->opts.single_copy));
    holds(t, ch->slots >= 1 && ch->slots <= (t->call.device ? f->device.slots : TIARA_SLOTS));
    holds(t, ch->opts.leaders >= 0 && ch->opts.leaders <= t->layout.min_local);
    holds(t, !ch->opts.single_copy || (t->call.device ? f->device.share : f->has_get));
    check_ring(t);
    holds(t, !ch->opts.inter || ch->opts.inter->flags & TIARA_ALGO_FLAT);
    holds(t, !ch->opts.inter || t->call.commutative || ch->opts.inter->flags & TIARA_ALGO_ORDERED);
    if (!(ch->algo->flags & TIARA_ALGO_FLAT)) {
        holds(t, f->has_arena);
        holds(t, ch->chunk_elems * t->call.elem_size * t->blocks <=
                     (t->call.device ? f->device.cell_bytes : f->cell_bytes));
    }
}

static void check_small(struct test_case *t)
{
    const struct tiara_tune_choice *ch = &t->choice;
    const struct tiara_tune_facts *f = &t->facts;

    holds(t, t->call.coll == TIARA_COLL_ALLREDUCE);
    holds(t, f->has_arena);
    holds(t, t->call.count * t->call.elem_size <=
                 (t->call.device ? f->device.packets_max : f->small_max));
    holds(t, !t->call.device || (t->layout.nnodes == 1 && !f->device.ring));
    if (t->layout.nnodes == 1)
        return;
    holds(t, ch->opts.leaders >= 0 && ch->opts.leaders <= t->layout.min_local);
    /* The sum of sums of nodes: neither the left fold over all ranks nor, unless nodes are blocks,
     * in rank order. */
    holds(t, !f->reproducible);
    holds(t, t->call.commutative || tiara_layout_is_block(&t->layout));
    holds(t, ch->opts.inter && ch->opts.inter->flags & TIARA_ALGO_FLAT);
    holds(t, ch->opts.inter->colls & (1u << TIARA_COLL_ALLREDUCE));
    holds(t, t->call.commutative || ch->opts.inter->flags & TIARA_ALGO_ORDERED);
}

static void check_valid(struct test_case *t)
{
    if (t->choice.path == TIARA_PATH_PLAN)
        check_plan(t);
    if (t->choice.path == TIARA_PATH_ONESHOT)
        check_small(t);
    if (t->facts.mpi_only) {
        holds(t, t->choice.path == TIARA_PATH_MPI);
        holds(t, t->choice.why == t->facts.mpi_only);
    }
    /* With shared memory, or a fixed order to keep, an all-reduce is Tiara's own. */
    if (!t->facts.mpi_only && !t->call.device && t->call.coll == TIARA_COLL_ALLREDUCE &&
        (t->facts.cell_bytes > 0 || t->facts.reproducible))
        holds(t, t->choice.path != TIARA_PATH_MPI);
}

START_TEST(test_choice_can_be_carried_out)
{
    for_many(check_valid);
}
END_TEST

static void check_pure(struct test_case *t)
{
    struct tiara_tune_choice again;

    memset(&again, 0xff, sizeof(again));
    tiara_tune_choose(&t->facts, &t->call, &again);
    holds(t, again.path == t->choice.path && again.algo == t->choice.algo);
    holds(t, again.chunk_elems == t->choice.chunk_elems && again.slots == t->choice.slots);
    holds(t, again.opts.inter == t->choice.opts.inter);
    holds(t, again.opts.leaders == t->choice.opts.leaders);
    holds(t, again.opts.one_shot == t->choice.opts.one_shot);
    holds(t, again.opts.single_copy == t->choice.opts.single_copy && again.why == t->choice.why);
}

START_TEST(test_choice_depends_on_its_arguments_only)
{
    for_many(check_pure);
}
END_TEST

/* Calls up to small_max bytes skip the choice on one node: it must be the same. */
static void check_small_max(struct test_case *t)
{
    size_t max = tiara_tune_small_max(&t->facts);

    holds(t, max <= t->facts.small_max);
    if (t->layout.nnodes == 1 && t->call.coll == TIARA_COLL_ALLREDUCE && !t->call.device)
        holds(t,
            (t->call.count * t->call.elem_size <= max) == (t->choice.path == TIARA_PATH_ONESHOT));
}

START_TEST(test_small_max_is_what_the_choice_does)
{
    for_many(check_small_max);
}
END_TEST

/* ---- plans of choices are right ---- */

struct proved {
    const char *text;
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
    bool is_ordered, is_left_fold;
};
static struct proved proved[MAX_PROVED];
static int nproved;

static bool is_proved(const struct proved *p)
{
    for (int i = 0; i < nproved; i++) {
        const struct proved *q = &proved[i];

        if (q->text == p->text && q->algo == p->algo && q->opts.coll == p->opts.coll &&
            q->opts.leaders == p->opts.leaders && q->opts.inter == p->opts.inter &&
            q->opts.one_shot == p->opts.one_shot && q->opts.single_copy == p->opts.single_copy &&
            q->opts.node_ring == p->opts.node_ring && q->opts.order == p->opts.order &&
            q->is_ordered == p->is_ordered && q->is_left_fold == p->is_left_fold)
            return true;
    }
    return false;
}

/* Proves the plan of @t, once, with what the call may rely on. */
static void prove(const struct test_case *t, bool is_ordered, bool is_left_fold)
{
    struct proved p = {.text = t->text,
        .algo = t->choice.algo,
        .opts = t->choice.opts,
        .is_ordered = is_ordered,
        .is_left_fold = is_left_fold};
    struct tiara_plan_report report;
    struct proof proof;

    if (t->choice.path != TIARA_PATH_PLAN || is_proved(&p))
        return;
    proof_init(&proof, p.algo, p.text, &p.opts);
    proof_all(&proof, p.is_ordered, p.is_left_fold, &report);
    proof_fini(&proof);
    ck_assert_int_lt(nproved, MAX_PROVED);
    proved[nproved++] = p;
}

static void check_proof(struct test_case *t)
{
    prove(t, false, false);
}

START_TEST(test_choice_has_a_plan_that_is_proved)
{
    for_many(check_proof);
    ck_assert_int_gt(nproved, 50);
}
END_TEST

static void check_order(struct test_case *t)
{
    if (!t->call.commutative)
        prove(t, true, false);
}

START_TEST(test_choice_for_a_non_commutative_operator_keeps_the_rank_order)
{
    for_many(check_order);
    ck_assert_int_gt(nproved, 50);
}
END_TEST

static void check_left_fold(struct test_case *t)
{
    if (t->facts.reproducible && t->call.coll != TIARA_COLL_ALLGATHER)
        prove(t, false, true);
}

/* The left fold over all ranks, whatever the layout. */
START_TEST(test_choice_for_reproducible_results_is_the_left_fold)
{
    for_many(check_left_fold);
    ck_assert_int_gt(nproved, 20);
}
END_TEST

/* ---- what the user forces ---- */

/* Whether a user may ask for @algo here, from what the algorithm says about itself. */
static bool may_run(const struct test_case *t, const struct tiara_algo *algo)
{
    if (!(algo->colls & (1u << t->call.coll)))
        return false;
    if (algo->flags & TIARA_ALGO_NODE && t->layout.nnodes > 1)
        return false;
    if (!(algo->flags & TIARA_ALGO_FLAT) && t->facts.cell_bytes < t->call.elem_size * t->blocks)
        return false;
    return t->call.commutative || is_ordered(algo, &t->layout);
}

static void check_forced(struct test_case *t)
{
    const struct tiara_tune_facts *f = &t->facts;
    const struct tiara_tune_choice *ch = &t->choice;
    size_t chunk_bytes = ch->chunk_elems * t->call.elem_size * t->blocks;

    if (f->mpi_only)
        return;
    /* Between GPUs, not every algorithm can be run that can be run on hosts. */
    if (f->algo && may_run(t, f->algo) &&
        (!f->reproducible || f->algo->flags & TIARA_ALGO_LEFT_FOLD) &&
        (!t->call.device ||
            (ch->path != TIARA_PATH_MPI && (!f->device.ring || f->algo->flags & TIARA_ALGO_FLAT))))
        holds(t, ch->path == TIARA_PATH_PLAN && ch->algo == f->algo);
    if (ch->path != TIARA_PATH_PLAN)
        return;
    if (f->slots)
        holds(t, ch->slots == f->slots || (t->call.device && ch->slots == f->device.slots));
    if (f->chunk_bytes)
        holds(t, ch->chunk_elems == 1 || chunk_bytes <= f->chunk_bytes);
    if (f->leaders && ch->algo->flags & TIARA_ALGO_HIER)
        holds(t, ch->opts.leaders ==
                     (f->leaders < t->layout.min_local ? f->leaders : t->layout.min_local));
    if (f->inter && ch->algo->reads & TIARA_ALGO_OPT_INTER &&
        t->call.coll == TIARA_COLL_ALLREDUCE && t->layout.nnodes > 1 &&
        (t->call.commutative || f->inter->flags & TIARA_ALGO_ORDERED))
        holds(t, ch->opts.inter == f->inter);
}

START_TEST(test_forced_values_that_fit_are_honoured)
{
    for_many(check_forced);
}
END_TEST

/* A user whose TIARA_ALGO is not taken finds its name and the reason in the explanation. */
static void check_unfit_is_explained(struct test_case *t)
{
    char text[512];

    if (t->facts.mpi_only || !t->facts.algo || t->choice.algo == t->facts.algo)
        return;
    tiara_tune_describe(&t->facts, &t->call, &t->choice, text, sizeof(text));
    ck_assert_msg(strstr(text, "TIARA_ALGO") || strstr(text, t->facts.algo->name),
        "nothing about TIARA_ALGO in \"%s\" for %s", text, t->name);
}

START_TEST(test_forced_algorithm_that_does_not_fit_is_explained)
{
    for_many(check_unfit_is_explained);
}
END_TEST

/* A chunk only gets small for want of cells, or because someone asks for it. */
static void check_chunk_is_no_crumb(struct test_case *t)
{
    bool is_flat = t->choice.algo && t->choice.algo->flags & TIARA_ALGO_FLAT;
    size_t elem_bytes = t->call.elem_size * t->blocks, least = 8192;

    size_t cell = t->call.device ? t->facts.device.cell_bytes : t->facts.cell_bytes;

    if (!is_flat && least > cell / 2)
        least = cell / 2;
    if (t->choice.path != TIARA_PATH_PLAN || t->facts.chunk_bytes || elem_bytes * 128 > least ||
        (t->call.device && t->choice.opts.single_copy))
        return;
    holds(t, t->choice.chunk_elems * elem_bytes >= least || t->choice.chunk_elems >= t->call.count);
}

START_TEST(test_chunk_is_no_crumb)
{
    for_many(check_chunk_is_no_crumb);
}
END_TEST

/* ---- explanations ---- */

static void check_description(struct test_case *t)
{
    const char *name = t->choice.path == TIARA_PATH_PLAN ? t->choice.algo->name
                       : t->choice.path == TIARA_PATH_MPI
                           ? (t->call.device && !t->facts.mpi_only ? "host memory" : "MPI")
                           : (t->call.device ? "packets" : "small");
    static const size_t sizes[] = {1, 2, 7, 40, 80, 512};
    struct tiara_test_guarded guarded;
    char whole[512];
    int length = tiara_tune_describe(&t->facts, &t->call, &t->choice, whole, sizeof(whole));

    holds(t, t->choice.why && *t->choice.why);
    ck_assert_int_eq(length, (int)strlen(whole));
    ck_assert_msg(strstr(whole, name) && strstr(whole, t->choice.why),
        "\"%s\" does not name %s or the reason: %s", whole, name, t->name);
    if (t->choice.opts.inter)
        ck_assert_msg(strstr(whole, t->choice.opts.inter->name) || t->layout.nnodes == 1,
            "\"%s\" does not name what is between nodes: %s", whole, t->name);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tiara_test_guarded_init(&guarded, sizes[i], 0);
        ck_assert_int_eq(
            tiara_tune_describe(&t->facts, &t->call, &t->choice, (char *)guarded.data, sizes[i]),
            length);
        ck_assert(tiara_test_guarded_is_intact(&guarded));
        ck_assert_int_eq(strncmp((char *)guarded.data, whole, sizes[i] - 1), 0);
        ck_assert(memchr(guarded.data, '\0', sizes[i]));
        tiara_test_guarded_fini(&guarded);
    }
}

START_TEST(test_description_fits_and_names_the_choice)
{
    for_many(check_description);
}
END_TEST

/* A communicator that Tiara leaves alone has no layout, and no configuration. */
START_TEST(test_mpi_only_needs_no_other_facts)
{
    struct tiara_tune_facts facts = {.mpi_only = "one rank"};
    struct tiara_tune_call call = {.count = 5, .elem_size = 4, .commutative = true};
    struct tiara_tune_choice choice;
    char text[100];

    for (int coll = TIARA_COLL_ALLREDUCE; coll <= TIARA_COLL_ALLGATHER; coll++)
        for (int arena = 0; arena < 2; arena++) {
            facts.has_arena = arena;
            call.coll = (enum tiara_coll)coll;
            tiara_tune_choose(&facts, &call, &choice);
            ck_assert_int_eq(choice.path, TIARA_PATH_MPI);
            ck_assert_uint_eq(tiara_tune_small_max(&facts), 0);
            ck_assert_int_gt(tiara_tune_describe(&facts, &call, &choice, text, sizeof(text)), 0);
            ck_assert_msg(strstr(text, "one rank"), "%s", text);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune");
    TCase *tcase = tcase_create("tune");

    tcase_add_test(tcase, test_choice_can_be_carried_out);
    tcase_add_test(tcase, test_choice_depends_on_its_arguments_only);
    tcase_add_test(tcase, test_small_max_is_what_the_choice_does);
    tcase_add_test(tcase, test_choice_has_a_plan_that_is_proved);
    tcase_add_test(tcase, test_choice_for_a_non_commutative_operator_keeps_the_rank_order);
    tcase_add_test(tcase, test_choice_for_reproducible_results_is_the_left_fold);
    tcase_add_test(tcase, test_forced_values_that_fit_are_honoured);
    tcase_add_test(tcase, test_forced_algorithm_that_does_not_fit_is_explained);
    tcase_add_test(tcase, test_chunk_is_no_crumb);
    tcase_add_test(tcase, test_description_fits_and_names_the_choice);
    tcase_add_test(tcase, test_mpi_only_needs_no_other_facts);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
