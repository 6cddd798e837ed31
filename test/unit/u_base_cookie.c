/*
 * Cookies: drawn anew each time, and a process's own, which a forked child does not inherit.
 */
#include "test/harness/test.h"
#include "base/cookie.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

START_TEST(test_cookies_differ)
{
    uint64_t drawn[1000];

    for (int i = 0; i < 1000; i++)
        drawn[i] = tiara_cookie();
    qsort(drawn, 1000, sizeof *drawn, compare);
    ck_assert_uint_ne(drawn[0], 0);
    for (int i = 1; i < 1000; i++)
        ck_assert_uint_ne(drawn[i], drawn[i - 1]);
}
END_TEST

START_TEST(test_cookie_process_is_its_own)
{
    uint64_t mine = tiara_cookie_process(), its = 0;
    int fds[2], status;
    pid_t child;

    ck_assert_uint_ne(mine, 0);
    ck_assert_uint_eq(tiara_cookie_process(), mine);
    ck_assert_int_eq(pipe(fds), 0);
    child = fork();
    if (child == 0) {
        uint64_t twice[2] = {tiara_cookie_process(), tiara_cookie_process()};

        _exit(twice[0] != twice[1] || write(fds[1], twice, sizeof its) != sizeof its);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(read(fds[0], &its, sizeof its), sizeof its);
    ck_assert_uint_ne(its, 0);
    ck_assert_uint_ne(its, mine);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base_cookie");
    TCase *tests = tcase_create("cookie");

    tcase_add_test(tests, test_cookies_differ);
    tcase_add_test(tests, test_cookie_process_is_its_own);
    suite_add_tcase(suite, tests);
    return tiara_test_run(suite, CK_NOFORK);
}
