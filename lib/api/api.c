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

/* ---- what the calls share ---- */

/* A call without a state: one rank had no memory for it, and all pass this call on. */
static int run_stateless(MPI_Comm comm, int rc, enum tiara_coll coll, const struct tiara_args *args)
{
    struct tiara_call call;

    if (rc != MPI_SUCCESS)
        return rc;
    tiara_describe_raw(&call, coll, args);
    if (coll != TIARA_COLL_ALLGATHER && !tiara_elem_native(args->type, args->op, &call.elem))
        rc = tiara_describe_bad_handles(args->type, args->op, &call.elem);
    return rc == MPI_SUCCESS ? tiara_below_run(comm, NULL, &call)
                             : tiara_below_raise_code(comm, rc);
}

/* @rc: of its description. Nothing is to be done for no data, but by MPI, where it judges. */
static int run(struct tiara_comm *c, struct tiara_description *d, int rc)
{
    if (rc == MPI_SUCCESS && (d->call.count > 0 || c->inter))
        rc = tiara_run(c, &d->call, d->err);
    tiara_describe_end(d);
    return rc;
}

static int reduce(enum tiara_coll coll, const struct tiara_args *args, MPI_Comm comm)
{
    struct tiara_description d;
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    if (!c)
        return run_stateless(comm, rc, coll, args);
    return run(c, &d, tiara_describe_reduction(&d, c, coll, args));
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
    return reduce(TIARA_COLL_ALLREDUCE, &args, comm);
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

    return reduce(TIARA_COLL_REDUCE_SCATTER, &args, comm);
}

int TIARA_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    struct tiara_args args = {
        sendbuf, recvbuf, recvcount, recvtype, MPI_OP_NULL, sendcount, sendtype};
    struct tiara_description d;
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    if (!c)
        return run_stateless(comm, rc, TIARA_COLL_ALLGATHER, &args);
    return run(c, &d, tiara_describe_allgather(&d, c, &args));
}

/* ---- on streams ---- */

/* Wrong arguments, calls without data, and those of a process without CUDA are judged where all
 * others are. */
static int reduce_on_stream(struct tiara_comm *c, const struct tiara_args *args, void *stream)
{
    struct tiara_description d;
    int rc = tiara_describe_reduction(&d, c, TIARA_COLL_ALLREDUCE, args);

    if (rc != MPI_SUCCESS || d.call.count == 0 || c->inter || d.err != TIARA_OK)
        return run(c, &d, rc);
    rc = tiara_stream_run(c, &d.call, stream);
    tiara_describe_end(&d);
    return rc;
}

int TIARA_Allreduce_on_stream(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, struct CUstream_st *stream)
{
    struct tiara_args args = {sendbuf, recvbuf, count, datatype, op, 0, MPI_DATATYPE_NULL};
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    if (!c)
        return run_stateless(comm, rc, TIARA_COLL_ALLREDUCE, &args);
    return reduce_on_stream(c, &args, stream);
}

int TIARA_Comm_synchronize(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    return c ? tiara_stream_synchronize(c) : rc;
}

/* ---- the rest ---- */

int TIARA_Comm_prepare(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    return c ? tiara_below_raise(comm, tiara_async_open(c)) : rc;
}
