/*
 * A variable with a wrong value, or with a wrong name: a line on standard error names it and quotes
 * the value, and the job goes on and is right.
 */
/* tiara-test: mpirun 4 TIARA_CHUNK=banana */
/* tiara-test: mpirun 4 TIARA_CHUNK=-1 */
/* tiara-test: mpirun 4 TIARA_ALGO=nonsense */
/* tiara-test: mpirun 4 TIARA_INTER=quux */
/* tiara-test: mpirun 4 TIARA_LAYOUT=7x7 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2y2 */
/* tiara-test: mpirun 4 TIARA_NET=pigeon */
/* tiara-test: mpirun 4 TIARA_SLOTS=99 */
/* tiara-test: mpirun 4 TIARA_SHM=maybe */
/* tiara-test: mpirun 4 TIARA_SHM=window */
/* tiara-test: mpirun 4 TIARA_SHM_BUDGET=12q */
/* tiara-test: mpirun 4 TIARA_REPRODUCIBLE=perhaps */
/* tiara-test: mpirun 4 TIARA_TIMEOUT=soon */
/* tiara-test: mpirun 4 TIARA_CHUNKS=4k */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The run's one variable for Tiara, as "NAME=VALUE"; NULL when there is none. */
static const char *wrong_variable(void)
{
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, "TIARA_", 6) == 0 && strncmp(*entry, "TIARA_TEST_", 11) != 0)
            return *entry;
    }
    return NULL;
}

START_TEST(test_env_wrong_value_is_named_and_survived)
{
    char name[100] = "";
    const char *entry = wrong_variable(), *value = entry ? strchr(entry, '=') + 1 : "";
    if (mt_check(entry != NULL, "no variable to look for"))
        memcpy(name, entry, (size_t)(value - entry - 1));
    mt_stderr_begin();
    int err = TIARA_Comm_prepare(MPI_COMM_WORLD);
    char *text = mt_stderr_end();
    mt_check(err == MPI_SUCCESS, "error %d", err);
    bool known = strcmp(name, "TIARA_CHUNKS") != 0;
    int mine = strstr(text, name) && strstr(text, known ? value : "TIARA_CHUNK?"), anyone = 0;
    PMPI_Allreduce(&mine, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
    mt_check(anyone, "nobody named %s and %s; this rank said: %s", name, value, text);
    free(text);
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 1);
    mt_agree();
}
END_TEST

/* It is said once, not with every communicator. */
START_TEST(test_env_wrong_value_is_named_once)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    mt_stderr_begin();
    TIARA_Comm_prepare(comm);
    mt_allreduce_all_sizes(comm, 2);
    char *text = mt_stderr_end();
    mt_check(*text == '\0', "said again: %s", text);
    free(text);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* A pair of ranks, @a and @b; MPI_COMM_NULL on others. */
static MPI_Comm pair_of(int a, int b)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, mt_rank == a || mt_rank == b ? 0 : MPI_UNDEFINED, 0, &comm);
    return comm;
}

/*
 * What a rank does alone waits for nobody: rank 0 has no further use for the shared memory that it
 * has with rank 1, while rank 1 waits for a message of rank 0's. (MPI's windows wait there.)
 */
START_TEST(test_env_memory_is_freed_by_one_rank)
{
    MPI_Comm first = pair_of(0, 1), second = pair_of(0, 2);
    int token = 7;
    if (first != MPI_COMM_NULL) {
        mt_allreduce_all_sizes(first, 3);
        MPI_Comm_free(&first);
    }
    if (second != MPI_COMM_NULL) {
        mt_allreduce_all_sizes(second, 4);
        MPI_Comm_free(&second);
    }
    if (mt_rank == 0)
        MPI_Send(&token, 1, MPI_INT, 1, 5, mt_private);
    if (mt_rank == 1)
        MPI_Recv(&token, 1, MPI_INT, 0, 5, mt_private, MPI_STATUS_IGNORE);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_env_wrong", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_env_wrong_value_is_named_and_survived);
    tcase_add_test(tests, test_env_wrong_value_is_named_once);
    tcase_add_test(tests, test_env_memory_is_freed_by_one_rank);
    return mt_end();
}
