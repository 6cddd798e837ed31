/*
 * The state of a communicator: made by its first call, cached as an attribute of it, freed with it.
 *
 * All ranks tell each other what they know about themselves (bootstrap.h), derive the same layout
 * and settings, take or share the node's arena (arena_pool.h) and, with several nodes, open a
 * transport for messages (net.h). What cannot be had leaves a state that passes every call on to
 * the MPI below; every such decision is the same on all ranks (agree.h).
 */
#ifndef TIARA_COMM_COMM_H
#define TIARA_COMM_COMM_H

#include "comm/config.h"
#include "comm/device.h"
#include "comm/state.h"
#include "exec/arena.h"
#include "exec/exec.h"
#include "topo/topo.h"
#include "tune/tune.h"
#include <mpi.h>

enum tiara_count_of {
    TIARA_COUNT_MPI,
    TIARA_COUNT_ONESHOT,
    TIARA_COUNT_PLAN,
    TIARA_COUNT_DEVICE, /* on GPUs */
    TIARA_COUNT_STAGED, /* of the others: GPU memory that went through host memory */
    TIARA_COUNT_TASK, /* nonblocking ones that Tiara runs itself, and those that are the MPI's */
    TIARA_COUNT_LEFT,
    TIARA_NCOUNT
};

struct tiara_comm {
    MPI_Comm comm; /* the user's; valid while the state lives */
    int rank, size;
    /* Alike on all ranks; no other communicator of this process has it, unless both were set up at
     * the same time. */
    uint32_t id;
    bool inter;
    bool twin; /* made by tiara_comm_twin */
    bool lean; /* a twin for one kind of call: it makes no usual plans */
    bool small_only; /* its arena needs no cells */
    bool threads; /* agreed: all ranks have MPI_THREAD_MULTIPLE */
    struct tiara_comm_state state;

    /* Facts: they do not change after set-up. */
    struct tiara_layout layout;
    struct tiara_layout nodes_layout; /* one rank per node: for plans between leaders */
    struct tiara_config config; /* agreed */
    struct tiara_tune_facts facts;
    struct tiara_topo_facts *topo; /* [size], for drawings */
    int *node_index; /* [size] index in the own node, -1 elsewhere */
    int *rail; /* [nnodes] the rank of each node with this rank's place on its node; -1: none */

    /* What calls use, one at a time. */
    struct tiara_pool_entry *pool;
    struct tiara_arena *arena; /* the pool's; NULL: none */
    void *cma; /* the pool's: single copy between the node's processes; NULL: none */
    struct tiara_wait wait; /* for calls without arena */
    struct tiara_exec exec;
    struct tiara_exec between; /* over the rail: leaders of small calls */
    struct tiara_run *run, *run_between; /* of both executors */
    void *net_obj; /* messages to other nodes, by exec.net; NULL: none are needed */
    uint64_t agreed[2]; /* what an agreement sends, and receives */
    MPI_Comm apart; /* for tiara_below_agree; MPI_COMM_NULL: the program's */
    struct tiara_cached_plan *plans;
    struct tiara_comm_device device;

    struct tiara_async *async; /* what nonblocking calls need; NULL: they go to the MPI below */
    struct tiara_segment *segments; /* of small persistent calls; the layer above knows them */
    bool async_wanted; /* there was a nonblocking call; alike on all ranks */
    const char *async_why; /* why there is none; NULL: it was not tried yet */

    /* A rank of another node revoked: this one, in this call. */
    bool is_aborted;
    int aborted_by;
    uint64_t aborted_in;

    size_t fast_max; /* bytes up to which a native call takes the one-node small path */
    uint32_t digest; /* of the call that runs */
    uint64_t ncalls; /* so far, of those that Tiara looked at; alike on all ranks */
    uint64_t calls[TIARA_NCOUNT]; /* by path */
    struct tiara_comm *next; /* of all states of this process */
};

static inline bool tiara_comm_serves(const struct tiara_comm *c)
{
    return c->state.phase == TIARA_COMM_SERVING;
}

/*
 * Makes the attribute's key; before any other function here, once. @fini: called for each state
 * that is freed, for what the layers above keep in it. Returns MPI's code.
 */
int tiara_comm_open(void (*fini)(struct tiara_comm *c));
/* Frees all states; at MPI_Finalize, when MPI still works. */
void tiara_comm_close(void);

/*
 * The state of @comm, made when there is none: then collective over @comm. NULL: this call is for
 * the MPI below, on all ranks alike, as one had no memory; or an error was raised (*rc_out is it).
 */
struct tiara_comm *tiara_comm_get(MPI_Comm comm, int *rc_out);
/*
 * The state of @comm, if there is one: local. @wanted: a nonblocking call was made, so the next
 * blocking one makes what these need. Returns MPI_SUCCESS, or the error that MPI raised for the
 * handle.
 */
int tiara_comm_find(MPI_Comm comm, bool wanted, struct tiara_comm **c_out);
/* Whether the communicator that had the handle @comm and the id @id is there still; MPI may have
 * given its handle to another one. Local. */
bool tiara_comm_lives(MPI_Comm comm, uint32_t id);
/* The last state that this thread used, when it is @comm's; else NULL. */
struct tiara_comm *tiara_comm_last(MPI_Comm comm);
/*
 * A second state on the same ranks, with an arena, messages and plans of its own, which no
 * communicator refers to: for nonblocking calls. @lean, @small_only: see the fields. Collective
 * inside a call.
 * Errors: TIARA_ERR_NOMEM, agreed: there is none. TIARA_ERR_MPI, those of tiara_agree.
 */
TIARA_MUST_USE enum tiara_err tiara_comm_twin(
    struct tiara_comm *c, bool lean, bool small_only, struct tiara_comm **twin_out);
/* A twin, or another state that nothing refers to. */
void tiara_comm_free(struct tiara_comm *c);

#endif
