/*
 * Operators of the program on elements that span far more memory than their data takes: two ints at
 * the ends of up to 5 MiB, and columns of a matrix. The memory that a program needs does not follow
 * from what is between them.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
#include "mpi_wide.h"
#include "s_suite.h"

enum {
    MOST_KIB = 49152
};

static void check(const struct mt_wide *wide, int count, int form, bool commute)
{
    bool scatter = form == 1;
    int elems = scatter ? count * mt_size : count, err;
    char *in = mt_wide_buf(wide, elems, true), *out = mt_wide_buf(wide, count, false);
    MPI_Op op = mt_wide_op(wide, commute);
    MPI_Request request;
    mt_note("form %d: %d elements of %zu bytes", form, count, wide->extent);
    if (form == 0)
        err = MPI_Allreduce(in, out, count, wide->type, op, MPI_COMM_WORLD);
    else if (scatter)
        err = MPI_Reduce_scatter_block(in, out, count, wide->type, op, MPI_COMM_WORLD);
    else
        err = MPI_Iallreduce(in, out, count, wide->type, op, MPI_COMM_WORLD, &request);
    if (form == 2 && err == MPI_SUCCESS)
        err = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (mt_check(
            err == MPI_SUCCESS, "%d elements of %zu bytes: error %d", count, wide->extent, err))
        mt_wide_verify(wide, scatter ? count * mt_rank : 0, count, commute, out);
    MPI_Op_free(&op);
    mt_wide_buf_free(wide, elems, in);
    mt_wide_buf_free(wide, count, out);
}

START_TEST(test_wide_elements_take_little_memory)
{
    static const size_t sizes[] = {4096, 3 << 20, 5 << 20};
    s_warm_up(MPI_COMM_WORLD);
    long before = mt_peak_kib();
    for (int k = 0; k < 36 && mt_all_well(); k++) {
        struct mt_wide wide = mt_wide_new(k % 2 ? MT_WIDE_COLUMN : MT_WIDE_ENDS, sizes[k / 12]);
        check(&wide, 1 + k % 3, k / 2 % 3, k / 6 % 2);
        mt_wide_free(&wide);
    }
    mt_check(mt_peak_kib() - before <= MOST_KIB, "%ld KiB more, not at most %d",
        mt_peak_kib() - before, MOST_KIB);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_wide", MPI_THREAD_SINGLE);
    mt_limit_memory(2048);
    tcase_add_test(tests, test_wide_elements_take_little_memory);
    return mt_end();
}
