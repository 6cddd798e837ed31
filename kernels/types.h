/*
 * The element types and the operators: one list of each, for the host and for GPUs.
 *
 * Enums, names, sizes, the tables of reductions, those of MPI's handles and the kernels' folds
 * follow from them. A list is a macro that is given another one, X, and expands to X(a, ...) for
 * each row; @a is passed on. HACKING.md says what else belongs to a new row.
 *
 * This header is C and device code, and includes nothing.
 */
#ifndef TIARA_KERNELS_TYPES_H
#define TIARA_KERNELS_TYPES_H

/*
 * X(a, ID, name, bits, class), where class is what the type has in common with others:
 *
 *   INT, UINT  integers, in pairs of a size                   all operators
 *   HALF, FP8  floats of 16 and 8 bits, which MPI does not have: computed in float
 *   REAL, LONG floats; LONG is C's long double                SUM, PROD, MIN, MAX
 *   COMPLEX    pairs of REAL                                  SUM, PROD
 *   BOOL       one byte, 0 or 1 (C's _Bool and C++'s bool)    logical operators
 *
 * First those that kernels know, then the host's.
 */
#define TIARA_GPU_TYPES(X, a)                                                                      \
    X(a, I8, i8, 8, INT)                                                                           \
    X(a, U8, u8, 8, UINT)                                                                          \
    X(a, I16, i16, 16, INT)                                                                        \
    X(a, U16, u16, 16, UINT)                                                                       \
    X(a, I32, i32, 32, INT)                                                                        \
    X(a, U32, u32, 32, UINT)                                                                       \
    X(a, I64, i64, 64, INT)                                                                        \
    X(a, U64, u64, 64, UINT)                                                                       \
    X(a, F16, f16, 16, HALF)                                                                       \
    X(a, BF16, bf16, 16, HALF)                                                                     \
    X(a, E4M3, e4m3, 8, FP8) /* as in OCP's OFP8: it has no infinity */                            \
    X(a, E5M2, e5m2, 8, FP8)                                                                       \
    X(a, F32, f32, 32, REAL)                                                                       \
    X(a, F64, f64, 64, REAL)
#define TIARA_HOST_TYPES(X, a)                                                                     \
    X(a, F80, f80, (8 * sizeof(long double)), LONG)                                                \
    X(a, C32, c32, 64, COMPLEX)                                                                    \
    X(a, C64, c64, 128, COMPLEX)                                                                   \
    X(a, BOOL, bool, 8, BOOL)
#define TIARA_TYPES(X, a) TIARA_GPU_TYPES(X, a) TIARA_HOST_TYPES(X, a)

/* X(a, ID, name): MPI's operator is MPI_<ID>. */
#define TIARA_OPERATORS(X, a)                                                                      \
    X(a, SUM, sum)                                                                                 \
    X(a, PROD, prod)                                                                               \
    X(a, MIN, min)                                                                                 \
    X(a, MAX, max)                                                                                 \
    X(a, LAND, land)                                                                               \
    X(a, LOR, lor)                                                                                 \
    X(a, LXOR, lxor)                                                                               \
    X(a, BAND, band)                                                                               \
    X(a, BOR, bor)                                                                                 \
    X(a, BXOR, bxor)

enum tiara_class {
    TIARA_CLASS_INT,
    TIARA_CLASS_UINT,
    TIARA_CLASS_HALF,
    TIARA_CLASS_FP8,
    TIARA_CLASS_REAL,
    TIARA_CLASS_LONG,
    TIARA_CLASS_COMPLEX,
    TIARA_CLASS_BOOL
};

#define TIARA_ENUM_TYPE(a, ID, name, bits, class) TIARA_TYPE_##ID,
#define TIARA_ENUM_OPER(a, ID, name) TIARA_OPER_##ID,
#define TIARA_COUNT_ROW(a, ID, name, bits, class) +1

enum tiara_type {
    TIARA_TYPES(TIARA_ENUM_TYPE, ) TIARA_NTYPE,
    TIARA_NGPU_TYPE = 0 TIARA_GPU_TYPES(TIARA_COUNT_ROW, ) /* those below are known to kernels */
};

enum tiara_operator {
    TIARA_OPERATORS(TIARA_ENUM_OPER, ) TIARA_NOPER
};

#endif
