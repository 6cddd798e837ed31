/*
 * Conversions of small floats by the hardware's instructions: included by format.h.
 *
 * The instructions round and saturate as format.h says. What they make of a NaN is settled by a
 * selection of our own, since 8-bit formats have several.
 */
#ifndef TIARA_KERNELS_FORMAT_CUDA_H
#define TIARA_KERNELS_FORMAT_CUDA_H

struct k_f16 {
    typedef float val;
    typedef uint32_t bits;
    static const int size = 2;
    static const uint32_t quiet = k_f16_portable::quiet;

    K_IN float from(bits b)
    {
        float x;

        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)b));
        return x;
    }
    K_IN bits to(float x)
    {
        uint16_t b;

        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x));
        return x == x ? b : 0x7e00;
    }
};

#if __CUDA_ARCH__ >= 890

/* Two 8-bit floats at a time, by way of 16-bit ones, which hold each of their values. */
#define K_WORD_FP8(T, name)                                                                        \
    template <> struct k_word<T> {                                                                 \
        static const int lanes = 4;                                                                \
                                                                                                   \
        K_IN void widen(float *v, uint32_t w)                                                      \
        {                                                                                          \
            K_UNROLL                                                                               \
            for (int i = 0; i < 4; i += 2) {                                                       \
                uint32_t halves;                                                                   \
                asm("cvt.rn.f16x2." name " %0, %1;"                                                \
                    : "=r"(halves)                                                                 \
                    : "h"((uint16_t)(w >> (8 * i))));                                              \
                v[i] = k_f16::from(halves);                                                        \
                v[i + 1] = k_f16::from(halves >> 16);                                              \
            }                                                                                      \
        }                                                                                          \
        K_IN uint32_t narrow(const float *v)                                                       \
        {                                                                                          \
            uint32_t w = 0;                                                                        \
                                                                                                   \
            K_UNROLL                                                                               \
            for (int i = 0; i < 4; i += 2) {                                                       \
                uint16_t pair;                                                                     \
                asm("cvt.rn.satfinite." name ".f32 %0, %1, %2;"                                    \
                    : "=h"(pair)                                                                   \
                    : "f"(v[i + 1]), "f"(v[i]));                                                   \
                w |= (v[i] == v[i] ? pair & 0xffu : 0x7fu) << (8 * i);                             \
                w |= (v[i + 1] == v[i + 1] ? pair >> 8 : 0x7fu) << (8 * i + 8);                    \
            }                                                                                      \
            return w;                                                                              \
        }                                                                                          \
    };
K_WORD_FP8(k_e4m3, "e4m3x2")
K_WORD_FP8(k_e5m2, "e5m2x2")

#endif

#endif
