/*
 * The types and operators that the programs know by name.
 *
 * The tables hold names and properties only. The MPI handles are looked up when they are needed, as
 * Tiara's own exist only after MPI_Init.
 */
#include "bench.h"
#include <string.h>
#include <strings.h>

static const struct bench_type types[] = {
    {"char", "MPI_CHAR", BENCH_INT, 1, true},
    {"int8", "MPI_INT8_T", BENCH_INT, 1, true},
    {"uint8", "MPI_UINT8_T", BENCH_UINT, 1, true},
    {"int16", "MPI_INT16_T", BENCH_INT, 2, true},
    {"uint16", "MPI_UINT16_T", BENCH_UINT, 2, true},
    {"int", "MPI_INT", BENCH_INT, sizeof(int), true},
    {"int32", "MPI_INT32_T", BENCH_INT, 4, true},
    {"uint32", "MPI_UINT32_T", BENCH_UINT, 4, true},
    {"int64", "MPI_INT64_T", BENCH_INT, 8, true},
    {"uint64", "MPI_UINT64_T", BENCH_UINT, 8, true},
    {"float", "MPI_FLOAT", BENCH_FLOAT, sizeof(float), true},
    {"double", "MPI_DOUBLE", BENCH_FLOAT, sizeof(double), true},
    {"float16", "TIARA_FLOAT16", BENCH_FLOAT16, 2, false},
    {"bfloat16", "TIARA_BFLOAT16", BENCH_BFLOAT16, 2, false},
    {"float8_e4m3", "TIARA_FLOAT8_E4M3", BENCH_E4M3, 1, false},
    {"float8_e5m2", "TIARA_FLOAT8_E5M2", BENCH_E5M2, 1, false},
};
enum {
    NTYPES = sizeof types / sizeof types[0]
};

static const struct bench_op ops[] = {
    {"sum", BENCH_SUM, false, true},
    {"prod", BENCH_PROD, false, true},
    {"min", BENCH_MIN, false, true},
    {"max", BENCH_MAX, false, true},
    {"band", BENCH_BAND, true, true},
    {"bor", BENCH_BOR, true, true},
    {"bxor", BENCH_BXOR, true, true},
    {"land", BENCH_LAND, true, true},
    {"lor", BENCH_LOR, true, true},
    {"lxor", BENCH_LXOR, true, true},
    {"avg", BENCH_AVG, false, false},
};
enum {
    NOPS = sizeof ops / sizeof ops[0]
};

/* The bare name: MPI_INT32_T and int32 are the same to a user. Returns its length. */
static size_t name_bare(const char **name)
{
    static const char *const prefixes[] = {"mpi_", "tiara_"};
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(prefixes[i]);
        if (strncasecmp(*name, prefixes[i], len) == 0)
            *name += len;
    }
    size_t len = strlen(*name);
    return len > 2 && strcasecmp(*name + len - 2, "_t") == 0 ? len - 2 : len;
}

static bool name_is(const char *name, const char *known)
{
    size_t len = name_bare(&name);
    return len == strlen(known) && strncasecmp(name, known, len) == 0;
}

static void name_append(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "", name);
}

const struct bench_type *bench_type_find(const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < NTYPES; i++)
        if (name_is(name, types[i].name))
            return &types[i];
    why[0] = '\0';
    for (size_t i = 0; i < NTYPES; i++)
        name_append(why, size, types[i].name);
    return NULL;
}

const struct bench_op *bench_op_find(const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < NOPS; i++)
        if (name_is(name, ops[i].name))
            return &ops[i];
    why[0] = '\0';
    for (size_t i = 0; i < NOPS; i++)
        name_append(why, size, ops[i].name);
    return NULL;
}

MPI_Datatype bench_type_mpi(const struct bench_type *type)
{
    const MPI_Datatype handles[NTYPES] = {MPI_CHAR, MPI_INT8_T, MPI_UINT8_T, MPI_INT16_T,
        MPI_UINT16_T, MPI_INT, MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T, MPI_FLOAT,
        MPI_DOUBLE};
    switch (type->kind) {
    case BENCH_FLOAT16:
        return TIARA_FLOAT16;
    case BENCH_BFLOAT16:
        return TIARA_BFLOAT16;
    case BENCH_E4M3:
        return TIARA_FLOAT8_E4M3;
    case BENCH_E5M2:
        return TIARA_FLOAT8_E5M2;
    default:
        return handles[type - types];
    }
}

MPI_Op bench_op_mpi(const struct bench_op *op)
{
    const MPI_Op handles[NOPS] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR,
        MPI_LAND, MPI_LOR, MPI_LXOR, MPI_OP_NULL};
    return op->id == BENCH_AVG ? TIARA_AVG : handles[op - ops];
}
