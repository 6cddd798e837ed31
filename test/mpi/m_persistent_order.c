/*
 * Persistent requests are matched by the request, in whatever order ranks start, complete and free
 * them, and whoever serves them.
 */
/* tiara-test: mpirun 2 TIARA_TEST_ALL_SERVED=1 */
/* tiara-test: mpirun 4 TIARA_TEST_ALL_SERVED=1 */
/* tiara-test: mpirun 4 TIARA_SHM_BUDGET=22m */
/* tiara-test: mpirun 4 TIARA_SHM_BUDGET=30m TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_SHM=off */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
#include "m_requests_case.h"

#include <stdio.h>

enum {
    NREQUESTS = 12,
    MAX_COUNT = 20000
};

struct one {
    size_t count;
    struct mt_buf in, out;
    TIARA_Request request;
};

static MPI_Comm prepared(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    TIARA_Comm_prepare(comm);
    return comm;
}

static size_t count_of(int i)
{
    static const size_t counts[] = {1, 2, 500, 3000, 9000, MAX_COUNT};
    return counts[i % (int)(sizeof(counts) / sizeof(counts[0]))];
}

static double element(int rank, int i, int round, size_t k)
{
    return rank + 1 + 100.0 * i + 10000.0 * round + (double)(k % 7);
}

static void one_init(struct one *o, int i, MPI_Comm comm)
{
    o->count = count_of(i);
    o->in = mt_buf_new(o->count * sizeof(double), 0);
    o->out = mt_buf_new_result(o->count * sizeof(double), 0);
    int err = TIARA_Allreduce_init(mt_buf_lend(&o->in), mt_buf_lend(&o->out), (int)o->count,
        MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &o->request);
    mt_check(err == MPI_SUCCESS, "init %d: error %d", i, err);
}

static void one_fill(struct one *o, int i, int round)
{
    double *in = (double *)(void *)o->in.data;
    for (size_t k = 0; k < o->count; k++)
        in[k] = element(mt_rank, i, round, k);
    mt_buf_lend(&o->in);
    mt_buf_lend(&o->out);
}

static void one_check(struct one *o, int i, int round)
{
    const double *out = (const double *)(void *)o->out.data;
    size_t wrong = 0;
    mt_buf_take(&o->in);
    mt_buf_take(&o->out);
    for (size_t k = 0; k < o->count; k++) {
        double sum = 0;
        for (int rank = 0; rank < mt_size; rank++)
            sum += element(rank, i, round, k);
        wrong += out[k] != sum;
    }
    mt_check(wrong == 0, "request %d, round %d: %zu of %zu sums are wrong, the first is %g", i,
        round, wrong, o->count, out[0]);
}

static void one_free(struct one *o)
{
    TIARA_Request_free(&o->request);
    mt_buf_free(&o->in);
    mt_buf_free(&o->out);
}

/* A permutation of n numbers, another one on every rank. */
static void shuffle(int *order, int n, uint64_t salt)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(mt_hash(mt_seed() + salt, (uint64_t)(mt_rank * 64 + i)) % (uint64_t)(i + 1));
        int other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}

static void rounds(struct one *ones, int nrounds)
{
    int starts[NREQUESTS], waits[NREQUESTS];
    for (int round = 0; round < nrounds; round++) {
        shuffle(starts, NREQUESTS, (uint64_t)round * 2);
        shuffle(waits, NREQUESTS, (uint64_t)round * 2 + 1);
        for (int i = 0; i < NREQUESTS; i++)
            one_fill(&ones[i], i, round);
        for (int i = 0; i < NREQUESTS; i++) {
            int err = TIARA_Start(&ones[starts[i]].request);
            mt_check(err == MPI_SUCCESS, "start of %d: error %d", starts[i], err);
        }
        for (int i = 0; i < NREQUESTS; i++) {
            int err = TIARA_Wait(&ones[waits[i]].request, MPI_STATUS_IGNORE);
            mt_check(err == MPI_SUCCESS, "wait for %d: error %d", waits[i], err);
        }
        for (int i = 0; i < NREQUESTS; i++)
            one_check(&ones[i], i, round);
    }
}

START_TEST(test_persistent_requests_start_in_any_order)
{
    MPI_Comm comm = prepared();
    struct one ones[NREQUESTS];
    for (int i = 0; i < NREQUESTS; i++)
        one_init(&ones[i], i, comm);
    rounds(ones, 20);
    /* They live on without their communicator; in the MPI below, if that can do it. */
    if (mt_env("TIARA_TEST_ALL_SERVED", 0)) {
        MPI_Comm_free(&comm);
        rounds(ones, 3);
    }
    for (int i = 0; i < NREQUESTS; i++)
        one_free(&ones[i]);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* What one rank has freed another may still need. */
START_TEST(test_persistent_requests_are_freed_in_any_order)
{
    MPI_Comm comm = prepared();
    struct one ones[NREQUESTS];
    int order[NREQUESTS];
    for (int i = 0; i < NREQUESTS; i++)
        one_init(&ones[i], i, comm);
    for (int round = 0; round < 10; round++) {
        rounds(ones, 2);
        /* The same ones everywhere, at different times. */
        for (int i = 0; i < NREQUESTS / 2; i++)
            order[i] = (round + 2 * i) % NREQUESTS;
        for (int i = 0; i < NREQUESTS / 2; i++)
            one_free(&ones[order[(i + mt_rank) % (NREQUESTS / 2)]]);
        for (int i = 0; i < NREQUESTS / 2; i++)
            one_init(&ones[order[i]], order[i], comm);
    }
    rounds(ones, 2);
    for (int i = 0; i < NREQUESTS; i++)
        one_free(&ones[i]);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* Shared memory that this process has mapped. */
static int nmapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int n = 0;
    while (maps && fgets(line, sizeof(line), maps))
        n += strstr(line, "tiara") && strstr(line, "rw-s") ? 1 : 0;
    if (maps)
        fclose(maps);
    return n;
}

/* Small requests of a communicator share memory, however many they are. */
START_TEST(test_persistent_requests_take_no_arena_each)
{
    enum {
        MANY = 48
    };
    MPI_Comm comm = prepared();
    double in[MANY], out[MANY];
    TIARA_Request requests[MANY];
    int order[MANY], first = 0, last = 0;
    for (int i = 0; i < MANY; i++) {
        TIARA_Allreduce_init(
            &in[i], &out[i], 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[i]);
        last = nmapped();
        first = i == 0 ? last : first;
    }
    mt_check(last == first, "%d mappings for 1 request, %d for %d", first, last, (int)MANY);
    shuffle(order, MANY, 77);
    for (int i = 0; i < MANY; i++)
        in[i] = element(mt_rank, i, 0, 0);
    for (int i = 0; i < MANY; i++)
        TIARA_Start(&requests[order[i]]);
    TIARA_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++) {
        double sum = 0;
        for (int rank = 0; rank < mt_size; rank++)
            sum += element(rank, i, 0, 0);
        mt_check(out[i] == sum, "request %d: %g, not %g", i, out[i], sum);
        TIARA_Request_free(&requests[i]);
    }
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_persistent_order", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_persistent_requests_start_in_any_order);
    tcase_add_test(tests, test_persistent_requests_are_freed_in_any_order);
    if (mt_env("TIARA_TEST_ALL_SERVED", 0))
        tcase_add_test(tests, test_persistent_requests_take_no_arena_each);
    return mt_end();
}
