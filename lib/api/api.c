/*
 * What tiara.h promises: arguments are checked here and nowhere below, errors are raised here, and
 * what Tiara does not do is passed to the MPI below.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "call/async.h"
#include "comm/comm.h"
#include <limits.h>
#include <string.h>

/* ---- the MPI below ---- */

/* Elements of one MPI call, below INT_MAX. */
#define PASS_ELEMS ((MPI_Count)1 << 30)

static int pass_piece(
    struct tiara_comm *c, const void *in, void *out, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    int rc;

    if (!tiara_core_pass_driven(c))
        return PMPI_Allreduce(in, out, count, type, op, c->comm);
    rc = PMPI_Iallreduce(in, out, count, type, op, c->comm, &request);
    return rc == MPI_SUCCESS ? tiara_core_await(request) : rc;
}

static int pass_scatter(
    struct tiara_comm *c, const void *in, void *out, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    int rc;

    c->calls[TIARA_COUNT_MPI]++;
    if (!tiara_core_pass_driven(c))
        return PMPI_Reduce_scatter_block(in, out, count, type, op, c->comm);
    rc = PMPI_Ireduce_scatter_block(in, out, count, type, op, c->comm, &request);
    return rc == MPI_SUCCESS ? tiara_core_await(request) : rc;
}

static int pass_allreduce(struct tiara_comm *c, const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype type, MPI_Op op)
{
    MPI_Aint lb, extent = 0;
    int rc = MPI_SUCCESS;

    c->calls[TIARA_COUNT_MPI]++;
    if (count <= INT_MAX)
        return pass_piece(c, sendbuf, recvbuf, (int)count, type, op);
    rc = PMPI_Type_get_extent(type, &lb, &extent);
    for (MPI_Count at = 0; at < count && rc == MPI_SUCCESS; at += PASS_ELEMS) {
        int n = (int)(count - at < PASS_ELEMS ? count - at : PASS_ELEMS);
        const void *in = sendbuf == MPI_IN_PLACE ? sendbuf : (const char *)sendbuf + at * extent;

        rc = pass_piece(c, in, (char *)recvbuf + at * extent, n, type, op);
    }
    return rc;
}

/* ---- packed calls: elements with holes ---- */

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

