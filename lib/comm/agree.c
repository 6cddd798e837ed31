/*
 * Agreement: one flag a fact, and the common flags are the result.
 *
 * Nonblocking collectives and a wait that yields: a blocking one spins in most MPIs, for
 * milliseconds per call when ranks share cores.
 */
#include "comm/agree.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/watch.h"

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

/* Ends what was started as @p with the code @rc. After an error of the wait it is still pending. */
static enum tiara_err complete(struct tiara_wait *wait, struct pending *p)
{
    enum tiara_err err = TIARA_OK;

    if (p->rc == MPI_SUCCESS)
        err = tiara_wait(wait, is_complete, p);
    if (p->rc == MPI_SUCCESS)
        return err;
    tiara_error("an exchange between the ranks of a communicator failed in MPI");
    return TIARA_ERR_MPI;
}

enum tiara_err tiara_agree_exchange(MPI_Comm comm, const void *in, void *out, size_t bytes)
{
    struct tiara_wait patient = {.yields = -1};
    struct pending p;

    p.rc = PMPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, comm, &p.request);
    return complete(&patient, &p);
}

static enum tiara_err all_and(
    MPI_Comm comm, struct tiara_wait *wait, const uint64_t *in, uint64_t *out)
{
    struct pending p;

    p.rc = PMPI_Iallreduce(in, out, 1, MPI_UINT64_T, MPI_BAND, comm, &p.request);
    return complete(wait, &p);
}

enum tiara_err tiara_agree_setup_bits(MPI_Comm comm, uint64_t mine, uint64_t *all_out)
{
    struct tiara_wait patient = {.yields = -1};

    return all_and(comm, &patient, &mine, all_out);
}

enum tiara_err tiara_agree_setup(MPI_Comm comm, unsigned mine, unsigned *all_out)
{
    uint64_t out = 0;
    enum tiara_err err = tiara_agree_setup_bits(comm, mine, &out);

    *all_out = err == TIARA_OK ? (unsigned)out : 0;
    return err;
}

static enum tiara_err common_ready(enum tiara_err err, unsigned all)
{
    return err == TIARA_OK && !(all & TIARA_AGREE_READY) ? TIARA_ERR_UNSUPPORTED : err;
}

enum tiara_err tiara_agree_setup_ready(MPI_Comm comm, bool ready)
{
    unsigned all;
    enum tiara_err err = tiara_agree_setup(comm, ready ? TIARA_AGREE_READY : 0, &all);

    return common_ready(err, all);
}

/*
 * Over the private communicator. When the wait is given up, the exchange stays pending on it for
 * ever, and the memory with it: MPI has no way to take it back. So the communicator is not freed
 * either.
 */
static enum tiara_err agree_between_nodes(struct tiara_comm *c, uint64_t mine, uint64_t *all_out)
{
    uint64_t *words = c->agreed;
    enum tiara_err err;

    words[0] = mine;
    err = all_and(c->net, tiara_watch_begin(c), &words[0], &words[1]);
    if (err == TIARA_OK)
        *all_out = words[1];
    else if (err != TIARA_ERR_MPI)
        c->agreed = NULL;
    return err;
}

enum tiara_err tiara_agree(struct tiara_comm *c, unsigned mine, unsigned *all_out)
{
    uint64_t all = 0;
    enum tiara_err err = c->layout.nnodes == 1 ? tiara_small_and(c->arena, mine, &all)
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
