/*
 * Writing the trace. Buffered by stdio: the cost of tracing is a clock and a printf per op, and
 * nothing when it is off.
 */
#include "exec/trace.h"
#include "base/alloc.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct tiara_trace {
    FILE *file;
    int rank;
    bool comma;
};

enum tiara_err tiara_trace_open(const char *prefix, int rank, struct tiara_trace **trace_out)
{
    struct tiara_trace *t = tiara_alloc(1, sizeof(*t));
    char name[1100];

    *trace_out = NULL;
    if (!t)
        return TIARA_ERR_NOMEM;
    snprintf(name, sizeof(name), "%s.%d.json", prefix, rank);
    t->rank = rank;
    t->file = fopen(name, "w");
    if (!t->file) {
        tiara_error("TIARA_TRACE: cannot write \"%s\": %s", name, strerror(errno));
        tiara_free(t);
        return TIARA_ERR_SYS;
    }
    fputs("[\n", t->file);
    *trace_out = t;
    return TIARA_OK;
}

void tiara_trace_close(struct tiara_trace *t)
{
    if (!t)
        return;
    fputs("\n]\n", t->file);
    if (fclose(t->file) != 0)
        tiara_error(
            "TIARA_TRACE: the trace of rank %d is incomplete: %s", t->rank, strerror(errno));
    tiara_free(t);
}

void tiara_trace_op(struct tiara_trace *t, const struct tiara_op *op, int slot, size_t chunk,
    double begin, double end)
{
    static const char *const kinds[] = {"copy", "reduce", "send", "recv"};

    fprintf(t->file,
        "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{\"chunk\":%zu,\"step\":%d,\"peer\":%d}}",
        t->comma ? ",\n" : "", kinds[op->kind], t->rank, slot, begin * 1e6, (end - begin) * 1e6,
        chunk, op->step, op->peer);
    t->comma = true;
}
