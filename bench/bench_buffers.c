/*
 * The buffers of a run: slots on pages of their own, so that neither side is lucky with alignment.
 *
 * With --off-cache there are so many slots that, used in turn, each is out of the cache when its turn comes. The
 * memory is compared with what the node has free before it is taken: a benchmark that brings its node to
 * swapping measures the swap, and one that is killed says nothing.
 */
#include "bench.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool bench_buffers_init(struct bench_buffers *buffers, const struct bench_options *opts,
    const struct bench_shape *largest, MPI_Comm comm, struct bench_why *why)
{
    *buffers = (struct bench_buffers){.nslots = 1};
    size_t bytes = opts->type->bytes;
    buffers->send_stride = slot_bytes(largest->send_count, bytes);
    buffers->recv_stride = slot_bytes(largest->recv_space, bytes);
    size_t pair = buffers->send_stride + buffers->recv_stride;
    if (opts->off_cache > pair)
        buffers->nslots = (opts->off_cache + pair - 1) / pair + 1;
    size_t need = buffers->nslots * pair;
    int ranks = node_ranks(comm);
    size_t available = memory_available();
    if (!all_ranks(need <= available / (size_t)ranks, comm))
        return bench_complain(why,
            "a size of %zu bytes needs %zu bytes on each of the ranks of a node, which has not so "
            "much memory free "
            "(this one: %d ranks, %zu bytes); use a smaller --message-size or --off-cache",
            largest->bytes, need, ranks, available);
    buffers->send = aligned_alloc(PAGE, buffers->nslots * buffers->send_stride);
    buffers->recv = aligned_alloc(PAGE, buffers->nslots * buffers->recv_stride);
    bool have = buffers->send != NULL && buffers->recv != NULL;
    if (have) {
        memset(buffers->send, 0, buffers->nslots * buffers->send_stride);
        memset(buffers->recv, 0, buffers->nslots * buffers->recv_stride);
    }
    if (!all_ranks(have, comm))
        return bench_complain(why,
            "a size of %zu bytes needs %zu bytes on each rank, and a rank did not get them",
            largest->bytes, need);
    return true;
}

void bench_buffers_fini(struct bench_buffers *buffers)
{
    free(buffers->send);
    free(buffers->recv);
    *buffers = (struct bench_buffers){0};
}
