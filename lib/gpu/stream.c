/*
 * Streams of the caller: whether one is being captured, and gates, which hold a stream until the
 * host lets it go on.
 *
 * A gate is an event, which tells the host that the stream has come this far, and behind it a
 * kernel of one thread that reads a word of pinned memory until the host has written it. Gates are
 * taken and left for each call, and must not cost an allocation each time; and the kernel reads its
 * word after pass() returned. So gates are kept in a list for the whole process, and one that was
 * passed is used again when its kernel is over.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/sync.h"
#include "gpu/current.h"
#include "gpu/node.h"
#include <pthread.h>

/* ---- scopes ---- */

struct tiara_gpu_scope tiara_gpu_scope_enter(int ordinal)
{
    struct tiara_gpu_scope s = {.previous = tiara_gpu_enter(ordinal)};

    s.mode = cudaStreamCaptureModeRelaxed;
    if (tiara_gpu_try(cudaThreadExchangeStreamCaptureMode(&s.mode),
            "cudaThreadExchangeStreamCaptureMode") != TIARA_OK)
        s.mode = cudaStreamCaptureModeRelaxed;
    return s;
}

void tiara_gpu_scope_leave(struct tiara_gpu_scope *scope)
{
    if (scope->mode != cudaStreamCaptureModeRelaxed &&
        tiara_gpu_try(cudaThreadExchangeStreamCaptureMode(&scope->mode),
            "cudaThreadExchangeStreamCaptureMode") != TIARA_OK)
        tiara_debug("captures of this thread stay relaxed");
    tiara_gpu_leave(scope->previous);
}

/* ---- gates ---- */

/* Pinned memory of a gate, zeroed. */
struct line {
    _Alignas(TIARA_LINE) tiara_u64 open; /* written by the host */
    _Alignas(TIARA_LINE) uint32_t abort; /* stays 0 */
    _Alignas(TIARA_LINE) uint64_t passed; /* written by the kernel; for nobody */
    _Alignas(TIARA_LINE) struct tiara_kernel_status status;
};

struct gate {
    struct gate *next;
    int ordinal;
    bool held; /* from gate() to pass(), and for ever when nothing tells the end of its kernel */
    struct line *line; /* as the host sees it */
    char *device_line;
    cudaEvent_t reached, over; /* in front of the kernel, and behind it */
};

/* All gates of the process; guarded by the lock. */
static struct {
    pthread_mutex_t lock;
    struct gate *first;
} gates = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void gate_destroy(struct gate *g)
{
    enum tiara_err err = TIARA_OK;

    if (g->reached)
        err = tiara_gpu_ok(cudaEventDestroy(g->reached), "cudaEventDestroy");
    if (g->over)
        err = tiara_err_first(err, tiara_gpu_ok(cudaEventDestroy(g->over), "cudaEventDestroy"));
    if (g->line)
        err = tiara_err_first(err, tiara_gpu_ok(cudaFreeHost(g->line), "cudaFreeHost"));
    if (err != TIARA_OK)
        tiara_debug("a part of a gate is left");
    tiara_free(g);
}

/*
 * Makes what @g lacks; the device is current. After an error the rest is kept, for the next try:
 * CUDA waits for all streams to free memory, also for those that are held back by other gates,
 * which could not be passed meanwhile.
 */
static enum tiara_err gate_complete(struct gate *g)
{
    void *line = g->line, *device_line = g->device_line;
    enum tiara_err err = TIARA_OK;

