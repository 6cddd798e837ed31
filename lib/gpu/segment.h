/*
 * Private to lib/gpu: a node's device memory, one segment per rank (kernels/kernels.h has its
 * layout), mapped by all that can.
 */
#ifndef TIARA_GPU_SEGMENT_H
#define TIARA_GPU_SEGMENT_H

#include "gpu/gpu.h"
#include "kernels/kernels.h"

struct tiara_gpu_segments {
    int ordinal;
    int index, size; /* on the node */
    size_t cell_bytes;
    char *segment[TIARA_KERNEL_PEERS]; /* device addresses; NULL: out of reach */
    struct tiara_kernel_memory *memory; /* device memory, own */
    struct tiara_kernel_status *status; /* [TIARA_KERNEL_BLOCKS] pinned */
    uint32_t *abort; /* pinned; written by the host only */
    struct tiara_kernel_guard guard; /* the device's addresses of both, and the limit */
    enum tiara_gpu_links links; /* agreed */
    int order[TIARA_KERNEL_PEERS]; /* the ring of node indices, from 0 on; agreed */
};

/*
 * Collective over params->group; ends in a collective AND, after which nobody holds anything on
 * failure. Each mapping is probed by a kernel that writes a word through it and one that reads it
 * back, in both directions, since drivers report access that does not work. A peer counts as
 * reached only when both directions work. Errors: as tiara_gpu_node_ops.open.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_segments_open(
    struct tiara_gpu_segments *s, const struct tiara_gpu_node_params *params);
/* Closes the mappings of peers' segments. Local. No kernel may be running. */
void tiara_gpu_segments_unmap(struct tiara_gpu_segments *s);
/* The same, and frees the own segment, which no peer should have mapped any more. Also on a zeroed
 * object. */
void tiara_gpu_segments_close(struct tiara_gpu_segments *s);

/*
 * How ranks are linked, from who reaches whom: bit b of reach[a] says that a and b reach each
 * other. A pure function: equal on all ranks. *order_out: [size], from 0 on; for ALL the indices in
 * order. Errors: TIARA_ERR_UNSUPPORTED (no ring; not logged), TIARA_ERR_NOMEM.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_links_find(const uint16_t reach[TIARA_KERNEL_PEERS],
    int size, enum tiara_gpu_links *links_out, int order_out[TIARA_KERNEL_PEERS]);

#endif
