/*
 * What a fold does with vectors of 16 bytes, for each element type and operator.
 *
 * A policy says how a source's vector opens an accumulator, how the next ones join it, in the order
 * of the sources, and how it closes into the result. The bits are those of the host's reductions
 * (lib/redop): integers wrap, logical operators give 0 or 1, a SUM or PROD that is NaN is the
 * positive quiet one, MIN and MAX choose, small floats round once a fold.
 */
#ifndef TIARA_KERNELS_POLICY_H
#define TIARA_KERNELS_POLICY_H

#include "format.h"

/* ---- operators; a is what has been accumulated ---- */

#define K_OPER(name, expression)                                                                   \
    struct name {                                                                                  \
        template <class V> K_IN V apply(V a, V b)                                                  \
        {                                                                                          \
            return (V)(expression);                                                                \
        }                                                                                          \
    };
K_OPER(k_sum, a + b)
K_OPER(k_prod, a *b)
K_OPER(k_land, a != 0 && b != 0)
K_OPER(k_lor, a != 0 || b != 0)
K_OPER(k_lxor, (a != 0) != (b != 0))
K_OPER(k_band, a &b)
K_OPER(k_bor, a | b)
K_OPER(k_bxor, a ^ b)

/* Whether b replaces a. */
struct k_min {
    template <class V> K_IN bool takes(V a, V b)
    {
        return b < a;
    }
};
struct k_max {
    template <class V> K_IN bool takes(V a, V b)
    {
        return a < b;
    }
};

/* ---- lanes of a vector ---- */

template <class T> struct k_lanes {
    typedef typename T::bits bits;
    static const int count = 16 / T::size;

    /* Above the element's bytes: anything. */
    K_IN bits get(const struct k_vec &v, int i)
    {
        if constexpr (T::size == 8)
            return v.w[2 * i] | (uint64_t)v.w[2 * i + 1] << 32;
        else
            return v.w[i * T::size / 4] >> (i * T::size % 4 * 8);
    }
    /* Into a vector whose lane is still zero. */
    K_IN void put(struct k_vec &v, int i, bits b)
    {
        if constexpr (T::size == 8) {
            v.w[2 * i] = (uint32_t)b;
            v.w[2 * i + 1] = (uint32_t)(b >> 32);
        } else {
            v.w[i * T::size / 4] |= (b & (0xffffffffu >> (32 - 8 * T::size)))
                                    << (i * T::size % 4 * 8);
        }
    }
};

/* ---- policies ---- */

/* unroll: how many vectors of each source a lane has in flight; as many as registers and short code
 * allow. */

/* The accumulator is as wide as the elements. */
template <class T, class Op> struct k_exact {
    typedef struct k_vec acc;
    typedef T type;
    static const int unroll = T::size >= 4 ? 4 : 2;

    K_IN void open(acc &a, const struct k_vec &v)
    {
        a = v;
    }
    K_IN void join(acc &a, const struct k_vec &v)
    {
        struct k_vec out = {{0, 0, 0, 0}};

        K_UNROLL
        for (int i = 0; i < k_lanes<T>::count; i++) {
            typename T::val x = T::from(k_lanes<T>::get(a, i)), y = T::from(k_lanes<T>::get(v, i));
            k_lanes<T>::put(out, i, T::to(Op::apply(x, y)));
        }
        a = out;
    }
    K_IN struct k_vec close(const acc &a)
    {
        return a;
    }
};

/* Bits have no lanes. Counted in bytes. */
template <class Op> struct k_bitwise {
    typedef struct k_vec acc;
    typedef k_u8 type;
    static const int unroll = 4;

    K_IN void open(acc &a, const struct k_vec &v)
    {
        a = v;
    }
    K_IN void join(acc &a, const struct k_vec &v)
    {
        K_UNROLL
        for (int i = 0; i < 4; i++)
            a.w[i] = Op::apply(a.w[i], v.w[i]);
    }
    K_IN struct k_vec close(const acc &a)
    {
        return a;
    }
};

