/*
 * Completion of nonblocking operations: TIARA_Wait, TIARA_Test and their kind, and requests that
 * were given up.
 *
 * One idea: look() asks each active request of a list whether it is over; Test looks, and moves on
 * what the process owes when that is not enough; Wait does so until it is. What is over is then
 * concluded by the caller's own thread.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/progress.h"
#include "call/below.h"
#include "call/request.h"
#include "tiara.h"
#include <pthread.h>

/* ---- lists ---- */

struct list {
    int n;
    TIARA_Request *requests;
    bool all; /* are wanted; else one */
    int active, over; /* as of the last look */
    int first; /* index of the first that is over; -1: none */
};

static bool is_active(TIARA_Request r)
{
    return r && r->active;
}

/* True when enough is over, or nothing is active. */
static bool look(struct list *l)
{
    l->active = l->over = 0;
    l->first = -1;
    for (int i = 0; i < l->n; i++) {
        if (!is_active(l->requests[i]))
            continue;
        l->active++;
        l->requests[i]->over = tiara_request_is_over(l->requests[i]);
        if (!l->requests[i]->over)
            continue;
        l->over++;
        if (l->first < 0)
            l->first = i;
    }
    return l->over == l->active || (!l->all && l->over > 0);
}

static bool is_enough(void *arg, struct tiara_wait_on *on)
{
    on->word = NULL;
    tiara_async_progress();
    return look(arg);
}

/* A task that the list waits for; NULL: none. */
static struct tiara_async_task *some_task(const struct list *l)
{
    for (int i = 0; i < l->n; i++) {
        TIARA_Request r = l->requests[i];

        if (is_active(r) && r->way == TIARA_REQUEST_TASK && !tiara_async_is_done(&r->task))
            return &r->task;
    }
    return NULL;
}

static enum tiara_err is_stuck(void *arg, double waited_s, bool first)
{
    struct tiara_async_task *task = some_task(arg);

    if (task)
        tiara_async_inspect(task, waited_s, first);
    return TIARA_OK;
}

static void wait_init(struct tiara_wait *w, struct list *l, const struct tiara_async_task *task)
{
    tiara_async_wait_init(w, task);
    w->stuck = is_stuck;
    w->stuck_arg = l;
}

static void await(struct list *l)
{
    if (look(l))
        return;
    tiara_async_progress();
    while (!look(l)) {
        struct tiara_async_task *task = some_task(l);
        struct tiara_wait w;

        wait_init(&w, l, task);
        /* Only a task's wait has an end by itself. */
        if (tiara_wait(&w, is_enough, l) != TIARA_OK && (task = some_task(l)))
            tiara_async_revoke(task);
    }
}

/* One look of a loop of the program's, which is a wait too. True when enough is over. */
static bool test(struct list *l)
{
    struct tiara_async_task *task;
    struct tiara_wait w;

    if (look(l) && l->active > 0)
        return true;
    tiara_progress();
    if (look(l))
        return true;
    task = some_task(l);
    if (!task)
        return false;
    wait_init(&w, l, task);
    if (tiara_wait_watch(&w, &task->watch) != TIARA_OK)
        tiara_async_revoke(task);
    return tiara_async_is_done(task) && look(l);
}

/* ---- results ---- */

/* @rc: of the operation; without one MPI_SUCCESS. */
static void set_empty(MPI_Status *status, int rc)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    status->MPI_ERROR = rc;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
}

static MPI_Status *nth(MPI_Status *statuses, int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

/* Ends the operation of *@request, which is over; the request becomes null, or inactive. Returns
 * the error, not raised. */
static int conclude(TIARA_Request *request, MPI_Comm *blame)
{
    int rc = tiara_request_conclude(*request, blame);

    if (!(*request)->persistent) {
        tiara_request_delete(*request);
        *request = TIARA_REQUEST_NULL;
    }
    return rc;
}

static int raise_on(MPI_Comm blame, int rc)
{
    return blame == MPI_COMM_NULL ? rc : tiara_below_raise_code(blame, rc);
}

/* Ends those of the list that were over in the last look. @indices: where to note which; NULL: all
 * are, and each has its status at its own index. */
static int conclude_some(struct list *l, int indices[], MPI_Status *statuses)
{
    MPI_Comm blame = MPI_COMM_NULL;
    bool failed = false;
    int n = 0;

    for (int i = 0; i < l->n; i++) {
        bool over = is_active(l->requests[i]) && l->requests[i]->over;
        MPI_Status *status = nth(statuses, indices ? n : i);
        MPI_Comm mine;
        int rc = MPI_SUCCESS;

        if (!over && indices)
            continue;
        if (over)
            rc = conclude(&l->requests[i], &mine);
        if (rc != MPI_SUCCESS && !failed)
            blame = mine;
        failed |= rc != MPI_SUCCESS;
        set_empty(status, rc);
        if (indices)
            indices[n] = i;
        n++;
    }
    return failed ? raise_on(blame, MPI_ERR_IN_STATUS) : MPI_SUCCESS;
}

/* ---- completing calls: with @flag a test, which says so there, else a wait ---- */

/* A count or a list that cannot be is an error, which is raised. */
static int seek(struct list *l, int count, TIARA_Request requests[], bool all, int *flag)
{
    *l = (struct list){.n = count, .requests = requests, .all = all};
    if (count < 0)
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_COUNT);
    if (count > 0 && !requests)
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_REQUEST);
    if (flag)
        *flag = test(l);
    else
        await(l);
    return MPI_SUCCESS;
}

