/*
 * MPI_Pack and MPI_Unpack of any number of elements.
 */
#include "elem/pack.h"
#include <limits.h>
#include <stdint.h>

/*
 * One call of MPI's. Some MPIs refuse a null address although the type has absolute ones
 * (MPI_BOTTOM): then the type is moved, and the dense side, which is some address, stands in for
 * it.
 */
static int pack_piece(void *typed, int n, MPI_Datatype type, char *dense, int bytes, bool unpack)
{
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    MPI_Aint base;
    int position = 0, rc = MPI_SUCCESS;

    if (!typed) {
        rc = PMPI_Get_address(dense, &base);
        base = -base;
        if (rc == MPI_SUCCESS)
            rc = PMPI_Type_create_hindexed(1, &n, &base, type, &moved);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Type_commit(&moved);
        typed = dense;
        type = moved;
        n = 1;
    }
    if (rc == MPI_SUCCESS && unpack)
        rc = PMPI_Unpack(dense, bytes, &position, typed, n, type, MPI_COMM_SELF);
    else if (rc == MPI_SUCCESS)
        rc = PMPI_Pack(typed, n, type, dense, bytes, &position, MPI_COMM_SELF);
    if (moved != MPI_DATATYPE_NULL)
        PMPI_Type_free(&moved);
    return rc;
}

int tiara_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack)
{
    size_t piece = (size_t)INT_MAX / size; /* elements of one call */
    int rc = MPI_SUCCESS;

    for (size_t at = 0; at < count && rc == MPI_SUCCESS; at += piece) {
        int n = (int)(count - at < piece ? count - at : piece);
        char *typed = (char *)(uintptr_t)from + (MPI_Aint)at * extent;

        rc = pack_piece(typed, n, type, to + at * size, n * (int)size, unpack);
    }
    return rc;
}
