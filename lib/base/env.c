/*
 * The table of environment variables: names, defaults, bounds and help, and their parser.
 *
 * The table is the only list. Messages, tiara-info and the manual all read it, so that a new
 * variable is one row here and one name in the enum. Values are copied into static storage, because
 * a program may change its environment later and because reading variables must not fail.
 */
#include "base/env.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/text.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PREFIX "TIARA_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)
/* Room for an accepted text: a list of one node number per rank for some hundred ranks. */
#define TEXT_BYTES 1024
/* Longest unknown name that a suggestion is looked for. */
#define NAME_BYTES 32

#define GIB (INT64_C(1) << 30)
#define TIB (INT64_C(1) << 40)
#define SECOND INT64_C(1000000)
#define YEAR (INT64_C(365) * 24 * 3600 * SECOND)

static const struct tiara_env_row rows[TIARA_NENV] = {
    [TIARA_ENV_ALGO] = {"TIARA_ALGO", TIARA_ENV_TYPE_TEXT, "auto", "", 0, 0,
        "Algorithm for every call that it can do: auto chooses by size and layout, mpi passes "
        "calls to the MPI below, else a name that tiara-plan lists."},
    [TIARA_ENV_CELL_STORE] = {"TIARA_CELL_STORE", TIARA_ENV_TYPE_CHOICE, "auto",
        "auto plain stream string", 0, 0,
        "Instructions that write shared cells: ordinary stores, streaming stores or string moves; "
        "auto takes string moves where the CPU says that they are fast."},
    [TIARA_ENV_CHUNK] = {"TIARA_CHUNK", TIARA_ENV_TYPE_BYTES, "0", "", 0, GIB,
        "Bytes of the vector in one pipelined chunk; 0 chooses by size and layout."},
    [TIARA_ENV_CMA] = {"TIARA_CMA", TIARA_ENV_TYPE_CHOICE, "auto", "auto on off", 0, 0,
        "Single copy between processes of a node (process_vm_readv): on uses it for large vectors "
        "where it is allowed; auto does not, as copies through cells were never slower."},
    [TIARA_ENV_CUDA] = {"TIARA_CUDA", TIARA_ENV_TYPE_CHOICE, "auto", "auto on off", 0, 0,
        "Buffers in GPU memory: auto takes part where a driver is there and the process uses it; "
        "on looks for it also where no driver shows; off never, and such buffers must not be "
        "given."},
    [TIARA_ENV_CUDA_AWARE] = {"TIARA_CUDA_AWARE", TIARA_ENV_TYPE_CHOICE, "auto", "auto on off", 0,
        0,
        "Whether the MPI below takes GPU memory: auto asks it; off sends through pinned host "
        "memory."},
    [TIARA_ENV_CUDA_CELL] = {"TIARA_CUDA_CELL", TIARA_ENV_TYPE_BYTES, "2m", "", 65536, GIB,
        "Bytes of GPU memory for each of the 4 chunks in flight of a communicator."},
    [TIARA_ENV_CUDA_MAP] = {"TIARA_CUDA_MAP", TIARA_ENV_TYPE_BOOL, "yes", "", 0, 0,
        "Whether ranks of a node may map each other's GPU buffers; else these are copied to "
        "cells."},
    [TIARA_ENV_INTER] = {"TIARA_INTER", TIARA_ENV_TYPE_TEXT, "auto", "", 0, 0,
        "Algorithm between the nodes in hier: auto chooses by size, else a flat algorithm that "
        "tiara-plan lists."},
    [TIARA_ENV_ISA] = {"TIARA_ISA", TIARA_ENV_TYPE_CHOICE, "auto", "auto portable avx2 avx512", 0,
        0,
        "Best instruction set for reductions; auto takes the best that the CPU has; all give the "
        "same bits."},
    [TIARA_ENV_LAYOUT] = {"TIARA_LAYOUT", TIARA_ENV_TYPE_TEXT, "", "", 0, 0,
        "Pretended placement of ranks on nodes: 2x4, 2x4:rr, 3+1, or one node number per rank as "
        "in 0,0,1,1; empty takes the real one."},
    [TIARA_ENV_LEADERS] = {"TIARA_LEADERS", TIARA_ENV_TYPE_INT, "0", "", 0, INT32_MAX,
        "Ranks per node that speak on the network, at most those of the smallest node; 0 takes "
        "that many."},
    [TIARA_ENV_LOG] = {"TIARA_LOG", TIARA_ENV_TYPE_CHOICE, "warn", "error warn info debug", 0, 0,
        "Most detailed messages on stderr: info once per communicator, debug once per call."},
    [TIARA_ENV_NET] = {"TIARA_NET", TIARA_ENV_TYPE_TEXT, "auto", "", 0, 0,
        "Transport of messages between nodes: auto takes the best that works on all ranks, else "
        "one by name: mpi."},
    [TIARA_ENV_ONE_SHOT] = {"TIARA_ONE_SHOT", TIARA_ENV_TYPE_BYTES, "0", "", 0, GIB,
        "Largest vector in bytes that each rank of a node reduces alone and whole; 0 chooses by "
        "the ranks of a node."},
    [TIARA_ENV_PMPI] = {"TIARA_PMPI", TIARA_ENV_TYPE_CHOICE, "on", "off on verify", 0, 0,
        "What the preloaded library does: nothing, Tiara's collectives instead of MPI's, or both "
        "and compare."},
    [TIARA_ENV_PMPI_AFTER] = {"TIARA_PMPI_AFTER", TIARA_ENV_TYPE_INT, "8", "", 0, INT32_MAX,
        "Collective calls on a communicator that the preloaded library leaves to MPI before it "
        "takes the communicator over."},
    [TIARA_ENV_PMPI_EVERYWHERE] = {"TIARA_PMPI_EVERYWHERE", TIARA_ENV_TYPE_BOOL, "0", "", 0, 0,
        "1 says that all ranks have the preloaded library, where the job's starter cannot tell."},
    [TIARA_ENV_PROGRESS] = {"TIARA_PROGRESS", TIARA_ENV_TYPE_CHOICE, "auto", "auto thread call", 0,
        0,
        "Who drives nonblocking calls: the program's calls and a thread inside nodes, a thread "
        "also between nodes, or only the program's calls."},
    [TIARA_ENV_REPORT] = {"TIARA_REPORT", TIARA_ENV_TYPE_BOOL, "0", "", 0, 0,
        "1 prints at MPI_Finalize what the preloaded library intercepted, and what it gained."},
    [TIARA_ENV_REPRODUCIBLE] = {"TIARA_REPRODUCIBLE", TIARA_ENV_TYPE_BOOL, "0", "", 0, 0,
        "1 gives results whose bits do not depend on layout, chunk or algorithm, at some cost in "
        "speed."},
    [TIARA_ENV_SHM] = {"TIARA_SHM", TIARA_ENV_TYPE_CHOICE, "auto", "auto off", 0, 0,
        "Whether ranks of a node share memory: auto by files without names (memfd), handed over "
        "by sockets or /proc; off leaves calls to the MPI below."},
    [TIARA_ENV_SHM_BUDGET] = {"TIARA_SHM_BUDGET", TIARA_ENV_TYPE_BYTES, "1g", "", 0, TIB,
        "Bytes of shared memory that Tiara takes at most, per node and group of processes; calls "
        "beyond go to the MPI below."},
    [TIARA_ENV_SLOTS] = {"TIARA_SLOTS", TIARA_ENV_TYPE_INT, "0", "", 0, 8,
        "Chunks in flight at a time, 1 to 8; 0 takes 8."},
    [TIARA_ENV_SPIN] = {"TIARA_SPIN", TIARA_ENV_TYPE_INT, "-1", "", -1, INT32_MAX,
        "Tests of a condition before a waiting rank first yields its core; -1 derives it from the "
        "ranks and cores of the machine."},
    [TIARA_ENV_TIMEOUT] = {"TIARA_TIMEOUT", TIARA_ENV_TYPE_SECONDS, "0", "", 0, YEAR,
        "Seconds after which a wait ends with an error; 0 waits for ever, as MPI does."},
    [TIARA_ENV_TRACE] = {"TIARA_TRACE", TIARA_ENV_TYPE_TEXT, "", "", 0, 0,
        "Prefix of the files, one per rank, that receive the times of all operations; empty "
        "writes none."},
    [TIARA_ENV_WARN] = {"TIARA_WARN", TIARA_ENV_TYPE_SECONDS, "30", "", 0, YEAR,
        "Seconds of waiting after which the watchdog says who is missing; 0 keeps it silent."},
};

