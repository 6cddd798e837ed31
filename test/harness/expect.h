/*
 * Expectations for code that runs as a rank, in a thread or a forked process.
 *
 * Check's own assertions leave by a jump, which neither a thread nor a fork survives. An
 * expectation that does not hold is printed and counted; the rank goes on or returns, and the test
 * asserts that the count is 0.
 */
#ifndef TIARA_TEST_EXPECT_H
#define TIARA_TEST_EXPECT_H

#include <stdbool.h>
#include <stdio.h>

struct tiara_expect {
    int rank;
    int failures;
};

/* More failures of one rank than this are counted but not printed. */
#define TIARA_EXPECT_PRINTED 10

bool tiara_expect_that(
    struct tiara_expect *e, bool holds, const char *text, const char *file, int line);

/* The value of @holds; counts and prints when it is false. */
#define EXPECT(e, holds) tiara_expect_that((e), (holds), #holds, __FILE__, __LINE__)

#endif
