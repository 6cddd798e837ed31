/*
 * Test data with a known outcome: every input element is a function of rank and index, every result
 * has a closed form that is computed here in integers, never by the library under test.
 *
 * What makes the data good:
 *   - all numbers are integers so small that every partial sum, in any order, is exact in the
 *     element type; so results are compared bit by bit, also in 8-bit floats. Sums of 8- and 16-bit
 *     integers wrap on purpose.
 *   - the index goes through a hash, so that a block in the wrong place differs almost everywhere;
 *   - ranks weigh differently, so that a rank left out, or counted twice, shows.
 *
 *   op                 input of rank r at index i                         result at i
 *   sum                w(r) h(i), w in 1..nweights, h in 1..nfactors      h(i) x sum of w
 *   prod               2 where the hash of i is odd, else 1               2 ^ ranks that speak
 *   min, max           c(i) +- the distance of r from a winner w(i)       c(i)
 *   band, bor, bxor    pattern(r) and/or hash(i)                          the same with all
 *   patterns combined
 *   land, lor, lxor    non-zero where r stands on the right side of w(i)  0 or 1
 *   avg                h(i) + d(r), the d(r) of all ranks cancel          h(i)
 *   (allgather)        hash of r and i, all bits                          the same
 *
 * With many ranks a narrow type leaves too little for each; then only every stride-th rank speaks
 * at an index, and the others put in the neutral element.
 */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

/* The finaliser of splitmix64: every bit of the input changes about half of the output's. */
static uint64_t hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t pattern(int rank)
{
    return hash((uint64_t)rank + ((uint64_t)1 << 40));
}

/* Up to here every integer is exact, or wraps in a way that C defines. */
static int64_t exact_limit(const struct bench_type *type, enum bench_op_id op)
{
    switch (type->kind) {
    case BENCH_FLOAT16:
        return 1 << 11;
    case BENCH_BFLOAT16:
        return 1 << 8;
    case BENCH_E4M3:
        return 1 << 4;
    case BENCH_E5M2:
        return 1 << 3;
    case BENCH_FLOAT:
        return type->bytes == sizeof(float) ? 1 << 24 : (int64_t)1 << 53;
    default:
        if (type->bytes <= 2 && op == BENCH_SUM)
            return (int64_t)1 << 40;
        return ((int64_t)1 << (type->bytes < 8 ? 8 * type->bytes - 1 : 62)) - 1;
    }
}

/* ---- set-up ---- */

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool sums_init(struct bench_data *data, struct bench_why *why)
{
    /* At least 8 for each rank that speaks: weights 1 and 2, factors 1 to 4. A product of 6 twos
     * fits int8. */
    int64_t limit = exact_limit(data->type, data->op);
    int64_t speakers = data->op == BENCH_SUM ? min_of(limit / 8, data->nranks) : 6;
    data->stride = (int)((data->nranks + speakers - 1) / speakers);
    data->class_sum = calloc((size_t)data->stride, sizeof *data->class_sum);
    if (data->class_sum == NULL)
        return bench_complain(why, "no memory for the test data of %d ranks", data->nranks);
    int64_t share = limit / speakers;
    data->nweights = 2;
    while (data->nweights < 1024 && 4 * data->nweights * data->nweights <= share)
        data->nweights *= 2;
    data->nfactors = min_of(share / data->nweights, 1 << 16);
    for (int r = 0; r < data->nranks; r++)
        data->class_sum[r % data->stride] += data->op == BENCH_SUM ? 1 + r % data->nweights : 1;
    return true;
}

static bool mean_init(struct bench_data *data, struct bench_why *why)
{
    int64_t share = min_of(exact_limit(data->type, data->op) / data->nranks, 1 << 20);
    if (share < 4)
        return bench_complain(why,
            "--op 'avg': sums of %d ranks are not exact in %s, so they cannot be checked; use "
            "--no-validation or another --type",
            data->nranks, data->type->name);
    data->spread = share / 4;
    data->nfactors = share - 2 * data->spread + 1;
    return true;
}

bool bench_data_init(
    struct bench_data *data, const struct bench_options *opts, MPI_Comm comm, struct bench_why *why)
{
    *data = (struct bench_data){
        .coll = opts->coll, .type = opts->type, .op = opts->op->id, .stride = 1};
    PMPI_Comm_size(comm, &data->nranks);
    PMPI_Comm_rank(comm, &data->rank);
    data->all_and = UINT64_MAX;
    for (int r = 0; r < data->nranks; r++) {
        data->all_and &= pattern(r);
        data->all_or |= pattern(r);
        data->all_xor ^= pattern(r);
    }
    if (data->coll == BENCH_ALLGATHER)
        return true;
    if (data->op == BENCH_SUM || data->op == BENCH_PROD)
        return sums_init(data, why);
    if (data->op == BENCH_AVG && opts->validate)
        return mean_init(data, why);
    return true;
}

void bench_data_fini(struct bench_data *data)
{
    free(data->class_sum);
    data->class_sum = NULL;
}

/* ---- inputs and results ---- */

/* The middle of the values at @index; in unsigned types they straddle the sign bit of the signed
 * ones. */
static uint64_t centre(const struct bench_data *data, uint64_t index)
{
    bool is_narrow = data->type->kind == BENCH_E4M3 || data->type->kind == BENCH_E5M2;
    uint64_t value = is_narrow ? (hash(index) >> 32) % 3 - 1 : (hash(index) >> 32) % 201 - 100;
    if (data->type->kind == BENCH_UINT)
        value += (uint64_t)1 << (8 * data->type->bytes - 1);
    return value;
}

