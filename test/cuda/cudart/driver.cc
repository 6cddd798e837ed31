/*
 * The stand-in's driver functions, which programs get from cudaGetDriverEntryPoint: what an address
 * is, and virtual memory management (reserve addresses, create memory, map it, give access, pass it
 * on as a file descriptor).
 */
#include "test/cuda/cudart/standin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace standin
{

#define GRANULARITY ((size_t)2 << 20)

namespace
{

/* Memory without an address. */
struct Allocation {
    std::shared_ptr<File> file;
    unsigned long long handle_types;
    int references; /* of handles; mappings hold the file */
    int mapped; /* times */
};

struct Vmm {
    std::map<CUmemGenericAllocationHandle, Allocation> allocations;
    std::map<char *, size_t> reserved;
};

Vmm &vmm()
{
    static Vmm *const v = new Vmm;

    return *v;
}

Allocation *allocation_find(CUmemGenericAllocationHandle handle)
{
    auto at = vmm().allocations.find(handle);

    return at == vmm().allocations.end() || at->second.references == 0 ? nullptr : &at->second;
}

void allocation_tidy(CUmemGenericAllocationHandle handle)
{
    Allocation &allocation = vmm().allocations[handle];

    if (allocation.references == 0 && allocation.mapped == 0)
        vmm().allocations.erase(handle);
}

CUmemGenericAllocationHandle allocation_add(Allocation allocation)
{
    CUmemGenericAllocationHandle handle = UINT64_C(0x7b00000000000000) + number_next();

    vmm().allocations[handle] = std::move(allocation);
    return handle;
}

bool is_reserved(const char *at, size_t bytes)
{
    auto next = vmm().reserved.upper_bound((char *)at);

    if (next == vmm().reserved.begin())
        return false;
    --next;
    return at + bytes <= next->first + next->second;
}

/* ---- what an address is ---- */

CUresult mem_get_address_range(CUdeviceptr *base_out, size_t *bytes_out, CUdeviceptr at)
{
    return driver_api("cuMemGetAddressRange", [&](Lock &) {
        Range *range = range_find((void *)at);

        if (!range)
            return cudaErrorInvalidValue;
        if (base_out)
            *base_out = (CUdeviceptr)range->base;
        if (bytes_out)
            *bytes_out = range->bytes;
        return cudaSuccess;
    });
}

unsigned long long range_handle_types(const Range &range)
{
    auto at = vmm().allocations.find(range.handle);

    return range.kind == MAPPED ? at->second.handle_types : 0;
}

CUresult pointer_get_attribute(void *out, CUpointer_attribute attribute, CUdeviceptr at)
{
    return driver_api("cuPointerGetAttribute", [&](Lock &) {
        Range *range = range_find((void *)at);

        if (!range)
            return cudaErrorInvalidValue;
        switch (attribute) {
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            *(unsigned long long *)out = range->id;
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)out = range->is_on_device() || range->kind == MANAGED
                                   ? CU_MEMORYTYPE_DEVICE
                                   : CU_MEMORYTYPE_HOST;
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *(unsigned *)out = range->kind == MANAGED;
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)out = range->device;
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            *(int *)out = range->kind == DEVICE;
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            *(unsigned long long *)out = range_handle_types(*range);
            return cudaSuccess;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            *(void **)out = range->kind == POOL ? (void *)&vmm() : nullptr;
            return cudaSuccess;
        default:
            return misuse(cudaErrorInvalidValue, "attribute %d is not in the stand-in", attribute);
        }
    });
}

/* ---- virtual memory management ---- */

CUresult mem_get_granularity(
    size_t *bytes_out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags)
{
    return driver_api("cuMemGetAllocationGranularity", [&](Lock &) {
        *bytes_out = GRANULARITY;
        return device_check(prop->location.id);
    });
}

CUresult mem_create(CUmemGenericAllocationHandle *handle_out, size_t bytes,
    const CUmemAllocationProp *prop, unsigned long long flags)
{
    return driver_api("cuMemCreate", [&](Lock &) {
        cudaError_t code = device_check(prop->location.id);
        std::shared_ptr<File> file;

        if (code != cudaSuccess)
            return code;
        if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 ||
            prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
            prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return misuse(cudaErrorInvalidValue, "%zu bytes, or properties", bytes);
        if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            return cudaErrorNotSupported;
        file = std::make_shared<File>(device_physical(prop->location.id), bytes);
        if (file->fd < 0)
            return cudaErrorMemoryAllocation;
        *handle_out = allocation_add({file, prop->requestedHandleTypes, 1, 0});
        return cudaSuccess;
    });
}

