/*
 * The program's calls that complete, free and start requests.
 *
 * Each looks for the engine's requests in its list; without one, it is the next definition's. Else
 * the engine's own operations are polled, or waited for, and what is over is made complete for MPI,
 * whose own call then completes the whole list. A persistent operation that is not over is inactive
 * to MPI, which would skip it: so MPI is asked about all of a list only when none of these is left.
 */
#include "base/alloc.h"
#include "pmpi/engine_priv.h"
#include <sched.h>

#define NEXT tiara_engine_host->next
#define FEW 32

/* A list of requests, and those of it that are the engine's. */
struct list {
    int count, owned;
    struct tiara_engine_request **owners; /* [count] NULL: not the engine's */
    struct tiara_engine_request *few[FEW];
};

static void list_close(struct list *l)
{
    if (l->owned > 0)
        tiara_engine_put_back(l->count, l->owners);
    if (l->owners != l->few)
        tiara_free(l->owners);
}

/* False: none is the engine's; nothing is to be closed. *rc_out: an error that was raised. */
static bool list_open(struct list *l, int count, const MPI_Request requests[], int *rc_out)
{
    *rc_out = MPI_SUCCESS;
    if (count <= 0 || !requests)
        return false;
    l->count = count;
    l->owners = count <= FEW ? l->few : tiara_alloc((size_t)count, sizeof(l->owners[0]));
    if (!l->owners) {
        *rc_out = tiara_engine_raise(MPI_COMM_SELF, MPI_ERR_NO_MEM);
        return false;
    }
    l->owned = tiara_engine_take(count, requests, l->owners);
    if (l->owned > 0 || tiara_engine_settings.progress_by_calls)
        return true;
    list_close(l);
    return false;
}

/* Polls all; true while an active operation of the engine's is not over. MPI has gone on then, too,
 * also where its own completion calls are not made. */
static bool poll_all(struct list *l)
{
    bool pending = false;
    int ignored, index;

    if (l->owned == 0)
        TIARA_Testany(0, NULL, &index, &ignored, MPI_STATUS_IGNORE);
    for (int i = 0; i < l->count; i++) {
        struct tiara_engine_request *r = l->owners[i];

        if (!r)
            continue;
        tiara_engine_request_poll(r);
        pending |= r->active && !r->done && !r->shadow;
    }
    return pending;
}

/* Between two looks. Other ranks may share the core. */
static void pause_between(int looks)
{
    if (looks > 100)
        sched_yield();
    else
        tiara_cpu_relax();
}

/* The program learns that request @i is complete. Returns the operation's error. */
static int settle(struct list *l, int i)
{
    struct tiara_engine_request *r = l->owners[i];
    int code;

    if (!r || !r->active)
        return MPI_SUCCESS;
    code = r->code;
    if (!r->persistent) {
        l->owners[i] = NULL;
        l->owned--;
    }
    tiara_engine_request_settle(r);
    return code;
}

/* After a call that completed [@n] requests with @rc: which by @indices, all in order if NULL.
 * Returns what the call returns. */
static int settle_some(struct list *l, int n, const int indices[], MPI_Status *statuses, int rc)
{
    for (int k = 0; k < n; k++) {
        int code = settle(l, indices ? indices[k] : k);

        if (code == MPI_SUCCESS)
            continue;
        for (int i = 0; rc == MPI_SUCCESS && statuses != MPI_STATUSES_IGNORE && i < n; i++)
            statuses[i].MPI_ERROR = MPI_SUCCESS;
        rc = MPI_ERR_IN_STATUS;
        if (statuses != MPI_STATUSES_IGNORE)
            statuses[k].MPI_ERROR = code;
    }
    return rc;
}

/* ---- one request ---- */

