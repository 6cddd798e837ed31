/*
 * Between the files of async.h: the tasks of one communicator, and whose turn it is.
 *
 * Who moves tasks has the turn, and one thread has it at a time. A start never waits for it: when
 * another thread has the turn, the new task is left in a queue, which that thread empties before it
 * gives the turn up, and between any two steps of its work. What is not said to be of the lock is
 * of the turn; the lock is held for a few instructions only, and is known to async.c alone.
 */
#ifndef TIARA_CALL_ASYNC_PRIV_H
#define TIARA_CALL_ASYNC_PRIV_H

#include "call/async.h"

struct tiara_async {
    struct tiara_comm *c; /* the twin */
    struct tiara_channel channel; /* a part of its arena; or there is none, and all of it is ours */
    struct tiara_async_task *running; /* with a plan, of which one runs at a time; NULL: none */
    struct tiara_async_task *first, **end;
    uint64_t last_seq; /* of those that came into the list */
    uint64_t next_seq; /* lock */
    /* What a start reads of the twin is the lock's: when its state ends, an operation has failed,
     * and so will all others. */
    bool closed; /* to be freed when it has no tasks */
    struct tiara_async *next;
};

extern struct tiara_async *tiara_asyncs; /* all of the process */

/* Waits for the turn, which nobody has for long. */
void tiara_async_turn_take(void);
void tiara_async_turn_give(void);
/* An operation failed: the ranks do not agree any more, so the others cannot end either. In the
 * turn. */
void tiara_async_fail(struct tiara_async *a);
/* Whether no task is under way. */
bool tiara_async_has_none(void);

#endif
