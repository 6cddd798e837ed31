/*
 * Runs Check suites under mpirun.
 *
 * A rank that leaves a test early hangs its peers. So tests here never assert in the middle: they
 * call mt_check(), which records a failure and goes on, and end in mt_agree(), where all ranks
 * learn whether any of them failed and then fail together. All ranks end with the same exit status:
 * 0, 1, or 77 for a skipped program.
 *
 * How a program is to be run stands in its source, one line per run:
 *     tiara-test: mpirun N [ENV=VALUE ...]     N ranks on this machine
 *     tiara-test: vcluster AxB [ENV=VALUE ...] on A virtual nodes of B ranks
 *     tiara-test: timeout SECONDS              for each run of the program
 * A program without such lines is started by itself.
 */
#ifndef TIARA_TEST_MPI_RUN_H
#define TIARA_TEST_MPI_RUN_H

#include <check.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

extern int mt_rank, mt_size; /* in MPI_COMM_WORLD */
extern MPI_Comm
    mt_private; /* of all ranks, for the harness and for comparisons; never seen by Tiara */

/*
 * Initialises MPI with @required threads and returns the test case to add tests to. Sets
 * MPI_ERRORS_RETURN on world and self. An alarm (TIARA_TEST_ALARM seconds, 120 by default) turns a
 * hang into a failure that names the test. Skips the program, and does not return, where
 * TIARA_TEST_MEMORY asks for memory that there is not.
 */
TCase *mt_begin(int *argc, char ***argv, const char *name, int required);
/* Runs the tests, finalizes MPI, and returns the exit status of the program. */
int mt_end(void);
/* Instead of mt_end: finalizes MPI and returns 77, after printing @reason. */
int mt_skip(const char *reason);

/* Records a failure of the current test unless @ok; the first few are printed with the rank. Any
 * thread. Returns @ok. */
bool mt_check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* True when the current test has failed nowhere so far. Collective. */
bool mt_all_well(void);
/* The last line of a test: fails it on all ranks if it failed on any. Collective. */
void mt_agree(void);
/* What the program is doing, for the message of the alarm. */
void mt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * The seed of this run, equal on all ranks: TIARA_TEST_SEED or the clock; printed once. Collective.
 */
uint64_t mt_seed(void);
/* A variable of the test as a number. */
long mt_env(const char *name, long fallback);
/* How much to test: TIARA_TEST_SWEEP, -1 a taste, 0 little, 1 the usual, 2 everything. */
int mt_sweep(void);

#endif
