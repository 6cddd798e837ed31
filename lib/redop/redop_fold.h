/*
 * The folds of one row and its part of the table, over the vectors of redop_vec.h.
 *
 * A fold passes once over memory: of each block of four vectors all sources are loaded and combined
 * before the block is stored, so that dst may be any of the sources. The number of sources is a
 * constant in the common cases, and the element type's f16_ and bf16_ loads and stores widen and
 * round, so that 16-bit floats round once per fold.
 *
 * The including file defines REDOP_ISA (the row's name, a string), and has half_load_vec,
 * f16_load_vec, f16_load_one and the stores.
 */
#ifndef TIARA_REDOP_FOLD_H
#define TIARA_REDOP_FOLD_H

#include "redop/redop_priv.h"
#include "redop/redop_vec.h"

DEFINE_BF16(vec)
DEFINE_BF16(one)

/*
 * NAME_body does the work for any number of sources; NAME, the table's entry, calls it with
 * constants so that the inner loop disappears for the counts that the algorithms use most.
 */
#define DEFINE_FOLD(NAME, T, APPLY, CLOSE)                                                         \
    REDOP_INLINE void NAME##_body(unsigned char *dst, const void *const *src, int nsrc, size_t n)  \
    {                                                                                              \
        enum {                                                                                     \
            vec = T##_lanes * T##_size                                                             \
        };                                                                                         \
        size_t at = 0, end = n * T##_size;                                                         \
        for (; end - at >= 4 * vec; at += 4 * vec) {                                               \
            const unsigned char *p = (const unsigned char *)src[0] + at;                           \
            T##_vec a0 = T##_load_vec(p), a1 = T##_load_vec(p + vec);                              \
            T##_vec a2 = T##_load_vec(p + 2 * vec), a3 = T##_load_vec(p + 3 * vec);                \
            for (int k = 1; k < nsrc; k++) {                                                       \
                p = (const unsigned char *)src[k] + at;                                            \
                T##_vec b0 = T##_load_vec(p), b1 = T##_load_vec(p + vec);                          \
                T##_vec b2 = T##_load_vec(p + 2 * vec), b3 = T##_load_vec(p + 3 * vec);            \
                a0 = APPLY(a0, b0);                                                                \
                a1 = APPLY(a1, b1);                                                                \
                a2 = APPLY(a2, b2);                                                                \
                a3 = APPLY(a3, b3);                                                                \
            }                                                                                      \
            T##_store_vec(dst + at, CLOSE(a0));                                                    \
            T##_store_vec(dst + at + vec, CLOSE(a1));                                              \
            T##_store_vec(dst + at + 2 * vec, CLOSE(a2));                                          \
            T##_store_vec(dst + at + 3 * vec, CLOSE(a3));                                          \
        }                                                                                          \
        for (; end - at >= vec; at += vec) {                                                       \
            T##_vec a = T##_load_vec((const unsigned char *)src[0] + at);                          \
            for (int k = 1; k < nsrc; k++) {                                                       \
                T##_vec b = T##_load_vec((const unsigned char *)src[k] + at);                      \
                a = APPLY(a, b);                                                                   \
            }                                                                                      \
            T##_store_vec(dst + at, CLOSE(a));                                                     \
        }                                                                                          \
        for (; at < end; at += T##_size) {                                                         \
            T##_one a = T##_load_one((const unsigned char *)src[0] + at);                          \
            for (int k = 1; k < nsrc; k++) {                                                       \
                T##_one b = T##_load_one((const unsigned char *)src[k] + at);                      \
                a = APPLY(a, b);                                                                   \
            }                                                                                      \
            T##_store_one(dst + at, CLOSE(a));                                                     \
        }                                                                                          \
    }                                                                                              \
    static enum tiara_err NAME(                                                                    \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        size_t bytes = n * T##_size;                                                               \
        (void)op;                                                                                  \
        if (nsrc == 1)                                                                             \
            tiara_redop_copy(dst, src[0], bytes);                                                  \
        else if (nsrc == 2)                                                                        \
            NAME##_body(dst, src, 2, n);                                                           \
        else if (nsrc == 3)                                                                        \
            NAME##_body(dst, src, 3, n);                                                           \
        else if (nsrc == 4)                                                                        \
            NAME##_body(dst, src, 4, n);                                                           \
        else                                                                                       \
            NAME##_body(dst, src, nsrc, n);                                                        \
        return TIARA_OK;                                                                           \
    }

