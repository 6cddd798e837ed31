/*
 * A node's segments: taken, exchanged, mapped, probed, and agreed upon.
 *
 * The one idea: what a driver says about access between GPUs is not believed. Each rank writes into
 * each segment that it has mapped a word that names both ends, and reads the word that the owner
 * wrote there; the owner says what arrived. Two ranks reach each other when all four worked, and
 * the matrix of that, equal on all ranks, decides about the links.
 *
 * In the call line of rank f in the segment of rank t (tiara_kernel_call_at(f)), while the probe
 * runs:
 *
 *     word  writer                          reader
 *     0     f, by kernel, through mapping   t, by a copy: did it arrive; when f is t: also all who
 *                                           have it mapped
 *     1     t, by kernel, after it read     t, by a copy
 *           word 0 of f's own line in
 *           f's segment
 *
 * Between writing, reading and zeroing stand exchanges, so that nobody looks too early or clears
 * too soon. All words are zero at the end.
 */
#include "gpu/segment.h"
#include "gpu/cuda.h"
#include "gpu/current.h"
#include "base/log.h"

#include <string.h>

/* What follows what in the pinned block. */
#define ABORT_BYTES TIARA_KERNEL_LINE
#define STATUS_BYTES (TIARA_KERNEL_BLOCKS * sizeof(struct tiara_kernel_status))
#define LINES_BYTES ((size_t)TIARA_KERNEL_PEERS * TIARA_KERNEL_LINE)
#define PINNED_BYTES (ABORT_BYTES + STATUS_BYTES + LINES_BYTES)

#define PROBE_NS 1000000000u /* longest wait for a word that is there already */

#define GOT 1u /* the peer's word arrived in the own segment */
#define READ 2u /* the peer's own word was read through the mapping */

/* What a rank tells about its segment. */
struct card {
    cudaIpcMemHandle_t handle;
    char pci[32]; /* of its device */
};

/* What a rank found out about all others. */
struct row {
    uint8_t err; /* enum tiara_err */
    uint8_t found[TIARA_KERNEL_PEERS]; /* GOT, READ */
};

struct opening {
    struct tiara_gpu_segments *s;
    const struct tiara_xport_group *group;
    cudaStream_t stream;
    uint64_t *lines; /* pinned copy of the own call lines */
    struct card card, cards[TIARA_KERNEL_PEERS];
    struct row row, rows[TIARA_KERNEL_PEERS];
    uint16_t reach[TIARA_KERNEL_PEERS]; /* as tiara_gpu_links_find has it */
};

/* Another way exists for all failures here: memory goes through the host. */
static enum tiara_err check(cudaError_t code, const char *call)
{
    enum tiara_err err = tiara_gpu_try(code, call);

    return err == TIARA_ERR_NOMEM ? TIARA_ERR_NOSPACE : err;
}

static enum tiara_err sync_stream(struct opening *o)
{
    return check(cudaStreamSynchronize(o->stream), "cudaStreamSynchronize");
}

/* ---- own memory ---- */

