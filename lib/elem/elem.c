/*
 * From MPI's handles to elements and operators, without calling MPI.
 *
 * Predefined handles never change, so one table found by hashing serves all calls. What a handle is
 * worth (a long of 4 or 8 bytes) is decided by the compiler that compiles this.
 */
#include "elem/elem.h"
#include "base/env.h"
#include "base/log.h"
#include "tiara.h"
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#define SLOTS 256

struct type_slot {
    MPI_Datatype handle;
    int type; /* enum tiara_type + 1; 0: empty */
    /* the standard defines logical operators on it: C integers and C++ bool, not Fortran's or MPI's
     * integers */
    bool logical;
};

static struct type_slot types[SLOTS];
static const struct tiara_redop *redops[TIARA_NTYPE][TIARA_NOPER + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The types and the operator that Tiara adds to MPI's; made on demand, freed at MPI_Finalize. */
enum {
    OWN_F16,
    OWN_BF16,
    OWN_E4M3,
    OWN_E5M2,
    NOWN
};
static struct {
    const char *name;
    enum tiara_type type;
    MPI_Datatype handle;
} own[NOWN] = {
    [OWN_F16] = {"TIARA_FLOAT16", TIARA_TYPE_F16, MPI_DATATYPE_NULL},
    [OWN_BF16] = {"TIARA_BFLOAT16", TIARA_TYPE_BF16, MPI_DATATYPE_NULL},
    [OWN_E4M3] = {"TIARA_FLOAT8_E4M3", TIARA_TYPE_E4M3, MPI_DATATYPE_NULL},
    [OWN_E5M2] = {"TIARA_FLOAT8_E5M2", TIARA_TYPE_E5M2, MPI_DATATYPE_NULL},
};
static MPI_Op op_avg = MPI_OP_NULL;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;

/* A handle is a pointer or an int: its value, spread. */
static unsigned hash(MPI_Datatype handle)
{
    uint64_t value = 0;

    memcpy(&value, &handle, sizeof(handle));
    return (unsigned)(value * 0x9e3779b97f4a7c15u >> 56) % SLOTS;
}

static void add_type(MPI_Datatype handle, int type, bool logical)
{
    unsigned at = hash(handle);

    if (handle == MPI_DATATYPE_NULL || type < 0)
        return;
    while (types[at].type != 0 && types[at].handle != handle)
        at = (at + 1) % SLOTS;
    types[at] = (struct type_slot){handle, type + 1, logical};
}

static int integer(size_t size, bool is_signed)
{
    switch (size) {
    case 1:
        return is_signed ? TIARA_TYPE_I8 : TIARA_TYPE_U8;
    case 2:
        return is_signed ? TIARA_TYPE_I16 : TIARA_TYPE_U16;
    case 4:
        return is_signed ? TIARA_TYPE_I32 : TIARA_TYPE_U32;
    default:
        return is_signed ? TIARA_TYPE_I64 : TIARA_TYPE_U64;
    }
}

static void add_c_types(void)
{
    add_type(MPI_SIGNED_CHAR, TIARA_TYPE_I8, true);
    add_type(MPI_UNSIGNED_CHAR, TIARA_TYPE_U8, true);
    add_type(MPI_SHORT, integer(sizeof(short), true), true);
    add_type(MPI_UNSIGNED_SHORT, integer(sizeof(short), false), true);
    add_type(MPI_INT, integer(sizeof(int), true), true);
    add_type(MPI_UNSIGNED, integer(sizeof(int), false), true);
    add_type(MPI_LONG, integer(sizeof(long), true), true);
    add_type(MPI_UNSIGNED_LONG, integer(sizeof(long), false), true);
    add_type(MPI_LONG_LONG_INT, integer(sizeof(long long), true), true);
    add_type(MPI_UNSIGNED_LONG_LONG, integer(sizeof(long long), false), true);
    add_type(MPI_INT8_T, TIARA_TYPE_I8, true);
    add_type(MPI_UINT8_T, TIARA_TYPE_U8, true);
    add_type(MPI_INT16_T, TIARA_TYPE_I16, true);
    add_type(MPI_UINT16_T, TIARA_TYPE_U16, true);
    add_type(MPI_INT32_T, TIARA_TYPE_I32, true);
    add_type(MPI_UINT32_T, TIARA_TYPE_U32, true);
    add_type(MPI_INT64_T, TIARA_TYPE_I64, true);
    add_type(MPI_UINT64_T, TIARA_TYPE_U64, true);
    add_type(MPI_FLOAT, TIARA_TYPE_F32, true);
    add_type(MPI_DOUBLE, TIARA_TYPE_F64, true);
    add_type(MPI_LONG_DOUBLE,
        sizeof(long double) == tiara_type_size(TIARA_TYPE_F80) ? TIARA_TYPE_F80 : -1, true);
    add_type(MPI_C_BOOL, TIARA_TYPE_BOOL, true);
    add_type(MPI_C_FLOAT_COMPLEX, TIARA_TYPE_C32, true);
    add_type(MPI_C_DOUBLE_COMPLEX, TIARA_TYPE_C64, true);
    add_type(MPI_AINT, integer(sizeof(MPI_Aint), true), false);
    add_type(MPI_OFFSET, integer(sizeof(MPI_Offset), true), false);
    add_type(MPI_COUNT, integer(sizeof(MPI_Count), true), false);
    add_type(MPI_CXX_BOOL, TIARA_TYPE_BOOL, true);
    add_type(MPI_CXX_FLOAT_COMPLEX, TIARA_TYPE_C32, true);
    add_type(MPI_CXX_DOUBLE_COMPLEX, TIARA_TYPE_C64, true);
}

/* Fortran types whose size MPI says, since the Fortran compiler's options may change it. */
static void add_fortran_type(MPI_Datatype handle, char class)
{
    int size = 0;

    if (handle == MPI_DATATYPE_NULL || PMPI_Type_size(handle, &size) != MPI_SUCCESS)
        return;
    if (class == 'i' && (size == 1 || size == 2 || size == 4 || size == 8))
        add_type(handle, integer((size_t)size, true), false);
    if (class == 'r' && (size == 4 || size == 8))
        add_type(handle, size == 4 ? TIARA_TYPE_F32 : TIARA_TYPE_F64, false);
    if (class == 'c' && (size == 8 || size == 16))
        add_type(handle, size == 8 ? TIARA_TYPE_C32 : TIARA_TYPE_C64, false);
}

static void fill_tables(void)
{
    const int64_t isa = tiara_env_value(TIARA_ENV_ISA);
    const char *limit = isa > 0 ? tiara_env_text(TIARA_ENV_ISA) : NULL;

    add_c_types();
    add_fortran_type(MPI_INTEGER, 'i');
    add_fortran_type(MPI_INTEGER1, 'i');
    add_fortran_type(MPI_INTEGER2, 'i');
    add_fortran_type(MPI_INTEGER4, 'i');
    add_fortran_type(MPI_INTEGER8, 'i');
    add_fortran_type(MPI_REAL, 'r');
    add_fortran_type(MPI_REAL4, 'r');
    add_fortran_type(MPI_REAL8, 'r');
    add_fortran_type(MPI_DOUBLE_PRECISION, 'r');
    add_fortran_type(MPI_COMPLEX, 'c');
    add_fortran_type(MPI_DOUBLE_COMPLEX, 'c');
    for (int t = 0; t < TIARA_NTYPE; t++) {
        for (int o = 0; o < TIARA_NOPER; o++)
            redops[t][o] = tiara_redop_find((enum tiara_type)t, (enum tiara_operator)o, limit);
        redops[t][TIARA_NOPER] = tiara_redop_find_avg((enum tiara_type)t, limit);
    }
}

static int find_type(MPI_Datatype handle, bool *logical_out)
{
    *logical_out = false;
    for (unsigned at = hash(handle); types[at].type != 0; at = (at + 1) % SLOTS)
        if (types[at].handle == handle) {
            *logical_out = types[at].logical;
            return types[at].type - 1;
        }
    for (int i = 0; i < NOWN && handle != MPI_DATATYPE_NULL; i++)
        if (handle == own[i].handle)
            return (int)own[i].type;
    return -1;
}

static int find_oper(MPI_Op op)
{
    if (op == MPI_SUM)
        return TIARA_OPER_SUM;
    if (op == MPI_MAX)
        return TIARA_OPER_MAX;
    if (op == MPI_MIN)
        return TIARA_OPER_MIN;
    if (op == MPI_PROD)
        return TIARA_OPER_PROD;
    if (op == MPI_LAND)
        return TIARA_OPER_LAND;
    if (op == MPI_LOR)
        return TIARA_OPER_LOR;
    if (op == MPI_LXOR)
        return TIARA_OPER_LXOR;
    if (op == MPI_BAND)
        return TIARA_OPER_BAND;
    if (op == MPI_BOR)
        return TIARA_OPER_BOR;
    if (op == MPI_BXOR)
        return TIARA_OPER_BXOR;
    if (op == op_avg && op != MPI_OP_NULL)
        return TIARA_NOPER;
    return -1;
}

bool tiara_elem_native(MPI_Datatype type, MPI_Op op, struct tiara_elem *e)
{
    bool logical;

    pthread_once(&once, fill_tables);
    e->type = find_type(type, &logical);
    e->oper = find_oper(op);
    e->packed = false;
    e->own = e->oper == TIARA_NOPER;
    for (int i = 0; i < NOWN; i++)
        e->own = e->own || e->type == (int)own[i].type;
    if (e->type < 0 || e->oper < 0)
        return false;
    if (!logical && e->oper >= TIARA_OPER_LAND && e->oper <= TIARA_OPER_LXOR)
        return false;
    e->redop = redops[e->type][e->oper];
    if (!e->redop)
        return false;
    e->size = e->redop->elem_size;
    return true;
}

/* ---- strict rounding: 8- and 16-bit floats, each step rounded, so that it does not matter where a
 * fold was cut ---- */

bool tiara_elem_is_small_float(const struct tiara_elem *e)
{
    return e->type == TIARA_TYPE_F16 || e->type == TIARA_TYPE_BF16 || e->type == TIARA_TYPE_E4M3 ||
           e->type == TIARA_TYPE_E5M2;
}

/* Bytes folded at a time, aside, since the target may be any of the sources. */
#define STRICT_TILE 4096

static enum tiara_err fold_strict(
    const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)
{
    const struct tiara_redop *inner = op->ctx;
    size_t bytes = n * inner->elem_size;
    unsigned char sum[STRICT_TILE];
    enum tiara_err err = TIARA_OK;

    if (nsrc <= 2)
        return inner->fold(inner, dst, src, nsrc, n);
    for (size_t at = 0; at < bytes && err == TIARA_OK; at += STRICT_TILE) {
        size_t count = bytes - at < STRICT_TILE ? bytes - at : STRICT_TILE;
        const void *pair[2] = {(const unsigned char *)src[0] + at, NULL};

        for (int i = 1; i < nsrc && err == TIARA_OK; i++) {
            pair[1] = (const unsigned char *)src[i] + at;
            err = inner->fold(inner, sum, pair, 2, count / inner->elem_size);
            pair[0] = sum;
        }
        memcpy((unsigned char *)dst + at, sum, count);
    }
    return err;
}

static void finish_strict(const struct tiara_redop *op, void *buf, size_t n, int nranks)
{
    const struct tiara_redop *inner = op->ctx;

    inner->finish(inner, buf, n, nranks);
}

const struct tiara_redop *tiara_elem_strict(
    const struct tiara_redop *redop, struct tiara_redop *room)
{
    *room = *redop;
    room->fold = fold_strict;
    room->finish = redop->finish ? finish_strict : NULL;
    room->ctx = redop;
    return room;
}

/* ---- what Tiara adds ---- */

/*
 * MPI never has to call it: TIARA_ functions know the operator, and no other function accepts it.
 */
static void avg_called_by_mpi(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in;
    (void)inout;
    (void)len;
    (void)type;
    tiara_error("TIARA_AVG was given to a function that is not Tiara's");
    PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_OP);
}

