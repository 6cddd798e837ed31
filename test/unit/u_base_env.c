/*
 * Environment variables: every type of value, what is said about a wrong value, and names that
 * nobody knows.
 */
#include "test/harness/test.h"
#include "base/env.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What the last environment_read() printed. */
static char said[8192];

/* Reads an environment of one setting such as "TIARA_SLOTS=3", or an empty one. */
static void environment_read(const char *setting)
{
    char copy[4096];
    char *environment[] = {(char *)"HOME=/", NULL, NULL};

    if (setting != NULL) {
        snprintf(copy, sizeof(copy), "%s", setting);
        environment[1] = copy;
    }
    tiara_test_stderr_begin();
    tiara_env_read(environment, true);
    tiara_test_stderr_end(said, sizeof(said));
}

START_TEST(test_env_every_row_is_complete)
{
    for (int var = 0; var < TIARA_NENV; var++) {
        const struct tiara_env_row *row = tiara_env_row((enum tiara_env)var);
        size_t help = strlen(row->help);

        ck_assert_int_eq(strncmp(row->name, "TIARA_", 6), 0);
        ck_assert_msg(help > 20 && row->help[help - 1] == '.', "%s has no help", row->name);
        ck_assert_int_eq(row->type == TIARA_ENV_TYPE_CHOICE, row->choices[0] != '\0');
        if (var > 0)
            ck_assert_int_gt(strcmp(row->name, tiara_env_row((enum tiara_env)(var - 1))->name), 0);
    }
}
END_TEST

START_TEST(test_env_empty_environment_gives_the_defaults)
{
    static const struct {
        enum tiara_env var;
        int64_t value;
        const char *text;
    } defaults[] = {
        {TIARA_ENV_ALGO, 0, "auto"},
        {TIARA_ENV_CELL_STORE, 0, "auto"},
        {TIARA_ENV_CHUNK, 0, "0"},
        {TIARA_ENV_CMA, 0, "auto"},
        {TIARA_ENV_CUDA, 0, "auto"},
        {TIARA_ENV_CUDA_AWARE, 0, "auto"},
        {TIARA_ENV_CUDA_CELL, 2 << 20, "2m"},
        {TIARA_ENV_CUDA_MAP, 1, "yes"},
        {TIARA_ENV_INTER, 0, "auto"},
        {TIARA_ENV_ISA, 0, "auto"},
        {TIARA_ENV_LAYOUT, 0, ""},
        {TIARA_ENV_LEADERS, 0, "0"},
        {TIARA_ENV_LOG, 1, "warn"},
        {TIARA_ENV_NET, 0, "auto"},
        {TIARA_ENV_ONE_SHOT, 0, "0"},
        {TIARA_ENV_PMPI, 1, "on"},
        {TIARA_ENV_PMPI_AFTER, 8, "8"},
        {TIARA_ENV_PMPI_EVERYWHERE, 0, "0"},
        {TIARA_ENV_PROGRESS, 0, "auto"},
        {TIARA_ENV_REPORT, 0, "0"},
        {TIARA_ENV_REPRODUCIBLE, 0, "0"},
        {TIARA_ENV_SHM, 0, "auto"},
        {TIARA_ENV_SHM_BUDGET, 1 << 30, "1g"},
        {TIARA_ENV_SLOTS, 0, "0"},
        {TIARA_ENV_SPIN, -1, "-1"},
        {TIARA_ENV_TIMEOUT, 0, "0"},
        {TIARA_ENV_TRACE, 0, ""},
        {TIARA_ENV_WARN, 30000000, "30"},
    };

    ck_assert_uint_eq(COUNT(defaults), TIARA_NENV);
    environment_read("TIARA_SLOTS=4");
    environment_read(NULL);
    ck_assert_str_eq(said, "");
    for (size_t i = 0; i < COUNT(defaults); i++) {
        ck_assert_int_eq(tiara_env_value(defaults[i].var), defaults[i].value);
        ck_assert_str_eq(tiara_env_text(defaults[i].var), defaults[i].text);
    }
}
END_TEST

