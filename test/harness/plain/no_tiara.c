/*
 * What the harness wants of Tiara, for programs that are not linked with it: there are none of its
 * types, and an all-reduce is MPI's, which a preloaded library may take.
 */
#include "tiara.h"

#include <stdlib.h>

MPI_Datatype TIARA_Type_float16(void)
{
    return MPI_DATATYPE_NULL;
}

MPI_Datatype TIARA_Type_bfloat16(void)
{
    return MPI_DATATYPE_NULL;
}

MPI_Datatype TIARA_Type_float8_e4m3(void)
{
    return MPI_DATATYPE_NULL;
}

MPI_Datatype TIARA_Type_float8_e5m2(void)
{
    return MPI_DATATYPE_NULL;
}

MPI_Op TIARA_Op_avg(void)
{
    return MPI_OP_NULL;
}

int TIARA_Allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return MPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int TIARA_Report(int section, MPI_Comm comm, char *text, int size, int *length)
{
    (void)section;
    (void)comm;
    (void)text;
    (void)size;
    (void)length;
    abort();
}
