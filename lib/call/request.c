/*
 * Starting nonblocking operations, and ending them: what tiara.h's requests are made of.
 *
 * Nothing here waits for another rank. An operation is a task of Tiara's (async.h) where the
 * communicator has what that takes; else it is the MPI's, and an average is divided by whoever
 * completes the request. Persistent operations are matched by the request, whatever the order in
 * which ranks start them: they have a channel of Tiara's, or are persistent ones of the MPI below.
 */
#include "call/request.h"
#include "base/alloc.h"
#include "base/log.h"
#include "call/below.h"
#include "call/on_device.h"
#include "comm/agree.h"

/* ---- GPU memory ---- */

/* Has r->in and r->out stand for the caller's buffers, in host memory. */
static enum tiara_err open_host(struct tiara_request *r)
{
    bool in_place = r->sendbuf == MPI_IN_PLACE;
    enum tiara_err err;

    r->in = (struct tiara_bounce){.buf = (void *)(uintptr_t)r->sendbuf};
    r->out = (struct tiara_bounce){.buf = r->recvbuf};
    if (tiara_bounce_is_host(r->sendbuf) && tiara_bounce_is_host(r->recvbuf))
        return TIARA_OK;
    if (!r->copier)
        r->copier = tiara_alloc(1, sizeof(*r->copier));
    if (!r->copier)
        return TIARA_ERR_NOMEM;
    err = tiara_bounce_open(r->copier, &r->out, r->recvbuf, (size_t)r->count, r->type, in_place);
    if (err == TIARA_OK && !in_place)
        err = tiara_bounce_open(r->copier, &r->in, r->sendbuf, (size_t)r->count, r->type, true);
    return err;
}

/* ---- the MPI below ---- */

/* Elements of one call of MPI's. */
#define PIECE_ELEMS ((size_t)1 << 30)

static enum tiara_err alloc_mpi(struct tiara_request *r)
{
    size_t count = (size_t)r->count;
    size_t n = count <= PIECE_ELEMS ? 1 : (count + PIECE_ELEMS - 1) / PIECE_ELEMS;

    r->mpi = n == 1 ? &r->one : tiara_alloc(n, sizeof(*r->mpi));
    if (!r->mpi)
        return TIARA_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        r->mpi[i] = MPI_REQUEST_NULL;
    r->nmpi = (int)n;
    return TIARA_OK;
}

/* Starts the @i-th piece, or makes its persistent operation. Returns MPI's code, which it has
 * raised. */
static int open_piece(struct tiara_request *r, int i, MPI_Aint extent)
{
    size_t first = (size_t)i * PIECE_ELEMS, left = (size_t)r->count - first;
    size_t n = left < PIECE_ELEMS ? left : PIECE_ELEMS;
    const char *in = r->in.buf;
    char *out = r->out.buf;
    MPI_Op op = tiara_elem_op_below(&r->elem, r->op);

    if (i > 0 && in != MPI_IN_PLACE)
        in += (MPI_Aint)first * extent;
    if (i > 0)
        out += (MPI_Aint)first * extent;
    if (r->persistent)
        return tiara_below_init(in, out, (int)n, r->type, op, r->comm, &r->mpi[i]);
    return PMPI_Iallreduce(in, out, (int)n, r->type, op, r->comm, &r->mpi[i]);
}

/* After alloc_mpi. */
static int open_mpi(struct tiara_request *r)
{
    MPI_Aint lb, extent = 0;
    int rc = MPI_SUCCESS;

    if (r->nmpi > 1)
        rc = PMPI_Type_get_extent(r->type, &lb, &extent);
    for (int i = 0; i < r->nmpi && rc == MPI_SUCCESS; i++)
        rc = open_piece(r, i, extent);
    return rc;
}

/* The persistent operation, once more. */
static int start_mpi(struct tiara_request *r)
{
    enum tiara_err err = TIARA_OK;

    if (r->out.copy)
        err = tiara_bounce_fetch(r->copier, &r->out);
    if (r->in.copy && err == TIARA_OK)
        err = tiara_bounce_fetch(r->copier, &r->in);
    return err == TIARA_OK ? PMPI_Startall(r->nmpi, r->mpi) : tiara_below_raise(MPI_COMM_SELF, err);
}

static void release_operation(struct tiara_request *r)
{
    if (r->copier) {
        tiara_bounce_drop(&r->in);
        tiara_bounce_drop(&r->out);
    }
    for (int i = 0; i < r->nmpi; i++)
        if (r->mpi[i] != MPI_REQUEST_NULL)
            PMPI_Request_free(&r->mpi[i]);
    if (r->mpi != &r->one)
        tiara_free(r->mpi);
    r->mpi = NULL;
    r->nmpi = 0;
}

/* Whether all ranks have what the operation takes. The two sides of an intercommunicator cannot
 * tell each other and themselves at once. */
static enum tiara_err agree_on(const struct tiara_request *r, enum tiara_err mine)
{
    enum tiara_err all = r->inter ? TIARA_OK : tiara_agree_setup_ready(r->comm, mine == TIARA_OK);

    if (mine != TIARA_OK || all != TIARA_ERR_UNSUPPORTED)
        return tiara_err_first(mine, all);
    tiara_error("another rank of the communicator could not prepare a persistent operation");
    return TIARA_ERR_PEER;
}

