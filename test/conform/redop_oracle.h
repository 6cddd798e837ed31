/*
 * The oracle of the redop tests: one element of one fold, by plain scalar arithmetic.
 *
 * It shares no code and no method with the library: integers as 64 bits cut to size after each
 * step, 16-bit floats by their definition (ldexp and rint), 8-bit ones by a search among all
 * numbers that they can be, the others by C's own operators.
 */
#ifndef TIARA_TEST_REDOP_ORACLE_H
#define TIARA_TEST_REDOP_ORACLE_H

#include "redop/redop.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    ORACLE_MAX_SRC = 17
};

bool oracle_is_int(enum tiara_type type);
bool oracle_is_complex(enum tiara_type type);
bool oracle_is_half(enum tiara_type type);
bool oracle_is_fp8(enum tiara_type type);
bool oracle_is_defined(enum tiara_type type, enum tiara_operator oper);

/* Bytes of an element that carry its value. */
size_t oracle_value_size(enum tiara_type type);

/* 16-bit floats. */

struct half_format {
    int fraction_bits, bias, inf;
};

struct half_format oracle_half_format(enum tiara_type type);
unsigned oracle_half_encode(struct half_format f, double x);
unsigned oracle_half_fold(
    enum tiara_type type, enum tiara_operator oper, const unsigned *code, int nsrc);

/* 8-bit floats. */

/* The nearest number, of two the one with the even code; beyond the largest that one. */
unsigned oracle_fp8_encode(enum tiara_type type, double x);
unsigned oracle_fp8_fold(
    enum tiara_type type, enum tiara_operator oper, const unsigned *code, int nsrc);

/* One element of a fold; src[k] points to it in source k. */
void oracle(unsigned char *out, enum tiara_type type, enum tiara_operator oper,
    const unsigned char **src, int nsrc);

/* out = sum / nranks, one element: what the finish of AVG must make of a sum. */
void oracle_divide(unsigned char *out, enum tiara_type type, const unsigned char *sum, int nranks);

#endif
