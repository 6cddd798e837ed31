/*
 * What unit-type tests share: running a suite, random numbers that can be repeated, test data,
 * buffers that notice writes outside, and a look at what went to stderr.
 *
 * It includes nothing of the library, so that expected values never come from what is tested.
 */
#ifndef TIARA_TEST_HARNESS_TEST_H
#define TIARA_TEST_HARNESS_TEST_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Runs @suite and returns main's exit status: 0 all passed, 1 otherwise. @suite is given.
 * CK_FORK_GETENV is the usual mode (CK_FORK=no helps in a debugger); CK_NOFORK is a must with
 * threads or MPI.
 */
int tiara_test_run(Suite *suite, enum fork_status fork);
/* Prints why the program cannot test here and ends it with 77. */
void tiara_test_skip(const char *reason) __attribute__((noreturn));

/* TIARA_TEST_SEED, else a new seed; printed so that a failure can be repeated. */
uint64_t tiara_test_seed(void);

/* A stream of random numbers; seed it with any value. */
struct tiara_test_random {
    uint64_t state;
};
uint64_t tiara_test_random_next(struct tiara_test_random *random);
/* 0 .. n - 1; n > 0. */
uint64_t tiara_test_random_below(struct tiara_test_random *random, uint64_t n);

/* 64 bits that depend on rank and index; any two differ, for practical purposes. */
uint64_t tiara_test_bits(int rank, size_t index);
/* A small integer, -500 .. 499: sums of 16000 ranks are exact in any order, even in a float. */
int tiara_test_value(int rank, size_t index);
/* The sum of tiara_test_value over ranks 0 .. nranks - 1. */
int64_t tiara_test_sum(int nranks, size_t index);
/* Positive values of very different size, whose sum depends on the order of addition. */
double tiara_test_inexact(int rank, size_t index);

/*
 * @bytes bytes of 0xa5 at data, @misalign bytes behind a multiple of 4096, between two guards of
 * 4096 bytes.
 */
struct tiara_test_guarded {
    unsigned char *data;
    size_t bytes;
    unsigned char *whole; /* the allocation; owned */
};
void tiara_test_guarded_init(struct tiara_test_guarded *guarded, size_t bytes, size_t misalign);
/* False when something was written just before or behind data. */
bool tiara_test_guarded_is_intact(const struct tiara_test_guarded *guarded);
void tiara_test_guarded_fini(struct tiara_test_guarded *guarded);

/* Entries of a directory whose names contain @part. */
int tiara_test_count_entries(const char *path, const char *part);

/* From begin to end, stderr of the whole process goes into @text. Not to be nested. */
void tiara_test_stderr_begin(void);
/* Returns @text, cut at @size - 1 characters. */
char *tiara_test_stderr_end(char *text, size_t size);

#endif
