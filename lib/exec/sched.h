/*
 * The scheduler of chunks, for whatever executes them: exec.c on the host, gpu/run.c on devices.
 *
 * A call is cut into chunks. Up to @window of them are in flight, each in a slot; chunks take the
 * slots in turn, so that which slot a chunk has is the same on all ranks. Whoever drives the
 * scheduler tries every chunk in flight, oldest first, moves each as far as it goes without
 * waiting, and starts the next one when the oldest is over. Only when none moved does the call
 * wait, and that is the condition of its wait.
 */
#ifndef TIARA_EXEC_SCHED_H
#define TIARA_EXEC_SCHED_H

#include "exec/chunk.h"

struct tiara_sched;

/* What an executor does with a chunk. An error goes into sched->err, and ends the call. */
struct tiara_sched_ops {
    /* The chunk begins in part->slot. */
    void (*start)(struct tiara_sched *sched, const struct tiara_part *part);
    /*
     * Moves the chunk in @slot as far as it goes without waiting; true when it moved. Clears
     * sched->busy[slot] when the chunk is over. What it waits for: a word goes into @on, unless
     * there is one; if there is no word for it (messages, copies), it sets sched->has_no_word.
     */
    bool (*step)(struct tiara_sched *sched, int slot, struct tiara_wait_on *on);
    /* After an error: gives up the messages and copies that the chunk in @slot has under way. */
    void (*drain)(struct tiara_sched *sched, int slot);
};

struct tiara_sched {
    const struct tiara_sched_ops *ops;
    struct tiara_exec *x;
    const struct tiara_exec_call *call;
    size_t chunk_elems; /* of the vector, or of each block, in every chunk but the last */
    size_t nchunks;
    size_t next; /* the next chunk to start */
    size_t oldest; /* all before it are over */
    int window; /* most chunks in flight */
    int nslots; /* slots that are taken in turn, window .. TIARA_SLOTS */
    int slot; /* of the oldest */
    bool has_no_word;
    bool busy[TIARA_SLOTS]; /* a chunk is in flight there */
    enum tiara_err err;
};

/*
 * One try of every chunk in flight, oldest first. True when the call is over, well or with
 * sched->err. *moved_out: something was done, and there may be more to do; else @on is what is
 * waited for.
 */
bool tiara_sched_poll(struct tiara_sched *s, struct tiara_wait_on *on, bool *moved_out);
/* After an error: drains all chunks in flight. */
void tiara_sched_drain(struct tiara_sched *s);

#endif
