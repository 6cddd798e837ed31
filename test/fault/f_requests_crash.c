/*
 * A rank ends without MPI_Finalize while nonblocking calls are under way, which the others wait
 * for, test, or have given up. The job ends, its status tells, and nothing stays in /dev/shm; also
 * when all end like that, with calls that nobody completed.
 *
 * The program is started by itself and starts MPI jobs of itself, in which TIARA_TEST_ROLE says how
 * to end. The words of mpirun are taken from TIARA_TEST_MPIRUN.
 */
#include "dying.h"
#include "test.h"
#include "tiara.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LARGE = 200000,
    CALLS = 6
};

static double in[LARGE], out[CALLS][LARGE];

/* Ends this process as @role says, without MPI_Finalize. */
static void end_as(const char *role)
{
    if (strcmp(role, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(role, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    _exit(6);
}

static void start_all(TIARA_Request *requests)
{
    for (int k = 0; k < CALLS; k++)
        TIARA_Iallreduce(
            in, out[k], k % 2 ? LARGE : 1 + k, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[k]);
}

/* A rank of the job: rank 1 starts half of the second round's calls, and ends. */
static int be_rank(const char *role, int argc, char **argv)
{
    int rank, flag = 0;
    bool all = strcmp(role, "exit-all") == 0;
    TIARA_Request requests[CALLS];
    alarm(60);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    start_all(requests);
    TIARA_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
    if (rank == 1)
        TIARA_Iallreduce(in, out[0], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    else
        start_all(requests);
    if (all || rank == 1)
        end_as(role);
    TIARA_Request_free(&requests[CALLS - 1]);
    while (rank == 2 && !flag)
        TIARA_Testall(CALLS, requests, &flag, MPI_STATUSES_IGNORE);
    TIARA_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}

static const char *const roles[] = {"kill", "abort", "exit", "exit-all"};

START_TEST(test_requests_crash_on_one_node_ends_the_job)
{
    tiara_dying_job(roles[_i], 3, "");
}
END_TEST

START_TEST(test_requests_crash_on_two_nodes_ends_the_job)
{
    tiara_dying_job(roles[_i], 4, "TIARA_LAYOUT=2x2 TIARA_PROGRESS=call");
}
END_TEST

int main(int argc, char **argv)
{
    const char *role = getenv("TIARA_TEST_ROLE");
    if (role)
        return be_rank(role, argc, argv);
    if (!getenv("TIARA_TEST_MPIRUN"))
        tiara_test_skip("TIARA_TEST_MPIRUN does not say how to start a job");
    Suite *suite = suite_create("f_requests_crash");
    TCase *tests = tcase_create("crash");
    tcase_add_loop_test(tests, test_requests_crash_on_one_node_ends_the_job, 0, 4);
    tcase_add_loop_test(tests, test_requests_crash_on_two_nodes_ends_the_job, 0, 4);
    suite_add_tcase(suite, tests);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