static MPI_Datatype own_type(int i)
{
    MPI_Datatype *handle = &own[i].handle;
    int bytes = (int)tiara_type_size(own[i].type);

    pthread_mutex_lock(&own_lock);
    if (*handle == MPI_DATATYPE_NULL &&
        PMPI_Type_contiguous(bytes, MPI_BYTE, handle) == MPI_SUCCESS) {
        PMPI_Type_commit(handle);
        PMPI_Type_set_name(*handle, own[i].name);
    }
    pthread_mutex_unlock(&own_lock);
    return *handle;
}

MPI_Datatype TIARA_Type_float16(void)
{
    return own_type(OWN_F16);
}

MPI_Datatype TIARA_Type_bfloat16(void)
{
    return own_type(OWN_BF16);
}

MPI_Datatype TIARA_Type_float8_e4m3(void)
{
    return own_type(OWN_E4M3);
}

MPI_Datatype TIARA_Type_float8_e5m2(void)
{
    return own_type(OWN_E5M2);
}

MPI_Op TIARA_Op_avg(void)
{
    pthread_mutex_lock(&own_lock);
    if (op_avg == MPI_OP_NULL)
        PMPI_Op_create(avg_called_by_mpi, 1, &op_avg);
    pthread_mutex_unlock(&own_lock);
    return op_avg;
}

void tiara_elem_release(void)
{
    pthread_mutex_lock(&own_lock);
    for (int i = 0; i < NOWN; i++)
        if (own[i].handle != MPI_DATATYPE_NULL)
            PMPI_Type_free(&own[i].handle);
    if (op_avg != MPI_OP_NULL)
        PMPI_Op_free(&op_avg);
    pthread_mutex_unlock(&own_lock);
}
