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

#define TYPE_ROW(a, ID, name, bits, class) {#name, (bits) / 8, TIARA_CLASS_##class},
static const struct {
    const char *name;
    size_t size;
    enum tiara_class class;
} types[TIARA_NTYPE] = {TIARA_TYPES(TYPE_ROW, )};

#define OPERATOR_NAME(a, ID, name) #name,
static const char *const operators[TIARA_NOPER] = {TIARA_OPERATORS(OPERATOR_NAME, )};

const char *tiara_type_name(enum tiara_type type)
{
    return types[type].name;
}

size_t tiara_type_size(enum tiara_type type)
{
    return types[type].size;
}

enum tiara_class tiara_type_class(enum tiara_type type)
{
    return types[type].class;
}

const char *tiara_operator_name(enum tiara_operator oper)
{
    return operators[oper];
}
