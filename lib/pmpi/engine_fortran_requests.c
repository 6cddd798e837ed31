/*
 * Calls of Fortran that complete requests: for a list in which one is the engine's, the C call is
 * made with C handles, and its results are translated back. A list with none of the engine's goes
 * on to the MPI untouched.
 *
 * What a program would get from its MPI, it gets from here: how .TRUE. is spelled, from where
 * requests are counted (MPICH 4.0 counts from 0 in mpi_f08) and how MPI_UNDEFINED comes out is
 * asked of the MPI's own MPI_TESTANY, once.
 */
#include "pmpi/engine_fortran.h"
#include "pmpi/engine_fortran_priv.h"
#include "pmpi/engine_priv.h"
#include "base/alloc.h"
#include <pthread.h>

#if defined(TIARA_FORTRAN_ALL_ENTRIES)
#define STATUS_IGNORE MPI_F_STATUS_IGNORE
#define STATUSES_IGNORE MPI_F_STATUSES_IGNORE
static const char *const testany_names[] = {
    "mpi_testany_", "mpi_testany__", "MPI_TESTANY", "mpi_testany_f08_"};
#elif defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)
#define STATUS_IGNORE ((const MPI_Fint *)MPI_F08_STATUS_IGNORE)
#define STATUSES_IGNORE ((const MPI_Fint *)MPI_F08_STATUSES_IGNORE)
static const char *const testany_names[] = {"mpi_testany_f08_"};
#endif
#if defined(TIARA_FORTRAN_ALL_ENTRIES) || defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)

/*
 * A status, in Fortran: as many integers as the structure of C has, and the same ones in both MPIs.
 */
#define STATUS_WORDS (sizeof(MPI_Status) / sizeof(MPI_Fint))

/* ---- how this MPI speaks ---- */

static struct {
    MPI_Fint truth; /* .TRUE. */
    MPI_Fint first; /* the index of the first request of a list */
    MPI_Fint none; /* the index when there is none */
} speech = {.truth = 1, .first = 1, .none = MPI_UNDEFINED};

/* Lets MPI_TESTANY look at a list of one request that is complete, and at a list of none. */
static void learn_speech(void)
{
    void (*testany)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *) = NULL;
    MPI_Fint one = 1, request, index = 0, flag = 0, status[STATUS_WORDS], err = MPI_SUCCESS;
    MPI_Request done;

    for (size_t i = 0; !testany && i < sizeof(testany_names) / sizeof(testany_names[0]); i++)
        testany = (void (*)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
            MPI_Fint *))tiara_engine_host->find(testany_names[i]);
    if (!testany ||
        PMPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &done) != MPI_SUCCESS)
        return;
    request = PMPI_Request_c2f(done);
    while (!flag && err == MPI_SUCCESS)
        testany(&one, &request, &index, &flag, status, &err);
    if (err != MPI_SUCCESS)
        return;
    speech.truth = flag;
    speech.first = index;
    request = PMPI_Request_c2f(MPI_REQUEST_NULL);
    testany(&one, &request, &index, &flag, status, &err);
    if (err == MPI_SUCCESS)
        speech.none = index;
}

static MPI_Fint *wanted(MPI_Fint *status)
{
    return status == STATUS_IGNORE ? NULL : status;
}

static MPI_Fint *all_wanted(MPI_Fint *statuses)
{
    return statuses == STATUSES_IGNORE ? NULL : statuses;
}

static MPI_Fint logical(int flag)
{
    return flag ? speech.truth : 0;
}

static MPI_Fint index_of(int index)
{
    return index == MPI_UNDEFINED ? speech.none : index + speech.first;
}

/* ---- a call in C's terms ---- */

enum {
    FEW = 16
}; /* requests for which no memory is taken */

struct call {
    bool failed; /* it could not begin, and so is over */
    int count, rc;
    MPI_Fint *f_requests, *f_statuses; /* the program's */
    MPI_Request *requests; /* [count] */
    MPI_Status *statuses; /* [count], or NULL: the program wants none */
    int *indices; /* [count] */
    MPI_Request few_requests[FEW];
    MPI_Status few_statuses[FEW];
    int few_indices[FEW];
};

