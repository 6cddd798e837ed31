/*
 * Vectors of VEC_BYTES bytes: the types and element operations that every instruction set shares.
 *
 * The one idea: each row of redop is this same text, compiled for another vector size and other
 * machine flags, so that "all rows give equal bits" holds because there is only one definition of
 * every operator. The compiler's vector extension picks the instructions, and spells out those
 * that a set lacks (8-bit products, 64-bit products, unsigned minima).
 *
 * Every element type T comes in two shapes, T_vec and T_one (a vector of a single lane, for the
 * last elements of a buffer), with the same operations: T_load_vec and T_store_vec, T_load_one and
 * T_store_one. Memory is read and written at any alignment.
 *
 * Floating-point code assumes round to nearest. Sums and products that are NaN become one canonical
 * NaN (CLOSE_NAN): compilers may swap the operands of + and *, and the hardware takes the payload
 * from the first, so that without it the bits would depend on how a loop was compiled.
 *
 * The including file defines VEC_BYTES first.
 */
#ifndef TIARA_REDOP_VEC_H
#define TIARA_REDOP_VEC_H

#include <stddef.h>
#include <stdint.h>

#define REDOP_INLINE static inline __attribute__((always_inline))

/*
 * Comparisons of vectors give all ones or zero in an integer vector of the same lane size. The
 * compilers turn this into blend, min and max instructions.
 */
#define SELECT(mask, yes, no)                                                                      \
    ((__typeof__(yes))(((mask) & (__typeof__(mask))(yes)) | (~(mask) & (__typeof__(mask))(no))))

/* Operators: a is the accumulated left operand. Integers that could overflow come unsigned. */
#define APPLY_SUM(a, b) ((a) + (b))
#define APPLY_PROD(a, b) ((a) * (b))
#define APPLY_MIN(a, b) SELECT((b) < (a), b, a)
#define APPLY_MAX(a, b) SELECT((a) < (b), b, a)
#define APPLY_LAND(a, b) ((__typeof__(a))(((a) != 0) & ((b) != 0)) & 1)
#define APPLY_LOR(a, b) ((__typeof__(a))(((a) != 0) | ((b) != 0)) & 1)
#define APPLY_LXOR(a, b) ((__typeof__(a))(((a) != 0) ^ ((b) != 0)) & 1)
#define APPLY_BAND(a, b) ((a) & (b))
#define APPLY_BOR(a, b) ((a) | (b))
#define APPLY_BXOR(a, b) ((a) ^ (b))

/* What happens to a result before it is stored. */
#define CLOSE_NONE(a) (a)
#define CLOSE_NAN(a) SELECT((a) == (a), a, (__typeof__(a)){0} + __builtin_nanf(""))

/* One shape of one C type: the register type, its twin in memory, load and store. */
#define DEFINE_SHAPE(T, C, SHAPE, BYTES)                                                           \
    typedef C T##_##SHAPE __attribute__((vector_size(BYTES)));                                     \
    typedef T##_##SHAPE T##_##SHAPE##_mem __attribute__((aligned(1), may_alias));                  \
    REDOP_INLINE T##_##SHAPE T##_load_##SHAPE(const unsigned char *p)                              \
    {                                                                                              \
        return *(const T##_##SHAPE##_mem *)p;                                                      \
    }                                                                                              \
    REDOP_INLINE void T##_store_##SHAPE(unsigned char *p, T##_##SHAPE v)                           \
    {                                                                                              \
        *(T##_##SHAPE##_mem *)p = v;                                                               \
    }

#define DEFINE_TYPE(T, C)                                                                          \
    enum {                                                                                         \
        T##_size = sizeof(C),                                                                      \
        T##_lanes = VEC_BYTES / sizeof(C)                                                          \
    };                                                                                             \
    DEFINE_SHAPE(T, C, vec, VEC_BYTES)                                                             \
    DEFINE_SHAPE(T, C, one, sizeof(C))

DEFINE_TYPE(i8, int8_t)
DEFINE_TYPE(u8, uint8_t)
DEFINE_TYPE(i16, int16_t)
DEFINE_TYPE(u16, uint16_t)
DEFINE_TYPE(i32, int32_t)
DEFINE_TYPE(u32, uint32_t)
DEFINE_TYPE(i64, int64_t)
DEFINE_TYPE(u64, uint64_t)
DEFINE_TYPE(f32, float)
DEFINE_TYPE(f64, double)

/* 16-bit floats live in registers as float: a f32_vec belongs to half a vector of memory. */
enum {
    bf16_size = 2,
    bf16_lanes = f32_lanes,
    f16_size = 2,
    f16_lanes = f32_lanes
};
typedef f32_vec bf16_vec, f16_vec;
typedef f32_one bf16_one, f16_one;

/* The bits of 16-bit numbers in 32-bit lanes; each row has its half_load_vec and half_store_vec. */
REDOP_INLINE u32_one half_load_one(const unsigned char *p)
{
    return __builtin_convertvector(u16_load_one(p), u32_one);
}

REDOP_INLINE void half_store_one(unsigned char *p, u32_one v)
{
    u16_store_one(p, __builtin_convertvector(v, u16_one));
}

/*
 * bfloat16, the upper half of a float. Stores round to nearest even; a NaN becomes quiet. For files
 * that have half_load_vec and half_store_vec.
 */
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

/* One half-precision number through the F16C instructions; the same files. */
#define DEFINE_F16C_ONE                                                                            \
    REDOP_INLINE f32_one f16_load_one(const unsigned char *p)                                      \
    {                                                                                              \
        return (f32_one){_cvtsh_ss((uint16_t)half_load_one(p)[0])};                                \
    }                                                                                              \
    REDOP_INLINE void f16_store_one(unsigned char *p, f32_one v)                                   \
    {                                                                                              \
        half_store_one(p, (u32_one){_cvtss_sh(v[0], _MM_FROUND_TO_NEAREST_INT)});                  \
    }

#endif
