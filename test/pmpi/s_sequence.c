/*
 * Calls of every kind in a random order that is the same on all ranks, on two communicators, with
 * nonblocking calls completed any number of steps later, ranks that come late, and a receive from
 * anyone with any tag, which must never match a message of the library's.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PROGRESS=call */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/*
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 TIARA_PROGRESS=call
 */
/*
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify TIARA_TEST_SWEEP=0
 */
/* tiara-test: vcluster 2x2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_TEST_SWEEP=0 */
#include "s_suite.h"

#include <sched.h>

enum {
    MOST = 8000, /* ints of a call */
    PENDING = 6 /* nonblocking calls under way at most */
};

static int in[MOST], out[MOST];

static struct {
    struct s_job job;
    MPI_Request request;
    bool is_active;
} pending[PENDING];

/* Mostly tiny, sometimes in the thousands. */
static int random_count(uint64_t h)
{
    return (int)(h % 100 < 70 ? h / 100 % 64 : h % 100 < 95 ? h / 100 % 1500 : h / 100 % MOST);
}

/* The step's number is the salt of its data. Returns how many elements are wrong. */
static int count_wrong(const int *data, int count, int first, uint64_t step, MPI_Comm comm)
{
    int wrong = 0, size = s_size(comm);
    for (int i = 0; i < count; i++)
        wrong += data[i] != s_sum(step, size, (size_t)(first + i));
    return wrong;
}

static int step_allgather(uint64_t step, int count, MPI_Comm comm)
{
    int wrong = 0, size = s_size(comm), block = count / size;
    MPI_Allgather(in, block, MPI_INT, out, block, MPI_INT, comm);
    for (int i = 0; i < block * size; i++)
        wrong += out[i] != s_datum(step, i / block, (size_t)(i % block));
    return wrong;
}

static int step_reduce(uint64_t step, int count, int root, MPI_Comm comm)
{
    MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, comm);
    return s_rank(comm) == root ? count_wrong(out, count, 0, step, comm) : 0;
}

static int step_bcast(uint64_t step, int count, int root, MPI_Comm comm)
{
    int wrong = 0;
    MPI_Bcast(in, count, MPI_INT, root, comm);
    for (int i = 0; i < count; i++)
        wrong += in[i] != s_datum(step, root, (size_t)i);
    return wrong;
}

static int step_scatter(uint64_t step, int count, MPI_Comm comm)
{
    int block = count / s_size(comm);
    MPI_Reduce_scatter_block(in, out, block, MPI_INT, MPI_SUM, comm);
    return count_wrong(out, block, s_rank(comm) * block, step, comm);
}

/* Starts a call in a free place, or completes the one that is there; each rank tests or waits as it
 * likes. */
static void step_pending(uint64_t step, int count, int place, MPI_Comm comm)
{
    if (!pending[place].is_active) {
        pending[place].job = s_job_new(comm, (size_t)count, step, step % 2);
        s_start(&pending[place].job, &pending[place].request);
        pending[place].is_active = true;
        return;
    }
    int flag = 0;
    if ((step + (uint64_t)mt_rank) % 2)
        while (!flag)
            MPI_Test(&pending[place].request, &flag, MPI_STATUS_IGNORE);
    else
        MPI_Wait(&pending[place].request, MPI_STATUS_IGNORE);
    s_job_end(&pending[place].job, pending[place].job.comm);
    pending[place].is_active = false;
}

/* The step of kind @kind with random bits @h: returns the number of wrong elements. */
static int run_step(uint64_t step, int kind, uint64_t h, MPI_Comm comm)
{
    int count = random_count(h >> 8), root = (int)(h >> 40) % s_size(comm);
    mt_note("step %d kind %d count %d", (int)step, kind, count);
    s_fill(in, (size_t)count, step, s_rank(comm));
    switch (kind) {
    case 0:
        MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
        return count_wrong(out, count, 0, step, comm);
    case 1:
        MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_INT, MPI_SUM, comm);
        return count_wrong(in, count, 0, step, comm);
    case 2:
        return step_scatter(step, count, comm);
    case 3:
        return step_allgather(step, count, comm);
    case 4:
        return step_bcast(step, count, root, comm);
    case 5:
        return step_reduce(step, count, root, comm);
    case 6:
        MPI_Barrier(comm);
        return 0;
    default:
        step_pending(step, count, (int)(h >> 48) % PENDING, comm);
        return 0;
    }
}

static void run_steps(uint64_t first, int nsteps, const MPI_Comm comms[2])
{
    static const int kinds[] = {0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7};
    for (uint64_t step = first; step < first + (uint64_t)nsteps; step++) {
        uint64_t h = mt_hash(mt_seed(), step), mine = mt_hash(h, (uint64_t)mt_rank);
        int kind = kinds[h % COUNT_OF(kinds)];
        for (uint64_t late = mine % 16 == 0 ? mine >> 60 : 0; late > 0; late--)
            sched_yield();
        int wrong = run_step(step, kind, h, comms[h >> 56 & 1]);
        mt_check(wrong == 0, "step %d kind %d: %d wrong", (int)step, kind, wrong);
    }
}

static void complete_pending(void)
{
    for (int place = 0; place < PENDING; place++) {
        if (pending[place].is_active)
            step_pending(0, 0, place, MPI_COMM_NULL);
    }
}

START_TEST(test_sequence_of_random_calls_is_right)
{
    MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Comm_split(MPI_COMM_WORLD, 0, -mt_rank, &comms[1]);
    s_warm_up(comms[1]);
    run_steps(1, s_often(mt_sweep() > 0 ? 2000 : 500, 300), comms);
    complete_pending();
    MPI_Comm_free(&comms[1]);
    mt_agree();
}
END_TEST

/* Pending all the while: it gets the program's own message, and none is left over. */
START_TEST(test_sequence_wildcard_receives_see_own_messages_only)
{
    int prev = (mt_rank + mt_size - 1) % mt_size, next = (mt_rank + 1) % mt_size, flag = 0;
    const MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_WORLD};
    for (int k = 0; k < s_often(60, 20); k++) {
        int got[4] = {-1, -1, -1, -1}, sent[4] = {k, mt_rank, 2 * k, 7};
        MPI_Request receive;
        MPI_Status status;
        MPI_Irecv(got, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
        run_steps((uint64_t)(10000 + 10 * k), 8, comms);
        mt_note("wildcard %d", k);
        MPI_Send(sent, 4, MPI_INT, next, 1000 + k, MPI_COMM_WORLD);
        MPI_Wait(&receive, &status);
        mt_check(status.MPI_SOURCE == prev && status.MPI_TAG == 1000 + k && got[0] == k &&
                     got[1] == prev,
            "round %d: got %d,%d from %d with tag %d", k, got[0], got[1], status.MPI_SOURCE,
            status.MPI_TAG);
    }
    complete_pending();
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    mt_check(!flag, "an unexpected message is left");
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_sequence", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_sequence_of_random_calls_is_right);
    tcase_add_test(tests, test_sequence_wildcard_receives_see_own_messages_only);
    return mt_end();
}
