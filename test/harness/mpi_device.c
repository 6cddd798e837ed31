/*
 * See mpi_device.h. Structures and numbers of CUDA that are needed here stand here, so that the
 * tests are built without its headers.
 */
#include "mpi_device.h"
#include "mpi_run.h"
#include "tiara.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what TIARA_TEST_MEMORY says ---- */

static const struct {
    const char *name;
    enum mt_place even[2], odd[2]; /* of the input and of the result, on even and on odd ranks */
} memories[] = {
#define EVERYWHERE(name, place)                                                                    \
    {                                                                                              \
        name, {place, place},                                                                      \
        {                                                                                          \
            place, place                                                                           \
        }                                                                                          \
    }
    EVERYWHERE("host", MT_PLACE_HOST),
    EVERYWHERE("device", MT_PLACE_DEVICE),
    EVERYWHERE("managed", MT_PLACE_MANAGED),
    EVERYWHERE("pinned", MT_PLACE_PINNED),
    EVERYWHERE("pool", MT_PLACE_POOL),
    EVERYWHERE("vmm", MT_PLACE_VMM),
    EVERYWHERE("sub", MT_PLACE_SUB),
    {"mixed", {MT_PLACE_DEVICE, MT_PLACE_DEVICE}, {MT_PLACE_HOST, MT_PLACE_HOST}},
    {"mixed-inout", {MT_PLACE_HOST, MT_PLACE_DEVICE}, {MT_PLACE_DEVICE, MT_PLACE_HOST}},
#undef EVERYWHERE
};

enum mt_place mt_place_of(bool is_result)
{
    const char *wanted = getenv("TIARA_TEST_MEMORY");
    for (unsigned k = 0; k < sizeof memories / sizeof memories[0]; k++) {
        if (strcmp(memories[k].name, wanted ? wanted : "host") == 0)
            return mt_rank % 2 ? memories[k].odd[is_result] : memories[k].even[is_result];
    }
    fprintf(stderr, "TIARA_TEST_MEMORY is %s\n", wanted);
    exit(EXIT_FAILURE);
}

/* ---- the runtime ---- */

static struct mt_cuda functions;
static bool is_open;
static int device;

const struct mt_cuda *mt_cuda(void)
{
    return is_open ? &functions : NULL;
}

void mt_cuda_must(int code, const char *call)
{
    if (code == 0)
        return;
    fprintf(stderr, "rank %d: cuda%s: error %d\n", mt_rank, call, code);
    abort();
}

