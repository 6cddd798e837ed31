/*
 * Completion of requests: every call of the Wait and Test kind on lists with null and
 * inactive ones, statuses, looking without completing, giving up, empty calls, and wrong arguments.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
#include "m_requests_case.h"
#include <stdlib.h>
#include <string.h>

enum {
    JOBS = 6,
    NULL_AT = 2, /* in the list, a request that is null */
    INACTIVE_AT = 5, /* and one that is persistent and was not started */
    LIST = JOBS + 2
};

static uint64_t salt = 1; /* of the next call; alike on all ranks */

/* A list of calls under way; jobs[LIST] of which two are of no use. */
struct list {
    TIARA_Request requests[LIST];
    struct mr_job jobs[LIST];
    int ndone[LIST];
};

static bool is_active(int at)
{
    return at != NULL_AT && at != INACTIVE_AT;
}

/* All ranks start the calls in one order, at places that are their own. */
static void list_start(struct list *l)
{
    int places[LIST], n = 0;
    memset(l->ndone, 0, sizeof l->ndone);
    mr_shuffle(places, LIST, salt);
    l->requests[NULL_AT] = TIARA_REQUEST_NULL;
    for (int k = 0; k < LIST; k++) {
        int at = places[k];
        if (!is_active(at))
            continue;
        mr_start_all(&l->jobs[at], 1, MPI_COMM_WORLD, salt + (uint64_t)n++);
        l->requests[at] = l->jobs[at].request;
    }
    salt += JOBS;
}

static void list_done(struct list *l, int at, const MPI_Status *status)
{
    int count = -1;
    if (!mt_check(at >= 0 && at < LIST, "index %d", at))
        return;
    l->ndone[at]++;
    mt_check((l->requests[at] == TIARA_REQUEST_NULL) == (at != INACTIVE_AT),
        "request %d became the wrong one", at);
    if (!status || is_active(at))
        return;
    MPI_Get_count(status, MPI_INT, &count);
    mt_check(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0,
        "request %d: source %d tag %d count %d", at, status->MPI_SOURCE, status->MPI_TAG, count);
}

/* @all: null and inactive ones were reported, too. */
static void list_end(struct list *l, bool all)
{
    for (int at = 0; at < LIST; at++) {
        mt_check(l->ndone[at] == (is_active(at) || all), "request %d was reported %d times", at,
            l->ndone[at]);
        if (is_active(at))
            mr_end(&l->jobs[at]);
    }
}

static void by_waitall(struct list *l, MPI_Status *statuses)
{
    int err = TIARA_Waitall(LIST, l->requests, statuses ? statuses : MPI_STATUSES_IGNORE);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    for (int at = 0; at < LIST; at++)
        list_done(l, at, statuses ? &statuses[at] : NULL);
}

static void by_waitany(struct list *l, MPI_Status *statuses)
{
    for (int at;;) {
        TIARA_Waitany(LIST, l->requests, &at, statuses ? statuses : MPI_STATUS_IGNORE);
        if (at == MPI_UNDEFINED)
            return;
        list_done(l, at, statuses);
    }
}

