/*
 * One half-precision number through the F16C instructions, for the rows that have them.
 */
#ifndef TIARA_REDOP_F16C_H
#define TIARA_REDOP_F16C_H

#include "redop/redop_vec.h"
#include <immintrin.h>

REDOP_INLINE f32_one f16_load_one(const unsigned char *p)
{
    return (f32_one){_cvtsh_ss((uint16_t)half_load_one(p)[0])};
}

REDOP_INLINE void f16_store_one(unsigned char *p, f32_one v)
{
    half_store_one(p, (u32_one){_cvtss_sh(v[0], _MM_FROUND_TO_NEAREST_INT)});
}

#endif