START_TEST(test_env_good_value_is_taken)
{
    static const struct {
        enum tiara_env var;
        const char *text;
        int64_t value;
    } cases[] = {
        {TIARA_ENV_SLOTS, "8", 8},
        {TIARA_ENV_SLOTS, "0", 0},
        {TIARA_ENV_SPIN, "-1", -1},
        {TIARA_ENV_SPIN, "2147483647", 2147483647},
        {TIARA_ENV_CHUNK, "4096", 4096},
        {TIARA_ENV_CHUNK, "64k", 65536},
        {TIARA_ENV_CHUNK, "64K", 65536},
        {TIARA_ENV_CHUNK, "64KiB", 65536},
        {TIARA_ENV_CHUNK, "3m", 3 << 20},
        {TIARA_ENV_CHUNK, "3MiB", 3 << 20},
        {TIARA_ENV_SHM_BUDGET, "2G", INT64_C(2) << 30},
        {TIARA_ENV_SHM_BUDGET, "1024gib", INT64_C(1) << 40},
        {TIARA_ENV_REPRODUCIBLE, "1", 1},
        {TIARA_ENV_REPRODUCIBLE, "yes", 1},
        {TIARA_ENV_REPRODUCIBLE, "ON", 1},
        {TIARA_ENV_REPRODUCIBLE, "true", 1},
        {TIARA_ENV_REPRODUCIBLE, "0", 0},
        {TIARA_ENV_REPRODUCIBLE, "no", 0},
        {TIARA_ENV_REPRODUCIBLE, "off", 0},
        {TIARA_ENV_REPRODUCIBLE, "False", 0},
        {TIARA_ENV_CELL_STORE, "stream", 2},
        {TIARA_ENV_LOG, "debug", 3},
        {TIARA_ENV_ISA, "avx2", 2},
        {TIARA_ENV_SHM, "OFF", 1},
        {TIARA_ENV_TIMEOUT, "2", 2000000},
        {TIARA_ENV_TIMEOUT, "0.5", 500000},
        {TIARA_ENV_TIMEOUT, "1.0000019", 1000001},
        {TIARA_ENV_TIMEOUT, "3.", 3000000},
        {TIARA_ENV_ALGO, "ring", 0},
        {TIARA_ENV_TRACE, "/tmp/a b=c", 0},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        char setting[100];

        snprintf(
            setting, sizeof(setting), "%s=%s", tiara_env_row(cases[i].var)->name, cases[i].text);
        environment_read(setting);
        ck_assert_msg(said[0] == '\0', "%s: %s", setting, said);
        ck_assert_msg(tiara_env_value(cases[i].var) == cases[i].value, "%s", setting);
        ck_assert_str_eq(tiara_env_text(cases[i].var), cases[i].text);
    }
}
END_TEST

