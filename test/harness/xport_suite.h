/*
 * The conformance suite of transports: what lib/xport/xport.h promises, as cases that run on every
 * row.
 *
 * A case is run by all ranks of a group at once, threads, forked processes or MPI's. Its first
 * argument says what may be looked at besides: with MPI in the process its descriptors change by
 * themselves, and a bad address is an error only where it is another process's.
 */
#ifndef TIARA_TEST_XPORT_SUITE_H
#define TIARA_TEST_XPORT_SUITE_H

#include "xport/xport.h"

enum tiara_suite_ranks {
    TIARA_SUITE_THREADS,
    TIARA_SUITE_PROCESSES,
    TIARA_SUITE_MPI
};

struct tiara_xport_suite {
    const struct tiara_xport *row;
    enum tiara_suite_ranks ranks;
    bool allocates; /* open takes private memory, so that its failure can be tried */
    int descriptors; /* that an open object holds */
};

/* How many cases there are, and the name of one. */
int tiara_xport_suite_count(void);
const char *tiara_xport_suite_name(int i);
/* Runs case @i as one rank of @group (whose params the row understands); returns this rank's
 * failures. A case for something that the row does not promise passes. Collective over @group. */
int tiara_xport_suite_run(
    const struct tiara_xport_suite *suite, int i, const struct tiara_xport_group *group);

#endif
