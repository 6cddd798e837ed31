/*
 * Whether the results of two ways of combining the same numbers may both be right.
 *
 * What does not round must agree in all bits. Sums and products of floating-point numbers depend on
 * the order: any order of n ranks is within n * eps * (the sum, or product, of the magnitudes) of
 * the true result, so that two orders are within twice that.
 */
#include "base/alloc.h"
#include "pmpi/engine_priv.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- types ---- */

/* 1 or 2 parts; 0: it is none of these. Types that this MPI does not have are MPI_DATATYPE_NULL,
 * and never asked for. */
static int parts_of(MPI_Datatype type, int *number_out)
{
    const struct {
        MPI_Datatype type;
        int parts;
    } types[] = {{MPI_FLOAT, 1}, {MPI_DOUBLE, 1}, {MPI_REAL, 1}, {MPI_DOUBLE_PRECISION, 1},
        {MPI_REAL4, 1}, {MPI_REAL8, 1}, {MPI_C_FLOAT_COMPLEX, 2}, {MPI_C_DOUBLE_COMPLEX, 2},
        {MPI_COMPLEX, 2}, {MPI_DOUBLE_COMPLEX, 2}, {MPI_COMPLEX8, 2}, {MPI_COMPLEX16, 2},
        {MPI_CXX_FLOAT_COMPLEX, 2}, {MPI_CXX_DOUBLE_COMPLEX, 2}};
    int size = 0;

    *number_out = TIARA_MEASURE_LONG_DOUBLE;
    if (type == MPI_LONG_DOUBLE)
        return 1;
    if (type == MPI_C_LONG_DOUBLE_COMPLEX || type == MPI_CXX_LONG_DOUBLE_COMPLEX)
        return 2;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (type != types[i].type)
            continue;
        PMPI_Type_size(type, &size);
        *number_out = TIARA_MEASURE_FLOAT;
        if (size == types[i].parts * (int)sizeof(double))
            *number_out = TIARA_MEASURE_DOUBLE;
        else if (size != types[i].parts * (int)sizeof(float))
            return 0;
        return types[i].parts;
    }
    return 0;
}

/* Predefined types whose elements are integers, or bytes. */
static bool is_integer(MPI_Datatype type)
{
    const MPI_Datatype types[] = {MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_SHORT,
        MPI_UNSIGNED_SHORT, MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_UNSIGNED_LONG, MPI_LONG_LONG,
        MPI_UNSIGNED_LONG_LONG, MPI_INT8_T, MPI_UINT8_T, MPI_INT16_T, MPI_UINT16_T, MPI_INT32_T,
        MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T, MPI_C_BOOL, MPI_CXX_BOOL, MPI_AINT, MPI_OFFSET,
        MPI_COUNT, MPI_BYTE, MPI_WCHAR, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
        MPI_INTEGER8, MPI_LOGICAL, MPI_CHARACTER, MPI_SHORT_INT, MPI_2INT, MPI_LONG_INT,
        MPI_2INTEGER};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (type == types[i])
            return true;
    return false;
}

static bool only_integers(MPI_Datatype type);

/* The types that a derived type consists of. */
static bool parts_are_integers(MPI_Datatype type, const int n[3], int *numbers, MPI_Aint *addresses)
{
    MPI_Datatype few[16];
    bool yes = n[2] <= 16;

    if (!yes ||
        PMPI_Type_get_contents(type, n[0], n[1], n[2], numbers, addresses, few) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < n[2]; i++) {
        int ignored[3], combiner;

        yes = yes && only_integers(few[i]);
        PMPI_Type_get_envelope(few[i], &ignored[0], &ignored[1], &ignored[2], &combiner);
        if (combiner != MPI_COMBINER_NAMED)
            PMPI_Type_free(&few[i]);
    }
    return yes;
}

