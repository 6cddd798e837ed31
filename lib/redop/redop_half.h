/*
 * 16-bit loads and stores, and IEEE half precision by integer arithmetic, for rows without
 * conversion instructions.
 *
 * The bits are those of x86's vcvtph2ps and vcvtps2ph with rounding to nearest even: denormals are
 * kept, overflow gives infinity, a NaN keeps the upper bits of its payload and becomes quiet. A row
 * with the instructions defines the same functions itself and leaves this file out.
 */
#ifndef TIARA_REDOP_HALF_H
#define TIARA_REDOP_HALF_H

#include "redop/redop_vec.h"

enum {
    HALF_MIN_NORMAL = 0x0400,
    HALF_INF = 0x7c00,
    HALF_QUIET = 0x0200,
    REBIAS = (127 - 15) << 23, /* between the exponents of half and float, in place */
    FLOAT_HALF_MIN = 0x38800000, /* 2^-14: smaller values are denormal halves */
    FLOAT_HALF_LIMIT = 0x47800000, /* 2^16: infinity; rounding makes some smaller ones so too */
    FLOAT_INF = 0x7f800000,
    FLOAT_QUIET = 0x00400000,
    FLOAT_ONE_HALF = 0x3f000000 /* 0.5f, whose unit in the last place is the smallest half */
};

typedef uint16_t half_mem __attribute__((vector_size(VEC_BYTES / 2), aligned(1), may_alias));

REDOP_INLINE u32_vec half_load_vec(const unsigned char *p)
{
    return __builtin_convertvector(*(const half_mem *)p, u32_vec);
}

REDOP_INLINE void half_store_vec(unsigned char *p, u32_vec v)
{
    *(half_mem *)p = __builtin_convertvector(v, half_mem);
}

#define DEFINE_F16(SHAPE)                                                                          \
    REDOP_INLINE f32_##SHAPE f16_load_##SHAPE(const unsigned char *p)                              \
    {                                                                                              \
        i32_##SHAPE half = (i32_##SHAPE)half_load_##SHAPE(p);                                      \
        i32_##SHAPE mag = half & 0x7fff;                                                           \
        i32_##SHAPE normal = (mag << 13) + REBIAS;                                                 \
        i32_##SHAPE quiet = (mag > HALF_INF) & FLOAT_QUIET;                                        \
        i32_##SHAPE special = (mag << 13) | FLOAT_INF | quiet;                                     \
        i32_##SHAPE tiny = (i32_##SHAPE)(__builtin_convertvector(mag, f32_##SHAPE) * 0x1p-24f);    \
        i32_##SHAPE finite = SELECT(mag < HALF_MIN_NORMAL, tiny, normal);                          \
        u32_##SHAPE sign = (u32_##SHAPE)(half & 0x8000) << 16;                                     \
        return (f32_##SHAPE)((u32_##SHAPE)SELECT(mag < HALF_INF, finite, special) | sign);         \
    }                                                                                              \
    REDOP_INLINE void f16_store_##SHAPE(unsigned char *p, f32_##SHAPE v)                           \
    {                                                                                              \
        i32_##SHAPE mag = (i32_##SHAPE)v & 0x7fffffff;                                             \
        i32_##SHAPE tiny = (i32_##SHAPE)((f32_##SHAPE)mag + 0.5f) - FLOAT_ONE_HALF;                \
        i32_##SHAPE normal = (mag - REBIAS + 0xfff + ((mag >> 13) & 1)) >> 13;                     \
        i32_##SHAPE finite = SELECT(mag < FLOAT_HALF_MIN, tiny, normal);                           \
        i32_##SHAPE payload = (mag > FLOAT_INF) & (((mag >> 13) & 0x3ff) | HALF_QUIET);            \
        i32_##SHAPE special = payload | HALF_INF;                                                  \
        i32_##SHAPE half = SELECT(mag < FLOAT_HALF_LIMIT, finite, special);                        \
        half |= (i32_##SHAPE)((u32_##SHAPE)v >> 16) & 0x8000;                                      \
        half_store_##SHAPE(p, (u32_##SHAPE)half);                                                  \
    }
DEFINE_F16(vec)
DEFINE_F16(one)

#endif
