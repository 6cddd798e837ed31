/*
 * Tiara: TIered All-Reduce for Accelerated clusters. The whole public interface.
 *
 * What it is. Collectives for MPI programs on clusters with a fast wire inside each node and a slow
 * one between nodes. Each call reduces inside the node first, sends between nodes only what must be
 * sent, and spreads the result inside the node again, chunk by chunk, so that the three overlap.
 *
 * How to use it. Call TIARA_Allreduce where you would call MPI_Allreduce; the arguments mean the
 * same. There is no init and no finalize: the state of a communicator is made by the first call on
 * it, cached on it as an attribute, and freed with it, or in MPI_Finalize.
 *
 * What is promised
 *   - All ranks end with the same bits. A repeated run with the same layout gives the same bits.
 *     With TIARA_REPRODUCIBLE=1 the bits depend neither on the layout nor on chunking.
 *   - Whatever Tiara cannot do, or cannot do faster, is done by the MPI below, with the same
 *     result.
 *   - Ranks that call with different arguments get an error that says who called what, where Tiara
 *     can see it.
 *
 * Caveats
 *   - Collective rules are MPI's: all ranks of the communicator call, in the same order, with the
 *     same count, type signature and operator.
 *   - Call between MPI_Init and MPI_Finalize. Different threads may call at the same time on
 *     different communicators when MPI was initialised with MPI_THREAD_MULTIPLE.
 *   - Delete functions of a communicator's attributes run in an order that may differ by rank. One
 *     that calls Tiara on the communicator that is being freed needs the order to be the same. (A
 *     preloaded library leaves such calls to MPI.)
 *   - Environment variables (tiara(7)) are read once per process; rank 0 of a communicator decides
 *     for all.
 *   - A user-defined operator may be called on parts of the vector, in pieces of at least one
 *     element.
 *
 * Errors. Functions return an MPI error code, after raising it through the communicator's error
 * handler, as MPI's own do. After an error that leaves ranks in disagreement (MPI_ERR_OTHER), the
 * communicator's later calls go to the MPI below; when it is of a nonblocking call, its later
 * nonblocking calls fail as well.
 */
#ifndef TIARA_H
#define TIARA_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIARA_VERSION_MAJOR 0
#define TIARA_VERSION_MINOR 1
#define TIARA_VERSION_PATCH 0

/*
 * Types that MPI does not have. Arrays of 16-bit elements in the machine's byte order, or of 8-bit
 * elements (the e4m3 and e5m2 of the OCP); sums accumulate in float, and are rounded after each
 * addition in reproducible mode and in calls that the MPI below does. Sums and products of 8-bit
 * elements saturate: what is too large, infinity too, becomes the largest number of its sign. Valid
 * only as @datatype of TIARA_ functions, and only after MPI_Init. Owned by the library, never freed
 * by the caller. MPI_DATATYPE_NULL when they cannot be made.
 */
#define TIARA_FLOAT16 (TIARA_Type_float16())
#define TIARA_BFLOAT16 (TIARA_Type_bfloat16())
#define TIARA_FLOAT8_E4M3 (TIARA_Type_float8_e4m3())
#define TIARA_FLOAT8_E5M2 (TIARA_Type_float8_e5m2())
/*
 * The mean over all ranks (of an intercommunicator: of the other group): SUM, then each element
 * divided by the number of ranks (integers towards zero). Valid only as @op of TIARA_ functions.
 */
#define TIARA_AVG (TIARA_Op_avg())

MPI_Datatype TIARA_Type_float16(void);
MPI_Datatype TIARA_Type_bfloat16(void);
MPI_Datatype TIARA_Type_float8_e4m3(void);
MPI_Datatype TIARA_Type_float8_e5m2(void);
MPI_Op TIARA_Op_avg(void);

/*
 * TIARA_Allreduce() - combine @count elements of every rank; all ranks get the result
 * @sendbuf: count elements, borrowed until return, or MPI_IN_PLACE (on all ranks: then recvbuf is
 *     the input too)
 * @recvbuf: count elements, written
 * @datatype: predefined, TIARA_FLOAT16/BFLOAT16/FLOAT8_E4M3/FLOAT8_E5M2, or any committed derived
 *     type (with a user-defined @op)
 * @op:      predefined, TIARA_AVG or user-defined; applied in rank order when it is not commutative
 *
 * Collective over @comm; returns when recvbuf holds the result. Intercommunicators are passed
 * through to MPI.
 * Errors: MPI_ERR_COMM, MPI_ERR_COUNT (negative), MPI_ERR_TYPE, MPI_ERR_OP (not defined for the
 * type), MPI_ERR_BUFFER (null with count > 0, or sendbuf == recvbuf), MPI_ERR_NO_MEM, MPI_ERR_OTHER
 * (ranks disagree, a peer died).
 * Source: MPI 4.0, section 6.9.6.
 */
