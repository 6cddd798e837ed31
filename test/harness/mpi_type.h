/*
 * The predefined types and operators, with data and expected results for each: the oracle.
 *
 * An element of a type holds one number, or a number and an index (MINLOC). Data is a pure function
 * of seed, rank and index, so that any rank can compute what any other contributed. Results are
 * exact in any order: integers wrap, floats hold small integers or powers of two; as 8-bit ones
 * count up to 8 only, ranks from the ninth on contribute nothing to their sums and products. So
 * expected values need no tolerance, except for TIARA_AVG.
 */
#ifndef TIARA_TEST_MPI_TYPE_H
#define TIARA_TEST_MPI_TYPE_H

#include "mpi_buf.h"

enum mt_oper {
    MT_SUM,
    MT_PROD,
    MT_MIN,
    MT_MAX,
    MT_LAND,
    MT_LOR,
    MT_LXOR,
    MT_BAND,
    MT_BOR,
    MT_BXOR,
    MT_MINLOC,
    MT_MAXLOC,
    MT_AVG,
    MT_NOPER
};

enum mt_kind {
    MT_SIGNED,
    MT_UNSIGNED,
    MT_REAL,
    MT_BFLOAT,
    MT_E4M3, /* 8-bit floats */
    MT_E5M2,
    MT_COMPLEX,
    MT_LOGICAL
};

struct mt_field {
    enum mt_kind kind;
    size_t size; /* bytes; 0: there is no such field */
    size_t at;
};

struct mt_type {
    const char *name;
    MPI_Datatype handle;
    struct mt_field value, index;
    unsigned opers; /* bit per enum mt_oper that is defined for the type */
};

/* All rows whose type exists in this MPI. Valid after MPI_Init, until exit. */
const struct mt_type *mt_types(int *ntypes_out);
/* The row of @handle; aborts when there is none. */
const struct mt_type *mt_type_find(MPI_Datatype handle);
size_t mt_type_extent(const struct mt_type *type);
MPI_Op mt_oper_handle(enum mt_oper oper);
const char *mt_oper_name(enum mt_oper oper);

/* The @count elements from @first on that @rank contributes. */
void mt_fill(const struct mt_type *type, enum mt_oper oper, uint64_t seed, int rank, size_t first,
    size_t count, void *data);

/* One call and everything that is to hold after it. */
struct mt_case {
    const struct mt_type *type;
    enum mt_oper oper;
    size_t count;
    bool in_place;
    size_t offset; /* of the buffers, in bytes, off their natural alignment */
    uint64_t seed;
    MPI_Comm comm;
};
/* Is data[@count], from element @first of the vector on, the result over @nranks ranks? Else
 * mt_check fails once. */
bool mt_verify(const struct mt_case *c, int nranks, size_t first, size_t count, const void *data);
/* Calls TIARA_Allreduce and checks result, guards and send buffer by mt_check. Collective over the
 * case's communicator. */
bool mt_allreduce(const struct mt_case *c);
/*
 * TIARA_Allreduce for tests that work on arrays, of copies of them in buffers of the memory that is
 * tested. Checks the guards by mt_check; returns what the call returned. Collective over @comm.
 */
int mt_allreduce_arrays(
    const void *in, void *out, size_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
/*
 * mt_allreduce over @comm for every class of size, several types and operators, in place and not.
 * @salt varies data and sizes; equal on all ranks.
 */
void mt_allreduce_all_sizes(MPI_Comm comm, unsigned salt);

#endif
