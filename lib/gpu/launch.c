/*
 * Launches: the arguments of kernels, and how large a grid is.
 *
 * All ranks of a node must launch the same number of thread blocks with the same stripes, since
 * thread block i waits for the thread blocks i of its peers. So the shape of a call is a pure
 * function of the call and of what open agreed. And all thread blocks of all launches in flight
 * must be able to run at the same time, since they wait for each other.
 */
#include "base/log.h"
#include "gpu/node.h"
#include <string.h>

/* Bytes of a block that are worth a thread block of their own: each of its threads moves 16 of them
 * at once. */
#define GRAIN_BYTES ((size_t)TIARA_KERNEL_THREADS * 16)
/* Stripes begin on multiples of a cache line of the device, and of every vector load. */
#define STRIPE_ALIGN_BYTES ((size_t)128)
/* Chunks in flight within one launch: while peers still read one cell, the next is filled. */
#define LAUNCH_SLOTS 2

#define TYPE_BYTES(a, ID, name, bits, class) (bits) / 8,
static const unsigned char type_sizes[] = {TIARA_GPU_TYPES(TYPE_BYTES, )};

/* ---- shape ---- */

static bool is_allreduce(const struct tiara_exec_call *call)
{
    return call->plan->coll == TIARA_COLL_ALLREDUCE;
}

/* The largest chunk of which all blocks fit into a cell; 0: none. Also for ranks whose plan uses no
 * cell: their peers' may. */
static size_t largest_chunk(const struct tiara_exec_call *call, size_t cell_bytes)
{
    size_t nblocks = (size_t)call->plan->nblocks, align = tiara_exec_block_align(call->elem_size);
    size_t elems = cell_bytes / call->elem_size / nblocks;

    if (call->plan->single_copy)
        return SIZE_MAX;
    return is_allreduce(call) ? elems / align * align * nblocks : elems;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t tiara_gpu_tmp_bytes(const struct tiara_exec_call *call, size_t chunk)
{
    size_t bytes =
        tiara_exec_block_len(call, chunk) * call->elem_size * (size_t)call->plan->tmp_blocks;

    return (bytes + STRIPE_ALIGN_BYTES - 1) / STRIPE_ALIGN_BYTES * STRIPE_ALIGN_BYTES;
}

size_t tiara_gpu_chunk_elems(const struct tiara_gpu_node *node, const struct tiara_exec_call *call)
{
    size_t chunk = call->chunk_elems ? call->chunk_elems : call->count;

    return smaller(smaller(chunk, call->count), largest_chunk(call, node->segments.cell_bytes));
}

/* Cuts blocks of @len elements into stripes for at most @most thread blocks. */
static void divide(struct tiara_gpu_shape *shape, size_t len, size_t elem_size, size_t most)
{
    size_t unit = STRIPE_ALIGN_BYTES / elem_size;
    size_t want = (len * elem_size + GRAIN_BYTES - 1) / GRAIN_BYTES;
    size_t n = smaller(want ? want : 1, most), warps;

    shape->stripe = ((len + n - 1) / n + unit - 1) / unit * unit;
    shape->stripe = shape->stripe ? shape->stripe : unit;
    shape->nblocks = (unsigned)((len + shape->stripe - 1) / shape->stripe);
    shape->nblocks = shape->nblocks ? shape->nblocks : 1;
    warps = (shape->stripe * elem_size / 16 + 31) / 32;
    shape->nthreads = (unsigned)smaller(warps * 32, TIARA_KERNEL_THREADS);
}

enum tiara_err tiara_gpu_shape_init(struct tiara_gpu_shape *shape,
    const struct tiara_gpu_node *node, const struct tiara_exec_call *call,
    const struct tiara_gpu_call *gpu, bool one_launch)
{
    size_t slots, most;

    if (gpu->type < 0 || gpu->type >= TIARA_NGPU_TYPE || type_sizes[gpu->type] != call->elem_size) {
        tiara_info("kernels know no type %d of %zu bytes", gpu->type, call->elem_size);
        return TIARA_ERR_UNSUPPORTED;
    }
    shape->chunk = tiara_gpu_chunk_elems(node, call);
    if (shape->chunk == 0) {
        tiara_info("cells of %zu bytes are too small for %d blocks", node->segments.cell_bytes,
            call->plan->nblocks);
        return TIARA_ERR_UNSUPPORTED;
    }
    /* Blocks of these lie apart in the caller's buffers, and messages must be whole: chunks are as
     * the caller chose them. */
    if (!one_launch && !is_allreduce(call) && shape->chunk < call->count &&
        shape->chunk != call->chunk_elems) {
        tiara_info("cells of %zu bytes are too small for blocks of %zu elements",
            node->segments.cell_bytes, call->count);
        return TIARA_ERR_UNSUPPORTED;
    }
    shape->nchunks = call->count / shape->chunk + (call->count % shape->chunk != 0);
    slots = one_launch ? LAUNCH_SLOTS : smaller((size_t)call->slots, TIARA_KERNEL_SLOTS);
    slots = smaller(slots, shape->nchunks);
    if (!one_launch)
        slots = smaller(slots, (size_t)node->capacity);
    shape->slots = (int)slots;
    most = smaller((size_t)node->capacity / (one_launch ? 1 : slots), TIARA_KERNEL_BLOCKS);
    divide(shape, tiara_exec_block_len(call, shape->chunk), call->elem_size, most);
    return TIARA_OK;
}

enum tiara_err tiara_gpu_capacity(int ordinal, int *nblocks_out)
{
    /* Loaded now: the first launch of a kernel would wait for the device, where kernels may be
     * waiting for it. */
    const void *const kernels[] = {(const void *)tiara_kernel_exec,
        (const void *)tiara_kernel_small, (const void *)tiara_kernel_probe};
    struct cudaFuncAttributes attributes;
    int processors = 0, each = 0;
    enum tiara_err err =
        tiara_gpu_ok(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal),
            "cudaDeviceGetAttribute");

    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                               &each, (const void *)tiara_kernel_exec, TIARA_KERNEL_THREADS, 0),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && err == TIARA_OK; i++)
        err = tiara_gpu_ok(cudaFuncGetAttributes(&attributes, kernels[i]), "cudaFuncGetAttributes");
    *nblocks_out = processors * each;
    return err;
}

