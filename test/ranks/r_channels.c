/* tiara-test: timeout 300 */
/*
 * Parts of an arena's small slots, each with calls of its own: every rank goes through its channels
 * in an order of its own. Under ThreadSanitizer two slots are enough for that.
 */
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    NCHANNELS = 5,
    NCALLS = 60, /* in each channel */
    MOST = 300 /* elements */
};

struct channel {
    struct tiara_posted posted;
    struct tiara_small_call small;
    int64_t buf[MOST];
    int number; /* of the call that runs, or comes next */
    bool runs;
};

static size_t count_of(int channel, int number)
{
    return 1 + (size_t)(channel * 61 + number * 37) % MOST;
}

static int64_t seed_of(int channel, int number)
{
    return channel * 1000 + number;
}

/* Where the parts lie: one behind the other, of the size of their largest call. */
static struct tiara_posted_ring part_of(int channel)
{
    int nunits = tiara_posted_units(MOST * sizeof(int64_t));

    return tiara_posted_part(channel * nunits, nunits);
}

static void start(struct tiara_actor *a, struct channel *c, int channel)
{
    size_t count = count_of(channel, c->number);

    for (size_t k = 0; k < count; k++)
        c->buf[k] = tiara_test_value(a->rank, k + (size_t)seed_of(channel, c->number));
    c->posted = (struct tiara_posted){
        .ring = part_of(channel), .seq = (uint64_t)c->number + 1, .digest = (uint32_t)count};
    c->small = (struct tiara_small_call){.op = a->op,
        .mem = a->mem,
        .in = c->buf,
        .out = c->buf,
        .count = count,
        .bytes = count * sizeof(int64_t)};
    ck_assert(tiara_posted_has_slot(&a->arena, &c->posted));
    tiara_posted_publish(&a->arena, &c->posted, &c->small);
    c->runs = true;
}

/* Returns the number of wrong results. */
static int step(struct tiara_actor *a, struct channel *c, int channel)
{
    enum tiara_err err;
    int wrong = 0;

    if (c->number == NCALLS)
        return 0;
    if (!c->runs)
        start(a, c, channel);
    if (!tiara_posted_poll(&a->arena, &c->posted, &c->small, &err))
        return 0;
    for (size_t k = 0; k < c->small.count; k++)
        wrong +=
            c->buf[k] != tiara_test_sum(a->layout->nranks, k + (size_t)seed_of(channel, c->number));
    if (wrong > 0 || err != TIARA_OK)
        fprintf(stderr, "rank %d, channel %d, call %d: %d wrong, error %d\n", a->rank, channel,
            c->number, wrong, (int)err);
    c->number++;
    c->runs = false;
    return wrong + (err != TIARA_OK);
}

static int play(struct tiara_actor *a, void *arg)
{
    struct tiara_test_random random = {*(uint64_t *)arg * 31u + (uint64_t)a->rank};
    struct channel channels[NCHANNELS];
    int wrong = 0, over = 0;
    uint64_t ready;

    memset(channels, 0, sizeof(channels));
    a->arena.posted = true;
    for (int i = 0; i < NCHANNELS; i++) {
        struct tiara_posted_ring ring = part_of(i);
        memset(tiara_posted_head(&a->arena, &ring, a->arena.index, 0), 0xff, ring.stride);
        tiara_posted_clear(&a->arena, &ring);
    }
    /* All have emptied theirs; the last slots of the arena are no channel's. */
    a->arena.seq = TIARA_ARENA_SMALL_SLOTS - 2;
    if (tiara_small_and(&a->arena, 1, &ready) != TIARA_OK)
        return 1;
    while (over < NCHANNELS && wrong == 0) {
        int i = (int)tiara_test_random_below(&random, NCHANNELS);
        wrong += step(a, &channels[i], i);
        over = 0;
        for (int k = 0; k < NCHANNELS; k++)
            over += channels[k].number == NCALLS;
        sched_yield();
    }
    return wrong;
}

START_TEST(test_channels_of_one_arena_are_independent)
{
    static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x5"};
    uint64_t seed = tiara_test_seed();
    int failures = tiara_scene_run(layouts[_i], 4096, play, &seed);

    ck_assert_msg(failures == 0, "%s: %d failures", layouts[_i], failures);
}
END_TEST

START_TEST(test_channels_parts_lie_in_the_small_slots)
{
    size_t end = (size_t)TIARA_ARENA_SMALL_SLOTS * TIARA_ARENA_SMALL_STRIDE;

    for (size_t bytes = 1; bytes <= TIARA_ARENA_SMALL_MAX; bytes += 97) {
        int nunits = tiara_posted_units(bytes);
        struct tiara_posted_ring last = tiara_posted_part(TIARA_POSTED_UNITS - nunits, nunits);
        struct tiara_posted_ring first = tiara_posted_part(0, nunits);
        struct tiara_posted_ring next = tiara_posted_part(nunits, nunits);

        ck_assert_uint_le(last.offset + 2 * last.stride, end);
        ck_assert_uint_ge(last.stride, bytes + sizeof(struct tiara_arena_head));
        ck_assert_uint_eq(first.offset + 2 * first.stride, next.offset);
        ck_assert_uint_eq(first.stride % TIARA_LINE, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("channels");

    tcase_add_test(tcase, test_channels_parts_lie_in_the_small_slots);
    tcase_add_loop_test(tcase, test_channels_of_one_arena_are_independent, 0, 4);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
