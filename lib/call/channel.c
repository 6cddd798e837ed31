/*
 * Channels: parts of shared arenas (channel.h).
 *
 * Which parts are free is each rank's own to say, since requests are freed locally, at different
 * times; a new channel takes what all ranks have free.
 */
#include "call/channel.h"
#include "base/alloc.h"
#include "call/async.h"
#include "comm/agree.h"
#include <pthread.h>

struct tiara_segment {
    struct tiara_comm *twin;
    uint64_t taken; /* mask of units; lock */
    bool orphan; /* lock: the communicator is freed */
    struct tiara_segment *next; /* of the communicator's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t mask_of(int first, int nunits)
{
    return (UINT64_MAX >> (TIARA_POSTED_UNITS - nunits)) << first;
}

/* The first of @nunits units in a row that are in @free; negative: there are none. */
static int find(uint64_t free, int nunits)
{
    for (int first = 0; first + nunits <= TIARA_POSTED_UNITS; first++)
        if ((~free & mask_of(first, nunits)) == 0)
            return first;
    return -1;
}

/* Changes what is taken of @s, and frees it when nobody needs it any more. Returns the free units.
 * */
static uint64_t update(struct tiara_segment *s, uint64_t take, uint64_t give, bool part)
{
    uint64_t free;
    bool unused;

    pthread_mutex_lock(&lock);
    s->taken = (s->taken | take) & ~give;
    s->orphan |= part;
    free = ~s->taken;
    unused = s->orphan && s->taken == 0;
    pthread_mutex_unlock(&lock);
    if (unused) {
        tiara_comm_free(s->twin);
        tiara_free(s);
    }
    return free;
}

bool tiara_channel_fits(const struct tiara_comm *c, const struct tiara_call *call)
{
    return c->layout.nnodes == 1 &&
           call->count * call->elem.size <= tiara_tune_small_max(&c->facts);
}

/* A new segment at the end of the communicator's, on all ranks or none (then *s_out is NULL). */
static enum tiara_err segment_new(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_segment **s_out)
{
    struct tiara_segment *s = tiara_alloc(1, sizeof(*s)), **end = &c->segments;
    enum tiara_err err = tiara_async_make(c, like, true, s != NULL, s ? &s->twin : NULL);

    *s_out = NULL;
    if (err != TIARA_OK || !s || !s->twin) {
        tiara_free(s);
        return err;
    }
    while (*end)
        end = &(*end)->next;
    *s_out = *end = s;
    return TIARA_OK;
}

/* A channel in @s; none when there is no part of it that is free on all ranks. */
static enum tiara_err open_in(
    struct tiara_comm *c, struct tiara_segment *s, int nunits, struct tiara_channel *channel_out)
{
    uint64_t mine = tiara_comm_serves(s->twin) ? update(s, 0, 0, false) : 0, common = 0;
    enum tiara_err err = tiara_agree_setup(c->comm, mine, &common);
    int first = find(common, nunits);

    if (err != TIARA_OK || first < 0)
        return err;
    *channel_out = (struct tiara_channel){
        s, s->twin, tiara_posted_part(first, nunits), mask_of(first, nunits)};
    update(s, channel_out->units, 0, false);
    tiara_posted_clear(s->twin->arena, &channel_out->ring);
    return TIARA_OK;
}

enum tiara_err tiara_channel_open(struct tiara_comm *c, const struct tiara_call *call, bool ready,
    struct tiara_channel *channel_out)
{
    int nunits = tiara_posted_units(call->count * call->elem.size);
    struct tiara_segment *s = c->segments;
    enum tiara_err err = TIARA_OK;

    *channel_out = (struct tiara_channel){0};
    for (; s && err == TIARA_OK && !channel_out->segment; s = s->next)
        err = open_in(c, s, nunits, channel_out);
    if (err == TIARA_OK && !channel_out->segment) {
        err = segment_new(c, call, &s);
        if (err == TIARA_OK && s)
            err = open_in(c, s, nunits, channel_out);
    }
    if (err != TIARA_OK || !channel_out->segment)
        return err;
    /* Also: all have cleared their part. */
    err = tiara_agree_setup_ready(c->comm, ready);
    if (err == TIARA_OK)
        return TIARA_OK;
    tiara_channel_close(channel_out);
    return err == TIARA_ERR_UNSUPPORTED ? TIARA_OK : err;
}

void tiara_channel_close(struct tiara_channel *channel)
{
    if (channel->segment)
        update(channel->segment, 0, channel->units, false);
    channel->segment = NULL;
}

void tiara_channels_part(struct tiara_comm *c)
{
    struct tiara_segment *s, *next;

    for (s = c->segments; s; s = next) {
        next = s->next;
        update(s, 0, 0, true);
    }
    c->segments = NULL;
}
