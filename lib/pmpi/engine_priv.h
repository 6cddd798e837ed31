/*
 * The engine inside: which of its files offers what to the others.
 *
 * Life of a call: the shim hands it over; tiara_engine_passes() counts it on its communicator and
 * decides, alike on all ranks; then the caller hands it to the next definition, or
 * tiara_engine_serve() runs it.
 */
#ifndef TIARA_PMPI_ENGINE_PRIV_H
#define TIARA_PMPI_ENGINE_PRIV_H

#include "base/sync.h"
#include "pmpi/engine.h"
#include "tiara.h"
#include <stddef.h>
#include <stdint.h>

/* Kinds of intercepted collective calls. */
enum tiara_engine_kind {
    TIARA_KIND_ALLREDUCE,
    TIARA_KIND_IALLREDUCE,
    TIARA_KIND_ALLREDUCE_INIT,
    TIARA_KIND_REDUCE_SCATTER_BLOCK,
    TIARA_KIND_ALLGATHER,
    TIARA_NKINDS
};

/* The arguments of an intercepted collective call of any kind and language; borrowed. */
struct tiara_engine_args {
    enum tiara_engine_kind kind;
    const void *sendbuf; /* or MPI_IN_PLACE */
    void *recvbuf;
    MPI_Count count; /* recvcount of an Allgather */
    MPI_Datatype type; /* recvtype of an Allgather */
    MPI_Op op; /* not of an Allgather */
    MPI_Comm comm;
    int sendcount; /* of an Allgather */
    MPI_Datatype sendtype; /* of an Allgather */
    MPI_Info info; /* of an Allreduce_init */
    struct tiara_engine_comm *state; /* of @comm; of a call that does not pass */
};

/* What becomes of a call; the words for it are in engine_report.c. */
enum tiara_engine_fate {
    TIARA_FATE_SERVED,
    TIARA_FATE_FIRST, /* the communicator has not been used often enough */
    TIARA_FATE_EMPTY, /* no elements */
    TIARA_FATE_JUDGED, /* arguments that only MPI can judge */
    TIARA_FATE_ALONE, /* one rank */
    TIARA_FATE_INTER, /* intercommunicator */
    TIARA_FATE_FOREIGN, /* ranks of another MPI_COMM_WORLD */
    TIARA_FATE_UNPREPARED, /* nonblocking, and no blocking call has made what that needs */
    TIARA_FATE_TOOL, /* nonblocking, and a tool in front of the shim takes the completing calls */
    TIARA_FATE_DECLINED, /* Tiara would leave it to MPI */
    TIARA_NFATES
};

enum tiara_engine_mode {
    TIARA_MODE_OFF,
    TIARA_MODE_ON,
    TIARA_MODE_VERIFY
};

/* Agreed upon in init; constant afterwards. */
struct tiara_engine_settings {
    int mode; /* enum tiara_engine_mode */
    int report;
    int completes_all; /* on all ranks: see struct tiara_pmpi_host */
    int progress_by_calls; /* TIARA_PROGRESS=call */
    uint64_t after;
};

/* ---- engine_base.c ---- */

/*
 * The next definitions, which see what the engine passes on. Valid from tiara_pmpi_engine.init on.
 */
extern const struct tiara_pmpi_host *tiara_engine_host;
extern struct tiara_engine_settings tiara_engine_settings;
/* Runs a blocking call by Tiara. */
int tiara_engine_run(const struct tiara_engine_args *a);
/*
 * A communicator of the same ranks. Not a duplicate: that would run the copy functions of the
 * program's attributes. Collective over @comm. Returns an MPI code.
 */
int tiara_engine_like(MPI_Comm comm, MPI_Comm *like_out);
/* Raises @code on @comm, and returns it. */
int tiara_engine_raise(MPI_Comm comm, int code);

/* ---- engine_args.c ---- */

enum tiara_engine_judgement {
    TIARA_ARGS_RIGHT,
    TIARA_ARGS_ODD, /* MPI may run it */
    TIARA_ARGS_REFUSED /* MPI returns an error, and no other rank takes note of the call */
};

