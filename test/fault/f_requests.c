/*
 * Nonblocking calls that cannot end well: ranks that call differently get an error and no byte
 * outside their buffers, a rank that does not come is waited for as long as TIARA_TIMEOUT says;
 * then all of them go on. So it is where a rank waits in one of Tiara's calls, and where it tests
 * in a loop of its own.
 */
/* tiara-test: mpirun 2 TIARA_WARN=1 TIARA_TIMEOUT=2 */
/* tiara-test: mpirun 3 */
/* tiara-test: mpirun 3 TIARA_WARN=1 TIARA_TIMEOUT=2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_WARN=1 TIARA_TIMEOUT=2 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_TIMEOUT=2 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call TIARA_NET=socket */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

/* A blocking and a nonblocking sum on @comm; the latter may be an error where @hurt, but must
 * return. */
static void check_usable(MPI_Comm comm, bool hurt)
{
    int one = mt_rank + 1, sum = 0, size;
    TIARA_Request request;
    struct mt_case c = {.type = mt_type_find(MPI_DOUBLE),
        .oper = MT_SUM,
        .count = 2000,
        .seed = mt_seed(),
        .comm = comm};
    MPI_Comm_size(comm, &size);
    mt_allreduce(&c);
    int err = TIARA_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    if (err == MPI_SUCCESS)
        err = TIARA_Wait(&request, MPI_STATUS_IGNORE);
    bool right = err == MPI_SUCCESS && sum == size * (size + 1) / 2;
    mt_check(right || (hurt && err != MPI_SUCCESS), "error %d, sum %d", err, sum);
}

static MPI_Comm prepared(void)
{
    MPI_Comm comm;
    int answer = TIARA_SERVES_NO;
    const char *why = "";
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    TIARA_Comm_prepare(comm);
    TIARA_Comm_serves(comm, 1, 1, MPI_DOUBLE, MPI_SUM, &answer, &why);
    mt_check(answer == TIARA_SERVES_YES, "nonblocking calls are left to MPI: %s", why);
    check_usable(comm, false);
    return comm;
}

/* ---- the ways to wait ---- */

enum way {
    WAIT,
    TEST,
    TESTALL,
    TESTANY,
    TESTSOME,
    GET_STATUS,
    NWAYS
};
enum {
    MOST = 2 /* requests at a time */
};

/* Completes requests[@n]; errs[k]: what was said of each. */
static void complete(enum way way, int n, TIARA_Request requests[], int errs[])
{
    MPI_Status statuses[MOST];
    int flag = 0, left = n, err = MPI_SUCCESS, class, some[MOST];
    if (way == WAIT)
        err = TIARA_Waitall(n, requests, statuses);
    while (way == TESTALL && !flag)
        err = TIARA_Testall(n, requests, &flag, statuses);
    MPI_Error_class(err, &class);
    mt_check(class == MPI_SUCCESS || class == MPI_ERR_IN_STATUS, "all of %d: class %d", n, class);
    for (int k = 0; k < n; k++)
        errs[k] = err == MPI_SUCCESS ? MPI_SUCCESS : statuses[k].MPI_ERROR;
    for (; way == TESTANY && left > 0; left -= flag) {
        err = TIARA_Testany(n, requests, some, &flag, MPI_STATUS_IGNORE);
        if (flag)
            errs[some[0]] = err;
    }
    for (; way == TESTSOME && left > 0; left -= flag) {
        TIARA_Testsome(n, requests, &flag, some, statuses);
        for (int i = 0; i < flag; i++)
            errs[some[i]] = statuses[i].MPI_ERROR;
    }
    for (int k = 0; (way == TEST || way == GET_STATUS) && k < n; k++) {
        for (flag = 0; way == GET_STATUS && !flag;)
            TIARA_Request_get_status(requests[k], &flag, MPI_STATUS_IGNORE);
        for (flag = 0; !flag;)
            errs[k] = TIARA_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
    }
}

/* ---- calls that differ ---- */

struct call {
    int count;
    MPI_Datatype type;
    MPI_Op op;
    bool persistent;
    enum way way;
};

/* One call with zeros for data; returns what it, or its completion, said. */
static int run_call(const struct call *c, MPI_Comm comm)
{
    int size;
    TIARA_Request request = TIARA_REQUEST_NULL;
    MPI_Type_size(c->type, &size);
    struct mt_buf send = mt_buf_new((size_t)c->count * (size_t)size, 0),
                  recv = mt_buf_new_result(send.bytes, 0);
    memset(send.data, 0, send.bytes);
    uint64_t before = mt_digest(send.data, send.bytes);
    int err = c->persistent ? TIARA_Allreduce_init(send.data, recv.data, c->count, c->type, c->op,
                                  comm, MPI_INFO_NULL, &request)
                            : TIARA_Iallreduce(
                                  send.data, recv.data, c->count, c->type, c->op, comm, &request);
    if (c->persistent && err == MPI_SUCCESS)
        err = TIARA_Start(&request);
    if (err == MPI_SUCCESS)
        complete(c->way, 1, &request, &err);
    if (c->persistent)
        TIARA_Request_free(&request);
    mt_check(request == TIARA_REQUEST_NULL, "the request is left");
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "count %d: guards damaged", c->count);
    mt_check(mt_digest(send.data, send.bytes) == before, "count %d: input changed", c->count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return err;
}

