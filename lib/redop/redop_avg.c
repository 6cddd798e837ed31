/*
 * The finish of AVG: the finished sum divided by the number of ranks.
 *
 * A division, not a product with 1/nranks, so that the average of equal numbers is that number.
 * Each element is rounded by itself; the code is the same whatever row made the sum.
 */
#define VEC_BYTES 16

#include "redop/redop_half.h"
#include "redop/redop_fp8.h"
#include "redop/redop_priv.h"

DEFINE_BF16(vec)
DEFINE_BF16(one)

/* Integers divide towards zero, in a type that holds every value of C and of nranks. */
#define DEFINE_INT_FINISH(T, C)                                                                    \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        unsigned char *p = buf;                                                                    \
        (void)op;                                                                                  \
        for (size_t i = 0; i < n; i++, p += sizeof(C)) {                                           \
            C x = T##_load_one(p)[0];                                                              \
            T##_store_one(p, (T##_one){(C)(x / (__typeof__(x + 0))nranks)});                       \
        }                                                                                          \
    }

/* In float or double, what the lanes of T's vectors are. */
#define DEFINE_FLOAT_FINISH(T)                                                                     \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        unsigned char *p = buf, *end = p + n * T##_size;                                           \
        __typeof__((T##_vec){0}[0]) divisor = (__typeof__(divisor))nranks;                         \
        (void)op;                                                                                  \
        for (; (size_t)(end - p) >= (size_t)T##_lanes * T##_size; p += T##_lanes * T##_size)       \
            T##_store_vec(p, T##_load_vec(p) / divisor);                                           \
        for (; p < end; p += T##_size)                                                             \
            T##_store_one(p, T##_load_one(p) / divisor);                                           \
    }

#define DEFINE_FP8_FINISH(T)                                                                       \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        uint8_t *p = buf;                                                                          \
        (void)op;                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            p[i] = fp8_store(T##_format, fp8_load(T##_format, p[i]) / (float)nranks);              \
    }

#define FINISH_INT(T, bits) DEFINE_INT_FINISH(T, int##bits##_t)
#define FINISH_UINT(T, bits) DEFINE_INT_FINISH(T, uint##bits##_t)
#define FINISH_HALF(T, bits) DEFINE_FLOAT_FINISH(T)
#define FINISH_FP8(T, bits) DEFINE_FP8_FINISH(T)
#define FINISH_REAL(T, bits) DEFINE_FLOAT_FINISH(T)
#define DEFINE_FINISH(a, ID, name, bits, class) FINISH_##class(name, bits)
TIARA_GPU_TYPES(DEFINE_FINISH, )

#define DEFINE_COMPLEX_FINISH(C, F)                                                                \
    void tiara_redop_finish_##C(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        tiara_redop_finish_##F(op, buf, 2 * n, nranks);                                            \
    }
DEFINE_COMPLEX_FINISH(c32, f32)
DEFINE_COMPLEX_FINISH(c64, f64)

void tiara_redop_finish_f80(const struct tiara_redop *op, void *buf, size_t n, int nranks)
{
    unsigned char *p = buf;

    (void)op;
    for (size_t i = 0; i < n; i++, p += sizeof(long double)) {
        long double x;
        memcpy(&x, p, sizeof(x));
        x /= nranks;
        memcpy(p, &x, TIARA_REDOP_F80_USED);
    }
}
