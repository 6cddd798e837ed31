/*
 * A scene: threads as ranks that have all that a call needs, a node's arena, a network and
 * executors.
 *
 * A test writes one function that every rank plays. The actor is the rank's own; what it does goes
 * through the same entries of lib/exec as the library's calls, in the same order. Expected results
 * come from the test data, so that a block at a wrong place, or of an older call, is seen.
 */
#ifndef TIARA_TEST_SCENE_H
#define TIARA_TEST_SCENE_H

#include "algo/algo.h"
#include "exec/arena.h"
#include "exec/exec.h"

/* What one rank has while it plays. */
struct tiara_actor {
    int rank;
    const struct tiara_layout *layout;
    struct tiara_arena arena;
    struct tiara_exec exec;
    struct tiara_exec between; /* over the nodes, for the leaders of small calls */
    const struct tiara_redop *op; /* i64 sum; a test may put another in front of it */
    const struct tiara_mem *mem; /* of small calls */
    void *net; /* owned */
    void *stage; /* owned */
    int *node_index; /* [nranks] owned */
    int *leaders; /* [nnodes] owned */
    int wrong; /* calls with a wrong result */
};

/* One call, alike on all ranks. Elements are int64_t. */
struct tiara_act {
    enum tiara_coll coll;
    const struct tiara_plan *plan; /* NULL: small slots */
    const struct tiara_plan *between; /* small slots on several nodes: the leaders' plan */
    size_t count; /* elements of the vector, or of a block */
    size_t chunk_elems;
    int slots;
    bool in_place; /* not for REDUCE_SCATTER */
    bool device_in,
        device_out; /* in device memory (staged.h), on ranks of even number; alike when in place */
    uint32_t digest;
};

/* What a rank plays. Returns its number of failures. */
typedef int (*tiara_play_fn)(struct tiara_actor *actor, void *arg);

/*
 * tiara_scene_run() - play as all ranks of @layout, a text as in tiara_layout_parse(); returns the
 * number of failures A wrong result is a failure too. @arg is the same for all.
 */
int tiara_scene_run(const char *layout, size_t cell_bytes, tiara_play_fn play, void *arg);

/* The plan of @rank with the waits on its node peers. The caller runs tiara_plan_fini() also after
 * an error. */
TIARA_MUST_USE enum tiara_err tiara_scene_plan(const struct tiara_layout *layout, int rank,
    const struct tiara_algo *algo, const struct tiara_algo_opts *opts, struct tiara_plan *plan_out);

/* The plan of flat @algo between the nodes, for tiara_act.between. */
TIARA_MUST_USE enum tiara_err tiara_scene_plan_between(const struct tiara_layout *layout, int rank,
    const struct tiara_algo *algo, struct tiara_plan *plan_out);

/* The call alone, on the caller's data. */
TIARA_MUST_USE enum tiara_err tiara_actor_call(
    struct tiara_actor *actor, const struct tiara_act *act, const int64_t *in, int64_t *out);

/*
 * tiara_actor_perform() - the call on data of @round, and a look at the result A wrong result is
 * counted in the actor and printed, and is no error; so that all ranks go on together. When the
 * call fails, the peers are told.
 */
TIARA_MUST_USE enum tiara_err tiara_actor_perform(
    struct tiara_actor *actor, const struct tiara_act *act, int round);

#endif
