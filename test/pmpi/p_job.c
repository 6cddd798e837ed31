/*
 * A plain MPI job that does what its words say, in order, and checks every result: what the scripts
 * p_*.sh preload things into.
 *
 *     world self dup half inter       from here on, calls are on this communicator (dup, half and
 *                                     inter: a new one)
 *     allreduce=N iallreduce=N scatter=N gather=N empty=N large=N doubles=N
 *                                     N calls: with Iallreduce, each is waited for; empty: of no
 *                                     elements; large: of 200000 elements
 *     ls fork                         the process starts a command, by system() and by fork() and
 *                                     exec
 *     leave abort=N                   the end: without MPI_Finalize, by MPI_Abort
 *
 * Without words it does a few of them. Else the end is MPI_Finalize, after which MPI must be
 * finalized. Exit status 1: something was wrong.
 *
 * tiara-test: mpirun 3
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1
 * tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_LAYOUT=2x2 TIARA_PMPI_AFTER=0
 * tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI=off
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FEW = 3,
    LARGE = 200000
};

static int rank, size, wrong;
static MPI_Comm comm;
static bool is_new; /* comm is to be freed */
static unsigned salt; /* other data in each call */

static int datum(int r, int i)
{
    return (int)((salt * 31u + (unsigned)r * 7u + (unsigned)i * 13u) % 1009u) - 500;
}

/* The sum over all ranks that contribute: those of the other group, on an intercommunicator. */
static int expected(int nranks, int i)
{
    int sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += datum(r, i);
    return sum;
}

static void check(bool right, const char *what)
{
    if (!right && wrong++ == 0)
        fprintf(stderr, "p_job: rank %d: wrong: %s, call %u\n", rank, what, salt);
}

/* ---- calls ---- */

static int contributors(void)
{
    int n, inter;

    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        MPI_Comm_remote_size(comm, &n);
    else
        MPI_Comm_size(comm, &n);
    return n;
}

static void reduce_once(int count, bool nonblocking)
{
    static int in[LARGE], out[LARGE];
    int n = contributors(), mine;
    bool right = true;
    MPI_Request request;

    MPI_Comm_rank(comm, &mine);
    for (int i = 0; i < count; i++)
        in[i] = datum(mine, i);
    memset(out, 0x7f, sizeof(int) * (size_t)count);
    if (nonblocking) {
        check(MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request) == MPI_SUCCESS,
            "code");
        check(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "code of wait");
        check(request == MPI_REQUEST_NULL, "request after wait");
    } else {
        check(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS, "code");
    }
    for (int i = 0; i < count; i++)
        right = right && out[i] == expected(n, i);
    check(right, nonblocking ? "MPI_Iallreduce" : "MPI_Allreduce");
}

static void doubles_once(void)
{
    double in[FEW], out[FEW];
    int n = contributors(), mine;

    MPI_Comm_rank(comm, &mine);
    for (int i = 0; i < FEW; i++)
        in[i] = datum(mine, i);
    MPI_Allreduce(in, out, FEW, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < FEW; i++)
        check(out[i] == expected(n, i), "MPI_Allreduce of doubles");
}

static void scatter_once(void)
{
    int n = contributors(), mine, out[FEW];
    int *in = malloc(sizeof(int) * FEW * (size_t)n);

    MPI_Comm_rank(comm, &mine);
    for (int i = 0; i < FEW * n; i++)
        in[i] = datum(mine, i);
    MPI_Reduce_scatter_block(in, out, FEW, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < FEW; i++)
        check(out[i] == expected(n, mine * FEW + i), "MPI_Reduce_scatter_block");
    free(in);
}

static void gather_once(void)
{
    int n = contributors(), mine, in[FEW];
    int *out = malloc(sizeof(int) * FEW * (size_t)n);

    MPI_Comm_rank(comm, &mine);
    for (int i = 0; i < FEW; i++)
        in[i] = datum(mine, i);
    MPI_Allgather(in, FEW, MPI_INT, out, FEW, MPI_INT, comm);
    for (int i = 0; i < FEW * n; i++)
        check(out[i] == datum(i / FEW, i % FEW), "MPI_Allgather");
    free(out);
}

static void call_once(const char *word)
{
    salt++;
    switch (word[0]) {
    case 'a':
        reduce_once(FEW, false);
        break;
    case 'i':
        reduce_once(FEW, true);
        break;
    case 'e':
        reduce_once(0, false);
        break;
    case 'l':
        reduce_once(LARGE, false);
        break;
    case 'd':
        doubles_once();
        break;
    case 's':
        scatter_once();
        break;
    case 'g':
        gather_once();
        break;
    default:
        check(false, word);
    }
}

/* ---- the rest ---- */

static void use(MPI_Comm next, bool next_is_new)
{
    if (is_new)
        MPI_Comm_free(&comm);
    comm = next;
    is_new = next_is_new;
}

static void use_named(const char *word)
{
    MPI_Comm next, half;

    if (strcmp(word, "world") == 0 || strcmp(word, "self") == 0) {
        use(word[0] == 'w' ? MPI_COMM_WORLD : MPI_COMM_SELF, false);
    } else if (strcmp(word, "dup") == 0) {
        MPI_Comm_dup(MPI_COMM_WORLD, &next);
        use(next, true);
    } else {
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        if (strcmp(word, "half") == 0) {
            use(half, true);
            return;
        }
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &next);
        MPI_Comm_free(&half);
        use(next, true);
    }
}

static void start_command(bool by_fork)
{
    int status = -1;
    pid_t child;

    if (!by_fork) {
        check(system("ls / >/dev/null") == 0, "system");
        return;
    }
    child = fork();
    if (child == 0) {
        execl("/bin/ls", "ls", "/dev/null", (char *)NULL);
        _exit(1);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "command after fork");
}

static void obey(const char *word)
{
    const char *equals = strchr(word, '=');
    int n = equals ? atoi(equals + 1) : 0;

    if (strcmp(word, "ls") == 0 || strcmp(word, "fork") == 0) {
        start_command(word[0] == 'f');
    } else if (strcmp(word, "leave") == 0) {
        fflush(NULL);
        _exit(wrong ? 1 : 0);
    } else if (strncmp(word, "abort=", 6) == 0) {
        /* All others wait here for their end. */
        if (rank == 1 % size)
            MPI_Abort(MPI_COMM_WORLD, n);
        MPI_Recv(&n, 1, MPI_INT, rank, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (!equals) {
        use_named(word);
    } else {
        for (int i = 0; i < n; i++)
            call_once(word);
    }
}

/* Also called from an object that was opened while the program ran. */
int p_job(int argc, char **argv);
int p_job(int argc, char **argv)
{
    static char *few[] = {"", "allreduce=12", "iallreduce=5", "large=2", "scatter=5", "gather=5",
        "half", "allreduce=12", "self", "allreduce=3"};
    int over = 0, rc;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comm = MPI_COMM_WORLD;
    if (argc < 2) {
        argv = few;
        argc = sizeof(few) / sizeof(few[0]);
    }
    for (int i = 1; i < argc; i++)
        obey(argv[i]);
    use(MPI_COMM_WORLD, false);
    rc = MPI_Finalize();
    check(rc == MPI_SUCCESS, "code of MPI_Finalize");
    MPI_Finalized(&over);
    check(over, "MPI_Finalized");
    return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    return p_job(argc, argv);
}
