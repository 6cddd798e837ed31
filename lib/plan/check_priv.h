/*
 * Private to lib/plan: what the parts of the checker share.
 *
 * check.c       entry, the results' proof, the report's counts
 * check_rule.c  rules that one plan alone can break; what is said of a wrong plan
 * check_run.c   the symbolic run, step by step
 * check_wait.c  the proof that the derived waits are enough and cannot deadlock
 */
#ifndef TIARA_PLAN_CHECK_PRIV_H
#define TIARA_PLAN_CHECK_PRIV_H

#include "plan/match.h"
#include "plan/plan.h"
#include "plan/tree.h"

struct tiara_check {
    const struct tiara_plan *const *plans; /* [nranks] */
    const struct tiara_layout *layout;
    int nranks;
    int nblocks;
    bool in_place; /* IN and OUT are one buffer; never for REDUCE_SCATTER */
    struct tiara_plan_report *report;
    struct tiara_match match;
    struct tiara_trees trees;
    /* Every block of every buffer of every rank has one index, tiara_check_at(). */
    size_t *first; /* [nranks + 1] */
    int *tree; /* what the block holds */
    int *written_step; /* the last step, up to the current one, that writes it */
    /* [nranks], pieces of one allocation, cursor */
    int *cursor; /* the next op of each rank */
    int *nissued; /* asyncs before the cursor */
    int *first_async; /* asyncs before the current step; all these are complete */
    int *scratch; /* [3 * nranks] of tiara_trees_covers */
};

static inline size_t tiara_check_at(
    const struct tiara_check *c, int rank, enum tiara_buf buf, int block)
{
    if (c->in_place && buf == TIARA_BUF_OUT)
        buf = TIARA_BUF_IN;
    return c->first[rank] + (size_t)buf * (size_t)c->nblocks + (size_t)block;
}

/*
 * Writes "rank R op I (kind, step S): ..." into the report; @op -1: no op. Returns TIARA_ERR_PLAN.
 */
enum tiara_err tiara_check_fail(struct tiara_check *c, int rank, int op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* True when async @ordinal of @rank and its partner are both behind their rank's cursor. */
static inline bool tiara_check_is_complete(const struct tiara_check *c, int rank, int ordinal)
{
    int async = c->match.first[rank] + ordinal;
    int partner = c->match.partner[async];

    return c->match.op[async] < c->cursor[rank] &&
           c->match.op[partner] < c->cursor[c->match.rank[partner]];
}

TIARA_MUST_USE enum tiara_err tiara_check_rules(struct tiara_check *c);
TIARA_MUST_USE enum tiara_err tiara_check_run(struct tiara_check *c);
TIARA_MUST_USE enum tiara_err tiara_check_waits(struct tiara_check *c);

#endif
