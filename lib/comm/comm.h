/*
 * Private to lib/core: the state of a communicator, and how a call finds its element, its operator
 * and its plan.
 *
 * The life of a state. The first call on a communicator makes it (comm.c): all ranks exchange what
 * they know about themselves (hello.c), derive the same layout and settings, take or share the
 * node's arena (arena_pool.c) and, with several nodes, one private communicator for messages. It is
 * cached as an attribute and freed with the communicator. What cannot be had leaves a state that
 * passes every call on to the MPI below; every such decision is the same on all ranks.
 */
#ifndef TIARA_COMM_COMM_H
#define TIARA_COMM_COMM_H

#include "base/env.h"
#include "comm/device.h"
#include "exec/arena.h"
#include "exec/exec.h"
#include "topo/topo.h"
#include "tune/tune.h"
#include "tiara.h"

/* ---- settings: config.c ---- */

/* The settings that must be equal on all ranks, as one rank's environment gives them. Sent as
 * bytes. */
struct tiara_config {
    int32_t algo; /* index in tiara_algo_table; -1 auto, -2 the MPI below */
    int32_t inter; /* index; -1 auto */
    int32_t leaders, slots, spin, reproducible, shm, cma;
    int32_t cuda_map, progress; /* enum tiara_progress_choice */
    int64_t chunk, one_shot, shm_budget, cuda_cell;
    int64_t warn_us, timeout_us;
};

/* Choices of TIARA_PROGRESS, in the table's order. */
enum tiara_progress_choice {
    TIARA_PROGRESS_AUTO,
    TIARA_PROGRESS_THREAD,
    TIARA_PROGRESS_CALL
};

/*
 * Reads the environment (once) and sets the log and process-wide properties that need no agreement.
 */
void tiara_config_read(struct tiara_config *config_out);
/* This process's node by TIARA_LAYOUT, which describes MPI_COMM_WORLD; -1 when it is not set or not
 * acceptable. */
int tiara_config_node(void);

/* The process's trace, opened by tiara_config_read when TIARA_TRACE is set; NULL: off. Closed at
 * MPI_Finalize. */
struct tiara_trace *tiara_config_trace(void);
void tiara_config_release(void);

/* ---- exchanges: hello.c ---- */

struct tiara_comm;

struct tiara_hello {
    struct tiara_topo_facts topo;
    struct tiara_config config;
    int32_t version; /* of the library */
    int32_t world_rank;
    uint32_t next_id; /* above all ids of communicators of this process */
    int16_t device; /* enum tiara_device_level */
    int16_t device_direct; /* the MPI takes GPU memory */
    int32_t threads; /* what MPI_Query_thread says */
};

/*
 * in[bytes] of every rank ends in out[size * bytes] on all. Collective over @comm, on its
 * collective context, so that no receive of the program can take part of it. Yields while it waits.
 * Errors: TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_core_exchange(
    MPI_Comm comm, const void *in, void *out, size_t bytes);
/*
 * The same inside a call, with the call's wait, whose watchdog may end it when ranks called
 * differently. After an error other than TIARA_ERR_MPI the exchange is still pending: @in and @out
 * must stay for ever, as MPI has no way to take it back.
 */
TIARA_MUST_USE enum tiara_err tiara_core_exchange_by(
    MPI_Comm comm, struct tiara_wait *wait, const void *in, void *out, size_t bytes);

/*
 * Completes a collective of the MPI below that was started as a nonblocking one, and moves on
 * Tiara's own operations meanwhile. Returns MPI's code, which it has raised.
 */
int tiara_core_await(MPI_Request request);

/*
 * A vote of all ranks inside a call: *all_out has the bits that all ranks gave. Collective. Errors:
 * as tiara_core_exchange_by; after an error other than TIARA_ERR_MPI the communicator must be given
 * up.
 */
TIARA_MUST_USE enum tiara_err tiara_core_vote(
    struct tiara_comm *c, unsigned char mine, unsigned char *all_out);

/* ---- the arenas of this process: arena_pool.c ---- */

struct tiara_pool_entry;

/*
 * tiara_pool_take() - the arena of @c's node group: shared with other communicators of the same
 * group, or a new one
 * @room: [size * TIARA_GROUP_BYTES] for the exchanges, borrowed.
 * Collective over @c->comm; the same result everywhere. Sets c->arena (NULL when none could be had)
 * and c->pool.
 * Errors: TIARA_ERR_MPI, TIARA_ERR_NOMEM (then the state must be given up); lack of shared memory
 * is no error.
 */
