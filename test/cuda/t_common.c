/*
 * Devices, device memory and what the driver maps piece by piece, for tests.
 */
#include "test/cuda/t_common.h"
#include <cudaTypedefs.h>
#include <dirent.h>

int gpu_begin(struct tiara_expect *e, enum tiara_log_level level)
{
    struct tiara_gpu_host host = {.log_level = level, .world_rank = e->rank};
    char why[128] = "";
    int count = 0;

    if (tiara_gpu.open(&host, why, sizeof why) != TIARA_OK) {
        fprintf(stderr, "rank %d: no CUDA: %s\n", e->rank, why);
        e->failures++;
        return -1;
    }
    if (!EXPECT_CUDA(e, cudaGetDeviceCount(&count)) ||
        !EXPECT_CUDA(e, cudaSetDevice(e->rank % count)))
        return -1;
    return e->rank % count;
}

bool gpu_is_standin(void)
{
    struct cudaDeviceProp prop;

    return cudaGetDeviceProperties(&prop, 0) == cudaSuccess && strstr(prop.name, "Stand-in");
}

static int rank_is_real(int rank, const struct tiara_xport_group *group, void *arg)
{
    (void)rank;
    (void)group;
    (void)arg;
    return gpu_is_standin() ? 0 : 1;
}

bool gpu_have_standin(void)
{
    static int real = -1;

    if (real < 0)
        real = tiara_procs_run(1, rank_is_real, NULL);
    return real == 0;
}

bool gpu_barrier(struct tiara_expect *e, const struct tiara_xport_group *group)
{
    return EXPECT(e, tiara_xport_agree(group, TIARA_OK) == TIARA_OK);
}

int gpu_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

size_t gpu_free_bytes(void)
{
    size_t available = 0, total;

    return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}

bool gpu_fill(struct tiara_expect *e, void *at, int key, size_t n)
{
    uint64_t *words = malloc(n * sizeof *words);
    bool good;

    for (size_t i = 0; i < n; i++)
        words[i] = tiara_test_bits(key, i);
    good = EXPECT_CUDA(e, cudaMemcpy(at, words, n * sizeof *words, cudaMemcpyHostToDevice));
    free(words);
    return good;
}

bool gpu_is_filled(const void *at, int key, size_t first, size_t n)
{
    uint64_t *words = malloc(n * sizeof *words);
    bool good = cudaMemcpy(words, at, n * sizeof *words, cudaMemcpyDeviceToHost) == cudaSuccess;

    for (size_t i = 0; i < n && good; i++)
        good = words[i] == tiara_test_bits(key, first + i);
    free(words);
    return good;
}

/* ---- memory that is mapped piece by piece ---- */

/* A function of the driver, for one call. */
static void *driver_function(const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *at = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &at, version, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess || at == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return at;
}

#define GPU_DRIVER(name, version) ((PFN_##name##_v##version)driver_function(#name, version))

static CUmemAllocationProp vmm_prop(int device, bool can_share)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    if (can_share)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

void gpu_vmm_map(
    struct tiara_expect *e, const struct gpu_vmm *vmm, int i, int device, bool can_share)
{
    CUmemAllocationProp prop = vmm_prop(device, can_share);
    CUmemAccessDesc access = {
        .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = vmm->base + (size_t)i * vmm->piece_bytes;
    CUmemGenericAllocationHandle handle = 0;

    EXPECT(e, GPU_DRIVER(cuMemCreate, 10020)(&handle, vmm->piece_bytes, &prop, 0) == CUDA_SUCCESS);
    EXPECT(e, GPU_DRIVER(cuMemMap, 10020)(at, vmm->piece_bytes, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(e, GPU_DRIVER(cuMemSetAccess, 10020)(at, vmm->piece_bytes, &access, 1) == CUDA_SUCCESS);
    EXPECT(e, GPU_DRIVER(cuMemRelease, 10020)(handle) == CUDA_SUCCESS);
}

void gpu_vmm_unmap(struct tiara_expect *e, const struct gpu_vmm *vmm, int i)
{
    CUdeviceptr at = vmm->base + (size_t)i * vmm->piece_bytes;

    EXPECT(e, GPU_DRIVER(cuMemUnmap, 10020)(at, vmm->piece_bytes) == CUDA_SUCCESS);
}

void gpu_vmm_make(
    struct tiara_expect *e, struct gpu_vmm *vmm, int device, int pieces, bool can_share)
{
    CUmemAllocationProp prop = vmm_prop(device, can_share);

    memset(vmm, 0, sizeof *vmm);
    vmm->pieces = pieces;
    EXPECT(e, GPU_DRIVER(cuMemGetAllocationGranularity, 10020)(
                  &vmm->piece_bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS);
    EXPECT(e, GPU_DRIVER(cuMemAddressReserve, 10020)(
                  &vmm->base, GPU_PIECES * vmm->piece_bytes, 0, 0, 0) == CUDA_SUCCESS);
    for (int i = 0; i < pieces; i++)
        gpu_vmm_map(e, vmm, i, device, can_share);
}

void gpu_vmm_free(struct tiara_expect *e, struct gpu_vmm *vmm)
{
    for (int i = 0; i < vmm->pieces; i++)
        gpu_vmm_unmap(e, vmm, i);
    EXPECT(e, GPU_DRIVER(cuMemAddressFree, 10020)(vmm->base, GPU_PIECES * vmm->piece_bytes) ==
                  CUDA_SUCCESS);
}
