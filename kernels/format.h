/*
 * Element types: how their bits become values that can be computed with, and back.
 *
 * A type T has: size; bits, an unsigned integer of 32 or 64 bits that holds an element in its
 * lowest T::size bytes (above them anything); val, what arithmetic is done in; from() and to().
 * Small floats are computed in float. Integers shorter than 32 bits are computed in 32, and cut off
 * by whoever stores them.
 *
 * Conversions round to nearest even and keep denormals. 16-bit floats overflow to infinity, 8-bit
 * floats to their largest finite value. A value that is NaN becomes the positive quiet NaN (0x7f in
 * 8 bits). The hardware's conversions are used where they give these bits (format_cuda.h).
 */
#ifndef TIARA_KERNELS_FORMAT_H
#define TIARA_KERNELS_FORMAT_H

#include "device.h"

template <class Val, int Size> struct k_integer {
    typedef Val val;
    typedef uint32_t bits;
    static const int size = Size;

    K_IN val from(bits b)
    {
        int unused = 32 - 8 * Size;

        return (val)(b << unused) >> unused; /* of a signed val: extends the sign */
    }
    K_IN bits to(val v)
    {
        return (bits)v;
    }
};
typedef k_integer<int32_t, 1> k_i8;
typedef k_integer<uint32_t, 1> k_u8;
typedef k_integer<int32_t, 2> k_i16;
typedef k_integer<uint32_t, 2> k_u16;
typedef k_integer<int32_t, 4> k_i32;
typedef k_integer<uint32_t, 4> k_u32;

/* A type whose bits are its value's. */
template <class Val, class Bits> struct k_plain {
    typedef Val val;
    typedef Bits bits;
    static const bits quiet = (bits)1 << (sizeof(bits) == 8 ? 51 : 22); /* of a float */
    static const int size = sizeof(Bits);

    K_IN val from(bits b)
    {
        return k_cast<val>(b);
    }
    K_IN bits to(val v)
    {
        return k_cast<bits>(v);
    }
};
typedef k_plain<int64_t, uint64_t> k_i64;
typedef k_plain<uint64_t, uint64_t> k_u64;
typedef k_plain<float, uint32_t> k_f32;
typedef k_plain<double, uint64_t> k_f64;

/*
 * A float of Size bytes with Fraction bits of fraction. Special: the least magnitude that is not
 * finite. Top: the largest that is a result, infinity or the largest finite one. Quiet: the bit
 * that a NaN which is copied gets.
 */
template <int Size, int Fraction, int Bias, uint32_t Special, uint32_t Top, uint32_t Nan,
    uint32_t Quiet>
struct k_small_float {
    typedef float val;
    typedef uint32_t bits;
    static const int size = Size;
    static const uint32_t quiet = Quiet;
    static const uint32_t sign = 1u << (8 * Size - 1);
    static const int shift = 23 - Fraction;

    /* Exact: exponent and fraction in place make a float that is too small by a power of two. */
    K_IN float from(bits b)
    {
        uint32_t mag = b & (sign - 1), fraction = mag & ((1u << Fraction) - 1);
        float x = k_cast<float>(mag << shift) * k_cast<float>((uint32_t)(254 - Bias) << 23);
        uint32_t out = mag < Special ? k_cast<uint32_t>(x) : 0x7f800000u | fraction << shift;

        return k_cast<float>(out | (b & sign) << (32 - 8 * Size));
    }
    /* Denormals are rounded by adding the power of two whose unit in the last place is the smallest
     * of them. */
    K_IN bits to(float x)
    {
        const uint32_t unit = (uint32_t)(151 - Bias - Fraction) << 23;
        uint32_t all = k_cast<uint32_t>(x), mag = all & 0x7fffffffu;
        uint32_t tiny = k_cast<uint32_t>(k_cast<float>(mag) + k_cast<float>(unit)) - unit;
        uint32_t rounded = mag + (1u << (shift - 1)) - 1 + (mag >> shift & 1);
        uint32_t normal = (rounded - ((uint32_t)(127 - Bias) << 23)) >> shift;
        uint32_t out = mag < (uint32_t)(128 - Bias) << 23 ? tiny : normal;

        out = out < Top ? out : Top;
        return x == x ? out | (all >> (32 - 8 * Size) & sign) : Nan;
    }
};
typedef k_small_float<2, 10, 15, 0x7c00, 0x7c00, 0x7e00, 0x200> k_f16_portable;
typedef k_small_float<1, 3, 7, 0x7f, 0x7e, 0x7f, 0> k_e4m3;
typedef k_small_float<1, 2, 15, 0x7c, 0x7b, 0x7f, 0> k_e5m2;

/* bfloat16: the upper half of a float. */
struct k_bf16 {
    typedef float val;
    typedef uint32_t bits;
    static const int size = 2;
    static const uint32_t quiet = 0x40;

    K_IN float from(bits b)
    {
        return k_cast<float>(b << 16);
    }
    K_IN bits to(float x)
    {
        uint32_t all = k_cast<uint32_t>(x);

        return x == x ? (all + 0x7fff + (all >> 16 & 1)) >> 16 : 0x7fc0;
    }
};

/* The small floats of a 32-bit word. */
template <class T> struct k_word {
    static const int lanes = 4 / T::size;

    K_IN void widen(float *v, uint32_t w)
    {
        K_UNROLL
        for (int i = 0; i < lanes; i++)
            v[i] = T::from(w >> (8 * T::size * i));
    }
    K_IN uint32_t narrow(const float *v)
    {
        uint32_t w = 0;

        K_UNROLL
        for (int i = 0; i < lanes; i++)
            w |= T::to(v[i]) << (8 * T::size * i);
        return w;
    }
};

#ifdef K_CUDA_FORMATS
#include "format_cuda.h"
#else
typedef k_f16_portable k_f16;
#endif

#endif
