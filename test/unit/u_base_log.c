/*
 * Log lines, the texts of errors, and texts that are put together in pieces.
 */
#include "test/harness/test.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

START_TEST(test_log_before_setup_has_no_rank)
{
    char text[256];

    tiara_test_stderr_begin();
    tiara_warn("slots %d", 9);
    tiara_info("not shown");
    ck_assert_str_eq(tiara_test_stderr_end(text, sizeof(text)), "tiara: [-] warn: slots 9\n");
}
END_TEST

START_TEST(test_log_level_decides_what_is_shown)
{
    static const char *const lines[] = {"tiara: [3] error: e\n", "tiara: [3] warn: w\n",
        "tiara: [3] info: i\n", "tiara: [3] debug: d\n"};
    char expected[256] = "", text[256];

    for (int level = TIARA_LOG_ERROR; level <= TIARA_LOG_DEBUG; level++) {
        strcat(expected, lines[level]);
        tiara_log_setup((enum tiara_log_level)level, 3);
        tiara_test_stderr_begin();
        tiara_error("e");
        tiara_warn("w");
        tiara_info("i");
        tiara_debug("d");
        ck_assert_str_eq(tiara_test_stderr_end(text, sizeof(text)), expected);
    }
}
END_TEST

START_TEST(test_log_long_message_is_cut_to_one_line)
{
    char message[5000], text[6000];

    memset(message, 'x', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    tiara_test_stderr_begin();
    tiara_error("%s", message);
    tiara_test_stderr_end(text, sizeof(text));
    ck_assert_uint_eq(strlen(text), 1024);
    ck_assert_str_eq(text + 1019, "x...\n");
}
END_TEST

START_TEST(test_log_message_keeps_errno_and_its_line)
{
    char text[256];

    tiara_test_stderr_begin();
    errno = ENOSPC;
    tiara_error("two\nlines\n");
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_str_eq(tiara_test_stderr_end(text, sizeof(text)), "tiara: [-] error: two lines \n");
}
END_TEST

static void *lines_write(void *arg)
{
    for (int i = 0; i < 500; i++)
        tiara_warn("%s", (const char *)arg);
    return arg;
}

START_TEST(test_log_lines_of_threads_do_not_mix)
{
    static char text[1 << 18];
    char messages[3][101];
    pthread_t threads[3];
    int nlines = 0;

    tiara_test_stderr_begin();
    for (int i = 0; i < 3; i++) {
        memset(messages[i], 'a' + i, 100);
        messages[i][100] = '\0';
        ck_assert_int_eq(pthread_create(&threads[i], NULL, lines_write, messages[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    tiara_test_stderr_end(text, sizeof(text));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), nlines++) {
        const char *message = strrchr(line, ' ');

        ck_assert_ptr_nonnull(message);
        ck_assert_int_eq(strncmp(line, "tiara: [-] warn: ", 17), 0);
        ck_assert_uint_eq(strspn(message + 1, (char[]){message[1], '\0'}), 100);
    }
    ck_assert_int_eq(nlines, 1500);
}
END_TEST

START_TEST(test_err_every_code_has_its_own_text)
{
    for (int a = 0; a < TIARA_NERR; a++) {
        ck_assert_str_ne(tiara_err_text((enum tiara_err)a), "unknown error");
        for (int b = 0; b < a; b++)
            ck_assert_str_ne(tiara_err_text((enum tiara_err)a), tiara_err_text((enum tiara_err)b));
    }
    ck_assert_str_eq(tiara_err_text(TIARA_NERR), "unknown error");
    ck_assert_str_eq(tiara_err_text((enum tiara_err) - 1), "unknown error");
}
END_TEST

START_TEST(test_err_first_keeps_the_first)
{
    ck_assert_int_eq(tiara_err_first(TIARA_ERR_SYS, TIARA_ERR_MPI), TIARA_ERR_SYS);
    ck_assert_int_eq(tiara_err_first(TIARA_OK, TIARA_ERR_MPI), TIARA_ERR_MPI);
    ck_assert_int_eq(tiara_err_first(TIARA_ERR_SYS, TIARA_OK), TIARA_ERR_SYS);
}
END_TEST

START_TEST(test_text_any_size_holds_what_fits)
{
    static const char whole[] = "one 2 three";

    for (size_t size = 0; size < 20; size++) {
        struct tiara_test_guarded guarded;
        struct tiara_text text = {NULL, size, 0};

        tiara_test_guarded_init(&guarded, size, 1);
        text.text = (char *)guarded.data;
        tiara_text_add(&text, "one ");
        tiara_text_add(&text, "%d", 2);
        tiara_text_add(&text, "%s", " three");
        ck_assert_uint_eq(text.length, strlen(whole));
        if (size > 0) {
            size_t fits = size - 1 < strlen(whole) ? size - 1 : strlen(whole);

            ck_assert_uint_eq(strlen(text.text), fits);
            ck_assert_int_eq(strncmp(text.text, whole, fits), 0);
        }
        ck_assert(tiara_test_guarded_is_intact(&guarded));
        tiara_test_guarded_fini(&guarded);
    }
}
END_TEST

/* What a test does to the log's settings must not reach the next one, whether tests fork or not. */
static void settings_reset(void)
{
    tiara_log_setup(TIARA_LOG_WARN, -1);
}

int main(void)
{
    Suite *suite = suite_create("base log");
    TCase *tcase = tcase_create("log");

    tcase_add_checked_fixture(tcase, NULL, settings_reset);
    tcase_add_test(tcase, test_log_before_setup_has_no_rank);
    tcase_add_test(tcase, test_log_level_decides_what_is_shown);
    tcase_add_test(tcase, test_log_long_message_is_cut_to_one_line);
    tcase_add_test(tcase, test_log_message_keeps_errno_and_its_line);
    tcase_add_test(tcase, test_log_lines_of_threads_do_not_mix);
    tcase_add_test(tcase, test_err_every_code_has_its_own_text);
    tcase_add_test(tcase, test_err_first_keeps_the_first);
    tcase_add_test(tcase, test_text_any_size_holds_what_fits);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
