/*
 * What every call asks of a node object: behind which call it comes, and what kernels report.
 */
#include "base/log.h"
#include "base/sync.h"
#include "gpu/node.h"

enum tiara_err tiara_gpu_node_order(struct tiara_gpu_node *node, cudaStream_t stream)
{
    return node->has_enqueued
               ? tiara_gpu_ok(cudaStreamWaitEvent(stream, node->enqueued, 0), "cudaStreamWaitEvent")
               : TIARA_OK;
}

void tiara_gpu_node_abort(struct tiara_gpu_node *node)
{
    /* [gpu.abort] release: kernels that wait read this word. */
    tiara_store_release((tiara_u32 *)(void *)node->segments.abort, 1);
}

/* Logs what line @s of thread block @block says. */
static enum tiara_err status_error(
    const struct tiara_gpu_node *node, const struct tiara_kernel_status *s, int block)
{
    switch (s->code) {
    case TIARA_KERNEL_MISMATCH:
        tiara_error("rank %d of the node called differently: digest %08x, rank %d has %08x",
            s->peer, (unsigned)s->seen, node->segments.index, (unsigned)node->digest);
        return TIARA_ERR_MISMATCH;
    case TIARA_KERNEL_TIMEOUT:
        tiara_error("rank %d of the node has not come to step %d within %.1f s (op %d, thread "
                    "block %d)",
            s->peer, s->step, 1e-9 * (double)node->segments.guard.spin_ns, s->op, block);
        return TIARA_ERR_TIMEOUT;
    default:
        tiara_error("kernels were ended while they waited for rank %d of the node", s->peer);
        return TIARA_ERR_PEER;
    }
}

enum tiara_err tiara_gpu_node_status(const struct tiara_gpu_node *node)
{
    const struct tiara_kernel_status *found = NULL;

    for (int i = 0; i < TIARA_KERNEL_BLOCKS; i++) {
        struct tiara_kernel_status *s = &node->segments.status[i];
        /* [gpu.status] acquire: the line's other fields were written before its code. */
        uint32_t code = tiara_load_acquire((tiara_u32 *)(void *)&s->code);

        /* The cause, and not what followed from it. */
        if (code != TIARA_KERNEL_OK && (!found || code > found->code))
            found = s;
    }
    return found ? status_error(node, found, (int)(found - node->segments.status)) : TIARA_OK;
}
