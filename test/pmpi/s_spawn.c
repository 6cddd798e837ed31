/*
 * Processes that are started by the program (MPI 4.0, section 11.8): both sides call on the
 * intercommunicator, on what it is merged to, and on worlds of their own, which have the same ranks
 * and perhaps the same numbers inside MPI.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
#include "s_suite.h"

#include <unistd.h>

enum {
    CHILDREN = 2,
    ROUNDS = 12
};

/* What both sides do; @is_child. Returns how much is wrong. */
static int work(MPI_Comm inter, bool is_child)
{
    MPI_Comm merged;
    int wrong = 0, nlocal, nremote, rank, all, sum, mine;
    MPI_Comm_size(inter, &nlocal);
    MPI_Comm_remote_size(inter, &nremote);
    MPI_Intercomm_merge(inter, is_child, &merged);
    MPI_Comm_rank(merged, &rank);
    MPI_Comm_size(merged, &all);
    wrong += all != nlocal + nremote;
    for (int k = 0; k < ROUNDS; k++) {
        /* Each group gets the sum of the other. */
        mine = is_child ? 1 + k : 100 + k;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
        wrong += sum != nremote * (is_child ? 100 + k : 1 + k);
        mine = rank + k;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, merged);
        wrong += sum != all * k + all * (all - 1) / 2;
        mine = 7;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != 7 * nlocal;
        MPI_Request request;
        mine = rank * k;
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_MAX, merged, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += sum != (all - 1) * k;
    }
    MPI_Comm_free(&merged);
    return wrong;
}

/* A child says in the end how much was wrong with it. */
static int be_child(MPI_Comm parent)
{
    int wrong = work(parent, true);
    MPI_Reduce(&wrong, NULL, 1, MPI_INT, MPI_SUM, 0, parent);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

static MPI_Comm children = MPI_COMM_NULL;

START_TEST(test_spawned_processes_and_their_parents_are_right)
{
    int wrong = work(children, false), of_children = 0;
    mt_check(wrong == 0, "%d results are wrong", wrong);
    mt_note("the children's word");
    MPI_Reduce(&wrong, &of_children, 1, MPI_INT, MPI_SUM, mt_rank == 0 ? MPI_ROOT : MPI_PROC_NULL,
        children);
    mt_check(of_children == 0, "%d results of the children are wrong", of_children);
    MPI_Comm_disconnect(&children);
    mt_agree();
}
END_TEST

/* False where there is no room for more processes, or no way to start them. */
static bool spawn(void)
{
    char self[500];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int errors[CHILDREN] = {0};
    MPI_Info info;
    if (length <= 0)
        return false;
    self[length] = '\0';
    MPI_Info_create(&info);
    mt_note("starting processes");
    int err =
        MPI_Comm_spawn(self, MPI_ARGV_NULL, CHILDREN, info, 0, MPI_COMM_WORLD, &children, errors);
    MPI_Info_free(&info);
    return err == MPI_SUCCESS && children != MPI_COMM_NULL;
}

int main(int argc, char **argv)
{
    MPI_Comm parent = MPI_COMM_NULL;
    TCase *tests = s_begin(&argc, &argv, "s_spawn", MPI_THREAD_SINGLE);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        return be_child(parent);
    if (!spawn())
        return mt_skip("this MPI starts no processes here");
    tcase_add_test(tests, test_spawned_processes_and_their_parents_are_right);
    return mt_end();
}
