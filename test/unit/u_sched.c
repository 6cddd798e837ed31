/*
 * The scheduler of chunks, with an executor that only writes down what it is asked for.
 */
#include "exec/sched.h"
#include "test/harness/test.h"
#include <string.h>

#define MOST 32

struct work {
    struct tiara_sched s; /* the first */
    int steps[MOST]; /* [chunk] steps it takes */
    struct tiara_part started[MOST];
    int nstarted;
    size_t at[TIARA_SLOTS]; /* [slot] its chunk */
    char log[1024]; /* chunks in the order in which they are stepped; '|' when one is over */
    int drained; /* bits of slots */
    int fails; /* chunk whose first step fails; -1: none */
    int wordless; /* chunk that waits for what has no word; -1: none */
    tiara_u64 word[MOST];
};

static void start(struct tiara_sched *s, const struct tiara_part *part)
{
    struct work *w = (struct work *)(void *)s;

    w->at[part->slot] = part->index;
    w->started[w->nstarted++] = *part;
}

static bool step(struct tiara_sched *s, int slot, struct tiara_wait_on *on)
{
    struct work *w = (struct work *)(void *)s;
    size_t chunk = w->at[slot];

    ck_assert(s->busy[slot]);
    snprintf(w->log + strlen(w->log), 8, "%zu", chunk);
    if ((int)chunk == w->fails)
        s->err = TIARA_ERR_SYS;
    s->busy[slot] = --w->steps[chunk] > 0;
    if (!s->busy[slot])
        strcat(w->log, "|");
    if (s->busy[slot] && !on->word)
        on->word = &w->word[chunk];
    s->has_no_word |= (int)chunk == w->wordless;
    return s->err != TIARA_OK || !s->busy[slot];
}

static void drain(struct tiara_sched *s, int slot)
{
    ((struct work *)(void *)s)->drained |= 1 << slot;
}

static const struct tiara_sched_ops ops = {start, step, drain};

static struct tiara_plan plan = {.coll = TIARA_COLL_ALLREDUCE, .nblocks = 3};
static struct tiara_exec exec = {.tag_bits = 15};

/* 70 elements of 8 bytes in chunks of 16: five, the last of 6. */
static const struct tiara_exec_call call = {
    .plan = &plan, .count = 70, .elem_size = 8, .digest = 5};

static struct work work_of(int window, int nslots, int first)
{
    struct work w = {.s = {&ops, &exec, &call, .chunk_elems = 16, .nchunks = 5}, .fails = -1};

    exec.chunk_seq = 100;
    w.wordless = -1;
    w.s.window = window;
    w.s.nslots = nslots;
    w.s.slot = first;
    for (int i = 0; i < 5; i++)
        w.steps[i] = 1;
    return w;
}

/* To its end. */
static enum tiara_err run(struct tiara_sched *s)
{
    struct tiara_wait_on on;
    bool moved;

    while (!tiara_sched_poll(s, &on, &moved))
        ;
    return s->err;
}

START_TEST(test_parts_cover_the_vector_and_take_the_slots_in_turn)
{
    struct work w = work_of(2, 3, 2);

    ck_assert_int_eq(run(&w.s), TIARA_OK);
    ck_assert_int_eq(w.nstarted, 5);
    for (int i = 0; i < 5; i++) {
        const struct tiara_part *p = &w.started[i];

        ck_assert_uint_eq(p->index, i);
        ck_assert_uint_eq(p->first, 16 * i);
        ck_assert_uint_eq(p->count, i < 4 ? 16 : 6);
        ck_assert_uint_eq(p->len, i < 4 ? 8 : 6); /* three blocks, cut at cache lines */
        ck_assert_int_eq(p->slot, (2 + i) % 3);
        ck_assert_uint_eq(p->tag, tiara_exec_tag(15, 100 + (uint64_t)i, 5));
    }
    ck_assert_uint_eq(exec.chunk_seq, 105);
    ck_assert_uint_eq(w.s.oldest, 5);
}
END_TEST