static int complete_all(int count, TIARA_Request requests[], int *flag, MPI_Status *statuses)
{
    struct list l;
    int rc = seek(&l, count, requests, true, flag);

    if (rc != MPI_SUCCESS || (flag && !*flag))
        return rc;
    return conclude_some(&l, NULL, statuses);
}

static int complete_any(
    int count, TIARA_Request requests[], int *index, int *flag, MPI_Status *status)
{
    MPI_Comm blame = MPI_COMM_NULL;
    struct list l;
    int rc = seek(&l, count, requests, false, flag);

    if (rc != MPI_SUCCESS)
        return rc;
    *index = l.first >= 0 ? l.first : MPI_UNDEFINED;
    if (l.first >= 0)
        rc = conclude(&requests[l.first], &blame);
    if (l.first >= 0 || l.active == 0)
        set_empty(status, MPI_SUCCESS);
    return raise_on(blame, rc);
}

static int complete_some(int count, TIARA_Request requests[], int *outcount, int indices[],
    int *flag, MPI_Status *statuses)
{
    struct list l;
    int rc = seek(&l, count, requests, false, flag);

    if (rc != MPI_SUCCESS)
        return rc;
    *outcount = l.active > 0 ? l.over : MPI_UNDEFINED;
    return l.over > 0 ? conclude_some(&l, indices, statuses) : MPI_SUCCESS;
}

int TIARA_Wait(TIARA_Request *request, MPI_Status *status)
{
    int index;

    return complete_any(1, request, &index, NULL, status);
}

int TIARA_Waitall(int count, TIARA_Request requests[], MPI_Status *statuses)
{
    return complete_all(count, requests, NULL, statuses);
}

int TIARA_Waitany(int count, TIARA_Request requests[], int *index, MPI_Status *status)
{
    return complete_any(count, requests, index, NULL, status);
}

int TIARA_Waitsome(
    int incount, TIARA_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    return complete_some(incount, requests, outcount, indices, NULL, statuses);
}

int TIARA_Test(TIARA_Request *request, int *flag, MPI_Status *status)
{
    int index;

    return complete_any(1, request, &index, flag, status);
}

int TIARA_Testall(int count, TIARA_Request requests[], int *flag, MPI_Status *statuses)
{
    return complete_all(count, requests, flag, statuses);
}

int TIARA_Testany(int count, TIARA_Request requests[], int *index, int *flag, MPI_Status *status)
{
    return complete_any(count, requests, index, flag, status);
}

int TIARA_Testsome(
    int incount, TIARA_Request requests[], int *outcount, int indices[], MPI_Status *statuses)
{
    int flag;

    return complete_some(incount, requests, outcount, indices, &flag, statuses);
}

int TIARA_Request_get_status(TIARA_Request request, int *flag, MPI_Status *status)
{
    struct list l = {.n = 1, .requests = &request, .all = true};

    *flag = test(&l);
    if (*flag)
        set_empty(status, MPI_SUCCESS);
    return MPI_SUCCESS;
}

/* ---- given up ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tiara_request *given_up; /* active ones; lock */
static tiara_u32 ngiven_up; /* written under the lock */

int TIARA_Request_free(TIARA_Request *request)
{
    TIARA_Request r = request ? *request : TIARA_REQUEST_NULL;

    if (!r)
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_REQUEST);
    *request = TIARA_REQUEST_NULL;
    if (!r->active) {
        tiara_request_delete(r);
        return MPI_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    r->next = given_up;
    given_up = r;
    tiara_store_relaxed(&ngiven_up, tiara_load_relaxed(&ngiven_up) + 1); /* relaxed: in the lock */
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

void tiara_request_reap(void)
{
    struct tiara_request **at = &given_up;

    /* relaxed: what another thread has just given up is for later */
    if (tiara_load_relaxed(&ngiven_up) == 0)
        return;
    tiara_async_progress();
    pthread_mutex_lock(&lock);
    while (*at) {
        struct tiara_request *r = *at;
        MPI_Comm ignored;

        if (!tiara_request_is_over(r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        tiara_store_relaxed(&ngiven_up, tiara_load_relaxed(&ngiven_up) - 1); /* as above */
        if (tiara_request_conclude(r, &ignored) != MPI_SUCCESS)
            tiara_error("a nonblocking call whose request was freed has failed");
        tiara_request_delete(r);
    }
    pthread_mutex_unlock(&lock);
}

static bool all_reaped(void *arg, struct tiara_wait_on *on)
{
    (void)arg;
    on->word = NULL;
    tiara_request_reap();
    return tiara_load_relaxed(&ngiven_up) == 0; /* relaxed: no other thread is left */
}

void tiara_request_finish(void)
{
    struct tiara_wait w;

    /* Those of Tiara's own first, as only their wait has an end by itself. */
    tiara_async_finish();
    tiara_async_wait_init(&w, NULL);
    if (tiara_wait(&w, all_reaped, NULL) != TIARA_OK)
        tiara_error("nonblocking calls whose requests were freed are not complete");
}
