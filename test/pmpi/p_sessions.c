/*
 * MPI 4.0, 11.3: sessions. A program without MPI_Init has communicators, but no world in which
 * ranks could agree on anything: its calls are the MPI's. With both, communicators of a session may
 * live before MPI_Init, beside the world, and after MPI_Finalize.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_TEST_WORLD=1
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify TIARA_TEST_WORLD=1
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#if MPI_VERSION < 4
int main(void)
{
    printf("p_sessions: skipped: this MPI has no sessions\n");
    return 77;
}
#else
enum {
    CALLS = 12,
    COUNT = 3000
};

static int wrong;

static void reduce(MPI_Comm comm, const char *what)
{
    static int in[COUNT], out[COUNT];
    int rank, size;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int k = 0; k < CALLS; k++) {
        int count = k % 3 ? 3 : COUNT, bad = 0;
        MPI_Request request;

        for (int i = 0; i < count; i++) {
            in[i] = (rank + 1) * (i + k);
            out[i] = -1;
        }
        if (k % 4 == 3) {
            MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
        }
        for (int i = 0; i < count; i++)
            bad += out[i] != size * (size + 1) / 2 * (i + k);
        if (bad > 0 && wrong++ == 0)
            fprintf(stderr, "p_sessions: %s: call %d: %d of %d wrong\n", what, k, bad, count);
    }
}

static MPI_Comm open_comm(MPI_Session session, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm;

    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

/* The world, with @comm of a session beside it. */
static void use_world(MPI_Session session, MPI_Comm comm)
{
    MPI_Comm late;

    MPI_Init(NULL, NULL);
    reduce(MPI_COMM_WORLD, "world");
    reduce(comm, "session, beside the world");
    late = open_comm(session, "p_sessions.late");
    reduce(late, "session, made beside the world");
    MPI_Comm_free(&late);
    MPI_Finalize();
}

int main(void)
{
    MPI_Session session;
    MPI_Comm comm;

    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    comm = open_comm(session, "p_sessions");
    reduce(comm, "session");
    if (getenv("TIARA_TEST_WORLD")) {
        use_world(session, comm);
        reduce(comm, "session, after the world");
    }
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return wrong ? 1 : 0;
}
#endif
