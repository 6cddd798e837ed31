/*
 * Private to lib/call and lib/api: nonblocking operations that Tiara runs itself.
 *
 * A communicator whose nonblocking calls Tiara runs has a twin state (comm.c) with an arena of its
 * own, so that blocking and nonblocking calls never meet. An operation is a task. Tasks of a
 * communicator are numbered in the order in which they were started, alike on all ranks; small ones
 * are published at once and end as their peers' parts arrive, in any order; the others run their
 * plans one after the other. Persistent operations are started in any order, by the rules of MPI;
 * so each has a twin of its own.
 *
 * Who does the work. Whoever passes by: every start, every completing call, every wait of the
 * library, and a thread for what would be held up otherwise (async_thread.c). One at a time and
 * step by step (async_priv.h); who does the work waits for nobody, nor does who starts something.
 */
#ifndef TIARA_CALL_ASYNC_H
#define TIARA_CALL_ASYNC_H

#include "call/channel.h"
#include "call/way.h"

struct tiara_async;

struct tiara_async_task {
    struct tiara_call call; /* the caller's, with host buffers and a native element */
    struct tiara_task body; /* how it is carried out */
    struct tiara_posted posted;
    bool started; /* node peers may see it; with a plan, it runs */
    struct tiara_async *async;
    struct tiara_watch watch; /* of the program's tests */
    enum tiara_err err; /* good when done */
    tiara_u32 done; /* [task.done] released when all else is; the engine has forgotten the task */
    struct tiara_async_task *next;
};

/*
 * Makes what nonblocking calls on @c need, as c->async, unless that was tried before. Collective,
 * in a blocking call. When there is no way, all ranks go on without: c->async_why.
 * Errors: TIARA_ERR_MPI and those of the wait, which leave the communicator unusable.
 */
TIARA_MUST_USE enum tiara_err tiara_async_open(struct tiara_comm *c);
/*
 * The same for operations like @call only, one at a time: *a_out, NULL when there is no way.
 * Collective. It may outlive the communicator.
 */
TIARA_MUST_USE enum tiara_err tiara_async_channel(
    struct tiara_comm *c, const struct tiara_call *call, struct tiara_async **a_out);
/* It is not needed any more; tasks that are under way go on. NULL is accepted. */
void tiara_async_close(struct tiara_async *a);
/* @c is freed: closes c->async, and keeps nothing for further channels. */
void tiara_async_part(struct tiara_comm *c);

/* Whether an operation on @call would be a task; else it is for the MPI below (*why_out: in a few
 * words). On all ranks alike. */
bool tiara_async_serves(struct tiara_async *a, const struct tiara_call *call, const char **why_out);
/*
 * Starts @task, whose call is filled in. @mine: an error that this rank has met before: then the
 * task fails, on all ranks. False: it is for the MPI below. Never waits, neither for another rank
 * nor for an operation that is under way. The task must stay where it is until it is done.
 */
bool tiara_async_start(struct tiara_async *a, struct tiara_async_task *task, enum tiara_err mine);
static inline bool tiara_async_is_done(const struct tiara_async_task *task)
{
    /* [task.done] acquire: the result and task->err may be read after it. */
    return tiara_load_acquire(&task->done) != 0;
}

/* Moves on all tasks of the process, by some steps, unless somebody else is at it. Any thread.
 * Cheap when there are none. True when something was done. */
bool tiara_async_progress(void);
/* The wait for @task was given up: all tasks of its communicator end with an error. */
void tiara_async_revoke(struct tiara_async_task *task);
/* For a wait that does not end: when the tasks of @task's communicator cannot end either, they end
 * with an error. @first: also logs who is missing. */
void tiara_async_inspect(struct tiara_async_task *task, double waited_s, bool first);
/* The wait of a thread that waits for @task, or (NULL) for something of the MPI below. */
void tiara_async_wait_init(struct tiara_wait *w, const struct tiara_async_task *task);

/* At MPI_Finalize: waits for all tasks; then, when no communicator has a state any more, frees what
 * is left. */
void tiara_async_finish(void);
void tiara_async_release(void);

/* ---- setting up: async_make.c ---- */

/* Whether @twin's tasks can do @call, its plan aside, and how; else why not. Alike on all ranks. */
bool tiara_async_judge(const struct tiara_comm *twin, const struct tiara_call *call,
    struct tiara_tune_choice *choice_out, const char **why_out);
/* Why there can be no twin; NULL: there may be one. Alike on all ranks. */
const char *tiara_async_no_way(const struct tiara_comm *c);
/*
 * A twin of @c, on all ranks or none: then it is NULL. @like: the only kind of call that it has, or
 * NULL; @small: which needs small slots only. @ready: this rank has what else it takes, and memory
 * for the result. Collective.
 * Errors: as tiara_async_open.
 */
TIARA_MUST_USE enum tiara_err tiara_async_make(struct tiara_comm *c, const struct tiara_call *like,
    bool small, bool ready, struct tiara_comm **twin_out);

/* ---- the thread: async_thread.c ---- */

/* What it drives. */
struct tiara_async_work {
    /* Moves on the tasks that it may drive, as tiara_async_progress; *left_out: whether such are
     * left. */
    bool (*progress)(bool *left_out);
    bool (*has_tasks)(void); /* such that it may drive */
    uint64_t (*visits)(void); /* how often the program itself came by */
};

/* There is a task that the thread may drive. Starts the thread when there is none. Errors are
 * logged: then there is no thread. @work: static, always the same. */
void tiara_async_thread_call(const struct tiara_async_work *work);
void tiara_async_thread_stop(void);

#endif