/* Addition and multiplication of signed integers are those of the unsigned ones: they wrap. */
#define DEFINE_INT_FOLDS(I, U)                                                                     \
    DEFINE_FOLD(fold_##U##_sum, U, APPLY_SUM, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_prod, U, APPLY_PROD, CLOSE_NONE)                                        \
    DEFINE_FOLD(fold_##I##_min, I, APPLY_MIN, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##I##_max, I, APPLY_MAX, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_min, U, APPLY_MIN, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_max, U, APPLY_MAX, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_land, U, APPLY_LAND, CLOSE_NONE)                                        \
    DEFINE_FOLD(fold_##U##_lor, U, APPLY_LOR, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_lxor, U, APPLY_LXOR, CLOSE_NONE)                                        \
    DEFINE_FOLD(fold_##U##_band, U, APPLY_BAND, CLOSE_NONE)                                        \
    DEFINE_FOLD(fold_##U##_bor, U, APPLY_BOR, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##U##_bxor, U, APPLY_BXOR, CLOSE_NONE)

/* MIN and MAX select one of their operands, NaN or not, so that nothing is left to choose. */
#define DEFINE_FLOAT_FOLDS(F)                                                                      \
    DEFINE_FOLD(fold_##F##_sum, F, APPLY_SUM, CLOSE_NAN)                                           \
    DEFINE_FOLD(fold_##F##_prod, F, APPLY_PROD, CLOSE_NAN)                                         \
    DEFINE_FOLD(fold_##F##_min, F, APPLY_MIN, CLOSE_NONE)                                          \
    DEFINE_FOLD(fold_##F##_max, F, APPLY_MAX, CLOSE_NONE)

#define FOLDS_INT(t, bits) /* with the unsigned one */
#define FOLDS_UINT(t, bits) DEFINE_INT_FOLDS(i##bits, t)
#define FOLDS_HALF(t, bits) DEFINE_FLOAT_FOLDS(t)
#define FOLDS_FP8(t, bits) /* in redop_portable.c */
#define FOLDS_REAL(t, bits) DEFINE_FLOAT_FOLDS(t)
#define DEFINE_FOLDS(a, ID, name, bits, class) FOLDS_##class(name, bits)
TIARA_GPU_TYPES(DEFINE_FOLDS, )

/* A sum of complex numbers is a sum of twice as many real ones. */
#define DEFINE_COMPLEX_SUM(C, F)                                                                   \
    static enum tiara_err fold_##C##_sum(                                                          \
        const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)       \
    {                                                                                              \
        return fold_##F##_sum(op, dst, src, nsrc, 2 * n);                                          \
    }
DEFINE_COMPLEX_SUM(c32, f32)
DEFINE_COMPLEX_SUM(c64, f64)

#define ROW(TYPE, OPER, label, size, kernel)                                                       \
    [TIARA_TYPE_##TYPE][TIARA_OPER_##OPER] = {                                                     \
        .name = label " " REDOP_ISA, .elem_size = size, .commutative = true, .fold = kernel}

#define AVG_ROW(TYPE, t, size, kernel)                                                             \
    [TIARA_TYPE_##TYPE][TIARA_REDOP_AVG] = {.name = #t " avg " REDOP_ISA,                          \
        .elem_size = size,                                                                         \
        .commutative = true,                                                                       \
        .fold = kernel,                                                                            \
        .finish = tiara_redop_finish_##t}

#define FLOAT_ROWS(TYPE, t)                                                                        \
    ROW(TYPE, SUM, #t " sum", t##_size, fold_##t##_sum),                                           \
        ROW(TYPE, PROD, #t " prod", t##_size, fold_##t##_prod),                                    \
        ROW(TYPE, MIN, #t " min", t##_size, fold_##t##_min),                                       \
        ROW(TYPE, MAX, #t " max", t##_size, fold_##t##_max),                                       \
        AVG_ROW(TYPE, t, t##_size, fold_##t##_sum)

#define LOGICAL_ROWS(TYPE, label, U)                                                               \
    ROW(TYPE, LAND, label " land", U##_size, fold_##U##_land),                                     \
        ROW(TYPE, LOR, label " lor", U##_size, fold_##U##_lor),                                    \
        ROW(TYPE, LXOR, label " lxor", U##_size, fold_##U##_lxor)

/* t: the type itself; U: the unsigned type of its size. */
#define INT_ROWS(TYPE, t, U)                                                                       \
    ROW(TYPE, SUM, #t " sum", U##_size, fold_##U##_sum),                                           \
        ROW(TYPE, PROD, #t " prod", U##_size, fold_##U##_prod),                                    \
        ROW(TYPE, MIN, #t " min", U##_size, fold_##t##_min),                                       \
        ROW(TYPE, MAX, #t " max", U##_size, fold_##t##_max), LOGICAL_ROWS(TYPE, #t, U),            \
        ROW(TYPE, BAND, #t " band", U##_size, fold_##U##_band),                                    \
        ROW(TYPE, BOR, #t " bor", U##_size, fold_##U##_bor),                                       \
        ROW(TYPE, BXOR, #t " bxor", U##_size, fold_##U##_bxor),                                    \
        AVG_ROW(TYPE, t, U##_size, fold_##U##_sum)

/* Everything that the vectors do, for the initialiser of struct tiara_redop_rows. */
#define VECTOR_ROWS_INT(ID, t, bits) INT_ROWS(ID, t, u##bits),
#define VECTOR_ROWS_UINT(ID, t, bits) INT_ROWS(ID, t, u##bits),
#define VECTOR_ROWS_HALF(ID, t, bits) FLOAT_ROWS(ID, t),
#define VECTOR_ROWS_FP8(ID, t, bits)
#define VECTOR_ROWS_REAL(ID, t, bits) FLOAT_ROWS(ID, t),
#define VECTOR_ROWS_LONG(ID, t, bits)
#define VECTOR_ROWS_COMPLEX(ID, t, bits)                                                           \
    ROW(ID, SUM, #t " sum", (bits) / 8, fold_##t##_sum), AVG_ROW(ID, t, (bits) / 8, fold_##t##_sum),
#define VECTOR_ROWS_BOOL(ID, t, bits) LOGICAL_ROWS(ID, "bool", u8),
#define VECTOR_ROWS_OF(a, ID, name, bits, class) VECTOR_ROWS_##class(ID, name, bits)
#define VECTOR_ROWS TIARA_TYPES(VECTOR_ROWS_OF, )

#endif
