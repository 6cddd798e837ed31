/*
 * Private to lib/gpu: how peers get at this rank's buffers, and this rank at theirs.
 *
 * An export is plain bytes that a rank sends to its node peers. An import is a mapping of a peer's
 * allocation, kept in a cache by (process, allocation id), with reference counts: a mapping in use
 * is never closed; beyond TIARA_GPU_SHARE_KEPT unused ones the least recently used goes. Allocation
 * ids are never used twice, so a buffer that was freed and taken again is another entry; its old
 * mapping leaves by age, or at once when the new one has its addresses.
 */
#ifndef TIARA_GPU_SHARE_H
#define TIARA_GPU_SHARE_H

#include "gpu/gpu.h"

#define TIARA_GPU_SHARE_KEPT 64

struct tiara_gpu_export {
    int32_t kind; /* enum tiara_gpu_share; NONE: peers cannot map it */
    int32_t pid;
    uint64_t start; /* start time of the process: pids are used again */
    uint64_t id; /* of the allocation */
    uint64_t base; /* of the allocation, in the exporting process */
    uint64_t size; /* of the allocation */
    uint64_t offset; /* of the buffer in it */
    /* SHARE_FD: number in the exporting process, open as long as the exporter keeps the
     * allocation's entry */
    int32_t fd;
    uint32_t pid_space; /* number of the pid namespace: pids are used in others, too */
    char handle[64]; /* SHARE_IPC */
};

struct tiara_gpu_imports; /* a node object's part of the cache, which is one per process */
struct tiara_gpu_import; /* a mapping in use */

TIARA_MUST_USE enum tiara_err tiara_gpu_imports_open(
    struct tiara_gpu_imports **imports_out, int ordinal);
/*
 * Drops what is still in use through @imports, and closes all mappings of its device that nobody
 * else uses. No kernel may use one. NULL is allowed.
 */
void tiara_gpu_imports_close(struct tiara_gpu_imports *imports);

/* The export of the buffer [ptr, ptr + bytes); kind NONE is no error. Handles are made once per
 * allocation. Errors: as tiara_gpu.look. */
TIARA_MUST_USE enum tiara_err tiara_gpu_export(
    const void *ptr, size_t bytes, struct tiara_gpu_export *export_out);
/* Closes the descriptors of all exports. */
void tiara_gpu_exports_close(void);
/* Exports that are kept now: for tests. */
int tiara_gpu_exports_count(void);

/*
 * Maps what @from says; *at_out is the buffer in this process's addresses, good until drop. Errors:
 * TIARA_ERR_UNSUPPORTED (kind NONE, or it cannot be mapped: logged as info), TIARA_ERR_NOMEM. A
 * rank's own export cannot be imported.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_import(struct tiara_gpu_imports *imports,
    const struct tiara_gpu_export *from, struct tiara_gpu_import **import_out, void **at_out);
void tiara_gpu_import_drop(struct tiara_gpu_imports *imports, struct tiara_gpu_import *import);

/* Mappings of the device of @imports that are held now, in use or not: for tests. */
int tiara_gpu_imports_count(const struct tiara_gpu_imports *imports);

/* Who a process is: its start time in clock ticks since the machine started (0: unknown), and the
 * number of this process's pid namespace. */
uint64_t tiara_gpu_process_start(int pid);
uint32_t tiara_gpu_process_space(void);

#endif