/* Names that other parts of the project read by themselves. */
static const char *const reserved[] = {"TIARA_TEST_", "TIARA_CHECK_"};

struct env_value {
    int64_t value;
    char text[TEXT_BYTES];
    bool is_set;
};

/* Process-wide, like the environment. Written under the lock, before ready. */
static struct env_value values[TIARA_NENV];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tiara_u32 ready;

const struct tiara_env_row *tiara_env_row(enum tiara_env var)
{
    return &rows[var];
}

/* The index of @word among the blank-separated @words, or -1. Case does not matter. */
static int word_find(const char *words, const char *word)
{
    size_t length = strlen(word);
    int index = 0;

    if (length == 0 || strchr(word, ' ') != NULL)
        return -1;
    for (const char *at = words; *at != '\0'; index++) {
        size_t span = strcspn(at, " ");

        if (span == length && strncasecmp(at, word, length) == 0)
            return index;
        at += span + (at[span] == ' ');
    }
    return -1;
}

/* Digits at *@at into @number_out, moving behind them; false when there are none or too many. */
static bool digits_parse(const char **at, int64_t *number_out)
{
    int64_t number = 0;
    const char *first = *at;

    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, **at - '0', &number))
            return false;
    *number_out = number;
    return *at != first;
}

static bool int_parse(const char *text, int64_t *value_out)
{
    bool negative = *text == '-';

    text += negative;
    if (!digits_parse(&text, value_out))
        return false;
    *value_out = negative ? -*value_out : *value_out;
    return *text == '\0';
}