int tiara_engine_test(MPI_Request *request, int *flag, MPI_Status *status)
{
    struct list l;
    int rc;

    if (!list_open(&l, 1, request, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Test(request, flag, status);
    *flag = 0;
    if (!poll_all(&l))
        rc = NEXT.Test(request, flag, status);
    if (rc == MPI_SUCCESS && *flag)
        rc = settle(&l, 0);
    list_close(&l);
    return rc;
}

int tiara_engine_wait(MPI_Request *request, MPI_Status *status)
{
    struct list l;
    int rc, flag = 0;

    if (!list_open(&l, 1, request, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Wait(request, status);
    if (l.owned == 0) {
        for (int looks = 0; rc == MPI_SUCCESS && !flag; looks++) {
            poll_all(&l);
            rc = NEXT.Test(request, &flag, status);
            pause_between(looks);
        }
        return rc;
    }
    tiara_engine_request_finish(l.owners[0]);
    rc = NEXT.Wait(request, status);
    if (rc == MPI_SUCCESS)
        rc = settle(&l, 0);
    list_close(&l);
    return rc;
}

int tiara_engine_request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    struct list l;
    int rc;

    if (!list_open(&l, 1, &request, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Request_get_status(request, flag, status);
    *flag = 0;
    if (!poll_all(&l))
        rc = NEXT.Request_get_status(request, flag, status);
    list_close(&l);
    return rc;
}

int tiara_engine_request_free(MPI_Request *request)
{
    struct list l;
    int rc;

    if (!list_open(&l, 1, request, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Request_free(request);
    if (l.owners[0])
        tiara_engine_request_give_up(l.owners[0]);
    return NEXT.Request_free(request);
}

/* ---- all of a list ---- */

int tiara_engine_testall(int count, MPI_Request requests[], int *flag, MPI_Status *statuses)
{
    struct list l;
    int rc;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Testall(count, requests, flag, statuses);
    if (poll_all(&l)) {
        *flag = 0;
    } else {
        rc = NEXT.Testall(count, requests, flag, statuses);
        if (*flag)
            rc = settle_some(&l, count, NULL, statuses, rc);
    }
    list_close(&l);
    return rc;
}

int tiara_engine_waitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
    struct list l;
    int rc, flag = 0;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Waitall(count, requests, statuses);
    for (int i = 0; i < count; i++)
        if (l.owners[i])
            tiara_engine_request_finish(l.owners[i]);
    for (int looks = 0; l.owned == 0 && rc == MPI_SUCCESS && !flag; looks++) {
        poll_all(&l);
        rc = NEXT.Testall(count, requests, &flag, statuses);
        pause_between(looks);
    }
    if (l.owned > 0) {
        rc = NEXT.Waitall(count, requests, statuses);
        if (rc == MPI_SUCCESS || rc == MPI_ERR_IN_STATUS)
            rc = settle_some(&l, count, NULL, statuses, rc);
    }
    list_close(&l);
    return rc;
}

/* ---- one of a list ---- */

/* One look of testany; *flag stays 0 where MPI, which sees inactive requests, would say that
 * nothing is active. */
static int look_for_any(
    struct list *l, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    bool pending = poll_all(l);
    int rc = NEXT.Testany(l->count, requests, index, flag, status);

    if (*flag && *index != MPI_UNDEFINED) {
        int code = settle(l, *index);

        return rc != MPI_SUCCESS ? rc : code;
    }
    if (pending)
        *flag = 0;
    return rc;
}

int tiara_engine_testany(
    int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    struct list l;
    int rc;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Testany(count, requests, index, flag, status);
    rc = look_for_any(&l, requests, index, flag, status);
    list_close(&l);
    return rc;
}

int tiara_engine_waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    struct list l;
    int rc, flag = 0;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Waitany(count, requests, index, status);
    for (int looks = 0; rc == MPI_SUCCESS && !flag; looks++) {
        rc = look_for_any(&l, requests, index, &flag, status);
        pause_between(looks);
    }
    list_close(&l);
    return rc;
}

/* ---- some of a list ---- */

static int look_for_some(
    struct list *l, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    bool pending = poll_all(l);
    int rc = NEXT.Testsome(l->count, requests, outcount, indices, statuses);

    if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS)
        return rc;
    if (*outcount == MPI_UNDEFINED && pending)
        *outcount = 0;
    if (*outcount != MPI_UNDEFINED)
        rc = settle_some(l, *outcount, indices, statuses, rc);
    return rc;
}

int tiara_engine_testsome(
    int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    struct list l;
    int rc;

    if (!list_open(&l, incount, requests, &rc))
        return rc != MPI_SUCCESS ? rc
                                 : NEXT.Testsome(incount, requests, outcount, indices, statuses);
    rc = look_for_some(&l, requests, outcount, indices, statuses);
    list_close(&l);
    return rc;
}

int tiara_engine_waitsome(
    int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    struct list l;
    int rc;

    if (!list_open(&l, incount, requests, &rc))
        return rc != MPI_SUCCESS ? rc
                                 : NEXT.Waitsome(incount, requests, outcount, indices, statuses);
    *outcount = 0;
    for (int looks = 0; rc == MPI_SUCCESS && *outcount == 0; looks++) {
        rc = look_for_some(&l, requests, outcount, indices, statuses);
        pause_between(looks);
    }
    list_close(&l);
    return rc;
}

/* ---- a list, which stays as it is ---- */

int tiara_engine_request_get_status_any(
    int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    struct list l;
    bool pending;
    int rc;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS
                   ? rc
                   : NEXT.Request_get_status_any(count, requests, index, flag, status);
    pending = poll_all(&l);
    rc = NEXT.Request_get_status_any(count, requests, index, flag, status);
    /* As in look_for_any. */
    if (rc == MPI_SUCCESS && *flag && *index == MPI_UNDEFINED && pending)
        *flag = 0;
    list_close(&l);
    return rc;
}

int tiara_engine_request_get_status_all(
    int count, const MPI_Request requests[], int *flag, MPI_Status *statuses)
{
    struct list l;
    int rc;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc
                                 : NEXT.Request_get_status_all(count, requests, flag, statuses);
    *flag = 0;
    if (!poll_all(&l))
        rc = NEXT.Request_get_status_all(count, requests, flag, statuses);
    list_close(&l);
    return rc;
}

int tiara_engine_request_get_status_some(
    int incount, const MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    struct list l;
    bool pending;
    int rc;

    if (!list_open(&l, incount, requests, &rc))
        return rc != MPI_SUCCESS
                   ? rc
                   : NEXT.Request_get_status_some(incount, requests, outcount, indices, statuses);
    pending = poll_all(&l);
    rc = NEXT.Request_get_status_some(incount, requests, outcount, indices, statuses);
    if (rc == MPI_SUCCESS && *outcount == MPI_UNDEFINED && pending)
        *outcount = 0;
    list_close(&l);
    return rc;
}

/* ---- starting ---- */

static int start_owned(struct tiara_engine_request *r)
{
    int rc = TIARA_Start(&r->tiara);

    if (rc == MPI_SUCCESS) {
        r->active = true;
        r->done = false;
    }
    return rc;
}

int tiara_engine_start_one(MPI_Request *request)
{
    struct list l;
    int rc;

    if (!list_open(&l, 1, request, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Start(request);
    rc = l.owners[0] ? start_owned(l.owners[0]) : NEXT.Start(request);
    list_close(&l);
    return rc;
}

int tiara_engine_startall(int count, MPI_Request requests[])
{
    struct list l;
    int rc;

    if (!list_open(&l, count, requests, &rc))
        return rc != MPI_SUCCESS ? rc : NEXT.Startall(count, requests);
    for (int i = 0; i < count && rc == MPI_SUCCESS; i++)
        rc = l.owners[i] ? start_owned(l.owners[i]) : NEXT.Start(&requests[i]);
    list_close(&l);
    return rc;
}
