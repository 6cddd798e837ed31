/* See mpi_type.h. */
#include "mpi_type.h"
#include "mpi_run.h"
#include "tiara.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BIT(oper) (1u << MT_##oper)
#define ORDERED (BIT(SUM) | BIT(PROD) | BIT(MIN) | BIT(MAX))
#define BITWISE (BIT(BAND) | BIT(BOR) | BIT(BXOR))
#define LOGICALS (BIT(LAND) | BIT(LOR) | BIT(LXOR))
#define C_INTEGER (ORDERED | BITWISE | LOGICALS | BIT(AVG))
#define LOCATED (BIT(MINLOC) | BIT(MAXLOC))

#define ROW(handle, kind, bytes, opers)                                                            \
    {                                                                                              \
#handle, handle, {kind, bytes, 0 }, {MT_SIGNED, 0, 0 }, opers                              \
    }
#define PAIR(handle, kind, bytes, index_kind, index_bytes, index_at)                               \
    {                                                                                              \
#handle, handle, {kind, bytes, 0 }, {index_kind, index_bytes, index_at }, LOCATED          \
    }

static struct mt_type rows[] = {
    ROW(MPI_SIGNED_CHAR, MT_SIGNED, 1, C_INTEGER),
    ROW(MPI_UNSIGNED_CHAR, MT_UNSIGNED, 1, C_INTEGER),
    ROW(MPI_SHORT, MT_SIGNED, sizeof(short), C_INTEGER),
    ROW(MPI_UNSIGNED_SHORT, MT_UNSIGNED, sizeof(short), C_INTEGER),
    ROW(MPI_INT, MT_SIGNED, sizeof(int), C_INTEGER),
    ROW(MPI_UNSIGNED, MT_UNSIGNED, sizeof(int), C_INTEGER),
    ROW(MPI_LONG, MT_SIGNED, sizeof(long), C_INTEGER),
    ROW(MPI_UNSIGNED_LONG, MT_UNSIGNED, sizeof(long), C_INTEGER),
    ROW(MPI_LONG_LONG, MT_SIGNED, sizeof(long long), C_INTEGER),
    ROW(MPI_UNSIGNED_LONG_LONG, MT_UNSIGNED, sizeof(long long), C_INTEGER),
    ROW(MPI_INT8_T, MT_SIGNED, 1, C_INTEGER),
    ROW(MPI_UINT8_T, MT_UNSIGNED, 1, C_INTEGER),
    ROW(MPI_INT16_T, MT_SIGNED, 2, C_INTEGER),
    ROW(MPI_UINT16_T, MT_UNSIGNED, 2, C_INTEGER),
    ROW(MPI_INT32_T, MT_SIGNED, 4, C_INTEGER),
    ROW(MPI_UINT32_T, MT_UNSIGNED, 4, C_INTEGER),
    ROW(MPI_INT64_T, MT_SIGNED, 8, C_INTEGER),
    ROW(MPI_UINT64_T, MT_UNSIGNED, 8, C_INTEGER),
    ROW(MPI_AINT, MT_SIGNED, sizeof(MPI_Aint), ORDERED | BITWISE),
    ROW(MPI_OFFSET, MT_SIGNED, sizeof(MPI_Offset), ORDERED | BITWISE),
    ROW(MPI_COUNT, MT_SIGNED, sizeof(MPI_Count), ORDERED | BITWISE),
    ROW(MPI_BYTE, MT_UNSIGNED, 1, BITWISE),
    ROW(MPI_C_BOOL, MT_LOGICAL, 1, LOGICALS),
    ROW(MPI_CXX_BOOL, MT_LOGICAL, 1, LOGICALS),
    ROW(MPI_FLOAT, MT_REAL, 4, ORDERED | BIT(AVG)),
    ROW(MPI_DOUBLE, MT_REAL, 8, ORDERED | BIT(AVG)),
    ROW(MPI_LONG_DOUBLE, MT_REAL, sizeof(long double), ORDERED | BIT(AVG)),
    ROW(MPI_C_FLOAT_COMPLEX, MT_COMPLEX, 8, BIT(SUM) | BIT(PROD)),
    ROW(MPI_C_DOUBLE_COMPLEX, MT_COMPLEX, 16, BIT(SUM) | BIT(PROD)),
    ROW(MPI_C_LONG_DOUBLE_COMPLEX, MT_COMPLEX, 2 * sizeof(long double), BIT(SUM) | BIT(PROD)),
    ROW(MPI_CXX_FLOAT_COMPLEX, MT_COMPLEX, 8, BIT(SUM) | BIT(PROD)),
    ROW(MPI_CXX_DOUBLE_COMPLEX, MT_COMPLEX, 16, BIT(SUM) | BIT(PROD)),
    ROW(MPI_CXX_LONG_DOUBLE_COMPLEX, MT_COMPLEX, 2 * sizeof(long double), BIT(SUM) | BIT(PROD)),
    ROW(MPI_INTEGER, MT_SIGNED, 4, ORDERED | BITWISE),
    ROW(MPI_INTEGER1, MT_SIGNED, 1, ORDERED | BITWISE),
    ROW(MPI_INTEGER2, MT_SIGNED, 2, ORDERED | BITWISE),
    ROW(MPI_INTEGER4, MT_SIGNED, 4, ORDERED | BITWISE),
    ROW(MPI_INTEGER8, MT_SIGNED, 8, ORDERED | BITWISE),
    ROW(MPI_REAL, MT_REAL, 4, ORDERED),
    ROW(MPI_REAL4, MT_REAL, 4, ORDERED),
    ROW(MPI_REAL8, MT_REAL, 8, ORDERED),
    ROW(MPI_DOUBLE_PRECISION, MT_REAL, 8, ORDERED),
    ROW(MPI_COMPLEX, MT_COMPLEX, 8, BIT(SUM) | BIT(PROD)),
    ROW(MPI_DOUBLE_COMPLEX, MT_COMPLEX, 16, BIT(SUM) | BIT(PROD)),
    ROW(MPI_COMPLEX8, MT_COMPLEX, 8, BIT(SUM) | BIT(PROD)),
    ROW(MPI_COMPLEX16, MT_COMPLEX, 16, BIT(SUM) | BIT(PROD)),
    ROW(MPI_LOGICAL, MT_LOGICAL, 4, LOGICALS),
    PAIR(MPI_FLOAT_INT, MT_REAL, 4, MT_SIGNED, 4, 4),
    PAIR(MPI_DOUBLE_INT, MT_REAL, 8, MT_SIGNED, 4, 8),
    PAIR(MPI_LONG_INT, MT_SIGNED, sizeof(long), MT_SIGNED, 4, sizeof(long)),
    PAIR(MPI_2INT, MT_SIGNED, 4, MT_SIGNED, 4, 4),
    PAIR(MPI_SHORT_INT, MT_SIGNED, 2, MT_SIGNED, 4, 4),
    PAIR(MPI_LONG_DOUBLE_INT, MT_REAL, sizeof(long double), MT_SIGNED, 4, sizeof(long double)),
    PAIR(MPI_2REAL, MT_REAL, 4, MT_REAL, 4, 4),
    PAIR(MPI_2DOUBLE_PRECISION, MT_REAL, 8, MT_REAL, 8, 8),
    PAIR(MPI_2INTEGER, MT_SIGNED, 4, MT_SIGNED, 4, 4),
    ROW(MPI_DATATYPE_NULL, MT_REAL, 2, ORDERED | BIT(AVG)),
    ROW(MPI_DATATYPE_NULL, MT_BFLOAT, 2, ORDERED | BIT(AVG)),
    ROW(MPI_DATATYPE_NULL, MT_E4M3, 1, ORDERED | BIT(AVG)),
    ROW(MPI_DATATYPE_NULL, MT_E5M2, 1, ORDERED | BIT(AVG)),
};
enum {
    NROWS = sizeof rows / sizeof rows[0],
    OWN = NROWS - 4 /* the first of Tiara's own types, which exist at run time only */
};