#define TIARA_GROUP_BYTES 256 /* most bytes that a transport exchanges at a time */
TIARA_MUST_USE enum tiara_err tiara_pool_take(
    struct tiara_comm *c, const struct tiara_hello *hello, char *room);
void tiara_pool_give(struct tiara_pool_entry *entry);
/* The object of the transport cma for the entry's processes; NULL: none. */
void *tiara_pool_puller(const struct tiara_pool_entry *entry);
/* Frees what nobody uses; at MPI_Finalize. */
void tiara_pool_clear(void);
/* Whether freeing the entry takes all ranks of the node (a window of MPI's). */
bool tiara_pool_free_is_collective(const struct tiara_pool_entry *entry);
/* Bytes of shared memory that this process's segments hold now. */
size_t tiara_pool_bytes(void);

/* ---- a node's shared memory: node_memory.c ---- */

/* Choices of TIARA_SHM and TIARA_CMA, in the table's order. */
enum tiara_shm_choice {
    TIARA_SHM_AUTO,
    TIARA_SHM_MEMFD,
    TIARA_SHM_WINDOW,
    TIARA_SHM_OFF
};
enum tiara_cma_choice {
    TIARA_CMA_AUTO,
    TIARA_CMA_ON,
    TIARA_CMA_OFF
};

struct tiara_node_memory {
    struct tiara_comm *c;
    char *room; /* [size] for votes, borrowed */
    struct tiara_arena *arena; /* zeroed, the caller's */
    void *cma; /* result: object of the transport cma, given; NULL: none */
    MPI_Comm
        node_comm; /* result: given, to be freed after the arena is closed; MPI_COMM_NULL: none */
};

/*
 * tiara_node_memory_open() - the arenas of all nodes of m->c, by the best way that all can go
 * @cells: [ncells] sizes of a cell, tried in order while there is no room. Collective over
 *     m->c->comm; the same result on all ranks.
 * Errors: TIARA_ERR_NOSPACE, TIARA_ERR_UNSUPPORTED and others of the transports: there is no way.
 * TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_node_memory_open(
    struct tiara_node_memory *m, const size_t *cells, int ncells);

/* ---- communicators: comm.c, comm_fill.c ---- */

enum tiara_count_of {
    TIARA_COUNT_MPI,
    TIARA_COUNT_SMALL,
    TIARA_COUNT_PLAN,
    TIARA_COUNT_DEVICE, /* on GPUs */
    TIARA_COUNT_STAGED, /* of the others: GPU memory that went through host memory */
    TIARA_COUNT_JOB, /* nonblocking ones that Tiara runs itself, and those that are the MPI's */
    TIARA_COUNT_LEFT,
    TIARA_NCOUNT
};

/* Whom a plan is for. */
enum tiara_plan_use {
    TIARA_PLAN_HOST,
    TIARA_PLAN_BETWEEN, /* over the nodes, for leaders of small calls */
    TIARA_PLAN_DEVICE
};

struct tiara_cached_plan {
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
    enum tiara_plan_use use;
    /*
     * agreed: a rank could not prepare it. Kept, as the GPUs of others may know it by its address
     */
    bool unfit;
    struct tiara_plan plan;
    struct tiara_cached_plan *next;
};

