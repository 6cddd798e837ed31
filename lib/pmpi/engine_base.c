/*
 * What all files of the engine need.
 */
#include "pmpi/engine_priv.h"

const struct tiara_pmpi_host *tiara_engine_host;
struct tiara_engine_settings tiara_engine_settings;

int tiara_engine_like(MPI_Comm comm, MPI_Comm *like_out)
{
    MPI_Group members;
    int rc = PMPI_Comm_group(comm, &members);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Comm_create(comm, members, like_out);
    PMPI_Group_free(&members);
    return rc;
}

int tiara_engine_raise(MPI_Comm comm, int code)
{
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

int tiara_engine_run(const struct tiara_engine_args *a)
{
    if (a->kind == TIARA_KIND_ALLREDUCE)
        return TIARA_Allreduce_c(a->sendbuf, a->recvbuf, a->count, a->type, a->op, a->comm);
    if (a->kind == TIARA_KIND_REDUCE_SCATTER_BLOCK)
        return TIARA_Reduce_scatter_block(
            a->sendbuf, a->recvbuf, (int)a->count, a->type, a->op, a->comm);
    return TIARA_Allgather(
        a->sendbuf, a->sendcount, a->sendtype, a->recvbuf, (int)a->count, a->type, a->comm);
}
