/*
 * Completion (MPI 4.0, sections 3.7.3 to 3.7.6, 3.9 and 13.2) where requests of MPI_Iallreduce
 * stand in one array with messages, persistent ones, generalized ones, other collectives and null:
 * each call of the Wait and Test kind, its statuses, and what becomes of the handles.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PROGRESS=call */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/*
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call
 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 */
#include "s_suite.h"

enum {
    SOURCE = 11, /* in the status of a generalized request */
    TAG = 12,
    UNTOUCHED = 4321,
    JOBS = 4
};

/* An array with one request of each kind, in an order of its own. */
enum kind {
    K_JOB, /* MPI_Iallreduce; four of them */
    K_NULL = JOBS,
    K_RECEIVE,
    K_SEND,
    K_INACTIVE, /* persistent, and not started */
    K_PERSISTENT, /* started */
    K_GENERAL, /* of MPI_Grequest_start; complete */
    K_BELOW, /* of PMPI_Iallreduce */
    K_BARRIER,
    NKINDS
};

struct mix {
    MPI_Request requests[NKINDS];
    enum kind kind[NKINDS]; /* by index */
    struct s_job jobs[JOBS];
    int got[3], sent[2], kept, mine, sum; /* the buffers of the others */
    int ndone[NKINDS]; /* how often each index was reported */
    uint64_t salt;
    int prev, next;
};

static int general_query(void *arg, MPI_Status *status)
{
    (void)arg;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = SOURCE;
    status->MPI_TAG = TAG;
    return MPI_SUCCESS;
}

static int ngeneral_freed;
static int general_free(void *arg)
{
    (void)arg;
    ngeneral_freed++;
    return MPI_SUCCESS;
}

static int general_cancel(void *arg, int complete)
{
    (void)arg;
    (void)complete;
    return MPI_SUCCESS;
}

static void start_one(struct mix *m, enum kind kind, MPI_Request *request)
{
    int nth = kind < K_NULL ? (int)kind : 0;
    switch (kind) {
    case K_NULL:
        *request = MPI_REQUEST_NULL;
        break;
    case K_RECEIVE:
        MPI_Irecv(m->got, 3, MPI_INT, m->prev, 7, MPI_COMM_WORLD, request);
        break;
    case K_SEND:
        m->sent[0] = (int)m->salt;
        m->sent[1] = mt_rank;
        MPI_Isend(m->sent, 2, MPI_INT, m->next, 7, MPI_COMM_WORLD, request);
        break;
    case K_INACTIVE:
        MPI_Recv_init(&m->kept, 1, MPI_INT, m->prev, 8, MPI_COMM_WORLD, request);
        break;
    case K_PERSISTENT:
        MPI_Recv_init(&m->kept, 1, MPI_INT, mt_rank, 9, MPI_COMM_WORLD, request);
        MPI_Start(request);
        MPI_Send(&mt_size, 1, MPI_INT, mt_rank, 9, MPI_COMM_WORLD);
        break;
    case K_GENERAL:
        MPI_Grequest_start(general_query, general_free, general_cancel, NULL, request);
        MPI_Grequest_complete(*request);
        break;
    case K_BELOW:
        m->mine = mt_rank + 1;
        PMPI_Iallreduce(&m->mine, &m->sum, 1, MPI_INT, MPI_SUM, mt_private, request);
        break;
    case K_BARRIER:
        MPI_Ibarrier(mt_private, request);
        break;
    default:
        m->jobs[nth] = s_job_new(MPI_COMM_WORLD,
            1 + mt_hash(m->salt, (uint64_t)nth) % (nth == 3 ? 60000 : 300), m->salt * JOBS + kind,
            nth == 2);
        s_start(&m->jobs[nth], request);
    }
}

/* All ranks start the kinds in one order, at places in the array that are their own. */
static void mix_start(struct mix *m, uint64_t salt)
{
    memset(m, 0, sizeof *m);
    m->salt = salt;
    m->prev = (mt_rank + mt_size - 1) % mt_size;
    m->next = (mt_rank + 1) % mt_size;
    int turn = (int)(mt_hash(salt, (uint64_t)mt_rank) % NKINDS);
    for (int k = 0; k < NKINDS; k++) {
        int at = (5 * k + turn) % NKINDS; /* 5 and 12 have no common divisor */
        m->kind[at] = (enum kind)k;
        start_one(m, (enum kind)k, &m->requests[at]);
    }
}