struct tiara_comm {
    MPI_Comm comm; /* the user's; valid while the state lives */
    int rank, size;
    uint32_t id; /* alike on all ranks; not used by another communicator of this process */
    bool inter;
    bool twin; /* made by tiara_comm_twin */
    bool lean; /* a twin for one kind of call: it makes no usual plans */
    bool small_only; /* its arena needs no cells */
    bool threads; /* agreed: all ranks have MPI_THREAD_MULTIPLE */
    struct tiara_async *async; /* what nonblocking calls need; NULL: they go to the MPI below */
    bool async_wanted; /* there was a nonblocking call; alike on all ranks */
    const char *async_why; /* why there is none; NULL: it was not tried yet */
    struct tiara_layout layout;
    struct tiara_layout nodes_layout; /* one rank per node: for plans between leaders */
    struct tiara_config config; /* agreed */
    struct tiara_tune_facts facts;
    struct tiara_topo_facts *topo; /* [size], for drawings */
    int *node_index; /* [size] index in the own node, -1 elsewhere */
    int *column; /* [nnodes] the rank of each node with this rank's place on its node; -1: none */
    struct tiara_arena *arena;
    struct tiara_pool_entry *pool;
    struct tiara_wait wait; /* for calls without arena */
    struct tiara_exec exec;
    struct tiara_exec between; /* over the column: leaders of small calls */
    struct tiara_comm_device device;
    bool broken; /* a call failed: messages of it may still come */
    bool is_aborted; /* by a rank of another node, */
    int aborted_by; /* this one, */
    uint64_t aborted_in; /* in this call */
    uint64_t last_call; /* when it was given up or left: in this one */
    uint64_t calls_left; /* that have failed on peers before this rank came to them */
    MPI_Comm net; /* private; MPI_COMM_NULL on one node */
    void *net_obj;
    char *room; /* [size + 1] for the agreement on a new plan */
    struct tiara_cached_plan *plans;
    size_t fast_max; /* bytes up to which a native call takes the one-node small path */
    uint32_t digest; /* of the call that runs */
    uint64_t ncalls; /* so far, of those that Tiara looked at; alike on all ranks */
    uint64_t calls[TIARA_NCOUNT]; /* by path */
    struct tiara_comm *next; /* of all states of this process */
};

/* Whether calls that are left to MPI must be completed by tiara_core_await: nobody but the
 * program's calls drives nonblocking ones. Agreed. */
static inline bool tiara_core_pass_driven(const struct tiara_comm *c)
{
    return c->config.progress == TIARA_PROGRESS_CALL;
}

/*
 * The state of @comm, made when there is none. NULL after an error, which was raised (*rc_out is
 * it). Collective over @comm when it is made.
 */
struct tiara_comm *tiara_comm_get(MPI_Comm comm, int *rc_out);
/*
 * The state of @comm, if there is one: local. @wanted: a nonblocking call was made, so the next
 * blocking one makes what these need. Returns MPI_SUCCESS, or the error that MPI raised for the
 * handle.
 */
int tiara_comm_find(MPI_Comm comm, bool wanted, struct tiara_comm **c_out);
/* Fills a new state, whose communicator, rank and size are known. Collective. Errors:
 * TIARA_ERR_NOMEM, TIARA_ERR_MPI: it must be freed. */
TIARA_MUST_USE enum tiara_err tiara_comm_fill(struct tiara_comm *c);
/*
 * A second state on the same ranks, with an arena, messages and plans of its own, which no
 * communicator refers to: for async.c. @like: NULL, or the only call that it will be used for.
 * Collective.
 */
struct tiara_call;
TIARA_MUST_USE enum tiara_err tiara_comm_twin(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_comm **twin_out);
void tiara_comm_twin_free(struct tiara_comm *twin);
/* The last state that this thread used, when it is @comm's; else NULL. */
struct tiara_comm *tiara_comm_last(MPI_Comm comm);
/*
 * The private communicator for messages, made when a plan first needs one: the only communicator
 * that Tiara makes and keeps.
 * Collective; the caller agrees on the result. Errors: TIARA_ERR_UNSUPPORTED (MPI has none left),
 * TIARA_ERR_NOMEM, TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_comm_net(struct tiara_comm *c);
/* Prepares the wait of the call that begins: whose watchdog speaks. */
struct tiara_wait *tiara_comm_wait(struct tiara_comm *c);
/* After an error that leaves ranks in disagreement: later calls go to MPI, and ranks that wait for
 * this one get an error. */
void tiara_comm_give_up(struct tiara_comm *c);
/* The same in an earlier call than the last that was begun. */
void tiara_comm_give_up_in(struct tiara_comm *c, uint64_t number);
/* For a wait that does not end: what messages that nobody asked for say of their senders' calls. */
TIARA_MUST_USE enum tiara_err tiara_comm_inspect_net(struct tiara_comm *c);
/* The same for a communicator that has done nothing wrong, but whose arena was given up by another:
 * its call goes to MPI, and so do those of the ranks that wait for this one. */
void tiara_comm_leave(struct tiara_comm *c);

/* ---- elements and operators: elem.c, elem_mpi.c ---- */

