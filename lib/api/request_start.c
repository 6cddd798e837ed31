/*
 * TIARA_Iallreduce, TIARA_Allreduce_init and TIARA_Start: arguments are checked here.
 */
#include "api/describe.h"
#include "api/process.h"
#include "base/alloc.h"
#include "call/below.h"
#include "call/request.h"
#include "tiara.h"

/* What follows from the arguments. The communicator is valid; @c: its state, or NULL. */
static void derive(struct tiara_request *r, const struct tiara_comm *c)
{
    int inter = 0;

    r->native = tiara_elem_native(r->type, r->op, &r->elem);
    if (c && !c->inter) {
        r->ranks = c->size;
        return;
    }
    PMPI_Comm_test_inter(r->comm, &inter);
    r->inter = inter != 0;
    r->ranks = tiara_below_ranks(r->comm);
}

/* The error class of arguments that MPI need not be asked about, or MPI_SUCCESS. Counts and buffers
 * of an intercommunicator are MPI's to judge. */
static int judge(const struct tiara_request *r)
{
    int rc = tiara_describe_bad_handles(r->type, r->op, r->native ? NULL : &r->elem);

    if (r->inter)
        return rc;
    if (r->count < 0)
        return MPI_ERR_COUNT;
    if (rc == MPI_SUCCESS && r->count > 0 &&
        tiara_describe_bad_buffers(r->sendbuf, r->recvbuf, r->native))
        rc = MPI_ERR_BUFFER;
    return rc;
}

/*
 * A request for @args on @comm, which is valid and has the state @c, or none. NULL after an error,
 * which was raised (*rc_out is it). Without memory it is @spare: the other ranks will wait for this
 * one's part, whatever becomes of its request.
 */
static struct tiara_request *request_new(const struct tiara_args *args, MPI_Comm comm,
    const struct tiara_comm *c, struct tiara_request *spare, int *rc_out)
{
    struct tiara_request *r = tiara_alloc(1, sizeof(*r));
    bool is_spare = !r;

    if (is_spare) {
        r = spare;
        *r = (struct tiara_request){.spare = true};
    }
    r->sendbuf = args->sendbuf;
    r->recvbuf = args->recvbuf;
    r->count = args->count;
    r->type = args->type;
    r->op = args->op;
    r->comm = comm;
    r->comm_id = c ? c->id : 0;
    derive(r, c);
    *rc_out = judge(r);
    if (*rc_out == MPI_SUCCESS)
        return r;
    if (!is_spare)
        tiara_free(r);
    tiara_below_raise_code(comm, *rc_out);
    return NULL;
}

int TIARA_Iallreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, TIARA_Request *request)
{
    struct tiara_args args = {
        .sendbuf = sendbuf, .recvbuf = recvbuf, .count = count, .type = datatype, .op = op};
    struct tiara_comm *c;
    struct tiara_request *r, spare;
    int rc;

    *request = TIARA_REQUEST_NULL;
    rc = tiara_process_find(comm, true, &c);
    if (rc != MPI_SUCCESS)
        return rc;
    r = request_new(&args, comm, c, &spare, &rc);
    if (!r)
        return rc;
    rc = tiara_request_start(r, c);
    if (rc != MPI_SUCCESS) {
        tiara_request_delete(r);
        return rc;
    }
    *request = r;
    /* There is nowhere to keep it: it ends here. */
    return r->spare ? TIARA_Wait(request, MPI_STATUS_IGNORE) : MPI_SUCCESS;
}

int TIARA_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, TIARA_Request *request)
{
    return TIARA_Iallreduce_c(sendbuf, recvbuf, count, datatype, op, comm, request);
}

/* ---- persistent ---- */

/* Derived types may be freed by the program while the request lives; a copy of a predefined one is
 * not the same to operators. */
static int keep_type(struct tiara_request *r)
{
    int integers, addresses, types, combiner, rc;

    if (r->native || r->elem.type >= 0)
        return MPI_SUCCESS;
    rc = PMPI_Type_get_envelope(r->type, &integers, &addresses, &types, &combiner);
    if (rc != MPI_SUCCESS || combiner == MPI_COMBINER_NAMED)
        return rc;
    rc = PMPI_Type_dup(r->type, &r->type);
    r->own_type = rc == MPI_SUCCESS;
    return rc;
}

/* Collective. Returns MPI_SUCCESS, also when the operation will be the MPI's; or a raised error. */
static int open_channel(struct tiara_request *r, struct tiara_comm *c)
{
    struct tiara_call call = {
        .coll = TIARA_COLL_ALLREDUCE, .count = (size_t)r->count, .elem = r->elem};

    if (!c || !r->native || r->count == 0)
        return MPI_SUCCESS;
    return tiara_below_raise(r->comm, tiara_async_channel(c, &call, &r->channel));
}

int TIARA_Allreduce_init_c(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, TIARA_Request *request)
{
    struct tiara_args args = {
        .sendbuf = sendbuf, .recvbuf = recvbuf, .count = count, .type = datatype, .op = op};
    struct tiara_comm *c;
    struct tiara_request *r, spare;
    int rc;

    (void)info;
    *request = TIARA_REQUEST_NULL;
    c = tiara_process_get(comm, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    r = request_new(&args, comm, c, &spare, &rc);
    if (!r)
        return rc;
    r->persistent = true;
    if (!r->inter && !r->native)
        rc = tiara_below_judge(r->comm, r->type, r->op);
    if (rc == MPI_SUCCESS)
        rc = open_channel(r, c);
    if (rc == MPI_SUCCESS)
        rc = keep_type(r);
    if (rc == MPI_SUCCESS && !r->channel)
        rc = tiara_request_prepare(r);
    if (rc == MPI_SUCCESS && r->spare)
        rc = tiara_below_raise(r->comm, TIARA_ERR_NOMEM);
    if (rc != MPI_SUCCESS)
        tiara_request_delete(r);
    else
        *request = r;
    return rc;
}

int TIARA_Allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
    MPI_Op op, MPI_Comm comm, MPI_Info info, TIARA_Request *request)
{
    return TIARA_Allreduce_init_c(sendbuf, recvbuf, count, datatype, op, comm, info, request);
}

static bool can_start(TIARA_Request r)
{
    return r && r->persistent && !r->active;
}

int TIARA_Start(TIARA_Request *request)
{
    if (!request || !can_start(*request))
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_REQUEST);
    return tiara_request_start(*request, NULL);
}

int TIARA_Startall(int count, TIARA_Request requests[])
{
    int rc = MPI_SUCCESS;

    if (count < 0)
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_COUNT);
    for (int i = 0; i < count; i++)
        if (!requests || !can_start(requests[i]))
            return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_REQUEST);
    for (int i = 0; i < count && rc == MPI_SUCCESS; i++)
        rc = tiara_request_start(requests[i], NULL);
    return rc;
}
