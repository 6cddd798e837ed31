/*
 * Jobs that grow: a rank's children by MPI_Comm_spawn, which run without the preloaded library or
 * with it, and communicators of both generations. All calls between generations must be MPI's own
 * on both sides.
 *
 * tiara-test: mpirun 2
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_TEST_SPAWN=plain
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 12,
    CHILDREN = 2
};

static int wrong;

/* On @comm each of @n contributing ranks gives its rank plus the number of the call; @base: of the
 * first. */
static void reduce(MPI_Comm comm, int mine, int base, int n, const char *what)
{
    for (int k = 0; k < CALLS; k++) {
        int in = mine + k, out = -1, expected = 0;
        MPI_Request request;

        for (int r = 0; r < n; r++)
            expected += base + r + k;
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
        if (out != expected && wrong++ == 0)
            fprintf(stderr, "p_spawn: %s: %d, not %d\n", what, out, expected);
        MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (out != expected && wrong++ == 0)
            fprintf(stderr, "p_spawn: %s, nonblocking: %d, not %d\n", what, out, expected);
    }
}

/* Both sides: the world of each, the communicator between them, and the one of all. */
static void reduce_all(MPI_Comm between, int is_child)
{
    MPI_Comm all;
    int rank, size, others;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_remote_size(between, &others);
    reduce(MPI_COMM_WORLD, rank, 0, size, "world");
    reduce(between, 100 * is_child + rank, 100 * !is_child, others, "between");
    MPI_Intercomm_merge(between, is_child, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    reduce(all, rank, 0, size, "all");
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, between;
    const char *how = getenv("TIARA_TEST_SPAWN");
    int failed[CHILDREN], rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        reduce_all(parent, 1);
    } else {
        char *words[] = {"-u", "LD_PRELOAD", argv[0], NULL};
        int plain = how && strcmp(how, "plain") == 0;

        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        rc = MPI_Comm_spawn(plain ? "/usr/bin/env" : argv[0], plain ? words : MPI_ARGV_NULL,
            CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, failed);
        if (rc != MPI_SUCCESS) {
            printf("p_spawn: skipped: this MPI starts no processes here\n");
            MPI_Finalize();
            return 77;
        }
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        reduce_all(between, 0);
    }
    MPI_Finalize();
    return wrong ? 1 : 0;
}