static bool is_persistent(enum kind kind)
{
    return kind == K_INACTIVE || kind == K_PERSISTENT;
}

/* Index @at was reported as complete, with @status or without. */
static void mix_done(struct mix *m, int at, const MPI_Status *status)
{
    if (!mt_check(at >= 0 && at < NKINDS, "index %d", at))
        return;
    enum kind kind = m->kind[at];
    int count = -1;
    m->ndone[at]++;
    mt_check(m->ndone[at] == 1, "kind %d was reported %d times", kind, m->ndone[at]);
    mt_check((m->requests[at] == MPI_REQUEST_NULL) == !is_persistent(kind),
        "kind %d: the handle became the wrong one", kind);
    if (!status)
        return;
    MPI_Get_count(status, MPI_INT, &count);
    if (kind == K_RECEIVE)
        mt_check(status->MPI_SOURCE == m->prev && status->MPI_TAG == 7 && count == 2,
            "receive: source %d tag %d count %d", status->MPI_SOURCE, status->MPI_TAG, count);
    if (kind == K_GENERAL)
        mt_check(status->MPI_SOURCE == SOURCE && status->MPI_TAG == TAG && count == 3,
            "generalized: source %d tag %d count %d", status->MPI_SOURCE, status->MPI_TAG, count);
    if (kind == K_PERSISTENT)
        mt_check(status->MPI_SOURCE == mt_rank && status->MPI_TAG == 9 && count == 1,
            "persistent: source %d tag %d count %d", status->MPI_SOURCE, status->MPI_TAG, count);
    if (kind == K_NULL || kind == K_INACTIVE)
        mt_check(
            status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0,
            "kind %d: the status is not empty: source %d tag %d count %d", kind, status->MPI_SOURCE,
            status->MPI_TAG, count);
}

/* @all: inactive requests were reported too, as the calls of all requests do. */
static void mix_end(struct mix *m, bool all)
{
    for (int at = 0; at < NKINDS; at++) {
        enum kind kind = m->kind[at];
        bool active = kind != K_NULL && kind != K_INACTIVE;
        mt_check(
            m->ndone[at] == (active || all), "kind %d was reported %d times", kind, m->ndone[at]);
        if (is_persistent(kind))
            MPI_Request_free(&m->requests[at]);
        mt_check(m->requests[at] == MPI_REQUEST_NULL, "kind %d is left", kind);
    }
    for (int k = 0; k < JOBS; k++)
        s_job_end(&m->jobs[k], MPI_COMM_WORLD);
    mt_check(
        m->got[0] == (int)m->salt && m->got[1] == m->prev, "received %d, %d", m->got[0], m->got[1]);
    mt_check(m->sum == mt_size * (mt_size + 1) / 2, "the sum below is %d", m->sum);
}

/* ---- the ways to complete ---- */

static void by_waitall(struct mix *m, MPI_Status *statuses)
{
    int err = MPI_Waitall(NKINDS, m->requests, statuses ? statuses : MPI_STATUSES_IGNORE);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    for (int at = 0; at < NKINDS; at++)
        mix_done(m, at, statuses ? &statuses[at] : NULL);
}

static void by_waitany(struct mix *m, MPI_Status *statuses)
{
    int at;
    for (;;) {
        MPI_Waitany(NKINDS, m->requests, &at, statuses ? statuses : MPI_STATUS_IGNORE);
        if (at == MPI_UNDEFINED)
            return;
        mix_done(m, at, statuses);
    }
}

