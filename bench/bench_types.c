/*
 * The types and operators that the programs know by name.
 *
 * One list of each. The MPI handles are looked up when they are needed, as Tiara's own exist only
 * after MPI_Init.
 */
#include "bench.h"
#include <string.h>
#include <strings.h>

/* X(name, MPI's handle, kind, bytes, whether MPI has it) */
#define TYPES(X)                                                                                   \
    X(char, MPI_CHAR, BENCH_INT, 1, true)                                                          \
    X(int8, MPI_INT8_T, BENCH_INT, 1, true)                                                        \
    X(uint8, MPI_UINT8_T, BENCH_UINT, 1, true)                                                     \
    X(int16, MPI_INT16_T, BENCH_INT, 2, true)                                                      \
    X(uint16, MPI_UINT16_T, BENCH_UINT, 2, true)                                                   \
    X(int, MPI_INT, BENCH_INT, sizeof(int), true)                                                  \
    X(int32, MPI_INT32_T, BENCH_INT, 4, true)                                                      \
    X(uint32, MPI_UINT32_T, BENCH_UINT, 4, true)                                                   \
    X(int64, MPI_INT64_T, BENCH_INT, 8, true)                                                      \
    X(uint64, MPI_UINT64_T, BENCH_UINT, 8, true)                                                   \
    X(float, MPI_FLOAT, BENCH_FLOAT, sizeof(float), true)                                          \
    X(double, MPI_DOUBLE, BENCH_FLOAT, sizeof(double), true)                                       \
    X(float16, TIARA_FLOAT16, BENCH_FLOAT16, 2, false)                                             \
    X(bfloat16, TIARA_BFLOAT16, BENCH_BFLOAT16, 2, false)                                          \
    X(float8_e4m3, TIARA_FLOAT8_E4M3, BENCH_E4M3, 1, false)                                        \
    X(float8_e5m2, TIARA_FLOAT8_E5M2, BENCH_E5M2, 1, false)

#define TYPE_ROW(name, handle, kind, bytes, in_mpi) {#name, #handle, kind, bytes, in_mpi},
#define TYPE_HANDLE(name, handle, kind, bytes, in_mpi) handle,
static const struct bench_type types[] = {TYPES(TYPE_ROW)};
enum {
    NTYPES = sizeof types / sizeof types[0]
};

/* X(name, MPI's handle, id, whether for integers only, whether MPI has it) */
#define OPS(X)                                                                                     \
    X(sum, MPI_SUM, BENCH_SUM, false, true)                                                        \
    X(prod, MPI_PROD, BENCH_PROD, false, true)                                                     \
    X(min, MPI_MIN, BENCH_MIN, false, true)                                                        \
    X(max, MPI_MAX, BENCH_MAX, false, true)                                                        \
    X(band, MPI_BAND, BENCH_BAND, true, true)                                                      \
    X(bor, MPI_BOR, BENCH_BOR, true, true)                                                         \
    X(bxor, MPI_BXOR, BENCH_BXOR, true, true)                                                      \
    X(land, MPI_LAND, BENCH_LAND, true, true)                                                      \
    X(lor, MPI_LOR, BENCH_LOR, true, true)                                                         \
    X(lxor, MPI_LXOR, BENCH_LXOR, true, true)                                                      \
    X(avg, TIARA_AVG, BENCH_AVG, false, false)

#define OP_ROW(name, handle, id, integers_only, in_mpi) {#name, id, integers_only, in_mpi},
#define OP_HANDLE(name, handle, id, integers_only, in_mpi) handle,
static const struct bench_op ops[] = {OPS(OP_ROW)};
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
    const MPI_Datatype handles[NTYPES] = {TYPES(TYPE_HANDLE)};
    return handles[type - types];
}

MPI_Op bench_op_mpi(const struct bench_op *op)
{
    const MPI_Op handles[NOPS] = {OPS(OP_HANDLE)};
    return handles[op - ops];
}
