/*
 * Plans: an algorithm as data.
 *
 * A plan is what one rank does for one chunk of one call: a short list of ops over slices. All
 * ranks' plans for a call have the same nblocks and nsteps. Pure: no MPI, no clock, no environment.
 *
 * block  the algorithm's unit of partition; 0 .. nblocks-1; the executor decides how long it is
 * slice  consecutive blocks of one buffer of one rank
 * step   global logical time, 1 .. nsteps. Ops are in program order and their steps never decrease.
 *        A remote read in step s sees what its owner held when it had done all ops of steps < s.
 *        Steps are not barriers: tiara_plan_depend() derives who waits for whom from the slices.
 *
 * Buffers of a rank (blocks each):
 *   IN    [nblocks]     the caller's contribution; never written. The same memory as OUT when the
 *                       call is in place. For ALLGATHER only block b = own rank exists.
 *   OUT   [nblocks]     the caller's result. For REDUCE_SCATTER only block b = own rank exists.
 *   CELL  [nblocks]     exposed: same-node peers may read it. Only its owner writes it.
 *   TMP   [tmp_blocks]  private scratch.
 * IN and OUT are exposed too when the plan says single_copy (the executor then gets from them).
 *
 * For REDUCE_SCATTER and ALLGATHER nblocks == nranks and block b belongs to rank b.
 *
 * Glossary of parameter names: @rank own position, @peer the other end, @b a block, @s a step.
 */
#ifndef TIARA_PLAN_PLAN_H
#define TIARA_PLAN_PLAN_H

#include "base/err.h"
#include "base/layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tiara_coll {
    TIARA_COLL_ALLREDUCE,
    TIARA_COLL_REDUCE_SCATTER, /* MPI_Reduce_scatter_block */
    TIARA_COLL_ALLGATHER
};

enum tiara_buf {
    TIARA_BUF_IN,
    TIARA_BUF_OUT,
    TIARA_BUF_CELL,
    TIARA_BUF_TMP,
    TIARA_NBUF
};

enum tiara_op_kind {
    TIARA_OP_COPY, /* dst <- src[0] */
    /* dst <- src[0] op src[1] op ... folded from the left; dst may be exactly one of the sources */
    TIARA_OP_REDUCE,
    TIARA_OP_SEND, /* src[0] to peer's matching recv; the op is done when src may be overwritten */
    TIARA_OP_RECV /* dst <- peer's matching send */
};

struct tiara_slice {
    int owner; /* whose buffer; a same-node peer only as a source of COPY, REDUCE or SEND */
    enum tiara_buf buf;
    int first, count; /* blocks; count >= 1 */
};

/* "Peer's progress must have reached step": all its ops of steps <= step are done. step 0: its
 * previous chunk in this slot is. */
struct tiara_plan_wait {
    int peer, step;
};

struct tiara_op {
    enum tiara_op_kind kind;
    int step;
    int peer; /* SEND, RECV; else -1 */
    struct tiara_slice dst; /* COPY, REDUCE, RECV */
    int src; /* index of the first source in plan->srcs */
    int nsrc;

    int block; /* by tiara_plan_resolve(): of the vector, the first that the op works on */

    /* By tiara_plan_depend(). */
    int wait; /* index of the first wait in plan->waits */
    int nwait;
    int await; /* the first await SENDs and RECVs of the plan must be complete before this op */
    /* after this op, and once the first post_await are complete, progress := post; 0: no post */
    int post, post_await;
};

struct tiara_plan {
    enum tiara_coll coll;
    int rank, nranks;
    int nblocks, tmp_blocks;
    int nsteps;
    bool single_copy; /* reads peers' IN or OUT */
    struct tiara_op *ops;
    int nops;
    struct tiara_slice *srcs;
    int nsrcs;
    struct tiara_plan_wait *waits;
    int nwaits;
    /* these waits hold before the chunk is finished: peers may still read this rank's IN or OUT */
    int exit_wait, exit_nwait;
    int nasync; /* SENDs plus RECVs */

    int cap_ops, cap_srcs, cap_waits; /* private to the builder */
    enum tiara_err sticky; /* the first error; set by the builder and by generators */
};

