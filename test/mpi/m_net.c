/*
 * Messages between nodes go by the transport that TIARA_NET names, or the best that reaches them
 * (TIARA_TEST_NET says which, where the named one does not): small calls, plans
 * and nonblocking calls, on communicators that come and go. The library's report says which one
 * served, and how many messages it sent.
 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=mpi TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=socket TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 TIARA_NET=socket TIARA_ALGO=ring */
/* tiara-test: mpirun 3 TIARA_LAYOUT=3x1 TIARA_NET=socket */
/* tiara-test: vcluster 2x2 */
/* tiara-test: vcluster 2x2 TIARA_NET=socket TIARA_TEST_NET=mpi */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the report says of messages; "" when it does not. */
static unsigned long long messages_of(MPI_Comm comm, char name[20])
{
    static const char label[] = "messages to other nodes";
    unsigned long long sent = 0;
    char text[4000] = "";
    TIARA_Report(TIARA_REPORT_STATE, comm, text, sizeof text, NULL);
    const char *line = strstr(text, label);
    name[0] = '\0';
    mt_check(line && sscanf(line + strlen(label), " %19[^,], %llu", name, &sent) == 2,
        "the report does not speak of messages: %s", text);
    return sent;
}

/* Did calls on @comm go by messages of the right transport? @before: messages sent until then. */
static void check_served(MPI_Comm comm, unsigned long long before)
{
    const char *wanted = getenv("TIARA_TEST_NET") ? getenv("TIARA_TEST_NET") : getenv("TIARA_NET");
    char name[20];
    unsigned long long mine = messages_of(comm, name) - before, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, mt_private);
    mt_check(strcmp(name, wanted ? wanted : "mpi") == 0, "messages by %s", name);
    mt_check(all > 0, "no messages");
}

START_TEST(test_net_serves_calls)
{
    char name[20];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    mt_allreduce_all_sizes(comm, 1);
    check_served(comm, 0);
    unsigned long long before = messages_of(comm, name);
    mt_allreduce_all_sizes(comm, 2);
    check_served(comm, before);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

enum {
    COUNT = 50000
};

/* Nonblocking and persistent calls whose communicator and requests are freed in orders of their own
 * by each rank; what one leaves behind serves the next. */
START_TEST(test_net_outlives_communicators)
{
    static double in[COUNT], out[2][COUNT];
    for (int round = 0; round < 10; round++) {
        TIARA_Request requests[2];
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < COUNT; i++)
            in[i] = (mt_rank + 1) * (i % 100 + round);
        TIARA_Allreduce(in, out[0], 3, MPI_DOUBLE, MPI_SUM, comm);
        TIARA_Iallreduce(in, out[0], COUNT, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
        TIARA_Wait(&requests[0], MPI_STATUS_IGNORE);
        TIARA_Allreduce(in, out[0], 3, MPI_DOUBLE, MPI_SUM, comm);
        TIARA_Iallreduce(in, out[0], COUNT, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
        TIARA_Allreduce_init(
            in, out[1], COUNT, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[1]);
        TIARA_Start(&requests[1]);
        TIARA_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if ((mt_rank + round) % 2)
            MPI_Comm_free(&comm);
        TIARA_Request_free(&requests[1]);
        if (comm != MPI_COMM_NULL)
            MPI_Comm_free(&comm);
        int wrong = 0, factor = mt_size * (mt_size + 1) / 2;
        for (int i = 0; i < COUNT; i++)
            wrong += out[0][i] != factor * (i % 100 + round) || out[1][i] != out[0][i];
        mt_check(wrong == 0, "round %d: %d elements are wrong", round, wrong);
    }
    mt_agree();
}
END_TEST

static MPI_Comm watched = MPI_COMM_NULL; /* a communicator of the program's */
static int nprobes; /* on it */

/* In front of MPI's own, also for the library. */
int PMPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    static int (*next)(int, int, MPI_Comm, int *, MPI_Status *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Iprobe");
    nprobes += comm == watched;
    return next(source, tag, comm, flag, status);
}

/* A program may have promised not to use wildcards on its communicator, and holds to it only if
 * Tiara does. */
START_TEST(test_net_never_probes_the_programs_communicators)
{
    int flag;
    MPI_Comm_dup(MPI_COMM_WORLD, &watched);
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, watched, &flag, MPI_STATUS_IGNORE);
    mt_check(nprobes == 1, "probes are not seen");
    for (int round = 0; round < 4; round++) {
        double in = 1, out = 0;
        if (round % mt_size == mt_rank)
            usleep(50000); /* the others wait long */
        TIARA_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, watched);
        mt_check(out == mt_size, "the sum is %g", out);
    }
    mt_check(nprobes == 1, "%d probes", nprobes - 1);
    MPI_Comm_free(&watched);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_net", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_net_serves_calls);
    tcase_add_test(tests, test_net_outlives_communicators);
    tcase_add_test(tests, test_net_never_probes_the_programs_communicators);
    return mt_end();
}
