/*
 * Kinds of memory, said in a node's shared memory: every rank that asks learns whether all have
 * device memory, call after call with one digest; and each word differs from the last one where the
 * kernel looks before it lets a sleeper sleep, which is its lower half.
 */
#include "base/alloc.h"
#include "test/harness/scene.h"
#include "test/harness/test.h"

#define CALLS 300
#define DIGEST 0x80000001u

/* All in every third call; else some, each rank in calls of its own. */
static bool has_device(int rank, int call)
{
    return call % 3 == 0 || (call * 7 + rank * 5) % 4 != 0;
}

static bool have_all(int nranks, int call)
{
    bool all = true;

    for (int r = 0; r < nranks; r++)
        all = all && has_device(r, call);
    return all;
}

static int play(struct tiara_actor *actor, void *arg)
{
    struct tiara_arena *a = &actor->arena;
    struct tiara_arena_desc desc = {.type = -1, .oper = -1};
    uint32_t before = 0;
    int said = 0, *all_said = tiara_alloc((size_t)a->size, sizeof(int)), failures = 0;

    (void)arg;
    for (int call = 1; call <= CALLS; call++) {
        bool mine = has_device(actor->rank, call), all = false;
        uint32_t word;
        enum tiara_err err = TIARA_OK;

        tiara_arena_begin(a, DIGEST, &desc);
        tiara_arena_say_kind(a, mine);
        word = (uint32_t)tiara_load_relaxed(&a->ctl[a->index]->kind); /* relaxed: own word */
        failures += word == before;
        before = word;
        if (mine)
            err = tiara_arena_await_kinds(a, &all);
        failures += err != TIARA_OK || all != (mine && have_all(a->size, call));
        /* The rest of the call. */
        if (err == TIARA_OK)
            err = tiara_small_gather(a, &said, all_said, sizeof(said));
        if (err != TIARA_OK)
            return failures + 1;
    }
    tiara_free(all_said);
    return failures;
}

START_TEST(test_kinds_are_known_to_who_asks)
{
    static const char *const layouts[] = {"1x2", "1x3", "1x4"};

    ck_assert_int_eq(tiara_scene_run(layouts[_i], 4096, play, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kinds");
    TCase *tcase = tcase_create("kinds");

    tcase_add_loop_test(tcase, test_kinds_are_known_to_who_asks, 0, 3);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