static void by_waitsome(struct mix *m, MPI_Status *statuses)
{
    int n, indices[NKINDS];
    for (;;) {
        MPI_Waitsome(NKINDS, m->requests, &n, indices, statuses ? statuses : MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            return;
        mt_check(n > 0, "Waitsome completed none");
        for (int k = 0; k < n; k++)
            mix_done(m, indices[k], statuses ? &statuses[k] : NULL);
    }
}

static void by_testall(struct mix *m, MPI_Status *statuses)
{
    int flag = 0;
    while (!flag)
        MPI_Testall(NKINDS, m->requests, &flag, statuses ? statuses : MPI_STATUSES_IGNORE);
    for (int at = 0; at < NKINDS; at++)
        mix_done(m, at, statuses ? &statuses[at] : NULL);
}

static void by_testany(struct mix *m, MPI_Status *statuses)
{
    int at, flag;
    for (;;) {
        MPI_Testany(NKINDS, m->requests, &at, &flag, statuses ? statuses : MPI_STATUS_IGNORE);
        if (flag && at == MPI_UNDEFINED)
            return;
        mt_check(flag || at == MPI_UNDEFINED, "index %d without completion", at);
        if (flag)
            mix_done(m, at, statuses);
    }
}

static void by_testsome(struct mix *m, MPI_Status *statuses)
{
    int n, indices[NKINDS];
    for (;;) {
        MPI_Testsome(NKINDS, m->requests, &n, indices, statuses ? statuses : MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            return;
        for (int k = 0; k < n; k++)
            mix_done(m, indices[k], statuses ? &statuses[k] : NULL);
    }
}

/*
 * One after the other, from the last on: looked at until it is complete, then tested or waited for.
 */
static void by_single_calls(struct mix *m, MPI_Status *statuses)
{
    for (int at = NKINDS - 1; at >= 0; at--) {
        MPI_Request before = m->requests[at];
        MPI_Status status = {.MPI_ERROR = UNTOUCHED};
        int flag = 0;
        while (!flag)
            MPI_Request_get_status(m->requests[at], &flag, &status);
        mt_check(m->requests[at] == before, "kind %d: looking at it changed it", m->kind[at]);
        flag = 0;
        status.MPI_ERROR = UNTOUCHED;
        if (at % 2)
            MPI_Test(&m->requests[at], &flag, statuses ? &status : MPI_STATUS_IGNORE);
        else
            MPI_Wait(&m->requests[at], statuses ? &status : MPI_STATUS_IGNORE);
        mt_check(flag == at % 2, "kind %d: was complete, and is no more", m->kind[at]);
        mt_check(status.MPI_ERROR == UNTOUCHED || status.MPI_ERROR == MPI_SUCCESS,
            "kind %d: error %d", m->kind[at], status.MPI_ERROR);
        mix_done(m, at, statuses ? &status : NULL);
    }
}

static const struct {
    const char *name;
    void (*complete)(struct mix *m, MPI_Status *statuses);
    bool all; /* reports what is null or inactive, too */
} ways[] = {{"Waitall", by_waitall, true}, {"Waitany", by_waitany, false},
    {"Waitsome", by_waitsome, false}, {"Testall", by_testall, true}, {"Testany", by_testany, false},
    {"Testsome", by_testsome, false}, {"single calls", by_single_calls, true}};

START_TEST(test_requests_of_all_kinds_complete_together)
{
    MPI_Status statuses[NKINDS];
    struct mix m;
    unsigned rounds = 4 * COUNT_OF(ways);
    struct s_served before = s_count_served(MPI_COMM_WORLD);
    ngeneral_freed = 0;
    for (unsigned k = 0; k < rounds; k++) {
        /* Ranks differ in their ways. */
        unsigned way = (k + (unsigned)mt_rank * (k / COUNT_OF(ways))) % COUNT_OF(ways);
        mt_note("round %u by %s", k, ways[way].name);
        mix_start(&m, k);
        ways[way].complete(&m, k % 2 ? statuses : NULL);
        mix_end(&m, ways[way].all);
        if (!mt_all_well())
            break;
    }
    mt_check(!mt_all_well() || ngeneral_freed == (int)rounds, "%d generalized requests were freed",
        ngeneral_freed);
    s_check_served(MPI_COMM_WORLD, before, 0, JOBS * (long)rounds);
    mt_agree();
}
END_TEST

/* A receive that nobody has sent to yet: the call next to it is complete, and both handles stay as
 * they are. */
START_TEST(test_requests_stay_when_not_all_are_complete)
{
    for (int round = 0; round < 6; round++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, round < 3 ? 5 : 9000, (uint64_t)round, false);
        MPI_Request requests[2], before[2];
        int got = -1, sent = round, flag = 0, tests = 0, done = 0;
        mt_note("one of two is complete, round %d", round);
        MPI_Irecv(&got, 1, MPI_INT, mt_rank, 3, MPI_COMM_WORLD, &requests[0]);
        s_start(&job, &requests[1]);
        memcpy(before, requests, sizeof before);
        while (!flag && tests < 20) {
            MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
            if (!done)
                MPI_Request_get_status(requests[1], &done, MPI_STATUS_IGNORE);
            tests += done;
        }
        mt_check(!flag && memcmp(before, requests, sizeof before) == 0, "round %d: flag %d", round,
            flag);
        MPI_Send(&sent, 1, MPI_INT, mt_rank, 3, MPI_COMM_WORLD);
        while (!flag)
            MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        mt_check(got == round && requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL,
            "round %d: got %d", round, got);
        s_job_end(&job, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

static void check_empty(const char *what, const MPI_Status *status)
{
    int count = -1, cancelled = 1;
    MPI_Get_count(status, MPI_INT, &count);
    MPI_Test_cancelled(status, &cancelled);
    mt_check(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 &&
                 !cancelled,
        "%s: source %d tag %d count %d cancelled %d", what, status->MPI_SOURCE, status->MPI_TAG,
        count, cancelled);
}

static void check_null_requests(void)
{
    MPI_Request none[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[2];
    int at = 5, flag = 0, n = 5, indices[2];
    MPI_Wait(&none[0], &status);
    check_empty("Wait", &status);
    MPI_Test(&none[0], &flag, &status);
    mt_check(flag, "Test of null");
    check_empty("Test", &status);
    MPI_Waitany(2, none, &at, &status);
    mt_check(at == MPI_UNDEFINED, "Waitany: %d", at);
    check_empty("Waitany", &status);
    at = flag = 0;
    MPI_Testany(2, none, &at, &flag, &status);
    mt_check(at == MPI_UNDEFINED && flag, "Testany: %d, flag %d", at, flag);
    check_empty("Testany", &status);
    MPI_Waitsome(2, none, &n, indices, statuses);
    mt_check(n == MPI_UNDEFINED, "Waitsome: %d", n);
    n = 5;
    MPI_Testsome(2, none, &n, indices, statuses);
    mt_check(n == MPI_UNDEFINED, "Testsome: %d", n);
    MPI_Waitall(2, none, statuses);
    check_empty("Waitall", &statuses[1]);
    flag = 0;
    MPI_Testall(2, none, &flag, statuses);
    mt_check(flag, "Testall");
    check_empty("Testall", &statuses[0]);
    flag = 0;
    MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status);
    mt_check(flag, "Request_get_status of null");
    check_empty("Request_get_status", &status);
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    flag = 0;
    MPI_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE);
    MPI_Waitany(0, NULL, &at, MPI_STATUS_IGNORE);
    mt_check(flag && at == MPI_UNDEFINED, "an empty list: flag %d, %d", flag, at);
}

START_TEST(test_requests_that_are_null_are_complete)
{
    struct s_job job = s_job_new(MPI_COMM_WORLD, 50, 1, false);
    MPI_Request request;
    check_null_requests();
    s_start(&job, &request);
    check_null_requests();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, MPI_COMM_WORLD);
    check_null_requests();
    mt_agree();
}
END_TEST

/* What is done with other requests while calls are under way is right, too. */
START_TEST(test_requests_of_messages_may_be_freed_and_cancelled)
{
    for (int round = 0; round < 8; round++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, 700, (uint64_t)round, false);
        MPI_Request request, send, receive, never;
        MPI_Status status;
        int out = round, in = -1, unused, cancelled = 0;
        mt_note("free and cancel, round %d", round);
        MPI_Irecv(&unused, 1, MPI_INT, mt_rank, 99, MPI_COMM_WORLD, &never);
        MPI_Irecv(&in, 1, MPI_INT, mt_rank, 4, MPI_COMM_WORLD, &receive);
        s_start(&job, &request);
        MPI_Isend(&out, 1, MPI_INT, mt_rank, 4, MPI_COMM_WORLD, &send);
        MPI_Request_free(&send);
        MPI_Cancel(&never);
        MPI_Wait(&never, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        mt_check(cancelled && send == MPI_REQUEST_NULL && in == round, "cancelled %d, got %d",
            cancelled, in);
        /* A handle survives the journey through Fortran. */
        request = MPI_Request_f2c(MPI_Request_c2f(request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        s_job_end(&job, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_requests", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_requests_that_are_null_are_complete);
    tcase_add_test(tests, test_requests_of_all_kinds_complete_together);
    tcase_add_test(tests, test_requests_stay_when_not_all_are_complete);
    tcase_add_test(tests, test_requests_of_messages_may_be_freed_and_cancelled);
    return mt_end();
}
