/*
 * The CUDA runtime, opened at run time: bench_device.h has the table.
 *
 * All copies go through one stream of this program's own and are waited for there. cudaMemcpy would
 * do from pinned memory, but from pageable memory it may return before the bytes are in place, and
 * the next call reads them from another stream.
 */
#include "bench_device.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_MPI_EXT_H
#include <mpi-ext.h>
#endif

/* Of the CUDA runtime's interface. */
enum {
    COPY_TO_DEVICE = 1,
    COPY_TO_HOST = 2,
    STREAM_NON_BLOCKING = 1,
    ATTRIBUTE_PCI_BUS = 33,
    ATTRIBUTE_PCI_DEVICE = 34,
    ATTRIBUTE_L2_CACHE_BYTES = 38,
    ATTRIBUTE_PCI_DOMAIN = 50
};
static const size_t USUAL_CACHE_BYTES = (size_t)64 << 20;

#define RUNTIME "libcudart.so"
static const char *const runtime_names[] = {RUNTIME ".13", RUNTIME ".12", RUNTIME};

bool bench_all_ranks(bool mine, MPI_Comm comm, struct bench_why *why)
{
    int rank, nranks, lowest;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    int bad = mine ? nranks : rank;
    PMPI_Allreduce(&bad, &lowest, 1, MPI_INT, MPI_MIN, comm);
    if (lowest == nranks)
        return true;
    PMPI_Bcast(why->text, sizeof why->text, MPI_CHAR, lowest, comm);
    return false;
}

/* Keeps what failed. */
static bool is_ok(struct bench_device *device, int code, const char *call)
{
    return code == 0 ||
           bench_complain(&device->failure, "%s: %s", call, device->cuda.GetErrorString(code));
}

/* ---- the runtime ---- */

struct function_row {
    const char *name;
    size_t offset; /* in struct bench_cuda */
};
#define ROW(name)                                                                                  \
    {                                                                                              \
        "cuda" #name, offsetof(struct bench_cuda, name)                                            \
    }
static const struct function_row functions[] = {ROW(GetErrorString), ROW(GetDeviceCount),
    ROW(SetDevice), ROW(RuntimeGetVersion), ROW(DeviceGetAttribute), ROW(MemGetInfo), ROW(Malloc),
    ROW(Free), ROW(MallocHost), ROW(FreeHost), ROW(MemsetAsync), ROW(MemcpyAsync),
    ROW(StreamCreateWithFlags), ROW(StreamSynchronize), ROW(StreamDestroy)};

/* The library is never closed: the runtime has threads, and does not like to be taken away. */
static bool functions_find(struct bench_cuda *cuda, struct bench_why *why)
{
    void *handle = NULL;
    for (size_t i = 0; handle == NULL && i < sizeof runtime_names / sizeof runtime_names[0]; i++) {
        handle = dlopen(runtime_names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL)
            bench_complain(why, "--device 'cuda': no CUDA runtime can be used: %.300s", dlerror());
    }
    if (handle == NULL)
        return false;
    why->text[0] = '\0';
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *at = dlsym(handle, functions[i].name);
        if (at == NULL)
            return bench_complain(
                why, "--device 'cuda': the CUDA runtime has no %s", functions[i].name);
        memcpy((char *)cuda + functions[i].offset, &at, sizeof at);
    }
    return true;
}

/* ---- this rank's GPU ---- */

static int attribute(const struct bench_device *device, int which, int ordinal)
{
    int value = 0;
    return device->cuda.DeviceGetAttribute(&value, which, ordinal) == 0 ? value : 0;
}

/* Which GPU of the machine it is: ordinals mean different ones to processes with different
 * CUDA_VISIBLE_DEVICES. */
static int64_t place_of(const struct bench_device *device, int ordinal)
{
    return (int64_t)attribute(device, ATTRIBUTE_PCI_DOMAIN, ordinal) << 32 |
           (int64_t)attribute(device, ATTRIBUTE_PCI_BUS, ordinal) << 16 |
           attribute(device, ATTRIBUTE_PCI_DEVICE, ordinal);
}

/* Takes the GPU of place @rank on the node, and makes the stream. Local. */
static bool device_take(struct bench_device *device, int rank, int64_t *place_out)
{
    int count = 0;
    if (!is_ok(device, device->cuda.GetDeviceCount(&count), "cudaGetDeviceCount"))
        return false;
    if (count == 0)
        return bench_complain(&device->failure, "there is no GPU");
    device->ordinal = rank % count;
    device->mpi_direct = bench_device_mpi_is_direct();
    *place_out = place_of(device, device->ordinal);
    return is_ok(device, device->cuda.SetDevice(device->ordinal), "cudaSetDevice") &&
           is_ok(
               device, device->cuda.RuntimeGetVersion(&device->version), "cudaRuntimeGetVersion") &&
           is_ok(device, device->cuda.StreamCreateWithFlags(&device->stream, STREAM_NON_BLOCKING),
               "cudaStreamCreateWithFlags");
}

