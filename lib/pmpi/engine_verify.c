/*
 * TIARA_PMPI=verify: each call that Tiara would serve is run twice, by MPI on the program's own
 * buffers, whose result the program gets, and by Tiara on copies; then the results are compared.
 *
 * The bound of what rounds needs the magnitudes of all ranks, which MPI combines in a call of its
 * own.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "pmpi/engine_priv.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#define NEXT tiara_engine_host->next

/* ---- copies ---- */

#define CUDA_DRIVER "libcuda.so.1"

bool tiara_engine_has_cuda(void)
{
    void *cuda = dlopen(CUDA_DRIVER, RTLD_LAZY | RTLD_NOLOAD);

    if (cuda)
        dlclose(cuda);
    return cuda;
}

/* The CPU cannot look at it. Where the process has no CUDA, there is no such memory. */
static bool is_on_device(const void *at)
{
    const int memory_type = 2,
              device = 2; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE */
    void *cuda = dlopen(CUDA_DRIVER, RTLD_LAZY | RTLD_NOLOAD);
    int (*ask)(void *, int, unsigned long long) =
        cuda ? (int (*)(void *, int, unsigned long long))dlsym(cuda, "cuPointerGetAttribute")
             : NULL;
    unsigned type = 0;
    bool yes = ask && ask(&type, memory_type, (unsigned long long)(uintptr_t)at) == 0 &&
               type == (unsigned)device;

    if (cuda)
        dlclose(cuda);
    return yes;
}

/* A copy of a buffer: @at stands for the buffer's address, @memory is what is allocated. */
struct copy {
    char *memory, *at;
};

static bool copy_make(struct copy *copy, const void *buf, MPI_Count count, MPI_Datatype type)
{
    MPI_Aint lb, extent, true_lb, true_extent, bytes;

    if (PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS || extent < 0)
        return false;
    bytes = (MPI_Aint)(count - 1) * extent + true_extent;
    copy->memory = tiara_alloc((size_t)bytes, 1);
    if (!copy->memory)
        return false;
    memcpy(copy->memory, (const char *)buf + true_lb, (size_t)bytes);
    copy->at = copy->memory - true_lb;
    return true;
}

/* ---- one call ---- */

struct check {
    struct tiara_engine_args a; /* Tiara's: the result goes into the copy */
    const void *result; /* the program's */
    MPI_Count in_count, out_count; /* elements that are combined, and that are the result */
    int rank, ranks;
    uint64_t number; /* of the call, on its communicator */
    struct copy out;
    struct tiara_engine_measure measure;
    double *mine, *magnitudes; /* [in_count x parts], [out_count x parts]; NULL: nothing rounds */
};

static void check_close(struct check *k)
{
    tiara_free(k->out.memory);
    tiara_free(k->mine);
    tiara_free(k->magnitudes);
}

/* The magnitudes of this rank's input. */
static bool take_magnitudes(struct check *k, const void *input)
{
    if (k->in_count * k->measure.parts > INT_MAX)
        return false;
    k->mine = tiara_alloc((size_t)(k->in_count * k->measure.parts), sizeof(double));
    k->magnitudes = tiara_alloc((size_t)(k->out_count * k->measure.parts), sizeof(double));
    if (!k->mine || !k->magnitudes)
        return false;
    tiara_engine_magnitudes(&k->measure, input, k->in_count, k->mine);
    return true;
}