const struct mt_type *mt_types(int *ntypes_out)
{
    static int nrows;
    if (nrows == 0) {
        static const char *const names[] = {
            "TIARA_FLOAT16", "TIARA_BFLOAT16", "TIARA_FLOAT8_E4M3", "TIARA_FLOAT8_E5M2"};
        const MPI_Datatype handles[] = {
            TIARA_FLOAT16, TIARA_BFLOAT16, TIARA_FLOAT8_E4M3, TIARA_FLOAT8_E5M2};
        for (int i = 0; i < NROWS - OWN; i++) {
            rows[OWN + i].name = names[i];
            rows[OWN + i].handle = handles[i];
        }
        for (int i = 0; i < NROWS; i++) {
            int bytes = 0;
            if (rows[i].handle != MPI_DATATYPE_NULL)
                MPI_Type_size(rows[i].handle, &bytes);
            if (bytes != 0)
                rows[nrows++] = rows[i];
        }
    }
    *ntypes_out = nrows;
    return rows;
}

const struct mt_type *mt_type_find(MPI_Datatype handle)
{
    int n;
    const struct mt_type *types = mt_types(&n);
    for (int i = 0; i < n; i++) {
        if (types[i].handle == handle)
            return &types[i];
    }
    abort();
}

size_t mt_type_extent(const struct mt_type *type)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type->handle, &lb, &extent);
    return (size_t)extent;
}

