/*
 * Ranks with different levels of threads: some have MPI_THREAD_MULTIPLE, and all take the same of
 * the node's memory, and keep the same of it.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 4 TIARA_LAYOUT=2x2
 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdio.h>
#include <string.h>

enum {
    COMMS = 4
};

/* Bytes of shared memory that this process holds for its own part. */
static unsigned long mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    unsigned long sum = 0, from, to;

    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "memfd:tiara") && strstr(line, "rw-s") &&
            sscanf(line, "%lx-%lx", &from, &to) == 2)
            sum += to - from;
    if (maps)
        fclose(maps);
    return sum;
}

static void check_memory(const char *when)
{
    unsigned long mine = mapped(), least, most;

    PMPI_Allreduce(&mine, &least, 1, MPI_UNSIGNED_LONG, MPI_MIN, mt_private);
    PMPI_Allreduce(&mine, &most, 1, MPI_UNSIGNED_LONG, MPI_MAX, mt_private);
    mt_check(least == most, "%s: %lu bytes, others have %lu to %lu", when, mine, least, most);
}

START_TEST(test_levels_that_differ_take_the_same_memory)
{
    MPI_Comm comms[COMMS];

    for (unsigned round = 0; round < 2; round++) {
        for (int k = 0; k < COMMS; k++) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
            mt_allreduce_all_sizes(comms[k], round);
            check_memory("in use");
        }
        for (int k = 0; k < COMMS; k++)
            MPI_Comm_free(&comms[k]);
        check_memory("given back");
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    /* Before MPI_Init: Open MPI's variable, and that of the others. */
    long rank = mt_env("OMPI_COMM_WORLD_RANK", 0) + mt_env("PMI_RANK", 0);
    TCase *tests =
        mt_begin(&argc, &argv, "m_levels", rank == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);

    tcase_add_test(tests, test_levels_that_differ_take_the_same_memory);
    return mt_end();
}
