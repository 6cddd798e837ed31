/*
 * A communicator's proxy: the thread that runs calls in streams which need the network.
 *
 * One call at a time: the proxy works while no other call on the communicator does, since those
 * wait for it first.
 */
#ifndef TIARA_CALL_PROXY_H
#define TIARA_CALL_PROXY_H

#include "call/call.h"

/* A call behind its gate. */
struct tiara_proxied {
    struct tiara_call call;
    struct tiara_tune_choice choice;
    void *gate;
    /* Runs it, in the proxy's thread. */
    enum tiara_err (*run)(struct tiara_comm *c, struct tiara_proxied *p);
    struct tiara_proxied *next;
};

/* Starts the thread, unless it runs. Errors: TIARA_ERR_NOMEM, TIARA_ERR_SYS. */
TIARA_MUST_USE enum tiara_err tiara_proxy_open(struct tiara_comm *c);
/* Lets the thread run all that it has, and ends it. */
void tiara_proxy_close(struct tiara_comm *c);
/* A copy of @p is run after all before it. Errors: TIARA_ERR_NOMEM. */
TIARA_MUST_USE enum tiara_err tiara_proxy_add(struct tiara_comm *c, const struct tiara_proxied *p);

/* Waits until the proxy has nothing to run; the errors are kept. Nothing, without a proxy. */
void tiara_proxy_rest(struct tiara_comm *c);
/* The same; returns what calls in streams have failed with since the last look, as does failed,
 * which does not wait. */
TIARA_MUST_USE enum tiara_err tiara_proxy_drain(struct tiara_comm *c);
TIARA_MUST_USE enum tiara_err tiara_proxy_failed(struct tiara_comm *c);

#endif
