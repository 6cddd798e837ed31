/*
 * What a pointer is: host or device memory, and which allocation.
 *
 * The one idea: an address proves nothing for the next call, since its allocation may have been
 * freed and another put there, but the driver gives every allocation a number that is never used
 * again. So what was found out is kept by address, and believed when one question to the driver
 * brings the same number.
 *
 * Host memory that CUDA does not know is looked at once per page: an address that the CPU cannot
 * read either is an error of the program's, better told here than by a fault inside a copy. A page
 * that was good once is not looked at again.
 */
#include "gpu/pointer.h"
#include "gpu/cuda.h"
#include "gpu/current.h"
#include "gpu/driver.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define RANGES 256 /* allocations remembered, by hash of an address in them */
#define PAGES 64 /* host pages remembered, by hash */
#define PAGE_SHIFT 12
/* Distance of addresses that go to different places of the table: cudaMalloc's alignment is 256
 * bytes or more. */
#define RANGE_SHIFT 9

/* Process-wide, as addresses are. @lock guards both tables. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tiara_gpu_pointer ranges[RANGES]; /* size 0: unused */
static uint64_t pages[PAGES]; /* page numbers + 1; 0: unused */

static size_t hash(uint64_t value, size_t places)
{
    return (size_t)((value * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % places;
}

static bool contains(const struct tiara_gpu_pointer *range, uint64_t at)
{
    return at >= range->base && at - range->base < range->size;
}

static bool range_find(uint64_t at, struct tiara_gpu_pointer *range_out)
{
    bool found;

    pthread_mutex_lock(&lock);
    *range_out = ranges[hash(at >> RANGE_SHIFT, RANGES)];
    pthread_mutex_unlock(&lock);
    found = contains(range_out, at);
    return found;
}

/* The same by looking at all of them: an address that nobody asked for before may lie in a range
 * that is known. */
static bool range_search(uint64_t at, struct tiara_gpu_pointer *range_out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < RANGES && !found; i++) {
        found = contains(&ranges[i], at);
        if (found)
            *range_out = ranges[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Remembers @range for @at; NULL: nothing is known there. */
static void range_set(uint64_t at, const struct tiara_gpu_pointer *range)
{
    struct tiara_gpu_pointer *place = &ranges[hash(at >> RANGE_SHIFT, RANGES)];

    pthread_mutex_lock(&lock);
    if (range != NULL)
        *place = *range;
    else
        memset(place, 0, sizeof *place);
    pthread_mutex_unlock(&lock);
}

static bool page_find(uint64_t at)
{
    uint64_t page = (at >> PAGE_SHIFT) + 1;
    bool found;

    pthread_mutex_lock(&lock);
    found = pages[hash(page, PAGES)] == page;
    pthread_mutex_unlock(&lock);
    return found;
}

static void page_set(uint64_t at)
{
    uint64_t page = (at >> PAGE_SHIFT) + 1;

    pthread_mutex_lock(&lock);
    pages[hash(page, PAGES)] = page;
    pthread_mutex_unlock(&lock);
}

void tiara_gpu_pointer_forget(void)
{
    pthread_mutex_lock(&lock);
    memset(ranges, 0, sizeof ranges);
    memset(pages, 0, sizeof pages);
    pthread_mutex_unlock(&lock);
}

/* ---- host memory ---- */

/* Does the kernel's list of this process's memory have @at as readable? Where there is no list:
 * yes. */
static bool is_listed(uint64_t at)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool listed = false;

    if (maps == NULL)
        return true;
    while (!listed && fgets(line, sizeof line, maps) != NULL) {
        uint64_t begin, end;
        char read_flag;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %c", &begin, &end, &read_flag) == 3)
            listed = at >= begin && at < end && read_flag == 'r';
    }
    fclose(maps);
    return listed;
}

/* The kernel's copy refuses a few mappings of devices that the CPU can read, and sandboxes may
 * refuse the call. */
static bool is_readable(uint64_t at)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)(uintptr_t)at, 1};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || is_listed(at);
}

/* @at is unknown to CUDA. @was: the device memory that was seen there last; NULL: none. */
static enum tiara_err host_look(uint64_t at, const struct tiara_gpu_pointer *was)
{
    struct tiara_gpu_pointer range;

    if (was == NULL && page_find(at))
        return TIARA_OK;
    if (is_readable(at)) {
        if (was != NULL)
            range_set(at, NULL);
        page_set(at);
        return TIARA_OK;
    }
    if (was != NULL)
        range = *was;
    if (was != NULL || range_search(at, &range))
        tiara_error("0x%" PRIx64 ": a device buffer at 0x%" PRIx64 " of %" PRIu64
                    " bytes was freed",
            at, range.base, range.size);
    else
        tiara_error("0x%" PRIx64 " is neither host nor device memory", at);
    return TIARA_ERR_ARG;
}

/* ---- device memory ---- */