/*
 * Builder. Sticky: after the first error every append does nothing, and tiara_plan_finish() returns
 * it. Appends with count 0 do nothing, so generators need no special case for empty blocks; nor
 * does a copy of a slice onto itself, and a reduce of one source is a copy. Errors: TIARA_ERR_PLAN
 * (steps that decrease), TIARA_ERR_NOMEM. @plan is owned by the caller; fini accepts a zeroed
 * object and one in error.
 */
void tiara_plan_init(
    struct tiara_plan *plan, enum tiara_coll coll, int rank, int nranks, int nblocks);
void tiara_plan_fini(struct tiara_plan *plan);
/* Scratch grows to at least @blocks; returns nothing, sticky on error. */
void tiara_plan_tmp(struct tiara_plan *plan, int blocks);
void tiara_plan_copy(
    struct tiara_plan *plan, int step, struct tiara_slice dst, struct tiara_slice src);
void tiara_plan_reduce(struct tiara_plan *plan, int step, struct tiara_slice dst,
    const struct tiara_slice *src, int nsrc);
/* The same for sources that come one by one: each is put behind the others of the last op. */
void tiara_plan_fold(struct tiara_plan *plan, int step, struct tiara_slice dst);
void tiara_plan_source(struct tiara_plan *plan, struct tiara_slice src);
void tiara_plan_send(struct tiara_plan *plan, int step, int peer, struct tiara_slice src);
void tiara_plan_recv(struct tiara_plan *plan, int step, int peer, struct tiara_slice dst);
/* Sets nsteps (>= the last op's step; the same on all ranks) and returns the sticky error. */
TIARA_MUST_USE enum tiara_err tiara_plan_finish(struct tiara_plan *plan, int nsteps);

static inline struct tiara_slice tiara_slice(int owner, enum tiara_buf buf, int first, int count)
{
    return (struct tiara_slice){owner, buf, first, count};
}

/*
 * Appends @sub, a plan for a group of ranks, to @plan: rank i of @sub is @ranks[i] here, its block
 * b is @first_block + b, its steps come after @step0, its IN and OUT are both @plan's own buffer
 * @as (the sub-plan must be valid in place), its TMP lies above the plan's. @sub has been finished;
 * borrowed. Copies that @as makes copies onto themselves are left out.
 */
void tiara_plan_embed(struct tiara_plan *plan, const struct tiara_plan *sub, const int *ranks,
    int first_block, int step0, enum tiara_buf as);

/*
 * tiara_plan_depend() - derive waits, awaits and posts from the slices
 * @plan: completed; @peers[npeers]: the finished plans of its same-node peers (any order, own one
 *     allowed), borrowed.
 *
 * Rules, in program order of each rank:
 *   read of q's slice in step s      wait for q to reach the last step < s in which it writes an
 *                                    overlap; none: step 0 when the slice is q's IN, else an error.
 *                                    A SEND of a peer's slice reads it until the SEND is complete
 *   own write of an exposed slice    wait for each peer that reads an overlap in a step t < s to
 *   in step s                        reach t; the first write of CELL: for step 0 of every peer
 *   own read after own RECV, own     await that async
 *   write over a SEND's source or
 *   a RECV's target
 *   post of step t                   where some peer waits for t: after the last op of steps <= t,
 *                                    with the asyncs up to there that peers could notice complete;
 *                                    and nsteps at the end, with all asyncs complete. A plan
 *                                    without ops posts nothing: whoever runs it moves progress
 * IN and OUT count as one buffer throughout, as the call may be in place. Waits that an earlier one
 * implies are left out. May be run again; after an error the plan is as it was.
 * Cost: O(ops of all peers x own ops) at worst. Errors: TIARA_ERR_PLAN (a wait that could never
 * hold), TIARA_ERR_NOMEM.
 */
TIARA_MUST_USE enum tiara_err tiara_plan_depend(
    struct tiara_plan *plan, const struct tiara_plan *const *peers, int npeers);

/*
 * tiara_plan_resolve() - say for each op which blocks of the vector it works on: op->block
 * In IN, OUT and CELL a slice's position is its block; in TMP it follows from the op's other
 * slices, the op that wrote it, or the first op that reads it. The executor needs it, since the
 * last blocks of a vector are shorter.
 * Errors: TIARA_ERR_PLAN when an op's blocks do not follow, or differ between its slices.
 */
TIARA_MUST_USE enum tiara_err tiara_plan_resolve(struct tiara_plan *plan);

