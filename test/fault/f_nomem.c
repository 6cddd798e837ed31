/*
 * One rank has no memory from its n-th allocation on, for all n: every rank returns from every
 * call, with the right result or an error.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 TIARA_TEST_VICTIM=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_TEST_VICTIM=2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_TEST_VICTIM=1 TIARA_PROGRESS=call */
#include "base/alloc.h"
#include "mpi_buf.h"
#include "mpi_run.h"
#include "tiara.h"

#include <stdlib.h>

enum {
    COUNT = 20000, /* with a plan, in several chunks */
    MOST = 1000, /* allocations of a round, at the very most */
    PATIENCE = 3 /* rounds without a failure before it is the end */
};

static int in[2 * COUNT], out[2 * COUNT];

static void fill(void)
{
    for (int i = 0; i < 2 * COUNT; i++) {
        in[i] = mt_rank * 7 + i;
        out[i] = -1;
    }
}

static int sum_of(int i)
{
    return mt_size * i + 7 * (mt_size * (mt_size - 1) / 2);
}

/* An error is the caller's to know; no result is wrong. */
static void check(const char *what, int err, int count)
{
    int wrong = 0;
    for (int i = 0; i < count && err == MPI_SUCCESS; i++)
        wrong += out[i] != sum_of(i);
    mt_check(wrong == 0, "%s of %d: %d elements are wrong", what, count, wrong);
}

static void blocking(MPI_Comm comm, int count)
{
    fill();
    check("allreduce", TIARA_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm), count);
}

/* Every other int; the own block of the result. */
static void with_holes(MPI_Comm comm, int count)
{
    MPI_Datatype type;
    int wrong = 0;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
    MPI_Type_commit(&type);
    fill();
    int err = TIARA_Reduce_scatter_block(in, out, count, type, MPI_SUM, comm);
    for (int i = 0; i < count && err == MPI_SUCCESS; i++)
        wrong += out[2 * i] != sum_of(2 * (mt_rank * count + i));
    mt_check(wrong == 0, "reduce-scatter of %d: %d elements are wrong", count, wrong);
    MPI_Type_free(&type);
}

static void gather(MPI_Comm comm, int count)
{
    int wrong = 0;
    fill();
    int err = TIARA_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
    for (int i = 0; i < mt_size * count && err == MPI_SUCCESS; i++)
        wrong += out[i] != i / count * 7 + i % count;
    mt_check(wrong == 0, "all-gather of %d: %d elements are wrong", count, wrong);
}

static void nonblocking(MPI_Comm comm, int count)
{
    TIARA_Request request;
    fill();
    int err = TIARA_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
    int later = TIARA_Wait(&request, MPI_STATUS_IGNORE);
    check("iallreduce", err == MPI_SUCCESS ? later : err, count);
}

static void persistent(MPI_Comm comm, int count)
{
    TIARA_Request request;
    fill();
    int err = TIARA_Allreduce_init(in, out, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    int all = err == MPI_SUCCESS;
    PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, mt_private);
    if (all) {
        err = TIARA_Start(&request);
        if (err == MPI_SUCCESS)
            err = TIARA_Wait(&request, MPI_STATUS_IGNORE);
        check("persistent", err, count);
    }
    if (request != TIARA_REQUEST_NULL)
        TIARA_Request_free(&request);
}

/* All that a communicator's life has. True when @n allocations were not made, on the victim. */
static bool round_of(uint64_t n, bool is_victim)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (is_victim)
        tiara_alloc_fail_after(n);
    blocking(comm, 1);
    TIARA_Comm_prepare(comm);
    blocking(comm, COUNT);
    with_holes(comm, 500);
    gather(comm, 2000);
    nonblocking(comm, 3);
    nonblocking(comm, COUNT);
    persistent(comm, 3);
    persistent(comm, COUNT);
    blocking(comm, 3);
    void *left = is_victim ? tiara_alloc(1, 1) : NULL;
    bool over = left != NULL;
    tiara_free(left);
    tiara_alloc_fail_after(0);
    MPI_Comm_free(&comm);
    return over;
}

START_TEST(test_a_rank_without_memory_leaves_nobody_waiting)
{
    int victim = (int)mt_env("TIARA_TEST_VICTIM", 0), over = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    mt_stderr_begin();
    for (uint64_t n = 1; n < MOST && over < PATIENCE; n++) {
        mt_note("allocation %llu fails", (unsigned long long)n);
        int now = round_of(n, mt_rank == victim);
        PMPI_Bcast(&now, 1, MPI_INT, victim, mt_private);
        over = now ? over + 1 : 0;
    }
    free(mt_stderr_end());
    mt_check(over == PATIENCE, "there was no end of allocations");
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "f_nomem", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_a_rank_without_memory_leaves_nobody_waiting);
    return mt_end();
}
