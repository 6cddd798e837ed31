/*
 * A rank that has no memory for what the library keeps of a communicator decides about its calls as
 * the others do.
 *
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=2 TIARA_LAYOUT=2x2
 */
#include "mpi_run.h"
#include "s_suite.h"

enum {
    LOOPS = 100
};

/* Takes the place of the C library's, for the preloaded objects, too. */
void *__libc_calloc(size_t n, size_t size);
static bool is_armed;
static int nfailed;

void *calloc(size_t n, size_t size)
{
    if (!is_armed)
        return __libc_calloc(n, size);
    is_armed = false;
    nfailed++;
    return NULL;
}

START_TEST(test_nomem_a_rank_without_memory_decides_as_the_others)
{
    for (int n = 0; n < LOOPS; n++) {
        MPI_Comm comm;
        int sum = 0, victim = n % mt_size;

        mt_note("loop %d", n);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        mt_stderr_begin();
        is_armed = mt_rank == victim;
        MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, comm);
        is_armed = false;
        free(mt_stderr_end());
        mt_check(sum == n * mt_size, "the sum is %d", sum);
        s_warm_up(comm);
        MPI_Comm_free(&comm);
    }
    mt_check(nfailed >= LOOPS / mt_size, "%d allocations failed", nfailed);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "p_nomem", MPI_THREAD_SINGLE);

    tcase_add_test(tests, test_nomem_a_rank_without_memory_decides_as_the_others);
    return mt_end();
}
