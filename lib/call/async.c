/*
 * Nonblocking operations: the tasks of all communicators, and what moves them on (async.h).
 *
 * Order. Tasks of a communicator form a list in the order of their numbers. A task leaves it when
 * it is done, wherever it stands; so all numbers below the first one's are over for this rank,
 * which is what its peers must know before they reuse slots.
 */
#include "call/async_priv.h"
#include "comm/plan_cache.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER; /* the turn */
static bool taken; /* lock: a thread has the turn */
static int nwaiting; /* lock: threads that wait for it */
static struct tiara_async_task *queue,
    **queue_end = &queue; /* lock: started ones; empty unless taken */
static tiara_u32 nstarted; /* written under the lock */
static tiara_u32 nended; /* written in the turn */
static tiara_u64 visits; /* of the program; written in the turn */

struct tiara_async *tiara_asyncs;

bool tiara_async_has_none(void)
{
    /* relaxed: a task of another thread that is missed here is that thread's to wait for */
    return tiara_load_relaxed(&nstarted) == tiara_load_relaxed(&nended);
}

/* ---- tasks ---- */

/* Takes the task at *@at out of the list: it is the caller's again. */
static void task_end(struct tiara_async *a, struct tiara_async_task **at, enum tiara_err err)
{
    struct tiara_async_task *task = *at;

    *at = task->next;
    if (a->end == &task->next)
        a->end = at;
    if (!a->channel.segment)
        tiara_posted_finish(a->c->arena, a->first ? a->first->posted.seq - 1 : a->last_seq);
    task->err = tiara_err_first(task->err, err);
    tiara_store_relaxed(&nended, tiara_load_relaxed(&nended) + 1); /* relaxed: in the turn */
    /*
     * [task.done] release: the result and err are there; the engine does not touch the task any
     * more.
     */
    tiara_store_release(&task->done, 1);
}

void tiara_async_fail(struct tiara_async *a)
{
    pthread_mutex_lock(&lock);
    (void)!tiara_state_leave(a->c, a->c->ncalls, true);
    pthread_mutex_unlock(&lock);
    if (a->running)
        (void)!a->running->body.way->finish(&a->running->body, TIARA_ERR_PEER);
    a->running = NULL;
    while (a->first)
        task_end(a, &a->first, TIARA_ERR_PEER);
}

/* Whether @task may start now. */
static bool may_start(struct tiara_async *a, const struct tiara_async_task *task)
{
    return !(task->body.plan && a->running) && tiara_posted_has_slot(a->c->arena, &task->posted);
}

/* True when the task at *@at moved; it may be out of the list then. */
static bool step_task(struct tiara_async *a, struct tiara_async_task **at, enum tiara_err *err_out)
{
    struct tiara_async_task *task = *at;
    struct tiara_task *t = &task->body;
    struct tiara_wait_on on;
    bool starts = !task->started;

    *err_out = TIARA_OK;
    if (starts) {
        if (!may_start(a, task))
            return false;
        *err_out = t->way->start(t);
        task->started = *err_out == TIARA_OK;
        if (task->started && t->plan)
            a->running = task;
    }
    if (task->started) {
        if (!t->way->poll(t, &on, err_out))
            return starts || t->moved;
        *err_out = t->way->finish(t, *err_out);
    }
    if (a->running == task)
        a->running = NULL;
    task_end(a, at, *err_out);
    return true;
}

/* Moves on the tasks of one communicator, each by one step at most. */
static bool step(struct tiara_async *a)
{
    struct tiara_async_task **at = &a->first;
    bool moved = false;

    while (*at) {
        struct tiara_async_task *task = *at;
        enum tiara_err err;

        moved |= step_task(a, at, &err);
        if (err != TIARA_OK) {
            tiara_async_fail(a);
            return true;
        }
        if (*at != task)
            continue;
        /* What has no slot yet, the later ones do not have either. */
        if (!task->started && !task->body.plan)
            break;
        at = &task->next;
    }
    return moved;
}

/* Whether the thread may drive the tasks of @a: those that need MPI are there only if all ranks let
 * it. */
static bool thread_drives(const struct tiara_async *a)
{
    return a->c->config.progress != TIARA_PROGRESS_CALL;
}

/* @by_thread: only what the thread may drive. *left_out: whether such tasks are left. */
static bool step_all(bool by_thread, bool *left_out)
{
    bool moved = false;

    *left_out = false;
    for (struct tiara_async *a = tiara_asyncs; a; a = a->next) {
        if (!a->first || (by_thread && !thread_drives(a)))
            continue;
        moved |= step(a);
        *left_out |= a->first != NULL;
    }
    return moved;
}

/* ---- the turn ---- */

/* False: another thread has it; with @patience that one is waited for. */
static bool take(bool patience)
{
    bool mine;

    pthread_mutex_lock(&lock);
    nwaiting += patience;
    while (taken && patience)
        pthread_cond_wait(&given, &lock);
    nwaiting -= patience;
    mine = !taken;
    taken = true;
    pthread_mutex_unlock(&lock);
    return mine;
}

void tiara_async_turn_take(void)
{
    take(true);
}

/* The program came by. */
static void note_visit(void)
{
    tiara_store_relaxed(&visits, tiara_load_relaxed(&visits) + 1); /* relaxed: in the turn */
}

/* What was started meanwhile, in order. NULL: nothing; then, with @end, the turn is given up. */
static struct tiara_async_task *queue_take(bool end)
{
    struct tiara_async_task *tasks;

    pthread_mutex_lock(&lock);
    tasks = queue;
    queue = NULL;
    queue_end = &queue;
    if (!tasks && end) {
        taken = false;
        if (nwaiting > 0)
            pthread_cond_signal(&given);
    }
    pthread_mutex_unlock(&lock);
    return tasks;
}

