/*
 * The buffers of a run: slots on pages of their own, so that neither side is lucky with alignment.
 *
 * With --off-cache there are so many slots that, used in turn, each is out of the cache when its
 * turn comes. The memory is compared with what the node has free before it is taken: a benchmark
 * that brings its node to swapping measures the swap, and one that is killed says nothing.
 */
#include "bench.h"
#include "bench_device.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_ENOUGH                                                                                 \
    "a size of %zu bytes needs %zu bytes on each of the ranks that share %s, which has not so "    \
    "much memory free (this one: %d ranks, %zu bytes); use a smaller --message-size or "           \
    "--off-cache"

enum {
    PAGE = 4096
};

size_t bench_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : (size_t)32 << 20;
}

/* Bytes that this node can still give; SIZE_MAX where the system does not tell. */
static size_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = SIZE_MAX / 1024;
    if (file == NULL)
        return SIZE_MAX;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    fclose(file);
    return (size_t)kib * 1024;
}

static int node_ranks(MPI_Comm comm)
{
    MPI_Comm node;
    int n = 1;
    if (PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return n;
    PMPI_Comm_size(node, &n);
    PMPI_Comm_free(&node);
    return n;
}

static size_t slot_bytes(size_t elements, size_t elem_bytes)
{
    return (elements * elem_bytes + BENCH_GUARD_BYTES + PAGE - 1) / PAGE * PAGE;
}

static bool all_ranks(bool mine, MPI_Comm comm)
{
    int ok = mine, all = 0;
    PMPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_LAND, comm);
    return all != 0;
}

/* Collective: whether @bytes on each rank are there, in the node's memory or the GPU's. */
static bool is_room(const struct bench_buffers *buffers, size_t largest, size_t far_bytes,
    size_t near_bytes, MPI_Comm comm, struct bench_why *why)
{
    int ranks = node_ranks(comm);
    size_t available = memory_available();
    if (!all_ranks(near_bytes <= available / (size_t)ranks, comm))
        return bench_complain(why, NOT_ENOUGH, largest, near_bytes, "a node", ranks, available);
    if (buffers->device == NULL)
        return true;
    available = bench_device_available(buffers->device);
    int sharers = buffers->device->sharers;
    return all_ranks(far_bytes <= available, comm) ||
           bench_complain(
               why, NOT_ENOUGH, largest, far_bytes, "a GPU", sharers, available * (size_t)sharers);
}

static bool host_alloc(struct bench_buffers *buffers, enum bench_buffer which)
{
    size_t bytes = buffers->nslots * buffers->stride[which];
    buffers->slots[which] = aligned_alloc(PAGE, bytes);
    buffers->near[which] = buffers->slots[which];
    if (buffers->slots[which] != NULL)
        memset(buffers->slots[which], 0, bytes);
    return buffers->slots[which] != NULL;
}

static bool device_alloc(struct bench_buffers *buffers, enum bench_buffer which)
{
    buffers->slots[which] =
        bench_device_alloc(buffers->device, buffers->nslots * buffers->stride[which]);
    buffers->near[which] = bench_device_alloc_host(buffers->device, buffers->stride[which]);
    return buffers->slots[which] != NULL && buffers->near[which] != NULL;
}

bool bench_buffers_init(struct bench_buffers *buffers, const struct bench_options *opts,
    const struct bench_shape *largest, struct bench_device *device, MPI_Comm comm,
    struct bench_why *why)
{
    *buffers = (struct bench_buffers){.nslots = 1, .device = device, .off_cache = opts->off_cache};
    if (opts->off_cache == BENCH_WHOLE_CACHE)
        buffers->off_cache =
            device != NULL ? bench_device_cache_bytes(device) : bench_cache_bytes();
    buffers->stride[BENCH_SEND] = slot_bytes(largest->send_count, opts->type->bytes);
    buffers->stride[BENCH_RECV] = slot_bytes(largest->recv_space, opts->type->bytes);
    size_t pair = buffers->stride[BENCH_SEND] + buffers->stride[BENCH_RECV];
    if (buffers->off_cache > pair)
        buffers->nslots = (buffers->off_cache + pair - 1) / pair + 1;
    size_t need = buffers->nslots * pair;
    if (!is_room(buffers, largest->bytes, need, device != NULL ? pair : need, comm, why))
        return false;
    bool have = true;
    for (int which = BENCH_SEND; have && which <= BENCH_RECV; which++)
        have = device != NULL ? device_alloc(buffers, which) : host_alloc(buffers, which);
    if (!all_ranks(have, comm))
        return bench_complain(why,
            "a size of %zu bytes needs %zu bytes on each rank, and a rank did not get them",
            largest->bytes, need);
    return true;
}

void bench_buffers_fini(struct bench_buffers *buffers)
{
    for (int which = BENCH_SEND; which <= BENCH_RECV; which++) {
        if (buffers->device == NULL) {
            free(buffers->slots[which]);
            continue;
        }
        bench_device_free(buffers->device, buffers->slots[which]);
        bench_device_free_host(buffers->device, buffers->near[which]);
    }
    *buffers = (struct bench_buffers){0};
}

char *bench_buffers_slot(const struct bench_buffers *buffers, enum bench_buffer which, size_t slot)
{
    return buffers->slots[which] + slot * buffers->stride[which];
}

bool bench_buffers_store(
    const struct bench_buffers *buffers, enum bench_buffer which, size_t slot, size_t bytes)
{
    char *far = bench_buffers_slot(buffers, which, slot);
    if (buffers->device != NULL)
        return bench_device_store(buffers->device, far, buffers->near[which], bytes);
    if (far != buffers->near[which])
        memcpy(far, buffers->near[which], bytes);
    return true;
}

bool bench_buffers_fetch(
    const struct bench_buffers *buffers, enum bench_buffer which, size_t slot, size_t bytes)
{
    const char *far = bench_buffers_slot(buffers, which, slot);
    if (buffers->device != NULL)
        return bench_device_fetch(buffers->device, buffers->near[which], far, bytes);
    if (far != buffers->near[which])
        memcpy(buffers->near[which], far, bytes);
    return true;
}
