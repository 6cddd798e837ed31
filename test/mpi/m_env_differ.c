/*
 * Variables whose values differ between ranks, as they do when a launcher does not pass them on to
 * all nodes: the ranks agree on one, and the results are right. TIARA_TEST_VARY=NAME/A/B gives
 * NAME=A to rank 0, B to rank 1, A to rank 2 ...; the value "unset" unsets it.
 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_CHUNK/4k/64k/1m */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_ALGO/auto/ring/tree */
/* tiara-test: mpirun 3 TIARA_TEST_VARY=TIARA_ALGO/direct/mpi */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_INTER/ring/tree TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_LEADERS/1/2 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_NET/socket/mpi TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_SLOTS/1/8 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_REPRODUCIBLE/0/1 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_SHM/auto/off */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_SHM/off/auto TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_SHM_BUDGET/64m/1k */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_CMA/on/off */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_ISA/portable/avx2/auto */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_ONE_SHOT/1/1m */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_CELL_STORE/plain/stream/string */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_SPIN/0/10000 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_LAYOUT/2x2/3+1 */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_LAYOUT/2x2/unset */
/* tiara-test: mpirun 4 TIARA_TEST_VARY=TIARA_LAYOUT/unset/9x9/2x2:rr */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

/* Sets this rank's value of @spec, "NAME/A/B/...". */
static void vary(const char *spec)
{
    char text[200], *words[10], *save = NULL;
    int nwords = 0;
    strncpy(text, spec, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (char *word = strtok_r(text, "/", &save); word && nwords < 10;
         word = strtok_r(NULL, "/", &save))
        words[nwords++] = word;
    if (!mt_check(nwords >= 3, "TIARA_TEST_VARY is %s", spec))
        return;
    const char *value = words[1 + mt_rank % (nwords - 1)];
    if (strcmp(value, "unset") == 0)
        unsetenv(words[0]);
    else
        setenv(words[0], value, 1);
}

START_TEST(test_env_different_values_are_agreed_upon)
{
    vary(getenv("TIARA_TEST_VARY") ? getenv("TIARA_TEST_VARY") : "");
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 0);
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 1);
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -mt_rank, &reversed);
    mt_allreduce_all_sizes(reversed, 2);
    MPI_Comm_free(&reversed);
    mt_agree();
}
END_TEST

/* The variables that choose how to add must not make ranks add differently. */
START_TEST(test_env_different_values_give_the_same_bits)
{
    enum {
        COUNT = 3000
    };
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = 1.0F / (float)(1 + i + mt_rank);
    for (int count = 3; count <= COUNT; count *= 10) {
        TIARA_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        mt_check(mt_same_bits(out, (size_t)count * sizeof *out, mt_private),
            "count %d: ranks differ", count);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_env_differ", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_env_different_values_are_agreed_upon);
    tcase_add_test(tests, test_env_different_values_give_the_same_bits);
    return mt_end();
}
