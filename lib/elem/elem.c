/*
 * From MPI's handles to elements and operators, without calling MPI: predefined handles never
 * change, so one table, filled once and found by hashing, serves all calls.
 */
#include "elem/elem.h"
#include "base/env.h"
#include "base/log.h"
#include "tiara.h"
#include <pthread.h>
#include <string.h>

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

/*
 * X(a, ID, what follows TIARA_ in its name, what follows TIARA_Type_ in its function's): the types
 * that Tiara adds to MPI's, which are those of HALF and FP8. Made on demand, freed at MPI_Finalize.
 */
#define OWN_TYPES(X, a)                                                                            \
    X(a, F16, FLOAT16, float16)                                                                    \
    X(a, BF16, BFLOAT16, bfloat16)                                                                 \
    X(a, E4M3, FLOAT8_E4M3, float8_e4m3)                                                           \
    X(a, E5M2, FLOAT8_E5M2, float8_e5m2)

#define OWN_NUMBER(a, ID, NAME, name) OWN_##ID,
#define OWN_ROW(a, ID, NAME, name) {"TIARA_" #NAME, TIARA_TYPE_##ID, MPI_DATATYPE_NULL},
enum {
    OWN_TYPES(OWN_NUMBER, ) NOWN
};
static struct {
    const char *name;
    enum tiara_type type;
    MPI_Datatype handle;
} own[NOWN] = {OWN_TYPES(OWN_ROW, )};
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

    while (types[at].type != 0 && types[at].handle != handle)
        at = (at + 1) % SLOTS;
    types[at] = (struct type_slot){handle, type + 1, logical};
}

/* What MPI calls types of each class. What an MPI lacks is null, and so is the rest of a row. */
static const struct {
    enum tiara_class class;
    bool logical;
    MPI_Datatype handles[12];
} named[] = {
    {TIARA_CLASS_INT, true,
        {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG_INT, MPI_INT8_T, MPI_INT16_T,
            MPI_INT32_T, MPI_INT64_T}},
    {TIARA_CLASS_UINT, true,
        {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
            MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T}},
    {TIARA_CLASS_REAL, true, {MPI_FLOAT, MPI_DOUBLE}},
    {TIARA_CLASS_LONG, true, {MPI_LONG_DOUBLE}},
    {TIARA_CLASS_BOOL, true, {MPI_C_BOOL, MPI_CXX_BOOL}},
    {TIARA_CLASS_COMPLEX, true,
        {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX}},
    {TIARA_CLASS_INT, false,
        {MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
            MPI_INTEGER8}},
    {TIARA_CLASS_REAL, false, {MPI_REAL, MPI_REAL4, MPI_REAL8, MPI_DOUBLE_PRECISION}},
    {TIARA_CLASS_COMPLEX, false, {MPI_COMPLEX, MPI_DOUBLE_COMPLEX}},
};

/* What @handle is worth: the type of its class and size, if there is one. MPI says the size, as
 * options of the Fortran compiler may change it. */
static void add(MPI_Datatype handle, enum tiara_class class, bool logical)
{
    int size = 0;

    if (!handle || handle == MPI_DATATYPE_NULL || PMPI_Type_size(handle, &size) != MPI_SUCCESS)
        return;
    for (int t = 0; t < TIARA_NTYPE; t++)
        if (tiara_type_class((enum tiara_type)t) == class &&
            tiara_type_size((enum tiara_type)t) == (size_t)size)
            add_type(handle, t, logical);
}

