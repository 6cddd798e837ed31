/*
 * The portable row: 16-byte vectors, which every 64-bit machine has, and the combinations that
 * exist only here: products of complex numbers, long double and 8-bit floats, one element at a
 * time.
 *
 * The complex product is (ac - bd) + (ad + bc)i, each operation rounded by itself: no fused
 * multiply-add, and none of the repairs of infinities that C's Annex G suggests.
 */
#define REDOP_ISA "portable"
#define VEC_BYTES 16

#include "redop/redop_half.h"
#include "redop/redop_fold.h"
#include "redop/redop_fp8.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

/* One element at a time: a T as T##_load makes it takes the other sources by STEP. */
#define DEFINE_SLOW_FOLD(NAME, T, STEP, STORE)                                                     \
    static enum tiara_err NAME(                                                                    \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        size_t bytes = n * T##_size;                                                               \
        (void)op;                                                                                  \
        if (nsrc == 1)                                                                             \
            tiara_redop_copy(dst, src[0], bytes);                                                  \
        for (size_t at = 0; nsrc > 1 && at < bytes; at += T##_size) {                              \
            struct T a = T##_load((const unsigned char *)src[0] + at);                             \
            for (int k = 1; k < nsrc; k++) {                                                       \
                struct T b = T##_load((const unsigned char *)src[k] + at);                         \
                STEP(a, b);                                                                        \
            }                                                                                      \
            STORE((unsigned char *)dst + at, a);                                                   \
        }                                                                                          \
        return TIARA_OK;                                                                           \
    }

#define STEP_SUM(a, b) (a).x += (b).x
#define STEP_PROD(a, b) (a).x *= (b).x
#define STEP_MIN(a, b) (a) = (b).x < (a).x ? (b) : (a)
#define STEP_MAX(a, b) (a) = (a).x < (b).x ? (b) : (a)
#define STEP_COMPLEX_PROD(a, b)                                                                    \
    do {                                                                                           \
        __typeof__((a).re) re = (a).re * (b).re - (a).im * (b).im;                                 \
        (a).im = (a).re * (b).im + (a).im * (b).re;                                                \
        (a).re = re;                                                                               \
    } while (0)

/* MIN and MAX copy one of their operands: what it was loaded from, also infinity and NaN. */
#define DEFINE_SLOW_FOLDS(T)                                                                       \
    DEFINE_SLOW_FOLD(fold_##T##_sum, T, STEP_SUM, T##_round)                                       \
    DEFINE_SLOW_FOLD(fold_##T##_prod, T, STEP_PROD, T##_round)                                     \
    DEFINE_SLOW_FOLD(fold_##T##_min, T, STEP_MIN, T##_store)                                       \
    DEFINE_SLOW_FOLD(fold_##T##_max, T, STEP_MAX, T##_store)

/* F is the type of a part. */
#define DEFINE_COMPLEX_PROD(T, F)                                                                  \
    enum {                                                                                         \
        T##_size = 2 * sizeof(F)                                                                   \
    };                                                                                             \
    struct T {                                                                                     \
        F re, im;                                                                                  \
    };                                                                                             \
    REDOP_INLINE struct T T##_load(const unsigned char *p)                                         \
    {                                                                                              \
        struct T v;                                                                                \
        memcpy(&v, p, T##_size);                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    REDOP_INLINE void T##_store(unsigned char *p, struct T v)                                      \
    {                                                                                              \
        v.re = v.re == v.re ? v.re : (F)__builtin_nan("");                                         \
        v.im = v.im == v.im ? v.im : (F)__builtin_nan("");                                         \
        memcpy(p, &v, T##_size);                                                                   \
    }                                                                                              \
    DEFINE_SLOW_FOLD(fold_##T##_prod, T, STEP_COMPLEX_PROD, T##_store)
DEFINE_COMPLEX_PROD(c32, float)
DEFINE_COMPLEX_PROD(c64, double)

enum {
    f80_size = sizeof(long double)
};
struct f80 {
    long double x;
};

REDOP_INLINE struct f80 f80_load(const unsigned char *p)
{
    struct f80 v;
    memcpy(&v, p, f80_size);
    return v;
}

/* The value lies in memory with padding, which is cleared so that results are equal as bytes. */
REDOP_INLINE void f80_store(unsigned char *p, struct f80 v)
{
    memset(p, 0, f80_size);
    memcpy(p, &v, TIARA_REDOP_F80_USED);
}

REDOP_INLINE void f80_round(unsigned char *p, struct f80 v)
{
    f80_store(p, v.x == v.x ? v : (struct f80){__builtin_nan("")});
}
DEFINE_SLOW_FOLDS(f80)

#define DEFINE_FP8(T)                                                                              \
    struct T {                                                                                     \
        float x;                                                                                   \
        uint8_t code;                                                                              \
    };                                                                                             \
    REDOP_INLINE struct T T##_load(const unsigned char *p)                                         \
    {                                                                                              \
        return (struct T){fp8_load(T##_format, *p), *p};                                           \
    }                                                                                              \
    REDOP_INLINE void T##_store(unsigned char *p, struct T v)                                      \
    {                                                                                              \
        *p = v.code;                                                                               \
    }                                                                                              \
    REDOP_INLINE void T##_round(unsigned char *p, struct T v)                                      \
    {                                                                                              \
        *p = fp8_store(T##_format, v.x);                                                           \
    }                                                                                              \
    DEFINE_SLOW_FOLDS(T)
DEFINE_FP8(e4m3)
DEFINE_FP8(e5m2)

const struct tiara_redop_rows tiara_redop_portable = {
    {VECTOR_ROWS FLOAT_ROWS(E4M3, e4m3), FLOAT_ROWS(E5M2, e5m2), FLOAT_ROWS(F80, f80),
        ROW(C32, PROD, "c32 prod", 2 * f32_size, fold_c32_prod),
        ROW(C64, PROD, "c64 prod", 2 * f64_size, fold_c64_prod)}};