/* Whether a call is the engine's to make. */
static bool is_ours(MPI_Fint count, const MPI_Fint *requests)
{
    /* relaxed: as in engine_request.c */
    if (tiara_load_relaxed(&tiara_engine_nrequests) == 0)
        return false;
    if (tiara_engine_settings.progress_by_calls)
        return count > 0;
    for (MPI_Fint i = 0; i < count; i++) {
        MPI_Request request = PMPI_Request_f2c(requests[i]);

        if (tiara_engine_owns(1, &request))
            return true;
    }
    return false;
}

static bool take_memory(struct call *c)
{
    c->requests = c->few_requests;
    c->statuses = c->few_statuses;
    c->indices = c->few_indices;
    if (c->count <= FEW)
        return true;
    c->requests = tiara_alloc((size_t)c->count, sizeof(*c->requests));
    c->statuses = tiara_alloc((size_t)c->count, sizeof(*c->statuses));
    c->indices = tiara_alloc((size_t)c->count, sizeof(*c->indices));
    return c->requests && c->statuses && c->indices;
}

static void give_memory(struct call *c)
{
    if (c->count <= FEW)
        return;
    tiara_free(c->requests);
    tiara_free(c->statuses);
    tiara_free(c->indices);
}

/*
 * False: the call is not the engine's to make; or it has failed (c->failed), for lack of memory,
 * which has been raised, and *@ierror says so. @statuses: of @count, or NULL. They are read, too: a
 * call leaves parts of a status as they were.
 */
static bool call_begin(
    struct call *c, MPI_Fint count, MPI_Fint *requests, MPI_Fint *statuses, MPI_Fint *ierror)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    c->failed = false;
    if (!is_ours(count, requests))
        return false;
    pthread_once(&once, learn_speech);
    c->count = (int)count;
    c->f_requests = requests;
    c->f_statuses = statuses;
    if (!take_memory(c)) {
        c->failed = true;
        give_memory(c);
        PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
        if (ierror)
            *ierror = MPI_ERR_NO_MEM;
        return false;
    }
    for (int i = 0; i < c->count; i++)
        c->requests[i] = PMPI_Request_f2c(requests[i]);
    for (int i = 0; i < c->count && statuses; i++)
        PMPI_Status_f2c(statuses + (size_t)i * STATUS_WORDS, &c->statuses[i]);
    return true;
}

/* @statuses: how many the call may have written, from the first on. Returns true, for "the call was
 * done". */
static bool call_end(struct call *c, int statuses, MPI_Fint *ierror)
{
    /* A call makes a handle null or leaves it. */
    for (int i = 0; i < c->count; i++)
        if (c->requests[i] == MPI_REQUEST_NULL)
            c->f_requests[i] = PMPI_Request_c2f(MPI_REQUEST_NULL);
    for (int i = 0; i < statuses && c->f_statuses; i++)
        PMPI_Status_c2f(&c->statuses[i], c->f_statuses + (size_t)i * STATUS_WORDS);
    give_memory(c);
    if (ierror)
        *ierror = c->rc;
    return true;
}

static bool call_end_some(struct call *c, int completed, MPI_Fint *indices, MPI_Fint *ierror)
{
    int n = completed == MPI_UNDEFINED ? 0 : completed;

    for (int i = 0; i < n; i++)
        indices[i] = index_of(c->indices[i]);
    return call_end(c, n, ierror);
}

/* Of a call with many requests and one status. */
static void one_status(struct call *c, MPI_Fint *status)
{
    c->f_statuses = wanted(status);
    if (c->f_statuses)
        PMPI_Status_f2c(status, &c->statuses[0]);
}

/* ---- the calls ---- */

#define ONE_STATUS(c) ((c).f_statuses ? (c).statuses : MPI_STATUS_IGNORE)
#define ALL_STATUSES(c) ((c).f_statuses ? (c).statuses : MPI_STATUSES_IGNORE)

bool tiara_engine_fortran_wait(MPI_Fint *request, MPI_Fint *status, MPI_Fint *ierror)
{
    struct call c;

    if (!call_begin(&c, 1, request, wanted(status), ierror))
        return c.failed;
    c.rc = tiara_engine_wait(c.requests, ONE_STATUS(c));
    return call_end(&c, 1, ierror);
}

bool tiara_engine_fortran_waitall(
    MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses, MPI_Fint *ierror)
{
    struct call c;

    if (!call_begin(&c, *count, requests, all_wanted(statuses), ierror))
        return c.failed;
    c.rc = tiara_engine_waitall(c.count, c.requests, ALL_STATUSES(c));
    return call_end(&c, c.count, ierror);
}