CUresult mem_release(CUmemGenericAllocationHandle handle)
{
    return driver_api("cuMemRelease", [&](Lock &) {
        Allocation *allocation = allocation_find(handle);

        if (!allocation)
            return misuse(cudaErrorInvalidValue, "no allocation");
        allocation->references--;
        allocation_tidy(handle);
        return cudaSuccess;
    });
}

CUresult mem_retain(CUmemGenericAllocationHandle *handle_out, void *at)
{
    return driver_api("cuMemRetainAllocationHandle", [&](Lock &) {
        Range *range = range_find(at);

        if (!range || range->kind != MAPPED)
            return cudaErrorInvalidValue;
        vmm().allocations[range->handle].references++;
        *handle_out = range->handle;
        return cudaSuccess;
    });
}

CUresult mem_address_reserve(
    CUdeviceptr *at_out, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags)
{
    return driver_api("cuMemAddressReserve", [&](Lock &) {
        size_t align = alignment ? alignment : GRANULARITY, skip;
        char *hole;

        if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 || (align & (align - 1)) != 0)
            return misuse(cudaErrorInvalidValue, "%zu bytes, alignment %zu", bytes, alignment);
        if (align < GRANULARITY)
            align = GRANULARITY;
        hole = (char *)mmap(
            nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (hole == MAP_FAILED)
            return cudaErrorMemoryAllocation;
        skip = (align - (uintptr_t)hole % align) % align;
        if (skip > 0)
            munmap(hole, skip);
        munmap(hole + skip + bytes, align - skip);
        vmm().reserved[hole + skip] = bytes;
        *at_out = (CUdeviceptr)(hole + skip);
        return cudaSuccess;
    });
}

CUresult mem_address_free(CUdeviceptr address, size_t bytes)
{
    return driver_api("cuMemAddressFree", [&](Lock &) {
        auto at = vmm().reserved.find((char *)address);
        auto range = state().ranges.lower_bound((char *)address);

        if (at == vmm().reserved.end() || at->second != bytes)
            return misuse(cudaErrorInvalidValue, "%p is not reserved so", (void *)address);
        if (range != state().ranges.end() && range->first < at->first + bytes)
            return misuse(cudaErrorInvalidValue, "%p is still mapped", (void *)range->first);
        munmap(at->first, bytes);
        vmm().reserved.erase(at);
        return cudaSuccess;
    });
}

CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return driver_api("cuMemMap", [&](Lock &) {
        Allocation *allocation = allocation_find(handle);
        char *at = (char *)address;
        auto next = state().ranges.lower_bound(at);

        if (!allocation || offset != 0 || flags != 0 || bytes != allocation->file->bytes ||
            !is_reserved(at, bytes) || range_find(at) ||
            (next != state().ranges.end() && next->first < at + bytes))
            return misuse(cudaErrorInvalidValue, "%zu bytes at %p", bytes, (void *)at);
        int ordinal = device_ordinal(allocation->file->physical);
        allocation->mapped++;
        range_add({MAPPED, at, bytes, ordinal < 0 ? device_current() : ordinal, 0, allocation->file,
            handle});
        return cudaSuccess;
    });
}

CUresult mem_unmap(CUdeviceptr address, size_t bytes)
{
    return driver_api("cuMemUnmap", [&](Lock &lock) {
        Range *found = range_find((void *)address), range;

        if (!found || found->kind != MAPPED || found->base != (char *)address ||
            found->bytes != bytes)
            return misuse(cudaErrorInvalidValue, "%p is not mapped so", (void *)address);
        range = *found;
        range_remove(range.base);
        streams_wait(lock, -1);
        mmap(range.base, bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0);
        vmm().allocations[range.handle].mapped--;
        allocation_tidy(range.handle);
        return cudaSuccess;
    });
}

/* Gives one device access to one mapping. */
cudaError_t access_give(const Range &range, const CUmemAccessDesc &access)
{
    int protection = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                     : access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                        : PROT_NONE;
    cudaError_t code = device_check(access.location.id);
    int device;

    if (code != cudaSuccess)
        return code;
    device = device_physical(access.location.id);
    if (!peers_are_linked(device, range.file->physical))
        return cudaErrorInvalidDevice;
    return file_map(*range.file, 0, range.bytes, peers_are_broken(device, range.file->physical),
               range.base, protection)
               ? cudaSuccess
               : cudaErrorMemoryAllocation;
}