/* All ranks return, one at least with an error. */
static void check_mismatch(const struct call *usual, const struct call *odd, int odd_rank)
{
    MPI_Comm comm = prepared();
    int anyone = 0;
    mt_note("counts %d and %d, odd rank %d, way %d", usual->count, odd->count, odd_rank,
        (int)usual->way);
    int mine = run_call(mt_rank == odd_rank ? odd : usual, comm) != MPI_SUCCESS;
    PMPI_Allreduce(&mine, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
    mt_check(anyone, "counts %d and %d, odd rank %d: no rank saw it", usual->count, odd->count,
        odd_rank);
    mt_note("after counts %d and %d, odd rank %d", usual->count, odd->count, odd_rank);
    check_usable(comm, true);
    MPI_Comm_free(&comm);
    check_usable(MPI_COMM_WORLD, false);
}

START_TEST(test_requests_that_differ_between_ranks_are_seen)
{
    static const struct {
        int count, odd_count;
        bool of_ints; /* the odd rank's are ints */
        bool persistent;
    } pairs[] = {{1, 2, false, false}, {5, 6, false, true}, {1000, 1001, false, false},
        {4, 50000, false, false}, {3, 3, true, false}, {50000, 50000, true, true}};
    const unsigned npairs = sizeof pairs / sizeof pairs[0];
    for (unsigned i = 0; i < 2 * npairs; i++) {
        unsigned k = i % npairs;
        enum way way = i < npairs ? WAIT : 1 + k % (NWAYS - 1);
        struct call usual = {pairs[k].count, MPI_DOUBLE, MPI_SUM, pairs[k].persistent, way};
        struct call odd = {pairs[k].odd_count, pairs[k].of_ints ? MPI_INT : MPI_DOUBLE, MPI_SUM,
            pairs[k].persistent, way};
        mt_stderr_begin();
        check_mismatch(&usual, &odd, k % 2 ? 0 : mt_size - 1);
        char *text = mt_stderr_end();
        int said = *text != '\0', anyone = 0;
        free(text);
        PMPI_Allreduce(&said, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
        mt_check(anyone, "pair %u: nobody said anything", k);
        if (!mt_all_well())
            break;
    }
    mt_agree();
}
END_TEST

/* ---- a rank that does not come ---- */

/* The others' calls: a small and a large one outstanding, of which each must end with an error. */
static void call_in_vain(MPI_Comm comm, enum way way)
{
    static const int counts[2] = {3, 40000};
    struct mt_buf send[2], recv[2];
    TIARA_Request requests[2];
    int class, errs[2];
    for (int k = 0; k < 2; k++) {
        send[k] = mt_buf_new((size_t)counts[k] * sizeof(double), 0);
        recv[k] = mt_buf_new_result(send[k].bytes, 0);
        memset(send[k].data, 0, send[k].bytes);
        TIARA_Iallreduce(
            send[k].data, recv[k].data, counts[k], MPI_DOUBLE, MPI_SUM, comm, &requests[k]);
    }
    mt_stderr_begin();
    complete(way, 2, requests, errs);
    free(mt_stderr_end());
    for (int k = 0; k < 2; k++) {
        MPI_Error_class(errs[k], &class);
        mt_check(class == MPI_ERR_OTHER && requests[k] == TIARA_REQUEST_NULL,
            "count %d: class %d, or a request is left", counts[k], class);
        mt_check(mt_buf_intact(&send[k]) && mt_buf_intact(&recv[k]), "count %d: guards damaged",
            counts[k]);
        mt_buf_free(&send[k]);
        mt_buf_free(&recv[k]);
    }
}

/* Without a limit they would wait for ever, as they should. */
START_TEST(test_requests_of_an_absent_rank_end_with_an_error)
{
    bool limited = strcmp(TIARA_Variable("TIARA_TIMEOUT"), "0") != 0;
    for (int k = 0; k < 3 && limited; k++) {
        int absent = k == 0 ? mt_size - 1 : 0, go = 1;
        MPI_Comm comm = prepared();
        mt_note("rank %d absent", absent);
        if (mt_rank == absent) {
            for (int r = 0; r < mt_size - 1; r++)
                MPI_Recv(&go, 1, MPI_INT, MPI_ANY_SOURCE, 77, mt_private, MPI_STATUS_IGNORE);
        } else {
            call_in_vain(comm, k < 2 ? WAIT : TESTALL);
            MPI_Send(&go, 1, MPI_INT, absent, 77, mt_private);
        }
        mt_note("after rank %d was absent", absent);
        MPI_Comm_free(&comm);
        check_usable(MPI_COMM_WORLD, false);
    }
    mt_agree();
}
END_TEST

/* A rank that is late, but not as late as the limit, is waited for. */
START_TEST(test_requests_of_a_late_rank_are_no_error)
{
    MPI_Comm comm = prepared();
    int one = 1, sum = 0, flag;
    double until = MPI_Wtime() + 0.7;
    TIARA_Request request;
    mt_stderr_begin();
    while (mt_rank == 0 && MPI_Wtime() < until)
        MPI_Iprobe(MPI_ANY_SOURCE, 78, mt_private, &flag, MPI_STATUS_IGNORE);
    int err = TIARA_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    if (err == MPI_SUCCESS)
        err = TIARA_Wait(&request, MPI_STATUS_IGNORE);
    free(mt_stderr_end());
    mt_check(err == MPI_SUCCESS && sum == mt_size, "error %d, sum %d", err, sum);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "f_requests", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_requests_of_a_late_rank_are_no_error);
    tcase_add_test(tests, test_requests_that_differ_between_ranks_are_seen);
    tcase_add_test(tests, test_requests_of_an_absent_rank_end_with_an_error);
    return mt_end();
}
