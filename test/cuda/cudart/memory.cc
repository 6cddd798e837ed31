/*
 * The stand-in's memory: allocations, what a pointer is, and legacy IPC.
 *
 * Memory of a device is a memfd, so that other processes can really map it: an IPC handle says
 * which process, which descriptor and which inode, and the opener goes through /proc. Nothing has a
 * name, so nothing is left behind. Behind each allocation lies a page that cannot be touched.
 */
#include "test/cuda/cudart/standin.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace standin
{

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

File::File(int physical_in, size_t bytes_in) : physical(physical_in), bytes(bytes_in)
{
    std::string name = "standin-gpu" + std::to_string(physical);

    fd = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)pages(bytes)) != 0) {
        close(fd);
        fd = -1;
    }
}

File::File(const char *path) : fd(open(path, O_RDWR | O_CLOEXEC | O_NOCTTY)), physical(-1), bytes(0)
{
    char target[64] = "";
    std::string self = "/proc/self/fd/" + std::to_string(fd);
    struct stat st;

    if (fd < 0)
        return;
    if (readlink(self.c_str(), target, sizeof target - 1) < 0 ||
        sscanf(target, "/memfd:standin-gpu%d", &physical) != 1 || fstat(fd, &st) != 0) {
        close(fd);
        fd = -1;
        return;
    }
    bytes = (size_t)st.st_size;
}

File::~File()
{
    if (fd >= 0)
        close(fd);
}

uint64_t File::inode() const
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

Range *range_find(const void *at)
{
    std::map<char *, Range> &ranges = state().ranges;
    auto next = ranges.upper_bound((char *)at);

    if (next == ranges.begin())
        return nullptr;
    Range &range = std::prev(next)->second;
    return (const char *)at < range.base + range.bytes ? &range : nullptr;
}

void range_add(Range range)
{
    range.id = number_next();
    state().ranges[range.base] = range;
}

void range_remove(char *base)
{
    state().ranges.erase(base);
}

bool is_mapped(const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at / PAGE * PAGE;
    std::vector<unsigned char> resident(((uintptr_t)at + bytes - from + PAGE - 1) / PAGE);

    return mincore((void *)from, (uintptr_t)at + bytes - from, resident.data()) == 0;
}

cudaError_t range_check(const void *at, size_t bytes, Range **range_out)
{
    Range *range = range_find(at);

    *range_out = range;
    if (range && (const char *)at + bytes > range->base + range->bytes)
        return misuse(cudaErrorInvalidValue, "%zu bytes at %p leave the %zu bytes at %p", bytes, at,
            range->bytes, (void *)range->base);
    if (!range && !is_mapped(at, bytes))
        return misuse(cudaErrorInvalidValue, "%p is no memory of this process", at);
    return cudaSuccess;
}

