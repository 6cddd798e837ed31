/*
 * Ways to break a plan, one op at a time.
 */
#ifndef TIARA_TEST_PLAN_MUTATE_H
#define TIARA_TEST_PLAN_MUTATE_H

#include "plan/plan.h"

bool mutate_has_target(const struct tiara_op *op);
bool mutate_is_async(const struct tiara_op *op);

/* Mutations return false, and change nothing, when @op has no variant @v of theirs. */
bool mutate_repeat_op(struct tiara_plan *p, int op, int v);
/* All slices of the op one block longer or shorter: the op itself stays well-formed. */
bool mutate_resize_op(struct tiara_plan *p, int op, int v);
bool mutate_swap_sources(struct tiara_plan *p, int op, int v);

struct mutation {
    const char *name;
    bool (*mutate)(struct tiara_plan *plan, int op, int variant);
    bool is_fatal; /* in every plan of the samples, but for is_harmless() */
};

#define NMUTATIONS 15
/* Not fatal by themselves: another order of steps, ops or sources, or another buffer, may be as
 * good. */
extern const struct mutation mutations[NMUTATIONS];

#endif