/* Learns what MPI refuses. Local; while the program makes no calls. */
void tiara_engine_args_init(void);
/* Whether buffers must be looked at by tiara_engine_judge(). */
static inline bool tiara_engine_is_odd(const void *sendbuf, const void *recvbuf)
{
    return sendbuf == recvbuf || !sendbuf || !recvbuf || recvbuf == MPI_IN_PLACE;
}
/* Buffers that are one become MPI_IN_PLACE. What is not right is handed on to MPI as it was. Local.
 */
enum tiara_engine_judgement tiara_engine_judge(struct tiara_engine_args *a);
/* Before Tiara serves a call that was judged: an all-gather may send the block of another rank.
 * Returns an MPI code that has been raised. */
int tiara_engine_part_buffers(struct tiara_engine_args *a);

/* ---- engine_comm.c ---- */

/* How far a communicator is: what the shortest way of a call must look at. */
enum tiara_engine_stage {
    /* each call is looked at: for the report, for verify, before something is made */
    TIARA_STAGE_SLOW,
    TIARA_STAGE_COUNTING, /* blocking calls pass, and are counted */
    TIARA_STAGE_PASSING, /* everything passes, for ever */
    TIARA_STAGE_ENGAGED /* known answers are good */
};

/* An answer of TIARA_Comm_serves; only of predefined types and operators, whose handles are never
 * used again for others. */
struct tiara_engine_known {
    MPI_Count count; /* 0: free */
    MPI_Datatype type;
    MPI_Op op;
    bool serve;
};
#define TIARA_ENGINE_NKNOWN 8

/* A communicator's state; one thread at a time, as collective calls on it follow each other. Freed
 * with it. */
struct tiara_engine_comm {
    enum tiara_engine_stage stage;
    enum tiara_engine_fate always; /* what becomes of all calls; TIARA_FATE_SERVED: it depends */
    uint64_t calls; /* intercepted ones so far, exact until engaged */
    bool unknown; /* Tiara could not say what it would do with the last call */
    bool wanted; /* there was a nonblocking call */
    bool prepared; /* TIARA_Comm_prepare was called after that */
    bool told[TIARA_NKINDS]; /* verify has shown a difference */
    /* a rank may have buffers that verify cannot copy: its nonblocking calls are left to MPI */
    bool no_shadows;
    int rank, size;
    struct tiara_engine_known known[TIARA_ENGINE_NKNOWN];
};

/* The last communicator of this thread. */
struct tiara_engine_last {
    MPI_Comm comm;
    struct tiara_engine_comm *state;
    uint64_t generation;
};
extern _Thread_local struct tiara_engine_last tiara_engine_last
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Counts freed states: a thread's last state is good only while nothing was freed since. */
extern tiara_u64 tiara_engine_generation;

/* The state of @comm when it was this thread's last, else NULL. */
static inline struct tiara_engine_comm *tiara_engine_comm_last(MPI_Comm comm)
{
    /* relaxed: a communicator is not freed by one thread while another calls on it */
    if (__builtin_expect(
            tiara_engine_last.comm == comm &&
                tiara_engine_last.generation == tiara_load_relaxed(&tiara_engine_generation),
            1))
        return tiara_engine_last.state;
    return NULL;
}
static inline struct tiara_engine_known *tiara_engine_slot(
    struct tiara_engine_comm *c, MPI_Count count, MPI_Datatype type, MPI_Op op)
{
    uintptr_t mixed =
        (uintptr_t)count ^ ((uintptr_t)count >> 3) ^ ((uintptr_t)type >> 8) ^ ((uintptr_t)op >> 4);

    return &c->known[mixed % TIARA_ENGINE_NKNOWN];
}

/* Local; before all others. False: MPI has no attributes left. */
bool tiara_engine_comm_init(void);
/* The state of @comm, made when it has none. NULL: it is no communicator. Local. */
struct tiara_engine_comm *tiara_engine_comm_get(MPI_Comm comm);
/*
 * MPI_Comm_free and MPI_Comm_disconnect. The delete functions of the program's attributes may use
 * the communicator; whether that is before Tiara's own attribute goes or after can differ by rank.
 * So all calls on a communicator that is going are left to MPI.
 */
