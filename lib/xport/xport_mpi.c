/*
 * Transport mpi: messages through the MPI below, on a communicator that only Tiara uses.
 *
 * The one idea: an MPI request is kept by value in tiara_xport_req, so that this transport
 * allocates nothing for a message, and the matching rules are MPI's own.
 *
 * Communicators. Making one and freeing one are collective. Ranks open together, so it is made
 * there; but an object may be closed when one rank happens to come by. Then the communicator is
 * kept as a spare, and the next open on the same ranks takes one that all of them keep. Spares are
 * known by a cookie, since ranks need not have put them aside in the same order.
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
#include "xport/mpi_comm.h"
#include "xport/xport.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "base/log.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <string.h>

/* Piece of a datatype for a large message. */
#define PIECE_BYTES ((size_t)1 << 30)

struct mpi {
    struct tiara_xport_head head;
    MPI_Comm comm;
    uint64_t id; /* the communicator's cookie; 0: there is none */
};

/* A communicator that no object of this rank uses. */
struct spare {
    MPI_Comm comm;
    uint64_t id;
    struct spare *next;
};

static struct spare *spares; /* oldest first */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of spares */

/* The use of tiara_xport_req.handle. */
enum {
    HANDLE_REQUEST, /* the MPI_Request, by value */
    HANDLE_KIND /* NULL: a send; else a receive */
};
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "an MPI_Request fits into a handle");

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
    int lengths[2] = {(int)(len / PIECE_BYTES), (int)(len % PIECE_BYTES)};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(len - len % PIECE_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int rc = PMPI_Type_contiguous((int)PIECE_BYTES, MPI_BYTE, &types[0]);

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

/* ---- communicators ---- */

/* Takes the oldest spare of the ranks of @parent out of the list, or the one with @id if that is
 * not 0. NULL: there is none. */
static struct spare *spare_take(MPI_Comm parent, uint64_t id)
{
    struct spare **at, *found;
    int alike = MPI_UNEQUAL;

    pthread_mutex_lock(&lock);
    for (at = &spares; *at != NULL; at = &(*at)->next) {
        if (id != 0 ? (*at)->id == id
                    : PMPI_Comm_compare(parent, (*at)->comm, &alike) == MPI_SUCCESS &&
                          alike == MPI_CONGRUENT)
            break;
    }
    found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

/* At the end, so that one that others do not have does not stand before those that they have. */
static void spare_put(struct spare *spare)
{
    struct spare **at;

    spare->next = NULL;
    pthread_mutex_lock(&lock);
    for (at = &spares; *at != NULL;)
        at = &(*at)->next;
    *at = spare;
    pthread_mutex_unlock(&lock);
}

/* A spare that all ranks of @parent have, into @x; x->id is 0 when there is none. *fresh_out: the
 * cookie of a new one. */
static int spare_find(struct mpi *x, MPI_Comm parent, int rank, uint64_t *fresh_out)
{
    struct spare *spare = rank == 0 ? spare_take(parent, 0) : NULL;
    uint64_t said[2] = {spare != NULL ? spare->id : 0, tiara_cookie()};
    int rc = PMPI_Bcast(said, 2, MPI_UINT64_T, 0, parent), have = 0, all = 0;

    if (rc == MPI_SUCCESS && said[0] != 0) {
        if (rank != 0)
            spare = spare_take(parent, said[0]);
        have = spare != NULL;
        rc = PMPI_Allreduce(&have, &all, 1, MPI_INT, MPI_MIN, parent);
    }
    if (spare != NULL && all) {
        x->comm = spare->comm;
        x->id = spare->id;
        tiara_free(spare);
    } else if (spare != NULL) {
        spare_put(spare);
    }
    *fresh_out = said[1];
    return rc;
}

int tiara_xport_mpi_comm(MPI_Comm parent, MPI_Comm *comm_out)
{
    MPI_Errhandler handler;
    MPI_Group members;
    int rc;

    PMPI_Comm_get_errhandler(parent, &handler);
    PMPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    rc = PMPI_Comm_group(parent, &members);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Comm_create(parent, members, comm_out);
        PMPI_Group_free(&members);
    }
    PMPI_Comm_set_errhandler(parent, handler);
    PMPI_Errhandler_free(&handler);
    return rc == MPI_SUCCESS ? PMPI_Comm_set_errhandler(*comm_out, MPI_ERRORS_RETURN) : rc;
}

/* How many low bits of a tag this MPI lets messages use. */
static uint32_t tag_bits_of(MPI_Comm comm)
{
    int *top, flag = 0;
    uint32_t bits = 15;

    if (PMPI_Comm_get_attr(comm, MPI_TAG_UB, &top, &flag) == MPI_SUCCESS && flag)
        while (bits < 30 && ((int64_t)1 << (bits + 1)) - 1 <= *top)
            bits++;
    return bits;
}

/* Nothing here fails on one rank only, but inside MPI. */
static enum tiara_err mpi_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    MPI_Comm parent = *(const MPI_Comm *)group->params;
    struct mpi *x = obj;
    uint64_t fresh;
    int rc = spare_find(x, parent, group->rank, &fresh);

    (void)expose_bytes; /* Nothing is exposed. */
    if (rc == MPI_SUCCESS && x->id == 0) {
        rc = tiara_xport_mpi_comm(parent, &x->comm);
        x->id = rc == MPI_SUCCESS ? fresh : 0;
    }
    if (rc != MPI_SUCCESS) {
        tiara_warn("MPI has no further communicator for one of %d ranks, whose calls go to it",
            group->size);
        return TIARA_ERR_UNSUPPORTED;
    }
    x->head.tag_bits = tag_bits_of(x->comm);
    return TIARA_OK;
}