/* The window moves with the oldest chunk, not with those that are over before it. */
START_TEST(test_oldest_goes_first_and_holds_back_the_next)
{
    struct work w = work_of(2, 8, 0);

    w.steps[0] = 3;
    w.steps[1] = 2;
    ck_assert_int_eq(run(&w.s), TIARA_OK);
    ck_assert_str_eq(w.log, "01"
                            "01|"
                            "0|"
                            "2|3|"
                            "4|");
}
END_TEST

START_TEST(test_poll_moves_each_chunk_once)
{
    struct work w = work_of(3, 4, 0);
    struct tiara_wait_on on;
    bool moved;

    for (int i = 0; i < 5; i++)
        w.steps[i] = 4;
    ck_assert(!tiara_sched_poll(&w.s, &on, &moved));
    ck_assert(moved); /* it started three */
    ck_assert_int_eq(w.nstarted, 3);
    ck_assert_str_eq(w.log, "012");
    ck_assert(!tiara_sched_poll(&w.s, &on, &moved));
    ck_assert(!moved);
    ck_assert_ptr_eq(on.word, &w.word[0]);
    ck_assert_int_eq(run(&w.s), TIARA_OK);
    ck_assert_uint_eq(w.s.oldest, 5);
    ck_assert_int_eq(w.nstarted, 5);
}
END_TEST

START_TEST(test_error_ends_the_call_and_drains_what_is_in_flight)
{
    struct work w = work_of(3, 4, 3);
    struct tiara_wait_on on;
    bool moved;

    for (int i = 0; i < 5; i++)
        w.steps[i] = 4;
    w.fails = 1;
    ck_assert_int_eq(run(&w.s), TIARA_ERR_SYS);
    ck_assert_str_eq(w.log, "01");
    ck_assert_int_eq(w.nstarted, 2);
    ck_assert_int_eq(w.drained, 0);
    ck_assert(tiara_sched_poll(&w.s, &on, &moved) && !moved);
    tiara_sched_drain(&w.s);
    ck_assert_int_eq(w.drained, 1 << 3 | 1 << 0);
}
END_TEST

/* A wait may sleep on the word of the oldest chunk that names one; not when a chunk in flight waits
 * for what has none. */
START_TEST(test_word_to_sleep_on_is_the_oldest_chunks_or_none)
{
    struct work w = work_of(3, 8, 0);
    struct tiara_wait_on on;
    bool moved;

    for (int i = 0; i < 5; i++)
        w.steps[i] = i == 1 ? 2 : 4;
    w.wordless = 1;
    ck_assert(!tiara_sched_poll(&w.s, &on, &moved) && moved); /* it started three */
    ck_assert_ptr_null(on.word);
    ck_assert(!tiara_sched_poll(&w.s, &on, &moved) && moved); /* chunk 1 is over */
    ck_assert(!tiara_sched_poll(&w.s, &on, &moved) && !moved);
    ck_assert_ptr_eq(on.word, &w.word[0]);
}
END_TEST

START_TEST(test_empty_call_is_over)
{
    struct work w = work_of(1, 8, 5);
    struct tiara_wait_on on;
    bool moved = true;

    w.s.nchunks = 0;
    ck_assert_int_eq(run(&w.s), TIARA_OK);
    ck_assert(tiara_sched_poll(&w.s, &on, &moved) && !moved);
    ck_assert_int_eq(w.nstarted, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unit");
    TCase *tcase = tcase_create("sched");

    tcase_add_test(tcase, test_parts_cover_the_vector_and_take_the_slots_in_turn);
    tcase_add_test(tcase, test_oldest_goes_first_and_holds_back_the_next);
    tcase_add_test(tcase, test_poll_moves_each_chunk_once);
    tcase_add_test(tcase, test_error_ends_the_call_and_drains_what_is_in_flight);
    tcase_add_test(tcase, test_word_to_sleep_on_is_the_oldest_chunks_or_none);
    tcase_add_test(tcase, test_empty_call_is_over);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
