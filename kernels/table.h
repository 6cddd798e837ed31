/*
 * The table of folds: element type and operator, known at run time, to the one function for both.
 *
 * Operators that do not care about the sign share the unsigned type's function, bitwise ones that
 * of bytes. Where no function exists (an operator that the type does not have) nothing is done: the
 * host has refused it.
 */
#ifndef TIARA_KERNELS_TABLE_H
#define TIARA_KERNELS_TABLE_H

#include "fold.h"

/* Bytes of an element, as a power of two. */
K_FN uint32_t k_size_shift(int type)
{
    switch (type) {
    case TIARA_KERNEL_I64:
    case TIARA_KERNEL_U64:
    case TIARA_KERNEL_F64:
        return 3;
    case TIARA_KERNEL_I32:
    case TIARA_KERNEL_U32:
    case TIARA_KERNEL_F32:
        return 2;
    case TIARA_KERNEL_I16:
    case TIARA_KERNEL_U16:
    case TIARA_KERNEL_F16:
    case TIARA_KERNEL_BF16:
        return 1;
    default:
        return 0;
    }
}

#define K_KEY(type, oper) ((type)*TIARA_KERNEL_NOPER + (oper))
#define K_CASE(call, type, oper, ...)                                                              \
    case K_KEY(TIARA_KERNEL_##type, TIARA_KERNEL_##oper):                                          \
        return call(__VA_ARGS__);
/* Both signs of an integer. */
#define K_CASE2(call, bits, oper, ...)                                                             \
    case K_KEY(TIARA_KERNEL_I##bits, TIARA_KERNEL_##oper):                                         \
    case K_KEY(TIARA_KERNEL_U##bits, TIARA_KERNEL_##oper):                                         \
        return call(__VA_ARGS__);
#define K_CASES_INT(call, bits)                                                                    \
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
#define K_CASES_FLOAT(call, TYPE, type, arithmetic, choice)                                        \
    K_CASE(call, TYPE, SUM, arithmetic<type, k_sum>)                                               \
    K_CASE(call, TYPE, PROD, arithmetic<type, k_prod>)                                             \
    K_CASE(call, TYPE, MIN, choice<type, k_min>)                                                   \
    K_CASE(call, TYPE, MAX, choice<type, k_max>)
#define K_CASES(call)                                                                              \
    K_CASES_INT(call, 8)                                                                           \
    K_CASES_INT(call, 16)                                                                          \
    K_CASES_INT(call, 32)                                                                          \
    K_CASES_INT(call, 64)                                                                          \
    K_CASES_FLOAT(call, F16, k_f16, k_wide, k_choose_quiet)                                        \
    K_CASES_FLOAT(call, BF16, k_bf16, k_wide, k_choose_quiet)                                      \
    K_CASES_FLOAT(call, F32, k_f32, k_float, k_choose)                                             \
    K_CASES_FLOAT(call, F64, k_f64, k_float, k_choose)                                             \
    K_CASES_FLOAT(call, E4M3, k_e4m3, k_wide, k_choose_small)                                      \
    K_CASES_FLOAT(call, E5M2, k_e5m2, k_wide, k_choose_small)

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
        K_CASES(K_FOLD)
    }
}

/* The same for sources in a tile: see k_fold_tile_with. nsrc >= 2. */
K_FN void k_fold_tile(int type, int oper, char *tile, uint32_t stride, int nsrc, uint32_t nvec,
    uint32_t lane, uint32_t lanes)
{
    switch (K_KEY(type, oper)) {
        K_CASES(K_FOLD_TILE)
    }
}

#define K_CASE_DIVIDE(TYPE, type, quotient)                                                        \
    case TIARA_KERNEL_##TYPE:                                                                      \
        return k_divide_with<type, quotient<type>>(dst, ranks, count, skew, lane, lanes);

/* dst[i] = dst[i] / ranks. @skew as in the fold before, when there is no barrier between. */
K_FN void k_divide(
    int type, char *dst, int ranks, uint64_t count, bool skew, uint32_t lane, uint32_t lanes)
{
    switch (type) {
        K_CASE_DIVIDE(I8, k_i8, k_quotient)
        K_CASE_DIVIDE(U8, k_u8, k_quotient)
        K_CASE_DIVIDE(I16, k_i16, k_quotient)
        K_CASE_DIVIDE(U16, k_u16, k_quotient)
        K_CASE_DIVIDE(I32, k_i32, k_quotient)
        K_CASE_DIVIDE(U32, k_u32, k_quotient)
        K_CASE_DIVIDE(I64, k_i64, k_quotient)
        K_CASE_DIVIDE(U64, k_u64, k_quotient)
        K_CASE_DIVIDE(F16, k_f16, k_float_quotient)
        K_CASE_DIVIDE(BF16, k_bf16, k_float_quotient)
        K_CASE_DIVIDE(F32, k_f32, k_float_quotient)
        K_CASE_DIVIDE(F64, k_f64, k_float_quotient)
        K_CASE_DIVIDE(E4M3, k_e4m3, k_float_quotient)
        K_CASE_DIVIDE(E5M2, k_e5m2, k_float_quotient)
    }
}

#endif
