/*
 * Buffers with guards, comparison of bits across ranks, and the text that a call writes to standard
 * error.
 *
 * A buffer lives where TIARA_TEST_MEMORY says (mpi_device.h), and the test works on a view of it in
 * host memory: it writes data, lends the buffer to a call, takes it back and looks at data. A
 * buffer in host memory is its own view.
 *
 *     struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(bytes, 0);
 *     fill(send.data);
 *     TIARA_Allreduce(mt_buf_lend(&send), mt_buf_lend(&recv), ...);
 *     mt_buf_take(&send);
 *     mt_buf_take(&recv);
 */
#ifndef TIARA_TEST_MPI_BUF_H
#define TIARA_TEST_MPI_BUF_H

#include "mpi_device.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* @data[@bytes] lies between guard bytes that mt_buf_intact() looks at. */
struct mt_buf {
    unsigned char *data;
    size_t bytes;
    unsigned char *raw;
    size_t raw_bytes;
    enum mt_place place;
    unsigned char *there; /* raw, where the buffer lives */
};
/*
 * For what a call reads. @offset: bytes by which the buffer is moved off a 64-byte boundary. The
 * data is filled with 0x7f (a NaN in every float).
 */
struct mt_buf mt_buf_new(size_t bytes, size_t offset);
/* For what a call writes, in place or not. */
struct mt_buf mt_buf_new_result(size_t bytes, size_t offset);
/*
 * Moves data and guards to where the buffer lives; returns the address of the data there. What is
 * in the view of another memory is spoiled, so that no test passes that does not take it back.
 */
void *mt_buf_lend(struct mt_buf *buf);
void mt_buf_take(struct mt_buf *buf);
/* The guards hold what mt_buf_new wrote. */
bool mt_buf_intact(const struct mt_buf *buf);
void mt_buf_free(struct mt_buf *buf);

/* Well mixed bits of two numbers; the source of all test data. */
uint64_t mt_hash(uint64_t a, uint64_t b);
uint64_t mt_digest(const void *data, size_t bytes);
/*
 * True on all ranks of @comm when all hold the same bytes. Collective over @comm, by the MPI below.
 */
bool mt_same_bits(const void *data, size_t bytes, MPI_Comm comm);

/* Standard error of the process goes into memory from begin to end; end returns the text, to be
 * freed. */
void mt_stderr_begin(void);
char *mt_stderr_end(void);
/* The descriptor of standard error as the process was started with it. */
int mt_stderr_real(void);

#endif
