/*
 * How the ranks of a communicator agree: what all of them can, all do; what one cannot, none does.
 *
 * One rank's word is a set of flags, and the result is what all have in common. Its cost does not
 * grow with the number of ranks but for the steps of an all-reduce of a few bytes. A rank that has
 * met an error still takes part, without a flag: so nothing here allocates memory.
 */
#ifndef TIARA_COMM_AGREE_H
#define TIARA_COMM_AGREE_H

#include "base/err.h"
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank says of itself. */
enum tiara_agree_flag {
    TIARA_AGREE_READY = 1, /* it has met no error, and can go on */
    TIARA_AGREE_CUDA = 2, /* its CUDA part runs */
    TIARA_AGREE_CUDA_MPI = 4, /* its MPI takes GPU memory */
    TIARA_AGREE_LINKED = 8, /* its GPU reaches those of all its node peers */
    TIARA_AGREE_DEVICE = 16 /* the buffers of this call are in its GPU's memory */
};

struct tiara_comm;

/*
 * Agrees while @comm is set up, when no call of Tiara's can fail in between: *all_out has the flags
 * that all ranks gave, which may be others than those above. Collective over @comm, on its
 * collective context, so that no receive of the program can take part of it. Errors: TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_agree_setup(MPI_Comm comm, uint64_t mine, uint64_t *all_out);
/* The same for one flag: TIARA_OK when all ranks are @ready, else TIARA_ERR_UNSUPPORTED. */
TIARA_MUST_USE enum tiara_err tiara_agree_setup_ready(MPI_Comm comm, bool ready);
/*
 * Agrees inside a call that has begun: in shared memory within a node, else in messages. The call's
 * watchdog may end it, when ranks called differently. Errors: those of the transport and of the
 * wait; the communicator must be revoked.
 */
TIARA_MUST_USE enum tiara_err tiara_agree(struct tiara_comm *c, unsigned mine, unsigned *all_out);
TIARA_MUST_USE enum tiara_err tiara_agree_ready(struct tiara_comm *c, bool ready);

/* in[bytes] of every rank ends in out[size * bytes] on all, at set-up. @comm: an MPI_Comm *, as an
 * argument of struct tiara_xport_group. Collective over it, as tiara_agree_setup. */
TIARA_MUST_USE enum tiara_err tiara_agree_exchange(
    void *comm, const void *in, void *out, size_t bytes);

#endif