START_TEST(test_env_wrong_value_is_explained_and_the_default_used)
{
    static const char bytes[] = "bytes such as 4096, 64k, 1m or 2g, from 0 to 1g";
    static const char seconds[] = "seconds such as 30 or 0.5, from 0 to 31536000";
    static const char slots[] = "a whole number from 0 to 8";
    static const struct {
        enum tiara_env var;
        const char *text, *allowed;
    } cases[] = {
        {TIARA_ENV_SLOTS, "9", slots},
        {TIARA_ENV_SLOTS, "-1", slots},
        {TIARA_ENV_SLOTS, "3x", slots},
        {TIARA_ENV_SLOTS, " 3", slots},
        {TIARA_ENV_SLOTS, "-", slots},
        {TIARA_ENV_SLOTS, "99999999999999999999", slots},
        {TIARA_ENV_SPIN, "-2", "a whole number from -1 to 2147483647"},
        {TIARA_ENV_CHUNK, "64q", bytes},
        {TIARA_ENV_CHUNK, "k", bytes},
        {TIARA_ENV_CHUNK, "64kb", bytes},
        {TIARA_ENV_CHUNK, "64k ", bytes},
        {TIARA_ENV_CHUNK, "64k m", bytes},
        {TIARA_ENV_CHUNK, "2g", bytes},
        {TIARA_ENV_CHUNK, "-1", bytes},
        {TIARA_ENV_CHUNK, "9223372036854775807k", bytes},
        {TIARA_ENV_SHM_BUDGET, "1025g", "bytes such as 4096, 64k, 1m or 2g, from 0 to 1024g"},
        {TIARA_ENV_REPRODUCIBLE, "2", "one of 1 yes on true, 0 no off false"},
        {TIARA_ENV_CMA, "maybe", "one of auto on off"},
        {TIARA_ENV_CMA, "auto on", "one of auto on off"},
        {TIARA_ENV_CMA, "o", "one of auto on off"},
        {TIARA_ENV_WARN, "0,5", seconds},
        {TIARA_ENV_WARN, ".5", seconds},
        {TIARA_ENV_WARN, "1s", seconds},
        {TIARA_ENV_WARN, "-1", seconds},
        {TIARA_ENV_WARN, "31536001", seconds},
        {TIARA_ENV_WARN, "9223372036854775807", seconds},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct tiara_env_row *row = tiara_env_row(cases[i].var);
        char setting[100], expected[300];
        int64_t fallback;

        environment_read(NULL);
        fallback = tiara_env_value(cases[i].var);
        snprintf(setting, sizeof(setting), "%s=%s", row->name, cases[i].text);
        environment_read(setting);
        snprintf(expected, sizeof(expected),
            "tiara: [-] error: %s \"%s\" is not acceptable: expected %s; using the default "
            "\"%s\"\n",
            row->name, cases[i].text, cases[i].allowed, row->fallback);
        ck_assert_str_eq(said, expected);
        ck_assert_int_eq(tiara_env_value(cases[i].var), fallback);
        ck_assert_str_eq(tiara_env_text(cases[i].var), row->fallback);
    }
}
END_TEST

START_TEST(test_env_text_of_any_length_is_safe)
{
    char setting[4096] = "TIARA_LAYOUT=";
    size_t name = strlen(setting);

    memset(setting + name, '1', 1024);
    environment_read(setting);
    ck_assert_ptr_nonnull(strstr(said, "expected at most 1023 characters; using the default \"\""));
    ck_assert_str_eq(tiara_env_text(TIARA_ENV_LAYOUT), "");
    setting[name + 1023] = '\0';
    environment_read(setting);
    ck_assert_str_eq(said, "");
    ck_assert_str_eq(tiara_env_text(TIARA_ENV_LAYOUT), setting + name);
}
END_TEST

START_TEST(test_env_empty_value_counts_as_not_set)
{
    environment_read("TIARA_CHUNK=");
    ck_assert_str_eq(said, "");
    environment_read("TIARA_ALGO=");
    ck_assert_str_eq(tiara_env_text(TIARA_ENV_ALGO), "auto");
}
END_TEST

/* @name must be warned about; @meant NULL: without a suggestion. */
static void unknown_check(const char *name, const char *meant)
{
    char setting[200], expected[200];

    snprintf(setting, sizeof(setting), "%s=1", name);
    environment_read(setting);
    if (meant != NULL)
        snprintf(expected, sizeof(expected),
            "tiara: [-] warn: unknown variable %s: did you mean %s?\n", name, meant);
    else
        snprintf(expected, sizeof(expected),
            "tiara: [-] warn: unknown variable %s: tiara-info lists the known ones\n", name);
    ck_assert_str_eq(said, expected);
}

