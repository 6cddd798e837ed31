/*
 * Log: one sink (stderr), four levels, one line per message, each line begins with the world rank.
 *
 * How often: error and warn when something happened, info once per communicator, debug once per
 * call. Lower case, "size 4096" and never "size=4096". User data is never logged.
 */
#ifndef TIARA_BASE_LOG_H
#define TIARA_BASE_LOG_H

#include <stdbool.h>

enum tiara_log_level {
    TIARA_LOG_ERROR = 0,
    TIARA_LOG_WARN,
    TIARA_LOG_INFO,
    TIARA_LOG_DEBUG
};

/* By comm, from TIARA_LOG and MPI_COMM_WORLD's rank. Before that: warn, and no rank (-1). */
void tiara_log_setup(enum tiara_log_level level, int world_rank);
bool tiara_log_enabled(enum tiara_log_level level);

/* printf-like; adds the prefix and the newline; writes the line with one write(2). Any thread. */
void tiara_log(enum tiara_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define tiara_error(...) tiara_log(TIARA_LOG_ERROR, __VA_ARGS__)
#define tiara_warn(...) tiara_log(TIARA_LOG_WARN, __VA_ARGS__)
#define tiara_info(...) tiara_log(TIARA_LOG_INFO, __VA_ARGS__)
#define tiara_debug(...)                                                                           \
    do {                                                                                           \
        if (tiara_log_enabled(TIARA_LOG_DEBUG))                                                    \
            tiara_log(TIARA_LOG_DEBUG, __VA_ARGS__);                                               \
    } while (0)

#endif
