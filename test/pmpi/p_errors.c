/*
 * Errors of the program: they are found, once, by the communicator's own error handler, whether MPI
 * or Tiara serves the calls; and calls after them are right.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_REPORT=1
 */
#include "mpi_run.h"
#include "s_suite.h"

enum {
    COUNT = 20,
    ROUNDS = 18
};

/* MPICH is often built without checks of arguments, and crashes on wrong ones. */
#ifdef OPEN_MPI
static const bool has_checks = true;
#else
static const bool has_checks = false;
#endif

static int nhandled, last_code;
static MPI_Comm last_comm;

static void handle(MPI_Comm *comm, int *code, ...)
{
    nhandled++;
    last_code = *code;
    last_comm = *comm;
}

static void reduce(MPI_Comm comm, uint64_t salt)
{
    int in[COUNT], out[COUNT];

    s_fill(in, COUNT, salt, mt_rank);
    mt_check(MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS,
        "a right call failed");
    for (size_t i = 0; i < COUNT; i++)
        mt_check(out[i] == s_sum(salt, mt_size, i), "element %zu is %d", i, out[i]);
}

enum {
    WRONG_CALLS = 6
};

/* A wrong call; by its PMPI_ name, on another communicator, it tells what MPI says of it. */
static int wrong_call(int n, bool by_mpi, MPI_Comm comm)
{
    static int in[COUNT], out[COUNT];
    MPI_Request request = MPI_REQUEST_NULL;

    switch (n % WRONG_CALLS) {
    case 0:
        return (by_mpi ? PMPI_Allreduce : MPI_Allreduce)(in, out, -1, MPI_INT, MPI_SUM, comm);
    case 1:
        return (by_mpi ? PMPI_Allreduce : MPI_Allreduce)(
            in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm);
    case 2:
        return (by_mpi ? PMPI_Allreduce : MPI_Allreduce)(in, out, 1, MPI_INT, MPI_OP_NULL, comm);
    case 3:
        return (by_mpi ? PMPI_Iallreduce : MPI_Iallreduce)(
            in, out, -1, MPI_INT, MPI_SUM, comm, &request);
    case 4:
        return (by_mpi ? PMPI_Reduce_scatter_block : MPI_Reduce_scatter_block)(
            in, out, 1, MPI_INT, MPI_OP_NULL, comm);
    default:
        return (by_mpi ? PMPI_Allgather : MPI_Allgather)(in, 1, MPI_INT, out, -1, MPI_INT, comm);
    }
}

static int class_of(int n)
{
    return s_class(wrong_call(n, true, mt_private));
}

START_TEST(test_errors_are_returned)
{
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int n = 0; n < ROUNDS; n++) {
        int class = s_class(wrong_call(n, false, comm));

        mt_check(class != MPI_SUCCESS, "wrong call %d is none", n % WRONG_CALLS);
        mt_check(class == class_of(n), "wrong call %d: class %d, not %d", n % WRONG_CALLS, class,
            class_of(n));
        reduce(comm, (uint64_t)n);
    }
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

START_TEST(test_errors_reach_the_handler_of_the_program)
{
    MPI_Errhandler handler;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    for (int n = 0; n < ROUNDS; n++) {
        nhandled = 0;
        wrong_call(n, false, comm);
        mt_check(nhandled == 1, "wrong call %d: the handler was called %d times", n % WRONG_CALLS,
            nhandled);
        mt_check(s_class(last_code) == class_of(n), "wrong call %d: class %d in the handler",
            n % WRONG_CALLS, s_class(last_code));
        mt_check(last_comm == comm, "wrong call %d: another communicator in the handler",
            n % WRONG_CALLS);
        reduce(comm, (uint64_t)n);
    }
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

START_TEST(test_errors_of_a_null_communicator_are_those_of_mpi)
{
    int in = 1, out = 0;

    for (int n = 0; n < ROUNDS; n++) {
        int rc = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL);

        mt_check(s_class(rc) == MPI_ERR_COMM, "class %d, not MPI_ERR_COMM", s_class(rc));
        reduce(MPI_COMM_WORLD, (uint64_t)n);
    }
    mt_agree();
}
END_TEST

/* A list in which a message is truncated: that one has the error, an all-reduce beside it none. */
START_TEST(test_errors_of_messages_stay_theirs)
{
    for (int n = 0; n < ROUNDS; n++) {
        int in[COUNT], out[COUNT], sent[2] = {1, 2}, got = 0;
        MPI_Request requests[3];
        MPI_Status statuses[3];
        int rc;

        mt_note("truncation, round %d", n);
        s_fill(in, COUNT, (uint64_t)n, mt_rank);
        /* Open MPI 4.1 sees it only when the message was there first. */
        MPI_Isend(sent, 2, MPI_INT, mt_rank, 8, MPI_COMM_WORLD, &requests[2]);
        MPI_Irecv(&got, 1, MPI_INT, mt_rank, 8, MPI_COMM_WORLD, &requests[0]);
        MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
        rc = MPI_Waitall(3, requests, statuses);
        mt_check(s_class(rc) == MPI_ERR_IN_STATUS, "code of the list: class %d", s_class(rc));
        mt_check(s_class(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE,
            "error of the message: class %d", s_class(statuses[0].MPI_ERROR));
        mt_check(statuses[1].MPI_ERROR == MPI_SUCCESS || statuses[1].MPI_ERROR == MPI_ERR_PENDING,
            "error of the all-reduce: %d", statuses[1].MPI_ERROR);
        for (int k = 1; k < 3; k++)
            if (requests[k] != MPI_REQUEST_NULL)
                MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        for (size_t i = 0; i < COUNT; i++)
            mt_check(out[i] == s_sum((uint64_t)n, mt_size, i), "element %zu is %d", i, out[i]);
        reduce(MPI_COMM_WORLD, (uint64_t)n + 500);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "p_errors", MPI_THREAD_SINGLE);

    MPI_Comm_set_errhandler(mt_private, MPI_ERRORS_RETURN);
    tcase_set_timeout(tests, 0);
    if (has_checks) {
        tcase_add_test(tests, test_errors_are_returned);
        tcase_add_test(tests, test_errors_reach_the_handler_of_the_program);
        tcase_add_test(tests, test_errors_of_a_null_communicator_are_those_of_mpi);
    }
    tcase_add_test(tests, test_errors_of_messages_stay_theirs);
    return mt_end();
}
