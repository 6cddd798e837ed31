/*
 * Jobs whose ranks end without MPI_Finalize: see dying.h.
 */
#include "dying.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void tiara_dying_job(const char *role, int nranks, const char *variables)
{
    char self[500], command[1200];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(len, 0);
    self[len] = '\0';
    int before = tiara_test_count_entries("/dev/shm", "tiara");
    snprintf(command, sizeof command,
        "TIARA_TEST_ROLE=%s %s %s -n %d '%s' </dev/null >/dev/null 2>&1", role, variables,
        getenv("TIARA_TEST_MPIRUN"), nranks, self);
    int status = system(command);
    ck_assert_msg(
        WIFEXITED(status) && WEXITSTATUS(status) != 0, "%s: status %x", command, (unsigned)status);
    ck_assert_msg(WEXITSTATUS(status) != 124 && WEXITSTATUS(status) != 142, "%s: it hung", command);
    ck_assert_int_eq(tiara_test_count_entries("/dev/shm", "tiara"), before);
}
