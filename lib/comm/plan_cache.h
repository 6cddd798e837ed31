/*
 * The plans of a communicator: made when first needed, kept until it is freed.
 */
#ifndef TIARA_COMM_PLAN_CACHE_H
#define TIARA_COMM_PLAN_CACHE_H

#include "plan/plan.h"
#include "tune/tune.h"

/* Whom a plan is for. */
enum tiara_plan_use {
    TIARA_PLAN_HOST,
    TIARA_PLAN_BETWEEN, /* over the nodes, for leaders of small calls */
    TIARA_PLAN_DEVICE
};

struct tiara_comm;

/* The plan of a choice, made and agreed upon when it is new: collective then, inside a call.
 * Errors: TIARA_ERR_UNSUPPORTED, agreed: a rank could not prepare it; those of tiara_agree. */
TIARA_MUST_USE enum tiara_err tiara_plan_get(struct tiara_comm *c,
    const struct tiara_tune_choice *choice, enum tiara_plan_use use,
    const struct tiara_plan **plan_out);
/* Whether it is there already: the same on all ranks. */
bool tiara_plan_is_cached(
    const struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use);
/*
 * At set-up, before any call: makes the plan of a choice, or those of ordinary all-reduces of all
 * sizes. Local; the caller agrees. Errors: those of making a plan.
 */
TIARA_MUST_USE enum tiara_err tiara_plan_prepare(
    struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use);
TIARA_MUST_USE enum tiara_err tiara_plan_prepare_usual(struct tiara_comm *c);
void tiara_plan_free_all(struct tiara_comm *c);

#endif