/* False: this rank cannot compare. The caller closes @k in any case. */
static bool check_open(struct check *k, const struct tiara_engine_args *a)
{
    const struct tiara_engine_comm *c = a->state;
    bool in_place = a->sendbuf == MPI_IN_PLACE, gathers = a->kind == TIARA_KIND_ALLGATHER;
    bool scatters = a->kind == TIARA_KIND_REDUCE_SCATTER_BLOCK;
    MPI_Count all = a->count * c->size;

    *k = (struct check){.a = *a,
        .result = a->recvbuf,
        .in_count = scatters ? all : a->count,
        .out_count = gathers ? all : a->count,
        .rank = c->rank,
        .ranks = c->size,
        .number = c->calls};
    k->measure = tiara_engine_measure_of(a->type, gathers ? MPI_OP_NULL : a->op);
    if (k->measure.number == TIARA_MEASURE_NONE || is_on_device(a->recvbuf) ||
        (!in_place && is_on_device(a->sendbuf)))
        return false;
    if (!copy_make(&k->out, a->recvbuf, in_place && scatters ? all : k->out_count, a->type))
        return false;
    k->a.recvbuf = k->out.at;
    return !k->measure.rounds || take_magnitudes(k, in_place ? a->recvbuf : a->sendbuf);
}

static MPI_Op magnitude_op(const struct check *k)
{
    return k->measure.product ? MPI_PROD : MPI_SUM;
}

static const char *kind_name(enum tiara_engine_kind kind)
{
    static const char *const names[TIARA_NKINDS] = {"MPI_Allreduce", "MPI_Iallreduce",
        "MPI_Allreduce_init", "MPI_Reduce_scatter_block", "MPI_Allgather"};

    return names[kind];
}

/* *told_before: whether a difference was shown before. */
static void check_compare(struct check *k, bool *told_before)
{
    struct tiara_engine_difference d;
    struct tiara_engine_pair pair = {.mpi = k->result,
        .tiara = k->out.at,
        .count = k->out_count,
        .type = k->a.type,
        .magnitudes = k->magnitudes,
        .ranks = k->ranks};
    enum tiara_engine_verdict verdict = tiara_engine_compare(&k->measure, &pair, &d);

    tiara_engine_note_verified(verdict);
    if (verdict != TIARA_VERDICT_DIFFERS || *told_before)
        return;
    *told_before = true;
    tiara_warn(
        "verify: %s, call %llu on a communicator of %d ranks: element %lld is %s by MPI and %s "
        "by Tiara; further differences there are only counted",
        kind_name(k->a.kind), (unsigned long long)k->number, k->ranks, (long long)d.index, d.mpi,
        d.tiara);
}

/* ---- blocking calls ---- */

static int run_mpi(const struct tiara_engine_args *a)
{
    if (a->kind == TIARA_KIND_ALLGATHER)
        return NEXT.Allgather(
            a->sendbuf, a->sendcount, a->sendtype, a->recvbuf, (int)a->count, a->type, a->comm);
    if (a->kind == TIARA_KIND_REDUCE_SCATTER_BLOCK)
        return NEXT.Reduce_scatter_block(
            a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, a->comm);
    if (a->count > INT_MAX)
        return NEXT.Allreduce_c(a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm);
    return NEXT.Allreduce(a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, a->comm);
}

static int combine_magnitudes(const struct check *k)
{
    int n = (int)(k->out_count * k->measure.parts);

    if (!k->measure.rounds)
        return MPI_SUCCESS;
    if (k->a.kind == TIARA_KIND_REDUCE_SCATTER_BLOCK)
        return PMPI_Reduce_scatter_block(
            k->mine, k->magnitudes, n, MPI_DOUBLE, magnitude_op(k), k->a.comm);
    return PMPI_Allreduce(k->mine, k->magnitudes, n, MPI_DOUBLE, magnitude_op(k), k->a.comm);
}

int tiara_engine_verify(const struct tiara_engine_args *a)
{
    struct check k;
    int ok = check_open(&k, a), rc, rc_tiara;

    /* One rank that cannot compare makes all go without. */
    if (PMPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, a->comm) != MPI_SUCCESS)
        ok = 0;
    rc = run_mpi(a);
    if (!ok)
        tiara_engine_note_verified(TIARA_VERDICT_UNKNOWN);
    if (ok && combine_magnitudes(&k) == MPI_SUCCESS) {
        rc_tiara = tiara_engine_run(&k.a);
        if (rc == MPI_SUCCESS && rc_tiara == MPI_SUCCESS)
            check_compare(&k, &a->state->told[a->kind]);
        else if (rc == MPI_SUCCESS)
            tiara_engine_note_verified(TIARA_VERDICT_DIFFERS);
    }
    check_close(&k);
    return rc;
}

