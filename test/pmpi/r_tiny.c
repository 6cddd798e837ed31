/*
 * The smallest all-reduce, many times: a plain MPI program that knows nothing of Tiara.
 *
 *     r_tiny [CALLS [self]]    on MPI_COMM_WORLD, or on MPI_COMM_SELF
 *
 * Each call adds a number of 8 bytes that depends on the rank and on the call before. Rank 0 prints
 * the last result and the time. r_cost.sh counts the instructions of measure(), r_other.sh runs it
 * with the wrong MPI; by hand it shows what a call costs.
 *
 * tiara-test: mpirun 2
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_LAYOUT=2x2
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not inlined, as callgrind is told its name. */
uint64_t measure(long calls, uint64_t mine, MPI_Comm comm);
__attribute__((noinline)) uint64_t measure(long calls, uint64_t mine, MPI_Comm comm)
{
    uint64_t sum = 0;
    for (long i = 0; i < calls; i++) {
        uint64_t term = sum * mine + 1;
        MPI_Allreduce(&term, &sum, 1, MPI_UINT64_T, MPI_SUM, comm);
    }
    return sum;
}

/* What measure() must return: all ranks add sum * mine + 1, and the sum of mine is known. */
static uint64_t expected(long calls, int first, int size)
{
    uint64_t factor = 0, sum = 0;
    for (int rank = first; rank < first + size; rank++)
        factor += (uint64_t)rank + 3;
    for (long i = 0; i < calls; i++)
        sum = sum * factor + (uint64_t)size;
    return sum;
}

int main(int argc, char *argv[])
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    int self = argc > 2 && strcmp(argv[2], "self") == 0;

    MPI_Comm comm = self ? MPI_COMM_SELF : MPI_COMM_WORLD;

    /* The first calls on a communicator are slower, with any library. */
    for (int i = 0; i < 100; i++)
        MPI_Allreduce(&(int){1}, &(int){0}, 1, MPI_INT, MPI_SUM, comm);
    double start = MPI_Wtime();
    uint64_t sum = measure(calls, (uint64_t)rank + 3, comm);
    double seconds = MPI_Wtime() - start;

    int wrong = sum != expected(calls, self ? rank : 0, self ? 1 : size);
    if (wrong)
        fprintf(stderr, "r_tiny: rank %d: the last of %ld sums is %" PRIu64 "\n", rank, calls, sum);
    if (rank == 0) {
        printf("result %" PRIu64 "\n", sum);
        printf("seconds %.6f\n", seconds);
    }
    MPI_Finalize();
    return wrong;
}
