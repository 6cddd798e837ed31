/*
 * Small calls: one exchange of small slots, no plan.
 *
 * Flag and data travel together: up to 48 bytes of payload share the cache line of the sequence
 * number that announces them, so that a call on two ranks costs the transfer of two lines. Every
 * rank folds all vectors itself, in rank order, so that all get the same bits.
 */
#include "exec/arena.h"
#include <string.h>

static void publish_vector(struct tiara_arena *a, const struct tiara_small_call *call)
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
    publish_vector(a, call);
    return fold_all(a, call);
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

void tiara_small_restore(struct tiara_arena *a, const struct tiara_small_call *call)
{
    if (call->in == call->out)
        memcpy(call->out, tiara_arena_payload(tiara_arena_head(a, a->index, a->seq)), call->bytes);
}

/* Index 0 of a node: fold, combine with the other nodes, publish. Its slot holds the input until
 * the result is there. */
static enum tiara_err lead(struct tiara_arena *a, const struct tiara_small_call *call,
    enum tiara_err (*between)(void *arg, void *buf, size_t count), void *arg)
{
    char *payload = tiara_arena_payload(tiara_arena_head(a, a->index, a->seq));
    enum tiara_err err;

    if (call->in == call->out)
        memcpy(payload, call->in, call->bytes);
    err = fold_all(a, call);
    if (err == TIARA_OK)
        err = between(arg, call->out, call->count);
    if (err == TIARA_ERR_UNSUPPORTED)
        tiara_small_restore(a, call);
    if (err != TIARA_OK)
        return err;
    call->mem->copy_to_cell(payload, call->out, call->bytes);
    tiara_arena_publish(a, call->bytes);
    return TIARA_OK;
}

enum tiara_err tiara_small_hier(struct tiara_arena *a, const struct tiara_small_call *call,
    enum tiara_err (*between)(void *arg, void *buf, size_t count), void *arg)
{
    enum tiara_err err;

    if (a->index == 0)
        return lead(a, call, between, arg);
    publish_vector(a, call);
    err = tiara_arena_await(a, 0);
    if (err != TIARA_OK)
        return err;
    call->mem->copy(call->out, tiara_arena_payload(tiara_arena_head(a, 0, a->seq)), call->bytes);
    return TIARA_OK;
}
