/*
 * TIARA_Allreduce_multi where memory for packed vectors is short: on one rank, all ranks get an
 * error and none hangs; and where the MPI below does everything, no memory is needed.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 3 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_ALGO=mpi */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed */
#include "api/scratch.h"
#include "base/alloc.h"
#include "mpi_run.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

enum {
    N = 7, /* buffers, more than are packed on the stack */
    MOST = 4001
};
static const int counts[N] = {4000, 7, 4000, 3999, 4000, 0, MOST};
static int in[N][MOST], out[N][MOST];

static int call(MPI_Comm comm)
{
    const void *from[N];
    void *to[N];
    memset(out, -1, sizeof out);
    for (int b = 0; b < N; b++) {
        from[b] = in[b];
        to[b] = out[b];
        for (int i = 0; i < counts[b]; i++)
            in[b][i] = 100 * b + (mt_rank + 1) * i;
    }
    return TIARA_Allreduce_multi(N, from, to, counts, MPI_INT, MPI_SUM, comm);
}

static void expect_right(MPI_Comm comm, const char *when)
{
    mt_note("%s", when);
    int err = call(comm), ranks = mt_size * (mt_size + 1) / 2;
    mt_check(err == MPI_SUCCESS, "%s: error %d", when, err);
    for (int b = 0; b < N; b++)
        for (int i = 0; i < MOST; i++) {
            int want = i < counts[b] ? 100 * b * mt_size + ranks * i : -1;
            if (!mt_check(out[b][i] == want, "%s: buffer %d, element %d is %d, not %d", when, b, i,
                    out[b][i], want))
                return;
        }
}

/* Allocation @nth from now fails on the last rank. */
static void check_short_of_memory(uint64_t nth)
{
    MPI_Comm comm;
    int class = MPI_SUCCESS, mine, failed;
    uint64_t pieces;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    expect_right(comm, "before");
    tiara_scratch_release();
    pieces = tiara_alloc_live();
    mt_note("without memory");
    tiara_alloc_fail_after(mt_rank == mt_size - 1 ? nth : 0);
    int err = call(comm);
    tiara_alloc_fail_after(0);
    MPI_Error_class(err, &class);
    mine = err != MPI_SUCCESS;
    PMPI_Allreduce(&mine, &failed, 1, MPI_INT, MPI_SUM, mt_private);
    mt_check(failed == mt_size, "allocation %d: only %d ranks saw it", (int)nth, failed);
    mt_check(mt_rank != mt_size - 1 || class == MPI_ERR_NO_MEM, "error class %d", class);
    tiara_scratch_release();
    mt_check(tiara_alloc_live() == pieces, "memory is lost");
    expect_right(comm, "after");
    MPI_Comm_free(&comm);
}

START_TEST(test_multi_without_memory_on_a_rank_hangs_nobody)
{
    if (mt_size > 1 && !getenv("TIARA_ALGO")) {
        check_short_of_memory(1);
        check_short_of_memory(2);
    }
    mt_agree();
}
END_TEST

/*
 * On one rank, or by TIARA_ALGO, the MPI below does it, which would not notice a rank that fails.
 */
START_TEST(test_multi_by_mpi_needs_no_memory)
{
    bool by_mpi = mt_size == 1 || getenv("TIARA_ALGO");
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    tiara_scratch_release();
    tiara_alloc_fail_after(by_mpi);
    expect_right(MPI_COMM_WORLD, "by MPI");
    tiara_alloc_fail_after(0);
    mt_agree();
}
END_TEST

START_TEST(test_multi_keeps_its_memory_until_it_is_told)
{
    bool packs = mt_size > 1 && !getenv("TIARA_ALGO");
    expect_right(MPI_COMM_WORLD, "first");
    tiara_scratch_release();
    uint64_t pieces = tiara_alloc_live();
    for (int k = 0; k < 3; k++)
        expect_right(MPI_COMM_WORLD, "again");
    mt_check(tiara_alloc_live() == pieces + (packs ? 2 : 0), "%d pieces more",
        (int)(tiara_alloc_live() - pieces));
    tiara_scratch_release();
    mt_check(tiara_alloc_live() == pieces, "not released");
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "u_multi", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_multi_without_memory_on_a_rank_hangs_nobody);
    tcase_add_test(tests, test_multi_by_mpi_needs_no_memory);
    tcase_add_test(tests, test_multi_keeps_its_memory_until_it_is_told);
    return mt_end();
}
