/*
 * Single elements: integers to the bits of any type, and bits to text. Only the integers that bench_data.c uses
 * are converted, so nothing is ever rounded.
 */
#include "bench.h"
#include <inttypes.h>
#include <string.h>

/* @value, an integer below 2^11 in magnitude, as the bits of an IEEE half. */
static uint16_t half_from_int(int64_t value)
{
    uint16_t sign = value < 0 ? 0x8000 : 0;
    uint32_t magnitude = (uint32_t)(value < 0 ? -value : value);
    if (magnitude == 0)
        return sign;
    int exponent = 31 - __builtin_clz(magnitude);
    uint32_t mantissa =
        exponent <= 10 ? magnitude << (10 - exponent) : magnitude >> (exponent - 10);
    return (uint16_t)(sign | (uint32_t)(exponent + 15) << 10 | (mantissa & 0x3ff));
}

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 0x3ff;
    double value = exponent == 0 ? mantissa / 16777216.0 : 0;
    if (exponent == 31)
        value = mantissa != 0 ? __builtin_nan("") : __builtin_inf();
    else if (exponent > 0)
        value = __builtin_ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

void bench_element_store(const struct bench_type *type, int64_t value, void *dst)
{
    float single = (float)value;
    double wide = (double)value;
    uint32_t bits;
    uint16_t half;
    switch (type->kind) {
    case BENCH_INT:
    case BENCH_UINT: /* the low bytes, on little-endian machines */
        memcpy(dst, &value, type->bytes);
        break;
    case BENCH_FLOAT:
        memcpy(dst, type->bytes == sizeof single ? (void *)&single : (void *)&wide, type->bytes);
        break;
    case BENCH_FLOAT16:
        half = half_from_int(value);
        memcpy(dst, &half, 2);
        break;
    case BENCH_BFLOAT16:
        memcpy(&bits, &single, sizeof bits);
        half = (uint16_t)(bits >> 16);
        memcpy(dst, &half, 2);
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
        wide = half_to_double((uint16_t)raw);
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
