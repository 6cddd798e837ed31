/*
 * A communicator's pinned memory, through which the CPU reaches GPU memory.
 */
#ifndef TIARA_CALL_STAGE_H
#define TIARA_CALL_STAGE_H

#include "comm/comm.h"

/* Makes c->exec ready to stage calls on buffers like @like. Local. Errors: TIARA_ERR_SYS,
 * TIARA_ERR_NOMEM. */
TIARA_MUST_USE enum tiara_err tiara_stage_open(struct tiara_comm *c, const void *like);
void tiara_stage_close(struct tiara_comm *c);
/* Copies between host and GPU memory, in pieces through pinned memory; complete on return.
 * @to_device: @dst is GPU memory, else @src. */
TIARA_MUST_USE enum tiara_err tiara_stage_copy(
    struct tiara_comm *c, void *dst, const void *src, size_t bytes, bool to_device);

#endif
