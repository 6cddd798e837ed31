/*
 * Starting nonblocking operations, and ending them: what tiara.h's requests are made of.
 *
 * Nothing here waits for another rank. An operation is a job of Tiara's (async.h) where the
 * communicator has what that takes; else it is the MPI's. Types and operators that MPI does not
 * know are then gathered by MPI, and folded by whoever completes the request.
 */
#include "call/request.h"
#include "base/alloc.h"
#include "call/below.h"
#include "call/on_device.h"
#include <limits.h>
#include <string.h>

/* ---- GPU memory ---- */

/* Has r->in and r->out stand for the caller's buffers, in host memory. */
static enum tiara_err open_near(struct tiara_request *r)
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
static size_t piece_elems(const struct tiara_request *r)
{
    return r->way == TIARA_REQUEST_GATHER ? (size_t)INT_MAX / r->elem.size : (size_t)1 << 30;
}

static enum tiara_err alloc_mpi(struct tiara_request *r)
{
    size_t piece = piece_elems(r), count = (size_t)r->count;
    size_t n = count <= piece ? 1 : (count + piece - 1) / piece;

    r->mpi = tiara_alloc(n, sizeof(*r->mpi));
    if (!r->mpi)
        return TIARA_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        r->mpi[i] = MPI_REQUEST_NULL;
    r->nmpi = (int)n;
    return TIARA_OK;
}

/* Starts the @i-th piece. Returns MPI's code, which it has raised. */
static int start_piece(struct tiara_request *r, int i, MPI_Aint extent)
{
    size_t piece = piece_elems(r), first = (size_t)i * piece;
    size_t n = (size_t)r->count - first < piece ? (size_t)r->count - first : piece;
    const char *in = r->in.buf;
    char *out = r->out.buf;

    if (r->way == TIARA_REQUEST_GATHER) {
        in = r->sendbuf == MPI_IN_PLACE ? out : in;
        return PMPI_Iallgather(in + first * r->elem.size, (int)(n * r->elem.size), MPI_BYTE,
            r->all + first * r->elem.size * (size_t)r->ranks, (int)(n * r->elem.size), MPI_BYTE,
            r->comm, &r->mpi[i]);
    }
    if (i > 0 && in != MPI_IN_PLACE)
        in += (MPI_Aint)first * extent;
    return PMPI_Iallreduce(in, i > 0 ? out + (MPI_Aint)first * extent : out, (int)n, r->type, r->op,
        r->comm, &r->mpi[i]);
}

static int start_mpi(struct tiara_request *r)
{
    MPI_Aint lb, extent = 0;
    int rc = MPI_SUCCESS;

    if (alloc_mpi(r) != TIARA_OK)
        return tiara_below_raise(r->comm, TIARA_ERR_NOMEM);
    if (r->nmpi > 1)
        rc = PMPI_Type_get_extent(r->type, &lb, &extent);
    for (int i = 0; i < r->nmpi && rc == MPI_SUCCESS; i++)
        rc = start_piece(r, i, extent);
    return rc;
}

/* The MPI gathers what it cannot combine. */
static int start_gather(struct tiara_request *r)
{
    r->way = TIARA_REQUEST_GATHER;
    r->all = tiara_alloc((size_t)r->count * (size_t)r->ranks, r->elem.size);
    return r->all ? start_mpi(r) : tiara_below_raise(r->comm, TIARA_ERR_NOMEM);
}

static int fold_gathered(struct tiara_request *r)
{
    size_t piece = piece_elems(r), size = r->elem.size;
    int ranks = r->ranks;
    const void **src;
    enum tiara_err err = TIARA_OK;

    src = tiara_alloc((size_t)ranks, sizeof(*src));
    if (!src)
        return MPI_ERR_NO_MEM;
    for (int i = 0; i < r->nmpi && err == TIARA_OK; i++) {
        size_t first = (size_t)i * piece;
        size_t n = (size_t)r->count - first < piece ? (size_t)r->count - first : piece;
        char *out = (char *)r->out.buf + first * size;

        for (int k = 0; k < ranks; k++)
            src[k] = r->all + (first * (size_t)ranks + n * (size_t)k) * size;
        err = r->elem.redop->fold(r->elem.redop, out, src, ranks, n);
        if (err == TIARA_OK && r->elem.redop->finish)
            r->elem.redop->finish(r->elem.redop, out, n, ranks);
    }
    tiara_free(src);
    return err == TIARA_OK ? MPI_SUCCESS : MPI_ERR_OTHER;
}

