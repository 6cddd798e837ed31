/*
 * Elements that span much more memory than their data takes, or are large themselves; operators on
 * them; and how much memory a process has used.
 *
 * An element has ints at equal distances. Buffers are fresh pages, of which only those with ints
 * are touched: what a call takes beyond them shows in mt_peak_kib().
 */
#ifndef TIARA_TEST_MPI_WIDE_H
#define TIARA_TEST_MPI_WIDE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

struct mt_wide {
    MPI_Datatype type;
    int n; /* ints of an element, an even number */
    size_t step; /* bytes from one to the next */
    size_t extent;
};

enum mt_wide_shape {
    MT_WIDE_ENDS, /* two ints, at the ends */
    MT_WIDE_FULL, /* ints without holes */
    MT_WIDE_COLUMN, /* of a matrix: the next element lies one int further */
    MT_WIDE_NSHAPES
};
/* An element of @bytes, a multiple of 1024 (a column's: its span). */
struct mt_wide mt_wide_new(enum mt_wide_shape shape, size_t bytes);
void mt_wide_free(struct mt_wide *wide);

/*
 * Adds the ints; or, where it does not commute, composes maps x -> a x + b, of which two
 * neighbouring ints are one. The operators know the elements of one type at a time: of the last
 * mt_wide_op. Freed by the caller.
 */
MPI_Op mt_wide_op(const struct mt_wide *wide, bool commute);

/* Memory of @count elements; @fill: with the data of this rank's elements from @first on. */
char *mt_wide_buf(const struct mt_wide *wide, int count, bool fill);
void mt_wide_buf_free(const struct mt_wide *wide, int count, char *buf);
/* Are the elements at @buf the result of elements @first on of all ranks? Else a check fails. */
bool mt_wide_verify(
    const struct mt_wide *wide, int first, int count, bool commute, const char *buf);
/* Bytes that the data of @count elements takes. */
size_t mt_wide_data(const struct mt_wide *wide, int count);

/* The most memory that the process has ever had, and its present address space. */
long mt_peak_kib(void);
/* Memory beyond @more_mib of the present address space is refused: too much is an error, not the
 * end of the machine. */
void mt_limit_memory(size_t more_mib);

#endif
