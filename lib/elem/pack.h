/*
 * MPI_Pack and MPI_Unpack of any number of elements.
 */
#ifndef TIARA_ELEM_PACK_H
#define TIARA_ELEM_PACK_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Packs @count elements of @type at @from, @extent apart and @size bytes of data each (at most
 * INT_MAX, as the sizes of MPI's calls are ints), into @to; @unpack: the other way. Returns MPI's
 * code.
 */
int tiara_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack);

#endif