static enum tiara_err pinned_take(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    char *pinned = NULL;
    void *device = NULL;
    enum tiara_err err = check(
        cudaHostAlloc((void **)&pinned, PINNED_BYTES, cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");

    if (err != TIARA_OK)
        return err;
    memset(pinned, 0, PINNED_BYTES);
    s->abort = (uint32_t *)(void *)pinned;
    s->status = (struct tiara_kernel_status *)(void *)(pinned + ABORT_BYTES);
    o->lines = (uint64_t *)(void *)(pinned + ABORT_BYTES + STATUS_BYTES);
    err = check(cudaHostGetDevicePointer(&device, pinned, 0), "cudaHostGetDevicePointer");
    if (err != TIARA_OK)
        return err;
    s->guard.abort = device;
    s->guard.status = (struct tiara_kernel_status *)(void *)((char *)device + ABORT_BYTES);
    return TIARA_OK;
}

/* The segment, zeroed, and the kernels' memory behind it. */
static enum tiara_err device_take(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    size_t segment_bytes = tiara_kernel_segment_bytes(s->cell_bytes);
    size_t bytes = segment_bytes + sizeof *s->memory;
    void *whole = NULL;
    enum tiara_err err = check(cudaMalloc(&whole, bytes), "cudaMalloc");

    if (err != TIARA_OK)
        return err;
    s->segment[s->index] = whole;
    s->memory = (struct tiara_kernel_memory *)(void *)((char *)whole + segment_bytes);
    err = check(cudaMemsetAsync(whole, 0, bytes, o->stream), "cudaMemsetAsync");
    return err == TIARA_OK ? sync_stream(o) : err;
}

/* Also makes the card. A rank alone on its node shows its segment to nobody, so that it works where
 * there is no IPC. */
static enum tiara_err own_take(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err;

    err = check(
        cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (err == TIARA_OK)
        err = pinned_take(o);
    if (err == TIARA_OK)
        err = device_take(o);
    if (err != TIARA_OK || s->size == 1)
        return err;
    err = check(cudaDeviceGetPCIBusId(o->card.pci, (int)sizeof o->card.pci, s->ordinal),
        "cudaDeviceGetPCIBusId");
    if (err == TIARA_OK)
        err = check(
            cudaIpcGetMemHandle(&o->card.handle, s->segment[s->index]), "cudaIpcGetMemHandle");
    return err;
}

static void own_free(struct tiara_gpu_segments *s)
{
    /* No error changes what is to be done next. */
    enum tiara_err err = TIARA_OK;

    if (s->segment[s->index] != NULL)
        err = check(cudaFree(s->segment[s->index]), "cudaFree");
    if (s->abort != NULL)
        err = tiara_err_first(err, check(cudaFreeHost(s->abort), "cudaFreeHost"));
    if (err != TIARA_OK)
        tiara_debug("memory of a node's GPU segment is lost");
}

/* ---- peers ---- */

/* The ordinal of @card's device in this process; -1: it is hidden. */
static int card_device(const struct card *card)
{
    int count = 0;

    if (tiara_gpu_try(cudaGetDeviceCount(&count), "cudaGetDeviceCount") != TIARA_OK)
        return -1;
    for (int device = 0; device < count; device++) {
        char pci[sizeof card->pci] = "";

        if (tiara_gpu_try(cudaDeviceGetPCIBusId(pci, (int)sizeof pci, device),
                "cudaDeviceGetPCIBusId") == TIARA_OK &&
            strcmp(pci, card->pci) == 0)
            return device;
    }
    return -1;
}

/* Whether the driver says that @card's device can be reached. Of a hidden one, only mapping its
 * memory will tell. */
static bool is_accessible(const struct tiara_gpu_segments *s, const struct card *card)
{
    int device = card_device(card), can = 0;

    if (device < 0 || device == s->ordinal)
        return true;
    return tiara_gpu_try(cudaDeviceCanAccessPeer(&can, s->ordinal, device),
               "cudaDeviceCanAccessPeer") == TIARA_OK &&
           can != 0;
}

/* A peer that cannot be mapped is out of reach, and no error yet. */
static void peer_map(struct opening *o, int peer)
{
    struct tiara_gpu_segments *s = o->s;
    const struct card *card = &o->cards[peer];
    void *at = NULL;

    if (!is_accessible(s, card))
        tiara_info("device %s has no access to device %s", o->card.pci, card->pci);
    else if (tiara_gpu_try(cudaIpcOpenMemHandle(&at, card->handle, cudaIpcMemLazyEnablePeerAccess),
                 "cudaIpcOpenMemHandle") == TIARA_OK)
        s->segment[peer] = at;
}

static void peer_unmap(struct tiara_gpu_segments *s, int peer)
{
    if (peer != s->index && s->segment[peer] != NULL &&
        tiara_gpu_try(cudaIpcCloseMemHandle(s->segment[peer]), "cudaIpcCloseMemHandle") != TIARA_OK)
        tiara_debug("the mapping of peer %d is lost", peer);
    if (peer != s->index)
        s->segment[peer] = NULL;
}

/* ---- the probe ---- */

/* Never 0, and another number for every pair and word. */
static uint64_t probe_value(int from, int to, int word)
{
    return UINT64_C(0x7469617261000000) | (uint64_t)word << 16 | (uint64_t)from << 8 | (uint64_t)to;
}

static uint64_t *line_at(const struct tiara_gpu_segments *s, int owner, int from)
{
    return (uint64_t *)(void *)(s->segment[owner] + tiara_kernel_call_at(from));
}

static enum tiara_err probe_launch(struct opening *o, struct tiara_kernel_probe_args *args)
{
    const dim3 one = {1, 1, 1};
    void *list[] = {args};

    args->guard = o->s->guard;
    args->guard.spin_ns = PROBE_NS;
    return check(cudaLaunchKernel((const void *)tiara_kernel_probe, one, one, list, 0, o->stream),
        "cudaLaunchKernel");
}

/* Into every segment within reach, the own one too. */
static enum tiara_err words_write(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err = TIARA_OK;

    for (int peer = 0; peer < s->size && err == TIARA_OK; peer++) {
        struct tiara_kernel_probe_args args = {.value = probe_value(s->index, peer, 0)};

        if (s->segment[peer] == NULL)
            continue;
        args.word = line_at(s, peer, s->index);
        err = probe_launch(o, &args);
    }
    return err == TIARA_OK ? sync_stream(o) : err;
}

/* Through the mapping of @peer; the kernel writes word 1 when it has read what it should. */
static enum tiara_err word_read(struct opening *o, int peer)
{
    struct tiara_gpu_segments *s = o->s;
    struct tiara_kernel_probe_args args = {.word = line_at(s, s->index, peer) + 1,
        .value = probe_value(peer, s->index, 1),
        .expect_at = line_at(s, peer, peer),
        .expect = probe_value(peer, peer, 0)};
    enum tiara_err err = probe_launch(o, &args);

    if (err == TIARA_OK)
        err = sync_stream(o);
    memset(s->status, 0, STATUS_BYTES);
    return err;
}

/* Reads what peers wrote and what the mappings show, into the own row. */
static enum tiara_err row_make(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err = TIARA_OK;

    for (int peer = 0; peer < s->size && err == TIARA_OK; peer++) {
        if (s->segment[peer] != NULL)
            err = word_read(o, peer);
    }
    if (err == TIARA_OK)
        err = check(cudaMemcpyAsync(o->lines, s->segment[s->index] + TIARA_KERNEL_CALLS_AT,
                        LINES_BYTES, cudaMemcpyDeviceToHost, o->stream),
            "cudaMemcpyAsync");
    if (err == TIARA_OK)
        err = sync_stream(o);
    for (int peer = 0; peer < s->size && err == TIARA_OK; peer++) {
        const uint64_t *line = o->lines + tiara_kernel_call_at(peer) / sizeof *o->lines;

        o->row.found[peer] = (uint8_t)((line[0] == probe_value(peer, s->index, 0) ? GOT : 0) |
                                       (line[1] == probe_value(peer, s->index, 1) ? READ : 0));
    }
    if (err == TIARA_OK && o->row.found[s->index] != (GOT | READ)) {
        tiara_info("device %d does not see what its own kernels write", s->ordinal);
        err = TIARA_ERR_SYS;
    }
    return err;
}

static enum tiara_err lines_clear(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err = check(
        cudaMemsetAsync(s->segment[s->index] + TIARA_KERNEL_CALLS_AT, 0, LINES_BYTES, o->stream),
        "cudaMemsetAsync");

    return err == TIARA_OK ? sync_stream(o) : err;
}

/* ---- the links ---- */

/* Exchanges the rows; the first error in them is everybody's. */
static enum tiara_err rows_exchange(struct opening *o)
{
    int size = o->s->size;
    enum tiara_err err = o->group->allgather(o->group->arg, &o->row, o->rows, sizeof o->row);

    for (int a = 0; a < size && err == TIARA_OK; a++)
        err = (enum tiara_err)o->rows[a].err;
    for (int a = 0; a < size && err == TIARA_OK; a++) {
        for (int b = 0; b < size; b++) {
            if (o->rows[a].found[b] == (GOT | READ) && o->rows[b].found[a] == (GOT | READ))
                o->reach[a] |= (uint16_t)(1u << b);
        }
    }
    return err;
}

/* One rank says for all which pair is the first that cannot, and whether its driver had promised
 * that it can. */
static void pair_report(const struct opening *o)
{
    for (int a = 0; a < o->s->size; a++) {
        for (int b = a + 1; b < o->s->size; b++) {
            if ((o->reach[a] >> b & 1) != 0)
                continue;
            tiara_info("ranks %d and %d of the node (devices %s and %s) do not reach each other's "
                       "memory, and there is no ring of links without them",
                a, b, o->cards[a].pci, o->cards[b].pci);
            return;
        }
    }
}

static enum tiara_err links_agree(struct opening *o)
{
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err = tiara_gpu_links_find(o->reach, s->size, &s->links, s->order);

    if (err == TIARA_ERR_UNSUPPORTED && s->index == 0)
        pair_report(o);
    for (int peer = 0; peer < s->size; peer++) {
        if ((o->reach[s->index] >> peer & 1) == 0)
            peer_unmap(s, peer);
    }
    if (err == TIARA_OK)
        err = lines_clear(o);
    return tiara_xport_agree(o->group, err);
}

/* ---- open and close ---- */

static enum tiara_err open_steps(struct opening *o)
{
    const struct tiara_xport_group *group = o->group;
    struct tiara_gpu_segments *s = o->s;
    enum tiara_err err = tiara_xport_agree(group, own_take(o));

    if (err == TIARA_OK)
        err = group->allgather(group->arg, &o->card, o->cards, sizeof o->card);
    if (err != TIARA_OK)
        return err;
    for (int peer = 0; peer < s->size; peer++) {
        if (peer != s->index)
            peer_map(o, peer);
    }
    err = tiara_xport_agree(group, words_write(o));
    if (err != TIARA_OK)
        return err;
    o->row.err = (uint8_t)row_make(o);
    err = rows_exchange(o);
    return err == TIARA_OK ? links_agree(o) : err;
}

enum tiara_err tiara_gpu_segments_open(
    struct tiara_gpu_segments *s, const struct tiara_gpu_node_params *params)
{
    struct opening o = {.s = s, .group = params->group};
    enum tiara_err err;
    int previous;

    memset(s, 0, sizeof *s);
    s->ordinal = params->ordinal;
    s->index = params->group->rank;
    s->size = params->group->size;
    s->cell_bytes = params->cell_bytes;
    s->guard.spin_ns = (uint64_t)(params->spin_s * 1e9);
    if (s->size > TIARA_KERNEL_PEERS) {
        tiara_debug(
            "%d ranks on a node, of which GPUs link at most %d", s->size, TIARA_KERNEL_PEERS);
        memset(s, 0, sizeof *s);
        return TIARA_ERR_UNSUPPORTED;
    }
    previous = tiara_gpu_enter(s->ordinal);
    err = open_steps(&o);
    if (o.stream != NULL && check(cudaStreamDestroy(o.stream), "cudaStreamDestroy") != TIARA_OK)
        tiara_debug("a stream is lost");
    tiara_gpu_leave(previous);
    if (err != TIARA_OK)
        tiara_gpu_segments_close(s);
    return err;
}

void tiara_gpu_segments_unmap(struct tiara_gpu_segments *s)
{
    int previous = tiara_gpu_enter(s->ordinal);

    for (int peer = 0; peer < s->size; peer++)
        peer_unmap(s, peer);
    tiara_gpu_leave(previous);
}

void tiara_gpu_segments_close(struct tiara_gpu_segments *s)
{
    int previous;

    if (s->size == 0)
        return;
    tiara_gpu_segments_unmap(s);
    previous = tiara_gpu_enter(s->ordinal);
    own_free(s);
    tiara_gpu_leave(previous);
    memset(s, 0, sizeof *s);
}
