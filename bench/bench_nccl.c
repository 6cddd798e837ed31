/*
 * NCCL, opened at run time: the third side that tiara-bench can measure.
 *
 * The prototypes and numbers are those of NCCL's interface, which has been stable since 2.0; a type
 * or operator that an older NCCL does not have yet is refused by it, in its own words.
 */
#include "bench_device.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"
enum {
    ID_BYTES = 128
};
struct unique_id {
    char bytes[ID_BYTES];
};

struct bench_nccl {
    /* 0 is success; a communicator is a pointer. */
    const char *(*GetErrorString)(int code);
    const char *(*GetLastError)(void *comm); /* since 2.13; may be NULL */
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(struct unique_id *id);
    int (*CommInitRank)(void **comm, int nranks, struct unique_id id, int rank);
    int (*CommDestroy)(void *comm);
    int (*AllReduce)(
        const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream);
    struct bench_device *device; /* borrowed */
    void *comm;
    int type, op;
};

static int type_number(const struct bench_type *type)
{
    switch (type->kind) {
    case BENCH_INT:
        return type->bytes == 1 ? 0 : type->bytes == 4 ? 2 : type->bytes == 8 ? 4 : -1;
    case BENCH_UINT:
        return type->bytes == 1 ? 1 : type->bytes == 4 ? 3 : type->bytes == 8 ? 5 : -1;
    case BENCH_FLOAT:
        return type->bytes == 4 ? 7 : 8;
    case BENCH_FLOAT16:
        return 6;
    case BENCH_BFLOAT16:
        return 9;
    case BENCH_E4M3:
        return 10;
    default: /* BENCH_E5M2 */
        return 11;
    }
}

static int op_number(const struct bench_op *op)
{
    switch (op->id) {
    case BENCH_SUM:
        return 0;
    case BENCH_PROD:
        return 1;
    case BENCH_MAX:
        return 2;
    case BENCH_MIN:
        return 3;
    case BENCH_AVG:
        return 4;
    default:
        return -1;
    }
}

bool bench_nccl_knows(
    const struct bench_type *type, const struct bench_op *op, struct bench_why *why)
{
    if (type_number(type) < 0)
        return bench_complain(
            why, "--type '%s': NCCL has no such type, so it cannot be measured", type->name);
    if (op_number(op) < 0)
        return bench_complain(
            why, "--op '%s': NCCL has no such operator, so it cannot be measured", op->name);
    return true;
}

struct function_row {
    const char *name;
    size_t offset; /* in struct bench_nccl */
    bool is_optional;
};
#define ROW(name, is_optional)                                                                     \
    {                                                                                              \
        "nccl" #name, offsetof(struct bench_nccl, name), is_optional                               \
    }
static const struct function_row functions[] = {ROW(GetErrorString, false), ROW(GetLastError, true),
    ROW(GetVersion, false), ROW(GetUniqueId, false), ROW(CommInitRank, false),
    ROW(CommDestroy, false), ROW(AllReduce, false)};

/* Local. Like the CUDA runtime, the library stays where it is. */
static bool functions_find(struct bench_nccl *nccl, struct bench_why *why)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return bench_complain(why, "NCCL cannot be measured: %.300s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *at = dlsym(handle, functions[i].name);
        if (at == NULL && !functions[i].is_optional)
            return bench_complain(
                why, "NCCL cannot be measured: this %s has no %s", LIBRARY, functions[i].name);
        memcpy((char *)nccl + functions[i].offset, &at, sizeof at);
    }
    return true;
}

/* NCCL's own words, with what it adds to them. */
static bool complain(
    const struct bench_nccl *nccl, int code, const char *call, struct bench_why *why)
{
    const char *more = nccl->GetLastError != NULL ? nccl->GetLastError(NULL) : NULL;
    const char *gap = more != NULL && more[0] != '\0' ? ": " : "";
    return bench_complain(why, "NCCL cannot be measured: %s: %.120s%s%.280s", call,
        nccl->GetErrorString(code), gap, gap[0] != '\0' ? more : "");
}

/* Collective; what each rank says for itself. */
static bool communicator_make(struct bench_nccl *nccl, MPI_Comm comm, struct bench_why *why)
{
    struct unique_id id = {""};
    int rank, nranks, code = 0;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    if (rank == 0)
        code = nccl->GetUniqueId(&id);
    if (code != 0)
        complain(nccl, code, "ncclGetUniqueId", why);
    if (!bench_all_ranks(code == 0, comm, why))
        return false;
    PMPI_Bcast(id.bytes, ID_BYTES, MPI_CHAR, 0, comm);
    code = nccl->CommInitRank(&nccl->comm, nranks, id, rank);
    if (code != 0) {
        nccl->comm = NULL;
        complain(nccl, code, "ncclCommInitRank", why);
    }
    return bench_all_ranks(code == 0, comm, why);
}

struct bench_nccl *bench_nccl_open(struct bench_device *device, const struct bench_options *opts,
    MPI_Comm comm, struct bench_why *why)
{
    struct bench_nccl *nccl = calloc(1, sizeof *nccl);
    bool good =
        nccl != NULL ? functions_find(nccl, why) : bench_complain(why, "no memory for NCCL");
    if (!bench_all_ranks(good, comm, why) || nccl == NULL)
        goto out_free;
    nccl->device = device;
    nccl->type = type_number(opts->type);
    nccl->op = op_number(opts->op);
    if (communicator_make(nccl, comm, why))
        return nccl;
out_free:
    bench_nccl_close(nccl);
    return NULL;
}

void bench_nccl_close(struct bench_nccl *nccl)
{
    if (nccl != NULL && nccl->comm != NULL)
        nccl->CommDestroy(nccl->comm);
    free(nccl);
}

bool bench_nccl_allreduce(struct bench_nccl *nccl, const void *send, void *recv, size_t count)
{
    int code =
        nccl->AllReduce(send, recv, count, nccl->type, nccl->op, nccl->comm, nccl->device->stream);
    return code == 0 || complain(nccl, code, "ncclAllReduce", &nccl->device->failure);
}

int bench_nccl_version(const struct bench_nccl *nccl)
{
    int version;
    return nccl->GetVersion(&version) == 0 ? version : 0;
}
