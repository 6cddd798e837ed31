/*
 * Ranks that end without MPI_Finalize: by exit, by MPI_Abort, by SIGKILL, alone while the others
 * wait or all at once. The job ends, its status tells, and nothing stays in /dev/shm.
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
    LARGE = 300000
};

static double in[LARGE], out[LARGE];

/* Ends this process as @role says, without MPI_Finalize. */
static void end_as(const char *role)
{
    if (strcmp(role, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(role, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    if (strcmp(role, "exit") == 0)
        _exit(6);
    exit(7);
}

/* A rank of the job: works, then ends, alone as rank 1 or with all others. */
static int be_rank(const char *role, int argc, char **argv)
{
    int rank;
    bool all = strcmp(role, "exit-all") == 0;
    alarm(60);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int k = 0; k < 20; k++) {
        TIARA_Allreduce(in, out, 1 + k, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        TIARA_Allreduce(in, out, LARGE, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (k == 10 && (all || rank == 1))
            end_as(role);
    }
    MPI_Finalize();
    return 0;
}

static const char *const roles[] = {"kill", "abort", "exit", "exit-all"};

START_TEST(test_crash_on_one_node_ends_the_job)
{
    tiara_dying_job(roles[_i], 3, "");
}
END_TEST

START_TEST(test_crash_on_two_nodes_ends_the_job)
{
    tiara_dying_job(roles[_i], 4, "TIARA_LAYOUT=2x2");
}
END_TEST

int main(int argc, char **argv)
{
    const char *role = getenv("TIARA_TEST_ROLE");
    if (role)
        return be_rank(role, argc, argv);
    if (!getenv("TIARA_TEST_MPIRUN"))
        tiara_test_skip("TIARA_TEST_MPIRUN does not say how to start a job");
    Suite *suite = suite_create("f_crash");
    TCase *tests = tcase_create("crash");
    tcase_add_loop_test(tests, test_crash_on_one_node_ends_the_job, 0, 4);
    tcase_add_loop_test(tests, test_crash_on_two_nodes_ends_the_job, 0, 4);
    suite_add_tcase(suite, tests);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
