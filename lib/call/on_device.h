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
 * Runs @call on the GPUs if it can be on all ranks; *done_out says whether. Otherwise nothing has
 * happened, and the host path is next, on all ranks.
 * Collective. Errors: those of tiara_gpu_node_ops.run, and of the exchanges.
 */
TIARA_MUST_USE enum tiara_err tiara_on_device_run(
    struct tiara_comm *c, struct tiara_call *call, bool *done_out);

/*
 * What GPUs would do with @call in a stream: path MPI when they cannot. @may_set_up: takes the
 * steps that need the other ranks, collective then; they are needed on all ranks or none. Errors:
 * as tiara_on_device_run.
 */
TIARA_MUST_USE enum tiara_err tiara_on_device_prepare(struct tiara_comm *c, struct tiara_call *call,
    bool may_set_up, struct tiara_tune_choice *choice_out);
/* The prepared call, now; or in @stream, on one node. */
TIARA_MUST_USE enum tiara_err tiara_on_device_run_choice(
    struct tiara_comm *c, struct tiara_call *call, const struct tiara_tune_choice *choice);
TIARA_MUST_USE enum tiara_err tiara_on_device_enqueue(struct tiara_comm *c,
    const struct tiara_call *call, const struct tiara_tune_choice *choice, void *stream);
/* @c is freed: ends what it has on GPUs, calls in streams first. */
void tiara_on_device_fini(struct tiara_comm *c);

#endif