static const char *load_functions(void)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so"};
    void *handle = NULL;
    for (unsigned k = 0; k < 2 && !handle; k++)
        handle = dlopen(names[k], RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return "there is no CUDA runtime";
#define X(name, ...)                                                                               \
    *(void **)&functions.name = dlsym(handle, "cuda" #name);                                       \
    if (!functions.name)                                                                           \
        return "the CUDA runtime has no cuda" #name;
    MT_CUDA_FUNCTIONS(X)
#undef X
    return NULL;
}

/* The rank on its node, as the launcher says, or in the world. */
static int local_rank(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (!text)
        text = getenv("MPI_LOCALRANKID");
    return text ? atoi(text) : mt_rank;
}

const char *mt_device_open(void)
{
    int count = 0;
    if (mt_place_of(false) == MT_PLACE_HOST && mt_place_of(true) == MT_PLACE_HOST)
        return NULL;
    const char *why = load_functions();
    if (why)
        return why;
    if (functions.GetDeviceCount(&count) != 0 || count == 0)
        return "there is no CUDA device";
    device = local_rank() % count;
    if (functions.SetDevice(device) != 0)
        return "the CUDA device cannot be used";
    is_open = true;
    return NULL;
}

void mt_device_copy(void *to, const void *from, size_t bytes)
{
    MT_CUDA(SetDevice(device));
    if (bytes > 0)
        MT_CUDA(Memcpy(to, from, bytes, MT_CUDA_COPY_ANY));
}

/* ---- memory that is mapped by the driver's functions ---- */

struct location {
    int type, id;
};
struct allocation {
    int type, handle_types;
    struct location location;
    void *unused;
    unsigned char flags[8];
};
struct access {
    struct location location;
    int flags;
};
enum {
    PINNED = 1, /* CU_MEM_ALLOCATION_TYPE_PINNED */
    BY_DESCRIPTOR = 1, /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
    ON_DEVICE = 1, /* CU_MEM_LOCATION_TYPE_DEVICE */
    READ_WRITE = 3, /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
    DRIVER_VERSION = 10020
};

static void *driver_function(const char *name)
{
    void *at = NULL;
    int found = 0;
    MT_CUDA(GetDriverEntryPointByVersion(name, &at, DRIVER_VERSION, 0, &found));
    mt_cuda_must(at == NULL, name);
    return at;
}

/* Calls a function of the driver, which must succeed. */
#define DRIVER(name, types, ...)                                                                   \
    mt_cuda_must(((int(*) types)driver_function(#name))(__VA_ARGS__), #name)

static size_t vmm_bytes(size_t bytes)
{
    struct allocation prop = {PINNED, BY_DESCRIPTOR, {ON_DEVICE, device}, NULL, {0}};
    size_t unit = 0;
    DRIVER(
        cuMemGetAllocationGranularity, (size_t *, const struct allocation *, int), &unit, &prop, 0);
    return (bytes + unit - 1) / unit * unit;
}

static void *vmm_new(size_t bytes)
{
    struct allocation prop = {PINNED, BY_DESCRIPTOR, {ON_DEVICE, device}, NULL, {0}};
    struct access access = {{ON_DEVICE, device}, READ_WRITE};
    unsigned long long at = 0, handle = 0;
    size_t all = vmm_bytes(bytes);
    DRIVER(cuMemAddressReserve,
        (unsigned long long *, size_t, size_t, unsigned long long, unsigned long long), &at, all, 0,
        0, 0);
    DRIVER(cuMemCreate,
        (unsigned long long *, size_t, const struct allocation *, unsigned long long), &handle, all,
        &prop, 0);
    DRIVER(cuMemMap, (unsigned long long, size_t, size_t, unsigned long long, unsigned long long),
        at, all, 0, handle, 0);
    DRIVER(cuMemSetAccess, (unsigned long long, size_t, const struct access *, size_t), at, all,
        &access, 1);
    DRIVER(cuMemRelease, (unsigned long long), handle);
    return (void *)(uintptr_t)at;
}

static void vmm_free(void *at, size_t bytes)
{
    size_t all = vmm_bytes(bytes);
    DRIVER(cuMemUnmap, (unsigned long long, size_t), (unsigned long long)(uintptr_t)at, all);
    DRIVER(cuMemAddressFree, (unsigned long long, size_t), (unsigned long long)(uintptr_t)at, all);
}

/* ---- pieces of one large allocation ---- */

enum {
    SLAB = 32 << 20,
    FIRST = 4096 + 64 /* no piece is where the allocation starts */
};

static pthread_mutex_t slab_lock = PTHREAD_MUTEX_INITIALIZER;
static char *slab;
static size_t slab_next = FIRST;
static int slab_pieces;

/* NULL when it is full. */
static void *slab_take(size_t bytes)
{
    void *at = NULL;
    pthread_mutex_lock(&slab_lock);
    if (!slab)
        MT_CUDA(Malloc((void **)&slab, SLAB));
    if (slab_next + bytes <= SLAB) {
        at = slab + slab_next;
        slab_next += (bytes + 63) / 64 * 64;
        slab_pieces++;
    }
    pthread_mutex_unlock(&slab_lock);
    return at;
}

/* False when @at is not of the slab. */
static bool slab_give(const void *at)
{
    pthread_mutex_lock(&slab_lock);
    bool is_piece = slab && (const char *)at >= slab && (const char *)at < slab + SLAB;
    if (is_piece && --slab_pieces == 0)
        slab_next = slab_next > SLAB / 2 ? FIRST : slab_next;
    pthread_mutex_unlock(&slab_lock);
    return is_piece;
}

/* ---- memory ---- */

void *mt_device_new(enum mt_place place, size_t bytes)
{
    void *at = NULL;
    MT_CUDA(SetDevice(device));
    if (place == MT_PLACE_VMM)
        return vmm_new(bytes);
    if (place == MT_PLACE_SUB && (at = slab_take(bytes)) != NULL)
        return at;
    if (place == MT_PLACE_MANAGED) {
        MT_CUDA(MallocManaged(&at, bytes, 1));
    } else if (place == MT_PLACE_PINNED) {
        MT_CUDA(HostAlloc(&at, bytes, 0));
    } else if (place == MT_PLACE_POOL) {
        MT_CUDA(MallocAsync(&at, bytes, NULL));
        MT_CUDA(StreamSynchronize(NULL));
    } else {
        MT_CUDA(Malloc(&at, bytes));
    }
    return at;
}

void mt_device_free(enum mt_place place, void *at, size_t bytes)
{
    MT_CUDA(SetDevice(device));
    if (place == MT_PLACE_VMM) {
        vmm_free(at, bytes);
    } else if (place == MT_PLACE_PINNED) {
        MT_CUDA(FreeHost(at));
    } else if (place == MT_PLACE_POOL) {
        MT_CUDA(FreeAsync(at, NULL));
        MT_CUDA(StreamSynchronize(NULL));
    } else if (!slab_give(at)) {
        MT_CUDA(Free(at));
    }
}

/* ---- which way calls went ---- */

struct mt_paths mt_paths(MPI_Comm comm)
{
    static const char label[] = "calls on GPUs, staged through host memory";
    struct mt_paths paths = {0, 0};
    char text[4000] = "";
    TIARA_Report(TIARA_REPORT_STATE, comm, text, sizeof text, NULL);
    const char *line = strstr(text, label);
    mt_check(line && sscanf(line + strlen(label), " %llu , %llu", &paths.gpus, &paths.staged) == 2,
        "the report does not say which way calls went: %s", text);
    return paths;
}