MPI_Op mt_oper_handle(enum mt_oper oper)
{
    const MPI_Op handles[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR,
        MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, TIARA_AVG};
    return handles[oper];
}

const char *mt_oper_name(enum mt_oper oper)
{
    static const char *const names[] = {"SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND",
        "BOR", "BXOR", "MINLOC", "MAXLOC", "AVG"};
    return names[oper];
}

/*
 * A value of any kind: bits for integers (sign-extended where signed) and logicals, z for floats.
 */
struct number {
    uint64_t bits;
    long double complex z;
};

/* A float narrower than C's, of @bytes, with @digits explicit bits of significand. */
struct narrow {
    size_t bytes;
    int digits, bias;
};
static const struct narrow half = {2, 10, 15};
static const struct narrow narrow[] = {
    [MT_BFLOAT] = {2, 7, 127}, [MT_E4M3] = {1, 3, 7}, [MT_E5M2] = {1, 2, 15}};

static bool is_fp8(enum mt_kind kind)
{
    return kind == MT_E4M3 || kind == MT_E5M2;
}

/* Stores a small exact value. */
static void narrow_store(unsigned char *p, struct narrow f, long double value)
{
    int exponent;
    double significand = frexp(fabs((double)value), &exponent);
    unsigned pattern = 0;
    if (significand != 0 && exponent - 1 + f.bias > 0)
        pattern = (unsigned)(exponent - 1 + f.bias) << f.digits |
                  (unsigned)ldexp(significand * 2 - 1, f.digits);
    else if (significand != 0)
        pattern = (unsigned)ldexp(significand, exponent - 1 + f.bias + f.digits);
    pattern |= value < 0 ? 1u << (8 * f.bytes - 1) : 0;
    memcpy(p, &pattern, f.bytes); /* little-endian */
}

static long double narrow_load(const unsigned char *p, struct narrow f)
{
    unsigned pattern = 0, sign = 1u << (8 * f.bytes - 1);
    memcpy(&pattern, p, f.bytes);
    int exponent = (int)(pattern & ~sign) >> f.digits;
    int fraction = (int)pattern & ((1 << f.digits) - 1);
    long double value = exponent == 0
                            ? ldexpl(fraction, 1 - f.bias - f.digits)
                            : ldexpl(fraction + (1 << f.digits), exponent - f.bias - f.digits);
    return pattern & sign ? -value : value;
}

static long double real_load(const unsigned char *p, size_t size)
{
    float f;
    double d;
    long double l;
    switch (size) {
    case 2:
        return narrow_load(p, half);
    case 4:
        memcpy(&f, p, 4);
        return f;
    case 8:
        memcpy(&d, p, 8);
        return d;
    default:
        memcpy(&l, p, sizeof l);
        return l;
    }
}

static void real_store(unsigned char *p, size_t size, long double value)
{
    float f = (float)value;
    double d = (double)value;
    if (size == 2)
        narrow_store(p, half, value);
    else
        memcpy(p, size == 4 ? (void *)&f : size == 8 ? (void *)&d : (void *)&value, size);
}

