/*
 * The engine's requests: a table from the program's handles to what stands behind them.
 *
 * Every call of the program that completes a request comes by (engine_complete.c); an entry lives
 * from its start until the program knows that it is complete. MPI may give a handle out again a
 * moment before, to another thread. So an entry that may be completed in a call is that call's
 * alone: no other one finds it, as none may name the same request meanwhile.
 */
#include "base/alloc.h"
#include "pmpi/engine_priv.h"
#include <pthread.h>

#define NBUCKETS 1024

tiara_u64 tiara_engine_nrequests;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tiara_engine_request *buckets[NBUCKETS]; /* lock */
static MPI_Comm self = MPI_COMM_NULL; /* lock until it is made */

/* ---- the table ---- */

static struct tiara_engine_request **bucket_of(MPI_Request handle)
{
    uint64_t h = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;

    return &buckets[(h >> 40) % NBUCKETS];
}

static void insert(struct tiara_engine_request *r, MPI_Request handle)
{
    struct tiara_engine_request **bucket = bucket_of(handle);

    r->handle = handle;
    pthread_mutex_lock(&lock);
    r->next = *bucket;
    *bucket = r;
    /* relaxed: who completes a request has got it from its start, by the program's own order */
    tiara_store_relaxed(&tiara_engine_nrequests, tiara_load_relaxed(&tiara_engine_nrequests) + 1);
    pthread_mutex_unlock(&lock);
}

static void take_out(struct tiara_engine_request *r)
{
    struct tiara_engine_request **at = bucket_of(r->handle);

    pthread_mutex_lock(&lock);
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at) {
        *at = r->next;
        /* relaxed: as in insert */
        tiara_store_relaxed(
            &tiara_engine_nrequests, tiara_load_relaxed(&tiara_engine_nrequests) - 1);
    }
    pthread_mutex_unlock(&lock);
}

/* NULL: none that no call has. Lock held. */
static struct tiara_engine_request *find(MPI_Request handle)
{
    struct tiara_engine_request *r = handle == MPI_REQUEST_NULL ? NULL : *bucket_of(handle);

    while (r && (r->handle != handle || r->taken))
        r = r->next;
    return r;
}

int tiara_engine_take(
    int count, const MPI_Request requests[], struct tiara_engine_request *owners_out[])
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        struct tiara_engine_request *r = owners_out[i] = find(requests[i]);

        if (r)
            r->taken = !r->persistent;
        n += r != NULL;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void tiara_engine_put_back(int count, struct tiara_engine_request *owners[])
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (owners[i])
            owners[i]->taken = false;
    pthread_mutex_unlock(&lock);
}

bool tiara_engine_owns(int count, const MPI_Request requests[])
{
    bool owns = false;

    /* relaxed: as in insert */
    if (tiara_load_relaxed(&tiara_engine_nrequests) == 0)
        return false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !owns; i++)
        owns = find(requests[i]) != NULL;
    pthread_mutex_unlock(&lock);
    return owns;
}

/* ---- generalized requests ---- */

/* The status of a collective operation says nothing. Its error is the engine's to return, as it was
 * raised already. */
static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    return MPI_SUCCESS;
}

static int ignore_free(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

/* Collective operations cannot be cancelled. */
static int refuse_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_ERR_REQUEST;
}

/* ---- start ---- */

static int start_nonblocking(
    const struct tiara_engine_args *a, struct tiara_engine_request *r, MPI_Request *handle_out)
{
    int rc = PMPI_Grequest_start(query, ignore_free, refuse_cancel, NULL, handle_out);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = TIARA_Iallreduce_c(a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm, &r->tiara);
    if (rc != MPI_SUCCESS) {
        PMPI_Grequest_complete(*handle_out);
        PMPI_Request_free(handle_out);
    }
    return rc;
}

/* The message that completes a persistent request goes to the process itself. Made once; local. */
static int open_self(void)
{
    int rc = MPI_SUCCESS;

    pthread_mutex_lock(&lock);
    if (self == MPI_COMM_NULL)
        rc = tiara_engine_like(MPI_COMM_SELF, &self);
    pthread_mutex_unlock(&lock);
    return rc;
}

/*
 * Tags are taken in turn: of two requests with one tag both are complete when either message comes.
 */
static int next_tag(void)
{
    static unsigned tags;
    unsigned tag;

    pthread_mutex_lock(&lock);
    tag = tags++;
    pthread_mutex_unlock(&lock);
    return (int)(tag & 0x7fff);
}

