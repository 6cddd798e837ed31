/*
 * Calls on GPU memory, on the GPUs.
 */
#ifndef TIARA_CALL_ON_DEVICE_H
#define TIARA_CALL_ON_DEVICE_H

#include "call/call.h"

/*
 * Says which buffers of @call are GPU memory: call->device_in, device_out, and the device. Errors:
 * TIARA_ERR_ARG, logged with rank and argument: a freed buffer, or one that is too short.
 */
TIARA_MUST_USE enum tiara_err tiara_on_device_classify(
    const struct tiara_comm *c, struct tiara_call *call);

/*
 * What GPUs would do with @call, if it can be theirs on all ranks; else the path is MPI, nothing
 * has happened, and the host is next, on all ranks. Collective, as far as it has to be.
 * Errors: those of the exchanges.
 */
TIARA_MUST_USE enum tiara_err tiara_on_device_choose(
    struct tiara_comm *c, struct tiara_call *call, struct tiara_tune_choice *choice_out);
/*
 * The same for a call in a stream. @may_set_up: takes the steps that need the other ranks; they are
 * needed on all ranks or none.
 */
TIARA_MUST_USE enum tiara_err tiara_on_device_prepare(struct tiara_comm *c, struct tiara_call *call,
    bool may_set_up, struct tiara_tune_choice *choice_out);
/* @c is freed: ends what it has on GPUs, calls in streams first. */
void tiara_on_device_fini(struct tiara_comm *c);

#endif