    if (!g->line)
        err = tiara_gpu_ok(
            cudaHostAlloc(&line, sizeof(*g->line), cudaHostAllocMapped), "cudaHostAlloc");
    g->line = line;
    if (err == TIARA_OK && !g->device_line)
        err = tiara_gpu_ok(
            cudaHostGetDevicePointer(&device_line, line, 0), "cudaHostGetDevicePointer");
    g->device_line = device_line;
    if (err == TIARA_OK && !g->reached)
        err = tiara_gpu_ok(cudaEventCreateWithFlags(&g->reached, cudaEventDisableTiming),
            "cudaEventCreateWithFlags");
    if (err == TIARA_OK && !g->over)
        err = tiara_gpu_ok(
            cudaEventCreateWithFlags(&g->over, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return err;
}

/* Whether nobody holds @g, and its kernel is over. */
static bool is_free(const struct gate *g)
{
    bool over = true;

    return !g->held && (!g->over || tiara_gpu_event_test(g->over, &over) == TIARA_OK) && over;
}

static struct gate *gate_new(int ordinal)
{
    struct gate *g = tiara_alloc(1, sizeof(*g));

    if (g) {
        *g = (struct gate){.next = gates.first, .ordinal = ordinal};
        gates.first = g;
    }
    return g;
}

/* A gate of the list, or a new one in it. */
static enum tiara_err take(int ordinal, struct gate **gate_out)
{
    struct gate *g;
    enum tiara_err err;

    pthread_mutex_lock(&gates.lock);
    for (g = gates.first; g && !(g->ordinal == ordinal && is_free(g));)
        g = g->next;
    if (!g)
        g = gate_new(ordinal);
    err = g ? gate_complete(g) : TIARA_ERR_NOMEM;
    if (err == TIARA_OK) {
        g->held = true;
        *g->line = (struct line){.open = 0};
        *gate_out = g;
    }
    pthread_mutex_unlock(&gates.lock);
    return err;
}

static void leave(struct gate *g)
{
    pthread_mutex_lock(&gates.lock);
    g->held = false;
    pthread_mutex_unlock(&gates.lock);
}

/* The kernel that reads the word until it is 1. */
static enum tiara_err launch(const struct gate *g, cudaStream_t stream)
{
    char *at = g->device_line;
    struct tiara_kernel_probe_args args = {
        .word = (uint64_t *)(void *)(at + offsetof(struct line, passed)),
        .value = 1,
        .expect_at = (const uint64_t *)(const void *)(at + offsetof(struct line, open)),
        .expect = 1,
        .guard = {.abort = (const uint32_t *)(const void *)(at + offsetof(struct line, abort)),
            .status = (struct tiara_kernel_status *)(void *)(at + offsetof(struct line, status))}};
    dim3 one = {1, 1, 1};
    void *params[] = {&args};

    return tiara_gpu_ok(
        cudaLaunchKernel((const void *)tiara_kernel_probe, one, one, params, 0, stream),
        "cudaLaunchKernel");
}

static void open_gate(struct gate *g)
{
    /* [gpu.gate] release: what the host did before is over when the stream goes on. */
    tiara_store_release(&g->line->open, 1);
}

static void stream_pass(void *gate)
{
    open_gate(gate);
    leave(gate);
}

static enum tiara_err stream_gate(void *stream, int ordinal, void **gate_out)
{
    struct tiara_gpu_scope scope = tiara_gpu_scope_enter(ordinal);
    struct gate *g = NULL;
    enum tiara_err err = take(ordinal, &g);
    bool launched = false;

    if (err == TIARA_OK) {
        err = tiara_gpu_ok(cudaEventRecord(g->reached, stream), "cudaEventRecord");
        if (err == TIARA_OK)
            err = launch(g, stream);
        launched = err == TIARA_OK;
        if (launched)
            err = tiara_gpu_ok(cudaEventRecord(g->over, stream), "cudaEventRecord");
        if (err != TIARA_OK)
            open_gate(g);
        if (!launched)
            leave(g);
    }
    if (err == TIARA_OK)
        *gate_out = g;
    tiara_gpu_scope_leave(&scope);
    return err;
}

static enum tiara_err stream_reached(void *gate, bool *yes_out)
{
    const struct gate *g = gate;
    struct tiara_gpu_scope scope = tiara_gpu_scope_enter(g->ordinal);
    enum tiara_err err = tiara_gpu_event_test(g->reached, yes_out);

    tiara_gpu_scope_leave(&scope);
    return err;
}

static enum tiara_err stream_copy(void *stream, void *dst, const void *src, size_t bytes)
{
    return tiara_gpu_ok(
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}

static enum tiara_err stream_capturing(void *stream, bool *yes_out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    enum tiara_err err =
        tiara_gpu_ok(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");

    *yes_out = status != cudaStreamCaptureStatusNone;
    return err;
}

void tiara_gpu_stream_close(void)
{
    struct gate **at = &gates.first;

    pthread_mutex_lock(&gates.lock);
    while (*at) {
        struct gate *g = *at;

        if (is_free(g)) {
            *at = g->next;
            gate_destroy(g);
        } else {
            at = &g->next;
        }
    }
    pthread_mutex_unlock(&gates.lock);
}

const struct tiara_gpu_stream_ops tiara_gpu_stream = {
    .capturing = stream_capturing,
    .gate = stream_gate,
    .reached = stream_reached,
    .pass = stream_pass,
    .copy = stream_copy,
};