/* Attributes are of 1 to 8 bytes, and 0 where the driver does not know them. */
static uint64_t attribute(CUpointer_attribute which, uint64_t at)
{
    uint64_t value = 0;

    if (tiara_gpu_driver()->pointer_attribute(&value, which, at) != CUDA_SUCCESS)
        return 0;
    return value;
}

static enum tiara_gpu_share share_of(uint64_t at)
{
    if (attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at) != 0)
        return TIARA_GPU_SHARE_NONE;
    if (attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at) != 0)
        return TIARA_GPU_SHARE_IPC;
    if ((attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at) &
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return TIARA_GPU_SHARE_FD;
    return TIARA_GPU_SHARE_NONE;
}

/* Fills what the driver knows of the allocation of @at, and remembers it. False: the driver does
 * not know. */
static bool allocation_ask(uint64_t at, struct tiara_gpu_pointer *pointer)
{
    CUdeviceptr base = 0;
    size_t size = 0;

    if (!tiara_gpu_driver_can_tell() ||
        tiara_gpu_driver()->mem_address_range(&base, &size, at) != CUDA_SUCCESS)
        return false;
    pointer->id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
    pointer->base = base;
    pointer->size = size;
    pointer->share = pointer->id != 0 ? share_of(at) : TIARA_GPU_SHARE_NONE;
    if (pointer->id != 0)
        range_set(at, pointer);
    return true;
}

/*
 * Memory that is mapped piece by piece may be one buffer to the program, though each piece is an
 * allocation of its own. Such a buffer has no handle. Two neighbours from cudaMalloc are never one
 * buffer.
 */
static bool pieces_reach(struct tiara_gpu_pointer *pointer, uint64_t end)
{
    while (pointer->base + pointer->size < end) {
        uint64_t next = pointer->base + pointer->size;
        CUdeviceptr base = 0;
        size_t size = 0;

        if (pointer->share == TIARA_GPU_SHARE_IPC || !tiara_gpu_driver_can_tell() ||
            tiara_gpu_driver()->mem_address_range(&base, &size, next) != CUDA_SUCCESS ||
            base != next || size == 0)
            return false;
        pointer->size += size;
        pointer->share = TIARA_GPU_SHARE_NONE;
    }
    return true;
}

/* Is [@at, @at + @bytes) inside the allocation? */
static enum tiara_err bounds_check(uint64_t at, size_t bytes, struct tiara_gpu_pointer *pointer)
{
    struct tiara_gpu_pointer whole = *pointer;
    int previous;
    bool inside;

    if (bytes <= pointer->size - (at - pointer->base))
        return TIARA_OK;
    previous = tiara_gpu_enter(pointer->ordinal);
    inside = bytes <= UINT64_MAX - at && pieces_reach(&whole, at + bytes);
    tiara_gpu_leave(previous);
    if (inside) {
        *pointer = whole;
        return TIARA_OK;
    }
    tiara_error("a buffer of %zu bytes at 0x%" PRIx64 " leaves its device memory: %" PRIu64
                " bytes from 0x%" PRIx64,
        bytes, at, pointer->size, pointer->base);
    return TIARA_ERR_ARG;
}

/* Asks CUDA what @at is. @was: the device memory that was seen there last; NULL: none. */
static enum tiara_err classify(uint64_t at, size_t bytes, const struct tiara_gpu_pointer *was,
    struct tiara_gpu_pointer *pointer_out)
{
    struct cudaPointerAttributes attributes;
    enum tiara_err err;
    int previous;

    memset(pointer_out, 0, sizeof *pointer_out);
    err = tiara_gpu_ok(cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)at),
        "cudaPointerGetAttributes");
    if (err != TIARA_OK)
        return err;
    if (attributes.type == cudaMemoryTypeUnregistered)
        return host_look(at, was);
    if (attributes.type != cudaMemoryTypeDevice)
        return TIARA_OK;
    pointer_out->device = true;
    pointer_out->ordinal = attributes.device;
    previous = tiara_gpu_enter(attributes.device);
    if (!allocation_ask(at, pointer_out)) {
        pointer_out->base = at;
        pointer_out->size = bytes;
    }
    tiara_gpu_leave(previous);
    return TIARA_OK;
}

bool tiara_gpu_pointer_lives(const struct tiara_gpu_pointer *pointer)
{
    return pointer->id != 0 &&
           attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer->base) == pointer->id;
}

enum tiara_err tiara_gpu_pointer_look(
    const void *ptr, size_t bytes, struct tiara_gpu_pointer *pointer_out)
{
    uint64_t at = (uintptr_t)ptr;
    struct tiara_gpu_pointer seen;
    enum tiara_err err = TIARA_OK;
    bool was_seen;

    if (bytes == 0) {
        memset(pointer_out, 0, sizeof *pointer_out);
        return TIARA_OK;
    }
    was_seen = range_find(at, &seen);
    if (was_seen && tiara_gpu_pointer_lives(&seen))
        *pointer_out = seen;
    else
        err = classify(at, bytes, was_seen ? &seen : NULL, pointer_out);
    if (err == TIARA_OK && pointer_out->device)
        err = bounds_check(at, bytes, pointer_out);
    return err;
}
