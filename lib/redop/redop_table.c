/*
 * The table of instruction sets that were compiled in; and what types and operators are called.
 */
#include "redop/redop_priv.h"

#if defined(__x86_64__)

const struct tiara_redop_isa *const tiara_redop_isas[] = {
    &tiara_redop_avx512, &tiara_redop_avx2, &tiara_redop_portable, NULL};

#else

const struct tiara_redop_isa *const tiara_redop_isas[] = {&tiara_redop_portable, NULL};

#endif

/* The first row to try: the one called @isa_limit, or the best when there is none of that name. */
static const struct tiara_redop_isa *const *first_isa(const char *isa_limit)
{
    for (size_t i = 0; isa_limit && tiara_redop_isas[i]; i++)
        if (strcmp(tiara_redop_isas[i]->name, isa_limit) == 0)
            return &tiara_redop_isas[i];
    return tiara_redop_isas;
}

const struct tiara_redop *tiara_redop_find(
    enum tiara_type type, enum tiara_operator oper, const char *isa_limit)
{
    for (const struct tiara_redop_isa *const *isa = first_isa(isa_limit); *isa; isa++) {
        const struct tiara_redop *op = (*isa)->supported() ? (*isa)->find(type, oper) : NULL;
        if (op)
            return op;
    }
    return NULL;
}

const struct tiara_redop *tiara_redop_find_avg(enum tiara_type type, const char *isa_limit)
{
    return tiara_redop_find(type, TIARA_REDOP_AVG, isa_limit);
}

static const struct {
    const char *name;
    size_t size;
} types[TIARA_NTYPE] = {
    [TIARA_TYPE_I8] = {"i8", 1},
    [TIARA_TYPE_U8] = {"u8", 1},
    [TIARA_TYPE_I16] = {"i16", 2},
    [TIARA_TYPE_U16] = {"u16", 2},
    [TIARA_TYPE_I32] = {"i32", 4},
    [TIARA_TYPE_U32] = {"u32", 4},
    [TIARA_TYPE_I64] = {"i64", 8},
    [TIARA_TYPE_U64] = {"u64", 8},
    [TIARA_TYPE_F16] = {"f16", 2},
    [TIARA_TYPE_BF16] = {"bf16", 2},
    [TIARA_TYPE_E4M3] = {"e4m3", 1},
    [TIARA_TYPE_E5M2] = {"e5m2", 1},
    [TIARA_TYPE_F32] = {"f32", 4},
    [TIARA_TYPE_F64] = {"f64", 8},
    [TIARA_TYPE_F80] = {"f80", sizeof(long double)},
    [TIARA_TYPE_C32] = {"c32", 8},
    [TIARA_TYPE_C64] = {"c64", 16},
    [TIARA_TYPE_BOOL] = {"bool", 1},
};

static const char *const operators[TIARA_NOPER] = {
    [TIARA_OPER_SUM] = "sum",
    [TIARA_OPER_PROD] = "prod",
    [TIARA_OPER_MIN] = "min",
    [TIARA_OPER_MAX] = "max",
    [TIARA_OPER_LAND] = "land",
    [TIARA_OPER_LOR] = "lor",
    [TIARA_OPER_LXOR] = "lxor",
    [TIARA_OPER_BAND] = "band",
    [TIARA_OPER_BOR] = "bor",
    [TIARA_OPER_BXOR] = "bxor",
};

const char *tiara_type_name(enum tiara_type type)
{
    return types[type].name;
}

size_t tiara_type_size(enum tiara_type type)
{
    return types[type].size;
}

const char *tiara_operator_name(enum tiara_operator oper)
{
    return operators[oper];
}
