/*
 * Small calls: one exchange of small slots, no plan.
 *
 * Flag and data travel together: up to 48 bytes of payload share the cache line of the sequence
 * number that announces them, so that a call on two ranks costs the transfer of two lines. Every
 * rank folds all vectors itself, in rank order, so that all get the same bits.
 */
#include "exec/arena.h"
#include <string.h>

void tiara_small_publish(struct tiara_arena *a, const struct tiara_small_call *call)
{
    char *payload = tiara_arena_payload(tiara_arena_head(a, a->index, a->seq));

    tiara_assert(call->bytes <= TIARA_ARENA_SMALL_MAX);
    if (call->bytes <= 64)
        memcpy(payload, call->in, call->bytes);
    else
        call->mem->copy_to_cell(payload, call->in, call->bytes);
    tiara_arena_publish(a, call->bytes);
}

/* out = fold of all ranks' vectors, in rank order, waiting for each on the way; out may be the
 * caller's input. */
static enum tiara_err fold_all(struct tiara_arena *a, const struct tiara_small_call *call)
{
    for (int i = 0; i < a->size; i++) {
        enum tiara_err err = i == a->index ? TIARA_OK : tiara_arena_await(a, i);

        if (err != TIARA_OK)
            return err;
        a->srcs[i] = tiara_arena_payload(tiara_arena_head(a, i, a->seq));
    }
    a->srcs[a->index] = call->in;
    return call->op->fold(call->op, call->out, a->srcs, a->size, call->count);
}

enum tiara_err tiara_small_node(struct tiara_arena *a, const struct tiara_small_call *call)
{
    tiara_small_publish(a, call);
    return fold_all(a, call);
}

bool tiara_small_poll(struct tiara_arena *a, const struct tiara_small_call *call, int *peer,
    struct tiara_wait_on *on, enum tiara_err *err_out)
{
    *err_out = TIARA_OK;
    for (; *peer < a->size; ++*peer) {
        if (*peer != a->index && !tiara_arena_poll(a, *peer, on, err_out))
            return false;
        if (*err_out != TIARA_OK)
            return true;
        a->srcs[*peer] = tiara_arena_payload(tiara_arena_head(a, *peer, a->seq));
    }
    a->srcs[a->index] = call->in;
    *err_out = call->op->fold(call->op, call->out, a->srcs, a->size, call->count);
    return true;
}

enum tiara_err tiara_small_gather(struct tiara_arena *a, const void *in, void *out, size_t bytes)
{
    struct tiara_arena_desc same = a->ctl[a->index]->desc;

    tiara_arena_begin(a, a->digest, &same);
    memcpy(tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), in, bytes);
    tiara_arena_publish(a, bytes);
    for (int i = 0; i < a->size; i++) {
        enum tiara_err err = i == a->index ? TIARA_OK : tiara_arena_await(a, i);

        if (err != TIARA_OK)
            return err;
        memcpy((char *)out + (size_t)i * bytes, tiara_arena_payload(tiara_arena_head(a, i, a->seq)),
            bytes);
    }
    return TIARA_OK;
}

enum tiara_err tiara_small_and(struct tiara_arena *a, uint64_t mine, uint64_t *all_out)
{
    struct tiara_arena_desc same = a->ctl[a->index]->desc;

    tiara_arena_begin(a, a->digest, &same);
    memcpy(tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), &mine, sizeof(mine));
    tiara_arena_publish(a, sizeof(mine));
    *all_out = mine;
    for (int i = 0; i < a->size; i++) {
        enum tiara_err err = i == a->index ? TIARA_OK : tiara_arena_await(a, i);
        uint64_t its;

        if (err != TIARA_OK)
            return err;
        memcpy(&its, tiara_arena_payload(tiara_arena_head(a, i, a->seq)), sizeof(its));
        *all_out &= its;
    }
    return TIARA_OK;
}

void tiara_small_restore(struct tiara_arena *a, const struct tiara_small_call *call)
{
    if (call->in == call->out)
        memcpy(call->out, tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), call->bytes);
}

void tiara_small_keep(struct tiara_arena *a, const struct tiara_small_call *call)
{
    if (call->in == call->out)
        memcpy(tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), call->in, call->bytes);
}

void tiara_small_publish_result(struct tiara_arena *a, const struct tiara_small_call *call)
{
    call->mem->copy_to_cell(
        tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), call->out, call->bytes);
    tiara_arena_publish(a, call->bytes);
}

bool tiara_small_take_result(struct tiara_arena *a, const struct tiara_small_call *call,
    struct tiara_wait_on *on, enum tiara_err *err_out)
{
    if (!tiara_arena_poll(a, 0, on, err_out))
        return false;
    if (*err_out == TIARA_OK)
        call->mem->copy(
            call->out, tiara_arena_payload(tiara_arena_head(a, 0, a->seq)), call->bytes);
    return true;
}
