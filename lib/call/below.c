/*
 * The MPI below: calls that are passed on, in pieces where MPI's counts are too small for them, and
 * errors, which are raised as its own.
 */
#include "call/below.h"
#include "base/log.h"
#include <limits.h>
#if defined(HAVE_MPIX_ALLREDUCE_INIT) && !defined(HAVE_MPI_ALLREDUCE_INIT)
#include <mpi-ext.h>
#endif

/* Elements of one MPI call, below INT_MAX. */
#define PIECE ((MPI_Count)1 << 30)

/* ---- errors ---- */

int tiara_below_raise_code(MPI_Comm comm, int code)
{
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

int tiara_below_raise(MPI_Comm comm, enum tiara_err err)
{
    int code = MPI_ERR_OTHER;

    if (err == TIARA_OK)
        return MPI_SUCCESS;
    if (err == TIARA_ERR_NOMEM || err == TIARA_ERR_NOSPACE)
        code = MPI_ERR_NO_MEM;
    else if (err == TIARA_ERR_ARG)
        code = MPI_ERR_BUFFER;
    return tiara_below_raise_code(comm, code);
}

int tiara_below_judge(MPI_Comm comm, MPI_Datatype type, MPI_Op op)
{
    int in = 0, out = 0;

    return PMPI_Allreduce(&in, &out, 0, type, op, comm);
}

/* ---- driven calls ---- */

/*
 * Whether a call must be a nonblocking one of MPI's that is waited for here: nobody but the
 * program's own calls drives Tiara's nonblocking operations. Agreed, as all ranks must call the
 * same.
 */
static bool is_driven(const struct tiara_comm *c)
{
    return c && c->config.progress == TIARA_PROGRESS_CALL;
}

struct pending {
    MPI_Request request;
    int rc;
};

static bool is_complete(void *arg, struct tiara_wait_on *on)
{
    struct pending *p = arg;
    int done = 0;

    on->word = NULL;
    p->rc = PMPI_Test(&p->request, &done, MPI_STATUS_IGNORE);
    return done || p->rc != MPI_SUCCESS;
}

static int await(int rc, MPI_Request request)
{
    struct pending p = {.request = request};
    struct tiara_wait patient = {.yields = -1};

    if (rc != MPI_SUCCESS)
        return rc;
    return tiara_wait(&patient, is_complete, &p) == TIARA_OK ? p.rc : MPI_ERR_OTHER;
}

/* ---- passing on ---- */

static int allreduce_piece(
    MPI_Comm comm, bool driven, const struct tiara_args *a, const void *in, void *out, int count)
{
    MPI_Request request;
    int rc;

    if (!driven)
        return PMPI_Allreduce(in, out, count, a->type, a->op, comm);
    rc = PMPI_Iallreduce(in, out, count, a->type, a->op, comm, &request);
    return await(rc, request);
}

static int allreduce(MPI_Comm comm, bool driven, const struct tiara_args *a)
{
    MPI_Aint lb, extent = 0;
    int rc = MPI_SUCCESS;

    if (a->count <= INT_MAX)
        return allreduce_piece(comm, driven, a, a->sendbuf, a->recvbuf, (int)a->count);
    rc = PMPI_Type_get_extent(a->type, &lb, &extent);
    for (MPI_Count at = 0; at < a->count && rc == MPI_SUCCESS; at += PIECE) {
        int n = (int)(a->count - at < PIECE ? a->count - at : PIECE);
        const void *in = a->sendbuf == MPI_IN_PLACE
                             ? a->sendbuf
                             : (const char *)a->sendbuf + (MPI_Aint)at * extent;

        rc = allreduce_piece(comm, driven, a, in, (char *)a->recvbuf + (MPI_Aint)at * extent, n);
    }
    return rc;
}

static int reduce_scatter(MPI_Comm comm, bool driven, const struct tiara_args *a)
{
    MPI_Request request;
    int rc;

    if (!driven)
        return PMPI_Reduce_scatter_block(
            a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, comm);
    rc = PMPI_Ireduce_scatter_block(
        a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, comm, &request);
    return await(rc, request);
}

static int allgather(MPI_Comm comm, bool driven, const struct tiara_args *a)
{
    MPI_Request request;
    int rc;

    if (!driven)
        return PMPI_Allgather(
            a->sendbuf, a->send_count, a->send_type, a->recvbuf, (int)a->count, a->type, comm);
    rc = PMPI_Iallgather(a->sendbuf, a->send_count, a->send_type, a->recvbuf, (int)a->count,
        a->type, comm, &request);
    return await(rc, request);
}

int tiara_below_ranks(MPI_Comm comm)
{
    int inter = 0, ranks = 1;

    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        PMPI_Comm_remote_size(comm, &ranks);
    else
        PMPI_Comm_size(comm, &ranks);
    return ranks;
}

static int reduce(MPI_Comm comm, bool driven, const struct tiara_call *call)
{
    struct tiara_args args = call->args;
    int rc;

    args.op = tiara_elem_op_below(&call->elem, args.op);
    if (call->coll == TIARA_COLL_ALLREDUCE)
        rc = allreduce(comm, driven, &args);
    else
        rc = reduce_scatter(comm, driven, &args);
    if (rc == MPI_SUCCESS && args.op != call->args.op)
        tiara_elem_finish(&call->elem, args.recvbuf, (size_t)args.count, tiara_below_ranks(comm));
    return rc;
}

int tiara_below_run(MPI_Comm comm, struct tiara_comm *c, const struct tiara_call *call)
{
    if (c)
        c->calls[TIARA_COUNT_MPI]++;
    if (call->coll == TIARA_COLL_ALLGATHER)
        return allgather(comm, is_driven(c), &call->args);
    return reduce(comm, is_driven(c), call);
}

int tiara_below_init(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Request *request)
{
#if defined(HAVE_MPI_ALLREDUCE_INIT)
    return PMPI_Allreduce_init(in, out, count, type, op, comm, MPI_INFO_NULL, request);
#elif defined(HAVE_MPIX_ALLREDUCE_INIT)
    return PMPIX_Allreduce_init(in, out, count, type, op, comm, MPI_INFO_NULL, request);
#else
    (void)in, (void)out, (void)count, (void)type, (void)op, (void)request;
    tiara_error("a persistent all-reduce that Tiara does not serve needs an MPI that has them");
    return tiara_below_raise_code(comm, MPI_ERR_UNSUPPORTED_OPERATION);
#endif
}

/*
 * By a blocking collective of MPI, as what follows is one: it has no watchdog, since the
 * communicator may have been revoked and its ranks go on in MPI together. Over a private
 * communicator where there is one, since the program may use its own while a call in a stream has
 * to be met by another thread.
 */
enum tiara_err tiara_below_agree(struct tiara_comm *c, enum tiara_err mine)
{
    MPI_Comm comm = c->apart != MPI_COMM_NULL ? c->apart : c->comm;
    int good = mine == TIARA_OK, all = 1;

    if (c->state.behind > 0) {
        c->state.behind--;
        tiara_error("another rank of the communicator failed in this call or a later one");
        return tiara_err_first(mine, TIARA_ERR_PEER);
    }
    if (!c->device.possible || c->size == 1 || c->inter)
        return mine;
    if (PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    if (good && !all) {
        tiara_error("another rank of the communicator could not begin a call that goes to the MPI "
                    "below");
        return TIARA_ERR_PEER;
    }
    return mine;
}
