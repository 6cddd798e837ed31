/*
 * Conformance of the transport mpi. Also a message of more than INT_MAX bytes, where
 * TIARA_TEST_SWEEP is 2, as it needs twice 2 GiB.
 *
 * tiara-test: mpirun 1
 * tiara-test: mpirun 3
 * tiara-test: mpirun 4
 */
#include "test/harness/mpi_run.h"
#include "test/harness/xport_suite.h"
#include "base/alloc.h"
#include "base/log.h"

#include <limits.h>
#include <stdlib.h>

static enum tiara_err mpi_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    int rc = MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg);

    return rc == MPI_SUCCESS ? TIARA_OK : TIARA_ERR_MPI;
}

/* Made by main: a communicator for the transports' own use. */
static MPI_Comm transport_comm;

static struct tiara_xport_group world_group(void)
{
    return (struct tiara_xport_group){.rank = mt_rank,
        .size = mt_size,
        .allgather = mpi_allgather,
        .arg = &mt_private,
        .params = &transport_comm};
}

static void case_check(const struct tiara_xport *row, bool allocates, int i)
{
    struct tiara_xport_suite suite = {row, TIARA_SUITE_MPI, allocates, 0};
    struct tiara_xport_group group = world_group();

    mt_note("%s: %s", row->name, tiara_xport_suite_name(i));
    mt_check(tiara_xport_suite_run(&suite, i, &group) == 0, "%s: %s", row->name,
        tiara_xport_suite_name(i));
    mt_agree();
}

START_TEST(test_xport_mpi_conforms)
{
    case_check(&tiara_xport_mpi, false, _i);
}
END_TEST

/* Waits for @req; an alarm of the harness ends what takes too long. */
static void req_finish(void *x, struct tiara_xport_req *req)
{
    enum tiara_err err = TIARA_OK;

    while (err == TIARA_OK && !req->done)
        err = tiara_xport_mpi.test(x, req);
    mt_check(err == TIARA_OK, "error %d", (int)err);
}

/* The byte at @i; another period than any power of two, so that a shift by one piece is seen. */
static unsigned char large_datum(size_t i)
{
    return (unsigned char)(i % 251);
}

/* Rank 0 sends @len bytes to the last rank (itself, when it is alone). */
static void large_try(size_t len)
{
    struct tiara_xport_group group = world_group();
    void *x = calloc(1, tiara_xport_mpi.size);
    unsigned char *from = mt_rank == 0 ? malloc(len) : NULL;
    unsigned char *to = mt_rank == mt_size - 1 ? calloc(1, len) : NULL;
    struct tiara_xport_req send = {.done = true}, recv = {.done = true};
    size_t wrong = 0;

    mt_check(tiara_xport_mpi.open(x, &group, 0) == TIARA_OK, "open");
    for (size_t i = 0; from != NULL && i < len; i++)
        from[i] = large_datum(i);
    if (to != NULL)
        mt_check(tiara_xport_mpi.recv(x, 0, 3, to, len, &recv) == TIARA_OK, "recv");
    if (from != NULL)
        mt_check(tiara_xport_mpi.send(x, mt_size - 1, 3, from, len, &send) == TIARA_OK, "send");
    req_finish(x, &send);
    req_finish(x, &recv);
    for (size_t i = 0; to != NULL && i < len; i++)
        wrong += to[i] != large_datum(i);
    mt_check(wrong == 0, "%zu of %zu bytes are wrong", wrong, len);
    tiara_xport_mpi.close(x);
    free(from);
    free(to);
    free(x);
}

START_TEST(test_xport_mpi_more_than_int_max_bytes_arrive)
{
    if (mt_sweep() >= 2)
        large_try((size_t)INT_MAX + 1000);
    mt_agree();
}
END_TEST

/* The number of a new communicator: MPIs give the lowest that is free. */
static int next_number(void)
{
    MPI_Comm comm;
    int number;

    MPI_Comm_dup(mt_private, &comm);
    number = (int)MPI_Comm_c2f(comm);
    MPI_Comm_free(&comm);
    return number;
}

/* Ranks that close when they come by have their communicators again in the next open. */
START_TEST(test_xport_mpi_communicators_are_used_again)
{
    struct tiara_xport_group group = world_group();
    int first = next_number();

    for (int i = 0; i < 200; i++) {
        void *x = calloc(1, tiara_xport_mpi.size);

        mt_check(tiara_xport_mpi.open(x, &group, 0) == TIARA_OK, "open");
        ((struct tiara_xport_head *)x)->end = TIARA_XPORT_END_ALONE;
        tiara_xport_mpi.close(x);
        free(x);
    }
    mt_check(next_number() - first < 20, "%d, then %d", first, next_number());
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "xport_mpi", MPI_THREAD_SINGLE);
    int n = tiara_xport_suite_count(), status;

    MPI_Comm_dup(MPI_COMM_WORLD, &transport_comm);
    MPI_Comm_set_errhandler(transport_comm, MPI_ERRORS_RETURN);
    tcase_add_loop_test(tests, test_xport_mpi_conforms, 0, n);
    tcase_add_test(tests, test_xport_mpi_communicators_are_used_again);
    tcase_add_test(tests, test_xport_mpi_more_than_int_max_bytes_arrive);
    status = mt_end();
    return status;
}