bool tiara_engine_fortran_waitany(
    MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *status, MPI_Fint *ierror)
{
    struct call c;
    int at = MPI_UNDEFINED;

    if (!call_begin(&c, *count, requests, NULL, ierror))
        return c.failed;
    one_status(&c, status);
    c.rc = tiara_engine_waitany(c.count, c.requests, &at, ONE_STATUS(c));
    *index = index_of(at);
    return call_end(&c, 1, ierror);
}

bool tiara_engine_fortran_test(
    MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror)
{
    struct call c;
    int is_complete = 0;

    if (!call_begin(&c, 1, request, wanted(status), ierror))
        return c.failed;
    c.rc = tiara_engine_test(c.requests, &is_complete, ONE_STATUS(c));
    *flag = logical(is_complete);
    return call_end(&c, 1, ierror);
}

/* Of one list: the same but for the C call. */
#define ALL_OF(name)                                                                               \
    bool tiara_engine_fortran_##name(                                                              \
        MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Fint *statuses, MPI_Fint *ierror) \
    {                                                                                              \
        struct call c;                                                                             \
        int are_complete = 0;                                                                      \
                                                                                                   \
        if (!call_begin(&c, *count, requests, all_wanted(statuses), ierror))                       \
            return c.failed;                                                                       \
        c.rc = tiara_engine_##name(c.count, c.requests, &are_complete, ALL_STATUSES(c));           \
        *flag = logical(are_complete);                                                             \
        return call_end(&c, c.count, ierror);                                                      \
    }
ALL_OF(testall)
ALL_OF(request_get_status_all)

#define ANY_OF(name)                                                                               \
    bool tiara_engine_fortran_##name(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,         \
        MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror)                                        \
    {                                                                                              \
        struct call c;                                                                             \
        int at = MPI_UNDEFINED, is_complete = 0;                                                   \
                                                                                                   \
        if (!call_begin(&c, *count, requests, NULL, ierror))                                       \
            return c.failed;                                                                       \
        one_status(&c, status);                                                                    \
        c.rc = tiara_engine_##name(c.count, c.requests, &at, &is_complete, ONE_STATUS(c));         \
        *index = index_of(at);                                                                     \
        *flag = logical(is_complete);                                                              \
        return call_end(&c, 1, ierror);                                                            \
    }
ANY_OF(testany)
ANY_OF(request_get_status_any)

#define SOME_OF(name)                                                                              \
    bool tiara_engine_fortran_##name(MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount,    \
        MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierror)                                   \
    {                                                                                              \
        struct call c;                                                                             \
        int completed = MPI_UNDEFINED;                                                             \
                                                                                                   \
        if (!call_begin(&c, *incount, requests, all_wanted(statuses), ierror))                     \
            return c.failed;                                                                       \
        c.rc = tiara_engine_##name(c.count, c.requests, &completed, c.indices, ALL_STATUSES(c));   \
        *outcount = completed;                                                                     \
        return call_end_some(&c, completed, indices, ierror);                                      \
    }
SOME_OF(waitsome)
SOME_OF(testsome)
SOME_OF(request_get_status_some)

bool tiara_engine_fortran_request_free(MPI_Fint *request, MPI_Fint *ierror)
{
    struct call c;

    if (!call_begin(&c, 1, request, NULL, ierror))
        return c.failed;
    c.rc = tiara_engine_request_free(c.requests);
    return call_end(&c, 0, ierror);
}

bool tiara_engine_fortran_request_get_status(
    MPI_Fint *request, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror)
{
    struct call c;
    int is_complete = 0;

    if (!call_begin(&c, 1, request, wanted(status), ierror))
        return c.failed;
    c.rc = tiara_engine_request_get_status(c.requests[0], &is_complete, ONE_STATUS(c));
    *flag = logical(is_complete);
    return call_end(&c, 1, ierror);
}

bool tiara_engine_fortran_start(MPI_Fint *request, MPI_Fint *ierror)
{
    struct call c;

    if (!call_begin(&c, 1, request, NULL, ierror))
        return c.failed;
    c.rc = tiara_engine_start_one(c.requests);
    return call_end(&c, 0, ierror);
}

bool tiara_engine_fortran_startall(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror)
{
    struct call c;

    if (!call_begin(&c, *count, requests, NULL, ierror))
        return c.failed;
    c.rc = tiara_engine_startall(c.count, c.requests);
    return call_end(&c, 0, ierror);
}
#endif
