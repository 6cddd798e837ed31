/*
 * Tiara on GPU memory: what tiara.h does not have.
 *
 * The functions of tiara.h take pointers to GPU memory (cudaMalloc, cudaMallocAsync, VMM) as they
 * take those to host memory; ranks may differ in it. As in MPI, they know no streams: what a kernel
 * or a copy of the program still writes must be finished before the call, and the result is there
 * when it returns. This header has the call that is ordered in a stream instead.
 *
 * It needs no header of CUDA: struct CUstream_st * is cudaStream_t.
 */
#ifndef TIARA_CUDA_H
#define TIARA_CUDA_H

#include "tiara.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * TIARA_Allreduce_on_stream() - TIARA_Allreduce_c, ordered in @stream
 * @sendbuf, @recvbuf: GPU memory of one device, on all ranks; borrowed until the stream has passed
 *     the call. MPI_IN_PLACE as ever.
 * @stream: of that device, on every rank its own; NULL: the default stream
 *
 * Collective over @comm, in the same order on all ranks as all its other calls. Returns as soon as
 * the call is enqueued: work that was enqueued in the stream before it is its input, and work
 * enqueued after it sees the result. The first call on a communicator, and the first of each kind,
 * waits for the other ranks, to set up.
 *
 * Ranks of several nodes: a thread of the library drives the network part; MPI must have been
 * initialised with MPI_THREAD_MULTIPLE. Where it was not, and for types and operators that kernels
 * do not know, the call waits for the stream and for its own end before it returns.
 *
 * May be captured into a CUDA graph where all ranks share a node and an earlier call of the same
 * size and type on the communicator was not captured. A graph is then launched on all ranks, as
 * often as wanted, in the same order as the communicator's other calls, and never at the same time
 * as one of them.
 *
 * Errors: those of TIARA_Allreduce; MPI_ERR_BUFFER when a buffer is not GPU memory, naming rank,
 * argument and what it is; MPI_ERR_UNSUPPORTED_OPERATION when @stream is being captured and the
 * call cannot be. A failure after the return (a peer died, ranks called differently) is raised by
 * the next call on @comm.
 */
int TIARA_Allreduce_on_stream(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, struct CUstream_st *stream);

/*
 * TIARA_Comm_synchronize() - wait for all calls that were enqueued on @comm, and raise what they
 * failed with Local, unless a call has failed: then it may wait until the other ranks have made the
 * calls that this one has made. After an error buffers are in use until the stream has come to an
 * end (cudaStreamSynchronize).
 */
int TIARA_Comm_synchronize(MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif
