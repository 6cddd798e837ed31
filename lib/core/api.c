/*
 * What tiara.h promises: arguments are checked here and nowhere below, errors are raised here, and what Tiara does not
 * do is passed to the MPI below.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "core/core.h"
#include <limits.h>
#include <string.h>

static int raise_code(MPI_Comm comm, int code)
{
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

/* ---- the MPI below ---- */

/* Elements of one MPI call, below INT_MAX. */
#define PASS_ELEMS ((MPI_Count)1 << 30)

static int pass_allreduce(struct tiara_comm *c, const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype type, MPI_Op op)
{
    MPI_Aint lb, extent = 0;
    int rc = MPI_SUCCESS;

    c->calls[TIARA_COUNT_MPI]++;
    if (count <= INT_MAX)
        return PMPI_Allreduce(sendbuf, recvbuf, (int)count, type, op, c->comm);
    rc = PMPI_Type_get_extent(type, &lb, &extent);
    for (MPI_Count at = 0; at < count && rc == MPI_SUCCESS; at += PASS_ELEMS) {
        int n = (int)(count - at < PASS_ELEMS ? count - at : PASS_ELEMS);
        const void *in = sendbuf == MPI_IN_PLACE ? sendbuf : (const char *)sendbuf + at * extent;

        rc = PMPI_Allreduce(in, (char *)recvbuf + at * extent, n, type, op, c->comm);
    }
    return rc;
}

/* ---- packed calls: elements with holes ---- */

/* Elements handed to one MPI_Pack, whose sizes are ints. */
static int pack_many(const void *from, MPI_Aint extent, size_t size, size_t count,
    MPI_Datatype type, char *to, bool unpack)
{
    size_t piece = (size_t)INT_MAX / size;
    int rc = MPI_SUCCESS;

    for (size_t at = 0; at < count && rc == MPI_SUCCESS; at += piece) {
        int n = (int)(count - at < piece ? count - at : piece), position = 0;
        char *typed = (char *)(uintptr_t)from + (MPI_Aint)at * extent, *dense = to + at * size;

        if (unpack)
            rc = PMPI_Unpack(dense, n * (int)size, &position, typed, n, type, MPI_COMM_SELF);
        else
            rc = PMPI_Pack(typed, n, type, dense, n * (int)size, &position, MPI_COMM_SELF);
    }
    return rc;
}

/* Dense copies of the caller's buffers for a call on elements with holes. */
struct dense {
    char *in, *out;
    MPI_Aint extent;
};

static void dense_fini(struct dense *d)
{
    if (d->in != d->out)
        tiara_free(d->in);
    tiara_free(d->out);
}

/* @in_elems, @out_elems: elements of the two buffers; packs the input. In place: one buffer of the larger size. */
static enum tiara_err dense_init(struct dense *d, const void *in, size_t in_elems, size_t out_elems,
    bool in_place, MPI_Datatype type, size_t size)
{
    size_t most = in_elems > out_elems ? in_elems : out_elems;
    MPI_Aint lb;

    *d = (struct dense){0};
    PMPI_Type_get_extent(type, &lb, &d->extent);
    d->out = tiara_alloc(in_place ? most : out_elems, size);
    d->in = in_place ? d->out : tiara_alloc(in_elems, size);
    if (!d->in || !d->out) {
        dense_fini(d);
        return TIARA_ERR_NOMEM;
    }
    if (pack_many(in, d->extent, size, in_elems, type, d->in, false) != MPI_SUCCESS) {
        dense_fini(d);
        return TIARA_ERR_MPI;
    }
    return TIARA_OK;
}

/* ---- reductions: what all-reduce and reduce-scatter share ---- */

struct reduction {
    enum tiara_coll coll;
    const void *sendbuf;
    void *recvbuf;
    size_t count; /* elements of the vector, or of one block */
    size_t in_elems, out_elems;
    MPI_Datatype type;
    MPI_Op op;
};

static enum tiara_err run_packed(
    struct tiara_comm *c, const struct reduction *r, struct tiara_call *call)
{
    bool in_place = r->sendbuf == MPI_IN_PLACE;
    struct dense d;
    enum tiara_err err;

