/*
 * Arguments that look wrong to Tiara. What MPI refuses, it refuses itself, by its own function and
 * before it has asked any other rank; what it runs must be run, by whoever serves the call.
 *
 * Buffers may be odd on some ranks only, which says nothing about who serves. A send buffer that is
 * the receive buffer stands for MPI_IN_PLACE, if MPI runs that at all: it is asked once, on
 * MPI_COMM_SELF, before the program does anything.
 */
#include "base/alloc.h"
#include "pmpi/engine_priv.h"

/* Of buffers that are one: of one element, and of more. Constant once learned. */
static bool alias_is_refused[TIARA_NKINDS][2];

static void learn_aliases(int more)
{
    int data[2] = {1, 1}, n = 1 + more;
    MPI_Request request;
    int rc = PMPI_Iallreduce(data, data, n, MPI_INT, MPI_SUM, MPI_COMM_SELF, &request);

    if (rc == MPI_SUCCESS)
        rc = PMPI_Wait(&request, MPI_STATUS_IGNORE);
    alias_is_refused[TIARA_KIND_IALLREDUCE][more] = rc != MPI_SUCCESS;
    alias_is_refused[TIARA_KIND_ALLREDUCE_INIT][more] = rc != MPI_SUCCESS;
    alias_is_refused[TIARA_KIND_ALLREDUCE][more] =
        PMPI_Allreduce(data, data, n, MPI_INT, MPI_SUM, MPI_COMM_SELF) != MPI_SUCCESS;
    alias_is_refused[TIARA_KIND_REDUCE_SCATTER_BLOCK][more] =
        PMPI_Reduce_scatter_block(data, data, n, MPI_INT, MPI_SUM, MPI_COMM_SELF) != MPI_SUCCESS;
    alias_is_refused[TIARA_KIND_ALLGATHER][more] =
        PMPI_Allgather(data, n, MPI_INT, data, n, MPI_INT, MPI_COMM_SELF) != MPI_SUCCESS;
}

void tiara_engine_args_init(void)
{
    /* Open MPI raises what an Iallreduce refuses on MPI_COMM_WORLD. */
    const MPI_Comm comms[] = {MPI_COMM_SELF, MPI_COMM_WORLD};
    MPI_Errhandler handlers[2];

    for (int i = 0; i < 2; i++) {
        PMPI_Comm_get_errhandler(comms[i], &handlers[i]);
        PMPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN);
    }
    learn_aliases(0);
    learn_aliases(1);
    for (int i = 0; i < 2; i++) {
        PMPI_Comm_set_errhandler(comms[i], handlers[i]);
        PMPI_Errhandler_free(&handlers[i]);
    }
}

static bool is_named(MPI_Datatype type)
{
    int integers, addresses, types, combiner = MPI_COMBINER_DUP;

    return PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) == MPI_SUCCESS &&
           combiner == MPI_COMBINER_NAMED;
}

/* Where the own block of a gathered vector is. */
static char *own_block(const struct tiara_engine_args *a)
{
    MPI_Aint lb, extent = 0;
    int rank = 0;

    PMPI_Comm_rank(a->comm, &rank);
    PMPI_Type_get_extent(a->type, &lb, &extent);
    return (char *)a->recvbuf + rank * a->count * extent;
}

/* An all-gather moves bytes, and MPI may run what does not fit together. */
static enum tiara_engine_judgement judge_gather(struct tiara_engine_args *a)
{
    int send_size = 0, recv_size = 0;
    bool is_own;

    if (a->sendbuf == MPI_IN_PLACE)
        return TIARA_ARGS_RIGHT;
    if (a->sendcount < 0 || a->sendtype == MPI_DATATYPE_NULL)
        return TIARA_ARGS_REFUSED;
    PMPI_Type_size(a->sendtype, &send_size);
    PMPI_Type_size(a->type, &recv_size);
    if ((MPI_Count)a->sendcount * send_size != a->count * recv_size)
        return TIARA_ARGS_ODD;
    if (!a->sendbuf && is_named(a->sendtype))
        return TIARA_ARGS_REFUSED;
    is_own = a->sendtype == a->type && a->sendcount == a->count && a->sendbuf == own_block(a);
    if (is_own && alias_is_refused[a->kind][a->count > 1])
        return TIARA_ARGS_REFUSED;
    if (is_own)
        a->sendbuf = MPI_IN_PLACE;
    return TIARA_ARGS_RIGHT;
}

enum tiara_engine_judgement tiara_engine_judge(struct tiara_engine_args *a)
{
    bool gathers = a->kind == TIARA_KIND_ALLGATHER;

    if (a->count < 0 || a->type == MPI_DATATYPE_NULL || (!gathers && a->op == MPI_OP_NULL))
        return TIARA_ARGS_REFUSED;
    if (a->count == 0)
        return TIARA_ARGS_RIGHT;
    /* An address that nobody can read is MPI's affair, if it is not MPI_BOTTOM. */
    if (a->recvbuf == MPI_IN_PLACE || (!a->recvbuf && is_named(a->type)))
        return TIARA_ARGS_REFUSED;
    if (gathers)
        return judge_gather(a);
    if (!a->sendbuf && is_named(a->type))
        return TIARA_ARGS_REFUSED;
    if (a->sendbuf == a->recvbuf && a->recvbuf != MPI_BOTTOM) {
        if (alias_is_refused[a->kind][a->count > 1])
            return TIARA_ARGS_REFUSED;
        a->sendbuf = MPI_IN_PLACE;
    }
    return TIARA_ARGS_RIGHT;
}

/* The bytes of the first block, which is another rank's, as this rank's own one. */
static int move_to_own(const struct tiara_engine_args *a)
{
    int rc, bytes = 0, position = 0;
    char *copy;

    rc = PMPI_Pack_size(a->sendcount, a->sendtype, MPI_COMM_SELF, &bytes);
    if (rc != MPI_SUCCESS)
        return rc;
    copy = tiara_alloc((size_t)bytes, 1);
    if (!copy)
        return MPI_ERR_NO_MEM;
    rc = PMPI_Pack(a->sendbuf, a->sendcount, a->sendtype, copy, bytes, &position, MPI_COMM_SELF);
    bytes = position;
    position = 0;
    if (rc == MPI_SUCCESS)
        rc = PMPI_Unpack(
            copy, bytes, &position, own_block(a), (int)a->count, a->type, MPI_COMM_SELF);
    tiara_free(copy);
    return rc;
}

int tiara_engine_part_buffers(struct tiara_engine_args *a)
{
    int rc;

    if (a->kind != TIARA_KIND_ALLGATHER || a->sendbuf != a->recvbuf || !a->recvbuf)
        return MPI_SUCCESS;
    rc = move_to_own(a);
    if (rc == MPI_SUCCESS)
        a->sendbuf = MPI_IN_PLACE;
    return rc == MPI_SUCCESS ? rc : tiara_engine_raise(a->comm, rc);
}