int tiara_request_prepare(struct tiara_request *r)
{
    enum tiara_err err;

    r->way = r->native && !r->inter && r->count == 0 ? TIARA_REQUEST_DONE : TIARA_REQUEST_MPI;
    if (r->way == TIARA_REQUEST_DONE)
        return MPI_SUCCESS;
    err = open_host(r);
    if (err == TIARA_OK)
        err = alloc_mpi(r);
    err = agree_on(r, err);
    return err == TIARA_OK ? open_mpi(r) : tiara_below_raise(r->comm, err);
}

/* ---- starting ---- */

/* Has the task of @r do it, if that is possible. @mine: what this rank lacks: the task fails. */
static bool start_task(struct tiara_request *r, struct tiara_async *a, enum tiara_err mine)
{
    struct tiara_call *call = &r->task.call;

    if (!a)
        return false;
    /* The rest is zero: it is of calls that wait. */
    call->coll = TIARA_COLL_ALLREDUCE;
    call->in = r->sendbuf == MPI_IN_PLACE ? r->out.buf : r->in.buf;
    call->out = r->out.buf;
    call->count = (size_t)r->count;
    call->elem = r->elem;
    if (!tiara_async_start(a, &r->task, mine))
        return false;
    r->way = TIARA_REQUEST_TASK;
    return true;
}

/*
 * The operation itself, on r->in and r->out. The MPI below knows of no error of one rank: with
 * @mine it is not called, as in a program whose rank does not call it. Returns MPI_SUCCESS or a
 * raised error.
 */
static int start_on_comm(struct tiara_request *r, const struct tiara_comm *c, enum tiara_err mine)
{
    bool native = r->native && !r->inter;

    r->way = native && r->count == 0 ? TIARA_REQUEST_DONE : TIARA_REQUEST_MPI;
    if (r->way == TIARA_REQUEST_DONE ||
        (native && start_task(r, c && tiara_comm_serves(c) ? c->async : NULL, mine)))
        return MPI_SUCCESS;
    if (mine == TIARA_OK)
        mine = alloc_mpi(r);
    return mine == TIARA_OK ? open_mpi(r) : tiara_below_raise(r->comm, mine);
}

/* A persistent operation on its own channel; the communicator may be freed. */
static int start_on_channel(struct tiara_request *r, enum tiara_err mine)
{
    /* Its choice was made at init. */
    return start_task(r, r->channel, mine) ? MPI_SUCCESS
                                           : tiara_below_raise(MPI_COMM_SELF, TIARA_ERR_PLAN);
}

static int start_persistent(struct tiara_request *r)
{
    return r->way == TIARA_REQUEST_DONE ? MPI_SUCCESS : start_mpi(r);
}

/* What the operation had for itself; a persistent one of MPI's stays. */
static void end_operation(struct tiara_request *r)
{
    if (!r->persistent || r->channel)
        release_operation(r);
}

int tiara_request_start(struct tiara_request *r, struct tiara_comm *c)
{
    enum tiara_err err;
    int rc;

    tiara_request_reap();
    r->rc = MPI_SUCCESS;
    err = r->persistent && !r->channel ? TIARA_OK : open_host(r);
    if (r->channel)
        rc = start_on_channel(r, err);
    else
        rc = r->persistent ? start_persistent(r) : start_on_comm(r, c, err);
    r->active = rc == MPI_SUCCESS;
    if (!r->active)
        end_operation(r);
    else if (c && r->way != TIARA_REQUEST_DONE)
        c->calls[r->way == TIARA_REQUEST_TASK ? TIARA_COUNT_TASK : TIARA_COUNT_LEFT]++;
    return rc;
}

/* ---- ending ---- */

bool tiara_request_is_over(struct tiara_request *r)
{
    int flag = 0;

    if (r->way == TIARA_REQUEST_DONE || r->rc != MPI_SUCCESS)
        return true;
    if (r->way == TIARA_REQUEST_TASK)
        return tiara_async_is_done(&r->task);
    for (int i = 0; i < r->nmpi && r->rc == MPI_SUCCESS; i++) {
        r->rc = PMPI_Test(&r->mpi[i], &flag, MPI_STATUS_IGNORE);
        if (!flag)
            break;
    }
    return flag || r->rc != MPI_SUCCESS;
}

static int code_of(enum tiara_err err)
{
    if (err == TIARA_ERR_NOMEM)
        return MPI_ERR_NO_MEM;
    return err == TIARA_OK ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int tiara_request_conclude(struct tiara_request *r, MPI_Comm *blame_out)
{
    bool task = r->way == TIARA_REQUEST_TASK;
    int rc = task ? code_of(r->task.err) : r->rc;

    /* MPI has raised its own errors. */
    *blame_out = task && rc != MPI_SUCCESS && tiara_comm_lives(r->comm, r->comm_id) ? r->comm
                                                                                    : MPI_COMM_NULL;
    if (r->way == TIARA_REQUEST_MPI && rc == MPI_SUCCESS)
        tiara_elem_finish(&r->elem, r->out.buf, (size_t)r->count, r->ranks);
    if (r->out.copy && rc == MPI_SUCCESS)
        rc = code_of(tiara_bounce_store(r->copier, &r->out));
    if (rc != MPI_SUCCESS && *blame_out == MPI_COMM_NULL && r->rc == MPI_SUCCESS)
        *blame_out = MPI_COMM_SELF; /* the communicator may be freed */
    end_operation(r);
    r->active = false;
    return rc;
}

void tiara_request_delete(struct tiara_request *r)
{
    tiara_async_close(r->channel);
    release_operation(r);
    if (r->copier)
        tiara_on_device_fini(r->copier);
    tiara_free(r->copier);
    if (r->own_type)
        PMPI_Type_free(&r->type);
    if (!r->spare)
        tiara_free(r);
}
