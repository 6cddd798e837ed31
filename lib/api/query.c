/*
 * Questions about the library that are answered without any other rank: TIARA_Comm_serves,
 * TIARA_Variable.
 */
#include "api/process.h"
#include "base/env.h"
#include "call/async.h"
#include "tiara.h"
#include <string.h>

struct question {
    struct tiara_call call;
    bool nonblocking;
    bool native;
};

/* The element and the operator, as far as choosing needs them. */
static bool fill_call(struct question *q, MPI_Count count, MPI_Datatype type, MPI_Op op)
{
    int size = 0;

    q->call = (struct tiara_call){.coll = TIARA_COLL_ALLREDUCE, .count = (size_t)count};
    q->native = tiara_elem_native(type, op, &q->call.elem);
    if (q->native)
        return true;
    if (type == MPI_DATATYPE_NULL || op == MPI_OP_NULL)
        return false;
    if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size <= 0)
        return false;
    q->call.elem = (struct tiara_elem){.size = (size_t)size, .type = -1, .oper = -1};
    return true;
}

/* What @c would do; the reason when it is nothing, NULL when it is Tiara's. */
static const char *judge_blocking(const struct tiara_comm *c, const struct question *q)
{
    struct tiara_tune_choice choice;
    struct tiara_tune_call query;

    tiara_call_query(c, &q->call, TIARA_ON_HOST, &query, &choice);
    return choice.path == TIARA_PATH_MPI ? choice.why : NULL;
}

static const char *judge_nonblocking(const struct tiara_comm *c, const struct question *q)
{
    const char *why;

    if (!q->native)
        return "a type or operator that MPI combines";
    if (!c->async)
        return c->async_why;
    return tiara_async_serves(c->async, &q->call, &why) ? NULL : why;
}

int TIARA_Comm_serves(MPI_Comm comm, int nonblocking, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, int *answer, const char **why)
{
    struct question q = {.nonblocking = nonblocking != 0};
    struct tiara_comm *c;
    int rc = tiara_process_find(comm, q.nonblocking, &c);

    if (rc != MPI_SUCCESS)
        return rc;
    *answer = TIARA_SERVES_NO;
    if (!c || (q.nonblocking && !c->async_why && tiara_comm_serves(c))) {
        *answer = TIARA_SERVES_UNKNOWN;
        *why = "not set up yet";
    } else if (!tiara_comm_serves(c)) {
        *why = c->state.why;
    } else if (count <= 0 || !fill_call(&q, count, datatype, op)) {
        *why = "nothing to combine";
    } else {
        *why = q.nonblocking ? judge_nonblocking(c, &q) : judge_blocking(c, &q);
        if (!*why) {
            *answer = TIARA_SERVES_YES;
            *why = "served by Tiara";
        }
    }
    return MPI_SUCCESS;
}

const char *TIARA_Variable(const char *name)
{
    tiara_env_read(NULL, false);
    for (int var = 0; var < TIARA_NENV; var++)
        if (strcmp(tiara_env_row((enum tiara_env)var)->name, name) == 0)
            return tiara_env_text((enum tiara_env)var);
    return NULL;
}

int TIARA_Get_version(int *major, int *minor, int *patch)
{
    *major = TIARA_VERSION_MAJOR;
    *minor = TIARA_VERSION_MINOR;
    *patch = TIARA_VERSION_PATCH;
    return MPI_SUCCESS;
}