/*
 * A message that comes after its communicator was freed could be taken for one of the next
 * communicator; so a broken one is left to MPI_Finalize, which all ranks call together. So are
 * spares.
 */
static void mpi_close(void *obj)
{
    struct mpi *x = obj;
    struct spare *spare;

    while (x == NULL && spares != NULL) {
        spare = spares;
        spares = spare->next;
        tiara_free(spare);
    }
    if (x == NULL)
        return;
    if (x->id != 0 && x->head.end == TIARA_XPORT_END_TOGETHER)
        PMPI_Comm_free(&x->comm);
    if (x->id != 0 && x->head.end == TIARA_XPORT_END_ALONE) {
        spare = tiara_alloc(1, sizeof *spare);
        if (spare != NULL) {
            *spare = (struct spare){.comm = x->comm, .id = x->id};
            spare_put(spare);
        }
    }
    memset(x, 0, sizeof *x);
}

/* ---- messages ---- */

/* Starts a message of req->len bytes: to req->peer from @buf, or, when HANDLE_KIND says so, from it
 * into @buf. */
static enum tiara_err message_start(
    const struct mpi *x, uint32_t tag, void *buf, struct tiara_xport_req *req)
{
    bool is_recv = req->handle[HANDLE_KIND] != NULL;
    bool is_large = req->len > INT_MAX;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type = MPI_BYTE;
    int count = is_large ? 1 : (int)req->len, rc = MPI_SUCCESS;

    if (is_large)
        rc = large_type(req->len, &type);
    if (rc != MPI_SUCCESS)
        return mpi_error("datatype of a message", rc, req->peer);
    if (is_recv)
        rc = PMPI_Irecv(buf, count, type, req->peer, (int)tag, x->comm, &request);
    else
        rc = PMPI_Isend(buf, count, type, req->peer, (int)tag, x->comm, &request);
    if (is_large)
        PMPI_Type_free(&type);
    if (rc != MPI_SUCCESS)
        return mpi_error(is_recv ? "MPI_Irecv" : "MPI_Isend", rc, req->peer);
    request_store(req, request);
    return TIARA_OK;
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

static enum tiara_err mpi_send(
    void *obj, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct tiara_xport_req forgotten, *own = req != NULL ? req : &forgotten;
    struct mpi *x = obj;
    enum tiara_err err;

    *own = (struct tiara_xport_req){.len = len, .peer = peer};
    err = message_start(x, tag, (void *)(uintptr_t)buf, own);
    x->head.sent += err == TIARA_OK;
    if (err == TIARA_OK && req == NULL)
        mpi_cancel(x, own); /* MPI sends it nevertheless */
    return err;
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

static bool probe_tag(const struct mpi *x, int peer, int tag, uint32_t *tag_out)
{
    MPI_Status status;
    int flag = 0;

    if (PMPI_Iprobe(peer, tag, x->comm, &flag, &status) != MPI_SUCCESS || !flag)
        return false;
    *tag_out = (uint32_t)status.MPI_TAG;
    return true;
}

static bool mpi_probe(void *obj, int peer, uint32_t *tag_out)
{
    const struct mpi *x = obj;

    for (unsigned kind = 0; kind < TIARA_XPORT_CONTROLS; kind++) {
        if (probe_tag(x, peer, (int)tiara_xport_control(x->head.tag_bits, kind), tag_out))
            return true;
    }
    return probe_tag(x, peer, MPI_ANY_TAG, tag_out);
}

const struct tiara_xport tiara_xport_mpi = {
    .name = "mpi",
    .flags = TIARA_XPORT_MESSAGE | TIARA_XPORT_PROCESSES | TIARA_XPORT_NODES | TIARA_XPORT_BELOW,
    .size = sizeof(struct mpi),
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .probe = mpi_probe,
};
