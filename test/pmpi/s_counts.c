/*
 * Counts around every limit: powers of two and their neighbours, primes, the ranks and one more or
 * less, multiples of no vector length; each call, in place and not, between guards; and the calls
 * of large counts (MPI 4.0, section 19.2), where the MPI has them.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x1 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/*
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 TIARA_TEST_SWEEP=0
 */
/*
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 TIARA_TEST_SWEEP=0
 */
/*
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify TIARA_TEST_SWEEP=0
 */
#include "s_suite.h"

static uint64_t salt;

static void check_allreduce(size_t count)
{
    mt_note("allreduce of %zu", count);
    salt++;
    if (salt % 4 < 3) {
        s_allreduce(MPI_COMM_WORLD, count, salt, salt % 2);
        return;
    }
    MPI_Request request;
    struct s_job job = s_job_new(MPI_COMM_WORLD, count, salt, salt % 8 == 3);
    s_start(&job, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, MPI_COMM_WORLD);
}

/* @count ints of each rank. */
static void check_allgather(size_t count)
{
    struct mt_buf send = mt_buf_new(count * sizeof(int), 0),
                  recv = mt_buf_new_result(count * (size_t)mt_size * sizeof(int), 0);
    const int *all = (int *)recv.data;
    size_t wrong = 0;
    mt_note("allgather of %zu", count);
    s_fill((int *)send.data, count, salt, mt_rank);
    MPI_Allgather(send.data, (int)count, MPI_INT, recv.data, (int)count, MPI_INT, MPI_COMM_WORLD);
    for (size_t i = 0; i < count * (size_t)mt_size; i++)
        wrong += all[i] != s_datum(salt, (int)(i / count), i % count);
    mt_check(wrong == 0 && mt_buf_intact(&recv) && mt_buf_intact(&send),
        "allgather of %zu: %zu wrong, or guards", count, wrong);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

/* Blocks of @count ints. */
static void check_reduce_scatter(size_t count)
{
    size_t total = count * (size_t)mt_size;
    struct mt_buf send = mt_buf_new(total * sizeof(int), 0),
                  recv = mt_buf_new_result(count * sizeof(int), 0);
    mt_note("reduce-scatter of %zu", count);
    s_fill((int *)send.data, total, salt, mt_rank);
    MPI_Reduce_scatter_block(send.data, recv.data, (int)count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    s_verify((int *)recv.data, count, count * (size_t)mt_rank, salt, MPI_COMM_WORLD);
    mt_check(mt_buf_intact(&recv) && mt_buf_intact(&send), "reduce-scatter of %zu: guards", count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

static void check_count(size_t count)
{
    check_allreduce(count);
    if (count <= 70000) {
        check_allgather(count);
        check_reduce_scatter(count);
    }
}

START_TEST(test_counts_small_ones_are_right)
{
    size_t last = mt_sweep() > 0 ? 140 : 70;
    for (size_t count = 1; count <= last; count++)
        check_count(count);
    mt_agree();
}
END_TEST

START_TEST(test_counts_around_powers_of_two_are_right)
{
    int last = s_often(mt_sweep() > 0 ? 18 : 16, 13);
    for (int power = 7; power <= last; power++) {
        for (int off = -1; off <= 1; off++)
            check_count(((size_t)1 << power) + (size_t)off);
    }
    mt_agree();
}
END_TEST

START_TEST(test_counts_that_divide_badly_are_right)
{
    static const size_t counts[] = {251, 509, 1021, 2039, 4093, 5003, 12289, 40961, 99991, 300007};
    size_t n = (size_t)s_often(mt_sweep() > 0 ? COUNT_OF(counts) : 8, 6);
    for (size_t k = 0; k < n; k++) {
        check_count(counts[k]);
        check_count(counts[k] / (size_t)mt_size * (size_t)mt_size + 1);
        check_count(counts[k] / (size_t)mt_size * (size_t)mt_size + (size_t)mt_size - 1);
    }
    mt_agree();
}
END_TEST

#if MPI_VERSION >= 4
START_TEST(test_counts_calls_of_large_counts_are_right)
{
    static const MPI_Count counts[] = {0, 1, 17, 4096, 20011, 150001};
    for (unsigned k = 0; k < 3 * COUNT_OF(counts); k++) {
        MPI_Count count = counts[k / 3];
        struct s_job job = s_job_new(MPI_COMM_WORLD, (size_t)count, k, k % 2);
        MPI_Request request = MPI_REQUEST_NULL;
        mt_note("large count call %u, %d", k % 3, (int)count);
        if (k % 3 == 0)
            MPI_Allreduce_c(
                s_job_from(&job), job.recv.data, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        else if (k % 3 == 1)
            MPI_Iallreduce_c(
                s_job_from(&job), job.recv.data, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        else
            MPI_Allreduce_init_c(s_job_from(&job), job.recv.data, count, MPI_INT, MPI_SUM,
                MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        if (k % 3 == 2)
            MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (k % 3 == 2)
            MPI_Request_free(&request);
        s_job_end(&job, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST
#endif

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_counts", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_counts_small_ones_are_right);
    tcase_add_test(tests, test_counts_around_powers_of_two_are_right);
    tcase_add_test(tests, test_counts_that_divide_badly_are_right);
#if MPI_VERSION >= 4
    tcase_add_test(tests, test_counts_calls_of_large_counts_are_right);
#endif
    return mt_end();
}