static void fill_tables(void)
{
    const int64_t isa = tiara_env_value(TIARA_ENV_ISA);
    const char *limit = isa > 0 ? tiara_env_text(TIARA_ENV_ISA) : NULL;

    for (size_t row = 0; row < sizeof(named) / sizeof(named[0]); row++)
        for (size_t i = 0; i < sizeof(named[0].handles) / sizeof(MPI_Datatype); i++)
            add(named[row].handles[i], named[row].class, named[row].logical);
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

#define MATCH_OPER(a, ID, name)                                                                    \
    if (op == MPI_##ID)                                                                            \
        return TIARA_OPER_##ID;
static int find_oper(MPI_Op op)
{
    TIARA_OPERATORS(MATCH_OPER, )
    if (op == op_avg && op != MPI_OP_NULL)
        return TIARA_NOPER;
    return -1;
}

#define OWN_BIT(a, ID, NAME, name) | 1u << TIARA_TYPE_##ID
bool tiara_elem_is_small_float(const struct tiara_elem *e)
{
    return e->type >= 0 && ((0 OWN_TYPES(OWN_BIT, )) >> e->type & 1) != 0;
}

bool tiara_elem_native(MPI_Datatype type, MPI_Op op, struct tiara_elem *e)
{
    bool logical;

    pthread_once(&once, fill_tables);
    e->type = find_type(type, &logical);
    e->oper = find_oper(op);
    e->packed = false;
    e->own = e->oper == TIARA_NOPER || tiara_elem_is_small_float(e);
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
    const struct tiara_redop *redop, struct tiara_redop *storage)
{
    *storage = *redop;
    storage->fold = fold_strict;
    storage->finish = redop->finish ? finish_strict : NULL;
    storage->ctx = redop;
    return storage;
}

/* ---- what the MPI below is given for what it does not know ---- */

/*
 * MIN and MAX keep the left one of equal zeros, and of a number and a NaN. Which one is left may
 * differ between the ranks that an algorithm of MPI's has combine the same two: here it is the one
 * with the larger bytes.
 */
static enum tiara_err choose_either(
    const struct tiara_redop *op, const void *const src[2], void *dst, size_t bytes)
{
    const void *const swapped[2] = {src[1], src[0]};
    unsigned char left[STRICT_TILE], right[STRICT_TILE];
    size_t size = op->elem_size, n = bytes / size;
    enum tiara_err err = op->fold(op, left, src, 2, n);

    if (err == TIARA_OK)
        err = op->fold(op, right, swapped, 2, n);
    for (size_t at = 0; at < bytes; at += size)
        if (memcmp(left + at, right + at, size) < 0)
            memcpy(left + at, right + at, size);
    memcpy(dst, left, bytes);
    return err;
}

static void combine(enum tiara_operator oper, const char *in, char *inout, int n, MPI_Datatype type)
{
    bool logical, choice = oper == TIARA_OPER_MIN || oper == TIARA_OPER_MAX;
    int known = find_type(type, &logical);
    const struct tiara_redop *op = known >= 0 ? redops[known][oper] : NULL;
    size_t bytes = op ? (size_t)n * op->elem_size : 0, step = choice ? STRICT_TILE : bytes;
    enum tiara_err err = op ? TIARA_OK : TIARA_ERR_ARG;

    for (size_t at = 0; at < bytes && err == TIARA_OK; at += step) {
        const void *const src[2] = {in + at, inout + at};
        size_t count = bytes - at < step ? bytes - at : step;

        err = choice ? choose_either(op, src, inout + at, count)
                     : op->fold(op, inout, src, 2, (size_t)n);
    }
    if (err != TIARA_OK) {
        tiara_error("MPI gave one of Tiara's operators elements of a type that it is not for");
        PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_OP);
    }
}

/* What MPI calls for each operator. */
#define OWN_COMBINE(a, ID, name)                                                                   \
    static void combine_##ID(void *in, void *inout, int *len, MPI_Datatype *type)                  \
    {                                                                                              \
        combine(TIARA_OPER_##ID, in, inout, *len, *type);                                          \
    }
TIARA_OPERATORS(OWN_COMBINE, )

#define OWN_COMBINER(a, ID, name) [TIARA_OPER_##ID] = {combine_##ID, MPI_OP_NULL},
static struct {
    MPI_User_function *combine;
    MPI_Op handle; /* own_lock */
} own_ops[TIARA_NOPER] = {TIARA_OPERATORS(OWN_COMBINER, )};

/* Made with the first handle that a program gets, so that no call can lack them. Locked. */
static bool make_own_ops(void)
{
    pthread_once(&once, fill_tables);
    for (int i = 0; i < TIARA_NOPER; i++)
        if (own_ops[i].handle == MPI_OP_NULL &&
            PMPI_Op_create(own_ops[i].combine, 1, &own_ops[i].handle) != MPI_SUCCESS)
            return false;
    return true;
}

MPI_Op tiara_elem_op_below(const struct tiara_elem *e, MPI_Op op)
{
    int oper = e->oper == TIARA_NOPER ? TIARA_OPER_SUM : e->oper;

    if (oper < 0 || !tiara_elem_is_small_float(e))
        return e->oper == TIARA_NOPER ? MPI_SUM : op;
    return own_ops[oper].handle;
}

void tiara_elem_finish(const struct tiara_elem *e, void *buf, size_t n, int nranks)
{
    const struct tiara_redop *avg =
        e->oper == TIARA_NOPER && nranks > 1 ? redops[e->type][TIARA_NOPER] : NULL;

    if (avg)
        avg->finish(avg, buf, n, nranks);
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
    if (*handle == MPI_DATATYPE_NULL && make_own_ops() &&
        PMPI_Type_contiguous(bytes, MPI_BYTE, handle) == MPI_SUCCESS) {
        PMPI_Type_commit(handle);
        PMPI_Type_set_name(*handle, own[i].name);
    }
    pthread_mutex_unlock(&own_lock);
    return *handle;
}

#define OWN_FUNCTION(a, ID, NAME, name)                                                            \
    MPI_Datatype TIARA_Type_##name(void)                                                           \
    {                                                                                              \
        return own_type(OWN_##ID);                                                                 \
    }
OWN_TYPES(OWN_FUNCTION, )

MPI_Op TIARA_Op_avg(void)
{
    pthread_mutex_lock(&own_lock);
    if (op_avg == MPI_OP_NULL && make_own_ops())
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
    for (int i = 0; i < TIARA_NOPER; i++)
        if (own_ops[i].handle != MPI_OP_NULL)
            PMPI_Op_free(&own_ops[i].handle);
    if (op_avg != MPI_OP_NULL)
        PMPI_Op_free(&op_avg);
    pthread_mutex_unlock(&own_lock);
}
