/*
 * One line, one write(2): lines of several ranks that share a terminal never mix.
 *
 * A line is built on the stack, because logging must work when memory has run out and from any
 * thread. errno is kept, so that logging a failure does not change what the caller sees.
 */
#include "base/log.h"
#include "base/sync.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define NO_RANK UINT32_MAX

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Process-wide: there is one stderr. relaxed: two independent settings that guard no other data. */
static tiara_u32 max_level = TIARA_LOG_WARN;
static tiara_u32 own_rank = NO_RANK;

void tiara_log_setup(enum tiara_log_level level, int world_rank)
{
    tiara_store_relaxed(&max_level, (uint32_t)level);
    tiara_store_relaxed(&own_rank, world_rank < 0 ? NO_RANK : (uint32_t)world_rank);
}

bool tiara_log_enabled(enum tiara_log_level level)
{
    return (uint32_t)level <= tiara_load_relaxed(&max_level);
}

void tiara_log(enum tiara_log_level level, const char *format, ...)
{
    char line[LINE_MAX_BYTES], rank[16] = "-";
    uint32_t number = tiara_load_relaxed(&own_rank);
    size_t start, length;
    int saved_errno = errno, wanted;
    va_list args;

    if (!tiara_log_enabled(level))
        return;
    if (number != NO_RANK)
        snprintf(rank, sizeof(rank), "%u", number);
    start = (size_t)snprintf(line, sizeof(line), "tiara: [%s] %s: ", rank, level_names[level]);
    va_start(args, format);
    wanted = vsnprintf(line + start, sizeof(line) - start, format, args);
    va_end(args);

    length = start + (wanted > 0 ? (size_t)wanted : 0);
    if (length >= sizeof(line)) {
        length = sizeof(line) - 1;
        memset(line + length - 3, '.', 3);
    }
    /* texts from MPI and errno may bring their own line ends */
    for (size_t i = start; i < length; i++)
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' ';
    line[length++] = '\n';

    /* there is nowhere to report that reporting failed */
    ssize_t ignored = write(STDERR_FILENO, line, length);
    (void)ignored;
    errno = saved_errno;
}
