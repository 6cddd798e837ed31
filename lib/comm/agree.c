/*
 * Agreement: one flag a fact, and the common flags are the result.
 *
 * Nonblocking collectives and a wait that yields: a blocking one spins in most MPIs, for
 * milliseconds per call when ranks share cores.
 */
#include "comm/agree.h"
#include "base/log.h"
#include "comm/comm.h"

struct pending {
    MPI_Request request;
    int rc;
};

static bool is_complete(void *arg, struct tiara_wait_on *on)
{
    struct pending *p = arg;
    int done = 0;

    on->word = NULL;
    p->rc = PMPI_Test(&p->request, &done, MPI_STATUS_IGNORE);
    return done || p->rc != MPI_SUCCESS;
}

/* Ends what was started as @p. The wait has no end by itself: what it left behind would meet the
 * program's operations on its communicator. */
static enum tiara_err complete(struct pending *p)
{
    struct tiara_wait patient = {.yields = -1};
    enum tiara_err err = TIARA_OK;

    if (p->rc == MPI_SUCCESS)
        err = tiara_wait(&patient, is_complete, p);
    if (p->rc == MPI_SUCCESS)
        return err;
    tiara_error("an exchange between the ranks of a communicator failed in MPI");
    return TIARA_ERR_MPI;
}

enum tiara_err tiara_agree_exchange(void *comm, const void *in, void *out, size_t bytes)
{
    const MPI_Comm *on = comm;
    struct pending p;

    p.rc = PMPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, *on, &p.request);
    return complete(&p);
}

enum tiara_err tiara_agree_setup(MPI_Comm comm, uint64_t mine, uint64_t *all_out)
{
    struct pending p;
    enum tiara_err err;

    p.rc = PMPI_Iallreduce(&mine, all_out, 1, MPI_UINT64_T, MPI_BAND, comm, &p.request);
    err = complete(&p);
    if (err != TIARA_OK)
        *all_out = 0;
    return err;
}

static enum tiara_err common_ready(enum tiara_err err, uint64_t all)
{
    return err == TIARA_OK && !(all & TIARA_AGREE_READY) ? TIARA_ERR_UNSUPPORTED : err;
}

enum tiara_err tiara_agree_setup_ready(MPI_Comm comm, bool ready)
{
    uint64_t all;
    enum tiara_err err = tiara_agree_setup(comm, ready ? TIARA_AGREE_READY : 0, &all);

    return common_ready(err, all);
}

/* ---- inside a call ---- */

/* A message to one rank, and one from another. */
struct exchange {
    const struct tiara_exec *exec;
    struct tiara_xport_req reqs[2];
    enum tiara_err err;
};

static bool is_exchanged(void *arg, struct tiara_wait_on *on)
{
    struct exchange *x = arg;

    on->word = NULL;
    for (int i = 0; i < 2 && x->err == TIARA_OK; i++)
        x->err = x->exec->net->test(x->exec->net_obj, &x->reqs[i]);
    return x->err != TIARA_OK || (x->reqs[0].done && x->reqs[1].done);
}

/* c->agreed[0] goes to the rank @distance above, c->agreed[1] comes from the one that far below. */
static enum tiara_err exchange(struct tiara_comm *c, int distance, uint32_t tag)
{
    const struct tiara_exec *exec = &c->exec;
    struct exchange x = {.exec = exec, .reqs = {{.done = true}, {.done = true}}};
    int from = (c->rank - distance + c->size) % c->size, to = (c->rank + distance) % c->size;
    enum tiara_err err = TIARA_OK;

    x.err =
        exec->net->recv(exec->net_obj, from, tag, &c->agreed[1], sizeof(c->agreed[1]), &x.reqs[1]);
    if (x.err == TIARA_OK)
        x.err = exec->net->send(
            exec->net_obj, to, tag, &c->agreed[0], sizeof(c->agreed[0]), &x.reqs[0]);
    if (x.err == TIARA_OK)
        err = tiara_wait(exec->wait, is_exchanged, &x);
    for (int i = 0; i < 2; i++)
        if (!x.reqs[i].done)
            exec->net->cancel(exec->net_obj, &x.reqs[i]);
    return tiara_err_first(err, x.err);
}

/* In the k-th round each rank hears of 2^k more; that it may hear of one twice does no harm. */
static enum tiara_err agree_between_nodes(struct tiara_comm *c, uint64_t mine, uint64_t *all_out)
{
    uint32_t tag = tiara_xport_control(c->exec.tag_bits, TIARA_XPORT_CONTROLS);
    enum tiara_err err = TIARA_OK;

    tiara_watch_begin(c);
    c->agreed[0] = mine;
    for (int64_t distance = 1; distance < c->size && err == TIARA_OK; distance *= 2) {
        err = exchange(c, (int)distance, tag++);
        c->agreed[0] &= c->agreed[1];
    }
    *all_out = c->agreed[0];
    return err;
}

enum tiara_err tiara_agree(struct tiara_comm *c, unsigned mine, unsigned *all_out)
{
    uint64_t all = 0;
    enum tiara_err err = c->layout.nnodes == 1 && c->arena ? tiara_small_and(c->arena, mine, &all)
                                                           : agree_between_nodes(c, mine, &all);

    *all_out = err == TIARA_OK ? (unsigned)all : 0;
    return err;
}

enum tiara_err tiara_agree_ready(struct tiara_comm *c, bool ready)
{
    unsigned all;
    enum tiara_err err = tiara_agree(c, ready ? TIARA_AGREE_READY : 0, &all);

    return common_ready(err, all);
}
