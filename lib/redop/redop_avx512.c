/*
 * The AVX-512 row (F, BW, DQ, VL): 64-byte vectors.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mavx2 -mfma; otherwise as
 * redop_avx2.c.
 */
#define REDOP_ISA "avx512"
#define VEC_BYTES 64

#include "redop/redop_vec.h"
#include <immintrin.h>

REDOP_INLINE u32_vec half_load_vec(const unsigned char *p)
{
    return (u32_vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

REDOP_INLINE void half_store_vec(unsigned char *p, u32_vec v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v));
}

REDOP_INLINE f32_vec f16_load_vec(const unsigned char *p)
{
    return (f32_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

REDOP_INLINE void f16_store_vec(unsigned char *p, f32_vec v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

DEFINE_F16C_ONE

#include "redop/redop_fold.h"

const struct tiara_redop_rows tiara_redop_avx512 = {{VECTOR_ROWS}};
