/*
 * Exchanges between all ranks. Nonblocking collectives and a wait that yields: a blocking one spins
 * in most MPIs, for milliseconds per call when ranks share cores.
 */
#include "comm/comm.h"
#include "base/log.h"

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

enum tiara_err tiara_core_exchange(MPI_Comm comm, const void *in, void *out, size_t bytes)
{
    struct tiara_wait patient = {.yields = -1};

    return tiara_core_exchange_by(comm, &patient, in, out, bytes);
}

enum tiara_err tiara_core_exchange_by(
    MPI_Comm comm, struct tiara_wait *wait, const void *in, void *out, size_t bytes)
{
    struct pending p;
    enum tiara_err err = TIARA_OK;

    p.rc = PMPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, comm, &p.request);
    if (p.rc == MPI_SUCCESS)
        err = tiara_wait(wait, is_complete, &p);
    if (p.rc != MPI_SUCCESS) {
        tiara_error("an exchange between the ranks of a communicator failed in MPI");
        return TIARA_ERR_MPI;
    }
    return err;
}

int tiara_core_await(MPI_Request request)
{
    struct pending p = {.request = request};
    struct tiara_wait patient = {.yields = -1};
    enum tiara_err err = tiara_wait(&patient, is_complete, &p);

    return err == TIARA_OK ? p.rc : MPI_ERR_OTHER;
}

enum tiara_err tiara_core_vote(struct tiara_comm *c, unsigned char mine, unsigned char *all_out)
{
    unsigned char *room = (unsigned char *)c->room, *own = room + c->size;
    enum tiara_err err;

    *own = mine;
    err = tiara_core_exchange_by(c->comm, tiara_comm_wait(c), own, room, 1);
    if (err != TIARA_OK && err != TIARA_ERR_MPI)
        c->room = NULL; /* the exchange is pending and keeps it */
    *all_out = 0xff;
    for (int i = 0; i < c->size && err == TIARA_OK; i++)
        *all_out &= room[i];
    return err;
}
