/*
 * Small calls: one exchange of small slots, no plan.
 *
 * Flag and data travel together: up to 48 bytes of payload share the cache line of the sequence
 * number that announces them, so that a call on two ranks costs the transfer of two lines. Every
 * rank folds all vectors itself, in rank order, so that all get the same bits.
 */
#include "exec/arena.h"
#include <string.h>

/* Where rank index @i has its payload of the current call. */
static char *payload_of(const struct tiara_arena *a, int i)
{
    return tiara_arena_payload(tiara_arena_head(a, i, a->seq));
}

void tiara_small_publish(struct tiara_arena *a, const struct tiara_small_call *call)
{
    tiara_assert(call->bytes <= TIARA_ARENA_SMALL_MAX);
    if (call->bytes <= 64)
        memcpy(payload_of(a, a->index), call->in, call->bytes);
    else
        call->mem->copy_to_cell(payload_of(a, a->index), call->in, call->bytes);
    tiara_arena_publish(a);
}

/* Waits for the payloads of all ranks, which go into a->srcs. */
static enum tiara_err await_all(struct tiara_arena *a)
{
    for (int i = 0; i < a->size; i++) {
        enum tiara_err err = i == a->index ? TIARA_OK : tiara_arena_await(a, i);

        if (err != TIARA_OK)
            return err;
        a->srcs[i] = payload_of(a, i);
    }
    return TIARA_OK;
}

/* out = fold of all ranks' vectors, in rank order; out may be the caller's input. */
static enum tiara_err fold_all(struct tiara_arena *a, const struct tiara_small_call *call)
{
    a->srcs[a->index] = call->in;
    return call->op->fold(call->op, call->out, a->srcs, a->size, call->count);
}

enum tiara_err tiara_small_node(struct tiara_arena *a, const struct tiara_small_call *call)
{
    enum tiara_err err;

    tiara_small_publish(a, call);
    err = await_all(a);
    return err == TIARA_OK ? fold_all(a, call) : err;
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
        a->srcs[*peer] = payload_of(a, *peer);
    }
    *err_out = fold_all(a, call);
    return true;
}

/* Gives in[bytes] in a call of its own, and waits for those of all. */
static enum tiara_err exchange(struct tiara_arena *a, const void *in, size_t bytes)
{
    struct tiara_arena_desc same = *tiara_arena_desc_of(a, a->index);

    tiara_arena_begin(a, a->digest, &same);
    memcpy(payload_of(a, a->index), in, bytes);
    tiara_arena_publish(a);
    return await_all(a);
}

enum tiara_err tiara_small_gather(struct tiara_arena *a, const void *in, void *out, size_t bytes)
{
    enum tiara_err err = exchange(a, in, bytes);

    for (int i = 0; i < a->size && err == TIARA_OK; i++)
        memcpy((char *)out + (size_t)i * bytes, a->srcs[i], bytes);
    return err;
}

enum tiara_err tiara_small_and(struct tiara_arena *a, uint64_t mine, uint64_t *all_out)
{
    enum tiara_err err = exchange(a, &mine, sizeof(mine));

    *all_out = mine;
    for (int i = 0; i < a->size && err == TIARA_OK; i++)
        *all_out &= *(const uint64_t *)a->srcs[i];
    return err;
}

void tiara_small_restore(struct tiara_arena *a, const struct tiara_small_call *call)
{
    if (call->in == call->out)
        memcpy(call->out, payload_of(a, a->index), call->bytes);
}

void tiara_small_keep(struct tiara_arena *a, const struct tiara_small_call *call)
{
    if (call->in == call->out)
        memcpy(payload_of(a, a->index), call->in, call->bytes);
}

void tiara_small_publish_result(struct tiara_arena *a, const struct tiara_small_call *call)
{
    call->mem->copy_to_cell(payload_of(a, a->index), call->out, call->bytes);
    tiara_arena_publish(a);
}

bool tiara_small_take_result(struct tiara_arena *a, const struct tiara_small_call *call,
    struct tiara_wait_on *on, enum tiara_err *err_out)
{
    if (!tiara_arena_poll(a, 0, on, err_out))
        return false;
    if (*err_out == TIARA_OK)
        call->mem->copy(call->out, payload_of(a, 0), call->bytes);
    return true;
}
