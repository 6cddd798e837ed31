/*
 * Environment variables: one table is the only list (env.c).
 *
 * A wrong value is logged as an error that names the variable, the value and what is allowed, and
 * the default is used. An unknown TIARA_ variable is warned about with the nearest known name.
 * Values are read once (tiara_env_read); comm then exchanges the numeric values between ranks, so
 * that rank 0's decide for all.
 */
#ifndef TIARA_BASE_ENV_H
#define TIARA_BASE_ENV_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tiara_env {
    TIARA_ENV_ALGO, /* text: auto, mpi, or a name of the algorithm table, checked by comm */
    TIARA_ENV_CELL_STORE, /* choice: auto plain stream string */
    TIARA_ENV_CHUNK, /* bytes, 0 = auto */
    TIARA_ENV_CMA, /* choice: auto on off */
    TIARA_ENV_CUDA, /* choice: auto on off */
    TIARA_ENV_CUDA_AWARE, /* choice: auto on off: the MPI takes device memory */
    TIARA_ENV_CUDA_CELL, /* bytes of device memory per chunk in flight */
    TIARA_ENV_CUDA_MAP, /* bool: peers' buffers may be mapped */
    TIARA_ENV_INTER, /* text: auto or a flat algorithm: between nodes */
    TIARA_ENV_ISA, /* choice: auto portable avx2 avx512 */
    TIARA_ENV_LAYOUT, /* text: "" = from MPI and hwloc */
    TIARA_ENV_LEADERS, /* int, 0 = auto */
    TIARA_ENV_LOG, /* choice: error warn info debug */
    TIARA_ENV_NET, /* text: the transport between nodes */
    TIARA_ENV_ONE_SHOT, /* bytes: up to here each rank reduces everything itself; 0 = auto */
    TIARA_ENV_PMPI, /* choice: off on verify: what the interposition library does */
    TIARA_ENV_PMPI_AFTER, /* int: calls on a communicator that it leaves to MPI first */
    TIARA_ENV_PMPI_EVERYWHERE, /* bool: all ranks have it, where the starter cannot tell */
    TIARA_ENV_PROGRESS, /* choice: auto thread call */
    TIARA_ENV_REPORT, /* bool: the interposition library's report at MPI_Finalize */
    TIARA_ENV_REPRODUCIBLE, /* bool */
    TIARA_ENV_SHM, /* choice: auto off */
    TIARA_ENV_SHM_BUDGET, /* bytes of shared memory per node and process group */
    TIARA_ENV_SLOTS, /* int 1..8, chunks in flight, 0 = auto */
    TIARA_ENV_SPIN, /* int, tests before the first yield; -1 = auto */
    TIARA_ENV_TIMEOUT, /* seconds, 0 = never: end a wait with an error */
    TIARA_ENV_TRACE, /* text: file name prefix for a trace of every op; "" = off */
    TIARA_ENV_WARN, /* seconds, 0 = never: the watchdog names who is missing */
    TIARA_NENV
};

enum tiara_env_type {
    TIARA_ENV_TYPE_INT,
    TIARA_ENV_TYPE_BYTES, /* 4096, 64k, 1m, 2g: powers of 1024 */
    TIARA_ENV_TYPE_BOOL, /* 0 1 no yes off on false true */
    TIARA_ENV_TYPE_CHOICE, /* one of a list; value is the index */
    TIARA_ENV_TYPE_SECONDS, /* a decimal; value is microseconds */
    TIARA_ENV_TYPE_TEXT /* value 0; text kept */
};

struct tiara_env_row {
    const char *name;
    enum tiara_env_type type;
    const char *fallback; /* the default, as text in the same syntax */
    const char *choices; /* CHOICE: words separated by blanks */
    int64_t min, max; /* INT, BYTES, SECONDS (microseconds) */
    const char *help; /* one sentence; man page and tiara-info print it */
};
const struct tiara_env_row *tiara_env_row(enum tiara_env var);

/* Reads all variables of @environ_in (NULL: the process's). First call wins unless @again. Any
 * thread, cheap afterwards. */
void tiara_env_read(char **environ_in, bool again);
int64_t tiara_env_value(enum tiara_env var);
const char *tiara_env_text(enum tiara_env var); /* the accepted text, or the default's */
/* Two lines a variable, for people: name, value, where it came from, default and type; help.
 * Returns the length needed, like snprintf. */
size_t tiara_env_describe(char *text, size_t size);

#endif
