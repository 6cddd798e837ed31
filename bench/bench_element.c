/*
 * Single elements: integers to the bits of any type, and bits to text. Only the integers that
 * bench_data.c uses are converted, so nothing is ever rounded.
 */
#include "bench.h"
#include <inttypes.h>
#include <string.h>

/* A float that C does not have: bits of fraction, and where one lies in the exponents. */
struct narrow {
    int digits, bias;
    unsigned sign; /* its bit */
    unsigned inf; /* the bits of infinity; above it are NaN */
};
static const struct narrow half = {10, 15, 0x8000, 0x7c00};
static const struct narrow e4m3 = {3, 7, 0x80, 0x7f}; /* no infinity: NaN alone */
static const struct narrow e5m2 = {2, 15, 0x80, 0x7c};

/* @value, an integer that is exact in @f, as bits. */
static uint16_t narrow_from_int(struct narrow f, int64_t value)
{
    unsigned sign = value < 0 ? f.sign : 0;
    uint32_t magnitude = (uint32_t)(value < 0 ? -value : value);
    if (magnitude == 0)
        return (uint16_t)sign;
    int exponent = 31 - __builtin_clz(magnitude);
    uint32_t mantissa = exponent <= f.digits ? magnitude << (f.digits - exponent)
                                             : magnitude >> (exponent - f.digits);
    return (uint16_t)(sign | (uint32_t)(exponent + f.bias) << f.digits |
                      (mantissa & ((1u << f.digits) - 1)));
}

static double narrow_to_double(struct narrow f, unsigned bits)
{
    unsigned magnitude = bits & (f.sign - 1);
    int exponent = (int)(magnitude >> f.digits);
    double mantissa = magnitude & ((1u << f.digits) - 1);
    double value = exponent == 0
                       ? __builtin_ldexp(mantissa, 1 - f.bias - f.digits)
                       : __builtin_ldexp((1 << f.digits) + mantissa, exponent - f.bias - f.digits);
    if (magnitude >= f.inf)
        value = magnitude == f.inf && mantissa == 0 ? __builtin_inf() : __builtin_nan("");
    return bits & f.sign ? -value : value;
}

void bench_element_store(const struct bench_type *type, int64_t value, void *dst)
{
    float single = (float)value;
    double wide = (double)value;
    uint32_t bits;
    uint16_t pattern;
    switch (type->kind) {
    case BENCH_INT:
    case BENCH_UINT: /* the low bytes, on little-endian machines */
        memcpy(dst, &value, type->bytes);
        break;
    case BENCH_FLOAT:
        memcpy(dst, type->bytes == sizeof single ? (void *)&single : (void *)&wide, type->bytes);
        break;
    case BENCH_FLOAT16:
        pattern = narrow_from_int(half, value);
        memcpy(dst, &pattern, 2);
        break;
    case BENCH_BFLOAT16:
        memcpy(&bits, &single, sizeof bits);
        pattern = (uint16_t)(bits >> 16);
        memcpy(dst, &pattern, 2);
        break;
    case BENCH_E4M3:
    case BENCH_E5M2:
        pattern = narrow_from_int(type->kind == BENCH_E4M3 ? e4m3 : e5m2, value);
        memcpy(dst, &pattern, 1);
        break;
    }
}

void bench_element_print(const struct bench_type *type, const void *src, char *text, size_t size)
{
    uint64_t raw = 0;
    memcpy(&raw, src, type->bytes);
    int unused = (int)(64 - 8 * type->bytes);
    uint32_t widened = (uint32_t)raw << 16;
    float single;
    double wide;
    switch (type->kind) {
    case BENCH_INT:
        snprintf(text, size, "%" PRId64, (int64_t)(raw << unused) >> unused);
        return;
    case BENCH_UINT:
        snprintf(text, size, "%" PRIu64, raw);
        return;
    case BENCH_FLOAT16:
        wide = narrow_to_double(half, (unsigned)raw);
        break;
    case BENCH_E4M3:
    case BENCH_E5M2:
        wide = narrow_to_double(type->kind == BENCH_E4M3 ? e4m3 : e5m2, (unsigned)raw);
        break;
    case BENCH_BFLOAT16:
        memcpy(&single, &widened, sizeof single);
        wide = single;
        break;
    default:
        memcpy(&single, src, sizeof single);
        wide = single;
        if (type->bytes == sizeof wide)
            memcpy(&wide, src, sizeof wide);
        break;
    }
    snprintf(text, size, "%.17g", wide);
}
