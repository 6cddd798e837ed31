/*
 * The words for the error codes. The only list besides the enum; the array's length ties them.
 */
#include "base/err.h"
#include "base/log.h"
#include <stddef.h>
#include <stdlib.h>

static const char *const texts[TIARA_NERR] = {
    [TIARA_OK] = "success",
    [TIARA_ERR_ARG] = "unacceptable value",
    [TIARA_ERR_NOMEM] = "out of memory",
    [TIARA_ERR_NOSPACE] = "no room for shared memory",
    [TIARA_ERR_UNSUPPORTED] = "not supported here",
    [TIARA_ERR_PLAN] = "plan breaks a rule",
    [TIARA_ERR_MISMATCH] = "ranks called with different arguments",
    [TIARA_ERR_PEER] = "a peer died or stopped",
    [TIARA_ERR_TIMEOUT] = "time limit passed",
    [TIARA_ERR_MPI] = "the underlying MPI failed",
    [TIARA_ERR_SYS] = "a system call failed",
};

const char *tiara_err_text(enum tiara_err err)
{
    if ((unsigned)err >= TIARA_NERR || texts[err] == NULL)
        return "unknown error";
    return texts[err];
}

void tiara_assert_failed(const char *condition, const char *file, int line)
{
    tiara_error("%s:%d: not true: %s", file, line, condition);
    abort();
}
