/*
 * A rank does not come to the call. The watchdog says who is missing, TIARA_TIMEOUT ends the wait
 * of the others with an error, and all of them can go on with other communicators. The absent rank
 * waits for a message instead.
 */
/* tiara-test: mpirun 2 TIARA_WARN=1 TIARA_TIMEOUT=2 */
/* tiara-test: mpirun 3 TIARA_WARN=1 TIARA_TIMEOUT=2 */
/* tiara-test: mpirun 4 TIARA_WARN=1 TIARA_TIMEOUT=2 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_WARN=1 TIARA_TIMEOUT=2 TIARA_LAYOUT=3x1 TIARA_TEST_ALONE=1 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is "rank @rank" in @text, as a word? */
static bool names_rank(const char *text, int rank)
{
    char wanted[20];
    int len = snprintf(wanted, sizeof wanted, "rank %d", rank);
    for (const char *p = strstr(text, wanted); p; p = strstr(p + 1, wanted)) {
        if (p[len] < '0' || p[len] > '9')
            return true;
    }
    return false;
}

/* The call of a rank that is there, with @count doubles; returns what it said. */
static char *call_in_vain(MPI_Comm comm, int count)
{
    struct mt_buf send = mt_buf_new((size_t)count * sizeof(double), 0),
                  recv = mt_buf_new(send.bytes, 0);
    memset(send.data, 0, send.bytes);
    mt_stderr_begin();
    int err = TIARA_Allreduce(send.data, recv.data, count, MPI_DOUBLE, MPI_SUM, comm), class;
    char *text = mt_stderr_end();
    MPI_Error_class(err, &class);
    mt_check(class == MPI_ERR_OTHER, "count %d: error class %d, and said: %s", count, class, text);
    mt_check(mt_buf_intact(&recv) && mt_buf_intact(&send), "count %d: guards damaged", count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return text;
}

static void check_absence(int absent, int count)
{
    MPI_Comm comm;
    int named = 0, anyone = 0, go = 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    mt_allreduce_all_sizes(comm, (unsigned)count);
    mt_note("rank %d absent, count %d", absent, count);
    if (mt_rank == absent) {
        for (int r = 0; r < mt_size - 1; r++)
            MPI_Recv(&go, 1, MPI_INT, MPI_ANY_SOURCE, 77, mt_private, MPI_STATUS_IGNORE);
    } else {
        char *text = call_in_vain(comm, count);
        /* Whoever is alone on a node cannot know who of the other nodes is missing. */
        named = mt_env("TIARA_TEST_ALONE", 0) ? *text != '\0' : names_rank(text, absent);
        free(text);
        MPI_Send(&go, 1, MPI_INT, absent, 77, mt_private);
    }
    PMPI_Allreduce(&named, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
    mt_check(anyone, "nobody named rank %d", absent);
    MPI_Comm_free(&comm);
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 3);
}

START_TEST(test_absent_rank_is_named_and_waited_for_no_longer)
{
    check_absence(mt_size - 1, 1);
    check_absence(mt_size - 1, 100000);
    check_absence(0, 500);
    mt_agree();
}
END_TEST

/* Ranks agree in the first call of a kind. What is left of an agreement that was given up meets no
 * operation of the program on its communicator. */
START_TEST(test_absence_leaves_the_communicator_as_it_was)
{
    double in[8] = {0}, out[2];
    int one = 1, sum = 0, go = 1;
    MPI_Request request;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    mt_allreduce_all_sizes(comm, 7);
    mt_note("rank 0 absent");
    if (mt_rank == 0) {
        for (int r = 1; r < mt_size; r++)
            MPI_Recv(&go, 1, MPI_INT, MPI_ANY_SOURCE, 77, mt_private, MPI_STATUS_IGNORE);
    } else {
        mt_stderr_begin();
        int err = TIARA_Reduce_scatter_block(in, out, 2, MPI_DOUBLE, MPI_SUM, comm);
        free(mt_stderr_end());
        mt_check(err != MPI_SUCCESS, "no error");
        MPI_Send(&go, 1, MPI_INT, 0, 77, mt_private);
    }
    mt_note("MPI on the communicator");
    PMPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    mt_check(sum == mt_size, "sum %d", sum);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* A rank that is only late, but not as late as the limit, is waited for. */
START_TEST(test_absent_rank_that_comes_late_is_no_error)
{
    int go = 1, sum = 0;
    double until = MPI_Wtime() + 1.3;
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 0);
    mt_stderr_begin();
    while (mt_rank == 0 && MPI_Wtime() < until)
        MPI_Iprobe(MPI_ANY_SOURCE, 78, mt_private, &go, MPI_STATUS_IGNORE);
    int one = 1, err = TIARA_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    free(mt_stderr_end());
    mt_check(err == MPI_SUCCESS && sum == mt_size, "error %d, sum %d", err, sum);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "f_absent", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_absence_leaves_the_communicator_as_it_was);
    tcase_add_test(tests, test_absent_rank_that_comes_late_is_no_error);
    tcase_add_test(tests, test_absent_rank_is_named_and_waited_for_no_longer);
    return mt_end();
}
