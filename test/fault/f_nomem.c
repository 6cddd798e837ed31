/*
 * One rank has no memory from its n-th allocation on, for all n: every rank returns from every
 * call, with the right result or an error.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 TIARA_TEST_VICTIM=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_TEST_VICTIM=2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_TEST_VICTIM=1 TIARA_PROGRESS=call */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 TIARA_TEST_VICTIM=2 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed TIARA_TEST_VICTIM=1 */
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

/* Of 2 * COUNT ints, and where they are for a call. */
static struct mt_buf in_buf, out_buf;
static void *in, *out;

static const int *result(void)
{
    mt_buf_take(&in_buf);
    mt_buf_take(&out_buf);
    return (const int *)(const void *)out_buf.data;
}

static void fill(void)
{
    int *send = (int *)(void *)in_buf.data, *recv = (int *)(void *)out_buf.data;
    for (int i = 0; i < 2 * COUNT; i++) {
        send[i] = mt_rank * 7 + i;
        recv[i] = -1;
    }
    in = mt_buf_lend(&in_buf);
    out = mt_buf_lend(&out_buf);
}

static int sum_of(int i)
{
    return mt_size * i + 7 * (mt_size * (mt_size - 1) / 2);
}

/* An error is the caller's to know; no result is wrong. */
static void check(const char *what, int err, int count)
{
    int wrong = 0;
    const int *sums = result();
    for (int i = 0; i < count && err == MPI_SUCCESS; i++)
        wrong += sums[i] != sum_of(i);
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
    const int *sums = result();
    for (int i = 0; i < count && err == MPI_SUCCESS; i++)
        wrong += sums[2 * i] != sum_of(2 * (mt_rank * count + i));
    mt_check(wrong == 0, "reduce-scatter of %d: %d elements are wrong", count, wrong);
    MPI_Type_free(&type);
}

static void gather(MPI_Comm comm, int count)
{
    int wrong = 0;
    fill();
    int err = TIARA_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
    const int *blocks = result();
    for (int i = 0; i < mt_size * count && err == MPI_SUCCESS; i++)
        wrong += blocks[i] != i / count * 7 + i % count;
    mt_check(wrong == 0, "all-gather of %d: %d elements are wrong", count, wrong);
}

/*
 * The MPI below, which nonblocking calls cannot agree beside, is no help to a rank that has no
 * memory for what it must be given: a copy of what is in GPU memory.
 */
static bool needs_memory(MPI_Comm comm, int count)
{
    const char *why;
    int answer = TIARA_SERVES_NO;
    if (!getenv("TIARA_TEST_MEMORY"))
        return false;
    TIARA_Comm_serves(comm, 1, count, MPI_INT, MPI_SUM, &answer, &why);
    return answer != TIARA_SERVES_YES;
}

static void nonblocking(MPI_Comm comm, int count)
{
    if (needs_memory(comm, count))
        return;
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
    }
    check("persistent", all ? err : MPI_ERR_NO_MEM, count);
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
    in_buf = mt_buf_new(2 * COUNT * sizeof(int), 0);
    out_buf = mt_buf_new_result(in_buf.bytes, 0);
    mt_stderr_begin();
    for (uint64_t n = 1; n < MOST && over < PATIENCE; n++) {
        mt_note("allocation %llu fails", (unsigned long long)n);
        int now = round_of(n, mt_rank == victim);
        PMPI_Bcast(&now, 1, MPI_INT, victim, mt_private);
        over = now ? over + 1 : 0;
    }
    free(mt_stderr_end());
    mt_buf_free(&in_buf);
    mt_buf_free(&out_buf);
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
