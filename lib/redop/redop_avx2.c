/*
 * The AVX2 row (with F16C): 32-byte vectors.
 *
 * Compiled with -mavx2 -mfma -mf16c and called only where redop_table.c found these instructions.
 * Only static functions are instantiated here, so that no code of this file can be linked in for
 * others.
 */
#define REDOP_ISA "avx2"
#define VEC_BYTES 32

#include "redop/redop_vec.h"
#include <immintrin.h>

REDOP_INLINE u32_vec half_load_vec(const unsigned char *p)
{
    return (u32_vec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}

/* The lanes hold 16-bit values, so that saturation changes nothing. */
REDOP_INLINE void half_store_vec(unsigned char *p, u32_vec v)
{
    __m128i low = _mm256_castsi256_si128((__m256i)v);
    __m128i high = _mm256_extracti128_si256((__m256i)v, 1);

    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(low, high));
}

REDOP_INLINE f32_vec f16_load_vec(const unsigned char *p)
{
    return (f32_vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

REDOP_INLINE void f16_store_vec(unsigned char *p, f32_vec v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

DEFINE_F16C_ONE

#include "redop/redop_fold.h"

const struct tiara_redop_rows tiara_redop_avx2 = {{VECTOR_ROWS}};
