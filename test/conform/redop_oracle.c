/*
 * Folds by plain scalar arithmetic, a kind of number at a time.
 */
#include "test/conform/redop_oracle.h"
#include <float.h>
#include <math.h>
#include <string.h>

bool oracle_is_int(enum tiara_type type)
{
    return type <= TIARA_TYPE_U64;
}

bool oracle_is_complex(enum tiara_type type)
{
    return type == TIARA_TYPE_C32 || type == TIARA_TYPE_C64;
}

bool oracle_is_half(enum tiara_type type)
{
    return type == TIARA_TYPE_F16 || type == TIARA_TYPE_BF16;
}

bool oracle_is_fp8(enum tiara_type type)
{
    return type == TIARA_TYPE_E4M3 || type == TIARA_TYPE_E5M2;
}

bool oracle_is_defined(enum tiara_type type, enum tiara_operator oper)
{
    if (type == TIARA_TYPE_BOOL)
        return oper >= TIARA_OPER_LAND && oper <= TIARA_OPER_LXOR;
    if (oracle_is_complex(type))
        return oper <= TIARA_OPER_PROD;
    return oracle_is_int(type) || oper <= TIARA_OPER_MAX;
}

size_t oracle_value_size(enum tiara_type type)
{
    return type == TIARA_TYPE_F80 && LDBL_MANT_DIG == 64 ? 10 : tiara_type_size(type);
}

/* Integers, as 64 bits, sign-extended where the type is signed. */

static uint64_t int_get(enum tiara_type type, const void *p)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    uint64_t bits = 0;

    memcpy(&bits, p, tiara_type_size(type) < sizeof(bits) ? tiara_type_size(type) : sizeof(bits));
    memcpy(&i8, p, sizeof(i8));
    if (type == TIARA_TYPE_I8)
        return (uint64_t)(int64_t)i8;
    memcpy(&i16, &bits, sizeof(i16));
    if (type == TIARA_TYPE_I16)
        return (uint64_t)(int64_t)i16;
    memcpy(&i32, &bits, sizeof(i32));
    if (type == TIARA_TYPE_I32)
        return (uint64_t)(int64_t)i32;
    return bits;
}

