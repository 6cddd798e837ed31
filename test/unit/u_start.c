/*
 * A nonblocking call is started and waits for nothing, not even for an operation of this process
 * that is in the midst of its work.
 */
/* tiara-test: mpirun 2 */
#include "call/async.h"
#include "mpi_run.h"
#include "tiara.h"

#include <sched.h>

/* An operator of which one application can be held up. */
static tiara_u32 is_inside, may_leave;

static enum tiara_err fold_slowly(
    const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)
{
    int64_t sum = 0;
    (void)op;
    (void)n;
    for (int i = 0; i < nsrc; i++)
        sum += *(const int64_t *)src[i];
    *(int64_t *)dst = sum;
    tiara_store_release(&is_inside, 1); /* [u_start.inside] release: says nothing else */
    while (!tiara_load_acquire(&may_leave)) /* [u_start.leave] acquire: says nothing else */
        sched_yield();
    return TIARA_OK;
}

/*
 * Rank 0 holds up an operation in the midst of its work, in the library's thread, and starts and
 * tests another one meanwhile.
 */
START_TEST(test_start_goes_on_while_another_one_works)
{
    static const struct tiara_redop slow = {
        .name = "slow", .elem_size = 8, .commutative = true, .fold = fold_slowly};
    static struct tiara_async_task job;
    int64_t own = mt_rank + 1, held = -1;
    int one = mt_rank + 1, sum = -1, flag = 0;
    MPI_Comm comm;
    TIARA_Request request;
    struct tiara_comm *c = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    TIARA_Comm_prepare(comm);
    tiara_comm_find(comm, false, &c);
    bool can = mt_check(c && c->async, "there is nothing that does nonblocking calls");
    job.call = (struct tiara_call){.coll = TIARA_COLL_ALLREDUCE,
        .in = &own,
        .out = &held,
        .count = 1,
        .elem = {.type = -1, .oper = -1, .size = 8, .redop = &slow}};
    if (mt_rank > 0)
        tiara_store_relaxed(&may_leave, 1); /* relaxed: no other thread yet */
    /* The others' parts come when rank 0 has started: so that its start does not end the job. */
    if (can && mt_rank == 0)
        mt_check(tiara_async_start(c->async, &job, TIARA_OK), "the job is left to MPI");
    MPI_Barrier(mt_private);
    if (can && mt_rank > 0)
        mt_check(tiara_async_start(c->async, &job, TIARA_OK), "the job is left to MPI");
    mt_note("a start while another operation works");
    /* [u_start.inside] acquire: nothing else */
    while (can && mt_rank == 0 && !tiara_load_acquire(&is_inside))
        sched_yield();
    TIARA_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    if (mt_rank == 0)
        TIARA_Test(&request, &flag, MPI_STATUS_IGNORE);
    mt_check(!flag, "the second operation was over before the first went on");
    /* [u_start.leave] release: nothing else */
    tiara_store_release(&may_leave, 1);
    TIARA_Wait(&request, MPI_STATUS_IGNORE);
    mt_check(sum == mt_size * (mt_size + 1) / 2, "the second sum is %d", sum);
    while (can && !tiara_async_is_done(&job))
        tiara_async_progress();
    mt_check(held == mt_size * (mt_size + 1) / 2, "the first sum is %d", (int)held);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "u_start", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_start_goes_on_while_another_one_works);
    return mt_end();
}
