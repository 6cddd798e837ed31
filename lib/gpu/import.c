/*
 * Imports: peers' allocations, mapped into this process.
 *
 * The one idea: an allocation is mapped at most once per process and device, whichever node object
 * asks for it, since the driver refuses a second time, or hands out the same address and closes it
 * for all. So there is one list for the process, the most recently used first, with a count of
 * uses; a node object has only a list of what it uses.
 *
 * A peer that frees an allocation does not say so. Its mapping stays, unused, until it is the
 * oldest one, or until another allocation of that peer has the same addresses, which cannot be
 * mapped beside it.
 */
#include "gpu/import.h"
#include "gpu/cuda.h"
#include "gpu/current.h"
#include "gpu/driver.h"
#include "base/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.3 and 5.6. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

struct mapping {
    struct mapping *next;
    struct tiara_gpu_export from; /* its offset means nothing */
    int ordinal; /* where it is mapped */
    void *base;
    int uses;
};

struct tiara_gpu_import {
    struct tiara_gpu_import *next;
    struct mapping *mapping; /* NULL: spare */
};

struct tiara_gpu_imports {
    int ordinal;
    struct tiara_gpu_import *used;
    struct tiara_gpu_import *spare;
};

/* Process-wide, as mappings are. @lock guards the list, its entries, and the lists of all node
 * objects. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

/* ---- a peer's descriptor ---- */

/* The descriptor of the same open file in this process; -1, with errno. */
static int fd_duplicate(const struct tiara_gpu_export *from)
{
    int pidfd = (int)syscall(SYS_pidfd_open, from->pid, 0);
    int fd = -1;

    if (pidfd < 0)
        return -1;
    /* Asked while the pidfd is held: now the number cannot go to another process. */
    if (tiara_gpu_process_start(from->pid) == from->start)
        fd = (int)syscall(SYS_pidfd_getfd, pidfd, from->fd, 0);
    else
        errno = ESRCH;
    close(pidfd);
    return fd;
}

/* Another descriptor of the same file, which is enough where the file is memory. */
static int fd_open(const struct tiara_gpu_export *from)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)from->pid, (int)from->fd);
    if (tiara_gpu_process_start(from->pid) != from->start) {
        errno = ESRCH;
        return -1;
    }
    return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/*
 * Both ways ask for the permission that reading a peer's memory needs; where only ancestors have it
 * (Yama), the cma transport has already given it to the peers.
 */
static enum tiara_err fd_take(const struct tiara_gpu_export *from, int *fd_out)
{
    *fd_out = -1;
    if (from->start == 0 || from->pid_space != tiara_gpu_process_space()) {
        tiara_info("process %d cannot be told from others: another pid namespace?", (int)from->pid);
        return TIARA_ERR_UNSUPPORTED;
    }
    *fd_out = fd_duplicate(from);
    if (*fd_out < 0)
        *fd_out = fd_open(from);
    if (*fd_out < 0) {
        tiara_info(
            "descriptor %d of process %d: %s", (int)from->fd, (int)from->pid, strerror(errno));
        return TIARA_ERR_UNSUPPORTED;
    }
    return TIARA_OK;
}

/* ---- mappings ---- */

