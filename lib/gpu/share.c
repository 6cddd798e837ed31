/*
 * Exports: what peers need to map this process's allocations.
 *
 * The one idea: a handle is made once per allocation, and found again by the allocation's number,
 * so that a buffer that is used in every call costs a look-up. The table is of fixed size; the
 * entry that was not used for longest goes. An entry with a descriptor would keep the memory of an
 * allocation that the program has freed, so the dead are looked for whenever a new one is made.
 */
#include "gpu/share.h"
#include "gpu/cuda.h"
#include "gpu/current.h"
#include "gpu/driver.h"
#include "gpu/pointer.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTS 128

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof((struct tiara_gpu_export *)0)->handle,
    "an export has room for a handle");

struct entry {
    struct tiara_gpu_pointer pointer; /* id 0: unused */
    enum tiara_gpu_share kind; /* NONE: no handle could be made */
    int fd; /* open when kind is FD */
    char handle[64];
    uint64_t used; /* when, in exports */
};

/* Process-wide, as allocations are. @lock guards all of it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry entries[EXPORTS];
static uint64_t now;
static uint64_t own_start;
static uint32_t own_space;

/* ---- processes ---- */

uint64_t tiara_gpu_process_start(int pid)
{
    char path[64], line[1024];
    const char *field;
    FILE *file;
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    /* The second field is a name in brackets that may hold anything; the start time is the 22nd. */
    field = strrchr(line, ')');
    for (int i = 2; field != NULL && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field != NULL ? strtoull(field, NULL, 10) : 0;
}

uint32_t tiara_gpu_process_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

/* ---- entries ---- */

static void entry_close(struct entry *entry)
{
    if (entry->kind == TIARA_GPU_SHARE_FD)
        close(entry->fd);
    memset(entry, 0, sizeof *entry);
}

static bool is_same(const struct tiara_gpu_pointer *a, const struct tiara_gpu_pointer *b)
{
    return a->id == b->id && a->base == b->base && a->size == b->size;
}

static struct entry *entry_find(const struct tiara_gpu_pointer *pointer)
{
    for (int i = 0; i < EXPORTS; i++) {
        if (is_same(&entries[i].pointer, pointer))
            return &entries[i];
    }
    return NULL;
}

/* A place for a new entry. */
static struct entry *entry_place(void)
{
    struct entry *oldest = &entries[0];

    for (int i = 0; i < EXPORTS; i++) {
        struct entry *entry = &entries[i];

        if (entry->kind == TIARA_GPU_SHARE_FD && !tiara_gpu_pointer_lives(&entry->pointer))
            entry_close(entry);
        if (entry->used < oldest->used)
            oldest = entry;
    }
    entry_close(oldest);
    return oldest;
}

static enum tiara_err ipc_make(const struct tiara_gpu_pointer *pointer, struct entry *entry)
{
    cudaIpcMemHandle_t handle;
    enum tiara_err err = tiara_gpu_try(
        cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)pointer->base), "cudaIpcGetMemHandle");

    if (err == TIARA_OK)
        memcpy(entry->handle, &handle, sizeof entry->handle);
    return err;
}

static enum tiara_err fd_make(const struct tiara_gpu_pointer *pointer, struct entry *entry)
{
    const struct tiara_gpu_driver *driver = tiara_gpu_driver();
    CUmemGenericAllocationHandle handle;
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;
    int fd = -1;

    if (tiara_gpu_driver_can_export())
        err = tiara_gpu_driver_try(driver->mem_retain(&handle, (void *)(uintptr_t)pointer->base),
            "cuMemRetainAllocationHandle");
    if (err != TIARA_OK)
        return err;
    err = tiara_gpu_driver_try(
        driver->mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
    if (tiara_gpu_driver_try(driver->mem_release(handle), "cuMemRelease") != TIARA_OK)
        tiara_debug("a handle of 0x%llx is lost", (unsigned long long)pointer->base);
    if (err != TIARA_OK)
        return err;
    /* A program that this one starts must not keep the memory. */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    entry->fd = fd;
    return TIARA_OK;
}

/* What cannot be exported is remembered as such, and not tried again. */
static struct entry *entry_make(const struct tiara_gpu_pointer *pointer)
{
    struct entry *entry = entry_place();
    int previous = tiara_gpu_enter(pointer->ordinal);
    enum tiara_err err =
        pointer->share == TIARA_GPU_SHARE_IPC ? ipc_make(pointer, entry) : fd_make(pointer, entry);

    tiara_gpu_leave(previous);
    entry->pointer = *pointer;
    entry->kind = err == TIARA_OK ? pointer->share : TIARA_GPU_SHARE_NONE;
    return entry;
}

/* ---- the seam ---- */

enum tiara_err tiara_gpu_export(const void *ptr, size_t bytes, struct tiara_gpu_export *export_out)
{
    struct tiara_gpu_pointer pointer;
    enum tiara_err err = tiara_gpu_pointer_look(ptr, bytes, &pointer);
    struct entry *entry;

    memset(export_out, 0, sizeof *export_out);
    if (err != TIARA_OK || !pointer.device || pointer.share == TIARA_GPU_SHARE_NONE)
        return err;
    export_out->pid = getpid();
    export_out->id = pointer.id;
    export_out->base = pointer.base;
    export_out->size = pointer.size;
    export_out->offset = (uintptr_t)ptr - pointer.base;
    pthread_mutex_lock(&lock);
    if (own_start == 0) {
        own_start = tiara_gpu_process_start(getpid());
        own_space = tiara_gpu_process_space();
    }
    entry = entry_find(&pointer);
    if (entry == NULL)
        entry = entry_make(&pointer);
    entry->used = ++now;
    export_out->start = own_start;
    export_out->pid_space = own_space;
    export_out->kind = entry->kind;
    export_out->fd = entry->fd;
    memcpy(export_out->handle, entry->handle, sizeof export_out->handle);
    pthread_mutex_unlock(&lock);
    return TIARA_OK;
}

void tiara_gpu_exports_close(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < EXPORTS; i++)
        entry_close(&entries[i]);
    pthread_mutex_unlock(&lock);
}

int tiara_gpu_exports_count(void)
{
    int count = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < EXPORTS; i++)
        count += entries[i].pointer.id != 0;
    pthread_mutex_unlock(&lock);
    return count;
}