    err = dense_init(&d, in_place ? r->recvbuf : r->sendbuf, r->in_elems, r->out_elems, in_place,
        r->type, call->elem.size);
    if (err != TIARA_OK)
        return err;
    call->in = d.in;
    call->out = d.out;
    err = tiara_call_run(c, call);
    if (err == TIARA_OK && pack_many(r->recvbuf, d.extent, call->elem.size, r->out_elems, r->type,
                               d.out, true) != MPI_SUCCESS)
        err = TIARA_ERR_MPI;
    dense_fini(&d);
    return err;
}

/* The result of a communicator of one rank, or of a call that MPI cannot do. */
static enum tiara_err run_own(
    struct tiara_comm *c, const struct reduction *r, const struct tiara_call *call)
{
    size_t bytes = call->count * call->elem.size;

    if (c->inter)
        return TIARA_ERR_UNSUPPORTED;
    if (c->size == 1) {
        if (call->in != call->out)
            memcpy(call->out, call->in, bytes);
        return TIARA_OK;
    }
    if (r->coll == TIARA_COLL_ALLREDUCE)
        return tiara_call_gather_fold(c, call);
    return tiara_call_scatter_fold(c, call);
}

/*
 * Runs @r. Returns MPI_SUCCESS, a raised error, or -1: for the MPI below.
 */
static int reduce(struct tiara_comm *c, const struct reduction *r, struct tiara_elem *elem)
{
    struct tiara_elem_mpi m = {0};
    struct tiara_call call = {.coll = r->coll,
        .count = r->count,
        .out = r->recvbuf,
        .in = r->sendbuf == MPI_IN_PLACE ? r->recvbuf : r->sendbuf};
    enum tiara_err err = TIARA_OK;

    if (!elem->redop)
        err = tiara_elem_other(r->type, r->op, elem, &m);
    if (err != TIARA_OK)
        goto out_elem;
    call.elem = *elem;
    err = TIARA_ERR_UNSUPPORTED;
    if (elem->redop && !c->facts.mpi_only)
        err = elem->packed ? run_packed(c, r, &call) : tiara_call_run(c, &call);
    if (err == TIARA_ERR_UNSUPPORTED && elem->own && elem->redop)
        err = run_own(c, r, &call);
out_elem:
    tiara_elem_mpi_fini(&m);
    if (err == TIARA_ERR_UNSUPPORTED)
        return -1;
    return tiara_core_raise(c->comm, err);
}

/* Null, aliased or misplaced buffers of a call with data. Absolute addresses (MPI_BOTTOM) are for derived types. */
static bool bad_buffers(const void *sendbuf, const void *recvbuf, bool native)
{
    if (recvbuf == MPI_IN_PLACE || sendbuf == recvbuf)
        return native || recvbuf != MPI_BOTTOM;
    return native && (!sendbuf || !recvbuf);
}

