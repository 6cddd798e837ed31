/*
 * The checker, checked from both sides.
 *
 * Directed mutants: each op of each rank of a correct set is broken in each way that the table
 * below knows, and the checker must refuse all of them, but for the few that are argued to be still
 * correct. Random mutants: sets are broken at random, several times over; whatever the checker then
 * accepts must compute the right result in an interpreter that shares nothing with it
 * (interpret.h).
 */
#include "test/plan/interpret.h"
#include "test/plan/mutate.h"
#include "algo/algo.h"
#include "test/harness/test.h"
#include <stdio.h>
#include <string.h>

#define NRANDOM 6000 /* random mutants in one run */

/* A copy or reduction that is repeated does the same again, unless it adds to its own source. */
static bool is_repeatable(const struct tiara_plan *p, const struct tiara_op *op)
{
    for (int i = 0; i < op->nsrc; i++) {
        const struct tiara_slice *src = &p->srcs[op->src + i];

        /* In place, IN is OUT. */
        if (op->kind == TIARA_OP_REDUCE && src->owner == p->rank &&
            (src->buf == op->dst.buf || src->buf == TIARA_BUF_IN))
            return false;
    }
    return !mutate_is_async(op);
}

/* One block more of the result does no harm when a later op of the rank writes it anyway. */
static bool is_overwritten(const struct tiara_plan *p, int op)
{
    int extra = p->ops[op].dst.first + p->ops[op].dst.count;

    for (int i = op + 1; p->ops[op].dst.buf == TIARA_BUF_OUT && i < p->nops; i++) {
        const struct tiara_slice *dst = &p->ops[i].dst;

        if (mutate_has_target(&p->ops[i]) && dst->buf == TIARA_BUF_OUT && dst->first <= extra &&
            extra < dst->first + dst->count)
            return true;
    }
    return false;
}

/* The mutants that are still correct, although their mutation is fatal as a rule. */
static bool is_harmless(const struct mutation *m, const struct tiara_plan *p, int op, int v)
{
    if (m->mutate == mutate_repeat_op)
        return is_repeatable(p, &p->ops[op]);
    return m->mutate == mutate_resize_op && v == 0 && is_overwritten(p, op);
}

/* Plans must be valid in both forms. */
static bool is_accepted(const struct plan_set *set, struct tiara_plan_report *report)
{
    return plan_set_check(set, false, report) == TIARA_OK &&
           plan_set_check(set, true, report) == TIARA_OK;
}

/* What the checker accepts must be right when it runs, with the dependencies derived. */
static void run_accepted(struct plan_set *set, uint64_t seed, const char *what)
{
    struct tiara_plan_report report;
    enum tiara_err err = plan_set_depend(set);

    ck_assert_msg(err == TIARA_OK, "%s: accepted, but depend says %s", what, tiara_err_text(err));
    ck_assert_msg(
        is_accepted(set, &report), "%s: refused once it has waits: %s", what, report.text);
    ck_assert_msg(interpret_all(set, false, seed), "%s: accepted, but wrong", what);
    ck_assert_msg(interpret_all(set, true, seed), "%s: accepted, but wrong in place", what);
}

/* Every variant of @m on op @op of @rank. */
static void try_mutation(const struct plan_sample *sample, const struct plan_set *good,
    const struct mutation *m, int rank, int op)
{
    for (int v = 0;; v++) {
        struct plan_set mutant;
        struct tiara_plan_report report;
        char what[160];
        bool is_expected = !m->is_fatal || is_harmless(m, &good->plans[rank], op, v);

        plan_set_clone(&mutant, good, sample->layout);
        if (!m->mutate(&mutant.plans[rank], op, v)) {
            plan_set_fini(&mutant);
            /* Some mutations have gaps between their variants. */
            if (v >= 4 * PLAN_SET_MAX)
                break;
            continue;
        }
        snprintf(what, sizeof(what), "%s, rank %d op %d: %s, variant %d", sample->name, rank, op,
            m->name, v);
        if (is_accepted(&mutant, &report)) {
            ck_assert_msg(is_expected, "%s: accepted", what);
            run_accepted(&mutant, 1, what);
        } else {
            ck_assert_msg(report.text[0] != '\0', "%s: refused without a word", what);
        }
        plan_set_fini(&mutant);
    }
}

START_TEST(test_mutants_directed_are_refused)
{
    const struct plan_sample *sample = &plan_samples[_i];
    struct plan_set good;

    plan_set_sample(&good, sample);
    run_accepted(&good, 1, sample->name);
    for (size_t m = 0; m < NMUTATIONS; m++) {
        for (int r = 0; r < good.layout.nranks; r++) {
            for (int op = 0; op < good.plans[r].nops; op++)
                try_mutation(sample, &good, &mutations[m], r, op);
        }
    }
    plan_set_fini(&good);
}
END_TEST

/* The @k-th number that the pass derived, to be changed; NULL when there are no more. */
static int *derived_number(struct tiara_plan *p, int k, int *change_out)
{
    struct tiara_op *op;

    *change_out = -1;
    if (k < p->nwaits)
        return &p->waits[k].step;
    k -= p->nwaits;
    if (k >= 3 * p->nops)
        return NULL;
    op = &p->ops[k / 3];
    if (k % 3 == 0)
        return &op->await;
    if (k % 3 == 1)
        return &op->post_await;
    /* A post that is missing only comes later, with the next one; but a step is a lie before its
     * ops. */
    *change_out = (k / 3 + 1 < p->nops ? op[1].step : p->nsteps + 1) - op->post;
    return &op->post;
}

/* Each wait, await and post weaker than derived: the checker must miss what is gone. */
static void weaken(struct plan_set *set, const char *layout, int rank, const char *name)
{
    bool is_more = true;

    for (int k = 0; is_more; k++) {
        struct plan_set weak;
        struct tiara_plan_report report;
        int change, *number;

        plan_set_clone(&weak, set, layout);
        number = derived_number(&weak.plans[rank], k, &change);
        is_more = number != NULL;
        if (is_more && (k < set->plans[rank].nwaits || *number > 0)) {
            *number += change;
            ck_assert_msg(!is_accepted(&weak, &report),
                "%s, rank %d: number %d of waits, awaits and posts is not missed", name, rank, k);
        }
        plan_set_fini(&weak);
    }
}

START_TEST(test_mutants_weaker_dependencies_are_refused)
{
    struct plan_set set;

    plan_set_sample(&set, &plan_samples[_i]);
    ck_assert_int_eq(plan_set_depend(&set), TIARA_OK);
    for (int r = 0; r < set.layout.nranks; r++)
        weaken(&set, plan_samples[_i].layout, r, plan_samples[_i].name);
    plan_set_fini(&set);
}
END_TEST

static const char *const layouts[] = {"2x1", "1x3", "2x2", "5x1", "1x4", "3+2", "0,1,0,1,1"};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* A correct set: a sample, or a generator's for some layout. Returns its layout, NULL when the draw
 * has no plan. */
static const char *draw_set(struct plan_set *set, struct tiara_test_random *random)
{
    size_t nalgos = 0, pick;
    struct tiara_algo_opts opts = {.coll = (enum tiara_coll)tiara_test_random_below(random, 3)};
    const char *layout = layouts[tiara_test_random_below(random, NLAYOUTS)];
    bool has_plan = true;

    while (tiara_algo_table[nalgos] != NULL)
        nalgos++;
    opts.one_shot = tiara_test_random_below(random, 2) != 0;
    opts.single_copy = tiara_test_random_below(random, 2) != 0;
    pick = (size_t)tiara_test_random_below(random, nalgos + PLAN_NSAMPLES);
    if (pick < PLAN_NSAMPLES) {
        plan_set_sample(set, &plan_samples[pick]);
        return plan_samples[pick].layout;
    }
    plan_set_init(set, layout);
    for (int r = 0; has_plan && r < set->layout.nranks; r++)
        has_plan = tiara_algo_generate(tiara_algo_table[pick - PLAN_NSAMPLES], &set->layout, r,
                       &opts, &set->plans[r]) == TIARA_OK;
    if (has_plan && set->plans[0].nblocks <= 64)
        return layout;
    plan_set_fini(set);
    return NULL;
}

/* One random mutation somewhere in @set. */
static bool mutate_somewhere(struct plan_set *set, struct tiara_test_random *random)
{
    struct tiara_plan *p =
        &set->plans[tiara_test_random_below(random, (uint64_t)set->layout.nranks)];
    const struct mutation *m = &mutations[tiara_test_random_below(random, NMUTATIONS)];

    if (p->nops == 0)
        return false;
    return m->mutate(p, (int)tiara_test_random_below(random, (uint64_t)p->nops),
        (int)tiara_test_random_below(random, 4));
}

START_TEST(test_mutants_random_accepted_ones_are_right)
{
    uint64_t seed = tiara_test_seed();
    struct tiara_test_random random = {seed};
    int naccepted = 0, nrefused = 0;

    for (int i = 0; i < NRANDOM; i++) {
        struct plan_set good, mutant;
        struct tiara_plan_report report;
        int n = 1 + (int)tiara_test_random_below(&random, 2), nmutated = 0;
        const char *layout = draw_set(&good, &random);

        if (layout == NULL)
            continue;
        plan_set_clone(&mutant, &good, layout);
        while (n-- > 0)
            nmutated += mutate_somewhere(&mutant, &random);
        if (nmutated > 0 && is_accepted(&mutant, &report)) {
            run_accepted(&mutant, seed + (uint64_t)i, "a random mutant");
            naccepted++;
        } else if (nmutated > 0) {
            nrefused++;
        }
        plan_set_fini(&mutant);
        plan_set_fini(&good);
    }
    printf("%d random mutants refused, %d accepted and right\n", nrefused, naccepted);
    /* Else the test would show nothing. */
    ck_assert_int_gt(naccepted, 10);
    ck_assert_int_gt(nrefused, naccepted);
}
END_TEST

START_TEST(test_mutants_another_order_on_one_rank_is_refused)
{
    struct tiara_plan_report report;
    struct plan_set set;

    plan_set_sample_named(&set, "exchange");
    ck_assert(mutate_swap_sources(&set.plans[1], 2, 0));
    ck_assert_int_eq(plan_set_check(&set, false, &report), TIARA_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(report.text, "another order"));
    ck_assert(mutate_swap_sources(&set.plans[0], 2, 0));
    ck_assert_int_eq(plan_set_check(&set, false, &report), TIARA_OK);
    ck_assert(!report.ordered);
    plan_set_fini(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan mutants");
    TCase *tcase = tcase_create("mutants");

    tcase_add_loop_test(tcase, test_mutants_directed_are_refused, 0, (int)PLAN_NSAMPLES);
    tcase_add_loop_test(tcase, test_mutants_weaker_dependencies_are_refused, 0, (int)PLAN_NSAMPLES);
    tcase_add_test(tcase, test_mutants_random_accepted_ones_are_right);
    tcase_add_test(tcase, test_mutants_another_order_on_one_rank_is_refused);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
