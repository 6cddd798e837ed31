/*
 * A nonblocking all-reduce of a test with all that belongs to it: its case (mpi_type.h), buffers
 * with guards, and what is to hold when it is complete. For the m_requests programs.
 */
#ifndef TIARA_TEST_M_REQUESTS_CASE_H
#define TIARA_TEST_M_REQUESTS_CASE_H

#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct mr_job {
    struct mt_case c;
    struct mt_buf send, recv;
    TIARA_Request request;
    uint64_t digest; /* of the input */
    int rank, nranks; /* of the case's communicator, which may be freed before the end */
};

/* Case number @salt on @comm: types, operators and sizes in turn, the small ones more often; by
 * random bits of the seed. */
struct mt_case mr_case(MPI_Comm comm, uint64_t salt);

/* Writes the input, and nothing of an earlier result. */
void mr_fill(struct mr_job *job);
struct mr_job mr_new(const struct mt_case *c);
const void *mr_lend(struct mr_job *job);
void mr_start(struct mr_job *job);

/* Makes a persistent request of it. */
void mr_init(struct mr_job *job);

/* Takes the buffers of a complete call back, and checks result, guards and input. */
bool mr_check(struct mr_job *job);
void mr_free(struct mr_job *job);
void mr_end(struct mr_job *job);
void mr_wait(struct mr_job *job);

/* @n calls on @comm, numbered from @salt on, and started in this order. */
void mr_start_all(struct mr_job *jobs, int n, MPI_Comm comm, uint64_t salt);

/* An order of @n numbers that is this rank's own. */
void mr_shuffle(int *order, int n, uint64_t seed);

/* Whether Tiara itself does nonblocking sums of doubles on @comm, in host memory; alike on all
 * ranks. */
bool mr_is_served(MPI_Comm comm);
bool mr_is_driven(void);

#endif