/* Null handles, and what Tiara adds to MPI in a pair that is not defined (@other: not native); the error class or MPI_SUCCESS. */
static int bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other)
{
    if (type == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (op == MPI_OP_NULL || (other && other->own && other->oper >= 0))
        return MPI_ERR_OP;
    return MPI_SUCCESS;
}

/* ---- all-reduce ---- */

/*
 * Has MPI judge handles that Tiara does not know, without data: it returns or raises its own error. Collective only where an
 * MPI makes a call without elements collective.
 */
static int check_by_mpi(struct tiara_comm *c, MPI_Datatype type, MPI_Op op)
{
    int in = 0, out = 0;

    return PMPI_Allreduce(&in, &out, 0, type, op, c->comm);
}

/*
 * Checks the arguments of @r, of @count elements per block, and runs it. Returns MPI_SUCCESS, a raised error, or -1: for the
 * MPI below, which also judges the arguments of intercommunicators.
 */
static int check_and_reduce(struct tiara_comm *c, const struct reduction *r, MPI_Count count)
{
    struct tiara_elem elem;
    bool native = tiara_elem_native(r->type, r->op, &elem);
    int rc;

    if (c->inter)
        return -1;
    if (count < 0)
        return raise_code(c->comm, MPI_ERR_COUNT);
    rc = bad_handles(r->type, r->op, native ? NULL : &elem);
    if (rc != MPI_SUCCESS)
        return raise_code(c->comm, rc);
    if (!native) {
        elem.redop = NULL;
        rc = check_by_mpi(c, r->type, r->op);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    if (count == 0)
        return MPI_SUCCESS;
    if (bad_buffers(r->sendbuf, r->recvbuf, native))
        return raise_code(c->comm, MPI_ERR_BUFFER);
    return reduce(c, r, &elem);
}

static int allreduce(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);
    struct reduction r = {.coll = TIARA_COLL_ALLREDUCE,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = (size_t)count,
        .in_elems = (size_t)count,
        .out_elems = (size_t)count,
        .type = type,
        .op = op};

    if (!c)
        return rc;
    rc = check_and_reduce(c, &r, count);
    return rc != -1 ? rc : pass_allreduce(c, sendbuf, recvbuf, count, type, op);
}

/* The shortest way of the commonest call: a small vector of a native type on one node. -1: not such a call. */
static inline int allreduce_fast(struct tiara_comm *c, const void *sendbuf, void *recvbuf,
    MPI_Count count, MPI_Datatype type, MPI_Op op)
{
    struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE, .in = sendbuf, .out = recvbuf};
    enum tiara_err err;

    if (count <= 0 || count > TIARA_ARENA_SMALL_MAX || !tiara_elem_native(type, op, &call.elem) ||
        (size_t)count * call.elem.size > c->fast_max || !sendbuf || !recvbuf ||
        sendbuf == recvbuf || recvbuf == MPI_IN_PLACE)
        return -1;
    if (sendbuf == MPI_IN_PLACE)
        call.in = recvbuf;
    call.count = (size_t)count;
    err = tiara_call_fast(c, &call);
    if (__builtin_expect(err == TIARA_OK, 1))
        return MPI_SUCCESS;
    return err == TIARA_ERR_UNSUPPORTED ? -1 : tiara_core_raise(c->comm, err);
}

int TIARA_Allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm)
{
    struct tiara_comm *c = tiara_comm_last(comm);
    int rc = c ? allreduce_fast(c, sendbuf, recvbuf, count, datatype, op) : -1;

    return rc != -1 ? rc : allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int TIARA_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct tiara_comm *c = tiara_comm_last(comm);
    int rc = c ? allreduce_fast(c, sendbuf, recvbuf, count, datatype, op) : -1;

    return rc != -1 ? rc : allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

/* ---- reduce-scatter ---- */

int TIARA_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);
    struct reduction r = {.coll = TIARA_COLL_REDUCE_SCATTER,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .count = (size_t)recvcount,
        .out_elems = (size_t)recvcount,
        .type = datatype,
        .op = op};

    if (!c)
        return rc;
    r.in_elems = (size_t)recvcount * (size_t)c->size;
    rc = check_and_reduce(c, &r, recvcount);
    if (rc != -1)
        return rc;
    c->calls[TIARA_COUNT_MPI]++;
    return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
}

/* ---- all-gather ---- */

struct gathering {
    bool in_place;
    const void *sendbuf;
    void *recvbuf;
    size_t send_count, recv_count;
    MPI_Datatype send_type, recv_type;
    struct tiara_elem send, recv;
};

