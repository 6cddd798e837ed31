/*
 * Attributes of communicators (MPI 4.0, section 7.7): their delete functions run while a
 * communicator is freed, and may use it and take other attributes off it. Whether they were set
 * before the library had anything to do with the communicator, or after, may differ by rank.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify */
#include "s_suite.h"

enum {
    NKEYS = 3,
    ROUNDS = 12
};

static int keys[NKEYS], deletions;

/* Calls of all kinds, on the communicator that is going. */
static int use_it(MPI_Comm comm, int key, void *value, void *extra)
{
    int word = mt_rank, all[16];
    (void)key;
    (void)value;
    (void)extra;
    deletions++;
    for (uint64_t salt = 0; salt < 12; salt++)
        s_allreduce(comm, salt % 2 ? 3 : 5000, salt, salt % 3 == 0);
    MPI_Allgather(&word, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int r = 0; r < mt_size; r++)
        mt_check(all[r] == r, "block %d is of %d", r, all[r]);
    struct s_job job = s_job_new(comm, 7, 20, false);
    MPI_Request request;
    s_start(&job, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, comm);
    return MPI_SUCCESS;
}

static int count_it(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

#ifndef MPICH
/* Takes off what is left of the others. MPICH ends the job then. */
static int delete_others(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)value;
    (void)extra;
    deletions++;
    for (int k = 0; k < NKEYS; k++) {
        void *ignored;
        int found = 0;
        if (keys[k] != key && keys[k] != MPI_KEYVAL_INVALID)
            MPI_Comm_get_attr(comm, keys[k], &ignored, &found);
        if (found)
            MPI_Comm_delete_attr(comm, keys[k]);
    }
    s_allreduce(comm, 9, 30, false);
    return MPI_SUCCESS;
}
#endif

typedef int delete_function(MPI_Comm, int, void *, void *);

/* Sets attribute @k where it is its turn: @turn 0 before the communicator is used, 1 after. */
static void set_some(MPI_Comm comm, int nkeys, int round, int turn)
{
    for (int k = 0; k < nkeys; k++)
        if (((round >> k) + (round >= ROUNDS / 2 ? mt_rank : 0)) % 2 == turn)
            MPI_Comm_set_attr(comm, keys[k], &keys[k]);
}

/* Attributes with @functions, in all orders with the use of the communicator; in the second half
 * of the rounds the orders differ by rank. */
static void check_functions(delete_function *const functions[], int nkeys, bool may_fail)
{
    for (int k = 0; k < NKEYS; k++)
        keys[k] = MPI_KEYVAL_INVALID;
    for (int k = 0; k < nkeys; k++)
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, functions[k], &keys[k], NULL);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm comm;
        mt_note("%d attributes, round %d", nkeys, round);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        deletions = 0;
        set_some(comm, nkeys, round, 0);
        if (round % 4 < 3)
            s_warm_up(comm);
        set_some(comm, nkeys, round, 1);
        int err = MPI_Comm_free(&comm);
        mt_check(deletions == nkeys, "round %d: %d deletions, not %d", round, deletions, nkeys);
        mt_check(may_fail || (err == MPI_SUCCESS && comm == MPI_COMM_NULL), "round %d: error %d",
            round, err);
        s_allreduce(MPI_COMM_WORLD, 40, (uint64_t)round, false);
    }
    for (int k = 0; k < nkeys; k++)
        MPI_Comm_free_keyval(&keys[k]);
}

START_TEST(test_attributes_delete_functions_may_use_the_communicator)
{
    delete_function *const functions[] = {use_it, count_it};
    check_functions(functions, 1, false);
    check_functions(functions, 2, false);
    mt_agree();
}
END_TEST

#ifndef MPICH
START_TEST(test_attributes_delete_functions_may_delete_others)
{
    delete_function *const functions[] = {count_it, delete_others, count_it};
    /* Open MPI misses an attribute that a function has deleted, and does not free. */
    check_functions(functions, 3, true);
    mt_agree();
}
END_TEST
#endif

/* A new communicator may have the handle of the one before. */
START_TEST(test_attributes_of_the_next_communicator_are_its_own)
{
    for (int round = 0; round < 6; round++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        s_warm_up(comm);
        if (round % 2)
            MPI_Comm_free(&comm);
        else
            MPI_Comm_disconnect(&comm);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_attributes", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_attributes_delete_functions_may_use_the_communicator);
#ifndef MPICH
    tcase_add_test(tests, test_attributes_delete_functions_may_delete_others);
#endif
    tcase_add_test(tests, test_attributes_of_the_next_communicator_are_its_own);
    return mt_end();
}