static void by_waitsome(struct list *l, MPI_Status *statuses)
{
    int indices[LIST];
    for (int n;;) {
        TIARA_Waitsome(LIST, l->requests, &n, indices, statuses ? statuses : MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            return;
        mt_check(n > 0, "Waitsome completed none");
        for (int k = 0; k < n; k++)
            list_done(l, indices[k], statuses ? &statuses[k] : NULL);
    }
}

static void by_testall(struct list *l, MPI_Status *statuses)
{
    TIARA_Request before[LIST];
    memcpy(before, l->requests, sizeof before);
    for (int flag = 0; !flag;) {
        TIARA_Testall(LIST, l->requests, &flag, statuses ? statuses : MPI_STATUSES_IGNORE);
        mt_check(flag || memcmp(before, l->requests, sizeof before) == 0,
            "Testall changed requests without completing all");
    }
    for (int at = 0; at < LIST; at++)
        list_done(l, at, statuses ? &statuses[at] : NULL);
}

static void by_testany(struct list *l, MPI_Status *statuses)
{
    for (int at, flag;;) {
        TIARA_Testany(LIST, l->requests, &at, &flag, statuses ? statuses : MPI_STATUS_IGNORE);
        mt_check(flag || at == MPI_UNDEFINED, "index %d without completion", at);
        if (flag && at == MPI_UNDEFINED)
            return;
        if (flag)
            list_done(l, at, statuses);
    }
}

static void by_testsome(struct list *l, MPI_Status *statuses)
{
    int indices[LIST];
    for (int n;;) {
        TIARA_Testsome(LIST, l->requests, &n, indices, statuses ? statuses : MPI_STATUSES_IGNORE);
        if (n == MPI_UNDEFINED)
            return;
        for (int k = 0; k < n; k++)
            list_done(l, indices[k], statuses ? &statuses[k] : NULL);
    }
}

/* From the last one on: looked at until it is complete, which changes nothing, then completed. */
static void by_single_calls(struct list *l, MPI_Status *statuses)
{
    for (int at = LIST - 1; at >= 0; at--) {
        TIARA_Request before = l->requests[at];
        MPI_Status status;
        int flag = 0;
        while (!flag)
            TIARA_Request_get_status(l->requests[at], &flag, &status);
        mt_check(l->requests[at] == before, "request %d: looking at it changed it", at);
        flag = 0;
        if (at % 2)
            TIARA_Test(&l->requests[at], &flag, statuses ? &status : MPI_STATUS_IGNORE);
        else
            TIARA_Wait(&l->requests[at], statuses ? &status : MPI_STATUS_IGNORE);
        mt_check(flag == at % 2, "request %d: was complete, and is no more", at);
        list_done(l, at, statuses ? &status : NULL);
    }
}

static const struct {
    const char *name;
    void (*complete)(struct list *l, MPI_Status *statuses);
    bool all; /* reports what is null or inactive, too */
} ways[] = {{"Waitall", by_waitall, true}, {"Waitany", by_waitany, false},
    {"Waitsome", by_waitsome, false}, {"Testall", by_testall, true}, {"Testany", by_testany, false},
    {"Testsome", by_testsome, false}, {"single calls", by_single_calls, true}};

START_TEST(test_completion_of_lists_is_right)
{
    static struct list list;
    MPI_Status statuses[LIST];
    struct mt_case c = mr_case(MPI_COMM_WORLD, salt++);
    struct mr_job inactive = mr_new(&c);
    mr_init(&inactive);
    list.requests[INACTIVE_AT] = inactive.request;
    for (unsigned k = 0; k < 4 * COUNT_OF(ways); k++) {
        unsigned way = (k + (unsigned)mt_rank * (k / COUNT_OF(ways))) % COUNT_OF(ways);
        mt_note("round %u by %s", k, ways[way].name);
        list_start(&list);
        ways[way].complete(&list, k % 2 ? statuses : NULL);
        list_end(&list, ways[way].all);
        if (!mt_all_well())
            break;
    }
    int err = TIARA_Request_free(&list.requests[INACTIVE_AT]);
    mt_check(err == MPI_SUCCESS && list.requests[INACTIVE_AT] == TIARA_REQUEST_NULL,
        "free: error %d", err);
    mr_free(&inactive);
    mt_agree();
}
END_TEST

START_TEST(test_completion_of_nothing_is_immediate)
{
    TIARA_Request none[2] = {TIARA_REQUEST_NULL, TIARA_REQUEST_NULL};
    MPI_Status status, statuses[2];
    int at = 5, flag = 0, n = 5, indices[2], count = -1;
    mt_check(TIARA_Wait(&none[0], &status) == MPI_SUCCESS, "Wait");
    MPI_Get_count(&status, MPI_INT, &count);
    mt_check(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG && count == 0,
        "source %d tag %d count %d", status.MPI_SOURCE, status.MPI_TAG, count);
    TIARA_Test(&none[0], &flag, &status);
    mt_check(flag, "Test");
    TIARA_Waitany(2, none, &at, &status);
    mt_check(at == MPI_UNDEFINED, "Waitany: %d", at);
    at = flag = 0;
    TIARA_Testany(2, none, &at, &flag, &status);
    mt_check(at == MPI_UNDEFINED && flag, "Testany: %d, flag %d", at, flag);
    TIARA_Waitsome(2, none, &n, indices, statuses);
    mt_check(n == MPI_UNDEFINED, "Waitsome: %d", n);
    n = 5;
    TIARA_Testsome(2, none, &n, indices, statuses);
    mt_check(n == MPI_UNDEFINED, "Testsome: %d", n);
    mt_check(TIARA_Waitall(2, none, statuses) == MPI_SUCCESS, "Waitall");
    flag = 0;
    TIARA_Testall(2, none, &flag, statuses);
    mt_check(flag, "Testall");
    flag = 0;
    TIARA_Request_get_status(TIARA_REQUEST_NULL, &flag, &status);
    mt_check(flag, "Request_get_status");
    mt_check(TIARA_Waitall(0, NULL, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "an empty list");
    flag = 0;
    TIARA_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE);
    TIARA_Waitany(0, NULL, &at, MPI_STATUS_IGNORE);
    mt_check(flag && at == MPI_UNDEFINED, "an empty list: flag %d, %d", flag, at);
    mt_agree();
}
END_TEST

START_TEST(test_completion_of_calls_without_elements_is_right)
{
    double here = mt_rank, there = -1;
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (int k = 0; k < 6; k++) {
        TIARA_Request requests[3];
        TIARA_Iallreduce(NULL, NULL, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        TIARA_Iallreduce(&here, &there, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF, &requests[1]);
        TIARA_Iallreduce_c(MPI_IN_PLACE, NULL, 0, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[2]);
        int err = TIARA_Waitall(3, requests, MPI_STATUSES_IGNORE);
        mt_check(err == MPI_SUCCESS && there == mt_rank, "error %d, %g", err, there);
    }
    mt_agree();
}
END_TEST

/*
 * A call that is given up goes on: its result arrives, as long as the program comes by. Nobody says
 * when, so it is looked for; in memory of a device nobody may look.
 */
START_TEST(test_completion_is_not_needed_for_a_result)
{
    static const size_t counts[] = {1, 60, 2000, 30000};
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (unsigned k = 0; k < COUNT_OF(counts) && !getenv("TIARA_TEST_MEMORY"); k++) {
        struct mt_case c = {.type = mt_type_find(MPI_LONG),
            .oper = MT_SUM,
            .count = counts[k],
            .seed = salt++,
            .comm = MPI_COMM_WORLD};
        struct mr_job job = mr_new(&c);
        unsigned char *wanted = malloc(job.recv.bytes);
        int all_there = 0;
        PMPI_Allreduce(job.send.data, wanted, (int)c.count, MPI_LONG, MPI_SUM, mt_private);
        mr_start(&job);
        int err = TIARA_Request_free(&job.request);
        mt_check(err == MPI_SUCCESS && job.request == TIARA_REQUEST_NULL, "free: error %d", err);
        mt_note("given up, count %zu", c.count);
        while (!all_there) {
            int there = memcmp(wanted, job.recv.data, job.recv.bytes) == 0, one = 1, sum = 0;
            TIARA_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            PMPI_Allreduce(&there, &all_there, 1, MPI_INT, MPI_LAND, mt_private);
        }
        mr_end(&job);
        free(wanted);
    }
    mt_agree();
}
END_TEST

/* ---- wrong arguments ---- */

static double in[16], out[16];

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

static void expect(const char *what, int err, int want, TIARA_Request request)
{
    mt_note("after %s", what);
    mt_check(class_of(err) == want, "%s: error class %d, not %d", what, class_of(err), want);
    mt_check(request == TIARA_REQUEST_NULL, "%s: there is a request", what);
    struct mr_job job;
    mr_start_all(&job, 1, MPI_COMM_WORLD, salt++);
    mr_wait(&job);
}

/* By TIARA_Iallreduce, or by TIARA_Allreduce_init. */
static void check_arguments(bool persistent)
{
    const struct {
        const char *what;
        const void *send;
        void *recv;
        int count;
        MPI_Datatype type;
        MPI_Op op;
        MPI_Comm comm;
        int class;
    } wrongs[] = {
        {"negative count", in, out, -1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_ERR_COUNT},
        {"null input", NULL, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_ERR_BUFFER},
        {"null result", in, NULL, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_ERR_BUFFER},
        {"equal buffers", out, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_ERR_BUFFER},
        {"null type", in, out, 4, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD, MPI_ERR_TYPE},
        {"null operator", in, out, 4, MPI_DOUBLE, MPI_OP_NULL, MPI_COMM_WORLD, MPI_ERR_OP},
        {"undefined pair", in, out, 4, MPI_DOUBLE, MPI_BXOR, MPI_COMM_WORLD, MPI_ERR_OP},
        {"null communicator", in, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL, MPI_ERR_COMM},
    };
    for (unsigned k = 0; k < COUNT_OF(wrongs); k++) {
        TIARA_Request request = TIARA_REQUEST_NULL;
        int err = persistent
                      ? TIARA_Allreduce_init(wrongs[k].send, wrongs[k].recv, wrongs[k].count,
                            wrongs[k].type, wrongs[k].op, wrongs[k].comm, MPI_INFO_NULL, &request)
                      : TIARA_Iallreduce(wrongs[k].send, wrongs[k].recv, wrongs[k].count,
                            wrongs[k].type, wrongs[k].op, wrongs[k].comm, &request);
        expect(wrongs[k].what, err, wrongs[k].class, request);
    }
}

START_TEST(test_completion_has_nothing_to_do_after_wrong_arguments)
{
    check_arguments(false);
    check_arguments(true);
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    check_arguments(false);
    mt_agree();
}
END_TEST

static int nhandled;
static MPI_Comm blamed;

static void note_comm(MPI_Comm *comm, int *err, ...)
{
    (void)err;
    blamed = *comm;
    nhandled++;
}

START_TEST(test_completion_errors_go_to_the_communicator_s_handler)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    TIARA_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(note_comm, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    nhandled = 0;
    int err = TIARA_Iallreduce(in, out, -1, MPI_DOUBLE, MPI_SUM, comm, &request);
    mt_check(nhandled == 1 && class_of(err) == MPI_ERR_COUNT, "%d calls, class %d", nhandled,
        class_of(err));
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* Ranks that call differently find that out, free the communicator, and only then complete. */
static void fail_and_free(bool persistent)
{
    MPI_Comm comm;
    TIARA_Request request;
    int flag = 0, err;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    TIARA_Comm_prepare(comm);
    mt_note("persistent %d", persistent);
    if (!mr_is_served(comm)) {
        MPI_Comm_free(&comm);
        return;
    }
    if (persistent) {
        TIARA_Allreduce_init(
            in, out, 1 + mt_rank, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
        TIARA_Start(&request);
    } else {
        TIARA_Iallreduce(in, out, 1 + mt_rank, MPI_DOUBLE, MPI_SUM, comm, &request);
    }
    mt_stderr_begin();
    while (!flag)
        TIARA_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    nhandled = 0;
    err = TIARA_Wait(&request, MPI_STATUS_IGNORE);
    free(mt_stderr_end());
    mt_check(err != MPI_SUCCESS && nhandled == 1 && blamed == MPI_COMM_SELF,
        "persistent %d: error %d, %d calls of the handler", persistent, err, nhandled);
    if (persistent)
        TIARA_Request_free(&request);
}

START_TEST(test_completion_errors_outlive_the_communicator)
{
    MPI_Errhandler handler, before[2];
    MPI_Comm_create_errhandler(note_comm, &handler);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &before[0]);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before[1]);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    fail_and_free(false);
    fail_and_free(true);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, before[0]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before[1]);
    for (int i = 0; i < 2; i++)
        MPI_Errhandler_free(&before[i]);
    MPI_Errhandler_free(&handler);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_requests_complete", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_completion_of_nothing_is_immediate);
    tcase_add_test(tests, test_completion_of_lists_is_right);
    tcase_add_test(tests, test_completion_of_calls_without_elements_is_right);
    tcase_add_test(tests, test_completion_is_not_needed_for_a_result);
    tcase_add_test(tests, test_completion_has_nothing_to_do_after_wrong_arguments);
    tcase_add_test(tests, test_completion_errors_go_to_the_communicator_s_handler);
    tcase_add_test(tests, test_completion_errors_outlive_the_communicator);
    return mt_end();
}