/* @in_elems, @out_elems: elements of the two buffers; packs the input. In place: one buffer of the
 * larger size. */
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
    if (tiara_core_pack(in, d->extent, size, in_elems, type, d->in, false) != MPI_SUCCESS) {
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
    if (err != TIARA_OK) {
        tiara_call_abandon(c, call);
        return err;
    }
    call->in = d.in;
    call->out = d.out;
    err = tiara_call_run(c, call);
    if (err == TIARA_OK && tiara_core_pack(r->recvbuf, d.extent, call->elem.size, r->out_elems,
                               r->type, d.out, true) != MPI_SUCCESS)
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

static struct tiara_call call_of(const struct reduction *r, const struct tiara_elem *elem)
{
    return (struct tiara_call){.coll = r->coll,
        .count = r->count,
        .out = r->recvbuf,
        .in = r->sendbuf == MPI_IN_PLACE ? r->recvbuf : r->sendbuf,
        .elem = *elem};
}

/*
 * Runs @r on buffers that suit it. Returns MPI_SUCCESS, a raised error, or -1: Tiara has no path.
 */
static int reduce_here(
    struct tiara_comm *c, const struct reduction *r, const struct tiara_elem *elem)
{
    struct tiara_call call = call_of(r, elem);
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;

    if (elem->redop && !c->facts.mpi_only)
        err = elem->packed ? run_packed(c, r, &call) : tiara_call_run(c, &call);
    return err == TIARA_ERR_UNSUPPORTED ? -1 : tiara_core_raise(c->comm, err);
}

/* What follows when Tiara has no path. @elem: as far as it is known. */
static int beyond(struct tiara_comm *c, const struct reduction *r, const struct tiara_elem *elem)
{
    if (elem->own && elem->redop) {
        struct tiara_call call = call_of(r, elem);
        enum tiara_err err = run_own(c, r, &call);

        if (err != TIARA_ERR_UNSUPPORTED)
            return tiara_core_raise(c->comm, err);
    }
    if (r->coll == TIARA_COLL_ALLREDUCE)
        return pass_allreduce(c, r->sendbuf, r->recvbuf, (MPI_Count)r->count, r->type, r->op);
    return pass_scatter(c, r->sendbuf, r->recvbuf, (int)r->count, r->type, r->op);
}

/*
 * Runs @r on copies in host memory. @here: by Tiara, if it has a path. The first block of an
 * in-place reduce-scatter is the result, and the rest stays, so the whole is written back.
 */
static int reduce_near(
    struct tiara_comm *c, const struct reduction *r, const struct tiara_elem *elem, bool here)
{
    bool in_place = r->sendbuf == MPI_IN_PLACE;
    struct reduction there = *r;
    struct tiara_near in = {0}, out = {0};
    struct tiara_call call;
    enum tiara_err err;
    int rc = -1;

    err = tiara_near_open(
        c, &out, r->recvbuf, in_place ? r->in_elems : r->out_elems, r->type, in_place);
    if (err == TIARA_OK)
        err = tiara_near_open(c, &in, r->sendbuf, in_place ? 0 : r->in_elems, r->type, true);
    there.sendbuf = in_place ? MPI_IN_PLACE : in.buf;
    there.recvbuf = out.buf;
    call = call_of(r, elem);
    if (here && !c->facts.mpi_only)
        rc = err == TIARA_OK ? reduce_here(c, &there, elem) : tiara_call_abandon(c, &call);
    if (rc == -1) {
        err = tiara_near_agree(c, err);
        if (err == TIARA_OK)
            rc = beyond(c, &there, elem);
    }
    err = tiara_err_first(err, tiara_near_close(c, &in, false));
    err = tiara_err_first(err, tiara_near_close(c, &out, err == TIARA_OK && rc == MPI_SUCCESS));
    return err != TIARA_OK ? tiara_core_raise(c->comm, err) : rc;
}

static bool is_near(const struct reduction *r)
{
    return tiara_near_is(r->sendbuf) && tiara_near_is(r->recvbuf);
}

/* What Tiara does not do. */
static int leave_reduction(
    struct tiara_comm *c, const struct reduction *r, const struct tiara_elem *elem)
{
    if (is_near(r) || (tiara_device_mpi_direct() && !elem->own)) {
        enum tiara_err err = tiara_near_agree(c, TIARA_OK);

        return err == TIARA_OK ? beyond(c, r, elem) : tiara_core_raise(c->comm, err);
    }
    return reduce_near(c, r, elem, false);
}

/* Runs @r, by Tiara or by MPI, wherever its buffers are. Returns MPI_SUCCESS or a raised error. */
static int reduce(struct tiara_comm *c, const struct reduction *r, struct tiara_elem *elem)
{
    struct tiara_elem_mpi m = {0};
    enum tiara_err err = TIARA_OK;
    int rc;

    if (!elem->redop)
        err = tiara_elem_other(r->type, r->op, elem, &m);
    if (err != TIARA_OK) {
        rc = tiara_core_raise(c->comm, err);
    } else if (elem->packed && !is_near(r)) {
        rc = reduce_near(c, r, elem, true);
    } else {
        rc = reduce_here(c, r, elem);
        if (rc == -1)
            rc = leave_reduction(c, r, elem);
    }
    tiara_elem_mpi_fini(&m);
    return rc;
}

bool tiara_core_bad_buffers(const void *sendbuf, const void *recvbuf, bool native)
{
    if (recvbuf == MPI_IN_PLACE || sendbuf == recvbuf)
        return native || recvbuf != MPI_BOTTOM;
    return native && (!sendbuf || !recvbuf);
}

int tiara_core_bad_handles(MPI_Datatype type, MPI_Op op, const struct tiara_elem *other)
{
    if (type == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (op == MPI_OP_NULL || (other && other->own && other->oper >= 0))
        return MPI_ERR_OP;
    return MPI_SUCCESS;
}

/* ---- all-reduce ---- */

int tiara_core_check_by_mpi(MPI_Comm comm, MPI_Datatype type, MPI_Op op)
{
    int in = 0, out = 0;

    return PMPI_Allreduce(&in, &out, 0, type, op, comm);
}

/*
 * Checks the arguments of @r, of @count elements per block, and runs it. Returns MPI_SUCCESS or a
 * raised error. MPI judges the arguments of intercommunicators.
 */
static int check_and_reduce(struct tiara_comm *c, const struct reduction *r, MPI_Count count)
{
    struct tiara_elem elem = {0};
    bool native = tiara_elem_native(r->type, r->op, &elem);
    int rc;

    if (c->inter)
        return leave_reduction(c, r, &elem);
    if (count < 0)
        return tiara_core_raise_code(c->comm, MPI_ERR_COUNT);
    rc = tiara_core_bad_handles(r->type, r->op, native ? NULL : &elem);
    if (rc != MPI_SUCCESS)
        return tiara_core_raise_code(c->comm, rc);
    if (!native) {
        elem.redop = NULL;
        rc = tiara_core_check_by_mpi(c->comm, r->type, r->op);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    if (count == 0)
        return MPI_SUCCESS;
    if (tiara_core_bad_buffers(r->sendbuf, r->recvbuf, native))
        return tiara_core_raise_code(c->comm, MPI_ERR_BUFFER);
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

    return c ? check_and_reduce(c, &r, count) : rc;
}

/* The shortest way of the commonest call: a small vector of a native type on one node. -1: not such
 * a call. */
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
    return check_and_reduce(c, &r, recvcount);
}

/* ---- the rest ---- */

int TIARA_Comm_prepare(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);

    return c ? tiara_core_raise(comm, tiara_async_open(c)) : rc;
}