/* ---- starting ---- */

/* Has the job of @r do it, if that is possible. */
static bool start_job(struct tiara_request *r, struct tiara_async *a)
{
    if (!a)
        return false;
    r->job.call = (struct tiara_call){.coll = TIARA_COLL_ALLREDUCE,
        .in = r->sendbuf == MPI_IN_PLACE ? r->out.buf : r->in.buf,
        .out = r->out.buf,
        .count = (size_t)r->count,
        .elem = r->elem};
    if (!tiara_async_start(a, &r->job))
        return false;
    r->way = TIARA_REQUEST_JOB;
    return true;
}

/* What is over at once. */
static bool start_nothing(struct tiara_request *r)
{
    if (r->count > 0 && (r->ranks > 1 || !r->elem.own))
        return false;
    r->way = TIARA_REQUEST_DONE;
    r->rc = MPI_SUCCESS;
    if (r->count > 0 && r->sendbuf != MPI_IN_PLACE)
        memcpy(r->out.buf, r->in.buf, (size_t)r->count * r->elem.size);
    return true;
}

/* The operation itself, on r->in and r->out. Returns MPI_SUCCESS or a raised error. */
static int start_on_comm(struct tiara_request *r, const struct tiara_comm *c)
{
    r->way = TIARA_REQUEST_MPI;
    if (!r->native || r->inter)
        return start_mpi(r);
    if (start_nothing(r) || start_job(r, c && tiara_comm_serves(c) ? c->async : NULL))
        return MPI_SUCCESS;
    return r->elem.own ? start_gather(r) : start_mpi(r);
}

/* A persistent operation on its own channel; the communicator may be freed. */
static int start_on_channel(struct tiara_request *r)
{
    /* Its choice was made at init. */
    return start_job(r, r->channel) ? MPI_SUCCESS
                                    : tiara_below_raise(MPI_COMM_SELF, TIARA_ERR_PLAN);
}

static void release_operation(struct tiara_request *r)
{
    tiara_bounce_drop(&r->in);
    tiara_bounce_drop(&r->out);
    tiara_free(r->mpi);
    tiara_free(r->all);
    r->mpi = NULL;
    r->all = NULL;
    r->nmpi = 0;
}

int tiara_request_start(struct tiara_request *r, struct tiara_comm *c)
{
    enum tiara_err err;
    int rc;

    tiara_request_reap();
    r->rc = MPI_SUCCESS;
    err = open_near(r);
    if (err != TIARA_OK)
        rc = tiara_below_raise(r->channel ? MPI_COMM_SELF : r->comm, err);
    else
        rc = r->channel ? start_on_channel(r) : start_on_comm(r, c);
    r->active = rc == MPI_SUCCESS;
    if (!r->active)
        release_operation(r);
    else if (c && r->way != TIARA_REQUEST_DONE)
        c->calls[r->way == TIARA_REQUEST_JOB ? TIARA_COUNT_JOB : TIARA_COUNT_LEFT]++;
    return rc;
}

/* ---- ending ---- */

bool tiara_request_is_over(struct tiara_request *r)
{
    int flag = 0;

    if (r->way == TIARA_REQUEST_DONE || r->rc != MPI_SUCCESS)
        return true;
    if (r->way == TIARA_REQUEST_JOB)
        return tiara_job_is_done(&r->job);
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
    bool job = r->way == TIARA_REQUEST_JOB;
    int rc = job ? code_of(r->job.err) : r->rc;

    /* MPI has raised its own errors. */
    *blame_out = job && rc != MPI_SUCCESS && !r->job.orphan ? r->comm : MPI_COMM_NULL;
    if (r->way == TIARA_REQUEST_GATHER && rc == MPI_SUCCESS)
        rc = fold_gathered(r);
    if (r->out.copy && rc == MPI_SUCCESS)
        rc = code_of(tiara_bounce_close(r->copier, &r->out, true));
    if (rc != MPI_SUCCESS && *blame_out == MPI_COMM_NULL && r->rc == MPI_SUCCESS)
        *blame_out = MPI_COMM_SELF; /* the communicator may be freed */
    release_operation(r);
    r->active = false;
    return rc;
}

void tiara_request_delete(struct tiara_request *r)
{
    tiara_async_close(r->channel);
    if (r->copier)
        tiara_on_device_fini(r->copier);
    tiara_free(r->copier);
    if (r->own_type)
        PMPI_Type_free(&r->type);
    tiara_free(r);
}
