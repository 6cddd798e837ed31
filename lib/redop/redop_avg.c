/*
 * The finish of AVG: the finished sum divided by the number of ranks.
 *
 * A division, not a product with 1/nranks, so that the average of equal numbers is that number.
 * Each element is rounded by itself; the code is the same whatever row made the sum.
 */
#define VEC_BYTES 16

#include "redop/redop_half.h"
#include "redop/redop_bf16.h"
#include "redop/redop_fp8.h"
#include "redop/redop_priv.h"

/* Integers divide towards zero. WIDE holds every value of C and of nranks. */
#define DEFINE_INT_FINISH(T, C, WIDE)                                                              \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        unsigned char *p = buf;                                                                    \
        (void)op;                                                                                  \
        for (size_t i = 0; i < n; i++, p += sizeof(C)) {                                           \
            C x;                                                                                   \
            memcpy(&x, p, sizeof(x));                                                              \
            x = (C)((WIDE)x / (WIDE)nranks);                                                       \
            memcpy(p, &x, sizeof(x));                                                              \
        }                                                                                          \
    }

DEFINE_INT_FINISH(i8, int8_t, int32_t)
DEFINE_INT_FINISH(u8, uint8_t, uint32_t)
DEFINE_INT_FINISH(i16, int16_t, int32_t)
DEFINE_INT_FINISH(u16, uint16_t, uint32_t)
DEFINE_INT_FINISH(i32, int32_t, int32_t)
DEFINE_INT_FINISH(u32, uint32_t, uint32_t)
DEFINE_INT_FINISH(i64, int64_t, int64_t)
DEFINE_INT_FINISH(u64, uint64_t, uint64_t)

/* F is the type the division is done in. */
#define DEFINE_FLOAT_FINISH(T, F)                                                                  \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        unsigned char *p = buf, *end = p + n * T##_size;                                           \
        (void)op;                                                                                  \
        for (; (size_t)(end - p) >= (size_t)T##_lanes * T##_size; p += T##_lanes * T##_size)       \
            T##_store_vec(p, T##_load_vec(p) / (F)nranks);                                         \
        for (; p < end; p += T##_size)                                                             \
            T##_store_one(p, T##_load_one(p) / (F)nranks);                                         \
    }

DEFINE_FLOAT_FINISH(f16, float)
DEFINE_FLOAT_FINISH(bf16, float)
DEFINE_FLOAT_FINISH(f32, float)
DEFINE_FLOAT_FINISH(f64, double)

#define DEFINE_FP8_FINISH(T)                                                                       \
    void tiara_redop_finish_##T(const struct tiara_redop *op, void *buf, size_t n, int nranks)     \
    {                                                                                              \
        uint8_t *p = buf;                                                                          \
        (void)op;                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            p[i] = fp8_store(T##_format, fp8_load(T##_format, p[i]) / (float)nranks);              \
    }

DEFINE_FP8_FINISH(e4m3)
DEFINE_FP8_FINISH(e5m2)

void tiara_redop_finish_c32(const struct tiara_redop *op, void *buf, size_t n, int nranks)
{
    tiara_redop_finish_f32(op, buf, 2 * n, nranks);
}

void tiara_redop_finish_c64(const struct tiara_redop *op, void *buf, size_t n, int nranks)
{
    tiara_redop_finish_f64(op, buf, 2 * n, nranks);
}

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
