/*
 * The seam of algorithms: generators of plans.
 *
 * A generator is a pure function (layout, rank, options) -> plan. It never writes dependencies:
 * they follow from the slices (tiara_plan_depend). Each plan must be valid in place (IN and OUT one
 * buffer), and the checker proves it in both forms.
 *
 * Flat algorithms speak send/recv between all ranks and look at layout->nranks only (its arrays may
 * be NULL), so that they also serve as the inter-node part of a hierarchy. Node algorithms (direct,
 * node-ring) use exposed buffers of one node only. hier composes: node reduce-scatter, inter-node
 * @inter over K leaders, node all-gather.
 */
#ifndef TIARA_ALGO_ALGO_H
#define TIARA_ALGO_ALGO_H

#include "plan/plan.h"

#define TIARA_ALGO_FLAT 0x1u /* network ops only; any layout */
#define TIARA_ALGO_NODE 0x2u /* exposed buffers only; needs layout->nnodes == 1 */
#define TIARA_ALGO_HIER 0x4u /* both; any layout */
/* Leaves in rank order for every layout that it accepts. */
#define TIARA_ALGO_ORDERED 0x8u
/* The same, when the layout is block-placed, inter is ordered and node_ring is not asked for. */
#define TIARA_ALGO_ORDERED_BLOCK 0x10u
/* Each element is the left fold over all ranks, for every layout that it accepts: all such
 * algorithms give the same bits. */
#define TIARA_ALGO_LEFT_FOLD 0x20u
/* Of its node peers, a rank reads those next to it in opts->order only. */
#define TIARA_ALGO_NEIGHBOURS 0x40u

/* The options, as bits of tiara_algo.reads. All generators read coll. */
#define TIARA_ALGO_OPT_LEADERS 0x1u
#define TIARA_ALGO_OPT_INTER 0x2u
#define TIARA_ALGO_OPT_ONE_SHOT 0x4u
#define TIARA_ALGO_OPT_SINGLE_COPY 0x8u
#define TIARA_ALGO_OPT_NODE_RING 0x10u
#define TIARA_ALGO_OPT_ORDER 0x20u

struct tiara_algo;

struct tiara_algo_opts {
    enum tiara_coll coll;
    int leaders; /* hier: K; 0 or too many = as many as the smallest node has */
    const struct tiara_algo *inter; /* hier: the flat algorithm between nodes; NULL = ring */
    bool one_shot; /* direct: every rank reduces everything itself */
    bool single_copy; /* direct: read peers' IN and OUT instead of cells */
    bool node_ring; /* hier: nodes work as rings; needs as many ranks on every node, all leaders */
    /* node-ring, and hier with node_ring: [ranks of a node] local indices in ring order, the same
     * for every node; NULL: ascending. Borrowed while generate runs. */
    const int *order;
};

/*
 * Costs as formulas of P ranks, in units of the whole vector and of steps; the proofs compare them
 * with the checker's counts.
 */
struct tiara_algo_cost {
    double net_rounds; /* steps with network traffic, at most */
    double net_sent_max; /* vectors sent by the busiest rank, exactly unless net_sent_is_bound */
    bool net_sent_is_bound;
};

struct tiara_algo {
    const char *name; /* as in TIARA_ALGO, --algo and tiara-plan; e.g. "ring" */
    const char *help; /* one line */
    unsigned flags;
    unsigned colls; /* bit (1u << coll) for each collective it can do */
    unsigned reads; /* the options that its plans depend on */
    /*
     * Appends to @plan what its rank does, sets nblocks where it is not 1, and returns the number
     * of steps. For collectives in colls and two or more ranks (tiara_algo_generate). Errors are
     * @plan's sticky ones; TIARA_ERR_UNSUPPORTED: layout or options are not for this algorithm.
     */
    int (*generate)(const struct tiara_layout *layout, const struct tiara_algo_opts *opts,
        struct tiara_plan *plan);
    /* Of ALLREDUCE; the other collectives are half of it. NULL: nothing on the network, or (two
     * levels) the proofs have it. */
    struct tiara_algo_cost (*cost)(int nranks);
    /* What @opts make of it, in words for people: "two-shot". NULL: there is nothing to say. */
    void (*describe)(const struct tiara_algo_opts *opts, char *text, size_t size);
};

/* Flat, for any number of ranks; all but the ring keep the rank order. The name is the file's. */
extern const struct tiara_algo tiara_algo_reduce_bcast;
extern const struct tiara_algo tiara_algo_ring;
extern const struct tiara_algo tiara_algo_tree;
extern const struct tiara_algo tiara_algo_double_tree;
extern const struct tiara_algo tiara_algo_recdbl; /* named "recursive-doubling" */
extern const struct tiara_algo tiara_algo_rabenseifner;
extern const struct tiara_algo tiara_algo_chain;
/* One node. */
extern const struct tiara_algo tiara_algo_direct;
extern const struct tiara_algo tiara_algo_node_ring;
/* Two levels. hier-chain's tree is the left fold over all ranks, whatever the layout. */
extern const struct tiara_algo tiara_algo_hier;
extern const struct tiara_algo tiara_algo_hier_chain;

/* All of them, in the order of documentation; NULL-terminated. */
extern const struct tiara_algo *const tiara_algo_table[];
/* By name, or NULL. */
const struct tiara_algo *tiara_algo_find(const char *name);
/*
 * tiara_algo_generate() - the plan of @rank by @algo
 * The caller runs fini on @plan_out, also after an error. Errors: TIARA_ERR_UNSUPPORTED
 * (collective, layout or options are not for @algo), TIARA_ERR_NOMEM.
 */
TIARA_MUST_USE enum tiara_err tiara_algo_generate(const struct tiara_algo *algo,
    const struct tiara_layout *layout, int rank, const struct tiara_algo_opts *opts,
    struct tiara_plan *plan_out);
/* Whether @a and @b make the same plans: they may differ in what @algo does not read. */
bool tiara_algo_opts_same(const struct tiara_algo *algo, const struct tiara_algo_opts *a,
    const struct tiara_algo_opts *b);

#endif