/* What one element is to the engine, and how to combine two. */
struct tiara_elem {
    int type; /* enum tiara_type, or -1 */
    int oper; /* enum tiara_operator, TIARA_NOPER for AVG, or -1 */
    size_t size; /* bytes as the engine moves it */
    bool packed; /* the caller's layout has holes: the call works on packed copies */
    bool own; /* a type or operator that MPI does not know */
    const struct tiara_redop *redop; /* NULL: pass the call on to MPI */
};

/* A redop that calls the MPI below, or through it a user's function, with its scratch memory. */
struct tiara_elem_mpi {
    struct tiara_redop redop;
    MPI_Datatype type;
    MPI_Op op;
    bool packed;
    MPI_Aint extent, true_lb;
    size_t span_one; /* true extent: bytes that one element touches */
    size_t piece; /* elements combined at a time */
    char *acc, *next, *room; /* scratch, see elem_mpi.c */
};

/* Native element and operator; false when either is not. The fast path's look-up: no MPI call. */
bool tiara_elem_native(MPI_Datatype type, MPI_Op op, struct tiara_elem *elem_out);
/*
 * Any other pair that Tiara can combine through the MPI below: user-defined operators, pair types.
 * @m is released with tiara_elem_mpi_fini. elem_out->redop is NULL for a pair that only MPI can
 * judge. Errors: TIARA_ERR_NOMEM, TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_elem_other(
    MPI_Datatype type, MPI_Op op, struct tiara_elem *elem_out, struct tiara_elem_mpi *m);
void tiara_elem_mpi_fini(struct tiara_elem_mpi *m);
/* An element of @type that is only moved (all-gather); packed when its layout has holes. */
TIARA_MUST_USE enum tiara_err tiara_elem_moved(MPI_Datatype type, struct tiara_elem *elem_out);
/* A float of 16 or 8 bits: sums are rounded once per fold. */
bool tiara_elem_is_small_float(const struct tiara_elem *elem);
/* Strict rounding for reproducible mode: folds of small floats two by two. */
const struct tiara_redop *tiara_elem_strict(
    const struct tiara_redop *redop, struct tiara_redop *room);
/* Handles that Tiara makes: freed at MPI_Finalize. */
void tiara_elem_release(void);

/* ---- calls: call.c ---- */

struct tiara_call {
    enum tiara_coll coll;
    const void *in; /* == out: in place */
    void *out;
    size_t count; /* elements of the vector, or of one block */
    struct tiara_elem elem;
    bool far_in, far_out; /* GPU memory: tiara_device_classify */
    int ordinal; /* of its device; -1: not both, or not the same */
    uint64_t number; /* among the calls of its communicator; 0: the present one */
    bool begun; /* tiara_call_begin was called */
    bool is_missed; /* by ranks that have it done by the MPI below; it has failed here */
};

/*
 * tiara_call_run() - run a call whose arguments are checked, on dense elements
 * TIARA_ERR_UNSUPPORTED: this call is for the MPI below, on all ranks alike; nothing was moved.
 */
TIARA_MUST_USE enum tiara_err tiara_call_run(struct tiara_comm *c, const struct tiara_call *call);
/* What peers may print of a call, and pull from. */
struct tiara_arena_desc tiara_call_desc(const struct tiara_call *call);
/* A small one, on its host buffers, for exec. */
struct tiara_small_call tiara_call_small(const struct tiara_call *call);
/* What tune wants to know of a call; @device: on GPUs. */
void tiara_call_query(const struct tiara_call *call, bool device, struct tiara_tune_call *q_out);
/* 32 bits that differ when two ranks call differently, or on different communicators. */
uint32_t tiara_call_digest(const struct tiara_comm *c, const struct tiara_call *call);
/* Begins the call, once: the wait is its, and node peers may see what it is, as soon as something
 * of it is published. */
void tiara_call_begin(struct tiara_comm *c, struct tiara_call *call);
/* A call that this rank cannot even begin, after an error: the others learn of it. Returns an error
 * code, which is not raised. */
int tiara_call_abandon(struct tiara_comm *c, struct tiara_call *call);
/*
 * The same where it is not known whether the communicator has been given up already. Then the
 * others are in the MPI below, which would take this rank's next call for this one if it did not
 * take part. Returns @err, raised.
 */