static int prepare_persistent(
    const struct tiara_engine_args *a, struct tiara_engine_request *r, MPI_Request *handle_out)
{
    int rc = open_self();

    r->tag = next_tag();
    if (rc == MPI_SUCCESS)
        rc = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, r->tag, self, handle_out);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = TIARA_Allreduce_init_c(
        a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm, a->info, &r->tiara);
    if (rc != MPI_SUCCESS)
        PMPI_Request_free(handle_out);
    return rc;
}

/* The other ranks wait for this one's part, whatever becomes of its request: so the operation ends
 * here. A persistent one is no use without. */
static int start_without_memory(const struct tiara_engine_args *a, MPI_Request *request)
{
    TIARA_Request tiara = TIARA_REQUEST_NULL;
    int rc;

    *request = MPI_REQUEST_NULL;
    if (a->kind == TIARA_KIND_IALLREDUCE) {
        rc = TIARA_Iallreduce_c(a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm, &tiara);
        return rc == MPI_SUCCESS ? TIARA_Wait(&tiara, MPI_STATUS_IGNORE) : rc;
    }
    rc = TIARA_Allreduce_init_c(
        a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm, a->info, &tiara);
    if (rc != MPI_SUCCESS)
        return rc;
    TIARA_Request_free(&tiara);
    return tiara_engine_raise(a->comm, MPI_ERR_NO_MEM);
}

int tiara_engine_start(const struct tiara_engine_args *a, MPI_Request *request)
{
    struct tiara_engine_request *r = tiara_alloc(1, sizeof(*r));
    MPI_Request handle = MPI_REQUEST_NULL;
    int rc;

    if (!r)
        return start_without_memory(a, request);
    r->persistent = a->kind == TIARA_KIND_ALLREDUCE_INIT;
    r->active = !r->persistent;
    if (r->persistent)
        rc = prepare_persistent(a, r, &handle);
    else if (tiara_engine_settings.mode == TIARA_MODE_VERIFY)
        r->shadow = tiara_engine_shadow_start(a, &handle, &r->tiara, &rc);
    else
        rc = start_nonblocking(a, r, &handle);
    if (rc != MPI_SUCCESS) {
        tiara_free(r);
        return rc;
    }
    insert(r, handle);
    *request = handle;
    return MPI_SUCCESS;
}

/* ---- end ---- */

static void mark_done(struct tiara_engine_request *r, int code)
{
    MPI_Request handle = r->handle;

    r->done = true;
    r->code = code;
    if (r->persistent) {
        PMPI_Start(&handle);
        PMPI_Send(NULL, 0, MPI_BYTE, 0, r->tag, self);
    } else {
        PMPI_Grequest_complete(handle);
    }
}

void tiara_engine_request_poll(struct tiara_engine_request *r)
{
    int flag = 0, code;

    if (!r->active || r->done || r->shadow)
        return;
    code = TIARA_Test(&r->tiara, &flag, MPI_STATUS_IGNORE);
    if (flag || code != MPI_SUCCESS)
        mark_done(r, code);
}

void tiara_engine_request_finish(struct tiara_engine_request *r)
{
    if (!r->active || r->done || r->shadow)
        return;
    mark_done(r, TIARA_Wait(&r->tiara, MPI_STATUS_IGNORE));
}

void tiara_engine_request_settle(struct tiara_engine_request *r)
{
    r->active = r->done = false;
    if (r->persistent)
        return;
    take_out(r);
    if (r->shadow)
        tiara_engine_shadow_end(r->shadow, &r->tiara);
    tiara_free(r);
}

void tiara_engine_request_give_up(struct tiara_engine_request *r)
{
    take_out(r);
    if (r->shadow)
        tiara_engine_shadow_abandon(r->shadow, &r->tiara);
    else if (r->tiara != TIARA_REQUEST_NULL)
        TIARA_Request_free(&r->tiara);
    if (!r->persistent && !r->shadow && !r->done)
        PMPI_Grequest_complete(r->handle);
    tiara_free(r);
}

void tiara_engine_drain(void)
{
    for (int i = 0; i < NBUCKETS; i++)
        while (buckets[i]) {
            struct tiara_engine_request *r = buckets[i];
            MPI_Request handle = r->handle;
            bool own = !r->shadow && !(r->persistent && r->done);

            tiara_engine_request_give_up(r);
            if (own)
                PMPI_Request_free(&handle);
        }
    tiara_engine_shadow_drain();
    if (self != MPI_COMM_NULL)
        PMPI_Comm_free(&self);
}
