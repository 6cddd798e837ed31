/*
 * Arguments are checked here and nowhere below.
 */
#include "api/describe.h"
#include "call/below.h"

bool tiara_describe_bad_buffers(const void *sendbuf, const void *recvbuf, bool native)
{
    if (recvbuf == MPI_IN_PLACE || sendbuf == recvbuf)
        return native || recvbuf != MPI_BOTTOM;
    return native && (!sendbuf || !recvbuf);
}

int tiara_describe_bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other)
{
    if (type == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (op == MPI_OP_NULL || (other && other->own && other->oper >= 0))
        return MPI_ERR_OP;
    return MPI_SUCCESS;
}

/* @judged: by Tiara, else counts and buffers are MPI's to judge. */
static int describe_reduction(struct tiara_description *d, MPI_Comm comm, bool judged)
{
    struct tiara_call *call = &d->call;
    const struct tiara_args *args = &call->args;
    bool native = tiara_elem_native(args->type, args->op, &call->elem);
    int rc = tiara_describe_bad_handles(args->type, args->op, native ? NULL : &call->elem);

    if (judged && args->count < 0)
        rc = MPI_ERR_COUNT;
    if (rc != MPI_SUCCESS)
        return tiara_below_raise_code(comm, rc);
    if (judged && !native)
        rc = tiara_below_judge(comm, args->type, args->op);
    if (rc != MPI_SUCCESS || !judged || args->count == 0)
        return rc;
    if (tiara_describe_bad_buffers(args->sendbuf, args->recvbuf, native))
        return tiara_below_raise_code(comm, MPI_ERR_BUFFER);
    if (!native)
        d->err = tiara_elem_other(args->type, args->op, &call->elem, &d->combiner);
    call->packed_in = call->packed_out = call->elem.packed;
    return MPI_SUCCESS;
}

/* Has MPI judge handles without data: it returns or raises its own error. */
static int judge_types(MPI_Comm comm, const struct tiara_args *a, bool in_place)
{
    int in = 0, out = 0;

    if (a->type == MPI_DATATYPE_NULL || (!in_place && a->send_type == MPI_DATATYPE_NULL))
        return tiara_below_raise_code(comm, MPI_ERR_TYPE);
    return PMPI_Allgather(&in, 0, in_place ? a->type : a->send_type, &out, 0, a->type, comm);
}

/* Counts and buffers that do not fit each other: the error class, or MPI_SUCCESS. */
static int judge_sides(const struct tiara_call *call)
{
    const struct tiara_args *a = &call->args;
    bool in_place = a->sendbuf == MPI_IN_PLACE;

    if (!in_place && (size_t)a->send_count * call->send_size != call->count)
        return MPI_ERR_COUNT;
    if (a->recvbuf == MPI_IN_PLACE || (!call->packed_out && !a->recvbuf))
        return MPI_ERR_BUFFER;
    if (!in_place && !call->packed_in && (!a->sendbuf || a->sendbuf == a->recvbuf))
        return MPI_ERR_BUFFER;
    return MPI_SUCCESS;
}

/*
 * Bytes are moved, packed where a type has holes. Ranks may describe the same data by different
 * types, so that whether a type has holes must not decide about the path: only the number of bytes,
 * which is equal on all ranks, does.
 */
static int describe_allgather(struct tiara_call *call, struct tiara_comm *c)
{
    const struct tiara_args *args = &call->args;
    bool in_place = args->sendbuf == MPI_IN_PLACE;
    struct tiara_elem send, recv;
    enum tiara_err err;
    int rc;

    if (c && !c->inter && (args->count < 0 || (!in_place && args->send_count < 0)))
        return tiara_below_raise_code(c->comm, MPI_ERR_COUNT);
    if (!c || !tiara_comm_serves(c))
        return MPI_SUCCESS;
    rc = judge_types(c->comm, args, in_place);
    if (rc != MPI_SUCCESS)
        return rc;
    err = tiara_elem_moved(args->type, &recv);
    if (err == TIARA_OK)
        err = tiara_elem_moved(in_place ? args->type : args->send_type, &send);
    if (err != TIARA_OK)
        return tiara_below_raise(c->comm, err);
    call->recv_size = recv.size;
    call->send_size = send.size;
    call->packed_in = !in_place && send.packed;
    call->packed_out = recv.packed;
    call->count = (size_t)args->count * recv.size;
    rc = call->count == 0 ? MPI_SUCCESS : judge_sides(call);
    return rc == MPI_SUCCESS ? rc : tiara_below_raise_code(c->comm, rc);
}

int tiara_describe(struct tiara_description *d, MPI_Comm comm, struct tiara_comm *c,
    enum tiara_coll coll, const struct tiara_args *args)
{
    d->combiner.scratch = NULL; /* nothing to give back */
    d->err = TIARA_OK;
    d->call = (struct tiara_call){.coll = coll,
        .args = *args,
        .elem = {.type = -1, .oper = -1, .size = 1},
        .in = args->sendbuf == MPI_IN_PLACE ? args->recvbuf : args->sendbuf,
        .out = args->recvbuf,
        .count = (size_t)args->count,
        .ordinal = -1};
    return coll == TIARA_COLL_ALLGATHER ? describe_allgather(&d->call, c)
                                        : describe_reduction(d, comm, c && !c->inter);
}

void tiara_describe_end(struct tiara_description *d)
{
    tiara_elem_mpi_fini(&d->combiner);
}
