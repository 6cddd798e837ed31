/*
 * The ways to carry a call out, and the call under way.
 *
 * A call that is under way is started, polled until it is over, and finished. Who drives it is not
 * the way's business: a blocking call is started and waited for (run.h), a nonblocking one is
 * started and listed (async.h), a persistent one is prepared once and started again and again.
 */
#ifndef TIARA_CALL_WAY_H
#define TIARA_CALL_WAY_H

#include "call/call.h"
#include "gpu/gpu.h"

struct tiara_way;

/* A call under way. It stays where it is from start to finish. */
struct tiara_task {
    struct tiara_comm *c;
    struct tiara_call *call;
    struct tiara_tune_choice choice;
    const struct tiara_way *way;
    struct tiara_redop strict; /* storage for call->elem.redop */
    bool moved; /* the last poll did something */
    /* Of a call that nobody waits in: its number and slot, else NULL. */
    struct tiara_posted *posted;

    /* One-shot. */
    struct tiara_small_call small;
    int phase; /* of oneshot.c */
    int peer; /* all before it have published */

    /* With a plan; of a one-shot call, its part between nodes. */
    struct tiara_exec_call exec;
    const struct tiara_plan *plan; /* NULL: start gets it */
    struct tiara_redop bare; /* the operator without its finish */
    void *aside; /* result that the caller's buffer has no room for until the end */

    /* On GPUs: what kernels are told. In a stream start is all; what follows is in the stream. */
    struct tiara_gpu_call gpu;
};

struct tiara_way {
    const char *name;
    /*
     * Begins the call, after which peers may see it; takes what it needs. May wait for peers where
     * something new has to be agreed on, as a plan; what nonblocking calls need is there before.
     * Errors: TIARA_ERR_UNSUPPORTED, agreed: another way has to be found. After any error the task
     * is over, and finish is not called.
     */
    enum tiara_err (*start)(struct tiara_task *t);
    /* Goes on without waiting; t->moved: it might go on at once. True: it is over, or has failed
     * (*err_out). Otherwise @on is what it waits for, as in tiara_wait. */
    bool (*poll)(struct tiara_task *t, struct tiara_wait_on *on, enum tiara_err *err_out);
    /* After poll said so: @err is what it ended with, also when the wait was given up. The result
     * is complete on return. Returns @err, or what the end of the call ended with. */
    enum tiara_err (*finish)(struct tiara_task *t, enum tiara_err err);
};

extern const struct tiara_way tiara_way_oneshot; /* every rank reduces all; oneshot.c */
/* The same in slots that are free when all ranks say so, for calls that nobody waits in:
 * posted.c */
extern const struct tiara_way tiara_way_posted;
extern const struct tiara_way tiara_way_plan; /* a plan on the host; planned.c */
extern const struct tiara_way tiara_way_device; /* a plan, or packets, on the GPUs; on_device.c */

/* The one that the choice asks for; NULL: the MPI below. @posted: for a call that nobody waits
 * in. */
const struct tiara_way *tiara_way_of(const struct tiara_tune_choice *choice, bool posted);

#endif