static bool int_less(enum tiara_type type, uint64_t a, uint64_t b)
{
    bool is_signed = type == TIARA_TYPE_I8 || type == TIARA_TYPE_I16 || type == TIARA_TYPE_I32 ||
                     type == TIARA_TYPE_I64;

    return is_signed ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t int_apply(enum tiara_type type, enum tiara_operator oper, uint64_t a, uint64_t b)
{
    switch (oper) {
    case TIARA_OPER_SUM:
        return a + b;
    case TIARA_OPER_PROD:
        return a * b;
    case TIARA_OPER_MIN:
        return int_less(type, b, a) ? b : a;
    case TIARA_OPER_MAX:
        return int_less(type, a, b) ? b : a;
    case TIARA_OPER_LAND:
        return a && b;
    case TIARA_OPER_LOR:
        return a || b;
    case TIARA_OPER_LXOR:
        return !a != !b;
    case TIARA_OPER_BAND:
        return a & b;
    case TIARA_OPER_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* 16-bit floats, by their definition. */

struct half_format oracle_half_format(enum tiara_type type)
{
    return type == TIARA_TYPE_F16 ? (struct half_format){10, 15, 0x7c00}
                                  : (struct half_format){7, 127, 0x7f80};
}

static double half_decode(struct half_format f, unsigned code)
{
    int mag = (int)(code & 0x7fff), exponent = mag >> f.fraction_bits;
    int fraction = mag & ((1 << f.fraction_bits) - 1);
    double x;

    if (mag >= f.inf)
        x = mag == f.inf ? INFINITY : NAN;
    else if (exponent == 0)
        x = ldexp(fraction, 1 - f.bias - f.fraction_bits);
    else
        x = ldexp((1 << f.fraction_bits) + fraction, exponent - f.bias - f.fraction_bits);
    return code & 0x8000 ? -x : x;
}

unsigned oracle_half_encode(struct half_format f, double x)
{
    unsigned sign = signbit(x) ? 0x8000 : 0;
    int exponent, code;

    if (isnan(x))
        return (unsigned)f.inf | 1u << (f.fraction_bits - 1);
    if (isinf(x))
        return sign | (unsigned)f.inf;
    exponent = x == 0 || ilogb(x) < 1 - f.bias ? 1 - f.bias : ilogb(x);
    if (exponent > f.bias)
        return sign | (unsigned)f.inf;
    code = (exponent + f.bias - 1) * (1 << f.fraction_bits) +
           (int)rint(ldexp(fabs(x), f.fraction_bits - exponent));
    return sign | (unsigned)(code < f.inf ? code : f.inf);
}

unsigned oracle_half_fold(
    enum tiara_type type, enum tiara_operator oper, const unsigned *code, int nsrc)
{
    struct half_format f = oracle_half_format(type);
    unsigned best = code[0];
    float acc = (float)half_decode(f, code[0]);

    for (int k = 1; k < nsrc; k++) {
        float x = (float)half_decode(f, code[k]);
        bool is_taken = oper == TIARA_OPER_MIN ? x < acc : acc < x;
        if (oper == TIARA_OPER_SUM)
            acc += x;
        else if (oper == TIARA_OPER_PROD)
            acc *= x;
        else if (is_taken) {
            acc = x;
            best = code[k];
        }
    }
    if (oper == TIARA_OPER_SUM || oper == TIARA_OPER_PROD)
        return oracle_half_encode(f, acc);
    return isnan(acc) ? best | 1u << (f.fraction_bits - 1) : best;
}

/*
 * 8-bit floats, by their definition: all numbers in a table, and the nearest of them by a search.
 */

static double fp8_decode(enum tiara_type type, unsigned code)
{
    bool is_e4m3 = type == TIARA_TYPE_E4M3;
    int fraction_bits = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15;
    int exponent = (int)(code & 0x7f) >> fraction_bits;
    int fraction = (int)code & ((1 << fraction_bits) - 1);
    double x = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                             : ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias);

    if (is_e4m3 && exponent == 15 && fraction == 7)
        x = NAN;
    if (!is_e4m3 && exponent == 31)
        x = fraction == 0 ? INFINITY : NAN;
    return code & 0x80 ? -x : x;
}

/* The same, computed once. */
static double fp8_value(enum tiara_type type, unsigned code)
{
    static double values[2][256];
    double *row = values[type == TIARA_TYPE_E4M3];

    if (row[1] == 0) {
        for (unsigned c = 0; c < 256; c++)
            row[c] = fp8_decode(type, c);
    }
    return row[code & 0xff];
}

unsigned oracle_fp8_encode(enum tiara_type type, double x)
{
    unsigned best = 0, last = type == TIARA_TYPE_E4M3 ? 0x7e : 0x7b;
    double mag = fmin(fabs(x), fp8_value(type, last));

    if (isnan(x))
        return 0x7f;
    for (unsigned code = 1; code <= last; code++) {
        double was = fabs(mag - fp8_value(type, best)), is = fabs(mag - fp8_value(type, code));

        if (is < was || (is == was && code % 2 == 0))
            best = code;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

unsigned oracle_fp8_fold(
    enum tiara_type type, enum tiara_operator oper, const unsigned *code, int nsrc)
{
    unsigned best = code[0];
    float acc = (float)fp8_value(type, code[0]);

    for (int k = 1; k < nsrc; k++) {
        float x = (float)fp8_value(type, code[k]);

        if (oper == TIARA_OPER_SUM)
            acc += x;
        else if (oper == TIARA_OPER_PROD)
            acc *= x;
        else if (oper == TIARA_OPER_MIN ? x < acc : acc < x) {
            acc = x;
            best = code[k];
        }
    }
    return oper <= TIARA_OPER_PROD ? oracle_fp8_encode(type, acc) : best;
}

/* The other floats. src[k] points to the element in source k. */

#define DEFINE_FLOAT_FOLD(NAME, F)                                                                 \
    static F NAME(enum tiara_operator oper, const unsigned char *const *src, int nsrc)             \
    {                                                                                              \
        F acc, x;                                                                                  \
        memcpy(&acc, src[0], sizeof(acc));                                                         \
        for (int k = 1; k < nsrc; k++) {                                                           \
            memcpy(&x, src[k], sizeof(x));                                                         \
            if (oper == TIARA_OPER_SUM)                                                            \
                acc = acc + x;                                                                     \
            else if (oper == TIARA_OPER_PROD)                                                      \
                acc = acc * x;                                                                     \
            else if (oper == TIARA_OPER_MIN)                                                       \
                acc = x < acc ? x : acc;                                                           \
            else                                                                                   \
                acc = acc < x ? x : acc;                                                           \
        }                                                                                          \
        return oper <= TIARA_OPER_PROD && acc != acc ? (F)NAN : acc;                               \
    }

DEFINE_FLOAT_FOLD(f32_fold, float)

DEFINE_FLOAT_FOLD(f64_fold, double)

DEFINE_FLOAT_FOLD(f80_fold, long double)

/* volatile: each product and sum is rounded by itself. */
#define DEFINE_COMPLEX_FOLD(NAME, F)                                                               \
    static void NAME(F out[2], enum tiara_operator oper, const unsigned char *const *src, int n)   \
    {                                                                                              \
        F a[2], b[2];                                                                              \
        memcpy(a, src[0], sizeof(a));                                                              \
        for (int k = 1; k < n; k++) {                                                              \
            memcpy(b, src[k], sizeof(b));                                                          \
            volatile F ac = a[0] * b[0], bd = a[1] * b[1], ad = a[0] * b[1], bc = a[1] * b[0];     \
            a[0] = oper == TIARA_OPER_SUM ? a[0] + b[0] : ac - bd;                                 \
            a[1] = oper == TIARA_OPER_SUM ? a[1] + b[1] : ad + bc;                                 \
        }                                                                                          \
        out[0] = isnan(a[0]) ? (F)NAN : a[0];                                                      \
        out[1] = isnan(a[1]) ? (F)NAN : a[1];                                                      \
    }

DEFINE_COMPLEX_FOLD(c32_fold, float)

DEFINE_COMPLEX_FOLD(c64_fold, double)

static void fold_ints(unsigned char *out, enum tiara_type type, enum tiara_operator oper,
    const unsigned char **src, int nsrc)
{
    uint64_t acc = int_get(type, src[0]);

    for (int k = 1; k < nsrc; k++) {
        acc = int_apply(type, oper, acc, int_get(type, src[k]));
        acc = int_get(type, &acc);
    }
    memcpy(out, &acc, tiara_type_size(type));
}

static void fold_halves(unsigned char *out, enum tiara_type type, enum tiara_operator oper,
    const unsigned char **src, int nsrc)
{
    unsigned code[ORACLE_MAX_SRC] = {0};
    uint16_t result;

    for (int k = 0; k < nsrc; k++) {
        memcpy(&result, src[k], sizeof(result));
        code[k] = result;
    }
    result = (uint16_t)oracle_half_fold(type, oper, code, nsrc);
    memcpy(out, &result, sizeof(result));
}

static void fold_fp8(unsigned char *out, enum tiara_type type, enum tiara_operator oper,
    const unsigned char **src, int nsrc)
{
    unsigned code[ORACLE_MAX_SRC] = {0};

    for (int k = 0; k < nsrc; k++)
        code[k] = *src[k];
    *out = (unsigned char)oracle_fp8_fold(type, oper, code, nsrc);
}

void oracle(unsigned char *out, enum tiara_type type, enum tiara_operator oper,
    const unsigned char **src, int nsrc)
{
    float f32[2];
    double f64[2];
    long double f80;

    if (nsrc == 1) {
        memcpy(out, src[0], tiara_type_size(type));
    } else if (oracle_is_half(type)) {
        fold_halves(out, type, oper, src, nsrc);
    } else if (oracle_is_fp8(type)) {
        fold_fp8(out, type, oper, src, nsrc);
    } else if (type == TIARA_TYPE_F32) {
        f32[0] = f32_fold(oper, src, nsrc);
        memcpy(out, f32, sizeof(f32[0]));
    } else if (type == TIARA_TYPE_F64) {
        f64[0] = f64_fold(oper, src, nsrc);
        memcpy(out, f64, sizeof(f64[0]));
    } else if (type == TIARA_TYPE_F80) {
        f80 = f80_fold(oper, src, nsrc);
        memset(out, 0, sizeof(f80));
        memcpy(out, &f80, oracle_value_size(type));
    } else if (type == TIARA_TYPE_C32) {
        c32_fold(f32, oper, src, nsrc);
        memcpy(out, f32, sizeof(f32));
    } else if (type == TIARA_TYPE_C64) {
        c64_fold(f64, oper, src, nsrc);
        memcpy(out, f64, sizeof(f64));
    } else {
        fold_ints(out, type, oper, src, nsrc);
    }
}

void oracle_divide(unsigned char *out, enum tiara_type type, const unsigned char *sum, int nranks)
{
    float f32[2];
    double f64[2];
    long double f80;
    uint64_t bits = int_get(type, sum);

    memcpy(out, sum, tiara_type_size(type));
    if (oracle_is_half(type)) {
        struct half_format f = oracle_half_format(type);
        bits = oracle_half_encode(f, (float)half_decode(f, (unsigned)bits) / (float)nranks);
        memcpy(out, &bits, sizeof(uint16_t));
    } else if (oracle_is_fp8(type)) {
        *out = (unsigned char)oracle_fp8_encode(type, (float)fp8_value(type, *sum) / (float)nranks);
    } else if (type == TIARA_TYPE_F32 || type == TIARA_TYPE_C32) {
        memcpy(f32, sum, tiara_type_size(type));
        for (size_t part = 0; part < tiara_type_size(type) / sizeof(f32[0]); part++)
            f32[part] /= (float)nranks;
        memcpy(out, f32, tiara_type_size(type));
    } else if (type == TIARA_TYPE_F64 || type == TIARA_TYPE_C64) {
        memcpy(f64, sum, tiara_type_size(type));
        for (size_t part = 0; part < tiara_type_size(type) / sizeof(f64[0]); part++)
            f64[part] /= nranks;
        memcpy(out, f64, tiara_type_size(type));
    } else if (type == TIARA_TYPE_F80) {
        memcpy(&f80, sum, sizeof(f80));
        f80 /= nranks;
        memcpy(out, &f80, oracle_value_size(type));
    } else {
        bool is_negative = int_less(type, bits, 0);
        uint64_t magnitude = (is_negative ? -bits : bits) / (uint64_t)nranks;
        bits = is_negative ? -magnitude : magnitude;
        memcpy(out, &bits, tiara_type_size(type));
    }
}
