/*
 * The walk through memory: folds by all lanes together, copies, and the division of AVG.
 *
 * One idea: everything works on vectors of 16 bytes, and policy.h says what they are worth. An
 * element at the edge of a stripe is a vector of which one lane counts.
 *
 * Alignment. dst is walked in vectors that are aligned; elements before and behind them one by one.
 * A source that lies otherwise (*skewed*) is read in the two aligned vectors that hold its 16
 * bytes, which are shifted together. One vector at either end is left to single elements then, so
 * that nothing outside the source is read. When dst is not aligned even to its elements, all of
 * them are walked one by one, byte by byte.
 *
 * In place. A lane reads an element from all sources before it writes it, and nobody else writes
 * it; a source that is dst is never skewed. An element always belongs to the same lane, whatever
 * the policy, as long as dst, size, count, skew and lanes are the same: so the division may follow
 * a fold without a barrier.
 */
#ifndef TIARA_KERNELS_FOLD_H
#define TIARA_KERNELS_FOLD_H

#include "policy.h"

/* ---- the walk through memory ---- */

/* How @bytes bytes from dst are divided: @nvec vectors from byte @begin, single elements around
 * them. */
struct k_split {
    uint64_t begin, nvec;
    uint64_t before, single; /* elements before the vectors; in all */
};

K_FN struct k_split k_split_of(const char *dst, uint32_t size, uint64_t count, bool skew)
{
    uint64_t bytes = count * size, edge = skew ? 16 : 0;
    uint64_t begin = (0 - (uint64_t)(uintptr_t)dst) % 16 + edge;
    struct k_split s = {0, 0, 0, count};

    if ((uintptr_t)dst % size == 0 && bytes >= begin + edge + 16) {
        s.begin = begin;
        s.nvec = (bytes - begin - edge) / 16;
        s.before = begin / size;
        s.single = count - s.nvec * (16 / size);
    }
    return s;
}

/* Whether any source lies otherwise than dst. */
K_FN bool k_skewed(const char *dst, const char *const *src, int nsrc)
{
    uintptr_t differ = 0;

    for (int k = 0; k < nsrc; k++)
        differ |= (uintptr_t)src[k] ^ (uintptr_t)dst;
    return differ % 16 != 0;
}

/* The 16 bytes that begin @skew bytes, 1 to 15, behind the aligned vector at @aligned. */
K_FN struct k_vec k_load_skewed(const char *aligned, uint32_t skew)
{
    struct k_vec lo = k_load_vec(aligned), hi = k_load_vec(aligned + 16), out;
    uint32_t w[8] = {lo.w[0], lo.w[1], lo.w[2], lo.w[3], hi.w[0], hi.w[1], hi.w[2], hi.w[3]};

    K_UNROLL
    for (int i = 0; i < 6; i++)
        w[i] = skew & 8 ? w[i + 2] : w[i];
    K_UNROLL
    for (int i = 0; i < 5; i++)
        w[i] = skew & 4 ? w[i + 1] : w[i];
    K_UNROLL
    for (int i = 0; i < 4; i++)
        out.w[i] = (uint32_t)((w[i] | (uint64_t)w[i + 1] << 32) >> (skew % 4 * 8));
    return out;
}

K_FN struct k_vec k_load_any(const char *p)
{
    uint32_t skew = (uint32_t)((uintptr_t)p % 16);

    return skew == 0 ? k_load_vec(p) : k_load_skewed(p - skew, skew);
}

/* One element, at any address, in lane 0. */
template <class T> K_FN struct k_vec k_load_one(const char *p)
{
    typename T::bits b = 0;
    struct k_vec v = {{0, 0, 0, 0}};

    if ((uintptr_t)p % T::size == 0) {
        if constexpr (T::size == 1)
            b = k_load<uint8_t>(p);
        else if constexpr (T::size == 2)
            b = k_load<uint16_t>(p);
        else
            b = k_load<typename T::bits>(p);
    } else {
        K_UNROLL
        for (int i = 0; i < T::size; i++)
            b |= (typename T::bits)k_load<uint8_t>(p + i) << (8 * i);
    }
    k_lanes<T>::put(v, 0, b);
    return v;
}

