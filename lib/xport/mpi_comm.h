/*
 * Private communicators: of the transport mpi, and for agreements while the program uses its own.
 */
#ifndef TIARA_XPORT_MPI_COMM_H
#define TIARA_XPORT_MPI_COMM_H

#include <mpi.h>

/*
 * A communicator of the ranks of @parent, with MPI_ERRORS_RETURN; given. No duplicate of it: that
 * would run the copy functions of the program's attributes. Collective. Returns MPI's code, which
 * is not raised.
 */
int tiara_xport_mpi_comm(MPI_Comm parent, MPI_Comm *comm_out);

#endif
