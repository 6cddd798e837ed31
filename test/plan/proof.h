/*
 * What the proofs of the algorithms share: the plans of all ranks, their proof by the checker,
 * and a run with numbers.
 *
 * The run with numbers is a second opinion that shares no code with the checker: an interpreter of
 * plans that advances all ranks step by step, with operators that give the order of the operands
 * away. (The one in interpret.h lets ranks drift apart, and is for few ranks.)
 */
#ifndef TIARA_TEST_PLAN_PROOF_H
#define TIARA_TEST_PLAN_PROOF_H

#include "algo/algo.h"
#include "plan/plan.h"
#include "test/harness/test.h"

struct proof {
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
    struct tiara_layout layout;
    struct tiara_plan *plans; /* [nranks] */
    const struct tiara_plan **views; /* [nranks] &plans[r] */
    char name[160]; /* for messages */
};

/* Generates the plans of all ranks and derives their waits. */
void proof_init(struct proof *proof, const struct tiara_algo *algo, const char *layout,
    const struct tiara_algo_opts *opts);
void proof_fini(struct proof *proof);

/* ---- operators on 64 bits ---- */

typedef uint64_t (*proof_op)(uint64_t a, uint64_t b);

/* Neither associative nor commutative: equal results mean equal trees. */
uint64_t proof_op_tree(uint64_t a, uint64_t b);

/* ---- the interpreter ---- */

struct proof_machine {
    const struct proof *proof;
    proof_op op;
    int nblocks;
    uint64_t **mem; /* [nranks * TIARA_NBUF] */
    int *cursor; /* [nranks] */
    int *nissued; /* [nranks] sends and receives begun */
    int *ndone; /* [nranks] of these, complete without a gap */
    bool **is_done; /* [nranks][nasync] */
    struct proof_async *open;
    int nopen, cap_open;
};

void proof_run_step(struct proof_machine *m, int step);
void proof_machine_init(
    struct proof_machine *m, const struct proof *proof, proof_op op, bool in_place);
void proof_machine_fini(struct proof_machine *m, bool in_place);

/* ---- one case ---- */

/*
 * The checker's proof, in place and not, and the runs with numbers. @is_ordered: rank order is
 * promised. @is_left_fold: the tree is promised to be the left fold. The report is of the run that
 * is not in place.
 */
void proof_all(const struct proof *proof, bool is_ordered, bool is_left_fold,
    struct tiara_plan_report *report_out);

/* Distinct steps in which anything goes over the network. */
int proof_net_steps(const struct proof *proof);

#endif
