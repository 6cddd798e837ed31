/*
 * The way of one-shot calls that nobody waits in.
 *
 * Why it is not the other one-shot way: there, a rank's next call proves to its peers that it has
 * read what they published for the last one, and slots need no other sign that they are free. That
 * saves the shortest calls a line that all ranks would have to read; but it holds only if each call
 * ends before the next begins.
 */
#include "call/way.h"

static enum tiara_err posted_start(struct tiara_task *t)
{
    t->small = tiara_call_small(t->call);
    tiara_posted_publish(t->c->arena, t->posted, &t->small);
    return TIARA_OK;
}

static bool posted_poll(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    on->word = NULL;
    t->moved = false;
    return tiara_posted_poll(t->c->arena, t->posted, &t->small, err_out);
}

static enum tiara_err posted_finish(struct tiara_task *t, enum tiara_err err)
{
    const struct tiara_redop *op = t->small.op;

    if (err == TIARA_OK && op->finish)
        op->finish(op, t->small.out, t->small.count, t->c->size);
    return err;
}

const struct tiara_way tiara_way_posted = {
    .name = "posted",
    .start = posted_start,
    .poll = posted_poll,
    .finish = posted_finish,
};
