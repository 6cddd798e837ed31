/*
 * What a communicator needs between nodes, and for flat plans on one: a transport of messages that
 * reaches all of them.
 */
#ifndef TIARA_COMM_NET_H
#define TIARA_COMM_NET_H

#include "base/err.h"

struct tiara_comm;

/*
 * Opens the transport that TIARA_NET names, else the first of the table that reaches all nodes and
 * can be opened on all ranks. Collective; the caller agrees on the result. Errors:
 * TIARA_ERR_UNSUPPORTED (there is none), TIARA_ERR_NOMEM, TIARA_ERR_MPI.
 */
TIARA_MUST_USE enum tiara_err tiara_net_open(struct tiara_comm *c);
/* Local, but for a state that is freed with its communicator. */
void tiara_net_close(struct tiara_comm *c);

#endif