/* ---- arguments ---- */

/* Elements between blocks of the caller's buffer; -1: they are those of the vector. */
static int64_t stride_of(const struct tiara_exec_call *call, enum tiara_buf buf)
{
    if (is_allreduce(call))
        return -1;
    return tiara_exec_is_single(call, buf) ? 0 : (int64_t)call->count;
}

void tiara_gpu_args_init(struct tiara_kernel_exec_args *args, const struct tiara_gpu_node *node,
    const struct tiara_gpu_program *program, const struct tiara_exec_call *call,
    const struct tiara_gpu_call *gpu, const struct tiara_gpu_shape *shape)
{
    *args = (struct tiara_kernel_exec_args){
        .program = program->device,
        .type = gpu->type,
        .oper = gpu->oper,
        .finish_ranks = gpu->finish_ranks,
        .rank = node->segments.index,
        .nranks = node->segments.size,
        .nslots = shape->slots,
        .digest = call->digest,
        .in_stride = stride_of(call, TIARA_BUF_IN),
        .out_stride = stride_of(call, TIARA_BUF_OUT),
        .stripe = shape->stripe,
        .cell_bytes = node->segments.cell_bytes,
        .tmp = node->scratch ? node->scratch->at : NULL,
        .tmp_bytes = tiara_gpu_tmp_bytes(call, shape->chunk),
        .memory = node->segments.memory,
        .guard = node->segments.guard,
    };
    for (int i = 0; i < node->segments.size; i++)
        args->peer[i].segment = node->segments.segment[i];
}

void tiara_gpu_args_whole(struct tiara_kernel_exec_args *args, const struct tiara_exec_call *call,
    const struct tiara_gpu_shape *shape)
{
    size_t last = call->count - (shape->nchunks - 1) * shape->chunk;

    args->slot = 0;
    args->count = call->count;
    args->chunk_elems = shape->chunk;
    args->nchunks = shape->nchunks;
    args->block_len = tiara_exec_block_len(call, args->chunk_elems);
    args->last_block_len = tiara_exec_block_len(call, last);
    args->in = call->in;
    args->out = call->out;
}

void tiara_gpu_args_chunk(struct tiara_kernel_exec_args *args, const struct tiara_exec_call *call,
    size_t first, size_t count, int slot)
{
    args->slot = slot;
    args->count = args->chunk_elems = count;
    args->nchunks = 1;
    args->block_len = args->last_block_len = tiara_exec_block_len(call, count);
    args->in = (const char *)call->in + first * call->elem_size;
    args->out = (char *)call->out + first * call->elem_size;
}

void tiara_gpu_args_action(
    struct tiara_kernel_exec_args *args, const struct tiara_gpu_action *action)
{
    args->first_op = action->first_op;
    args->end_op = action->end_op;
    args->head_post = action->head_post;
    args->tail_wait = action->tail_wait;
    args->tail_nwait = action->tail_nwait;
    args->flags = action->last ? TIARA_KERNEL_LAST : 0;
}

/* ---- launches ---- */

enum tiara_err tiara_gpu_launch_exec(const struct tiara_kernel_exec_args *args,
    const struct tiara_gpu_shape *shape, cudaStream_t stream)
{
    dim3 grid = {shape->nblocks, 1, 1}, block = {shape->nthreads, 1, 1};
    void *params[] = {(void *)(uintptr_t)args};

    return tiara_gpu_ok(
        cudaLaunchKernel((const void *)tiara_kernel_exec, grid, block, params, 0, stream),
        "cudaLaunchKernel");
}

enum tiara_err tiara_gpu_launch_small(const struct tiara_gpu_node *node,
    const struct tiara_exec_call *call, const struct tiara_gpu_call *gpu, cudaStream_t stream)
{
    size_t packets = (call->count * call->elem_size + 7) / 8 + 1;
    dim3 grid = {1, 1, 1}, block = {1, 1, 1};
    struct tiara_kernel_small_args args = {.type = gpu->type,
        .oper = gpu->oper,
        .finish_ranks = gpu->finish_ranks,
        .rank = node->segments.index,
        .nranks = node->segments.size,
        .digest = call->digest,
        .count = call->count,
        .in = call->in,
        .out = call->out,
        .memory = node->segments.memory,
        .guard = node->segments.guard};
    void *params[] = {&args};

    if (gpu->type < 0 || gpu->type >= TIARA_NGPU_TYPE || type_sizes[gpu->type] != call->elem_size ||
        call->count > TIARA_KERNEL_SMALL_MAX / call->elem_size ||
        node->segments.links != TIARA_GPU_LINKS_ALL) {
        tiara_info("%zu elements of %zu bytes cannot go in packets", call->count, call->elem_size);
        return TIARA_ERR_UNSUPPORTED;
    }
    for (int i = 0; i < node->segments.size; i++)
        args.segment[i] = node->segments.segment[i];
    block.x = (unsigned)smaller((packets + 31) / 32 * 32, TIARA_KERNEL_THREADS);
    return tiara_gpu_ok(
        cudaLaunchKernel((const void *)tiara_kernel_small, grid, block, params, 0, stream),
        "cudaLaunchKernel");
}