static bool bytes_parse(const char *text, int64_t *value_out)
{
    int64_t number;
    int unit;

    if (!digits_parse(&text, &number))
        return false;
    unit = *text == '\0' ? 0 : word_find("k kib m mib g gib", text);
    if (unit < 0)
        return false;
    if (*text != '\0')
        unit = unit / 2 + 1;
    return !__builtin_mul_overflow(number, INT64_C(1) << (10 * unit), value_out);
}

/* By hand, because strtod reads "0,5" or "0.5" depending on the program's locale. */
static bool seconds_parse(const char *text, int64_t *value_out)
{
    int64_t whole, place = SECOND / 10;

    if (!digits_parse(&text, &whole) || __builtin_mul_overflow(whole, SECOND, value_out))
        return false;
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++, place /= 10)
            if (__builtin_add_overflow(*value_out, (*text - '0') * place, value_out))
                return false;
    return *text == '\0';
}

/* True when @text is acceptable for @row. */
static bool value_parse(const struct tiara_env_row *row, const char *text, int64_t *value_out)
{
    int64_t value = 0;
    bool is_good = true;

    switch (row->type) {
    case TIARA_ENV_TYPE_INT:
        is_good = int_parse(text, &value);
        break;
    case TIARA_ENV_TYPE_BYTES:
        is_good = bytes_parse(text, &value);
        break;
    case TIARA_ENV_TYPE_SECONDS:
        is_good = seconds_parse(text, &value);
        break;
    case TIARA_ENV_TYPE_CHOICE:
        *value_out = word_find(row->choices, text);
        return *value_out >= 0;
    case TIARA_ENV_TYPE_BOOL:
        /* no and yes alternate */
        value = word_find("0 1 no yes off on false true", text);
        *value_out = value % 2;
        return value >= 0;
    case TIARA_ENV_TYPE_TEXT:
        break;
    }
    *value_out = value;
    return is_good && value >= row->min && value <= row->max;
}

/* What @row allows, as the end of a sentence that begins with "expected". */
static void allowed_print(const struct tiara_env_row *row, char *text, size_t size)
{
    long long min = row->min, max = row->max;

    switch (row->type) {
    case TIARA_ENV_TYPE_INT:
        snprintf(text, size, "a whole number from %lld to %lld", min, max);
        break;
    case TIARA_ENV_TYPE_BYTES:
        snprintf(
            text, size, "bytes such as 4096, 64k, 1m or 2g, from %lld to %lldg", min, max / GIB);
        break;
    case TIARA_ENV_TYPE_SECONDS:
        snprintf(
            text, size, "seconds such as 30 or 0.5, from %lld to %lld", min / SECOND, max / SECOND);
        break;
    case TIARA_ENV_TYPE_CHOICE:
        snprintf(text, size, "one of %s%s", row->choices,
            row == &rows[TIARA_ENV_SHM] ? " (auto is memfd; windows of the MPI are no more)" : "");
        break;
    case TIARA_ENV_TYPE_BOOL:
        snprintf(text, size, "one of 1 yes on true, 0 no off false");
        break;
    case TIARA_ENV_TYPE_TEXT:
        snprintf(text, size, "at most %d characters", TEXT_BYTES - 1);
        break;
    }
}

