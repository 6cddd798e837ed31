/*
 * Private to lib/gpu: how peers get at this rank's buffers. An export is plain bytes that a rank
 * sends to its node peers.
 */
#ifndef TIARA_GPU_SHARE_H
#define TIARA_GPU_SHARE_H

#include "gpu/gpu.h"

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

/* The export of the buffer [ptr, ptr + bytes); kind NONE is no error. Handles are made once per
 * allocation. Errors: as tiara_gpu.look. */
TIARA_MUST_USE enum tiara_err tiara_gpu_export(
    const void *ptr, size_t bytes, struct tiara_gpu_export *export_out);
/* Closes the descriptors of all exports. */
void tiara_gpu_exports_close(void);
/* Exports that are kept now: for tests. */
int tiara_gpu_exports_count(void);

/* Who a process is: its start time in clock ticks since the machine started (0: unknown), and the
 * number of this process's pid namespace. */
uint64_t tiara_gpu_process_start(int pid);
uint32_t tiara_gpu_process_space(void);

#endif
