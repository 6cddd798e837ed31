/*
 * What the checker says of a wrong plan: which rank and op, and what is wrong with it.
 */
#include "plan/check_priv.h"
#include <stdarg.h>
#include <stdio.h>

enum tiara_err tiara_check_fail(struct tiara_check *c, int rank, int op, const char *format, ...)
{
    char *text = c->report->text;
    size_t size = sizeof(c->report->text);
    int n;
    va_list args;

    if (op < 0)
        n = snprintf(text, size, "rank %d: ", rank);
    else
        n = snprintf(text, size, "rank %d op %d (%s, step %d): ", rank, op,
            tiara_op_name(c->plans[rank]->ops[op].kind), c->plans[rank]->ops[op].step);
    va_start(args, format);
    vsnprintf(text + n, size - (size_t)n, format, args);
    va_end(args);
    return TIARA_ERR_PLAN;
}
