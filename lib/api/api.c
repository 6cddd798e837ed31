/*
 * The blocking calls of tiara.h.
 */
#include "api/describe.h"
#include "api/process.h"
#include "call/async.h"
#include "call/below.h"
#include "call/oneshot.h"
#include "call/run.h"
#include "call/stream.h"
#include "tiara.h"
#include "tiara_cuda.h"

/* @stream: where it is to run; NULL: here. Without data nothing is to be done, but by MPI, where it
 * judges. */
static int run(
    enum tiara_coll coll, const struct tiara_args *args, MPI_Comm comm, struct CUstream_st **stream)
{
    struct tiara_description d;
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = tiara_describe(&d, comm, c, coll, args);
    if (rc == MPI_SUCCESS && !c)
        rc = tiara_below_run(comm, NULL, &d.call);
    else if (rc == MPI_SUCCESS && (d.call.count > 0 || c->inter))
        /* What this rank alone cannot do is said where all other calls say it. */
        rc = stream && !c->inter && d.err == TIARA_OK ? tiara_stream_run(c, &d.call, *stream)
                                                      : tiara_run(c, &d.call, d.err);
    tiara_describe_end(&d);
    return rc;
}

/* ---- all-reduce ---- */

/* The shortest way of the commonest call: a small vector of a native type on one node. -1: not such
 * a call. */
static inline int allreduce_fast(struct tiara_comm *c, const void *sendbuf, void *recvbuf,
    MPI_Count count, MPI_Datatype type, MPI_Op op)
{
    struct tiara_elem elem;
    enum tiara_err err;

    if (count <= 0 || (size_t)count > c->fast_max || !tiara_elem_native(type, op, &elem) ||
        !tiara_oneshot_is_fast(c, (size_t)count * elem.size) || !sendbuf || !recvbuf ||
        sendbuf == recvbuf || recvbuf == MPI_IN_PLACE)
        return -1;
    err = tiara_oneshot_fast(
        c, &elem, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, (size_t)count);
    if (__builtin_expect(err == TIARA_OK, 1))
        return MPI_SUCCESS;
    return err == TIARA_ERR_UNSUPPORTED ? -1 : tiara_below_raise(c->comm, err);
}

static inline int allreduce(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm)
{
    struct tiara_comm *c = tiara_comm_last(comm);
    int rc = c ? allreduce_fast(c, sendbuf, recvbuf, count, type, op) : -1;
    struct tiara_args args;

    if (__builtin_expect(rc != -1, 1))
        return rc;
    args = (struct tiara_args){sendbuf, recvbuf, count, type, op, 0, MPI_DATATYPE_NULL};
    return run(TIARA_COLL_ALLREDUCE, &args, comm, NULL);
}

int TIARA_Allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm)
{
    return allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int TIARA_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

/* ---- reduce-scatter, all-gather ---- */

int TIARA_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct tiara_args args = {sendbuf, recvbuf, recvcount, datatype, op, 0, MPI_DATATYPE_NULL};

    return run(TIARA_COLL_REDUCE_SCATTER, &args, comm, NULL);
}

int TIARA_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    struct tiara_args args = {
        sendbuf, recvbuf, recvcount, recvtype, MPI_OP_NULL, sendcount, sendtype};

    return run(TIARA_COLL_ALLGATHER, &args, comm, NULL);
}

/* ---- on streams ---- */

int TIARA_Allreduce_on_stream(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, struct CUstream_st *stream)
{
    struct tiara_args args = {sendbuf, recvbuf, count, datatype, op, 0, MPI_DATATYPE_NULL};

    return run(TIARA_COLL_ALLREDUCE, &args, comm, &stream);
}

int TIARA_Comm_synchronize(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    return c ? tiara_stream_synchronize(c) : rc;
}

int TIARA_Comm_prepare(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    return c ? tiara_below_raise(comm, tiara_async_open(c)) : rc;
}
