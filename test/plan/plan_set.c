/*
 * Plans of all ranks, copied, checked and depended together, and the sets written by hand.
 */
#include "test/plan/plan_set.h"
#include "base/alloc.h"
#include <string.h>

void plan_set_init(struct plan_set *set, const char *text)
{
    char why[128];

    memset(set, 0, sizeof(*set));
    ck_assert_msg(
        tiara_layout_parse(&set->layout, text, 0, why, sizeof(why)) == TIARA_OK, "%s", why);
    ck_assert_int_le(set->layout.nranks, PLAN_SET_MAX);
    for (int r = 0; r < set->layout.nranks; r++)
        set->view[r] = &set->plans[r];
}

void plan_set_fini(struct plan_set *set)
{
    for (int r = 0; r < PLAN_SET_MAX; r++)
        tiara_plan_fini(&set->plans[r]);
    tiara_layout_fini(&set->layout);
}

enum tiara_err plan_set_check(
    const struct plan_set *set, bool in_place, struct tiara_plan_report *report_out)
{
    return tiara_plan_check(set->view, &set->layout, in_place, report_out);
}

enum tiara_err plan_set_depend(struct plan_set *set)
{
    const struct tiara_layout *l = &set->layout;

    for (int r = 0; r < l->nranks; r++) {
        const struct tiara_plan *peers[PLAN_SET_MAX];
        int node = l->node_of[r], n = tiara_layout_local_size(l, node);
        enum tiara_err err;

        for (int i = 0; i < n; i++)
            peers[i] = set->view[tiara_layout_rank(l, node, i)];
        err = tiara_plan_depend(&set->plans[r], peers, n);
        if (err != TIARA_OK)
            return err;
    }
    return TIARA_OK;
}

void *plan_set_copy_array(const void *from, int n, size_t item_size)
{
    void *to = tiara_alloc((size_t)n + 1, item_size);

    ck_assert_ptr_nonnull(to);
    if (n > 0)
        memcpy(to, from, (size_t)n * item_size);
    return to;
}

void plan_set_clone(struct plan_set *to, const struct plan_set *from, const char *layout)
{
    plan_set_init(to, layout);
    for (int r = 0; r < to->layout.nranks; r++) {
        const struct tiara_plan *p = &from->plans[r];

        to->plans[r] = *p;
        to->plans[r].ops = plan_set_copy_array(p->ops, p->nops, sizeof(*p->ops));
        to->plans[r].srcs = plan_set_copy_array(p->srcs, p->nsrcs, sizeof(*p->srcs));
        to->plans[r].waits = plan_set_copy_array(p->waits, p->nwaits, sizeof(*p->waits));
        to->plans[r].cap_ops = p->nops + 1;
        to->plans[r].cap_srcs = p->nsrcs + 1;
        to->plans[r].cap_waits = p->nwaits + 1;
    }
}

#define IN(first, count) tiara_slice(r, TIARA_BUF_IN, first, count)

#define OUT(first, count) tiara_slice(r, TIARA_BUF_OUT, first, count)

#define CELL(owner, first, count) tiara_slice(owner, TIARA_BUF_CELL, first, count)

#define TMP(first, count) tiara_slice(r, TIARA_BUF_TMP, first, count)

/* Layout "2x1": both send their vector and add what they receive, in rank order. */
static enum tiara_err plan_sample_exchange(struct tiara_plan *p, int r)
{
    struct tiara_slice pair[2] = {IN(0, 1), TMP(0, 1)};
    struct tiara_slice swapped[2] = {TMP(0, 1), IN(0, 1)};

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 2, 1);
    tiara_plan_tmp(p, 1);
    tiara_plan_send(p, 1, 1 - r, IN(0, 1));
    tiara_plan_recv(p, 1, 1 - r, TMP(0, 1));
    tiara_plan_reduce(p, 1, OUT(0, 1), r == 0 ? pair : swapped, 2);
    return tiara_plan_finish(p, 1);
}

/* Layout "1x3": inputs into cells, each rank adds its block, all fetch the sums. */
static enum tiara_err plan_sample_two_shot(struct tiara_plan *p, int r)
{
    struct tiara_slice all[3] = {CELL(0, r, 1), CELL(1, r, 1), CELL(2, r, 1)};

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 3, 3);
    tiara_plan_copy(p, 1, CELL(r, 0, 3), IN(0, 3));
    tiara_plan_reduce(p, 2, CELL(r, r, 1), all, 3);
    for (int q = 0; q < 3; q++)
        tiara_plan_copy(p, 3, OUT(q, 1), CELL(q, q, 1));
    return tiara_plan_finish(p, 3);
}

