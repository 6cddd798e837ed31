/*
 * Transport mpi: messages through the MPI below, on a communicator that only Tiara uses.
 *
 * The one idea: an MPI request is kept by value in tiara_xport_req, so that this transport owns
 * nothing and allocates nothing, and the matching rules are MPI's own.
 *
 * Lengths. MPI's counts are int; this is the only place of the library where a size becomes an int.
 * A message of more than INT_MAX bytes is one element of a datatype made for its length, so that it
 * stays one message: several would have to be kept in order with others of the same tag.
 *
 * What does not hold with Open MPI 4.1.4 below, when a message is longer than the posted receive.
 * Above the eager limit (4 KiB), over shared memory with CMA and over TCP, the receive ends with
 * TIARA_ERR_MISMATCH as promised, but the whole message has been written by then, beyond the end of
 * the buffer. A message to oneself is cut without any error. So callers must keep calls of
 * different lengths from matching: their tags differ, as they hold a digest of the call. Asking for
 * the length first (MPI_Improbe) would cost every message its posted receive.
 */
#include "xport/xport.h"
#include "base/log.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

/* Piece of a datatype for a large message. */
#define PIECE_BYTES ((size_t)1 << 30)

struct mpi {
    MPI_Comm comm; /* borrowed until close */
};

/* The use of tiara_xport_req.handle. */
enum {
    HANDLE_REQUEST, /* the MPI_Request, by value */
    HANDLE_KIND, /* NULL: a send; else a receive */
    NHANDLES
};
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "an MPI_Request fits into a handle");
_Static_assert(NHANDLES <= sizeof(((struct tiara_xport_req *)0)->handle) / sizeof(void *),
    "there are enough handles");

static MPI_Request request_load(const struct tiara_xport_req *req)
{
    MPI_Request request;

    memcpy(&request, &req->handle[HANDLE_REQUEST], sizeof request);
    return request;
}

static void request_store(struct tiara_xport_req *req, MPI_Request request)
{
    memcpy(&req->handle[HANDLE_REQUEST], &request, sizeof request);
}

/* Logs what MPI says about @rc of @call with @peer. A message that is too long is the callers'
 * disagreement. */
static enum tiara_err mpi_error(const char *call, int rc, int peer)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0, class = MPI_ERR_OTHER;

    if (PMPI_Error_string(rc, text, &length) != MPI_SUCCESS)
        length = 0;
    (void)PMPI_Error_class(rc, &class);
    tiara_error("%s with rank %d: %.*s", call, peer, length, text);
    return class == MPI_ERR_TRUNCATE ? TIARA_ERR_MISMATCH : TIARA_ERR_MPI;
}

/* A datatype of @len bytes, more than INT_MAX: pieces, then the rest. */
static int large_type(size_t len, MPI_Datatype *type_out)
{
    int lengths[2] = {1, (int)(len % PIECE_BYTES)};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(len - len % PIECE_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, piece;
    int rc = PMPI_Type_contiguous((int)PIECE_BYTES, MPI_BYTE, &piece);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Type_contiguous((int)(len / PIECE_BYTES), piece, &types[0]);
    PMPI_Type_free(&piece);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Type_create_struct(2, lengths, offsets, types, type_out);
    PMPI_Type_free(&types[0]);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Type_commit(type_out);
    if (rc != MPI_SUCCESS)
        PMPI_Type_free(type_out);
    return rc;
}

/* How @len bytes are said to MPI. A type other than MPI_BYTE is to be freed when the call has
 * started. */
static int describe(size_t len, int *count_out, MPI_Datatype *type_out)
{
    *type_out = MPI_BYTE;
    *count_out = 1;
    if (len > INT_MAX)
        return large_type(len, type_out);
    *count_out = (int)len;
    return MPI_SUCCESS;
}

static enum tiara_err mpi_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct mpi *x = obj;

    (void)expose_bytes; /* Nothing is exposed. */
    /* Nothing here can fail on one rank only, so that there is nothing to agree about. */
    x->comm = *(const MPI_Comm *)group->params;
    return TIARA_OK;
}

static void mpi_close(void *obj)
{
    memset(obj, 0, sizeof(struct mpi));
}

/* Starts a message of req->len bytes: to req->peer from @buf, or, when HANDLE_KIND says so, from it
 * into @buf. */
static enum tiara_err message_start(
    const struct mpi *x, uint32_t tag, void *buf, struct tiara_xport_req *req)
{
    bool is_recv = req->handle[HANDLE_KIND] != NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type;
    int count, rc = describe(req->len, &count, &type);

    if (rc != MPI_SUCCESS)
        return mpi_error("datatype of a message", rc, req->peer);
    if (is_recv)
        rc = PMPI_Irecv(buf, count, type, req->peer, (int)tag, x->comm, &request);
    else
        rc = PMPI_Isend(buf, count, type, req->peer, (int)tag, x->comm, &request);
    if (type != MPI_BYTE)
        PMPI_Type_free(&type);
    if (rc != MPI_SUCCESS)
        return mpi_error(is_recv ? "MPI_Irecv" : "MPI_Isend", rc, req->peer);
    request_store(req, request);
    return TIARA_OK;
}

static enum tiara_err mpi_send(
    void *obj, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    *req = (struct tiara_xport_req){.len = len, .peer = peer};
    return message_start(obj, tag, (void *)(uintptr_t)buf, req);
}

static enum tiara_err mpi_recv(
    void *obj, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    *req = (struct tiara_xport_req){.len = len, .peer = peer};
    req->handle[HANDLE_KIND] = req;
    return message_start(obj, tag, buf, req);
}

/* Has a finished receive brought as many bytes as were asked for? */
static enum tiara_err length_check(const struct tiara_xport_req *req, const MPI_Status *status)
{
    MPI_Count bytes = 0;
    int rc = PMPI_Get_elements_x(status, MPI_BYTE, &bytes);

    if (rc != MPI_SUCCESS)
        return mpi_error("MPI_Get_elements_x", rc, req->peer);
    if (bytes >= 0 && (size_t)bytes == req->len)
        return TIARA_OK;
    tiara_error("message from rank %d with tag %d has %lld bytes, expected %zu", req->peer,
        status->MPI_TAG, (long long)bytes, req->len);
    return TIARA_ERR_MISMATCH;
}

static enum tiara_err mpi_test(void *obj, struct tiara_xport_req *req)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0, rc;

    (void)obj;
    if (req->done)
        return TIARA_OK;
    request = request_load(req);
    rc = PMPI_Test(&request, &flag, &status);
    request_store(req, request);
    if (rc != MPI_SUCCESS) {
        req->done = true;
        return mpi_error("MPI_Test", rc, req->peer);
    }
    if (!flag)
        return TIARA_OK;
    req->done = true;
    return req->handle[HANDLE_KIND] != NULL ? length_check(req, &status) : TIARA_OK;
}

/* MPI cancels a receive that has not matched; one that has is received to its end. A send is left
 * to MPI. */
static void mpi_cancel(void *obj, struct tiara_xport_req *req)
{
    MPI_Request request = request_load(req);

    (void)obj;
    if (request != MPI_REQUEST_NULL && req->handle[HANDLE_KIND]) {
        PMPI_Cancel(&request);
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (request != MPI_REQUEST_NULL) {
        PMPI_Request_free(&request);
    }
    request_store(req, MPI_REQUEST_NULL);
    req->done = true;
}

const struct tiara_xport tiara_xport_mpi = {
    .name = "mpi",
    .flags = TIARA_XPORT_MESSAGE,
    .size = sizeof(struct mpi),
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .cancel = mpi_cancel,
};