/* New tasks go into the lists of their communicators, and make their first steps. */
static void admit(struct tiara_async_task *tasks, bool by_thread)
{
    struct tiara_async_task *next;

    for (struct tiara_async_task *task = tasks; task; task = next) {
        struct tiara_async *a = task->async;

        next = task->next;
        task->next = NULL;
        a->last_seq = task->posted.seq;
        *a->end = task;
        a->end = &task->next;
        if (task->err != TIARA_OK)
            tiara_async_fail(a);
        else if (!by_thread || thread_drives(a))
            step(a);
    }
}

static void give(bool by_thread)
{
    struct tiara_async_task *tasks;

    while ((tasks = queue_take(true)))
        admit(tasks, by_thread);
}

void tiara_async_turn_give(void)
{
    give(false);
}

/* Steps in a turn: so many that little is lost by taking it, and few enough that nobody who must
 * have the turn waits long. */
#define TURN_STEPS 16

/* Steps of what may be driven, and the end of the turn. */
static bool work(bool by_thread, bool *left_out)
{
    bool moved = false;

    for (int i = 0; i < TURN_STEPS && step_all(by_thread, left_out); i++) {
        moved = true;
        if (!*left_out)
            break;
        admit(queue_take(false), by_thread);
    }
    give(by_thread);
    return moved;
}

bool tiara_async_progress(void)
{
    bool left;

    if (tiara_async_has_none() || !take(false))
        return false;
    note_visit();
    return work(false, &left);
}

static bool progress_by_thread(bool *left_out)
{
    *left_out = true;
    return take(false) && work(true, left_out);
}

static bool has_tasks(void)
{
    bool some = false;

    take(true);
    for (struct tiara_async *a = tiara_asyncs; a; a = a->next)
        some |= thread_drives(a) && a->first;
    give(true);
    return some;
}

static uint64_t visits_so_far(void)
{
    return tiara_load_relaxed(&visits); /* relaxed: a number */
}

static const struct tiara_async_work for_thread = {
    .progress = progress_by_thread, .has_tasks = has_tasks, .visits = visits_so_far};

/* ---- starting ---- */

/* Lock held. */
static bool choose(const struct tiara_async *a, const struct tiara_call *call,
    struct tiara_tune_choice *choice, const char **why_out)
{
    if (!tiara_comm_serves(a->c)) {
        /* It is started, and fails: not all ranks need know yet. */
        *choice = (struct tiara_tune_choice){.path = TIARA_PATH_ONESHOT};
        return true;
    }
    if (!tiara_async_judge(a->c, call, choice, why_out))
        return false;
    if (choice->path == TIARA_PATH_ONESHOT || tiara_plan_is_cached(a->c, choice, TIARA_PLAN_HOST))
        return true;
    *why_out = "no plan was made for it at set-up";
    return false;
}

bool tiara_async_serves(struct tiara_async *a, const struct tiara_call *call, const char **why_out)
{
    struct tiara_tune_choice choice;
    bool can;

    pthread_mutex_lock(&lock);
    can = choose(a, call, &choice, why_out);
    pthread_mutex_unlock(&lock);
    return can;
}

/* Gives the task its number, and what depends on the choice. Lock held. */
static void number_task(struct tiara_async *a, struct tiara_async_task *task,
    const struct tiara_tune_choice *choice, enum tiara_err mine)
{
    struct tiara_call *call = &task->call;

    /* The rest is of its way's start. */
    task->body.c = a->c;
    task->body.call = call;
    task->body.choice = *choice;
    task->body.way = tiara_way_of(choice, true);
    task->body.posted = &task->posted;
    task->body.plan = NULL;
    if (a->c->facts.reproducible && tiara_elem_is_small_float(&call->elem))
        call->elem.redop = tiara_elem_strict(call->elem.redop, &task->body.strict);
    task->posted.ring = a->channel.segment ? a->channel.ring : TIARA_POSTED_ALL;
    task->posted.seq = a->next_seq++;
    task->posted.digest = tiara_call_digest(a->c, call);
    task->posted.desc = tiara_call_desc(call);
    task->posted.peer = 0;
    task->err = tiara_comm_serves(a->c) ? mine : TIARA_ERR_PEER;
    /* It is there, see choose: nothing is exchanged. */
    if (task->err == TIARA_OK && choice->path == TIARA_PATH_PLAN)
        task->err = tiara_plan_get(a->c, choice, TIARA_PLAN_HOST, &task->body.plan);
    tiara_store_relaxed(&nstarted, tiara_load_relaxed(&nstarted) + 1); /* relaxed: in the lock */
}

/* The turn is this thread's from here on, or the task is left to who has it. Lock held. */
static bool take_or_leave(struct tiara_async_task *task)
{
    bool mine = !taken;

    taken = true;
    if (!mine) {
        *queue_end = task;
        queue_end = &task->next;
    }
    return mine;
}

bool tiara_async_start(struct tiara_async *a, struct tiara_async_task *task, enum tiara_err mine)
{
    struct tiara_tune_choice choice;
    const char *why;
    bool can, has_turn = false;

    task->async = a;
    task->next = NULL;
    task->started = false;
    task->watch = (struct tiara_watch){0};
    tiara_store_relaxed(&task->done, 0); /* relaxed: nobody else knows the task yet */
    pthread_mutex_lock(&lock);
    can = choose(a, &task->call, &choice, &why);
    if (can) {
        number_task(a, task, &choice, mine);
        has_turn = take_or_leave(task);
    }
    pthread_mutex_unlock(&lock);
    if (has_turn) {
        note_visit();
        admit(task, false);
        give(false);
    }
    if (can && thread_drives(a) && !tiara_async_is_done(task))
        tiara_async_thread_call(&for_thread);
    return can;
}