/* The value of @name in @environment, or NULL. */
static const char *environment_find(char **environment, const char *name)
{
    size_t length = strlen(name);

    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* Reads one variable. An empty value is as good as none, so that a script can switch one off. */
static void variable_read(enum tiara_env var, char **environment)
{
    const struct tiara_env_row *row = &rows[var];
    struct env_value *value = &values[var];
    const char *text = environment_find(environment, row->name);
    char allowed[128];

    value->is_set = false;
    if (text != NULL && *text != '\0') {
        value->is_set = strlen(text) < TEXT_BYTES && value_parse(row, text, &value->value);
        if (!value->is_set) {
            allowed_print(row, allowed, sizeof(allowed));
            tiara_error("%s \"%.64s\" is not acceptable: expected %s; using the default \"%s\"",
                row->name, text, allowed, row->fallback);
        }
    }
    if (!value->is_set) {
        text = row->fallback;
        value_parse(row, text, &value->value);
    }
    snprintf(value->text, sizeof(value->text), "%s", text);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, drop or replace to turn @a into @b (Levenshtein), case ignored. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES], length = strlen(b);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            bool is_same = toupper((unsigned char)a[i - 1]) == toupper((unsigned char)b[j - 1]);
            size_t replaced = diagonal + !is_same;

            diagonal = row[j];
            row[j] = min_size(replaced, 1 + min_size(row[j], row[j - 1]));
        }
    }
    return row[length];
}

/* The name that the user may have meant: at most two letters off, or with something appended. */
static const char *name_suggest(const char *name)
{
    const char *best = NULL;
    size_t best_distance = 3;

    if (strlen(name) >= NAME_BYTES)
        return NULL;
    for (int var = 0; var < TIARA_NENV; var++) {
        const char *known = rows[var].name;
        size_t distance = edit_distance(name, known);

        if (strncasecmp(name, known, strlen(known)) == 0)
            distance = min_size(distance, 2);
        /* at least half of a short name must be right */
        if (distance < best_distance && 2 * distance <= strlen(name) - PREFIX_LENGTH) {
            best = known;
            best_distance = distance;
        }
    }
    return best;
}

static bool name_is_known(const char *name)
{
    for (int var = 0; var < TIARA_NENV; var++)
        if (strcmp(name, rows[var].name) == 0)
            return true;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (strncmp(name, reserved[i], strlen(reserved[i])) == 0)
            return true;
    return false;
}

/* Warns about variables that look as if they were meant for Tiara. */
static void unknown_warn(char **environment)
{
    for (; *environment != NULL; environment++) {
        char name[2 * NAME_BYTES];
        const char *meant;

        if (strncmp(*environment, PREFIX, PREFIX_LENGTH) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*environment, "="), *environment);
        if (name_is_known(name))
            continue;
        meant = name_suggest(name);
        if (meant != NULL)
            tiara_warn("unknown variable %s: did you mean %s?", name, meant);
        else
            tiara_warn("unknown variable %s: tiara-info lists the known ones", name);
    }
}

void tiara_env_read(char **environ_in, bool again)
{
    /* [env.ready] acquire: pairs with the release below; the values may be read after it. */
    if (tiara_load_acquire(&ready) && !again)
        return;
    pthread_mutex_lock(&lock);
    /* relaxed: only written under the lock that is held */
    if (!tiara_load_relaxed(&ready) || again) {
        static char *nothing[] = {NULL};
        char **environment = environ_in != NULL ? environ_in : environ;

        if (environment == NULL) /* after clearenv() */
            environment = nothing;
        for (int var = 0; var < TIARA_NENV; var++)
            variable_read((enum tiara_env)var, environment);
        unknown_warn(environment);
        /* [env.ready] release: the values above are visible to whoever sees the flag. */
        tiara_store_release(&ready, 1);
    }
    pthread_mutex_unlock(&lock);
}

int64_t tiara_env_value(enum tiara_env var)
{
    tiara_env_read(NULL, false);
    return values[var].value;
}

const char *tiara_env_text(enum tiara_env var)
{
    tiara_env_read(NULL, false);
    return values[var].text;
}

size_t tiara_env_describe(char *text, size_t size)
{
    static const char *const types[] = {"int", "bytes", "bool", "choice", "seconds", "text"};
    struct tiara_text out = {text, size, 0};

    tiara_env_read(NULL, false);
    if (size > 0)
        text[0] = '\0';
    for (int var = 0; var < TIARA_NENV; var++) {
        const struct tiara_env_row *row = &rows[var];
        const char *value = values[var].text;

        tiara_text_add(&out, "%-18s %-8s from %-11s default %-6s %s%s%s\n    %s\n", row->name,
            *value != '\0' ? value : "\"\"", values[var].is_set ? "environment" : "default",
            row->fallback[0] != '\0' ? row->fallback : "\"\"", types[row->type],
            row->choices[0] != '\0' ? ": " : "", row->choices, row->help);
    }
    return out.length;
}