int tiara_engine_comm_free(MPI_Comm *comm);
int tiara_engine_comm_disconnect(MPI_Comm *comm);
/*
 * tiara_engine_passes() - counts a call and decides
 * True: the caller hands it to its next definition, unchanged. False: tiara_engine_serve() must
 * follow, with @a as it is then. Each call is asked about once. Alike on all ranks of the
 * communicator, but for what MPI refuses on one. May be collective over it, in blocking kinds.
 */
bool tiara_engine_passes(struct tiara_engine_args *a);
/* Runs a call, by Tiara, or by both and compares. @request: of nonblocking and persistent kinds.
 * Returns an MPI code that has been raised. */
int tiara_engine_serve(struct tiara_engine_args *a, MPI_Request *request);

/* ---- engine_request.c: requests that are the engine's ---- */

/* engine_verify.c: the second run of a nonblocking call that is verified */
struct tiara_engine_shadow;

/*
 * What stands behind a request of the program.
 *
 * A nonblocking operation of Tiara's is, to MPI, a generalized request, which the engine completes;
 * a persistent one is a persistent receive from the process itself, which the engine starts, and
 * sends to, when the operation is complete. So the program has real handles, which may stand among
 * others in any list. With verify the request is MPI's own, and its operation has a shadow.
 */
struct tiara_engine_request {
    MPI_Request handle;
    TIARA_Request tiara;
    bool persistent, active;
    bool taken; /* by a call of the program's; engine_request.c's lock. Its handle may be free */
    bool done; /* complete for MPI too, and the program does not know yet */
    int code; /* what it ended with, once done; was raised */
    int tag; /* persistent: of the message that completes it */
    struct tiara_engine_shadow *shadow;
    struct tiara_engine_request *next; /* of the same bucket */
};

/* Starts, or prepares, what Tiara serves. @request: result. Returns an MPI code that has been
 * raised. */
int tiara_engine_start(const struct tiara_engine_args *a, MPI_Request *request);
/* Looks after an active operation; it may be done afterwards. Never waits. */
void tiara_engine_request_poll(struct tiara_engine_request *r);
/* Waits until an active operation is done. */
void tiara_engine_request_finish(struct tiara_engine_request *r);
/* The program knows that it is complete: the end of @r, unless it is persistent. */
void tiara_engine_request_settle(struct tiara_engine_request *r);
/* The program gives it up; the caller then frees the handle. */
void tiara_engine_request_give_up(struct tiara_engine_request *r);

/* Requests of the engine that exist. */
extern tiara_u64 tiara_engine_nrequests;
/*
 * owners_out: [count] the engine's requests behind @requests, NULL for others. They are the
 * caller's until they end, or are put back; a persistent one, whose handle stays, is nobody's.
 * Returns how many are the engine's.
 */
int tiara_engine_take(
    int count, const MPI_Request requests[], struct tiara_engine_request *owners_out[]);
void tiara_engine_put_back(int count, struct tiara_engine_request *owners[]);
/*
 * Whether one of @requests is the engine's: then its completion must go through
 * tiara_pmpi_engine.calls, with the C handle. Costs one load when the engine has no requests at
 * all.
 */
bool tiara_engine_owns(int count, const MPI_Request requests[]);
/* In MPI_Finalize: what is outstanding ends. */
void tiara_engine_drain(void);

/* ---- engine_complete.c: the program's calls on requests, as MPI defines them ---- */