static struct number field_load(const struct mt_field *field, const unsigned char *element)
{
    const unsigned char *p = element + field->at;
    struct number x = {0, 0};
    switch (field->kind) {
    case MT_REAL:
        x.z = real_load(p, field->size);
        break;
    case MT_BFLOAT:
    case MT_E4M3:
    case MT_E5M2:
        x.z = narrow_load(p, narrow[field->kind]);
        break;
    case MT_COMPLEX:
        x.z = real_load(p, field->size / 2) + I * real_load(p + field->size / 2, field->size / 2);
        break;
    default:
        memcpy(&x.bits, p, field->size); /* little-endian, as all machines with such buffers here */
        if (field->kind == MT_SIGNED) {
            int unused = 64 - 8 * (int)field->size;
            x.bits = (uint64_t)((int64_t)(x.bits << unused) >> unused);
        }
    }
    return x;
}

static void field_store(
    const struct mt_field *field, unsigned char *element, const struct number *x)
{
    unsigned char *p = element + field->at;
    switch (field->kind) {
    case MT_REAL:
        real_store(p, field->size, creall(x->z));
        break;
    case MT_BFLOAT:
    case MT_E4M3:
    case MT_E5M2:
        narrow_store(p, narrow[field->kind], creall(x->z));
        break;
    case MT_COMPLEX:
        real_store(p, field->size / 2, creall(x->z));
        real_store(p + field->size / 2, field->size / 2, cimagl(x->z));
        break;
    default:
        memcpy(p, &x->bits, field->size);
    }
}

static bool is_integer(enum mt_kind kind)
{
    return kind == MT_SIGNED || kind == MT_UNSIGNED;
}

/* Integers: any bits, and often the least and the greatest where these matter. */
static uint64_t draw_integer(enum mt_oper oper, uint64_t h)
{
    if (oper == MT_AVG || oper == MT_MINLOC || oper == MT_MAXLOC)
        return h % 7;
    if ((oper == MT_MIN || oper == MT_MAX || oper >= MT_LAND) && h % 4 != 0)
        return h % 4 == 1 ? 0 : h % 4 == 2 ? UINT64_MAX : 0x7f7f7f7f7f7f7f7fu;
    return h >> 3;
}

static struct number draw(const struct mt_field *field, enum mt_oper oper, uint64_t h)
{
    static const long double factors[] = {1, -1, 2, 0.5L};
    struct number x = {0, 0};
    if (is_integer(field->kind))
        x.bits = draw_integer(oper, h);
    else if (field->kind == MT_LOGICAL)
        x.bits = oper == MT_LAND ? h % 5 != 0 : h % 5 == 0;
    else if (field->kind == MT_COMPLEX && oper == MT_PROD)
        x.z = (long double)(h % 2 ? 1 : -1) + I * (long double)(h % 4 < 2 ? 1 : -1);
    else if (field->kind == MT_COMPLEX)
        x.z = (long double)(h % 17) - 8 + I * ((long double)(h / 17 % 17) - 8);
    else if (oper == MT_PROD)
        x.z = factors[h % 4];
    else if (is_fp8(field->kind) && (oper == MT_SUM || oper == MT_AVG))
        x.z = (long double)(h % 3) - 1;
    else
        x.z = (long double)(h % 17) - 8;
    return x;
}

static void element_draw(
    const struct mt_type *type, const struct mt_case *c, int rank, size_t i, struct number x[2])
{
    uint64_t h = mt_hash(mt_hash(c->seed, (uint64_t)rank), i);
    x[0] = draw(&type->value, c->oper, h);
    if (is_fp8(type->value.kind) && rank >= 8 && c->oper != MT_MIN && c->oper != MT_MAX)
        x[0].z = c->oper == MT_PROD;
    x[1] = (struct number){h >> 8 & 15, (long double)(h >> 8 & 15)};
}

void mt_fill(const struct mt_type *type, enum mt_oper oper, uint64_t seed, int rank, size_t first,
    size_t count, void *data)
{
    const struct mt_case c = {.oper = oper, .seed = seed};
    size_t extent = mt_type_extent(type);
    for (size_t i = 0; i < count; i++) {
        struct number x[2];
        unsigned char *element = (unsigned char *)data + i * extent;
        element_draw(type, &c, rank, first + i, x);
        field_store(&type->value, element, &x[0]);
        if (type->index.size != 0)
            field_store(&type->index, element, &x[1]);
    }
}

