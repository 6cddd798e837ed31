/*
 * What nonblocking operations on a communicator need: a twin state, which all ranks have or none.
 */
#include "call/async.h"
#include "comm/agree.h"
#include "comm/plan_cache.h"

/* Whether messages between ranks may be driven by those who drive the tasks; alike on all ranks. */
static bool may_use_messages(const struct tiara_comm *c)
{
    const struct tiara_xport *net = c->exec.net;

    return c->config.progress == TIARA_PROGRESS_CALL ||
           (net && !(net->flags & TIARA_XPORT_BELOW)) ||
           (c->config.progress == TIARA_PROGRESS_THREAD && c->threads);
}

const char *tiara_async_no_way(const struct tiara_comm *c)
{
    if (!tiara_comm_serves(c))
        return c->state.why;
    if (c->layout.nnodes == 1 || may_use_messages(c))
        return NULL;
    return c->config.progress == TIARA_PROGRESS_THREAD
               ? "TIARA_PROGRESS=thread needs MPI_THREAD_MULTIPLE on all ranks"
               : "several nodes, see TIARA_PROGRESS";
}

bool tiara_async_judge(const struct tiara_comm *twin, const struct tiara_call *call,
    struct tiara_tune_choice *choice_out, const char **why_out)
{
    struct tiara_tune_call q;

    tiara_call_query(twin, call, TIARA_ON_HOST, &q, choice_out);
    *why_out = choice_out->why;
    if (choice_out->path != TIARA_PATH_PLAN)
        return choice_out->path == TIARA_PATH_ONESHOT;
    if (!(choice_out->algo->flags & TIARA_ALGO_FLAT) || may_use_messages(twin))
        return true;
    *why_out = "needs messages, see TIARA_PROGRESS";
    return false;
}

/* The plan of the only call that a lean twin has. Local. */
static enum tiara_err make_plan(struct tiara_comm *twin, const struct tiara_call *call)
{
    struct tiara_tune_choice choice;
    const char *why;

    if (!tiara_async_judge(twin, call, &choice, &why))
        return TIARA_ERR_UNSUPPORTED;
    return choice.path == TIARA_PATH_PLAN ? tiara_plan_prepare(twin, &choice, TIARA_PLAN_HOST)
                                          : TIARA_OK;
}

enum tiara_err tiara_async_make(struct tiara_comm *c, const struct tiara_call *like, bool small,
    bool ready, struct tiara_comm **twin_out)
{
    struct tiara_comm *twin = NULL;
    enum tiara_err err = tiara_agree_setup_ready(c->comm, ready);

    if (err == TIARA_OK)
        err = tiara_comm_twin(c, like != NULL, small, &twin);
    if (err == TIARA_OK) {
        ready =
            tiara_comm_serves(twin) && twin->arena && (!like || make_plan(twin, like) == TIARA_OK);
        err = tiara_agree_setup_ready(c->comm, ready);
    }
    if (err == TIARA_OK) {
        twin->arena->posted = true;
        twin->arena->comm_id = twin->id;
        *twin_out = twin;
        return TIARA_OK;
    }
    if (twin)
        tiara_comm_free(twin);
    return err == TIARA_ERR_MPI ? err : TIARA_OK;
}