/* Layout "1x3": the same with the caller's own buffers in place of cells. */
static enum tiara_err plan_sample_single_copy(struct tiara_plan *p, int r)
{
    struct tiara_slice all[3];

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 3, 3);
    p->single_copy = true;
    for (int q = 0; q < 3; q++)
        all[q] = tiara_slice(q, TIARA_BUF_IN, r, 1);
    tiara_plan_reduce(p, 1, OUT(r, 1), all, 3);
    for (int q = 0; q < 3; q++)
        tiara_plan_copy(p, 2, OUT(q, 1), tiara_slice(q, TIARA_BUF_OUT, q, 1));
    return tiara_plan_finish(p, 2);
}

/* Layout "1x3": rank 1 uses its cell twice, so that it must wait for rank 2 to have read what was
 * there first. */
static enum tiara_err plan_sample_reuse(struct tiara_plan *p, int r)
{
    struct tiara_slice all[3] = {CELL(0, 0, 1), CELL(1, 0, 1), CELL(2, 0, 1)};

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 3, 1);
    tiara_plan_copy(p, 1, CELL(r, 0, 1), IN(0, 1));
    if (r == 0)
        tiara_plan_copy(p, 4, OUT(0, 1), CELL(1, 0, 1));
    if (r == 1) {
        tiara_plan_tmp(p, 1);
        tiara_plan_reduce(p, 2, TMP(0, 1), all, 3);
        tiara_plan_copy(p, 3, CELL(r, 0, 1), TMP(0, 1));
        tiara_plan_copy(p, 4, OUT(0, 1), TMP(0, 1));
    }
    if (r == 2)
        tiara_plan_reduce(p, 2, OUT(0, 1), all, 3);
    return tiara_plan_finish(p, 4);
}

/* Layout "2x2": local rank l adds block l on its node, exchanges it with its twin, and both nodes
 * spread it. */
static enum tiara_err plan_sample_two_level(struct tiara_plan *p, int r)
{
    int l = r % 2, low = r - l, twin = (r + 2) % 4;
    struct tiara_slice node[2] = {CELL(low, l, 1), CELL(low + 1, l, 1)};
    struct tiara_slice first[2] = {CELL(r, l, 1), TMP(0, 1)};
    struct tiara_slice second[2] = {TMP(0, 1), CELL(r, l, 1)};

    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, r, 4, 2);
    tiara_plan_tmp(p, 1);
    tiara_plan_copy(p, 1, CELL(r, 0, 2), IN(0, 2));
    tiara_plan_reduce(p, 2, CELL(r, l, 1), node, 2);
    tiara_plan_send(p, 3, twin, CELL(r, l, 1));
    tiara_plan_recv(p, 3, twin, TMP(0, 1));
    tiara_plan_reduce(p, 4, CELL(r, l, 1), r < 2 ? first : second, 2);
    tiara_plan_copy(p, 5, OUT(l, 1), CELL(r, l, 1));
    tiara_plan_copy(p, 5, OUT(1 - l, 1), CELL(low + 1 - l, 1 - l, 1));
    return tiara_plan_finish(p, 5);
}

#undef IN

#undef OUT

#undef CELL

#undef TMP

const struct plan_sample plan_samples[PLAN_NSAMPLES] = {
    {"exchange", "2x1", plan_sample_exchange},
    {"two-shot", "1x3", plan_sample_two_shot},
    {"single-copy", "1x3", plan_sample_single_copy},
    {"reuse", "1x3", plan_sample_reuse},
    {"two-level", "2x2", plan_sample_two_level},
};

void plan_set_sample(struct plan_set *set, const struct plan_sample *sample)
{
    plan_set_init(set, sample->layout);
    for (int r = 0; r < set->layout.nranks; r++)
        ck_assert_int_eq(sample->build(&set->plans[r], r), TIARA_OK);
}

void plan_set_sample_named(struct plan_set *set, const char *name)
{
    for (size_t i = 0; i < PLAN_NSAMPLES; i++) {
        if (strcmp(plan_samples[i].name, name) == 0) {
            plan_set_sample(set, &plan_samples[i]);
            return;
        }
    }
    ck_abort_msg("no sample %s", name);
}