int tiara_engine_wait(MPI_Request *request, MPI_Status *status);
int tiara_engine_waitall(int count, MPI_Request requests[], MPI_Status *statuses);
int tiara_engine_waitany(int count, MPI_Request requests[], int *index, MPI_Status *status);
int tiara_engine_waitsome(
    int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
int tiara_engine_test(MPI_Request *request, int *flag, MPI_Status *status);
int tiara_engine_testall(int count, MPI_Request requests[], int *flag, MPI_Status *statuses);
int tiara_engine_testany(
    int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status);
int tiara_engine_testsome(
    int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
int tiara_engine_request_free(MPI_Request *request);
int tiara_engine_request_get_status(MPI_Request request, int *flag, MPI_Status *status);
int tiara_engine_request_get_status_any(
    int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status);
int tiara_engine_request_get_status_all(
    int count, const MPI_Request requests[], int *flag, MPI_Status *statuses);
int tiara_engine_request_get_status_some(
    int incount, const MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
int tiara_engine_start_one(MPI_Request *request);
int tiara_engine_startall(int count, MPI_Request requests[]);

/* ---- engine_compare.c: whether two results may both be right ---- */

enum tiara_engine_verdict {
    TIARA_VERDICT_SAME,
    TIARA_VERDICT_DIFFERS,
    TIARA_VERDICT_UNKNOWN /* nothing is known about the type or the operator */
};

/* How results of a type and an operator are compared. */
struct tiara_engine_measure {
    enum {
        TIARA_MEASURE_BITS,
        TIARA_MEASURE_FLOAT,
        TIARA_MEASURE_DOUBLE,
        TIARA_MEASURE_LONG_DOUBLE,
        TIARA_MEASURE_NONE
    } number;
    int parts; /* numbers of an element: 2 of a complex one */
    bool rounds; /* within a bound that follows from the magnitudes; else exactly */
    bool product; /* magnitudes multiply; else they add up */
};

/* Where two results differ. */
struct tiara_engine_difference {
    MPI_Count index;
    char mpi[64], tiara[64];
};

/* @op: MPI_OP_NULL: data that is only moved. */
struct tiara_engine_measure tiara_engine_measure_of(MPI_Datatype type, MPI_Op op);
/* magnitudes_out: [count x parts] of @elems; what they sum up, or multiply, to over all ranks is
 * the scale of the error. */
void tiara_engine_magnitudes(const struct tiara_engine_measure *m, const void *elems,
    MPI_Count count, double *magnitudes_out);
/* What is compared. */
struct tiara_engine_pair {
    const void *mpi, *tiara; /* [count] of @type */
    MPI_Count count;
    MPI_Datatype type;
    const double *magnitudes; /* of all ranks; NULL unless the measure rounds */
    int ranks;
};
enum tiara_engine_verdict tiara_engine_compare(const struct tiara_engine_measure *m,
    const struct tiara_engine_pair *pair, struct tiara_engine_difference *difference_out);

/* ---- engine_verify.c ---- */

/*
 * Runs a blocking call twice, by MPI on the program's buffers and by Tiara on copies, and compares.
 */
int tiara_engine_verify(const struct tiara_engine_args *a);
/* Whether buffers may be in GPU memory, of which there are no copies. */
bool tiara_engine_has_cuda(void);
/* Starts a nonblocking call twice. @tiara: what is Tiara's of it. NULL: it failed with *rc_out,
 * which was raised. */
struct tiara_engine_shadow *tiara_engine_shadow_start(
    const struct tiara_engine_args *a, MPI_Request *request, TIARA_Request *tiara, int *rc_out);
/* The program has completed its request: compares, when Tiara is ready too. Waits for that. */
void tiara_engine_shadow_end(struct tiara_engine_shadow *s, TIARA_Request *tiara);
/* The program has given its request up: nothing will be compared. */
void tiara_engine_shadow_abandon(struct tiara_engine_shadow *s, TIARA_Request *tiara);
/* In MPI_Finalize: the end of those. */
void tiara_engine_shadow_drain(void);

/* ---- engine_report.c ---- */

/* Notes a call for the report; only when there will be one. @why: of TIARA_FATE_DECLINED, static
 * text; else NULL. Any thread. */
void tiara_engine_note(
    const struct tiara_engine_args *a, enum tiara_engine_fate fate, const char *why);
/* Notes a compared call. Any thread. */
void tiara_engine_note_verified(enum tiara_engine_verdict verdict);
/* In MPI_Finalize: measures, gathers and prints. Collective over MPI_COMM_WORLD. */
void tiara_engine_report(void);

#endif
