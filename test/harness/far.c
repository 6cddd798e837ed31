/*
 * Far memory: see far.h.
 */
#include "test/harness/far.h"
#include "base/alloc.h"
#include <string.h>

#define FAR_BIT ((uintptr_t)1 << 62)
#define COPIES 64
#define PATIENCE 3 /* times that test() says no */

struct far_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct far_slot {
    struct far_copy copies[COPIES];
    int ncopies, asked;
};

struct far_stage {
    struct far_slot slots[TIARA_SLOTS];
    char *bounce;
    size_t bytes;
};

void *tiara_far(const void *near)
{
    return (void *)((uintptr_t)near | FAR_BIT);
}

static void *near_of(const void *far)
{
    return (void *)((uintptr_t)far & ~FAR_BIT);
}

static enum tiara_err far_open(void *s, const void *like)
{
    (void)s;
    return (uintptr_t)like & FAR_BIT ? TIARA_OK : TIARA_ERR_SYS;
}

static void far_close(void *s)
{
    tiara_free(((struct far_stage *)s)->bounce);
}

static void *far_bounce(void *s, size_t bytes)
{
    struct far_stage *f = s;

    if (bytes > f->bytes) {
        tiara_free(f->bounce);
        f->bounce = tiara_alloc_aligned(64, bytes);
        f->bytes = bytes;
    }
    return f->bounce;
}

static enum tiara_err add(struct far_stage *f, int slot, void *to, const void *from, size_t bytes)
{
    struct far_slot *at = &f->slots[slot];

    if (at->ncopies == COPIES)
        return TIARA_ERR_SYS;
    at->copies[at->ncopies++] = (struct far_copy){to, from, bytes};
    at->asked = 0;
    return TIARA_OK;
}

static enum tiara_err far_fetch(void *s, int slot, void *bounce, const void *from, size_t bytes)
{
    return (uintptr_t)from & FAR_BIT ? add(s, slot, bounce, near_of(from), bytes) : TIARA_ERR_SYS;
}

static enum tiara_err far_store(void *s, int slot, void *to, const void *bounce, size_t bytes)
{
    return (uintptr_t)to & FAR_BIT ? add(s, slot, near_of(to), bounce, bytes) : TIARA_ERR_SYS;
}

static enum tiara_err far_test(void *s, int slot, bool *done_out)
{
    struct far_slot *at = &((struct far_stage *)s)->slots[slot];

    *done_out = at->asked++ >= PATIENCE;
    for (int i = 0; *done_out && i < at->ncopies; i++)
        memcpy(at->copies[i].to, at->copies[i].from, at->copies[i].bytes);
    if (*done_out)
        at->ncopies = 0;
    return TIARA_OK;
}

const struct tiara_stage tiara_far_stage = {
    .name = "far",
    .size = sizeof(struct far_stage),
    .open = far_open,
    .close = far_close,
    .bounce = far_bounce,
    .fetch = far_fetch,
    .store = far_store,
    .test = far_test,
};
