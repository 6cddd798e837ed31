/*
 * 8-bit floats, one element at a time: e4m3 and e5m2 of the OCP 8-bit Floating Point Specification.
 *
 * The one idea: their bits, moved to where a float has its exponent and fraction, are the number
 * but for a power of two, denormals too; so loading is a shift and a product that never rounds.
 *
 *          exponent  fraction  bias  largest          infinity  NaN
 *   e4m3   4 bits    3 bits    7     0x7e    448      none      0x7f, 0xff
 *   e5m2   5 bits    2 bits    15    0x7b  57344      0x7c      0x7d .. 0x7f, and with the sign
 *
 * Stores round to nearest even and saturate: what is too large, infinity too, becomes the largest
 * number of its sign, and a NaN becomes 0x7f. So do the conversions of GPUs (cvt.rn.satfinite).
 */
#ifndef TIARA_REDOP_FP8_H
#define TIARA_REDOP_FP8_H

#include "redop/redop_priv.h"
#include "redop/redop_vec.h"

struct fp8_format {
    int fraction_bits;
    int bias;
    uint8_t largest; /* the code of the largest number */
    bool has_inf; /* the code after it is infinity */
};

enum {
    e4m3_size = 1,
    e5m2_size = 1
};
static const struct fp8_format e4m3_format = {3, 7, 0x7e, false};
static const struct fp8_format e5m2_format = {2, 15, 0x7b, true};

REDOP_INLINE float fp8_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

REDOP_INLINE uint32_t fp8_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* 2 to the power of @exponent, a normal number. */
REDOP_INLINE float fp8_power(int exponent)
{
    return fp8_float((uint32_t)(exponent + 127) << 23);
}

REDOP_INLINE float fp8_load(struct fp8_format f, uint8_t code)
{
    uint8_t mag = code & 0x7f;
    float x = fp8_float((uint32_t)mag << (23 - f.fraction_bits)) * fp8_power(127 - f.bias);

    if (mag > f.largest)
        x = f.has_inf && mag == f.largest + 1 ? __builtin_inff() : __builtin_nanf("");
    return code & 0x80 ? -x : x;
}

REDOP_INLINE uint8_t fp8_store(struct fp8_format f, float x)
{
    const int shift = 23 - f.fraction_bits;
    const float unit = fp8_power(1 - f.bias - f.fraction_bits + 23); /* one ulp of it: a denormal */
    uint32_t mag = fp8_bits(x) & 0x7fffffff, sign = fp8_bits(x) >> 24 & 0x80;

    if (x != x)
        return 0x7f;
    if (fp8_float(mag) >= fp8_load(f, f.largest))
        return (uint8_t)(sign | f.largest);
    if (fp8_float(mag) < fp8_power(1 - f.bias))
        mag = fp8_bits(fp8_float(mag) + unit) - fp8_bits(unit);
    else
        mag = (mag - ((uint32_t)(127 - f.bias) << 23) + ((1u << (shift - 1)) - 1) +
                  (mag >> shift & 1)) >>
              shift;
    return (uint8_t)(sign | mag);
}

#endif