int tiara_call_fail(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err);
/* The choice in words, for the log. */
void tiara_call_log(const struct tiara_comm *c, const struct tiara_tune_call *q,
    const struct tiara_tune_choice *choice);
/* The plan of a choice, made and agreed upon when it is new. Collective then. */
TIARA_MUST_USE enum tiara_err tiara_core_plan(struct tiara_comm *c,
    const struct tiara_tune_choice *choice, enum tiara_plan_use use,
    const struct tiara_plan **plan_out);
/* Whether it is there already: the same on all ranks. */
bool tiara_core_has_plan(
    const struct tiara_comm *c, const struct tiara_tune_choice *choice, enum tiara_plan_use use);
/* Makes the plans of ordinary all-reduces of all sizes at set-up, where ranks cannot yet have
 * called differently. */
TIARA_MUST_USE enum tiara_err tiara_core_plan_usual(struct tiara_comm *c);
/* Small or of any size, for types and operators that MPI does not know, where no arena is to be
 * had. */
TIARA_MUST_USE enum tiara_err tiara_call_gather_fold(
    struct tiara_comm *c, const struct tiara_call *call);
TIARA_MUST_USE enum tiara_err tiara_call_scatter_fold(
    struct tiara_comm *c, const struct tiara_call *call);
/* The same for a native element on one node, up to c->fast_max bytes: without asking what to
 * choose. */
TIARA_MUST_USE enum tiara_err tiara_call_fast(struct tiara_comm *c, struct tiara_call *call);

/* ---- GPU buffers that only the CPU can work on: near.c ---- */

/*
 * A copy in host memory of a buffer in GPU memory, for calls that the MPI below does, or that have
 * to be packed. Of a buffer in host memory: itself.
 */
struct tiara_near {
    void *buf; /* what to give to MPI */
    void *user;
    char *copy; /* NULL: host memory */
    MPI_Aint first; /* bytes from user to the lowest touched one */
    size_t bytes;
};
/* Whether MPI_IN_PLACE, a null pointer or an address in host memory: then nothing has to be done
 * for it. */
bool tiara_near_is(const void *buf);
/*
 * @fetch: the copy has the contents of [@count] elements of @type at @buf; else it has them only
 *     where the type has holes. Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS, TIARA_ERR_MPI. Close
 *     accepts the object after them.
 */
TIARA_MUST_USE enum tiara_err tiara_near_open(struct tiara_comm *c, struct tiara_near *near,
    const void *buf, size_t count, MPI_Datatype type, bool fetch);
/*
 * Before a call goes to the MPI below: whether all ranks can begin it, with the copies that it
 * needs. Collective, where GPU memory is possible at all. Errors: @mine; TIARA_ERR_PEER when
 * another rank cannot.
 */
TIARA_MUST_USE enum tiara_err tiara_near_agree(struct tiara_comm *c, enum tiara_err mine);
/* Without writing anything back. */
void tiara_near_drop(struct tiara_near *near);
/* @store: writes the copy back. */
TIARA_MUST_USE enum tiara_err tiara_near_close(
    struct tiara_comm *c, struct tiara_near *near, bool store);

/*
 * Packs @count elements of @type at @from, @extent apart and @size bytes of data each, into @to;
 * @unpack: the other way. Returns MPI's code. The sizes of MPI's calls are ints; so it takes
 * several.
 */
int tiara_core_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack);

/* ---- arguments: api.c ---- */

/* Null, aliased or misplaced buffers of a call with data. Absolute addresses (MPI_BOTTOM) are for
 * derived types. */
bool tiara_core_bad_buffers(const void *sendbuf, const void *recvbuf, bool native);
/* Null handles, and what Tiara adds to MPI in a pair that is not defined (@other: not native); the
 * error class or MPI_SUCCESS. */
int tiara_core_bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other);
/*
 * Has MPI judge handles that Tiara does not know, without data: it returns or raises its own error.
 * Collective only where an MPI makes a call without elements collective.
 */
int tiara_core_check_by_mpi(MPI_Comm comm, MPI_Datatype type, MPI_Op op);

/* Raises the MPI error @code on @comm, and returns it. */
int tiara_core_raise_code(MPI_Comm comm, int code);
/* Raises @err on @comm as an MPI error code, which is returned. */
int tiara_core_raise(MPI_Comm comm, enum tiara_err err);

#endif
