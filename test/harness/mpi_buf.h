/*
 * Buffers with guards, comparison of bits across ranks, and the text that a call writes to standard error.
 */
#ifndef TIARA_TEST_MPI_BUF_H
#define TIARA_TEST_MPI_BUF_H

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
};
/* @offset: bytes by which data is moved off a 64-byte boundary. The data is filled with 0x7f (a NaN in every float). */
struct mt_buf mt_buf_new(size_t bytes, size_t offset);
/* The guards hold what mt_buf_new wrote. */
bool mt_buf_intact(const struct mt_buf *buf);
void mt_buf_free(struct mt_buf *buf);

/* Well mixed bits of two numbers; the source of all test data. */
uint64_t mt_hash(uint64_t a, uint64_t b);
uint64_t mt_digest(const void *data, size_t bytes);
/* True on all ranks of @comm when all hold the same bytes. Collective over @comm, by the MPI below. */
bool mt_same_bits(const void *data, size_t bytes, MPI_Comm comm);

/* Standard error of the process goes into memory from begin to end; end returns the text, to be freed. */
void mt_stderr_begin(void);
char *mt_stderr_end(void);

#endif
