/*
 * What nonblocking operations on a communicator need: a twin state, which all ranks have or none.
 */
#include "call/async.h"

/* Whether messages between ranks may be driven by those who drive the jobs; alike on all ranks. */
static bool may_use_mpi(const struct tiara_comm *c)
{
    return c->config.progress == TIARA_PROGRESS_CALL ||
           (c->config.progress == TIARA_PROGRESS_THREAD && c->threads);
}

const char *tiara_async_no_way(const struct tiara_comm *c)
{
    if (c->facts.mpi_only)
        return c->facts.mpi_only;
    if (c->layout.nnodes == 1 || may_use_mpi(c))
        return NULL;
    return c->config.progress == TIARA_PROGRESS_THREAD
               ? "TIARA_PROGRESS=thread needs MPI_THREAD_MULTIPLE on all ranks"
               : "several nodes, see TIARA_PROGRESS";
}

bool tiara_async_judge(const struct tiara_comm *twin, const struct tiara_call *call,
    struct tiara_tune_choice *choice_out, const char **why_out)
{
    struct tiara_tune_call q;

    tiara_call_query(call, false, &q);
    tiara_tune_choose(&twin->facts, &q, choice_out);
    *why_out = choice_out->why;
    if (choice_out->path != TIARA_PATH_PLAN)
        return choice_out->path == TIARA_PATH_SMALL;
    if (!(choice_out->algo->flags & TIARA_ALGO_FLAT) || may_use_mpi(twin))
        return true;
    *why_out = "needs messages, see TIARA_PROGRESS";
    return false;
}

/* One exchange: TIARA_ERR_UNSUPPORTED when a rank says no. */
static enum tiara_err all_say(struct tiara_comm *c, bool yes)
{
    unsigned char all;
    enum tiara_err err = tiara_core_vote(c, yes, &all);

    return err == TIARA_OK && !(all & 1) ? TIARA_ERR_UNSUPPORTED : err;
}

/* Not with a window of MPI's: freeing it takes all ranks at once, and they may come to the end of
 * their jobs at any time. */
static bool is_fit(const struct tiara_comm *twin)
{
    return twin && !twin->facts.mpi_only && twin->arena &&
           !tiara_pool_free_is_collective(twin->pool);
}

static enum tiara_err make_twin(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_comm **twin_out)
{
    enum tiara_err err = tiara_comm_twin(c, like, twin_out);

    /* Who alone has no memory takes part in the vote. */
    if (err == TIARA_OK || err == TIARA_ERR_NOMEM)
        err = all_say(c, is_fit(*twin_out));
    if (err == TIARA_OK) {
        (*twin_out)->arena->posted = true;
        (*twin_out)->arena->comm_id = (*twin_out)->id;
    }
    return err;
}

/* The plan of the only call that a lean twin has. */
static enum tiara_err make_plan(struct tiara_comm *twin, const struct tiara_call *call)
{
    struct tiara_tune_choice choice;
    const struct tiara_plan *plan;
    const char *why;

    if (!tiara_async_judge(twin, call, &choice, &why))
        return TIARA_ERR_UNSUPPORTED;
    return choice.path == TIARA_PATH_PLAN ? tiara_core_plan(twin, &choice, TIARA_PLAN_HOST, &plan)
                                          : TIARA_OK;
}

enum tiara_err tiara_async_make(
    struct tiara_comm *c, const struct tiara_call *like, bool ready, struct tiara_comm **twin_out)
{
    enum tiara_err err = all_say(c, ready);

    if (err == TIARA_OK)
        err = make_twin(c, like, twin_out);
    if (err == TIARA_OK && like)
        err = make_plan(*twin_out, like);
    if (err != TIARA_ERR_UNSUPPORTED)
        return err;
    if (twin_out && *twin_out)
        tiara_comm_twin_free(*twin_out);
    if (twin_out)
        *twin_out = NULL;
    return TIARA_OK;
}
