/*
 * Copies between host and GPU memory, in pieces through a communicator's pinned memory.
 */
#include "call/stage.h"
#include "base/alloc.h"
#include <string.h>

/* Bytes of a piece. */
#define PIECE ((size_t)1 << 20)

enum tiara_err tiara_stage_open(struct tiara_comm *c, const void *like)
{
    const struct tiara_gpu *gpu = tiara_device();
    enum tiara_err err;

    if (c->device.staging)
        return TIARA_OK;
    if (!c->exec.stage_obj)
        c->exec.stage_obj = tiara_alloc(1, gpu->stage->size);
    if (!c->exec.stage_obj)
        return TIARA_ERR_NOMEM;
    c->exec.stage = gpu->stage;
    err = gpu->stage->open(c->exec.stage_obj, like);
    c->device.staging = err == TIARA_OK;
    return err;
}

void tiara_stage_close(struct tiara_comm *c)
{
    if (c->exec.stage_obj)
        c->exec.stage->close(c->exec.stage_obj);
    tiara_free(c->exec.stage_obj);
    c->exec.stage_obj = NULL;
}

struct copies {
    const struct tiara_stage *stage;
    void *obj;
    enum tiara_err err;
};

static bool are_done(void *arg, struct tiara_wait_on *on)
{
    struct copies *s = arg;
    bool done = false;

    on->word = NULL;
    s->err = s->stage->test(s->obj, 0, &done);
    return done || s->err != TIARA_OK;
}

/* Waits for the copies of slot 0. */
static enum tiara_err await_copies(struct tiara_comm *c)
{
    struct tiara_wait patient = {.yields = -1};
    struct copies copies = {c->exec.stage, c->exec.stage_obj, TIARA_OK};
    enum tiara_err err = tiara_wait(&patient, are_done, &copies);

    return tiara_err_first(err, copies.err);
}

enum tiara_err tiara_stage_copy(
    struct tiara_comm *c, void *dst, const void *src, size_t bytes, bool to_device)
{
    enum tiara_err err = tiara_stage_open(c, to_device ? dst : src);
    const struct tiara_stage *stage = c->exec.stage;
    void *obj = c->exec.stage_obj;
    char *pinned = NULL;

    if (err == TIARA_OK) {
        pinned = stage->bounce(obj, bytes < PIECE ? bytes : PIECE);
        err = pinned ? TIARA_OK : TIARA_ERR_NOMEM;
    }
    for (size_t at = 0; at < bytes && err == TIARA_OK; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        if (to_device)
            memcpy(pinned, (const char *)src + at, n);
        err = to_device ? stage->store(obj, 0, (char *)dst + at, pinned, n)
                        : stage->fetch(obj, 0, pinned, (const char *)src + at, n);
        if (err == TIARA_OK)
            err = await_copies(c);
        if (err == TIARA_OK && !to_device)
            memcpy((char *)dst + at, pinned, n);
    }
    return err;
}
