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

/* What this rank counts, by its report. */
static unsigned long held(void)
{
    static const char name[] = "shared memory of this process's groups";
    char text[8192];
    unsigned long bytes = 0;

    TIARA_Report(TIARA_REPORT_STATE, MPI_COMM_WORLD, text, (int)sizeof(text), NULL);
    const char *line = strstr(text, name);
    mt_check(line && sscanf(line + strlen(name), "%lu", &bytes) == 1, "no line in %s", text);
    return bytes;
}

static void check_memory(const char *when)
{
    unsigned long mine = held(), least, most;

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