START_TEST(test_env_unknown_name_is_warned_about)
{
    unknown_check("TIARA_SLOT", "TIARA_SLOTS");
    unknown_check("TIARA_CHUNKS", "TIARA_CHUNK");
    unknown_check("TIARA_LAYUOT", "TIARA_LAYOUT");
    unknown_check("TIARA_chunk", "TIARA_CHUNK");
    unknown_check("TIARA_ALGORITHM", "TIARA_ALGO");
    unknown_check("TIARA_LOG_LEVEL", "TIARA_LOG");
    unknown_check("TIARA_SHMBUDGET", "TIARA_SHM_BUDGET");
    unknown_check("TIARA_ONESHOT", "TIARA_ONE_SHOT");
    unknown_check("TIARA_FOO", NULL);
    unknown_check("TIARA_", NULL);
    unknown_check("TIARA_SOMETHING_ELSE", NULL);
    unknown_check("TIARA_SOMETHING_THAT_IS_LONGER_THAN_ANY_NAME", NULL);
}
END_TEST

START_TEST(test_env_names_of_others_are_ignored)
{
    static const char *const names[] = {
        "TIARA_TEST_SEED", "TIARA_CHECK_X", "TIARAX", "tiara_chunk", "OMPI_TIARA_CHUNK"};

    for (size_t i = 0; i < COUNT(names); i++) {
        char setting[100];

        snprintf(setting, sizeof(setting), "%s=1", names[i]);
        environment_read(setting);
        ck_assert_str_eq(said, "");
    }
}
END_TEST

START_TEST(test_env_first_read_wins)
{
    char *environment[] = {(char *)"TIARA_SLOTS=2", NULL};

    environment_read("TIARA_SLOTS=5");
    tiara_env_read(environment, false);
    ck_assert_int_eq(tiara_env_value(TIARA_ENV_SLOTS), 5);
}
END_TEST

START_TEST(test_env_process_environment_is_read)
{
    setenv("TIARA_LEADERS", "3", 1);
    tiara_env_read(NULL, true);
    ck_assert_int_eq(tiara_env_value(TIARA_ENV_LEADERS), 3);
    unsetenv("TIARA_LEADERS");
    ck_assert_int_eq(tiara_env_value(TIARA_ENV_LEADERS), 3);
}
END_TEST

START_TEST(test_env_describe_names_every_variable)
{
    char text[8192], half[1000];
    size_t length;

    environment_read("TIARA_CHUNK=64k");
    length = tiara_env_describe(text, sizeof(text));
    ck_assert_uint_eq(length, strlen(text));
    for (int var = 0; var < TIARA_NENV; var++) {
        const struct tiara_env_row *row = tiara_env_row((enum tiara_env)var);

        ck_assert_ptr_nonnull(strstr(text, row->name));
        ck_assert_ptr_nonnull(strstr(text, row->help));
    }
    ck_assert_ptr_nonnull(strstr(
        text, "TIARA_CHUNK        64k      from environment default 0      bytes\n    Bytes of"));
    ck_assert_uint_eq(tiara_env_describe(half, sizeof(half)), length);
    ck_assert_int_eq(strncmp(half, text, sizeof(half) - 1), 0);
    ck_assert_uint_eq(tiara_env_describe(NULL, 0), length);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base env");
    TCase *tcase = tcase_create("env");

    tcase_add_test(tcase, test_env_every_row_is_complete);
    tcase_add_test(tcase, test_env_empty_environment_gives_the_defaults);
    tcase_add_test(tcase, test_env_good_value_is_taken);
    tcase_add_test(tcase, test_env_wrong_value_is_explained_and_the_default_used);
    tcase_add_test(tcase, test_env_text_of_any_length_is_safe);
    tcase_add_test(tcase, test_env_empty_value_counts_as_not_set);
    tcase_add_test(tcase, test_env_unknown_name_is_warned_about);
    tcase_add_test(tcase, test_env_names_of_others_are_ignored);
    tcase_add_test(tcase, test_env_first_read_wins);
    tcase_add_test(tcase, test_env_process_environment_is_read);
    tcase_add_test(tcase, test_env_describe_names_every_variable);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
