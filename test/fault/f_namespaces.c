/*
 * Ranks in namespaces of their own, as containers make them: all ranks, one, or half of them. Where
 * MPI runs there, Tiara shares memory there too, and ranks that have all the process id 1 are not
 * taken for each other.
 *
 * The program is started by itself and starts MPI jobs of itself, in which TIARA_TEST_ROLE says
 * which namespaces a rank leaves before MPI_Init, and who does so.
 */
#include "test.h"
#include "tiara.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum {
    RANKS = 4,
    LARGE = 30000
};

static const struct {
    char letter;
    int flag;
} kinds[] = {{'p', CLONE_NEWPID}, {'i', CLONE_NEWIPC}, {'U', CLONE_NEWUSER}, {'u', CLONE_NEWUTS},
    {'m', CLONE_NEWNS}};

static int flags_of(const char *letters)
{
    int flags = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        flags |= strchr(letters, kinds[k].letter) ? kinds[k].flag : 0;
    return flags;
}

static bool file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

/* Leaves the namespaces that @flags name; false where that is not permitted. */
static bool leave(int flags)
{
    char users[60], groups[60];
    snprintf(users, sizeof users, "%d %d 1\n", (int)getuid(), (int)getuid());
    snprintf(groups, sizeof groups, "%d %d 1\n", (int)getgid(), (int)getgid());
    if (unshare(flags) != 0)
        return false;
    return !(flags & CLONE_NEWUSER) ||
           (file_write("/proc/self/setgroups", "deny") && file_write("/proc/self/uid_map", users) &&
               file_write("/proc/self/gid_map", groups));
}

/* The rest of the program is process 1 of a new PID namespace; this process ends as that does. */
static void enter_pid_namespace(bool own_mounts)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* Where this is not permitted, the ids in /proc are those of other processes. */
        if (own_mounts && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
            (void)!mount("proc", "/proc", "proc", 0, NULL);
        return;
    }
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Element @i of the sum over the ranks of @comm. */
static double sum_of(const int *world_ranks, int n, int i)
{
    double sum = 0;
    for (int r = 0; r < n; r++)
        sum += tiara_test_value(world_ranks[r], (size_t)i);
    return sum;
}

/* Calls of @comm that went to the MPI below; -1 when the report does not say. */
static long long left_to_mpi(MPI_Comm comm)
{
    static const char label[] = "calls through small slots, plans, MPI";
    char text[4000] = "";
    long long small, plan, mpi = -1;
    TIARA_Report(TIARA_REPORT_STATE, comm, text, sizeof text, NULL);
    const char *line = strstr(text, label);
    if (line && sscanf(line + strlen(label), " %lld , %lld , %lld", &small, &plan, &mpi) == 3)
        return mpi;
    return -1;
}

/* A small and a large call on @comm; returns how much is wrong. */
static int check_comm(MPI_Comm comm)
{
    static double in[LARGE], out[LARGE];
    int rank, n, wrong = 0, world_ranks[RANKS];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(comm, &n);
    PMPI_Allgather(&rank, 1, MPI_INT, world_ranks, 1, MPI_INT, comm);
    for (int count = 5; count <= LARGE; count = count == 5 ? LARGE : LARGE + 1) {
        for (int i = 0; i < count; i++)
            in[i] = tiara_test_value(rank, (size_t)i);
        TIARA_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
        for (int i = 0; i < count; i++)
            wrong += out[i] != sum_of(world_ranks, n, i);
    }
    if (left_to_mpi(comm) != 0)
        fprintf(stderr, "rank %d: %lld calls were left to MPI\n", rank, left_to_mpi(comm));
    if (wrong)
        fprintf(stderr, "rank %d: %d elements are wrong\n", rank, wrong);
    return wrong + (left_to_mpi(comm) != 0);
}

/* All pairs of ranks have communicators at the same time. */
static int check_pairs(int rank)
{
    MPI_Comm pairs[RANKS - 1];
    int wrong = 0;
    for (int k = 1; k < RANKS; k++) {
        int first = rank < (rank ^ k) ? rank : rank ^ k;
        MPI_Comm_split(MPI_COMM_WORLD, first, rank, &pairs[k - 1]);
        wrong += check_comm(pairs[k - 1]);
    }
    for (int k = 1; k < RANKS; k++) {
        wrong += check_comm(pairs[k - 1]);
        MPI_Comm_free(&pairs[k - 1]);
    }
    return wrong;
}

/* "LETTERS WHO [plain]": who is all, one or half; plain: only MPI. */
static int be_rank(const char *role, int argc, char **argv)
{
    const char *id =
        getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    char letters[10] = "", who[10] = "", what[10] = "";
    int rank = id ? atoi(id) : 0, sum = 0, one = 1, wrong = 0, any = 0;
    sscanf(role, "%9[^/]/%9[^/]/%9s", letters, who, what);
    if (strcmp(who, "all") == 0 || (strcmp(who, "one") == 0 ? rank == 1 : rank % 2 == 1)) {
        if (!leave(flags_of(letters)))
            return 77;
        if (strchr(letters, 'p'))
            enter_pid_namespace(strchr(letters, 'm'));
    }
    alarm(60);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(what, "tiara") == 0)
        wrong = check_comm(MPI_COMM_WORLD) + check_pairs(rank) + check_comm(MPI_COMM_WORLD);
    PMPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return any != 0 || sum != RANKS;
}

/* The exit status of a job in which ranks are as @role says. Over TCP, as MPIs have trouble of
 * their own with the processes of other namespaces. */
static int run_job(const char *role, const char *what)
{
    char self[500], command[1200];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    snprintf(command, sizeof command,
        "OMPI_MCA_btl=self,tcp TIARA_TEST_ROLE=%s/%s %s -n %d '%s' </dev/null >&2", role, what,
        getenv("TIARA_TEST_MPIRUN"), RANKS, self);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Each kind alone, then what containers are. */
static const char *const roles[] = {"p/all", "p/one", "p/half", "i/all", "i/one", "i/half", "U/all",
    "U/one", "U/half", "u/all", "u/one", "u/half", "m/all", "m/one", "m/half", "pm/all",
    "piUum/all", "piUum/one", "piUum/half"};
static int ntested;

START_TEST(test_namespaces_share_memory)
{
    if (run_job(roles[_i], "tiara") == 0)
        ntested++;
    else /* MPI alone says whether such a job can be. */
        ck_assert_msg(run_job(roles[_i], "plain") != 0, "ranks in namespaces: %s", roles[_i]);
}
END_TEST

int main(int argc, char **argv)
{
    const char *role = getenv("TIARA_TEST_ROLE");
    if (role)
        return be_rank(role, argc, argv);
    if (!getenv("TIARA_TEST_MPIRUN"))
        tiara_test_skip("TIARA_TEST_MPIRUN does not say how to start a job");
    Suite *suite = suite_create("f_namespaces");
    TCase *tests = tcase_create("namespaces");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(
        tests, test_namespaces_share_memory, 0, (int)(sizeof roles / sizeof roles[0]));
    suite_add_tcase(suite, tests);
    int status = tiara_test_run(suite, CK_NOFORK);
    if (status == 0 && ntested == 0)
        tiara_test_skip("no namespace can be left here, or MPI does not run there");
    return status;
}