char *file_map(
    const File &file, size_t offset, size_t bytes, bool is_broken, char *at, int protection)
{
    size_t length = pages(bytes);
    char *hole = at;

    if (!at) {
        hole = (char *)mmap(nullptr, length + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (hole == MAP_FAILED)
            return nullptr;
    }
    if (mmap(hole, length, protection,
            MAP_FIXED | (is_broken ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED),
            is_broken ? -1 : file.fd, is_broken ? 0 : (off_t)offset) == MAP_FAILED) {
        if (!at)
            munmap(hole, length + PAGE);
        return nullptr;
    }
    return hole;
}

namespace
{

struct Handle {
    uint32_t magic;
    int pid, fd;
    uint64_t inode, bytes;
};
#define MAGIC 0x7a6d656d

/* Memory of the current device. */
cudaError_t device_alloc(Kind kind, size_t bytes, void **at_out)
{
    int device = device_current(), physical;
    std::shared_ptr<File> file;
    cudaError_t code = device_check(device);
    char *base;

    *at_out = nullptr;
    if (code != cudaSuccess || bytes == 0)
        return code;
    physical = device_physical(device);
    if (bytes > MEMORY_BYTES - state().used[(size_t)physical])
        return cudaErrorMemoryAllocation;
    file = std::make_shared<File>(physical, bytes);
    base =
        file->fd < 0 ? nullptr : file_map(*file, 0, bytes, false, nullptr, PROT_READ | PROT_WRITE);
    if (!base)
        return cudaErrorMemoryAllocation;
    /* Memory of a device is not zero by itself. */
    memset(base, 0xa5, std::min(bytes, (size_t)1 << 20));
    state().used[(size_t)physical] += bytes;
    range_add({kind, base, bytes, device, 0, file, 0});
    *at_out = base;
    return cudaSuccess;
}

cudaError_t host_alloc(Kind kind, size_t bytes, void **at_out)
{
    cudaError_t code = device_check(device_current());
    void *base;

    *at_out = nullptr;
    if (code != cudaSuccess || bytes == 0)
        return code;
    base = mmap(nullptr, pages(bytes) + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    mprotect(base, pages(bytes), PROT_READ | PROT_WRITE);
    range_add({kind, (char *)base, bytes, device_current(), 0, nullptr, 0});
    *at_out = base;
    return cudaSuccess;
}

/* The range that begins at @at, if it is of one of these kinds; forgotten by the tables. */
cudaError_t range_take(const void *at, const std::set<Kind> &kinds, Range *range_out)
{
    Range *range = range_find(at);

    if (!range || range->base != at || !kinds.count(range->kind))
        return misuse(cudaErrorInvalidValue, "%p is no allocation that this function frees", at);
    *range_out = *range;
    range_remove(range->base);
    if (range_out->kind == DEVICE || range_out->kind == POOL)
        state().used[(size_t)device_physical(range_out->device)] -= range_out->bytes;
    return cudaSuccess;
}

void unmap(const Range &range)
{
    munmap(range.base, pages(range.bytes) + PAGE);
}

} /* namespace */

} /* namespace standin */

using namespace standin;

extern "C" {

/* ---- device memory ---- */

cudaError_t cudaMalloc(void **at_out, size_t bytes)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();

        return code != cudaSuccess ? code : device_alloc(DEVICE, bytes, at_out);
    });
}

cudaError_t cudaMallocManaged(void **at_out, size_t bytes, unsigned int)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();

        return code != cudaSuccess ? code : host_alloc(MANAGED, bytes, at_out);
    });
}

cudaError_t cudaFree(void *at)
{
    return api(__func__, [&](Lock &lock) {
        cudaError_t code = capture_forbids();
        Range range;

        if (code == cudaSuccess && at)
            code = range_take(at, {DEVICE, POOL, MANAGED}, &range);
        if (code != cudaSuccess || !at)
            return code;
        streams_wait(lock, range.kind == MANAGED ? -1 : range.device);
        unmap(range);
        return cudaSuccess;
    });
}

cudaError_t cudaMallocAsync(void **at_out, size_t bytes, cudaStream_t handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        if (stream->capture)
            return capture_refuses(stream);
        return device_alloc(POOL, bytes, at_out);
    });
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);
        Range range;

        if (!stream)
            return code;
        if (stream->capture)
            return capture_refuses(stream);
        code = range_take(at, {DEVICE, POOL}, &range);
        return code != cudaSuccess ? code : stream_submit(stream, [range] { unmap(range); });
    });
}

/* ---- host memory ---- */

cudaError_t cudaHostAlloc(void **at_out, size_t bytes, unsigned int)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();

        return code != cudaSuccess ? code : host_alloc(PINNED, bytes, at_out);
    });
}

cudaError_t cudaMallocHost(void **at_out, size_t bytes)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();

        return code != cudaSuccess ? code : host_alloc(PINNED, bytes, at_out);
    });
}

cudaError_t cudaFreeHost(void *at)
{
    return api(__func__, [&](Lock &lock) {
        cudaError_t code = capture_forbids();
        Range range;

        if (code == cudaSuccess && at)
            code = range_take(at, {PINNED}, &range);
        if (code != cudaSuccess || !at)
            return code;
        streams_wait(lock, -1);
        unmap(range);
        return cudaSuccess;
    });
}

cudaError_t cudaHostGetDevicePointer(void **device_out, void *host, unsigned int)
{
    return api(__func__, [&](Lock &) {
        Range *range = range_find(host);

        if (!range || (range->kind != PINNED && range->kind != REGISTERED))
            return misuse(cudaErrorInvalidValue, "%p is not pinned", host);
        *device_out = host;
        return cudaSuccess;
    });
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();
        auto next = state().ranges.lower_bound((char *)at);

        if (code != cudaSuccess)
            return code;
        if (bytes == 0 || !is_mapped(at, bytes))
            return misuse(cudaErrorInvalidValue, "%zu bytes at %p are no memory", bytes, at);
        if (range_find(at) ||
            (next != state().ranges.end() && next->second.base < (char *)at + bytes))
            return cudaErrorHostMemoryAlreadyRegistered;
        range_add({REGISTERED, (char *)at, bytes, device_current(), 0, nullptr, 0});
        return cudaSuccess;
    });
}

