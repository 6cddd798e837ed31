/*
 * Expectations that do not hold, printed and counted.
 */
#include "test/harness/expect.h"

bool tiara_expect_that(
    struct tiara_expect *e, bool holds, const char *text, const char *file, int line)
{
    if (!holds && e->failures++ < TIARA_EXPECT_PRINTED)
        fprintf(stderr, "%s:%d: rank %d: expected %s\n", file, line, e->rank, text);
    return holds;
}
