/*
 * Tiara: TIered All-Reduce for Accelerated clusters. The whole public interface.
 *
 * What it is. Collectives for MPI programs on clusters with a fast wire inside each node and a slow
 * one between nodes. Each call reduces inside the node first, sends between nodes only what must be
 * sent, and spreads the result inside the node again, chunk by chunk, so that the three overlap.
 *
 * How to use it. Call TIARA_Allreduce where you would call MPI_Allreduce; the arguments mean the same.
 * There is no init and no finalize: the state of a communicator is made by the first call on
 * it, cached on it as an attribute, and freed with it, or in MPI_Finalize.
 *
 * What is promised
 *   - All ranks end with the same bits. A repeated run with the same layout gives the same bits. With
 *     TIARA_REPRODUCIBLE=1 the bits depend neither on the layout nor on chunking.
 *   - Whatever Tiara cannot do, or cannot do faster, is done by the MPI below, with the same result.
 *   - Ranks that call with different arguments get an error that says who called what, where Tiara can see it.
 *
 * Caveats
 *   - Collective rules are MPI's: all ranks of the communicator call, in the same order, with the same
 *     count, type signature and operator.
 *   - Call between MPI_Init and MPI_Finalize. Different threads may call at the same time on different
 *     communicators when MPI was initialised with MPI_THREAD_MULTIPLE.
 *   - Environment variables (tiara(7)) are read once per process; rank 0 of a communicator decides for all.
 *   - A user-defined operator may be called on parts of the vector, in pieces of at least one element.
 *
 * Errors. Functions return an MPI error code, after raising it through the communicator's error
 * handler, as MPI's own do. After an error that leaves ranks in disagreement (MPI_ERR_OTHER), the communicator's
 * later calls go to the MPI below.
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
 * Types that MPI does not have. Arrays of 16-bit elements in the machine's byte order, or of 8-bit elements (the e4m3
 * and e5m2 of the OCP); sums accumulate in float. Sums and products of 8-bit elements saturate: what is too large,
 * infinity too, becomes the largest number of its sign. Valid only as @datatype of TIARA_ functions, and only after
 * MPI_Init. Owned by the library, never freed by the caller. MPI_DATATYPE_NULL when they cannot be made.
 */
#define TIARA_FLOAT16 (TIARA_Type_float16())
#define TIARA_BFLOAT16 (TIARA_Type_bfloat16())
#define TIARA_FLOAT8_E4M3 (TIARA_Type_float8_e4m3())
#define TIARA_FLOAT8_E5M2 (TIARA_Type_float8_e5m2())
/*
 * The mean over all ranks: SUM, then each element divided by the number of ranks (integers towards zero). Valid
 * only as @op of TIARA_ functions.
 */
#define TIARA_AVG (TIARA_Op_avg())

MPI_Datatype TIARA_Type_float16(void);
MPI_Datatype TIARA_Type_bfloat16(void);
MPI_Datatype TIARA_Type_float8_e4m3(void);
MPI_Datatype TIARA_Type_float8_e5m2(void);
MPI_Op TIARA_Op_avg(void);

/*
 * TIARA_Allreduce() - combine @count elements of every rank; all ranks get the result
 * @sendbuf: count elements, borrowed until return, or MPI_IN_PLACE (on all ranks: then recvbuf is the input too)
 * @recvbuf: count elements, written
 * @datatype: predefined, TIARA_FLOAT16/BFLOAT16/FLOAT8_E4M3/FLOAT8_E5M2, or any committed derived type (with a user-defined @op)
 * @op:      predefined, TIARA_AVG or user-defined; applied in rank order when it is not commutative
 *
 * Collective over @comm; returns when recvbuf holds the result. Intercommunicators are passed through to MPI.
 * Errors: MPI_ERR_COMM, MPI_ERR_COUNT (negative), MPI_ERR_TYPE, MPI_ERR_OP (not defined for the type),
 * MPI_ERR_BUFFER (null with count > 0, or sendbuf == recvbuf), MPI_ERR_NO_MEM, MPI_ERR_OTHER (ranks disagree, a peer died).
 * Source: MPI 4.0, section 6.9.6.
 */
int TIARA_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

/* TIARA_Allreduce_c() - the same with a large count (MPI 4.0's MPI_Allreduce_c, on any MPI). */
int TIARA_Allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm);

/*
 * TIARA_Reduce_scatter_block() - combine size x @recvcount elements; rank r gets block r
 * @sendbuf: size x recvcount elements, or MPI_IN_PLACE (then recvbuf has size x recvcount, and the result is at its start)
 * @recvbuf: recvcount elements. Otherwise as TIARA_Allreduce. Source: MPI 4.0, section 6.10.1.
 */
int TIARA_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

/*
 * TIARA_Allgather() - every rank's @sendcount elements, in rank order, on all ranks
 * @sendbuf: or MPI_IN_PLACE (then the contribution is already in its place in recvbuf; sendcount and sendtype are ignored)
 * @recvbuf: size x recvcount elements. Source: MPI 4.0, section 6.7.
 */
int TIARA_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm);

/*
 * TIARA_Comm_prepare() - make the state of @comm now, instead of in its first call
 * Collective over @comm. Success also when Tiara can only pass calls on to MPI.
 */
int TIARA_Comm_prepare(MPI_Comm comm);

/* The version of the library that runs, which may be newer than the header. Any time, any thread. */
int TIARA_Get_version(int *major, int *minor, int *patch);

/*
 * TIARA_Explain() - what would TIARA_Allreduce with these arguments do, in words: algorithm, levels, leaders, chunk, why
 * @text: [size] result, always terminated; truncated to fit. Collective over @comm (as the state may have to be made);
 * no data moves. Errors as TIARA_Allreduce.
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
    TIARA_REPORT_DEVICES /* GPUs that this process sees, and how each pair is linked; else why there are none */
};
/*
 * TIARA_Report() - a section of text for people, lines ending in newline
 * @text: [size], always terminated; @length: bytes of the whole text without the terminator, also when it did not fit;
 * may be NULL. BUILD, CAPABILITIES, ENVIRONMENT and DEVICES are local and ignore @comm; LAYOUT and STATE are collective.
 */
int TIARA_Report(int section, MPI_Comm comm, char *text, int size, int *length);

#ifdef __cplusplus
}
#endif

#endif
