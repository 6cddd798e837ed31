/*
 * What the programs of this suite share. Each is a plain MPI program: it says what the standard
 * demands of the calls that the preload library takes over, and must pass with the library and
 * without it, on any MPI. Where an MPI is wrong itself, the program says so and looks away.
 *
 * What is under test is called by its MPI_ name; the harness, and what plain MPI would do, by the
 * PMPI_ name, which no preload library sees.
 */
#ifndef TIARA_TEST_PMPI_SUITE_H
#define TIARA_TEST_PMPI_SUITE_H

#include "mpi_buf.h"
#include "mpi_run.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

int s_rank(MPI_Comm comm);
int s_size(MPI_Comm comm);
int s_class(int err);

/* Element @i of rank @rank's data of call @salt; sums over many ranks fit in an int. */
int s_datum(uint64_t salt, int rank, size_t i);
void s_fill(int *data, size_t count, uint64_t salt, int rank);
int s_sum(uint64_t salt, int nranks, size_t i);

/* Is data[@count] the sum over the ranks of @comm, from element @first of the vector on? Else a
 * check fails. */
bool s_verify(const int *data, size_t count, size_t first, uint64_t salt, MPI_Comm comm);

/*
 * How often to do something that takes long where the ranks of an MPI spin without giving way, as
 * MPICH's do: each step of it takes a time slice of the system there, as soon as there are more
 * ranks than cores.
 */
int s_often(int usual, int few);

/* A run in which the user has given up MPI's promise of progress: only the program's own calls on
 * requests drive them. */
bool s_is_driven(void);

/* Two guarded buffers of ints, filled for an all-reduce of call @salt on @comm: what each call of
 * these tests needs. */
struct s_job {
    struct mt_buf send, recv;
    size_t count;
    uint64_t salt;
    MPI_Comm comm;
    bool in_place;
    uint64_t digest;
};

struct s_job s_job_new(MPI_Comm comm, size_t count, uint64_t salt, bool in_place);
const void *s_job_from(const struct s_job *job);

/* Checks what came out, and frees the buffers. The communicator may be gone: @comm has as many
 * ranks. */
bool s_job_end(struct s_job *job, MPI_Comm comm);

/* One blocking all-reduce of @count ints on @comm, and everything that is to hold after it. */
bool s_allreduce(MPI_Comm comm, size_t count, uint64_t salt, bool in_place);
void s_start(struct s_job *job, MPI_Request *request);

bool s_has_library(void);

/* How many calls on a communicator Tiara has served so far. */
struct s_served {
    long blocking, nonblocking;
};

/* As Tiara's report of @comm says. The process has opened the library, and no test is linked with
 * it. */
struct s_served s_count_served(MPI_Comm comm);
/* Nonblocking calls that need messages are MPI's, unless the program's calls are said to drive
 * them. */
bool s_serves_nonblocking(MPI_Comm comm);
/* Checks that since @before Tiara has served so many calls, if the library is there. */
void s_check_served(MPI_Comm comm, struct s_served before, long blocking, long nonblocking);

/*
 * So many calls on @comm, of both kinds, that the library takes it over; and a check that it has. A
 * program that stops short of that tests the MPI below.
 */
void s_warm_up(MPI_Comm comm);

/* Sizes of every class, and two in place. */
void s_use(MPI_Comm comm, uint64_t salt);

/* As mt_begin(). */
TCase *s_begin(int *argc, char ***argv, const char *name, int required);

#endif