/* Ranks behind the winner of @index, in a circle; a few steps, as narrow types hold no more. */
static uint64_t distance(const struct bench_data *data, int rank, uint64_t index)
{
    int64_t n = data->nranks;
    int64_t winner = (int64_t)(hash(index) % (uint64_t)n);
    return (uint64_t)min_of((rank - winner + n) % n, 7);
}

static int64_t deviation(const struct bench_data *data, int rank)
{
    if (data->spread == 0 || (rank ^ 1) >= data->nranks)
        return 0;
    int64_t size = 1 + rank / 2 % data->spread;
    return rank % 2 == 0 ? size : -size;
}

/* True for 0 or 1, as the logical operators need it; @position is in 0 .. 2 nranks - 1. */
static bool truth(enum bench_op_id op, int rank, int position)
{
    if (op == BENCH_LAND)
        return rank != position;
    if (op == BENCH_LOR)
        return rank == position;
    return rank <= position;
}

static int64_t input(const struct bench_data *data, int rank, uint64_t index)
{
    uint64_t h = hash(index);
    int64_t factor = 1 + (int64_t)(h % (uint64_t)(data->nfactors > 0 ? data->nfactors : 1));
    bool speaks = rank % data->stride == (int)(index % (uint64_t)data->stride);
    switch (data->op) {
    case BENCH_SUM:
        return speaks ? (1 + rank % data->nweights) * factor : 0;
    case BENCH_PROD:
        return speaks && h & 1 ? 2 : 1;
    case BENCH_MIN:
        return (int64_t)(centre(data, index) + distance(data, rank, index));
    case BENCH_MAX:
        return (int64_t)(centre(data, index) - distance(data, rank, index));
    case BENCH_BAND:
        return (int64_t)(h | pattern(rank));
    case BENCH_BOR:
    case BENCH_BXOR:
        return (int64_t)(h & pattern(rank));
    case BENCH_AVG:
        return data->spread + factor - 1 + deviation(data, rank);
    default: /* any non-zero value is true: small ones, other than 1 too */
        return truth(data->op, rank, (int)(h % (2 * (uint64_t)data->nranks))) ? 1 + rank % 100 : 0;
    }
}

static int64_t result(const struct bench_data *data, uint64_t index)
{
    uint64_t h = hash(index);
    int64_t factor = 1 + (int64_t)(h % (uint64_t)(data->nfactors > 0 ? data->nfactors : 1));
    int position = (int)(h % (2 * (uint64_t)data->nranks));
    int64_t spoken = data->class_sum != NULL ? data->class_sum[index % (uint64_t)data->stride] : 0;
    switch (data->op) {
    case BENCH_SUM:
        return factor * spoken;
    case BENCH_PROD:
        return h & 1 ? (int64_t)1 << spoken : 1;
    case BENCH_MIN:
    case BENCH_MAX:
        return (int64_t)centre(data, index);
    case BENCH_BAND:
        return (int64_t)(h | data->all_and);
    case BENCH_BOR:
        return (int64_t)(h & data->all_or);
    case BENCH_BXOR:
        return (int64_t)(h & data->all_xor);
    case BENCH_LAND:
        return position >= data->nranks;
    case BENCH_LOR:
        return position < data->nranks;
    case BENCH_LXOR: /* as many trues as ranks from 0 to the position */
        return (position < data->nranks ? position + 1 : data->nranks) & 1;
    default: /* AVG */
        return data->spread + factor - 1;
    }
}

/* Element @index of @rank's input, as bits. */
static void input_store(const struct bench_data *data, int rank, uint64_t index, void *dst)
{
    uint64_t bits = hash(index ^ pattern(rank));
    if (data->coll == BENCH_ALLGATHER)
        memcpy(dst, &bits, data->type->bytes);
    else
        bench_element_store(data->type, input(data, rank, index), dst);
}

void bench_data_fill(const struct bench_data *data, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        input_store(data, data->rank, i, (char *)dst + i * data->type->bytes);
}

static bool complain_difference(const struct bench_data *data, const void *got,
    const void *expected, size_t index, struct bench_why *why)
{
    char got_text[40], expected_text[40];
    bench_element_print(data->type, got, got_text, sizeof got_text);
    bench_element_print(data->type, expected, expected_text, sizeof expected_text);
    return bench_complain(
        why, "rank %d, index %zu: got %s, expected %s", data->rank, index, got_text, expected_text);
}

bool bench_data_check_input(
    const struct bench_data *data, const void *got, size_t count, struct bench_why *why)
{
    size_t bytes = data->type->bytes;
    for (size_t i = 0; i < count; i++) {
        char expected[8];
        const char *at = (const char *)got + i * bytes;
        input_store(data, data->rank, i, expected);
        if (memcmp(at, expected, bytes) != 0)
            return complain_difference(data, at, expected, i, why);
    }
    return true;
}

bool bench_data_check(const struct bench_data *data, const void *got,
    const struct bench_shape *shape, struct bench_why *why)
{
    size_t bytes = data->type->bytes;
    size_t first =
        data->coll == BENCH_REDUCE_SCATTER_BLOCK ? (size_t)data->rank * shape->recv_count : 0;
    for (size_t i = 0; i < shape->recv_count; i++) {
        char expected[8];
        const char *at = (const char *)got + i * bytes;
        if (data->coll == BENCH_ALLGATHER)
            input_store(data, (int)(i / shape->count), i % shape->count, expected);
        else
            bench_element_store(data->type, result(data, first + i), expected);
        if (memcmp(at, expected, bytes) != 0)
            return complain_difference(data, at, expected, i, why);
    }
    return true;
}