/* ---- the checker: lib/plan/check.c ---- */

struct tiara_plan_report {
    /* Units: blocks. "Network" is every send and receive, also between ranks of one node. */
    int64_t net_sent_max; /* blocks sent on the network by the busiest rank */
    int64_t net_sent_total;
    int64_t net_node_sent_max; /* blocks leaving the busiest node (to ranks on other nodes) */
    int64_t net_node_recv_max;
    int64_t shm_read_max; /* blocks read from peers' exposed buffers by the busiest rank */
    int64_t reduce_max; /* blocks of arithmetic (nsrc - 1 per reduce) of the busiest rank */
    int64_t rank0_sent; /* blocks that rank 0 sends, and receives, on the network */
    int64_t rank0_received;
    /* most sends or receives in sequence on any rank: distinct steps with network ops */
    int net_rounds;
    int nsteps;
    bool ordered; /* all results' leaves are in rank order: for non-commutative operators, too */
    char text[256]; /* first violation, "" when proved */
};

/*
 * tiara_plan_check() - prove that the plans of all ranks together compute the collective
 * @plans[nranks]: plans[r] was built for rank r and finished; borrowed. @in_place: IN and OUT are
 * one buffer.
 * @layout: who shares a node with whom (remote slices are allowed only there).
 *
 * Executes all ranks symbolically, step by step; each block holds an interned expression tree over
 * leaves (rank, block). A send is taken to be synchronous, so that no plan relies on buffering.
 * Proves: each result block holds every rank's contribution exactly once (ALLGATHER: the owner's
 * block); all ranks hold the same tree for the same block; no read of a block that was never
 * written or is stale; sends and receives match one to one, within a step, with equal counts;
 * slices in bounds; no remote read of a slice that its owner writes in the same step; only the
 * owner writes; blocks of different position never meet, and outside TMP a block lies at its own
 * position; the derived waits and awaits (when tiara_plan_depend ran) order every two accesses to
 * the same memory, whatever the speed of the ranks, and cannot deadlock.
 * Errors: TIARA_ERR_PLAN (report_out->text names rank, op, what; logged only when there is no
 * report), TIARA_ERR_NOMEM. @report_out may be NULL. Cost: O(blocks moved or added by all ranks),
 * and with waits O(remote reads x ops of their owner).
 */
TIARA_MUST_USE enum tiara_err tiara_plan_check(const struct tiara_plan *const *plans,
    const struct tiara_layout *layout, bool in_place, struct tiara_plan_report *report_out);

/* ---- text form: lib/plan/text.c ---- */

/* The words of the text form; for values in range. */
const char *tiara_coll_name(enum tiara_coll coll);
const char *tiara_op_name(enum tiara_op_kind kind);
const char *tiara_buf_name(enum tiara_buf buf);

/* Stable, one op a line, up to a line "end", for golden files and tiara-plan. ferror tells. */
void tiara_plan_print(const struct tiara_plan *plan, FILE *to);
/* Reads one plan that print wrote, and leaves @from behind it. @why as in tiara_layout_parse, with
 * the plan's line number. */
TIARA_MUST_USE enum tiara_err tiara_plan_parse(
    struct tiara_plan *plan_out, FILE *from, char *why, size_t why_size);

/* ---- the simulator: lib/plan/sim.c ---- */

/* Alpha-beta-gamma model: seconds, seconds per byte. A node's network link is shared by its ranks
 * in each direction. */
struct tiara_sim_model {
    double net_alpha, net_beta;
    double shm_alpha, shm_beta;
    double gamma; /* per byte of arithmetic */
};

/*
 * tiara_plan_simulate() - time of the slowest rank for one call
 * @plans: checked, with their dependencies; @bytes: of the whole vector (all nblocks blocks), cut
 *     into equal chunks of at most @chunk_bytes (0: one chunk), @slots >= 1 in flight. What costs
 *     what: sim.c.
 * Errors: TIARA_ERR_PLAN (no dependencies, or deadlock), TIARA_ERR_NOMEM.
 * Cost: O(ops x chunks x log) of all ranks.
 */
TIARA_MUST_USE enum tiara_err tiara_plan_simulate(const struct tiara_plan *const *plans,
    const struct tiara_layout *layout, const struct tiara_sim_model *model, double bytes,
    double chunk_bytes, int slots, double *seconds_out);

#endif
