/*
 * TIARA_Allgather: bytes that are moved, packed where a type has holes.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"

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
    return tiara_core_pack(from, extent, size, count, type, dense, unpack) == MPI_SUCCESS
               ? TIARA_OK
               : TIARA_ERR_MPI;
}

/* Dense stand-ins @in and @out for buffers whose types have holes; NULL where there are none. The
 * input is packed. */
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
 * Moves bytes, packed where a type has holes. Ranks may describe the same data by different types,
 * so that whether a type has holes must not decide about the path: only the number of bytes, which
 * is equal on all ranks, does.
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

static int pass_gather(struct tiara_comm *c, const struct gathering *g)
{
    MPI_Request request;
    int rc;

    c->calls[TIARA_COUNT_MPI]++;
    if (!tiara_core_pass_driven(c))
        return PMPI_Allgather(g->sendbuf, (int)g->send_count, g->send_type, g->recvbuf,
            (int)g->recv_count, g->recv_type, c->comm);
    rc = PMPI_Iallgather(g->sendbuf, (int)g->send_count, g->send_type, g->recvbuf,
        (int)g->recv_count, g->recv_type, c->comm, &request);
    return rc == MPI_SUCCESS ? tiara_core_await(request) : rc;
}

/*
 * On copies in host memory; @by_mpi: by the MPI below only. Returns MPI_SUCCESS or a raised error.
 */
static int gather_near(struct tiara_comm *c, const struct gathering *g, bool by_mpi)
{
    int remote = c->size;
    struct gathering there = *g;
    struct tiara_near in = {0}, out = {0};
    struct tiara_call call = {.coll = TIARA_COLL_ALLGATHER,
        .count = g->recv_count * g->recv.size,
        .elem = {.type = -1, .oper = -1, .size = 1}};
    enum tiara_err err;
    int rc = -1;

    if (c->inter)
        PMPI_Comm_remote_size(c->comm, &remote);
    err = tiara_near_open(
        c, &out, g->recvbuf, (size_t)remote * g->recv_count, g->recv_type, g->in_place);
    if (err == TIARA_OK)
        err = tiara_near_open(
            c, &in, g->sendbuf, g->in_place ? 0 : g->send_count, g->send_type, true);
    there.sendbuf = g->in_place ? MPI_IN_PLACE : in.buf;
    there.recvbuf = out.buf;
    if (!by_mpi && err != TIARA_OK) {
        rc = tiara_call_abandon(c, &call);
    } else if (!by_mpi) {
        enum tiara_err done = gather(c, &there);
        rc = done == TIARA_ERR_UNSUPPORTED ? -1 : tiara_core_raise(c->comm, done);
    }
    if (rc == -1) {
        err = tiara_near_agree(c, err);
        if (err == TIARA_OK)
            rc = pass_gather(c, &there);
    }
    err = tiara_err_first(err, tiara_near_close(c, &in, false));
    err = tiara_err_first(err, tiara_near_close(c, &out, err == TIARA_OK && rc == MPI_SUCCESS));
    return err != TIARA_OK ? tiara_core_raise(c->comm, err) : rc;
}

/* What Tiara does not do. */
static int leave_to_mpi(struct tiara_comm *c, const struct gathering *g)
{
    if ((tiara_near_is(g->sendbuf) && tiara_near_is(g->recvbuf)) || tiara_device_mpi_direct()) {
        enum tiara_err err = tiara_near_agree(c, TIARA_OK);

        return err == TIARA_OK ? pass_gather(c, g) : tiara_core_raise(c->comm, err);
    }
    return gather_near(c, g, true);
}

/* Checks the arguments and runs. Returns MPI_SUCCESS or a raised error. */
static int check_and_gather(struct tiara_comm *c, struct gathering *g)
{
    enum tiara_err err;
    int in = 0, out = 0, rc;

    if (c->inter || c->facts.mpi_only)
        return leave_to_mpi(c, g);
    if (g->recv_type == MPI_DATATYPE_NULL || g->send_type == MPI_DATATYPE_NULL)
        return tiara_core_raise_code(c->comm, MPI_ERR_TYPE);
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
        return tiara_core_raise_code(c->comm, MPI_ERR_COUNT);
    if (g->recvbuf == MPI_IN_PLACE || (!g->recv.packed && !g->recvbuf) ||
        (!g->in_place && !g->send.packed && (!g->sendbuf || g->sendbuf == g->recvbuf)))
        return tiara_core_raise_code(c->comm, MPI_ERR_BUFFER);
    if ((!g->in_place && g->send.packed && !tiara_near_is(g->sendbuf)) ||
        (g->recv.packed && !tiara_near_is(g->recvbuf)))
        return gather_near(c, g, false);
    err = gather(c, g);
    return err == TIARA_ERR_UNSUPPORTED ? leave_to_mpi(c, g) : tiara_core_raise(c->comm, err);
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
        return tiara_core_raise_code(comm, MPI_ERR_COUNT);
    return check_and_gather(c, &g);
}