CUresult mem_set_access(
    CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses, size_t count)
{
    return driver_api("cuMemSetAccess", [&](Lock &) {
        char *at = (char *)address, *end = at + bytes;
        cudaError_t code = cudaSuccess;

        for (; at < end && code == cudaSuccess; at += range_find(at)->bytes) {
            Range *range = range_find(at);

            if (!range || range->kind != MAPPED || range->base != at || at + range->bytes > end)
                return misuse(cudaErrorInvalidValue, "%p is not mapped so", (void *)at);
            for (size_t i = 0; i < count && code == cudaSuccess; i++)
                code = access_give(*range, accesses[i]);
        }
        return code;
    });
}

CUresult mem_export(void *fd_out, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    return driver_api("cuMemExportToShareableHandle", [&](Lock &) {
        Allocation *allocation = allocation_find(handle);

        if (!allocation || flags != 0)
            return misuse(cudaErrorInvalidValue, "no allocation, or flags");
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(allocation->handle_types & type))
            return cudaErrorInvalidValue;
        *(int *)fd_out = fcntl(allocation->file->fd, F_DUPFD_CLOEXEC, 0);
        return *(int *)fd_out < 0 ? cudaErrorUnknown : cudaSuccess;
    });
}

CUresult mem_import(
    CUmemGenericAllocationHandle *handle_out, void *fd, CUmemAllocationHandleType type)
{
    return driver_api("cuMemImportFromShareableHandle", [&](Lock &) {
        std::string path = "/proc/self/fd/" + std::to_string((int)(intptr_t)fd);
        auto file = std::make_shared<File>(path.c_str());

        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || file->fd < 0)
            return cudaErrorInvalidValue;
        *handle_out = allocation_add({file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1, 0});
        return cudaSuccess;
    });
}

/* ---- the rest ---- */

CUresult get_error_name(CUresult code, const char **name_out)
{
    static const auto &names = *new std::map<int, const char *>{{CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED"},
        {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
    auto at = names.find(code);

    *name_out = at == names.end() ? nullptr : at->second;
    return at == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult device_get(CUdevice *device_out, int ordinal)
{
    return driver_api("cuDeviceGet", [&](Lock &) {
        *device_out = ordinal;
        return device_check(ordinal);
    });
}

CUresult context_get_device(CUdevice *device_out)
{
    return driver_api("cuCtxGetDevice", [&](Lock &) {
        *device_out = device_current();
        return device_check(device_current());
    });
}

} /* namespace */

/* A function's address, if its type is the one that the header declares. */
template <class F> static void *of_type(F function)
{
    return (void *)function;
}
#define ENTRY(name, function)                                                                      \
    {                                                                                              \
#name, of_type < decltype(&name)>(function)                                                \
    }

void *driver_function(const char *name)
{
    static const auto &functions = *new std::map<std::string, void *>{
        ENTRY(cuMemGetAddressRange, mem_get_address_range),
        ENTRY(cuPointerGetAttribute, pointer_get_attribute),
        ENTRY(cuMemGetAllocationGranularity, mem_get_granularity),
        ENTRY(cuMemCreate, mem_create),
        ENTRY(cuMemRelease, mem_release),
        ENTRY(cuMemRetainAllocationHandle, mem_retain),
        ENTRY(cuMemAddressReserve, mem_address_reserve),
        ENTRY(cuMemAddressFree, mem_address_free),
        ENTRY(cuMemMap, mem_map),
        ENTRY(cuMemUnmap, mem_unmap),
        ENTRY(cuMemSetAccess, mem_set_access),
        ENTRY(cuMemExportToShareableHandle, mem_export),
        ENTRY(cuMemImportFromShareableHandle, mem_import),
        ENTRY(cuGetErrorName, get_error_name),
        ENTRY(cuDeviceGet, device_get),
        {"cuCtxGetDevice", of_type<CUresult (*)(CUdevice *)>(context_get_device)},
    };
    auto at = functions.find(name);

    return at == functions.end() ? nullptr : at->second;
}

} /* namespace standin */
