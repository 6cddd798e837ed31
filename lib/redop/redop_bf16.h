/*
 * bfloat16, the upper half of a float, for all rows.
 *
 * Stores round to nearest even; a NaN becomes quiet. The including file has half_load_vec and
 * half_store_vec.
 */
#ifndef TIARA_REDOP_BF16_H
#define TIARA_REDOP_BF16_H

#include "redop/redop_vec.h"

#define DEFINE_BF16(SHAPE)                                                                         \
    REDOP_INLINE f32_##SHAPE bf16_load_##SHAPE(const unsigned char *p)                             \
    {                                                                                              \
        return (f32_##SHAPE)(half_load_##SHAPE(p) << 16);                                          \
    }                                                                                              \
    REDOP_INLINE void bf16_store_##SHAPE(unsigned char *p, f32_##SHAPE v)                          \
    {                                                                                              \
        u32_##SHAPE bits = (u32_##SHAPE)v;                                                         \
        u32_##SHAPE rounded = bits + 0x7fff + ((bits >> 16) & 1);                                  \
        u32_##SHAPE quiet = bits | 0x400000;                                                       \
        half_store_##SHAPE(p, SELECT(v == v, rounded, quiet) >> 16);                               \
    }
DEFINE_BF16(vec)
DEFINE_BF16(one)

#endif
