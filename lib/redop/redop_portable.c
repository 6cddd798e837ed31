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

/* dst = product of the sources; F is the type of a part. */
#define DEFINE_COMPLEX_PROD(NAME, F)                                                               \
    static enum tiara_err NAME(                                                                    \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        (void)op;                                                                                  \
        if (nsrc == 1) {                                                                           \
            tiara_redop_copy(dst, src[0], n * 2 * sizeof(F));                                      \
            return TIARA_OK;                                                                       \
        }                                                                                          \
        for (size_t at = 0; at < n * 2 * sizeof(F); at += 2 * sizeof(F)) {                         \
            F a[2], b[2];                                                                          \
            memcpy(a, (const unsigned char *)src[0] + at, sizeof(a));                              \
            for (int k = 1; k < nsrc; k++) {                                                       \
                memcpy(b, (const unsigned char *)src[k] + at, sizeof(b));                          \
                F re = a[0] * b[0] - a[1] * b[1];                                                  \
                F im = a[0] * b[1] + a[1] * b[0];                                                  \
                a[0] = re;                                                                         \
                a[1] = im;                                                                         \
            }                                                                                      \
            for (int part = 0; part < 2; part++)                                                   \
                a[part] = a[part] == a[part] ? a[part] : (F)__builtin_nan("");                     \
            memcpy((unsigned char *)dst + at, a, sizeof(a));                                       \
        }                                                                                          \
        return TIARA_OK;                                                                           \
    }

DEFINE_COMPLEX_PROD(fold_c32_prod, float)
DEFINE_COMPLEX_PROD(fold_c64_prod, double)

enum {
    f80_size = sizeof(long double)
};

/* The value lies in memory with padding, which is cleared so that results are equal as bytes. */
static inline long double f80_load(const void *from, size_t i)
{
    long double x;
    memcpy(&x, (const unsigned char *)from + i * sizeof(x), sizeof(x));
    return x;
}

static inline void f80_store(void *to, size_t i, long double x)
{
    unsigned char bytes[sizeof(x)] = {0};
    memcpy(bytes, &x, TIARA_REDOP_F80_USED);
    memcpy((unsigned char *)to + i * sizeof(x), bytes, sizeof(x));
}

#define F80_SUM(a, b) ((a) + (b))
#define F80_PROD(a, b) ((a) * (b))
#define F80_MIN(a, b) ((b) < (a) ? (b) : (a))
#define F80_MAX(a, b) ((a) < (b) ? (b) : (a))
#define F80_CLOSE_NAN(a) ((a) == (a) ? (a) : (long double)__builtin_nan(""))

#define DEFINE_F80_FOLD(NAME, APPLY, CLOSE)                                                        \
    static enum tiara_err NAME(                                                                    \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        (void)op;                                                                                  \
        if (nsrc == 1) {                                                                           \
            tiara_redop_copy(dst, src[0], n * sizeof(long double));                                \
            return TIARA_OK;                                                                       \
        }                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            long double a = f80_load(src[0], i);                                                   \
            for (int k = 1; k < nsrc; k++) {                                                       \
                long double b = f80_load(src[k], i);                                               \
                a = APPLY(a, b);                                                                   \
            }                                                                                      \
            f80_store(dst, i, CLOSE(a));                                                           \
        }                                                                                          \
        return TIARA_OK;                                                                           \
    }

DEFINE_F80_FOLD(fold_f80_sum, F80_SUM, F80_CLOSE_NAN)
DEFINE_F80_FOLD(fold_f80_prod, F80_PROD, F80_CLOSE_NAN)
DEFINE_F80_FOLD(fold_f80_min, F80_MIN, CLOSE_NONE)
DEFINE_F80_FOLD(fold_f80_max, F80_MAX, CLOSE_NONE)

/*
 * A minimum or maximum is the code of one of the operands, so that infinities and NaN are copied.
 */
#define FP8_ACCUMULATE(T, apply) a = apply(a, b)
#define FP8_SELECT(T, is_better)                                                                   \
    if (is_better(a, b)) {                                                                         \
        a = b;                                                                                     \
        code = ((const uint8_t *)src[k])[i];                                                       \
    }
#define FP8_CLOSE_ROUND(T) fp8_store(T##_format, a)
#define FP8_CLOSE_CODE(T) code
#define FP8_LESS(a, b) ((b) < (a))
#define FP8_GREATER(a, b) ((a) < (b))

#define DEFINE_FP8_FOLD(NAME, T, STEP, APPLY, CLOSE)                                               \
    static enum tiara_err NAME(                                                                    \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        (void)op;                                                                                  \
        if (nsrc == 1) {                                                                           \
            tiara_redop_copy(dst, src[0], n);                                                      \
            return TIARA_OK;                                                                       \
        }                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            uint8_t code = ((const uint8_t *)src[0])[i];                                           \
            float a = fp8_load(T##_format, code);                                                  \
            for (int k = 1; k < nsrc; k++) {                                                       \
                float b = fp8_load(T##_format, ((const uint8_t *)src[k])[i]);                      \
                STEP(T, APPLY);                                                                    \
            }                                                                                      \
            ((uint8_t *)dst)[i] = CLOSE(T);                                                        \
        }                                                                                          \
        return TIARA_OK;                                                                           \
    }

#define DEFINE_FP8_FOLDS(T)                                                                        \
    DEFINE_FP8_FOLD(fold_##T##_sum, T, FP8_ACCUMULATE, APPLY_SUM, FP8_CLOSE_ROUND)                 \
    DEFINE_FP8_FOLD(fold_##T##_prod, T, FP8_ACCUMULATE, APPLY_PROD, FP8_CLOSE_ROUND)               \
    DEFINE_FP8_FOLD(fold_##T##_min, T, FP8_SELECT, FP8_LESS, FP8_CLOSE_CODE)                       \
    DEFINE_FP8_FOLD(fold_##T##_max, T, FP8_SELECT, FP8_GREATER, FP8_CLOSE_CODE)

DEFINE_FP8_FOLDS(e4m3)
DEFINE_FP8_FOLDS(e5m2)

static const struct tiara_redop_rows rows = {
    {VECTOR_ROWS FLOAT_ROWS(E4M3, e4m3), FLOAT_ROWS(E5M2, e5m2), FLOAT_ROWS(F80, f80),
        ROW(C32, PROD, "c32 prod", 2 * f32_size, fold_c32_prod),
        ROW(C64, PROD, "c64 prod", 2 * f64_size, fold_c64_prod)}};

static bool supported(void)
{
    return true;
}

static const struct tiara_redop *find(enum tiara_type type, enum tiara_operator oper)
{
    return tiara_redop_row(&rows, type, oper);
}

const struct tiara_redop_isa tiara_redop_portable = {
    .name = REDOP_ISA, .supported = supported, .find = find};
