/*
 * Two pieces of memory for packed vectors, kept from call to call.
 */
#ifndef TIARA_API_SCRATCH_H
#define TIARA_API_SCRATCH_H

#include <stddef.h>

struct tiara_scratch {
    char *in, *out; /* NULL: there is none */
    size_t bytes; /* of each */
};

/* At least @bytes each; NULL in both: no memory. */
struct tiara_scratch tiara_scratch_take(size_t bytes);
void tiara_scratch_give(struct tiara_scratch scratch);
/* Frees what is kept; at MPI_Finalize. */
void tiara_scratch_release(void);

#endif