cudaError_t cudaHostUnregister(void *at)
{
    return api(__func__, [&](Lock &lock) {
        cudaError_t code = capture_forbids();
        Range *range = range_find(at);

        if (code != cudaSuccess)
            return code;
        if (!range || range->base != at || range->kind != REGISTERED)
            return misuse(cudaErrorHostMemoryNotRegistered, "%p is not registered", at);
        range_remove(range->base);
        streams_wait(lock, -1);
        return cudaSuccess;
    });
}

/* ---- what a pointer is ---- */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *p, const void *at)
{
    return api(__func__, [&](Lock &) {
        Range *range = range_find(at);
        cudaError_t code = device_check(device_current());

        if (code != cudaSuccess)
            return code;
        memset(p, 0, sizeof *p);
        p->type = !range                   ? cudaMemoryTypeUnregistered
                  : range->is_on_device()  ? cudaMemoryTypeDevice
                  : range->kind == MANAGED ? cudaMemoryTypeManaged
                                           : cudaMemoryTypeHost;
        p->device = range ? range->device : cudaInvalidDeviceId;
        p->devicePointer = range ? (void *)at : nullptr;
        p->hostPointer = range && range->is_on_device() ? nullptr : (void *)at;
        return cudaSuccess;
    });
}

/* ---- legacy IPC ---- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle_out, void *at)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();
        Range *range = range_find(at);
        Handle handle;

        if (code != cudaSuccess)
            return code;
        if (!range || range->kind != DEVICE)
            return cudaErrorInvalidValue;
        handle = {MAGIC, getpid(), range->file->fd, range->file->inode(), range->bytes};
        memset(handle_out, 0, sizeof *handle_out);
        memcpy(handle_out, &handle, sizeof handle);
        return cudaSuccess;
    });
}

static cudaError_t import(const Handle &handle, void **at_out)
{
    std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    auto file = std::make_shared<File>(path.c_str());
    int here = device_physical(device_current()), ordinal;
    char *base;

    if (file->fd < 0 || file->inode() != handle.inode)
        return cudaErrorInvalidValue;
    for (auto &[at, range] : state().ranges) {
        if (range.kind == IMPORTED && range.file->inode() == handle.inode)
            return misuse(cudaErrorInvalidResourceHandle, "it is open already, at %p", (void *)at);
    }
    if (!peers_are_linked(here, file->physical))
        return cudaErrorPeerAccessUnsupported;
    base = file_map(*file, 0, handle.bytes, peers_are_broken(here, file->physical), nullptr,
        PROT_READ | PROT_WRITE);
    if (!base)
        return cudaErrorMapBufferObjectFailed;
    ordinal = device_ordinal(file->physical);
    range_add({IMPORTED, base, handle.bytes, ordinal < 0 ? device_current() : ordinal, 0, file, 0});
    *at_out = base;
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **at_out, cudaIpcMemHandle_t bytes, unsigned int flags)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();
        Handle handle;

        if (code == cudaSuccess)
            code = device_check(device_current());
        if (code != cudaSuccess)
            return code;
        memcpy(&handle, &bytes, sizeof handle);
        if (handle.magic != MAGIC || flags != cudaIpcMemLazyEnablePeerAccess)
            return misuse(cudaErrorInvalidValue, "no handle, or flags %u", flags);
        if (handle.pid == getpid())
            return misuse(cudaErrorDeviceUninitialized, "the handle is of this process");
        return import(handle, at_out);
    });
}

cudaError_t cudaIpcCloseMemHandle(void *at)
{
    return api(__func__, [&](Lock &lock) {
        cudaError_t code = capture_forbids();
        Range range;

        if (code == cudaSuccess)
            code = range_take(at, {IMPORTED}, &range);
        if (code != cudaSuccess)
            return code;
        streams_wait(lock, -1);
        unmap(range);
        return cudaSuccess;
    });
}
}