int TIARA_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

/* TIARA_Allreduce_c() - the same with a large count (MPI 4.0's MPI_Allreduce_c, on any MPI). */
int TIARA_Allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm);

/*
 * TIARA_Reduce_scatter_block() - combine size x @recvcount elements; rank r gets block r
 * @sendbuf: size x recvcount elements, or MPI_IN_PLACE (then recvbuf has size x recvcount, and the
 *     result is at its start)
 * @recvbuf: recvcount elements. Otherwise as TIARA_Allreduce. Source: MPI 4.0, section 6.10.1.
 */
int TIARA_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

/*
 * TIARA_Allgather() - every rank's @sendcount elements, in rank order, on all ranks
 * @sendbuf: or MPI_IN_PLACE (then the contribution is already in its place in recvbuf; sendcount
 *     and sendtype are ignored)
 * @recvbuf: size x recvcount elements. Source: MPI 4.0, section 6.7.
 */
int TIARA_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm);

/*
 * TIARA_Allreduce_multi() - all-reduce of @n buffers in one operation, as if TIARA_Allreduce were
 * called for each
 * @sendbufs: [n] counts[i] elements each, or MPI_IN_PLACE, as the array or as any of them (then
 *     recvbufs are the input too)
 * @recvbufs: [n] counts[i] elements each, written; no two may overlap
 * @counts:   [n] elements, alike on all ranks; 0 is allowed, and then its buffers may be NULL
 *
 * Many small buffers (the biases of a network, say) share one message, and pay one latency
 * together. The arrays are borrowed until return. Errors as TIARA_Allreduce; also MPI_ERR_COUNT for
 * n < 0.
 */
int TIARA_Allreduce_multi(int n, const void *const *sendbufs, void *const *recvbufs,
    const int *counts, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

/*
 * Nonblocking and persistent calls. MPI's rules hold (MPI 4.0, sections 3.7, 3.9, 6.12 and 6.13)
 * with TIARA_Request for MPI_Request: all ranks start their collective calls on a communicator,
 * blocking and nonblocking ones, in the same order; any number may be outstanding, and they may be
 * completed in any order; buffers are the library's from the start until completion; the
 * communicator may be freed before. A call that starts an operation never waits for another rank.
 *
 * Progress. An operation is never held up by a rank that computes, or that waits inside MPI: on one
 * node a thread of the library, which makes no MPI calls and sleeps while nothing is outstanding,
 * goes on where the program does not come by. Between nodes messages are needed, which MPI lets no
 * other thread send below MPI_THREAD_MULTIPLE: there Tiara runs nonblocking calls itself only where
 * TIARA_PROGRESS allows it (tiara(7)), and leaves them to the MPI below otherwise.
 *
 * Set-up. What nonblocking calls need is made by TIARA_Comm_prepare, or the first blocking call on
 * the communicator after a nonblocking one; until then they are the MPI's below. What a
 * persistent call needs is made by TIARA_Allreduce_init; small ones of a communicator share memory.
 */
typedef struct tiara_request *TIARA_Request;
#define TIARA_REQUEST_NULL ((TIARA_Request)0)

/*
 * TIARA_Iallreduce() - start what TIARA_Allreduce does
 * @request: result: owned by the caller until TIARA_Wait, TIARA_Test or one of their kind completes
 *     it, or TIARA_Request_free gives it up; TIARA_REQUEST_NULL after an error. Errors of the
 *     operation itself are returned, and raised, by the completing call.
 */
int TIARA_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, TIARA_Request *request);
int TIARA_Iallreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, TIARA_Request *request);

/*
 * TIARA_Allreduce_init() - prepare a persistent all-reduce: the arguments are bound, nothing is
 * started
 * @op: lives as long as the request
 * @info: MPI_INFO_NULL or hints, none of which is known
 *
 * Collective over @comm, and may wait for its other ranks. The request is inactive: TIARA_Start
 * starts it, a completing call makes it inactive again, TIARA_Request_free ends it. Ranks may start
 * their requests in any order. What Tiara does not serve is a persistent operation of the MPI
 * below: that needs MPI 4.0, or Open MPI 4.0 (else MPI_ERR_UNSUPPORTED_OPERATION); and whether it
 * can be started after @comm was freed is up to that MPI (in Open MPI 4.1 it cannot).
 */
int TIARA_Allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, MPI_Info info, TIARA_Request *request);
int TIARA_Allreduce_init_c(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, TIARA_Request *request);
/* Errors: MPI_ERR_REQUEST (null, not persistent, or active); then nothing is started. */
int TIARA_Start(TIARA_Request *request);
int TIARA_Startall(int count, TIARA_Request requests[]);