static bool only_integers(MPI_Datatype type)
{
    int n[3], combiner, *numbers;
    MPI_Aint *addresses;
    bool yes = false;

    if (PMPI_Type_get_envelope(type, &n[0], &n[1], &n[2], &combiner) != MPI_SUCCESS)
        return false;
    if (combiner == MPI_COMBINER_NAMED)
        return is_integer(type);
    if (n[2] == 0) /* a Fortran kind */
        return false;
    numbers = tiara_alloc((size_t)n[0] + 1, sizeof(*numbers));
    addresses = tiara_alloc((size_t)n[1] + 1, sizeof(*addresses));
    if (numbers && addresses)
        yes = parts_are_integers(type, n, numbers, addresses);
    tiara_free(numbers);
    tiara_free(addresses);
    return yes;
}

struct tiara_engine_measure tiara_engine_measure_of(MPI_Datatype type, MPI_Op op)
{
    struct tiara_engine_measure m = {.number = TIARA_MEASURE_BITS, .parts = 1};
    bool arithmetic = op == MPI_SUM || op == MPI_PROD;
    int number, parts = op == MPI_OP_NULL ? 0 : parts_of(type, &number);

    if (op == MPI_OP_NULL)
        return m;
    if (parts > 0 && (arithmetic || op == MPI_MIN || op == MPI_MAX)) {
        m.number = number;
        m.parts = parts;
        m.rounds = arithmetic;
        m.product = op == MPI_PROD;
    } else if (!only_integers(type) && op != MPI_MINLOC && op != MPI_MAXLOC) {
        /* A user-defined operator may round, and so may a sum of a type that is not known here. */
        m.number = TIARA_MEASURE_NONE;
    } else if (type == MPI_LONG_DOUBLE_INT) {
        m.number = TIARA_MEASURE_NONE; /* bits between its fields mean nothing */
    }
    return m;
}

/* ---- numbers ---- */

/* Number @i of an array; long double holds all of them. */
static long double number_at(const struct tiara_engine_measure *m, const void *numbers, MPI_Count i)
{
    if (m->number == TIARA_MEASURE_FLOAT)
        return ((const float *)numbers)[i];
    if (m->number == TIARA_MEASURE_DOUBLE)
        return ((const double *)numbers)[i];
    return ((const long double *)numbers)[i];
}

void tiara_engine_magnitudes(const struct tiara_engine_measure *m, const void *elems,
    MPI_Count count, double *magnitudes_out)
{
    for (MPI_Count i = 0; i < count * m->parts; i++)
        magnitudes_out[i] = (double)fabsl(number_at(m, elems, i));
    /* A product mixes the parts of complex numbers. */
    for (MPI_Count i = 0; m->product && m->parts == 2 && i < count; i++)
        magnitudes_out[2 * i] = magnitudes_out[2 * i + 1] =
            hypot(magnitudes_out[2 * i], magnitudes_out[2 * i + 1]);
}

static long double bound_of(
    const struct tiara_engine_measure *m, const struct tiara_engine_pair *pair, MPI_Count i)
{
    long double eps = LDBL_EPSILON, tiny = LDBL_MIN;

    if (!m->rounds)
        return 0;
    if (m->number != TIARA_MEASURE_LONG_DOUBLE) {
        eps =
            m->number == TIARA_MEASURE_FLOAT ? (long double)FLT_EPSILON : (long double)DBL_EPSILON;
        tiny = m->number == TIARA_MEASURE_FLOAT ? (long double)FLT_MIN : (long double)DBL_MIN;
    }
    /* A complex multiplication rounds three times. */
    if (m->product)
        return pair->ranks * (2 * m->parts * m->parts * eps * pair->magnitudes[i] + tiny);
    return pair->ranks * 2 * eps * pair->magnitudes[i];
}

/* Infinities and NaN depend on the order as well, once a magnitude is too large. */
static bool fits(long double x, long double y, long double bound)
{
    return x == y || (isnan(x) && isnan(y)) || !(fabsl(x - y) > bound) || !isfinite(bound);
}

