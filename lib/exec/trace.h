/*
 * A trace of every op: one file per process in the Trace Event format that chrome://tracing and
 * Perfetto read.
 *
 * A row of the picture is a slot; a bar is a copy, a reduction, or the posting of a message, with
 * its chunk and step. Idle time between bars is waiting: the overlap of the stages can be seen, or
 * missed.
 */
#ifndef TIARA_EXEC_TRACE_H
#define TIARA_EXEC_TRACE_H

#include "base/err.h"
#include "plan/plan.h"

struct tiara_trace;

/*
 * Opens "<prefix>.<rank>.json" for writing; @trace_out is NULL after an error, which is logged:
 * tracing is then off.
 * Errors: TIARA_ERR_SYS, TIARA_ERR_NOMEM.
 */
TIARA_MUST_USE enum tiara_err tiara_trace_open(
    const char *prefix, int rank, struct tiara_trace **trace_out);
/* NULL does nothing. */
void tiara_trace_close(struct tiara_trace *trace);
/* @op of @rank's plan, as chunk @chunk in @slot, from @begin to @end (tiara_now). */
void tiara_trace_op(struct tiara_trace *trace, const struct tiara_op *op, int slot, size_t chunk,
    double begin, double end);

#endif
