/*
 * Sets of plans for tests: all ranks' plans of one call, with their layout.
 *
 * A few small sets are written by hand here, op by op, so that tests of lib/plan do not depend on
 * the generators.
 */
#ifndef TIARA_TEST_PLAN_PLAN_SET_H
#define TIARA_TEST_PLAN_PLAN_SET_H

#include "plan/plan.h"
#include <check.h>

#define PLAN_SET_MAX 16 /* ranks */

struct plan_set {
    struct tiara_layout layout;
    struct tiara_plan plans[PLAN_SET_MAX];
    const struct tiara_plan *view[PLAN_SET_MAX]; /* of plans, as the library wants them */
};

/* Reads @text as a layout; the plans are zeroed and may be built in place. Not to be moved
 * afterwards. */
void plan_set_init(struct plan_set *set, const char *text);
void plan_set_fini(struct plan_set *set);
enum tiara_err plan_set_check(
    const struct plan_set *set, bool in_place, struct tiara_plan_report *report_out);
enum tiara_err plan_set_depend(struct plan_set *set);
void *plan_set_copy_array(const void *from, int n, size_t item_size);

/* A deep copy in which every array has room for one more item. @layout is the text @from was made
 * with. */
void plan_set_clone(struct plan_set *to, const struct plan_set *from, const char *layout);

struct plan_sample {
    const char *name;
    const char *layout;
    enum tiara_err (*build)(struct tiara_plan *plan, int rank);
};

#define PLAN_NSAMPLES 5
extern const struct plan_sample plan_samples[PLAN_NSAMPLES];

void plan_set_sample(struct plan_set *set, const struct plan_sample *sample);
void plan_set_sample_named(struct plan_set *set, const char *name);

#endif
