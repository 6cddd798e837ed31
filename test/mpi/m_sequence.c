/*
 * Tiara's collectives and MPI's in random order on one communicator, with ranks arriving at random
 * times, and with the program's own messages and wildcard receives in flight.
 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3:rr */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_SLOTS=1 TIARA_CHUNK=4k TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=socket */
/* tiara-test: vcluster 2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=1+3 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed TIARA_TEST_SWEEP=0 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 20000
};

static struct mt_buf send, recv;
static int *in, *out; /* the views of them */

/* Element @i of rank @r's data in step @step. */
static int datum(uint64_t step, int r, int i)
{
    return (int)(mt_hash(step * 64 + (uint64_t)r, (uint64_t)i) % 100000);
}

static int datum_sum(uint64_t step, int i)
{
    int sum = 0;
    for (int r = 0; r < mt_size; r++)
        sum += datum(step, r, i);
    return sum;
}

/* Does step @step, of kind @kind, with @count elements a rank, root @root; returns the number of
 * wrong elements. */
static int run_step(uint64_t step, int kind, int count, int root)
{
    int wrong = 0, block = count / mt_size, nout = 0;
    for (int i = 0; i < count; i++)
        in[i] = datum(step, mt_rank, i);
    switch (kind) {
    case 0: /* most steps: the all-reduce itself, out of place or in place */
        memcpy(out, in, (size_t)count * sizeof *in);
        TIARA_Allreduce(root % 2 ? MPI_IN_PLACE : mt_buf_lend(&send), mt_buf_lend(&recv), count,
            MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        mt_buf_take(&recv);
        for (int i = 0; i < count; i++)
            wrong += out[i] != datum_sum(step, i);
        break;
    case 1:
        TIARA_Reduce_scatter_block(
            mt_buf_lend(&send), mt_buf_lend(&recv), block, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        mt_buf_take(&recv);
        for (int i = 0; i < block; i++)
            wrong += out[i] != datum_sum(step, mt_rank * block + i);
        break;
    case 2:
        nout = block * mt_size;
        TIARA_Allgather(
            mt_buf_lend(&send), block, MPI_INT, mt_buf_lend(&recv), block, MPI_INT, MPI_COMM_WORLD);
        mt_buf_take(&recv);
        for (int i = 0; i < nout; i++)
            wrong += out[i] != datum(step, i / block, i % block);
        break;
    case 3:
        MPI_Bcast(in, count, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            wrong += in[i] != datum(step, root, i);
        break;
    case 4:
        MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
        for (int i = 0; i < count && mt_rank == root; i++)
            wrong += out[i] != datum_sum(step, i);
        break;
    case 5:
        MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            wrong += out[i] != datum_sum(step, i);
        break;
    default:
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return wrong;
}

/* Mostly tiny, sometimes in the thousands. */
static int random_count(uint64_t h)
{
    return (int)(h % 100 < 70 ? h / 100 % 64 : h % 100 < 95 ? h / 100 % 2000 : h / 100 % MOST);
}

START_TEST(test_sequence_of_random_collectives_is_right)
{
    static const int kinds[] = {0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6};
    uint64_t nsteps = mt_sweep() > 0 ? 2000 : 500;
    for (uint64_t step = 0; step < nsteps; step++) {
        uint64_t h = mt_hash(mt_seed(), step), mine = mt_hash(h, (uint64_t)mt_rank);
        int kind = kinds[h % 13], count = random_count(h >> 8), root = (int)(h >> 40) % mt_size;
        mt_note("step %d kind %d count %d", (int)step, kind, count);
        for (uint64_t late = mine % 16 == 0 ? mine >> 60 : 0; late > 0; late--)
            sched_yield();
        int wrong = run_step(step, kind, count, root);
        mt_check(wrong == 0, "step %d kind %d count %d: %d wrong", (int)step, kind, count, wrong);
    }
    mt_agree();
}
END_TEST

/* A receive that takes anything from anyone, pending all the while, only ever gets the program's
 * own message. */
START_TEST(test_sequence_wildcard_receives_see_own_messages_only)
{
    int prev = (mt_rank + mt_size - 1) % mt_size, next = (mt_rank + 1) % mt_size;
    for (int k = 0; k < 60; k++) {
        int got[4] = {-1, -1, -1, -1}, sent[4] = {k, mt_rank, 2 * k, 7};
        int count = k % 3 == 0 ? 2 : k % 3 == 1 ? 900 : MOST;
        MPI_Request receive;
        MPI_Status status;
        mt_note("wildcard %d", k);
        MPI_Irecv(got, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
        for (int kind = 0; kind < 3; kind++)
            mt_check(run_step((uint64_t)(1000 * k + kind), kind, count, 0) == 0,
                "wildcard %d kind %d", k, kind);
        MPI_Send(sent, 4, MPI_INT, next, 1000 + k, MPI_COMM_WORLD);
        MPI_Wait(&receive, &status);
        mt_check(status.MPI_SOURCE == prev && status.MPI_TAG == 1000 + k && got[0] == k &&
                     got[1] == prev,
            "round %d: got %d,%d from %d with tag %d", k, got[0], got[1], status.MPI_SOURCE,
            status.MPI_TAG);
    }
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    mt_check(!flag, "an unexpected message is left");
    mt_agree();
}
END_TEST

/* Nonblocking collectives of the program are pending while Tiara works on the same communicator. */
START_TEST(test_sequence_with_pending_nonblocking_collectives_is_right)
{
    for (int k = 0; k < 40; k++) {
        int mine[3] = {mt_rank, k, mt_rank * k}, sums[3], peak, low = -1;
        MPI_Request requests[2];
        mt_note("pending %d", k);
        MPI_Iallreduce(mine, sums, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        mt_check(run_step((uint64_t)k, 0, random_count((uint64_t)k * 7919), k) == 0,
            "first of round %d", k);
        MPI_Iallreduce(mine, &peak, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
        mt_allreduce_arrays(mine, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        int ranks = mt_size * (mt_size - 1) / 2;
        mt_check(sums[0] == ranks && sums[1] == mt_size * k && sums[2] == ranks * k &&
                     peak == mt_size - 1 && low == 0,
            "round %d: %d %d %d %d %d", k, sums[0], sums[1], sums[2], peak, low);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_sequence", MPI_THREAD_SINGLE);
    send = mt_buf_new(MOST * sizeof *in, 0);
    recv = mt_buf_new_result(MOST * sizeof *out, 0);
    in = (int *)send.data;
    out = (int *)recv.data;
    tcase_add_test(tests, test_sequence_of_random_collectives_is_right);
    tcase_add_test(tests, test_sequence_wildcard_receives_see_own_messages_only);
    tcase_add_test(tests, test_sequence_with_pending_nonblocking_collectives_is_right);
    int status = mt_end();
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return status;
}