template <class T> K_FN void k_store_one(char *p, const struct k_vec &v)
{
    typename T::bits b = k_lanes<T>::get(v, 0);

    if ((uintptr_t)p % T::size == 0) {
        if constexpr (T::size == 1)
            k_store(p, (uint8_t)b);
        else if constexpr (T::size == 2)
            k_store(p, (uint16_t)b);
        else
            k_store(p, b);
    } else {
        K_UNROLL
        for (int i = 0; i < T::size; i++)
            k_store(p + i, (uint8_t)(b >> (8 * i)));
    }
}

/*
 * N vectors, at offsets at, at + step, ..., those that lie before @end. The others are the first
 * once more, and are not stored; so the loads need no branch between them.
 */
template <class P, int N>
K_FN void k_fold_vecs(
    char *dst, const char *const *src, int nsrc, uint64_t at, uint64_t step, uint64_t end)
{
    typename P::acc a[N];
    struct k_vec v[N];
    uint64_t offset[N];

    K_UNROLL
    for (int u = 0; u < N; u++) {
        offset[u] = at + u * step < end ? at + u * step : at;
        v[u] = k_load_vec(src[0] + offset[u]);
    }
    K_UNROLL
    for (int u = 0; u < N; u++)
        P::open(a[u], v[u]);
    K_ROLLED
    for (int k = 1; k < nsrc; k++) {
        const char *from = src[k];
        K_UNROLL
        for (int u = 0; u < N; u++)
            v[u] = k_load_vec(from + offset[u]);
        K_UNROLL
        for (int u = 0; u < N; u++)
            P::join(a[u], v[u]);
    }
    K_UNROLL
    for (int u = 0; u < N; u++)
        if (u == 0 || offset[u] != at)
            k_store_vec(dst + offset[u], P::close(a[u]));
}

template <class P> K_FN void k_fold_skewed(char *dst, const char *const *src, int nsrc, uint64_t at)
{
    typename P::acc a;

    P::open(a, k_load_any(src[0] + at));
    K_ROLLED
    for (int k = 1; k < nsrc; k++)
        P::join(a, k_load_any(src[k] + at));
    k_store_vec(dst + at, P::close(a));
}

template <class P> K_FN void k_fold_single(char *dst, const char *const *src, int nsrc, uint64_t at)
{
    typedef typename P::type T;
    typename P::acc a;

    P::open(a, k_load_one<T>(src[0] + at));
    K_ROLLED
    for (int k = 1; k < nsrc; k++)
        P::join(a, k_load_one<T>(src[k] + at));
    k_store_one<T>(dst + at, P::close(a));
}

/* nsrc >= 2. Lane @lane of @lanes: those of one thread block, or of the whole grid. */
template <class P>
K_FAR void k_fold_with(char *dst, const char *const *src, int nsrc, uint64_t count, bool skew,
    uint32_t lane, uint32_t lanes)
{
    typedef typename P::type T;
    const struct k_split s = k_split_of(dst, T::size, count, skew);
    const uint64_t end = s.begin + s.nvec * 16, step = (uint64_t)lanes * 16;
    uint64_t at = s.begin + (uint64_t)lane * 16;

    K_ROLLED
    for (; !skew && at < end; at += P::unroll * step)
        k_fold_vecs<P, P::unroll>(dst, src, nsrc, at, step, end);
    K_ROLLED
    for (; at < end; at += step)
        k_fold_skewed<P>(dst, src, nsrc, at);
    K_ROLLED
    for (uint64_t i = lane; i < s.single; i += lanes)
        k_fold_single<P>(dst, src, nsrc, i * T::size + (i < s.before ? 0 : s.nvec * 16));
}

/*
 * The fold of a tile: source k is @nvec aligned vectors at tile + k * stride, the result takes the
 * place of the first. For short vectors whose elements have been brought there; a small fraction of
 * the code of k_fold_with.
 */
