/*
 * The table of instruction sets that were compiled in, and which of them this CPU has; and what
 * types and operators are called. CPUs are asked here, as the rows' own files are compiled for one
 * that has their instructions.
 */
#include "redop/redop_priv.h"
#include "base/sync.h"

static bool is_everywhere(void)
{
    return true;
}

static const struct tiara_redop_isa portable = {"portable", is_everywhere, &tiara_redop_portable};

#if defined(__x86_64__)
#include <cpuid.h>

/*
 * F16C has no name in every compiler's __builtin_cpu_supports; its system support is AVX's. Asked
 * once: in a virtual machine the instruction takes some 20 us, and the tables of reductions ask
 * hundreds of times.
 */
static bool has_f16c(void)
{
    enum {
        UNKNOWN,
        NO,
        YES
    };
    static tiara_u32 known;
    unsigned a, b, c, d;

    /* relaxed: all threads find the same */
    if (tiara_load_relaxed(&known) == UNKNOWN)
        tiara_store_relaxed(&known, __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO);
    return tiara_load_relaxed(&known) == YES;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static const struct tiara_redop_isa avx2 = {"avx2", has_avx2, &tiara_redop_avx2};
static const struct tiara_redop_isa avx512 = {"avx512", has_avx512, &tiara_redop_avx512};
const struct tiara_redop_isa *const tiara_redop_isas[] = {&avx512, &avx2, &portable, NULL};

#else

const struct tiara_redop_isa *const tiara_redop_isas[] = {&portable, NULL};

#endif

const struct tiara_redop *tiara_redop_in(
    const struct tiara_redop_isa *isa, enum tiara_type type, enum tiara_operator oper)
{
    const struct tiara_redop *op = &isa->rows->row[type][oper];

    return op->fold ? op : NULL;
}

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
        const struct tiara_redop *op =
            (*isa)->supported() ? tiara_redop_in(*isa, type, oper) : NULL;
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
