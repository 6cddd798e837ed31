/*
 * The system refuses what the library asks for, on all ranks or on one: shared memory is switched
 * off, too scarce or forbidden, as in a container; so is reading from a peer's process. All ranks
 * go another way together: right results, no hang, and no more than a warning.
 * (Open MPI reads from its peers too, and does not bear a refusal: hence its variable in some
 * runs.)
 *
 * TIARA_TEST_FORBID=CALL/RANK makes a system call fail with EPERM on one rank, or on all with rank
 * -1, by a filter that is installed between MPI_Init and the first call of Tiara. The words "files"
 * and "fsize" instead of a call set limits on the process: no further file descriptors, no file
 * larger than 4 KiB.
 */
/* tiara-test: mpirun 4 TIARA_SHM=off */
/* tiara-test: mpirun 4 TIARA_SHM=off TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_SHM_BUDGET=64k */
/* tiara-test: mpirun 4 TIARA_SHM_BUDGET=0 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_CMA=off */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=memfd_create/1 */
/* tiara-test: mpirun 4 TIARA_TEST_FORBID=memfd_create/2 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_FORBID=memfd_create/-1 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=fallocate/0 */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=ftruncate/2 */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=process_vm_readv/1
 * OMPI_MCA_btl_vader_single_copy_mechanism=none */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=process_vm_readv/-1 TIARA_CMA=on
 * OMPI_MCA_btl_vader_single_copy_mechanism=none */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=socket/1 */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=files/1 */
/* tiara-test: mpirun 4 TIARA_TEST_FORBID=files/3 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_FORBID=fsize/0 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FORBID_FILES = -1,
    FORBID_FSIZE = -2,
    UNKNOWN = -3
};

static int number_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"memfd_create", SYS_memfd_create}, {"fallocate", SYS_fallocate},
        {"ftruncate", SYS_ftruncate}, {"process_vm_readv", SYS_process_vm_readv},
        {"socket", SYS_socket}, {"files", FORBID_FILES}, {"fsize", FORBID_FSIZE}};
    for (unsigned k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (strcmp(known[k].name, name) == 0)
            return known[k].number;
    }
    return UNKNOWN;
}

/* From now on the system call @number fails with EPERM in this thread. False where the system has
 * no filters. */
static bool filter_install(int number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/*
 * While on, no descriptor beyond those that are open. Only around Tiara's calls, as Check opens a
 * file for every test.
 */
static bool files_are_limited;
static void files_limit(bool on)
{
    static struct rlimit before;
    if (!files_are_limited)
        return;
    if (on) {
        int lowest = open("/dev/null", O_RDONLY);
        close(lowest);
        getrlimit(RLIMIT_NOFILE, &before);
        mt_check(lowest >= 0 && setrlimit(RLIMIT_NOFILE,
                                    &(struct rlimit){(rlim_t)lowest, before.rlim_max}) == 0,
            "no limit can be set");
    } else {
        setrlimit(RLIMIT_NOFILE, &before);
    }
}

static bool fsize_limit(void)
{
    struct rlimit limit = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

/* Does what TIARA_TEST_FORBID says. Returns false, on all ranks, where that is impossible. */
static bool forbid(const char *spec)
{
    char name[40] = "";
    int rank = 0, failed = 0, any = 0;
    if (sscanf(spec, "%39[^/]/%d", name, &rank) != 2 || number_of(name) == UNKNOWN) {
        fprintf(stderr, "TIARA_TEST_FORBID is %s\n", spec);
        abort();
    }
    int number = number_of(name);
    bool mine = rank == mt_rank || rank < 0;
    files_are_limited = mine && number == FORBID_FILES;
    if (mine && number != FORBID_FILES)
        failed = number == FORBID_FSIZE ? !fsize_limit() : !filter_install(number);
    PMPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, mt_private);
    return !any;
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++)
        n++;
    return n;
}

/*
 * First the set-up, whose words are kept: one rank says that the communicator goes another way, and
 * the rank that was refused says what. Then the work, in silence.
 */
static void check_comm(MPI_Comm comm, unsigned salt, int lines_allowed)
{
    mt_stderr_begin();
    mt_note("preparing");
    files_limit(true);
    int err = TIARA_Comm_prepare(comm);
    mt_allreduce_all_sizes(comm, salt);
    files_limit(false);
    char *text = mt_stderr_end();
    mt_check(err == MPI_SUCCESS, "prepare: error %d", err);
    mt_check(
        count_lines(text) <= lines_allowed, "said more than %d lines: %s", lines_allowed, text);
    free(text);
}

START_TEST(test_refused_resources_leave_results_right)
{
    check_comm(MPI_COMM_WORLD, 0, 2);
    mt_allreduce_all_sizes(MPI_COMM_WORLD, 1);
    mt_agree();
}
END_TEST

START_TEST(test_refused_resources_leave_other_communicators_right)
{
    for (unsigned k = 0; k < 3; k++) {
        MPI_Comm part;
        MPI_Comm_split(
            MPI_COMM_WORLD, k == 1 ? mt_rank % 2 : 0, k == 2 ? -mt_rank : mt_rank, &part);
        MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN);
        check_comm(part, k, 2);
        MPI_Comm_free(&part);
    }
    mt_agree();
}
END_TEST

START_TEST(test_refused_resources_leave_nothing_behind)
{
    DIR *dir = opendir("/dev/shm");
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        mt_check(!strstr(entry->d_name, "tiara"), "/dev/shm/%s", entry->d_name);
    if (dir)
        closedir(dir);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "f_refused", MPI_THREAD_SINGLE);
    const char *spec = getenv("TIARA_TEST_FORBID");
    PMPI_Barrier(mt_private);
    mt_stderr_begin(); /* opens what it needs while that is allowed */
    free(mt_stderr_end());
    if (spec && !forbid(spec))
        return mt_skip("this system does not let a process restrict itself");
    tcase_add_test(tests, test_refused_resources_leave_results_right);
    tcase_add_test(tests, test_refused_resources_leave_other_communicators_right);
    tcase_add_test(tests, test_refused_resources_leave_nothing_behind);
    return mt_end();
}
