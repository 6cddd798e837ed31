/*
 * Nonblocking operations: the jobs of all communicators, and what moves them on (async.h).
 *
 * Order. Jobs of a communicator form a list in the order of their numbers. A job leaves it when it
 * is done, wherever it stands; so all numbers below the first one's are over for this rank, which
 * is what its peers must know before they reuse slots.
 */
#include "call/async.h"
#include "base/alloc.h"
#include "base/log.h"
#include <pthread.h>

struct tiara_async {
    struct tiara_comm *c; /* the twin */
    struct tiara_run *run; /* of the plan that runs */
    struct tiara_job *running; /* NULL: none */
    struct tiara_job *first, **end;
    uint64_t next_seq;
    bool failed; /* an operation failed, and so will all others */
    const struct tiara_comm *owner; /* whose ranks they are; NULL: it is freed */
    bool closed; /* to be freed when it has no jobs */
    struct tiara_async *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tiara_async *asyncs; /* all of the process; lock */
static tiara_u32 njobs; /* under way; written under the lock */
static uint64_t visits; /* lock */

/* ---- jobs ---- */

/* Takes the job at *@at out of the list: it is the caller's again. Lock held. */
static void job_end(struct tiara_async *a, struct tiara_job **at, enum tiara_err err)
{
    struct tiara_job *job = *at;

    *at = job->next;
    if (a->end == &job->next)
        a->end = at;
    tiara_posted_finish(a->c->arena, (a->first ? a->first->posted.seq : a->next_seq) - 1);
    job->err = err;
    job->orphan = !a->owner;
    tiara_store_relaxed(&njobs, tiara_load_relaxed(&njobs) - 1); /* relaxed: under the lock */
    /*
     * [job.done] release: the result and err are there; the engine does not touch the job any more.
     */
    tiara_store_release(&job->done, 1);
}

/* An operation failed: the ranks do not agree any more, so the others cannot end either. */
static void fail_all(struct tiara_async *a)
{
    a->failed = true;
    tiara_comm_give_up(a->c);
    if (a->running)
        tiara_exec_close(a->run, TIARA_ERR_PEER);
    a->running = NULL;
    while (a->first)
        job_end(a, &a->first, TIARA_ERR_PEER);
}

/* True when the small job at *@at moved; *ended_out: it is out of the list. */
static bool step_small(struct tiara_async *a, struct tiara_job **at, enum tiara_err *err_out)
{
    struct tiara_job *job = *at;
    struct tiara_small_call small = tiara_call_small(&job->call);
    bool moved = false;

    *err_out = TIARA_OK;
    if (!job->published) {
        if (!tiara_posted_has_slot(a->c->arena, job->posted.seq))
            return false;
        tiara_posted_publish(a->c->arena, &job->posted, &small);
        job->published = moved = true;
    }
    if (!tiara_posted_poll(a->c->arena, &job->posted, &small, err_out))
        return moved;
    if (*err_out == TIARA_OK && small.op->finish)
        small.op->finish(small.op, small.out, small.count, a->c->size);
    job_end(a, at, *err_out);
    return true;
}

/* The same for a job with a plan, one of which runs at a time. */
static bool step_plan(struct tiara_async *a, struct tiara_job **at, enum tiara_err *err_out)
{
    struct tiara_job *job = *at;
    bool moved = false;

    *err_out = TIARA_OK;
    if (!job->published) {
        if (a->running || !tiara_posted_has_slot(a->c->arena, job->posted.seq))
            return false;
        tiara_posted_begin(a->c->arena, &job->posted);
        job->published = true;
        a->running = job;
        a->c->digest = job->posted.digest;
        *err_out = tiara_exec_open(a->run, &a->c->exec, &job->plan);
    }
    if (*err_out == TIARA_OK && !tiara_exec_poll(a->run, &moved, err_out))
        return moved;
    tiara_exec_close(a->run, *err_out);
    a->running = NULL;
    job_end(a, at, *err_out);
    return true;
}

/* Moves on the jobs of one communicator. Lock held. */
static bool step(struct tiara_async *a)
{
    struct tiara_job **at = &a->first;
    bool moved = false;

    while (*at) {
        struct tiara_job *job = *at;
        enum tiara_err err;

        moved |= job->plan.plan ? step_plan(a, at, &err) : step_small(a, at, &err);
        if (err != TIARA_OK) {
            fail_all(a);
            return true;
        }
        if (*at != job)
            continue;
        /* What has no slot yet, the later ones do not have either. */
        if (!job->published && !job->plan.plan)
            break;
        at = &job->next;
    }
    return moved;
}

/* Whether the thread may drive the jobs of @a: those that need MPI are there only if all ranks let
 * it. */
static bool thread_drives(const struct tiara_async *a)
{
    return a->c->config.progress != TIARA_PROGRESS_CALL;
}

/* @by_thread: only what the thread may drive. *left_out: whether such jobs are left. Lock held. */
static bool step_all(bool by_thread, bool *left_out)
{
    bool moved = false;

    *left_out = false;
    for (struct tiara_async *a = asyncs; a; a = a->next) {
        if (!a->first || (by_thread && !thread_drives(a)))
            continue;
        moved |= step(a);
        *left_out |= a->first != NULL;
    }
    return moved;
}

bool tiara_async_progress(void)
{
    bool moved, left;

    /* relaxed: a job of another thread that is missed here is that thread's to wait for */
    if (tiara_load_relaxed(&njobs) == 0 || pthread_mutex_trylock(&lock) != 0)
        return false;
    visits++;
    moved = step_all(false, &left);
    pthread_mutex_unlock(&lock);
    return moved;
}

bool tiara_async_progress_thread(bool *left_out)
{
    bool moved;

    *left_out = true;
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    moved = step_all(true, left_out);
    pthread_mutex_unlock(&lock);
    return moved;
}

bool tiara_async_has_jobs(void)
{
    bool some = false;

    pthread_mutex_lock(&lock);
    for (struct tiara_async *a = asyncs; a; a = a->next)
        some |= thread_drives(a) && a->first;
    pthread_mutex_unlock(&lock);
    return some;
}

uint64_t tiara_async_visits(void)
{
    uint64_t n;

    pthread_mutex_lock(&lock);
    n = visits;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- starting ---- */

static bool choose(const struct tiara_comm *c, const struct tiara_call *call,
    struct tiara_tune_choice *choice, const char **why_out)
{
    if (!tiara_async_judge(c, call, choice, why_out))
        return false;
    if (choice->path == TIARA_PATH_SMALL || tiara_core_has_plan(c, choice, TIARA_PLAN_HOST))
        return true;
    *why_out = "no plan was made for it at set-up";
    return false;
}

bool tiara_async_choose(struct tiara_async *a, const struct tiara_call *call,
    struct tiara_tune_choice *choice, const char **why_out)
{
    bool can = true;

    pthread_mutex_lock(&lock);
    if (a->failed)
        /* It is started, and fails: not all ranks need know yet. */
        *choice = (struct tiara_tune_choice){.path = TIARA_PATH_SMALL};
    else
        can = choose(a->c, call, choice, why_out);
    pthread_mutex_unlock(&lock);
    return can;
}

static enum tiara_err fill_plan(
    struct tiara_async *a, struct tiara_job *job, const struct tiara_tune_choice *choice)
{
    job->plan = (struct tiara_exec_call){.op = job->call.elem.redop,
        .in = job->call.in,
        .out = job->call.out,
        .count = job->call.count,
        .elem_size = job->call.elem.size,
        .chunk_elems = choice->chunk_elems,
        .slots = choice->slots,
        .digest = job->posted.digest,
        .finish_ranks = a->c->size};
    /* It is there, see tiara_async_choose: nothing is exchanged. */
    return tiara_core_plan(a->c, choice, TIARA_PLAN_HOST, &job->plan.plan);
}

void tiara_async_start(
    struct tiara_async *a, struct tiara_job *job, const struct tiara_tune_choice *choice)
{
    struct tiara_comm *c = a->c;
    struct tiara_call *call = &job->call;
    enum tiara_err err = TIARA_OK;

    if (c->facts.reproducible && tiara_elem_is_small_float(&call->elem))
        call->elem.redop = tiara_elem_strict(call->elem.redop, &job->strict);
    job->async = a;
    job->next = NULL;
    job->published = false;
    tiara_store_relaxed(&job->done, 0); /* relaxed: nobody else knows the job yet */
    pthread_mutex_lock(&lock);
    job->posted = (struct tiara_posted){
        .seq = a->next_seq++, .digest = tiara_call_digest(c, call), .desc = tiara_call_desc(call)};
    job->plan = (struct tiara_exec_call){0};
    if (choice->path == TIARA_PATH_PLAN)
        err = fill_plan(a, job, choice);
    *a->end = job;
    a->end = &job->next;
    tiara_store_relaxed(&njobs, tiara_load_relaxed(&njobs) + 1); /* relaxed: under the lock */
    visits++;
    if (a->failed || err != TIARA_OK)
        fail_all(a);
    else
        step(a);
    pthread_mutex_unlock(&lock);
    if (thread_drives(a) && !tiara_job_is_done(job))
        tiara_async_thread_call();
}

/* ---- waiting ---- */

void tiara_async_inspect(struct tiara_job *job, double waited_s, bool first)
{
    enum tiara_err err = TIARA_OK;

    pthread_mutex_lock(&lock);
    if (!tiara_job_is_done(job)) {
        struct tiara_async *a = job->async;

        err = tiara_posted_inspect(a->c->arena, &a->first->posted, waited_s, first);
        if (err == TIARA_OK && a->c->net_obj)
            err = tiara_comm_inspect_net(a->c);
        if (err != TIARA_OK)
            fail_all(a);
    }
    pthread_mutex_unlock(&lock);
}

void tiara_async_wait_init(struct tiara_wait *w, struct tiara_job *job)
{
    *w = (struct tiara_wait){.spins = 100, .yields = -1};
    if (!job)
        return;
    w->crowded = job->async->c->wait.crowded;
    w->spins = job->async->c->wait.spins;
    w->warn_s = job->async->c->wait.warn_s;
    w->limit_s = job->async->c->wait.limit_s;
}

void tiara_async_abandon(struct tiara_job *job)
{
    pthread_mutex_lock(&lock);
    if (!tiara_job_is_done(job))
        fail_all(job->async);
    pthread_mutex_unlock(&lock);
}

/* ---- communicators ---- */

static void async_free(struct tiara_async *a)
{
    if (a && a->c)
        tiara_comm_twin_free(a->c);
    if (a)
        tiara_free(a->run);
    tiara_free(a);
}

/* Collective. NULL in *a_out: there is no way, on all ranks. After an error the communicator is
 * given up. */
static enum tiara_err async_new(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_async **a_out)
{
    struct tiara_async *a = tiara_alloc(1, sizeof(*a));
    enum tiara_err err;

    *a_out = NULL;
    if (a)
        a->run = tiara_exec_run_new();
    err = tiara_async_make(c, like, a && a->run, a ? &a->c : NULL);
    if (err != TIARA_OK || !a || !a->c) {
        if (err != TIARA_OK)
            tiara_comm_give_up(c);
        async_free(a);
        return err;
    }
    a->owner = c;
    a->next_seq = 1;
    a->end = &a->first;
    pthread_mutex_lock(&lock);
    a->next = asyncs;
    asyncs = a;
    pthread_mutex_unlock(&lock);
    *a_out = a;
    return TIARA_OK;
}

enum tiara_err tiara_async_open(struct tiara_comm *c)
{
    enum tiara_err err = TIARA_OK;

    if (c->async_why || c->facts.mpi_only)
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

/* Takes a closed one without jobs out of the list; NULL: there is none. */
static struct tiara_async *take_closed(void)
{
    struct tiara_async *a = NULL;

    pthread_mutex_lock(&lock);
    for (struct tiara_async **at = &asyncs; *at; at = &(*at)->next) {
        if ((*at)->closed && !(*at)->first) {
            a = *at;
            *at = a->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    a->closed = true;
    pthread_mutex_unlock(&lock);
    /* This one when it has no jobs, else with the next one that is closed. */
    free_closed();
}

void tiara_async_part(struct tiara_comm *c)
{
    pthread_mutex_lock(&lock);
    for (struct tiara_async *a = asyncs; a; a = a->next)
        if (a->owner == c)
            a->owner = NULL;
    pthread_mutex_unlock(&lock);
    tiara_async_close(c->async);
}

static bool nothing_left(void *arg, struct tiara_wait_on *on)
{
    (void)arg;
    on->word = NULL;
    tiara_async_progress();
    return tiara_load_relaxed(&njobs) == 0; /* relaxed: only this thread starts jobs now */
}

void tiara_async_finish(void)
{
    struct tiara_wait w;
    struct tiara_job *job = NULL;

    pthread_mutex_lock(&lock);
    for (struct tiara_async *a = asyncs; a && !job; a = a->next)
        job = a->first;
    pthread_mutex_unlock(&lock);
    tiara_async_wait_init(&w, NULL);
    if (job && tiara_wait(&w, nothing_left, NULL) != TIARA_OK)
        tiara_error("nonblocking calls were not complete at MPI_Finalize");
    tiara_async_thread_stop();
}

void tiara_async_release(void)
{
    free_closed();
}
