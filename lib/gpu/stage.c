/*
 * Staging of CUDA device memory: chunks to pinned host memory and back.
 *
 * The one idea: a stream for each direction, so that one chunk comes while another goes, and an
 * event for each slot and direction, so that only what a slot needs is waited for, never the
 * device. The copies of a slot in one direction are in one stream, and so in order; one that goes
 * starts only after the executor has seen the one that came.
 */
#include "gpu/gpu.h"
#include "gpu/cuda.h"
#include "gpu/current.h"
#include "gpu/pointer.h"
#include "base/alloc.h"
#include "base/log.h"

#include <string.h>

enum way {
    FETCH,
    STORE,
    NWAY
};

struct stage {
    bool is_open; /* ordinal is known */
    int ordinal;
    cudaStream_t stream[NWAY];
    cudaEvent_t event[NWAY][TIARA_SLOTS];
    bool is_pending[NWAY][TIARA_SLOTS]; /* a copy was started, and its event not seen yet */
    void *bounce; /* pinned, if there is such memory */
    bool is_pageable;
    size_t bounce_bytes;
};

static enum tiara_err way_open(struct stage *s, enum way way)
{
    enum tiara_err err =
        tiara_gpu_ok(cudaStreamCreateWithFlags(&s->stream[way], cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");

    for (int slot = 0; slot < TIARA_SLOTS && err == TIARA_OK; slot++)
        err = tiara_gpu_ok(cudaEventCreateWithFlags(&s->event[way][slot], cudaEventDisableTiming),
            "cudaEventCreateWithFlags");
    return err;
}

static enum tiara_err stage_open(void *obj, const void *like)
{
    struct stage *s = obj;
    struct tiara_gpu_pointer pointer;
    enum tiara_err err = tiara_gpu_pointer_look(like, 1, &pointer);
    int previous;

    if (err == TIARA_OK && !pointer.device) {
        tiara_error("%p is no device memory, and needs no staging", like);
        err = TIARA_ERR_ARG;
    }
    if (err != TIARA_OK)
        return err == TIARA_ERR_ARG ? TIARA_ERR_SYS : err;
    s->ordinal = pointer.ordinal;
    s->is_open = true;
    previous = tiara_gpu_enter(s->ordinal);
    for (int way = 0; way < NWAY && err == TIARA_OK; way++)
        err = way_open(s, (enum way)way);
    tiara_gpu_leave(previous);
    return err;
}

/* Its copies have ended when it returns. */
static enum tiara_err way_close(struct stage *s, enum way way)
{
    enum tiara_err err = TIARA_OK;

    if (s->stream[way] != NULL) {
        err = tiara_gpu_try(cudaStreamSynchronize(s->stream[way]), "cudaStreamSynchronize");
        err = tiara_err_first(
            err, tiara_gpu_try(cudaStreamDestroy(s->stream[way]), "cudaStreamDestroy"));
    }
    for (int slot = 0; slot < TIARA_SLOTS; slot++) {
        if (s->event[way][slot] != NULL)
            err = tiara_err_first(
                err, tiara_gpu_try(cudaEventDestroy(s->event[way][slot]), "cudaEventDestroy"));
    }
    return err;
}

static enum tiara_err bounce_free(struct stage *s)
{
    void *bounce = s->bounce;

    s->bounce = NULL;
    s->bounce_bytes = 0;
    if (s->is_pageable) {
        tiara_free(bounce);
        return TIARA_OK;
    }
    return bounce != NULL ? tiara_gpu_try(cudaFreeHost(bounce), "cudaFreeHost") : TIARA_OK;
}

static void stage_close(void *obj)
{
    struct stage *s = obj;
    enum tiara_err err = TIARA_OK;
    int previous;

    if (!s->is_open)
        return;
    previous = tiara_gpu_enter(s->ordinal);
    for (int way = 0; way < NWAY; way++)
        err = tiara_err_first(err, way_close(s, (enum way)way));
    err = tiara_err_first(err, bounce_free(s));
    tiara_gpu_leave(previous);
    if (err != TIARA_OK)
        tiara_debug("parts of a stage are lost");
    memset(s, 0, sizeof *s);
}

static void *stage_bounce(void *obj, size_t bytes)
{
    struct stage *s = obj;
    enum tiara_err err;
    int previous;

    if (bytes <= s->bounce_bytes)
        return s->bounce;
    previous = tiara_gpu_enter(s->ordinal);
    err = bounce_free(s);
    if (err == TIARA_OK)
        err =
            tiara_gpu_try(cudaHostAlloc(&s->bounce, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    tiara_gpu_leave(previous);
    s->is_pageable = err != TIARA_OK;
    if (s->is_pageable) {
        tiara_warn(
            "no pinned memory: %zu bytes of GPU buffers go through ordinary memory, slowly", bytes);
        s->bounce = tiara_alloc_aligned(4096, bytes);
    }
    if (s->bounce == NULL)
        return NULL;
    s->bounce_bytes = bytes;
    return s->bounce;
}

static enum tiara_err copy_start(
    struct stage *s, enum way way, int slot, void *to, const void *from, size_t bytes)
{
    enum cudaMemcpyKind kind = way == FETCH ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    int previous;
    enum tiara_err err;

    if (bytes == 0)
        return TIARA_OK;
    previous = tiara_gpu_enter(s->ordinal);
    err = tiara_gpu_ok(cudaMemcpyAsync(to, from, bytes, kind, s->stream[way]), "cudaMemcpyAsync");
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaEventRecord(s->event[way][slot], s->stream[way]), "cudaEventRecord");
    if (err == TIARA_OK)
        s->is_pending[way][slot] = true;
    tiara_gpu_leave(previous);
    return err;
}

static enum tiara_err stage_fetch(void *obj, int slot, void *bounce, const void *from, size_t bytes)
{
    return copy_start(obj, FETCH, slot, bounce, from, bytes);
}

static enum tiara_err stage_store(void *obj, int slot, void *to, const void *bounce, size_t bytes)
{
    return copy_start(obj, STORE, slot, to, bounce, bytes);
}

static enum tiara_err stage_test(void *obj, int slot, bool *done_out)
{
    struct stage *s = obj;

    *done_out = true;
    for (int way = 0; way < NWAY && *done_out; way++) {
        enum tiara_err err;

        if (!s->is_pending[way][slot])
            continue;
        err = tiara_gpu_event_test(s->event[way][slot], done_out);
        if (err != TIARA_OK)
            return err;
        s->is_pending[way][slot] = !*done_out;
    }
    return TIARA_OK;
}

const struct tiara_stage tiara_gpu_stage = {
    .name = "cuda",
    .size = sizeof(struct stage),
    .open = stage_open,
    .close = stage_close,
    .bounce = stage_bounce,
    .fetch = stage_fetch,
    .store = stage_store,
    .test = stage_test,
};