/* ---- nonblocking calls ---- */

struct tiara_engine_shadow {
    struct check check;
    MPI_Datatype type; /* the program may free its own */
    MPI_Request magnitudes;
    TIARA_Request tiara; /* once abandoned */
    struct tiara_engine_shadow *next; /* of those that were abandoned */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tiara_engine_shadow *abandoned; /* lock */
static bool
    told; /* a difference was shown; the communicator may be gone, so once per process; lock */

static void shadow_delete(struct tiara_engine_shadow *s)
{
    check_close(&s->check);
    if (s->type != MPI_DATATYPE_NULL)
        PMPI_Type_free(&s->type);
    tiara_free(s);
}

/* The three operations, in the same order on all ranks. */
static int start_all(struct tiara_engine_shadow *s, const struct tiara_engine_args *a,
    MPI_Request *request, TIARA_Request *tiara)
{
    struct check *k = &s->check;
    int rc;

    if (a->count > INT_MAX)
        rc = NEXT.Iallreduce_c(a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm, request);
    else
        rc = NEXT.Iallreduce(
            a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, a->comm, request);
    if (rc == MPI_SUCCESS && k->measure.rounds)
        rc = PMPI_Iallreduce(k->mine, k->magnitudes, (int)(k->out_count * k->measure.parts),
            MPI_DOUBLE, magnitude_op(k), a->comm, &s->magnitudes);
    if (rc == MPI_SUCCESS)
        rc = TIARA_Iallreduce_c(a->sendbuf, k->a.recvbuf, a->count, a->type, a->op, a->comm, tiara);
    return rc;
}

struct tiara_engine_shadow *tiara_engine_shadow_start(
    const struct tiara_engine_args *a, MPI_Request *request, TIARA_Request *tiara, int *rc_out)
{
    struct tiara_engine_shadow *s = tiara_alloc(1, sizeof(*s));

    *rc_out = MPI_ERR_NO_MEM;
    if (!s) {
        tiara_engine_raise(a->comm, *rc_out);
        return NULL;
    }
    s->magnitudes = MPI_REQUEST_NULL;
    s->type = MPI_DATATYPE_NULL;
    if (check_open(&s->check, a) && PMPI_Type_dup(a->type, &s->type) == MPI_SUCCESS)
        *rc_out = start_all(s, a, request, tiara);
    else
        tiara_engine_raise(a->comm, *rc_out);
    if (*rc_out == MPI_SUCCESS)
        return s;
    shadow_delete(s);
    return NULL;
}

/* Waits until nothing uses the copies any more. Returns how Tiara's operation ended. */
static int shadow_wait(struct tiara_engine_shadow *s, TIARA_Request *tiara)
{
    PMPI_Wait(&s->magnitudes, MPI_STATUS_IGNORE);
    return TIARA_Wait(tiara, MPI_STATUS_IGNORE);
}

void tiara_engine_shadow_end(struct tiara_engine_shadow *s, TIARA_Request *tiara)
{
    if (shadow_wait(s, tiara) == MPI_SUCCESS) {
        s->check.a.type = s->type;
        pthread_mutex_lock(&lock);
        check_compare(&s->check, &told);
        pthread_mutex_unlock(&lock);
    } else {
        tiara_engine_note_verified(TIARA_VERDICT_DIFFERS);
    }
    shadow_delete(s);
}

void tiara_engine_shadow_abandon(struct tiara_engine_shadow *s, TIARA_Request *tiara)
{
    s->tiara = *tiara;
    pthread_mutex_lock(&lock);
    s->next = abandoned;
    abandoned = s;
    pthread_mutex_unlock(&lock);
}

void tiara_engine_shadow_drain(void)
{
    while (abandoned) {
        struct tiara_engine_shadow *s = abandoned;

        abandoned = s->next;
        shadow_wait(s, &s->tiara);
        shadow_delete(s);
    }
}