static enum tiara_err handle_import(
    const struct tiara_gpu_export *from, CUmemGenericAllocationHandle *handle_out)
{
    enum tiara_err err;
    int fd;

    if (!tiara_gpu_driver_can_import()) {
        tiara_info("the driver cannot map memory by descriptor");
        return TIARA_ERR_UNSUPPORTED;
    }
    err = fd_take(from, &fd);
    if (err != TIARA_OK)
        return err;
    err = tiara_gpu_driver_try(tiara_gpu_driver()->mem_import(handle_out, (void *)(uintptr_t)fd,
                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle");
    close(fd);
    return err;
}

/* Gives @handle addresses, and the device @ordinal access. */
static enum tiara_err handle_map(
    CUmemGenericAllocationHandle handle, int ordinal, size_t size, CUdeviceptr *base_out)
{
    const struct tiara_gpu_driver *driver = tiara_gpu_driver();
    struct CUmemLocation_st location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = location};
    CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t grain = 0;
    enum tiara_err err = tiara_gpu_driver_try(
        driver->mem_granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");

    if (err == TIARA_OK && (grain == 0 || size % grain != 0)) {
        tiara_info(
            "%zu bytes cannot be mapped: device %d maps multiples of %zu", size, ordinal, grain);
        err = TIARA_ERR_UNSUPPORTED;
    }
    if (err == TIARA_OK)
        err = tiara_gpu_driver_try(
            driver->mem_reserve(base_out, size, grain, 0, 0), "cuMemAddressReserve");
    if (err != TIARA_OK)
        return err;
    err = tiara_gpu_driver_try(driver->mem_map(*base_out, size, 0, handle, 0), "cuMemMap");
    if (err != TIARA_OK)
        goto out_free;
    err =
        tiara_gpu_driver_try(driver->mem_set_access(*base_out, size, &access, 1), "cuMemSetAccess");
    if (err == TIARA_OK)
        return TIARA_OK;
    if (tiara_gpu_driver_try(driver->mem_unmap(*base_out, size), "cuMemUnmap") != TIARA_OK)
        return err;
out_free:
    return tiara_err_first(
        err, tiara_gpu_driver_try(driver->mem_reserve_free(*base_out, size), "cuMemAddressFree"));
}

static enum tiara_err fd_map(const struct tiara_gpu_export *from, int ordinal, void **base_out)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    enum tiara_err err = handle_import(from, &handle);

    if (err != TIARA_OK)
        return err;
    err = handle_map(handle, ordinal, from->size, &base);
    /* A mapping keeps the memory without the handle. */
    if (tiara_gpu_driver_try(tiara_gpu_driver()->mem_release(handle), "cuMemRelease") != TIARA_OK)
        tiara_debug("a handle of process %d is lost", (int)from->pid);
    *base_out = (void *)(uintptr_t)base;
    return err;
}

static enum tiara_err ipc_map(const struct tiara_gpu_export *from, void **base_out)
{
    cudaIpcMemHandle_t handle;
    enum tiara_err err;

    memcpy(&handle, from->handle, sizeof handle);
    err = tiara_gpu_try(cudaIpcOpenMemHandle(base_out, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle");
    return err == TIARA_ERR_SYS ? TIARA_ERR_UNSUPPORTED : err;
}

static enum tiara_err mapping_map(struct mapping *m)
{
    int previous = tiara_gpu_enter(m->ordinal);
    enum tiara_err err = m->from.kind == TIARA_GPU_SHARE_IPC
                             ? ipc_map(&m->from, &m->base)
                             : fd_map(&m->from, m->ordinal, &m->base);

    tiara_gpu_leave(previous);
    return err;
}

static void mapping_unmap(struct mapping *m)
{
    const struct tiara_gpu_driver *driver = tiara_gpu_driver();
    CUdeviceptr base = (uintptr_t)m->base;
    int previous = tiara_gpu_enter(m->ordinal);
    enum tiara_err err;

    if (m->from.kind == TIARA_GPU_SHARE_IPC) {
        err = tiara_gpu_try(cudaIpcCloseMemHandle(m->base), "cudaIpcCloseMemHandle");
    } else {
        err = tiara_gpu_driver_try(driver->mem_unmap(base, m->from.size), "cuMemUnmap");
        if (err == TIARA_OK)
            err = tiara_gpu_driver_try(
                driver->mem_reserve_free(base, m->from.size), "cuMemAddressFree");
    }
    if (err != TIARA_OK)
        tiara_debug("the mapping of a buffer of process %d is lost", (int)m->from.pid);
    tiara_gpu_leave(previous);
}

/* ---- the list; called with the lock ---- */

static bool is_process(const struct tiara_gpu_export *a, const struct tiara_gpu_export *b)
{
    return a->pid == b->pid && a->start == b->start && a->pid_space == b->pid_space;
}

static bool is_allocation(const struct mapping *m, const struct tiara_gpu_export *from, int ordinal)
{
    return m->from.id == from->id && is_process(&m->from, from) && m->ordinal == ordinal &&
           m->from.kind == from->kind && m->from.base == from->base && m->from.size == from->size &&
           memcmp(m->from.handle, from->handle, sizeof from->handle) == 0;
}

/* Do both lie at common addresses of one process? Then one of them is freed. */
static bool is_overlap(const struct tiara_gpu_export *a, const struct tiara_gpu_export *b)
{
    return is_process(a, b) && a->base < b->base + b->size && b->base < a->base + a->size;
}

/* Takes *@link out of the list and closes it. */
static void mapping_remove(struct mapping **link)
{
    struct mapping *m = *link;

    *link = m->next;
    mapping_unmap(m);
    tiara_free(m);
}

static void overlapping_remove(const struct tiara_gpu_export *from, int ordinal)
{
    struct mapping **link = &mappings;

    while (*link != NULL) {
        const struct mapping *m = *link;

        if (m->uses == 0 && m->ordinal == ordinal && is_overlap(&m->from, from))
            mapping_remove(link);
        else
            link = &(*link)->next;
    }
}

static void unused_remove(int ordinal)
{
    struct mapping **link = &mappings;

    while (*link != NULL) {
        if ((*link)->uses == 0 && (*link)->ordinal == ordinal)
            mapping_remove(link);
        else
            link = &(*link)->next;
    }
}

/* Closes the oldest unused ones beyond the number that is kept. */
static void trim(void)
{
    struct mapping **link = &mappings;
    int unused = 0;

    while (*link != NULL) {
        unused += (*link)->uses == 0;
        if ((*link)->uses == 0 && unused > TIARA_GPU_SHARE_KEPT)
            mapping_remove(link);
        else
            link = &(*link)->next;
    }
}

/* The mapping of @from, moved to the front; NULL: there is none. */
static struct mapping *mapping_find(const struct tiara_gpu_export *from, int ordinal)
{
    struct mapping **link = &mappings;
    struct mapping *m;

    while (*link != NULL && !is_allocation(*link, from, ordinal))
        link = &(*link)->next;
    m = *link;
    if (m != NULL) {
        *link = m->next;
        m->next = mappings;
        mappings = m;
    }
    return m;
}

static enum tiara_err mapping_make(
    const struct tiara_gpu_export *from, int ordinal, struct mapping **mapping_out)
{
    struct mapping *m = tiara_alloc(1, sizeof *m);
    enum tiara_err err;

    if (m == NULL)
        return TIARA_ERR_NOMEM;
    m->from = *from;
    m->ordinal = ordinal;
    overlapping_remove(from, ordinal);
    err = mapping_map(m);
    if (err != TIARA_OK) {
        tiara_free(m);
        return err;
    }
    m->next = mappings;
    mappings = m;
    *mapping_out = m;
    return TIARA_OK;
}

/* ---- the seam ---- */

enum tiara_err tiara_gpu_imports_open(struct tiara_gpu_imports **imports_out, int ordinal)
{
    struct tiara_gpu_imports *imports = tiara_alloc(1, sizeof *imports);

    if (imports == NULL)
        return TIARA_ERR_NOMEM;
    imports->ordinal = ordinal;
    *imports_out = imports;
    return TIARA_OK;
}

static void records_free(struct tiara_gpu_import *record)
{
    while (record != NULL) {
        struct tiara_gpu_import *next = record->next;

        if (record->mapping != NULL)
            record->mapping->uses--;
        tiara_free(record);
        record = next;
    }
}

void tiara_gpu_imports_close(struct tiara_gpu_imports *imports)
{
    if (imports == NULL)
        return;
    pthread_mutex_lock(&lock);
    records_free(imports->used);
    records_free(imports->spare);
    unused_remove(imports->ordinal);
    pthread_mutex_unlock(&lock);
    tiara_free(imports);
}

/* Its own addresses are no mapping, and the driver does not make one. */
static bool is_own(const struct tiara_gpu_export *from)
{
    return from->pid == getpid() && from->pid_space == tiara_gpu_process_space() &&
           from->start == tiara_gpu_process_start(getpid());
}

/* A record in the list of @imports, with a mapping of @from. */
static enum tiara_err record_make(struct tiara_gpu_imports *imports,
    const struct tiara_gpu_export *from, struct tiara_gpu_import **import_out)
{
    struct mapping *m = mapping_find(from, imports->ordinal);
    struct tiara_gpu_import *record = imports->spare;
    enum tiara_err err = TIARA_OK;

    if (record == NULL) {
        record = tiara_alloc(1, sizeof *record);
        if (record == NULL)
            return TIARA_ERR_NOMEM;
        imports->spare = record;
    }
    if (m == NULL && is_own(from)) {
        tiara_info("a process cannot import its own buffer");
        return TIARA_ERR_UNSUPPORTED;
    }
    if (m == NULL)
        err = mapping_make(from, imports->ordinal, &m);
    if (err != TIARA_OK)
        return err;
    imports->spare = record->next;
    record->next = imports->used;
    record->mapping = m;
    imports->used = record;
    m->uses++;
    trim();
    *import_out = record;
    return TIARA_OK;
}

enum tiara_err tiara_gpu_import(struct tiara_gpu_imports *imports,
    const struct tiara_gpu_export *from, struct tiara_gpu_import **import_out, void **at_out)
{
    enum tiara_err err;

    if (from->kind == TIARA_GPU_SHARE_NONE)
        return TIARA_ERR_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    err = record_make(imports, from, import_out);
    if (err == TIARA_OK)
        *at_out = (char *)(*import_out)->mapping->base + from->offset;
    pthread_mutex_unlock(&lock);
    return err;
}

void tiara_gpu_import_drop(struct tiara_gpu_imports *imports, struct tiara_gpu_import *import)
{
    struct tiara_gpu_import **link = &imports->used;

    pthread_mutex_lock(&lock);
    while (*link != import)
        link = &(*link)->next;
    *link = import->next;
    import->mapping->uses--;
    import->mapping = NULL;
    import->next = imports->spare;
    imports->spare = import;
    trim();
    pthread_mutex_unlock(&lock);
}

int tiara_gpu_imports_count(const struct tiara_gpu_imports *imports)
{
    int count = 0;

    pthread_mutex_lock(&lock);
    for (const struct mapping *m = mappings; m != NULL; m = m->next)
        count += m->ordinal == imports->ordinal;
    pthread_mutex_unlock(&lock);
    return count;
}
