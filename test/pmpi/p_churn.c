/*
 * Communicators that come and go: made in loops, used often enough to be taken over, freed with
 * operations outstanding.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=1 TIARA_LAYOUT=2x2
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify
 */
#include "mpi_run.h"
#include "s_suite.h"

enum {
    LOOPS = 60,
    COUNT = 40,
    DEPTH = 4
};

static int in[DEPTH][COUNT], out[DEPTH][COUNT];

static void check_sum(const int *got, uint64_t salt, int nranks)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!mt_check(got[i] == s_sum(salt, nranks, i), "salt %d: element %zu is %d", (int)salt, i,
                got[i]))
            return;
}

static void reduce(MPI_Comm comm, uint64_t salt)
{
    s_fill(in[0], COUNT, salt, s_rank(comm));
    MPI_Allreduce(in[0], out[0], COUNT, MPI_INT, MPI_SUM, comm);
    check_sum(out[0], salt, s_size(comm));
}

START_TEST(test_churn_communicators_used_a_few_times_are_right)
{
    for (int n = 0; n < LOOPS; n++) {
        MPI_Comm comm;

        mt_note("loop %d", n);
        MPI_Comm_split(
            MPI_COMM_WORLD, n % 3 == 0 ? mt_rank % 2 : 0, n % 2 ? mt_rank : -mt_rank, &comm);
        for (int k = 0; k < n % 12; k++)
            reduce(comm, (uint64_t)(n * 100 + k));
        MPI_Comm_free(&comm);
        reduce(MPI_COMM_WORLD, (uint64_t)(n * 100 + 99));
    }
    mt_agree();
}
END_TEST

/*
 * Open MPI 4.1 itself does not survive that a communicator is freed before a nonblocking operation
 * on it has ended. What Tiara serves must, and only that is tried there.
 */
static bool is_left_to_a_weak_mpi(void)
{
#ifdef OPEN_MPI
    const char *mode = getenv("TIARA_PMPI");

    return mt_env("TIARA_TEST_PRELOAD", 0) == 0 || getenv("TIARA_LAYOUT") ||
           (mode && strcmp(mode, "verify") == 0);
#else
    return false;
#endif
}

/* What nonblocking calls need is made by a blocking one after a nonblocking one, once the first
 * calls are over. */
static void warm_up(MPI_Comm comm)
{
    for (int k = 0; k < 12; k++) {
        MPI_Request request;

        s_fill(in[0], COUNT, 1, mt_rank);
        MPI_Iallreduce(in[0], out[0], COUNT, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        reduce(comm, (uint64_t)k);
    }
}

START_TEST(test_churn_operations_outlive_their_communicator)
{
    for (int n = 0; n < LOOPS / 3 && !is_left_to_a_weak_mpi(); n++) {
        MPI_Request requests[DEPTH];
        MPI_Comm comm;

        mt_note("loop %d", n);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        warm_up(comm);
        for (int k = 0; k < DEPTH; k++) {
            s_fill(in[k], COUNT, (uint64_t)(n * 100 + k), mt_rank);
            MPI_Iallreduce(in[k], out[k], COUNT, MPI_INT, MPI_SUM, comm, &requests[k]);
        }
        MPI_Comm_free(&comm);
        MPI_Waitall(DEPTH, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < DEPTH; k++)
            check_sum(out[k], (uint64_t)(n * 100 + k), mt_size);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "p_churn", MPI_THREAD_SINGLE);

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_churn_communicators_used_a_few_times_are_right);
    tcase_add_test(tests, test_churn_operations_outlive_their_communicator);
    return mt_end();
}
