/*
 * Thousands of communicators: made, used and freed without a trace, and hundreds held at once.
 */
/* tiara-test: mpirun 2 TIARA_TEST_SWEEP=2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 TIARA_SHM_BUDGET=4m TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=-1 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "test.h"
#include "tiara.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long resident_kib(void)
{
    char line[200];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib;
}

static int count_mappings(void)
{
    char line[600];
    int n = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file))
        n++;
    if (file)
        fclose(file);
    return n;
}

static void use(MPI_Comm comm, size_t count, int salt)
{
    struct mt_case c = {.type = mt_type_find(MPI_DOUBLE),
        .oper = MT_SUM,
        .count = count,
        .seed = mt_seed() + (uint64_t)salt,
        .comm = comm};
    mt_allreduce(&c);
}

/* Makes, uses and frees @n communicators; of three shapes, so that groups change as well. */
static void make_and_free(int n, int salt)
{
    for (int k = 0; k < n; k++) {
        MPI_Comm comm;
        mt_note("communicator %d of %d", k, n);
        if (k % 10 == 0)
            MPI_Comm_split(MPI_COMM_WORLD, mt_rank % 2, k % 20 ? mt_rank : -mt_rank, &comm);
        else
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(comm, k % 50 ? 4 : 20000, salt + k);
        MPI_Comm_free(&comm);
    }
}

START_TEST(test_comms_made_and_freed_leave_nothing)
{
    const int n = mt_sweep() > 1 ? 10000 : mt_sweep() > 0 ? 2000 : mt_sweep() == 0 ? 1000 : 200;
    make_and_free(n / 5, 0);
    long kib = resident_kib();
    int fds = tiara_test_count_entries("/proc/self/fd", ""), maps = count_mappings();
    make_and_free(n - n / 5, n);
    mt_check(tiara_test_count_entries("/proc/self/fd", "") <= fds + 3, "%d open files, then %d",
        fds, tiara_test_count_entries("/proc/self/fd", ""));
    mt_check(count_mappings() <= maps + 20, "%d mappings, then %d", maps, count_mappings());
    mt_check(resident_kib() < kib + 16 * 1024, "resident: %ld KiB, then %ld", kib, resident_kib());
    mt_check(tiara_test_count_entries("/dev/shm", "tiara") == 0, "left in /dev/shm");
    mt_agree();
}
END_TEST

START_TEST(test_comms_held_at_once_all_work)
{
    enum {
        HELD = 300
    };
    MPI_Comm held[HELD];
    int n = mt_sweep() > 0 ? HELD : HELD / 3;
    for (int k = 0; k < n; k++) {
        mt_note("held communicator %d", k);
        MPI_Comm_dup(MPI_COMM_WORLD, &held[k]);
        use(held[k], 8, k);
    }
    for (int k = n - 1; k >= 0; k--)
        use(held[k], k % 10 ? 3 : 5000, k);
    for (int k = 0; k < n; k++) {
        use(held[k], 100, n + k);
        MPI_Comm_free(&held[k]);
    }
    use(MPI_COMM_WORLD, 1000, 0);
    mt_agree();
}
END_TEST

/* Communicators that are never freed are the library's to free in MPI_Finalize, without noise or
 * crash. */
START_TEST(test_comms_never_freed_end_with_finalize)
{
    for (int k = 0; k < 5; k++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(comm, k % 2 ? 1 : 20000, k);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_manycomms", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_comms_made_and_freed_leave_nothing);
    tcase_add_test(tests, test_comms_held_at_once_all_work);
    tcase_add_test(tests, test_comms_never_freed_end_with_finalize);
    return mt_end();
}
