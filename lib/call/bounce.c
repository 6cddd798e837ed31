/*
 * Whoever needs bounce buffers pays for whole copies; the calls that Tiara itself runs never do.
 *
 * The copy spans from the lowest to the highest byte that the elements touch, so that the type's
 * own layout holds in it.
 */
#include "call/bounce.h"
#include "base/alloc.h"
#include "call/stage.h"

bool tiara_bounce_is_host(const void *buf)
{
    const struct tiara_gpu *gpu = tiara_device();
    struct tiara_gpu_pointer p = {0};

    if (!gpu || !buf || buf == MPI_IN_PLACE || buf == MPI_BOTTOM)
        return true;
    return gpu->look(buf, 1, &p) != TIARA_OK || !p.device;
}

bool tiara_bounce_is_host_call(const struct tiara_call *call)
{
    return tiara_bounce_is_host(call->args.sendbuf) && tiara_bounce_is_host(call->args.recvbuf);
}

/* Bytes that @count elements of @type span, and where the lowest lies. */
static enum tiara_err span(size_t count, MPI_Datatype type, struct tiara_bounce *b, bool *holes_out)
{
    MPI_Aint lb, extent, true_lb, true_extent, last;
    MPI_Count size;

    if (PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS ||
        PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    last = count > 0 ? (MPI_Aint)(count - 1) * extent : 0;
    b->first = true_lb + (last < 0 ? last : 0);
    b->bytes = count > 0 ? (size_t)((last < 0 ? -last : last) + true_extent) : 0;
    *holes_out = size != true_extent || extent != true_extent;
    return TIARA_OK;
}

enum tiara_err tiara_bounce_open(struct tiara_comm *c, struct tiara_bounce *b, const void *buf,
    size_t count, MPI_Datatype type, bool fetch)
{
    bool holes;
    enum tiara_err err;

    *b = (struct tiara_bounce){.buf = (void *)(uintptr_t)buf, .user = (void *)(uintptr_t)buf};
    if (tiara_bounce_is_host(buf))
        return TIARA_OK;
    err = span(count, type, b, &holes);
    if (err != TIARA_OK || b->bytes == 0)
        return err;
    b->copy = tiara_alloc_aligned(64, b->bytes);
    if (!b->copy)
        return TIARA_ERR_NOMEM;
    b->buf = b->copy - b->first;
    return fetch || holes ? tiara_bounce_fetch(c, b) : TIARA_OK;
}

enum tiara_err tiara_bounce_fetch(struct tiara_comm *c, const struct tiara_bounce *b)
{
    if (!b->copy)
        return TIARA_OK;
    return tiara_stage_copy(c, b->copy, (char *)b->user + b->first, b->bytes, false);
}

enum tiara_err tiara_bounce_store(struct tiara_comm *c, const struct tiara_bounce *b)
{
    if (!b->copy)
        return TIARA_OK;
    return tiara_stage_copy(c, (char *)b->user + b->first, b->copy, b->bytes, true);
}

void tiara_bounce_drop(struct tiara_bounce *b)
{
    tiara_free(b->copy);
    b->copy = NULL;
}

/* ---- both buffers of a call ---- */

static void point_at(struct tiara_call *call, const void *sendbuf, void *recvbuf)
{
    call->args.sendbuf = sendbuf;
    call->args.recvbuf = recvbuf;
    call->out = recvbuf;
    call->in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
}

/* The first block of an in-place reduce-scatter is the result, and the rest stays: so the whole is
 * a copy, and written back. */
static size_t recv_elems(const struct tiara_comm *c, const struct tiara_call *call)
{
    size_t count = (size_t)call->args.count;
    int ranks = c->size;

    if (c->inter)
        PMPI_Comm_remote_size(c->comm, &ranks);
    if (call->coll == TIARA_COLL_ALLGATHER ||
        (call->coll == TIARA_COLL_REDUCE_SCATTER && call->args.sendbuf == MPI_IN_PLACE))
        return count * (size_t)ranks;
    return count;
}

static size_t send_elems(const struct tiara_comm *c, const struct tiara_call *call)
{
    if (call->coll == TIARA_COLL_ALLGATHER)
        return (size_t)call->args.send_count;
    return (size_t)call->args.count *
           (call->coll == TIARA_COLL_REDUCE_SCATTER ? (size_t)c->size : 1);
}

enum tiara_err tiara_bounces_open(
    struct tiara_comm *c, struct tiara_bounces *b, struct tiara_call *call)
{
    const struct tiara_args *a = &call->args;
    bool in_place = a->sendbuf == MPI_IN_PLACE;
    MPI_Datatype send_type = call->coll == TIARA_COLL_ALLGATHER ? a->send_type : a->type;
    enum tiara_err err;

    *b = (struct tiara_bounces){.user = *a};
    err = tiara_bounce_open(c, &b->out, a->recvbuf, recv_elems(c, call), a->type, in_place);
    if (err == TIARA_OK)
        err = tiara_bounce_open(
            c, &b->in, a->sendbuf, in_place ? 0 : send_elems(c, call), send_type, true);
    if (err == TIARA_OK)
        point_at(call, in_place ? MPI_IN_PLACE : b->in.buf, b->out.buf);
    return err;
}

enum tiara_err tiara_bounces_close(
    struct tiara_comm *c, struct tiara_bounces *b, struct tiara_call *call, bool store)
{
    enum tiara_err err;

    if (b->in.copy || b->out.copy)
        point_at(call, b->user.sendbuf, b->user.recvbuf);
    err = store ? tiara_bounce_store(c, &b->out) : TIARA_OK;
    tiara_bounce_drop(&b->in);
    tiara_bounce_drop(&b->out);
    return err;
}
