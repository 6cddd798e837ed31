/*
 * A rank that has no memory for what the library keeps of a communicator decides about its calls as
 * the others do.
 *
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=2 TIARA_LAYOUT=2x2
 */
#include "mpi_run.h"
#include "s_suite.h"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#if MPI_VERSION >= 4
#define ALLREDUCE_INIT MPI_Allreduce_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif

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

/* One allocation fails in @comm's next call, on one rank. */
static void arm(int n)
{
    mt_stderr_begin();
    is_armed = mt_rank == n % mt_size;
}

static void disarm(void)
{
    is_armed = false;
    free(mt_stderr_end());
}

START_TEST(test_nomem_a_rank_without_memory_decides_as_the_others)
{
    for (int n = 0; n < LOOPS; n++) {
        MPI_Comm comm;
        int sum = 0;

        mt_note("loop %d", n);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        arm(n);
        MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, comm);
        disarm();
        mt_check(sum == n * mt_size, "the sum is %d", sum);
        s_warm_up(comm);
        MPI_Comm_free(&comm);
    }
    mt_check(nfailed >= LOOPS / mt_size, "%d allocations failed", nfailed);
    mt_agree();
}
END_TEST

/* The operation of a rank without memory for its request is over when it was started. */
START_TEST(test_nomem_a_request_without_memory_is_everybodys)
{
    MPI_Comm comm;
    int in = mt_rank, sum = -1, before = nfailed;
    MPI_Request request;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    s_warm_up(comm);
    for (int n = 0; n < mt_size && s_serves_nonblocking(comm); n++) {
        arm(n);
        MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
        disarm();
        mt_check((request == MPI_REQUEST_NULL) == (mt_rank == n), "there is a request, or none");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mt_check(sum == mt_size * (mt_size - 1) / 2, "the sum is %d", sum);
#ifdef ALLREDUCE_INIT
        arm(n);
        int rc = ALLREDUCE_INIT(&in, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
        disarm();
        mt_check((rc != MPI_SUCCESS) == (mt_rank == n), "init ends with %d", rc);
        if (rc == MPI_SUCCESS)
            MPI_Request_free(&request);
#endif
        mt_check(mt_rank != n || nfailed > before, "no allocation failed");
    }
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "p_nomem", MPI_THREAD_SINGLE);

    tcase_add_test(tests, test_nomem_a_rank_without_memory_decides_as_the_others);
    tcase_add_test(tests, test_nomem_a_request_without_memory_is_everybodys);
    return mt_end();
}
