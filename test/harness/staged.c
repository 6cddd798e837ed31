/*
 * Pretended device memory: see staged.h.
 */
#include "test/harness/staged.h"
#include "base/alloc.h"
#include <string.h>

#define DEVICE_BIT ((uintptr_t)1 << 62)
#define COPIES 64
#define PATIENCE 3 /* times that test() says no */

struct stage_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct stage_slot {
    struct stage_copy copies[COPIES];
    int ncopies, asked;
};

struct stage {
    struct stage_slot slots[TIARA_SLOTS];
    char *bounce;
    size_t bytes;
};

void *tiara_test_device(const void *host)
{
    return (void *)((uintptr_t)host | DEVICE_BIT);
}

static void *host_of(const void *device)
{
    return (void *)((uintptr_t)device & ~DEVICE_BIT);
}

static enum tiara_err stage_open(void *s, const void *like)
{
    (void)s;
    return (uintptr_t)like & DEVICE_BIT ? TIARA_OK : TIARA_ERR_SYS;
}

static void stage_close(void *s)
{
    tiara_free(((struct stage *)s)->bounce);
}

static void *stage_bounce(void *s, size_t bytes)
{
    struct stage *f = s;

    if (bytes > f->bytes) {
        tiara_free(f->bounce);
        f->bounce = tiara_alloc_aligned(64, bytes);
        f->bytes = bytes;
    }
    return f->bounce;
}

static enum tiara_err add(struct stage *f, int slot, void *to, const void *from, size_t bytes)
{
    struct stage_slot *at = &f->slots[slot];

    if (at->ncopies == COPIES)
        return TIARA_ERR_SYS;
    at->copies[at->ncopies++] = (struct stage_copy){to, from, bytes};
    at->asked = 0;
    return TIARA_OK;
}

static enum tiara_err stage_fetch(void *s, int slot, void *bounce, const void *from, size_t bytes)
{
    return (uintptr_t)from & DEVICE_BIT ? add(s, slot, bounce, host_of(from), bytes)
                                        : TIARA_ERR_SYS;
}

static enum tiara_err stage_store(void *s, int slot, void *to, const void *bounce, size_t bytes)
{
    return (uintptr_t)to & DEVICE_BIT ? add(s, slot, host_of(to), bounce, bytes) : TIARA_ERR_SYS;
}

static enum tiara_err stage_test(void *s, int slot, bool *done_out)
{
    struct stage_slot *at = &((struct stage *)s)->slots[slot];

    *done_out = at->asked++ >= PATIENCE;
    for (int i = 0; *done_out && i < at->ncopies; i++)
        memcpy(at->copies[i].to, at->copies[i].from, at->copies[i].bytes);
    if (*done_out)
        at->ncopies = 0;
    return TIARA_OK;
}

const struct tiara_stage tiara_test_stage = {
    .name = "test",
    .size = sizeof(struct stage),
    .open = stage_open,
    .close = stage_close,
    .bounce = stage_bounce,
    .fetch = stage_fetch,
    .store = stage_store,
    .test = stage_test,
};