/* Packs, or unpacks, @count elements of @type from the @first-th of @buf on. */
static enum tiara_err pack_side(const void *buf, size_t first, size_t count, MPI_Datatype type,
    size_t size, char *dense, bool unpack)
{
    MPI_Aint lb, extent;
    const char *from;

    if (PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    from = (const char *)buf + (MPI_Aint)first * extent;
    return pack_many(from, extent, size, count, type, dense, unpack) == MPI_SUCCESS ? TIARA_OK
                                                                                    : TIARA_ERR_MPI;
}

/* Dense stand-ins @in and @out for buffers whose types have holes; NULL where there are none. The input is packed. */
static enum tiara_err pack_input(
    struct tiara_comm *c, const struct gathering *g, char *in, char *out)
{
    size_t own = (size_t)c->rank * g->recv_count;

    if (in)
        return pack_side(g->sendbuf, 0, g->send_count, g->send_type, g->send.size, in, false);
    if (out && g->in_place)
        return pack_side(g->recvbuf, own, g->recv_count, g->recv_type, g->recv.size,
            out + own * g->recv.size, false);
    return TIARA_OK;
}

/*
 * Moves bytes, packed where a type has holes. Ranks may describe the same data by different types, so that whether a type has
 * holes must not decide about the path: only the number of bytes, which is equal on all ranks, does.
 */
static enum tiara_err gather(struct tiara_comm *c, const struct gathering *g)
{
    size_t bytes = g->recv_count * g->recv.size;
    bool pack_in = !g->in_place && g->send.packed, pack_out = g->recv.packed;
    char *in = pack_in ? tiara_alloc(bytes, 1) : NULL;
    char *out = pack_out ? tiara_alloc((size_t)c->size, bytes) : NULL;
    struct tiara_call call = {.coll = TIARA_COLL_ALLGATHER,
        .count = bytes,
        .out = pack_out ? out : g->recvbuf,
        .elem = {.type = -1, .oper = -1, .size = 1}};
    enum tiara_err err = TIARA_ERR_NOMEM;

    call.in = g->in_place ? call.out : (pack_in ? in : g->sendbuf);
    if ((in || !pack_in) && (out || !pack_out))
        err = pack_input(c, g, in, out);
    if (err == TIARA_OK)
        err = tiara_call_run(c, &call);
    if (err == TIARA_OK && pack_out)
        err = pack_side(
            g->recvbuf, 0, g->recv_count * (size_t)c->size, g->recv_type, g->recv.size, out, true);
    tiara_free(out);
    tiara_free(in);
    return err;
}

/* Checks the arguments and runs. MPI_SUCCESS, a raised error, or -1: for the MPI below. */
static int check_and_gather(struct tiara_comm *c, struct gathering *g)
{
    enum tiara_err err;
    int in = 0, out = 0, rc;

    if (c->inter || c->facts.mpi_only)
        return -1;
    if (g->recv_type == MPI_DATATYPE_NULL || g->send_type == MPI_DATATYPE_NULL)
        return raise_code(c->comm, MPI_ERR_TYPE);
    /* Has MPI judge handles without data: it returns or raises its own error. */
    rc = PMPI_Allgather(&in, 0, g->send_type, &out, 0, g->recv_type, c->comm);
    if (rc != MPI_SUCCESS)
        return rc;
    err = tiara_elem_moved(g->recv_type, &g->recv);
    if (err == TIARA_OK)
        err = tiara_elem_moved(g->send_type, &g->send);
    if (err != TIARA_OK)
        return tiara_core_raise(c->comm, err);
    if (g->recv_count * g->recv.size == 0)
        return MPI_SUCCESS;
    if (!g->in_place && g->send_count * g->send.size != g->recv_count * g->recv.size)
        return raise_code(c->comm, MPI_ERR_COUNT);
    if (g->recvbuf == MPI_IN_PLACE || (!g->recv.packed && !g->recvbuf) ||
        (!g->in_place && !g->send.packed && (!g->sendbuf || g->sendbuf == g->recvbuf)))
        return raise_code(c->comm, MPI_ERR_BUFFER);
    err = gather(c, g);
    return err == TIARA_ERR_UNSUPPORTED ? -1 : tiara_core_raise(c->comm, err);
}

int TIARA_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);
    bool in_place = sendbuf == MPI_IN_PLACE;
    struct gathering g = {.in_place = in_place,
        .sendbuf = sendbuf,
        .recvbuf = recvbuf,
        .send_count = in_place ? (size_t)recvcount : (size_t)sendcount,
        .recv_count = (size_t)recvcount,
        .send_type = in_place ? recvtype : sendtype,
        .recv_type = recvtype};

    if (!c)
        return rc;
    if (recvcount < 0 || (!in_place && sendcount < 0))
        return raise_code(comm, MPI_ERR_COUNT);
    rc = check_and_gather(c, &g);
    if (rc != -1)
        return rc;
    c->calls[TIARA_COUNT_MPI]++;
    return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

/* ---- the rest ---- */

int TIARA_Comm_prepare(MPI_Comm comm)
{
    int rc;

    tiara_comm_get(comm, &rc);
    return rc;
}

int TIARA_Get_version(int *major, int *minor, int *patch)
{
    *major = TIARA_VERSION_MAJOR;
    *minor = TIARA_VERSION_MINOR;
    *patch = TIARA_VERSION_PATCH;
    return MPI_SUCCESS;
}
