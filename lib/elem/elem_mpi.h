/*
 * Elements that the MPI below combines: user-defined operators on any type, and pair types; and
 * packing.
 */
#ifndef TIARA_ELEM_ELEM_MPI_H
#define TIARA_ELEM_ELEM_MPI_H

#include "elem/elem.h"

/* A redop that calls the MPI below, or through it a user's function, with its scratch memory. */
struct tiara_elem_mpi {
    struct tiara_redop redop;
    MPI_Datatype type;
    MPI_Op op;
    bool packed;
    MPI_Aint extent, true_lb;
    size_t span_one; /* true extent: bytes that one element touches */
    size_t piece; /* elements combined at a time */
    char *acc, *next, *scratch; /* scratch, see elem_mpi.c */
};

/*
 * Any pair that is not native and that Tiara can combine through the MPI below: user-defined
 * operators, pair types. @m is released with tiara_elem_mpi_fini. elem_out->redop is NULL for a
 * pair that only MPI can judge. Errors: TIARA_ERR_NOMEM, TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_elem_other(
    MPI_Datatype type, MPI_Op op, struct tiara_elem *elem_out, struct tiara_elem_mpi *m);
void tiara_elem_mpi_fini(struct tiara_elem_mpi *m);
/*
 * Packs @count elements of @type at @from, @extent apart and @size bytes of data each (at most
 * INT_MAX, as the sizes of MPI's calls are ints), into @to; @unpack: the other way. Returns MPI's
 * code.
 */
int tiara_elem_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack);
/* An element of @type that is only moved (all-gather); packed when its layout has holes. */
TIARA_MUST_USE enum tiara_err tiara_elem_moved(MPI_Datatype type, struct tiara_elem *elem_out);

#endif