/* float and double: as k_exact, but that a result which is NaN becomes the one without sign and
 * payload. */
template <class T, class Op> struct k_float : k_exact<T, Op> {
    K_IN struct k_vec close(const struct k_vec &a)
    {
        const typename T::bits nan =
            (typename T::bits)(T::size == 8 ? 0x7ff8000000000000u : 0x7fc00000u);
        struct k_vec out = {{0, 0, 0, 0}};

        K_UNROLL
        for (int i = 0; i < k_lanes<T>::count; i++) {
            typename T::bits b = k_lanes<T>::get(a, i);
            typename T::val x = T::from(b);
            k_lanes<T>::put(out, i, x == x ? b : nan);
        }
        return out;
    }
};

/* MIN and MAX: one of the elements, as it is. */
template <class T, class Op> struct k_choose : k_exact<T, Op> {
    K_IN void join(struct k_vec &a, const struct k_vec &v)
    {
        struct k_vec out = {{0, 0, 0, 0}};

        K_UNROLL
        for (int i = 0; i < k_lanes<T>::count; i++) {
            typename T::bits x = k_lanes<T>::get(a, i), y = k_lanes<T>::get(v, i);
            k_lanes<T>::put(out, i, Op::takes(T::from(x), T::from(y)) ? y : x);
        }
        a = out;
    }
};

/* The same for small floats, which are compared as floats. */
template <class T, class Op> struct k_choose_small : k_exact<T, Op> {
    static const int lanes = k_word<T>::lanes;

    K_IN void join(struct k_vec &a, const struct k_vec &v)
    {
        struct k_vec out = {{0, 0, 0, 0}};

        K_UNROLL
        for (int i = 0; i < 4; i++) {
            float x[lanes], y[lanes];
            k_word<T>::widen(x, a.w[i]);
            k_word<T>::widen(y, v.w[i]);
            K_UNROLL
            for (int j = 0; j < lanes; j++) {
                uint32_t mask = (0xffffffffu >> (32 - 8 * T::size)) << (8 * T::size * j);
                out.w[i] |= (Op::takes(x[j], y[j]) ? v.w[i] : a.w[i]) & mask;
            }
        }
        a = out;
    }
};

/* Of 16-bit floats a NaN becomes quiet, as it does on the host, where they are chosen as floats. */
template <class T, class Op> struct k_choose_quiet : k_choose_small<T, Op> {
    K_IN struct k_vec close(const struct k_vec &a)
    {
        struct k_vec out = {{0, 0, 0, 0}};

        K_UNROLL
        for (int i = 0; i < k_lanes<T>::count; i++) {
            uint32_t b = k_lanes<T>::get(a, i);
            float x = T::from(b);
            k_lanes<T>::put(out, i, x == x ? b : b | T::quiet);
        }
        return out;
    }
};

/* SUM and PROD of small floats: in float over all sources, rounded once. */
template <class T, class Op> struct k_wide {
    struct acc {
        float v[16 / T::size];
    };
    typedef T type;
    static const int unroll = 2;
    static const int lanes = k_word<T>::lanes;

    K_IN void open(acc &a, const struct k_vec &v)
    {
        K_UNROLL
        for (int i = 0; i < 4; i++)
            k_word<T>::widen(a.v + i * lanes, v.w[i]);
    }
    K_IN void join(acc &a, const struct k_vec &v)
    {
        acc b;

        open(b, v);
        K_UNROLL
        for (int i = 0; i < 4 * lanes; i++)
            a.v[i] = Op::apply(a.v[i], b.v[i]);
    }
    K_IN struct k_vec close(const acc &a)
    {
        struct k_vec out;

        K_UNROLL
        for (int i = 0; i < 4; i++)
            out.w[i] = k_word<T>::narrow(a.v + i * lanes);
        return out;
    }
};

#endif