/* Who shares which GPU with whom. Collective over the node. False: no memory. */
static bool sharers_count(struct bench_device *device, int64_t place, MPI_Comm node)
{
    int64_t *places = calloc((size_t)device->node_ranks, sizeof *places);
    int have = places != NULL, all;
    PMPI_Allreduce(&have, &all, 1, MPI_INT, MPI_LAND, node);
    if (all)
        PMPI_Allgather(&place, 1, MPI_INT64_T, places, 1, MPI_INT64_T, node);
    for (int i = 0; all && i < device->node_ranks; i++) {
        bool is_first = true;
        for (int j = 0; j < i; j++)
            is_first = is_first && places[j] != places[i];
        device->node_gpus += is_first;
        device->sharers += places[i] == place;
    }
    free(places);
    return all != 0;
}

bool bench_device_open(struct bench_device *device, MPI_Comm comm, struct bench_why *why)
{
    *device = (struct bench_device){0};
    MPI_Comm node;
    int rank, mine[2], most[2];
    int64_t place = 0;
    if (!bench_all_ranks(functions_find(&device->cuda, why), comm, why))
        return false;
    PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    PMPI_Comm_rank(node, &rank);
    PMPI_Comm_size(node, &device->node_ranks);
    bool good = device_take(device, rank, &place);
    if (!good)
        bench_complain(why, "--device 'cuda': %s", device->failure.text);
    good = bench_all_ranks(good, comm, why);
    if (good)
        good = bench_all_ranks(
            sharers_count(device, place, node) || bench_complain(why, "--device 'cuda': no memory"),
            comm, why);
    PMPI_Comm_free(&node);
    mine[0] = device->sharers;
    mine[1] = !device->mpi_direct;
    PMPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, comm);
    device->sharers = most[0];
    device->mpi_direct = !most[1];
    return good;
}

void bench_device_close(struct bench_device *device)
{
    if (device->stream != NULL)
        device->cuda.StreamDestroy(device->stream);
    *device = (struct bench_device){0};
}

/* ---- memory and copies ---- */

bool bench_device_wait(struct bench_device *device)
{
    return is_ok(device, device->cuda.StreamSynchronize(device->stream), "cudaStreamSynchronize");
}

static bool copy(
    struct bench_device *device, void *dst, const void *src, size_t bytes, int direction)
{
    return is_ok(device, device->cuda.MemcpyAsync(dst, src, bytes, direction, device->stream),
               "cudaMemcpyAsync") &&
           bench_device_wait(device);
}

bool bench_device_fetch(struct bench_device *device, void *near, const void *far, size_t bytes)
{
    return copy(device, near, far, bytes, COPY_TO_HOST);
}

bool bench_device_store(struct bench_device *device, void *far, const void *near, size_t bytes)
{
    return copy(device, far, near, bytes, COPY_TO_DEVICE);
}

void *bench_device_alloc(struct bench_device *device, size_t bytes)
{
    void *far = NULL;
    if (!is_ok(device, device->cuda.Malloc(&far, bytes), "cudaMalloc"))
        return NULL;
    if (is_ok(device, device->cuda.MemsetAsync(far, 0, bytes, device->stream), "cudaMemsetAsync") &&
        bench_device_wait(device))
        return far;
    device->cuda.Free(far);
    return NULL;
}

void *bench_device_alloc_host(struct bench_device *device, size_t bytes)
{
    void *near = NULL;
    return is_ok(device, device->cuda.MallocHost(&near, bytes), "cudaMallocHost") ? near : NULL;
}

void bench_device_free(struct bench_device *device, void *far)
{
    if (far != NULL)
        device->cuda.Free(far);
}

void bench_device_free_host(struct bench_device *device, void *near)
{
    if (near != NULL)
        device->cuda.FreeHost(near);
}

size_t bench_device_cache_bytes(const struct bench_device *device)
{
    int bytes = attribute(device, ATTRIBUTE_L2_CACHE_BYTES, device->ordinal);
    return bytes > 0 ? (size_t)bytes : USUAL_CACHE_BYTES;
}

size_t bench_device_available(struct bench_device *device)
{
    size_t available = 0, total = 0;
    if (!is_ok(device, device->cuda.MemGetInfo(&available, &total), "cudaMemGetInfo"))
        return 0;
    return available / (size_t)device->sharers;
}

/* ---- the MPI below ---- */

#ifdef HAVE_MPIX_QUERY_CUDA
static bool mpi_says_direct(void)
{
    return MPIX_Query_cuda_support() == 1;
}
#else
static bool mpi_says_direct(void)
{
    return false;
}
#endif

bool bench_device_mpi_is_direct(void)
{
    const char *choice = getenv("TIARA_CUDA_AWARE");
    if (choice != NULL && strcmp(choice, "on") == 0)
        return true;
    return (choice == NULL || strcmp(choice, "off") != 0) && mpi_says_direct();
}