static enum tiara_engine_verdict compare_numbers(const struct tiara_engine_measure *m,
    const struct tiara_engine_pair *pair, struct tiara_engine_difference *difference_out)
{
    for (MPI_Count i = 0; i < pair->count * m->parts; i++) {
        long double x = number_at(m, pair->mpi, i), y = number_at(m, pair->tiara, i);
        long double bound = bound_of(m, pair, i);

        /* Not a number in one alone is a difference, unless the magnitudes are out of bounds. */
        if ((isnan(x) == isnan(y) || !isfinite(bound)) && fits(x, y, bound))
            continue;
        difference_out->index = i / m->parts;
        snprintf(difference_out->mpi, sizeof(difference_out->mpi), "%.9Lg", x);
        snprintf(difference_out->tiara, sizeof(difference_out->tiara), "%.9Lg", y);
        return TIARA_VERDICT_DIFFERS;
    }
    return TIARA_VERDICT_SAME;
}

/* ---- bits ---- */

/* The first 16 bytes of an element, the last one first, as a number is written on most machines. */
static void print_bytes(char text[64], const unsigned char *bytes, size_t n)
{
    int at = snprintf(text, 64, "0x");

    for (size_t i = n < 16 ? n : 16; i > 0; i--)
        at += snprintf(text + at, 64 - (size_t)at, "%02x", bytes[i - 1]);
}

static enum tiara_engine_verdict compare_bytes(const unsigned char *x, const unsigned char *y,
    size_t bytes, size_t size, struct tiara_engine_difference *difference_out)
{
    size_t at = 0;

    if (memcmp(x, y, bytes) == 0)
        return TIARA_VERDICT_SAME;
    while (x[at] == y[at])
        at++;
    at -= at % size;
    difference_out->index = (MPI_Count)(at / size);
    print_bytes(difference_out->mpi, x + at, size);
    print_bytes(difference_out->tiara, y + at, size);
    return TIARA_VERDICT_DIFFERS;
}

/* @elems without holes; NULL: no memory, or more than one call of MPI can pack. */
static unsigned char *packed(const void *elems, MPI_Count count, MPI_Datatype type, size_t size)
{
    size_t bytes = (size_t)count * size;
    unsigned char *copy = NULL;
    int at = 0;

    if (bytes <= INT32_MAX && count <= INT32_MAX)
        copy = tiara_alloc(bytes, 1);
    if (copy &&
        PMPI_Pack(elems, (int)count, type, copy, (int)bytes, &at, MPI_COMM_SELF) != MPI_SUCCESS) {
        tiara_free(copy);
        copy = NULL;
    }
    return copy;
}

static enum tiara_engine_verdict compare_bits(
    const struct tiara_engine_pair *pair, struct tiara_engine_difference *difference_out)
{
    enum tiara_engine_verdict verdict = TIARA_VERDICT_UNKNOWN;
    unsigned char *x, *y;
    MPI_Aint lb, extent;
    int size = 0;

    PMPI_Type_size(pair->type, &size);
    PMPI_Type_get_extent(pair->type, &lb, &extent);
    if (size <= 0)
        return TIARA_VERDICT_SAME;
    if (lb == 0 && extent == size && is_integer(pair->type))
        return compare_bytes(
            pair->mpi, pair->tiara, (size_t)(pair->count * size), (size_t)size, difference_out);
    x = packed(pair->mpi, pair->count, pair->type, (size_t)size);
    y = packed(pair->tiara, pair->count, pair->type, (size_t)size);
    if (x && y)
        verdict = compare_bytes(x, y, (size_t)(pair->count * size), (size_t)size, difference_out);
    tiara_free(x);
    tiara_free(y);
    return verdict;
}

enum tiara_engine_verdict tiara_engine_compare(const struct tiara_engine_measure *m,
    const struct tiara_engine_pair *pair, struct tiara_engine_difference *difference_out)
{
    if (m->number == TIARA_MEASURE_NONE)
        return TIARA_VERDICT_UNKNOWN;
    if (m->number == TIARA_MEASURE_BITS)
        return compare_bits(pair, difference_out);
    return compare_numbers(m, pair, difference_out);
}
