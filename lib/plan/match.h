/*
 * Private to lib/plan: which SEND meets which RECV.
 *
 * The n-th send from one rank to another meets the n-th receive there from that rank, and both must
 * lie in the same step. An async (SEND or RECV) is named by one number over all ranks: first[rank]
 * + its ordinal in the rank's plan.
 */
#ifndef TIARA_PLAN_MATCH_H
#define TIARA_PLAN_MATCH_H

#include "plan/plan.h"

struct tiara_match {
    int n;
    int *first; /* [nranks + 1]; the one allocation */
    int *rank; /* [n] whose async it is */
    int *op; /* [n] its index in that rank's plan */
    int *partner; /* [n] the async at the other end */
    /* The first async without a partner, after TIARA_ERR_PLAN. */
    int bad_rank, bad_op;
    const char *bad_why;
};

/*
 * tiara_match_init() - pair all sends and receives of @plans[nranks]
 * Peers must be in range. fini accepts a zeroed object and one whose init failed.
 * Errors: TIARA_ERR_PLAN (bad_* say where), TIARA_ERR_NOMEM. Cost: a sort of the asyncs.
 */
TIARA_MUST_USE enum tiara_err tiara_match_init(
    struct tiara_match *match_out, const struct tiara_plan *const *plans, int nranks);
void tiara_match_fini(struct tiara_match *match);

#endif
