/*
 * MPI_Pack and MPI_Unpack of any number of elements.
 */
#include "core/core.h"
#include <limits.h>

/* Elements handed to one MPI_Pack, whose sizes are ints. */
int tiara_core_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack)
{
    size_t piece = (size_t)INT_MAX / size;
    int rc = MPI_SUCCESS;

    for (size_t at = 0; at < count && rc == MPI_SUCCESS; at += piece) {
        int n = (int)(count - at < piece ? count - at : piece), position = 0;
        char *typed = (char *)(uintptr_t)from + (MPI_Aint)at * extent, *dense = to + at * size;

        if (unpack)
            rc = PMPI_Unpack(dense, n * (int)size, &position, typed, n, type, MPI_COMM_SELF);
        else
            rc = PMPI_Pack(typed, n, type, dense, n * (int)size, &position, MPI_COMM_SELF);
    }
    return rc;
}