/* Less-than of two values as the type orders them. */
static bool is_less(enum mt_kind kind, const struct number *a, const struct number *b)
{
    if (kind == MT_SIGNED)
        return (int64_t)a->bits < (int64_t)b->bits;
    return kind == MT_UNSIGNED ? a->bits < b->bits : creall(a->z) < creall(b->z);
}

static uint64_t fold_bits(enum mt_oper oper, uint64_t a, uint64_t b)
{
    switch (oper) {
    case MT_PROD:
        return a * b;
    case MT_LAND:
        return a && b;
    case MT_LOR:
        return a || b;
    case MT_LXOR:
        return !a != !b;
    case MT_BAND:
        return a & b;
    case MT_BOR:
        return a | b;
    case MT_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* acc = acc op x, on a pair when the operator is MINLOC or MAXLOC. Both hold values as loaded from
 * the type. */
static void element_fold(
    const struct mt_type *type, enum mt_oper oper, struct number acc[2], const struct number x[2])
{
    enum mt_kind kind = type->value.kind;
    bool wants_less = oper == MT_MIN || oper == MT_MINLOC;
    if (wants_less || oper == MT_MAX || oper == MT_MAXLOC) {
        bool less = is_less(kind, &x[0], &acc[0]), more = is_less(kind, &acc[0], &x[0]);
        bool tie = !less && !more && is_less(type->index.kind, &x[1], &acc[1]);
        if ((wants_less ? less : more) || (type->index.size != 0 && tie)) {
            acc[0] = x[0];
            acc[1] = x[1];
        }
        return;
    }
    if (is_integer(kind) || kind == MT_LOGICAL)
        acc[0].bits = fold_bits(oper, acc[0].bits, x[0].bits);
    else if (oper != MT_PROD)
        acc[0].z += x[0].z;
    else if (kind == MT_COMPLEX)
        acc[0].z *= x[0].z;
    else
        acc[0].z = creall(acc[0].z) * creall(x[0].z);
}

/* Element @i of the result, written to @element. */
static void element_expect(const struct mt_case *c, int nranks, size_t i, unsigned char *element)
{
    const struct mt_type *type = c->type;
    struct number acc[2], x[2];
    for (int r = 0; r < nranks; r++) {
        element_draw(type, c, r, i, x);
        field_store(
            &type->value, element, &x[0]); /* through the type: cuts integers to its width */
        x[0] = field_load(&type->value, element);
        if (r == 0)
            memcpy(acc, x, sizeof acc);
        else
            element_fold(type, c->oper, acc, x);
    }
    if (nranks == 1)
        acc[0] = x[0];
    if (c->oper == MT_AVG && is_integer(type->value.kind))
        acc[0].bits /= (uint64_t)nranks;
    field_store(&type->value, element, &acc[0]);
    if (type->index.size != 0)
        field_store(&type->index, element, &acc[1]);
}

/* Equal values; a mean of floats may be off by the rounding of one division. */
static bool is_equal(const struct mt_case *c, int nranks, struct number *got, struct number *want)
{
    static const double ulps[17] = {[2] = 0x1p-9, [4] = 0x1p-22, [8] = 0x1p-51, [16] = 0x1p-62};
    if (c->oper != MT_AVG || is_integer(c->type->value.kind))
        return got->bits == want->bits && got->z == want->z;
    long double mean = creall(want->z) / nranks;
    double ulp = c->type->value.kind == MT_BFLOAT ? 0x1p-6 : ulps[c->type->value.size];
    if (is_fp8(c->type->value.kind)) /* half a unit: the sum is exact, and the mean no denormal */
        ulp = c->type->value.kind == MT_E4M3 ? 0x1p-4 : 0x1p-3;
    return fabsl(creall(got->z) - mean) <= ulp * fabsl(mean);
}

bool mt_verify(const struct mt_case *c, int nranks, size_t first, size_t count, const void *data)
{
    size_t extent = mt_type_extent(c->type);
    unsigned char expected[64];
    for (size_t i = 0; i < count; i++) {
        const unsigned char *got = (const unsigned char *)data + i * extent;
        element_expect(c, nranks, first + i, expected);
        struct number g = field_load(&c->type->value, got);
        struct number w = field_load(&c->type->value, expected);
        bool same = is_equal(c, nranks, &g, &w);
        if (c->type->index.size != 0)
            same = same && memcmp(got + c->type->index.at, expected + c->type->index.at,
                               c->type->index.size) == 0;
        if (!same)
            return mt_check(false, "%s %s count %zu: element %zu is %llx %Lg, not %llx %Lg",
                c->type->name, mt_oper_name(c->oper), c->count, first + i,
                (unsigned long long)g.bits, creall(g.z), (unsigned long long)w.bits, creall(w.z));
    }
    return true;
}

/* Lends @send, or nothing in place, and @recv to TIARA_Allreduce, and takes them back. */
static int allreduce(struct mt_buf *send, struct mt_buf *recv, size_t count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm)
{
    int err = TIARA_Allreduce(
        send ? mt_buf_lend(send) : MPI_IN_PLACE, mt_buf_lend(recv), (int)count, type, op, comm);
    if (send)
        mt_buf_take(send);
    mt_buf_take(recv);
    return err;
}

bool mt_allreduce(const struct mt_case *c)
{
    int rank, nranks;
    MPI_Comm_rank(c->comm, &rank);
    MPI_Comm_size(c->comm, &nranks);
    mt_note("%s %s count %zu in place %d offset %zu", c->type->name, mt_oper_name(c->oper),
        c->count, c->in_place, c->offset);
    size_t bytes = c->count * mt_type_extent(c->type);
    struct mt_buf recv = mt_buf_new_result(bytes, c->offset);
    struct mt_buf send = mt_buf_new(c->in_place ? 0 : bytes, c->offset);
    unsigned char *input = c->in_place ? recv.data : send.data;
    mt_fill(c->type, c->oper, c->seed, rank, 0, c->count, input);
    uint64_t before = mt_digest(send.data, send.bytes);
    int err = allreduce(c->in_place ? NULL : &send, &recv, c->count, c->type->handle,
        mt_oper_handle(c->oper), c->comm);
    bool ok = mt_check(err == MPI_SUCCESS, "%s %s count %zu: error %d", c->type->name,
        mt_oper_name(c->oper), c->count, err);
    ok = ok && mt_verify(c, nranks, 0, c->count, recv.data);
    ok = mt_check(mt_buf_intact(&recv) && mt_buf_intact(&send), "%s %s count %zu: guards damaged",
             c->type->name, mt_oper_name(c->oper), c->count) &&
         ok;
    ok = mt_check(mt_digest(send.data, send.bytes) == before, "%s %s count %zu: input changed",
             c->type->name, mt_oper_name(c->oper), c->count) &&
         ok;
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return ok;
}

int mt_allreduce_arrays(
    const void *in, void *out, size_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type, &lb, &extent);
    struct mt_buf send = mt_buf_new(count * (size_t)extent, 0),
                  recv = mt_buf_new_result(send.bytes, 0);
    bool in_place = in == MPI_IN_PLACE;
    memcpy(recv.data, out, recv.bytes);
    memcpy(send.data, in_place ? out : in, send.bytes);
    int err = allreduce(in_place ? NULL : &send, &recv, count, type, op, comm);
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "count %zu: guards damaged", count);
    memcpy(out, recv.data, recv.bytes);
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return err;
}

void mt_allreduce_all_sizes(MPI_Comm comm, unsigned salt)
{
    static const size_t counts[] = {1, 4, 9, 100, 1000, 6000, 30000, 200000};
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_DOUBLE, MT_SUM}, {MPI_INT, MT_MAX}, {MPI_UINT8_T, MT_BXOR},
        {MPI_FLOAT, MT_PROD}, {MPI_DOUBLE_INT, MT_MAXLOC}};
    for (unsigned k = 0; k < 8; k++) {
        unsigned p = (k + salt) % 5;
        struct mt_case c = {.type = mt_type_find(pairs[p].type),
            .oper = pairs[p].oper,
            .count = counts[k] + mt_hash(mt_seed(), salt * 8 + k) % (counts[k] / 2 + 1),
            .in_place = (k + salt / 2) % 2,
            .seed = mt_seed() + salt * 8 + k,
            .comm = comm};
        mt_allreduce(&c);
    }
}