template <class P>
K_FAR void k_fold_tile_with(
    char *tile, uint32_t stride, int nsrc, uint32_t nvec, uint32_t lane, uint32_t lanes)
{
    K_ROLLED
    for (uint32_t v = lane; v < nvec; v += lanes) {
        char *at = tile + v * 16;
        typename P::acc a;

        P::open(a, k_load_vec(at));
        K_ROLLED
        for (int k = 1; k < nsrc; k++)
            P::join(a, k_load_vec(at + (uint32_t)k * stride));
        k_store_vec(at, P::close(a));
    }
}

/* ---- copies ---- */

K_FN void k_copy_vecs(char *dst, const char *src, uint64_t at, uint64_t step, uint64_t end)
{
    const int n = 8; /* there is one source: more of it in flight */
    struct k_vec v[n];

    K_UNROLL
    for (int u = 0; u < n; u++)
        v[u] = k_load_vec(src + (at + u * step < end ? at + u * step : at));
    K_UNROLL
    for (int u = 0; u < n; u++)
        if (at + u * step < end)
            k_store_vec(dst + at + u * step, v[u]);
}

/* @count elements of @size bytes, at any alignment. Where the type does not matter, size 1 is the
 * fastest. */
K_FAR void k_copy(
    char *dst, const char *src, uint32_t size, uint64_t count, uint32_t lane, uint32_t lanes)
{
    const bool skew = ((uintptr_t)dst ^ (uintptr_t)src) % 16 != 0;
    const struct k_split s = k_split_of(dst, size, count, skew);
    const uint64_t end = s.begin + s.nvec * 16, step = (uint64_t)lanes * 16;
    uint64_t at = s.begin + (uint64_t)lane * 16;

    K_ROLLED
    for (; !skew && at < end; at += 8 * step)
        k_copy_vecs(dst, src, at, step, end);
    K_ROLLED
    for (; at < end; at += step)
        k_store_vec(dst + at, k_load_any(src + at));
    K_ROLLED
    for (uint64_t i = lane; i < s.single; i += lanes) {
        uint64_t single = i * size + (i < s.before ? 0 : s.nvec * 16);
        K_ROLLED
        for (uint32_t j = 0; j < size; j++)
            k_store(dst + single + j, k_load<uint8_t>(src + single + j));
    }
}

/* ---- AVG ---- */

/* Integers divide towards zero. */
template <class T> struct k_quotient {
    K_IN typename T::bits of(typename T::bits b, int ranks)
    {
        return T::to((typename T::val)(T::from(b) / (typename T::val)ranks));
    }
};

/* A NaN stays what it is, but quiet; 8-bit floats, whose NaNs have no quiet bit, know one only. */
template <class T> struct k_float_quotient {
    K_IN typename T::bits of(typename T::bits b, int ranks)
    {
        typename T::val x = T::from(b);

        if (x == x)
            return T::to(x / (typename T::val)ranks);
        return T::quiet ? b | T::quiet : T::to(x);
    }
};

template <class T, class Q> K_FN struct k_vec k_divide_vec(const struct k_vec &v, int ranks)
{
    struct k_vec out = {{0, 0, 0, 0}};

    K_UNROLL
    for (int i = 0; i < k_lanes<T>::count; i++)
        k_lanes<T>::put(out, i, Q::of(k_lanes<T>::get(v, i), ranks));
    return out;
}

template <class T, class Q>
K_FAR void k_divide_with(
    char *dst, int ranks, uint64_t count, bool skew, uint32_t lane, uint32_t lanes)
{
    const struct k_split s = k_split_of(dst, T::size, count, skew);

    K_ROLLED
    for (uint64_t v = lane; v < s.nvec; v += lanes) {
        char *at = dst + s.begin + v * 16;
        k_store_vec(at, k_divide_vec<T, Q>(k_load_vec(at), ranks));
    }
    K_ROLLED
    for (uint64_t i = lane; i < s.single; i += lanes) {
        char *at = dst + i * T::size + (i < s.before ? 0 : s.nvec * 16);
        struct k_vec v = k_load_one<T>(at), out = {{0, 0, 0, 0}};
        k_lanes<T>::put(out, 0, Q::of(k_lanes<T>::get(v, 0), ranks));
        k_store_one<T>(at, out);
    }
}

#endif
