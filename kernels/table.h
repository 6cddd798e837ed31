/*
 * The table of folds: element type and operator, known at run time, to the one function for both.
 * It follows from the list of types; a class of types has its policies here.
 *
 * Operators that do not care about the sign share the unsigned type's function, bitwise ones that
 * of bytes. Where no function exists (an operator that the type does not have) nothing is done: the
 * host has refused it.
 */
#ifndef TIARA_KERNELS_TABLE_H
#define TIARA_KERNELS_TABLE_H

#include "fold.h"

/* Bytes of an element, as a power of two. */
#define K_SHIFT(unused, id, name, bits, class)                                                     \
    case TIARA_TYPE_##id:                                                                          \
        return bits == 64 ? 3 : bits / 16;
K_FN uint32_t k_size_shift(int type)
{
    switch (type) {
        TIARA_GPU_TYPES(K_SHIFT, )
    default:
        return 0;
    }
}

#define K_KEY(type, oper) ((type)*TIARA_NOPER + (oper))
#define K_CASE(call, type, oper, ...)                                                              \
    case K_KEY(TIARA_TYPE_##type, TIARA_OPER_##oper):                                              \
        return call(__VA_ARGS__);
/* Both signs of an integer. */
#define K_CASE2(call, bits, oper, ...)                                                             \
    case K_KEY(TIARA_TYPE_I##bits, TIARA_OPER_##oper):                                             \
    case K_KEY(TIARA_TYPE_U##bits, TIARA_OPER_##oper):                                             \
        return call(__VA_ARGS__);
#define K_CASES_UINT(call, id, type, bits)                                                         \
    K_CASE2(call, bits, SUM, k_exact<k_u##bits, k_sum>)                                            \
    K_CASE2(call, bits, PROD, k_exact<k_u##bits, k_prod>)                                          \
    K_CASE(call, I##bits, MIN, k_choose<k_i##bits, k_min>)                                         \
    K_CASE(call, U##bits, MIN, k_choose<k_u##bits, k_min>)                                         \
    K_CASE(call, I##bits, MAX, k_choose<k_i##bits, k_max>)                                         \
    K_CASE(call, U##bits, MAX, k_choose<k_u##bits, k_max>)                                         \
    K_CASE2(call, bits, LAND, k_exact<k_u##bits, k_land>)                                          \
    K_CASE2(call, bits, LOR, k_exact<k_u##bits, k_lor>)                                            \
    K_CASE2(call, bits, LXOR, k_exact<k_u##bits, k_lxor>)                                          \
    K_CASE2(call, bits, BAND, k_bitwise<k_band>)                                                   \
    K_CASE2(call, bits, BOR, k_bitwise<k_bor>)                                                     \
    K_CASE2(call, bits, BXOR, k_bitwise<k_bxor>)
#define K_CASES_INT(call, id, type, bits) /* with the unsigned one */
#define K_CASES_FLOAT(call, id, type, arithmetic, choice)                                          \
    K_CASE(call, id, SUM, arithmetic<type, k_sum>)                                                 \
    K_CASE(call, id, PROD, arithmetic<type, k_prod>)                                               \
    K_CASE(call, id, MIN, choice<type, k_min>)                                                     \
    K_CASE(call, id, MAX, choice<type, k_max>)
#define K_CASES_HALF(call, id, type, bits) K_CASES_FLOAT(call, id, type, k_wide, k_choose_quiet)
#define K_CASES_FP8(call, id, type, bits) K_CASES_FLOAT(call, id, type, k_wide, k_choose_small)
#define K_CASES_REAL(call, id, type, bits) K_CASES_FLOAT(call, id, type, k_float, k_choose)
#define K_CASES(call, id, name, bits, class) K_CASES_##class(call, id, k_##name, bits)

/* A policy may count in smaller elements than the type's. */
#define K_FOLD(...)                                                                                \
    k_fold_with<__VA_ARGS__>(                                                                      \
        dst, src, nsrc, (count << shift) / (__VA_ARGS__::type::size), skew, lane, lanes)
#define K_FOLD_TILE(...) k_fold_tile_with<__VA_ARGS__>(tile, stride, nsrc, nvec, lane, lanes)

/* By all of @lanes lanes, each with its number. @skew: k_skewed() of the sources. */
K_FN void k_fold(int type, int oper, char *dst, const char *const *src, int nsrc, uint64_t count,
    bool skew, uint32_t lane, uint32_t lanes)
{
    const uint32_t shift = k_size_shift(type);

    if (nsrc == 1)
        return k_copy(dst, src[0], 1u << shift, count, lane, lanes);
    switch (K_KEY(type, oper)) {
        TIARA_GPU_TYPES(K_CASES, K_FOLD)
    }
}

/* The same for sources in a tile: see k_fold_tile_with. nsrc >= 2. */
K_FN void k_fold_tile(int type, int oper, char *tile, uint32_t stride, int nsrc, uint32_t nvec,
    uint32_t lane, uint32_t lanes)
{
    switch (K_KEY(type, oper)) {
        TIARA_GPU_TYPES(K_CASES, K_FOLD_TILE)
    }
}

#define K_QUOTIENT_INT k_quotient
#define K_QUOTIENT_UINT k_quotient
#define K_QUOTIENT_HALF k_float_quotient
#define K_QUOTIENT_FP8 k_float_quotient
#define K_QUOTIENT_REAL k_float_quotient
#define K_CASE_DIVIDE(unused, id, name, bits, class)                                               \
    case TIARA_TYPE_##id:                                                                          \
        return k_divide_with<k_##name, K_QUOTIENT_##class<k_##name>>(                              \
            dst, ranks, count, skew, lane, lanes);

/* dst[i] = dst[i] / ranks. @skew as in the fold before, when there is no barrier between. */
K_FN void k_divide(
    int type, char *dst, int ranks, uint64_t count, bool skew, uint32_t lane, uint32_t lanes)
{
    switch (type) {
        TIARA_GPU_TYPES(K_CASE_DIVIDE, )
    }
}

#endif
