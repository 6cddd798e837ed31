/*
 * What a communicator needs between nodes, and for flat plans on one: a private communicator, and a
 * transport on it.
 */
#ifndef TIARA_COMM_NET_H
#define TIARA_COMM_NET_H

#include "base/err.h"

struct tiara_comm;

/*
 * Makes the private communicator, the only one that Tiara makes and keeps, and opens the transport
 * of messages. Collective; the caller agrees on the result. Errors: TIARA_ERR_UNSUPPORTED
 * (MPI has none left), TIARA_ERR_NOMEM, TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_net_open(struct tiara_comm *c);
void tiara_net_close(struct tiara_comm *c);

#endif