/*
 * Completion, as MPI_Wait, MPI_Test and their kind: a completed nonblocking request becomes
 * TIARA_REQUEST_NULL, a persistent one inactive. Null and inactive requests count as complete, with
 * an empty status. @status, @statuses: MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE, or written; the
 * status of a collective operation says nothing but MPI_ERROR, in those of all and some that return
 * MPI_ERR_IN_STATUS.
 * @index, @indices: MPI_UNDEFINED in *index or *outcount when no request of the list is active.
 */
int TIARA_Wait(TIARA_Request *request, MPI_Status *status);
int TIARA_Waitall(int count, TIARA_Request requests[], MPI_Status *statuses);
int TIARA_Waitany(int count, TIARA_Request requests[], int *index, MPI_Status *status);
int TIARA_Waitsome(
    int incount, TIARA_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
int TIARA_Test(TIARA_Request *request, int *flag, MPI_Status *status);
int TIARA_Testall(int count, TIARA_Request requests[], int *flag, MPI_Status *statuses);
int TIARA_Testany(int count, TIARA_Request requests[], int *index, int *flag, MPI_Status *status);
int TIARA_Testsome(
    int incount, TIARA_Request requests[], int *outcount, int indices[], MPI_Status *statuses);
/* Gives the request up: an operation that has been started goes on, and its buffers are the
 * library's until it has ended. */
int TIARA_Request_free(TIARA_Request *request);
/* Whether the operation is complete, without completing the request. */
int TIARA_Request_get_status(TIARA_Request request, int *flag, MPI_Status *status);

/*
 * TIARA_Comm_prepare() - make the state of @comm now, with what nonblocking calls need, instead of
 * in its first call
 * Collective over @comm. Success also when Tiara can only pass calls on to MPI.
 */
int TIARA_Comm_prepare(MPI_Comm comm);

/* Answers of TIARA_Comm_serves. */
enum {
    TIARA_SERVES_NO, /* the MPI below does it */
    TIARA_SERVES_YES,
    TIARA_SERVES_UNKNOWN /* the communicator has no state yet */
};
/*
 * TIARA_Comm_serves() - whether Tiara itself would do an all-reduce with these arguments, in host
 * memory, if it were called now
 * @nonblocking: asks for TIARA_Iallreduce, and counts as one: the next blocking call makes what it
 *     needs
 * @answer: result: TIARA_SERVES_...
 * @why: result: a few words without newline, never freed
 *
 * Local: makes no state, calls no other rank, costs well under a microsecond. The answer is alike
 * on all ranks that are at the same call. Of user-defined operators and derived types it is what
 * their size gives; MPI may still be needed to combine them.
 */
int TIARA_Comm_serves(MPI_Comm comm, int nonblocking, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, int *answer, const char **why);

/*
 * TIARA_Variable() - the value of an environment variable of tiara(7), as the library took it: the
 * default when it is not set or not acceptable
 * @name: with the prefix TIARA_
 * NULL for an unknown one. The text is never freed. Any time, any thread.
 */
const char *TIARA_Variable(const char *name);

/*
 * The version of the library that runs, which may be newer than the header. Any time, any thread.
 */
int TIARA_Get_version(int *major, int *minor, int *patch);

/*
 * TIARA_Explain() - what would TIARA_Allreduce with these arguments do, in words: algorithm,
 * levels, leaders, chunk, why
 * @text: [size] result, always terminated; truncated to fit. Collective over @comm (as the state
 *     may have to be made); no data moves. Errors as TIARA_Allreduce.
 */
int TIARA_Explain(
    MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, char *text, int size);

/* Sections of TIARA_Report. */
enum {
    TIARA_REPORT_BUILD, /* version, compiler, what was built in */
    TIARA_REPORT_LAYOUT, /* the communicator's layout, drawn */
    TIARA_REPORT_CAPABILITIES, /* what this machine allows: memfd, CMA, futex, instruction sets */
    TIARA_REPORT_ENVIRONMENT, /* every variable: value, default, where it came from, help */
    TIARA_REPORT_STATE, /* of the communicator: shared memory held, calls by path */
    /* GPUs that this process sees, and how each pair is linked; else why there are none */
    TIARA_REPORT_DEVICES
};
/*
 * TIARA_Report() - a section of text for people, lines ending in newline
 * @text: [size], always terminated; @length: bytes of the whole text without the terminator, also
 *     when it did not fit; may be NULL. BUILD, CAPABILITIES, ENVIRONMENT and DEVICES are local and
 *     ignore @comm; LAYOUT and STATE are collective.
 */
int TIARA_Report(int section, MPI_Comm comm, char *text, int size, int *length);

#ifdef __cplusplus
}
#endif

#endif
