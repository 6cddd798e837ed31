/*
 * The communicators whose nonblocking operations Tiara runs itself: from the twin that they need to
 * the end of the last task; and the watchdog of those tasks.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/progress.h"
#include "call/async_priv.h"

/* ---- waiting ---- */

/* Whether the tasks of @a can still end; else they end with an error. */
static void inspect(struct tiara_async *a, double waited_s, bool first)
{
    enum tiara_err err = tiara_posted_inspect(a->c->arena, &a->first->posted, waited_s, first);

    if (err == TIARA_OK && a->c->net_obj)
        err = tiara_watch_net(a->c);
    if (err != TIARA_OK)
        tiara_async_fail(a);
}

void tiara_async_inspect(struct tiara_async_task *task, double waited_s, bool first)
{
    tiara_async_turn_take();
    if (!tiara_async_is_done(task))
        inspect(task->async, waited_s, first);
    tiara_async_turn_give();
}

void tiara_async_revoke(struct tiara_async_task *task)
{
    tiara_async_turn_take();
    if (!tiara_async_is_done(task))
        tiara_async_fail(task->async);
    tiara_async_turn_give();
}

void tiara_async_wait_init(struct tiara_wait *w, const struct tiara_async_task *task)
{
    *w = (struct tiara_wait){.spins = 100, .yields = -1};
    if (!task)
        return;
    w->crowded = task->async->c->wait.crowded;
    w->spins = task->async->c->wait.spins;
    w->warn_s = task->async->c->wait.warn_s;
    w->limit_s = task->async->c->wait.limit_s;
}

/* ---- communicators ---- */

static void async_free(struct tiara_async *a)
{
    if (!a)
        return;
    if (a->channel.segment)
        tiara_channel_close(&a->channel);
    else if (a->c)
        tiara_comm_free(a->c);
    tiara_free(a);
}

/* Collective. NULL in *a_out: there is no way, on all ranks. After an error the communicator is
 * given up. */
static enum tiara_err async_new(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_async **a_out)
{
    struct tiara_async *a = tiara_alloc(1, sizeof(*a));
    struct tiara_channel channel = {0};
    enum tiara_err err;

    *a_out = NULL;
    if (like && tiara_channel_fits(c, like)) {
        err = tiara_channel_open(c, like, a != NULL, &channel);
        if (a) {
            a->channel = channel;
            a->c = channel.twin;
        }
    } else {
        err = tiara_async_make(c, like, false, a != NULL, a ? &a->c : NULL);
    }
    if (err != TIARA_OK || !a || !a->c) {
        async_free(a);
        return err;
    }
    tiara_progress_add(tiara_async_progress);
    a->next_seq = a->channel.segment ? 1 : a->c->arena->seq + 1;
    a->end = &a->first;
    tiara_async_turn_take();
    a->next = tiara_asyncs;
    tiara_asyncs = a;
    tiara_async_turn_give();
    *a_out = a;
    return TIARA_OK;
}

enum tiara_err tiara_async_open(struct tiara_comm *c)
{
    enum tiara_err err = TIARA_OK;

    if (c->async_why || !tiara_comm_serves(c))
        return TIARA_OK;
    c->async_why = tiara_async_no_way(c);
    if (!c->async_why) {
        err = async_new(c, NULL, &c->async);
        c->async_why = c->async ? "" : "a rank could not set up nonblocking calls";
    }
    return err;
}

enum tiara_err tiara_async_channel(
    struct tiara_comm *c, const struct tiara_call *call, struct tiara_async **a_out)
{
    *a_out = NULL;
    return tiara_async_no_way(c) ? TIARA_OK : async_new(c, call, a_out);
}

/* Takes a closed one without tasks out of the list; NULL: there is none. */
static struct tiara_async *take_closed(void)
{
    struct tiara_async *a = NULL;

    tiara_async_turn_take();
    for (struct tiara_async **at = &tiara_asyncs; *at; at = &(*at)->next) {
        if ((*at)->closed && !(*at)->first) {
            a = *at;
            *at = a->next;
            break;
        }
    }
    tiara_async_turn_give();
    return a;
}

static void free_closed(void)
{
    struct tiara_async *a;

    while ((a = take_closed()))
        async_free(a);
}

void tiara_async_close(struct tiara_async *a)
{
    if (!a)
        return;
    tiara_async_turn_take();
    a->closed = true;
    tiara_async_turn_give();
    /* This one when it has no tasks, else with the next one that is closed. */
    free_closed();
}

void tiara_async_part(struct tiara_comm *c)
{
    tiara_async_close(c->async);
    tiara_channels_part(c);
}

static bool nothing_left(void *arg, struct tiara_wait_on *on)
{
    (void)arg;
    on->word = NULL;
    tiara_async_progress();
    return tiara_async_has_none();
}

/* The first task of any communicator; NULL: none. */
static struct tiara_async_task *first_task(void)
{
    struct tiara_async_task *task = NULL;

    for (struct tiara_async *a = tiara_asyncs; a && !task; a = a->next)
        task = a->first;
    return task;
}

static enum tiara_err are_stuck(void *arg, double waited_s, bool first)
{
    (void)arg;
    tiara_async_turn_take();
    for (struct tiara_async *a = tiara_asyncs; a; a = a->next)
        if (a->first)
            inspect(a, waited_s, first);
    tiara_async_turn_give();
    return TIARA_OK;
}

static void fail_the_rest(void)
{
    tiara_async_turn_take();
    for (struct tiara_async *a = tiara_asyncs; a; a = a->next)
        if (a->first)
            tiara_async_fail(a);
    tiara_async_turn_give();
}

void tiara_async_finish(void)
{
    struct tiara_wait w;

    tiara_async_turn_take();
    tiara_async_wait_init(&w, first_task());
    tiara_async_turn_give();
    w.stuck = are_stuck;
    if (tiara_wait(&w, nothing_left, NULL) != TIARA_OK) {
        tiara_error("nonblocking calls were not complete at MPI_Finalize");
        fail_the_rest();
    }
    tiara_async_thread_stop();
}

void tiara_async_release(void)
{
    free_closed();
}
