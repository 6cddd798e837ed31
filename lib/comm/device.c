/*
 * The process's CUDA part: whether there is one, and when it is opened.
 */
#include "comm/device.h"
#include "base/env.h"
#include "base/log.h"
#include "base/sync.h"
#include <mpi.h>
#ifdef HAVE_MPI_EXT_H
#include <mpi-ext.h>
#endif
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART "libtiara-cuda.so.0"
#define DRIVER "libcuda.so.1"

/* Values of TIARA_CUDA and TIARA_CUDA_AWARE, in the table's order. */
enum choice {
    AUTO,
    ON,
    OFF
};

static tiara_u32 state; /* enum tiara_device_level; written under the lock */
static const struct tiara_gpu *part;
static tiara_u64 objects_seen; /* the loader's count at the last look */
static char why[96] = "not looked for yet";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what is loaded ---- */

static int take_count(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    *(uint64_t *)count = info->dlpi_adds;
    return 1;
}

/* Objects that the loader has loaded so far: only grows. */
static uint64_t objects_loaded(void)
{
    uint64_t count = 0;

    dl_iterate_phdr(take_count, &count);
    return count;
}

static bool is_driver_loaded(void)
{
    void *handle = dlopen(DRIVER, RTLD_NOLOAD | RTLD_LAZY);

    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static bool is_driver_installed(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0 ||
           access("/proc/driver/nvidia/version", F_OK) == 0 || is_driver_loaded();
}

/* ---- opening ---- */

/* PART in the directory of @file, or from there in @below, if it is there. */
static void *open_beside(const char *file, const char *below)
{
    const char *slash = strrchr(file, '/');
    char path[4096];

    if (!slash || snprintf(path, sizeof(path), "%.*s%s/%s", (int)(slash - file), file, below,
                      PART) >= (int)sizeof(path))
        return NULL;
    return access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* Beside this library; for a program that holds the library itself, beside it or in the lib of its
 * prefix; else where the loader looks. */
static void *open_part(void)
{
    Dl_info info;
    void *handle = NULL;
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    exe[length > 0 ? length : 0] = '\0';
    if (dladdr((void *)(uintptr_t)&tiara_device, &info))
        handle = open_beside(info.dli_fname, "");
    if (!handle)
        handle = open_beside(exe, "");
    if (!handle)
        handle = open_beside(exe, "/../lib");
    return handle ? handle : dlopen(PART, RTLD_NOW | RTLD_LOCAL);
}

static enum tiara_log_level log_level(void)
{
    enum tiara_log_level level = TIARA_LOG_ERROR;

    while (level < TIARA_LOG_DEBUG && tiara_log_enabled(level + 1))
        level++;
    return level;
}

/* Opens the CUDA part and starts it. Lock held. */
static enum tiara_device_level start(void)
{
    struct tiara_gpu_host host = {.log_level = log_level(), .progress = tiara_progress};
    void *handle = open_part();
    const struct tiara_gpu *table = handle ? dlsym(handle, "tiara_gpu") : NULL;

    PMPI_Comm_rank(MPI_COMM_WORLD, &host.world_rank);
    if (!table) {
        const char *said = dlerror();
        snprintf(why, sizeof(why), "%s", handle ? "it is none of ours" : "not built in");
        tiara_info("GPU memory is not known here, as %s cannot be used: %s", PART,
            said ? said : "unknown reason");
    } else if (table->version != TIARA_GPU_VERSION) {
        snprintf(why, sizeof(why), "of another version");
        tiara_warn("%s is of another version of Tiara (%u, not %u) and not used", PART,
            table->version, TIARA_GPU_VERSION);
    } else if (table->open(&host, why, sizeof(why)) != TIARA_OK) {
        tiara_info("GPU memory is not known here: %s", why);
    } else {
        part = table;
        return TIARA_DEVICE_READY;
    }
    if (handle)
        dlclose(handle);
    return TIARA_DEVICE_NONE;
}

/* How near the process is now. Lock held. */
static enum tiara_device_level look(void)
{
    int64_t choice = tiara_env_value(TIARA_ENV_CUDA);

    if (choice == OFF || (choice == AUTO && !is_driver_installed())) {
        snprintf(why, sizeof(why), "%s", choice == OFF ? "off" : "no driver");
        return TIARA_DEVICE_NONE;
    }
    /* relaxed: read again by who looks again */
    tiara_store_relaxed(&objects_seen, objects_loaded());
    if (is_driver_loaded())
        return start();
    snprintf(why, sizeof(why), "not in use");
    return TIARA_DEVICE_DRIVER;
}

enum tiara_device_level tiara_device_level(void)
{
    enum tiara_device_level level;

    /* [device.state] acquire: part is set before the state says so. */
    level = (enum tiara_device_level)tiara_load_acquire(&state);
    if (level == TIARA_DEVICE_NONE || level == TIARA_DEVICE_READY)
        return level;
    /* relaxed: a stale count costs a look under the lock, or is renewed by the thread's own load of
     * the driver */
    if (level == TIARA_DEVICE_DRIVER && objects_loaded() == tiara_load_relaxed(&objects_seen))
        return level;
    pthread_mutex_lock(&lock);
    level = (enum tiara_device_level)tiara_load_relaxed(&state); /* relaxed: lock held */
    if (level == TIARA_DEVICE_UNKNOWN || level == TIARA_DEVICE_DRIVER) {
        level = look();
        /* [device.state] release: who sees TIARA_DEVICE_READY sees part. */
        tiara_store_release(&state, (uint32_t)level);
    }
    pthread_mutex_unlock(&lock);
    return level;
}

const struct tiara_gpu *tiara_device(void)
{
    return tiara_device_level() == TIARA_DEVICE_READY ? part : NULL;
}

const struct tiara_gpu *tiara_device_wake(void)
{
    /* Kept: who asks for devices uses them. */
    if (tiara_device_level() == TIARA_DEVICE_DRIVER && !dlopen(DRIVER, RTLD_LAZY | RTLD_GLOBAL))
        tiara_info("%s cannot be loaded: %s", DRIVER, dlerror());
    return tiara_device();
}

const char *tiara_device_why(void)
{
    return tiara_device_level() == TIARA_DEVICE_READY ? "in use" : why;
}

/* ---- the MPI below ---- */

static bool mpi_says_direct(void)
{
#ifdef HAVE_MPIX_QUERY_CUDA
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

bool tiara_device_mpi_direct(void)
{
    int64_t choice = tiara_env_value(TIARA_ENV_CUDA_AWARE);

    return choice == ON || (choice == AUTO && mpi_says_direct());
}

void tiara_device_release(void)
{
    pthread_mutex_lock(&lock);
    if (part)
        part->close();
    part = NULL;
    /* The object stays mapped: threads of the CUDA runtime may still be in it. */
    snprintf(why, sizeof(why), "MPI is finalized");
    /* [device.state] release: nothing is published but the state. */
    tiara_store_release(&state, (uint32_t)TIARA_DEVICE_NONE);
    pthread_mutex_unlock(&lock);
}
