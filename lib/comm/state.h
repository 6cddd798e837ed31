/*
 * What a communicator is to Tiara, and how that changes.
 *
 *                 all ranks could set up
 *     SETTING_UP ------------------------> SERVING ----------------------> REVOKED
 *          |                                  |      a call failed here,
 *          | one could not                    |      or on a peer
 *          v                                  |
 *     FALLEN_BACK <---------------------------+
 *                  the node's arena was revoked by another communicator,
 *                  or a rank could not prepare a plan
 *
 * SERVING is the only state in which a call is Tiara's; in the last two all calls go to the MPI
 * below. The difference is what becomes of the call in which the state ends: after FALLEN_BACK it
 * goes to MPI, with the same result; after REVOKED it has failed, and all ranks get an error in it.
 * What lies in SERVING ends once. The state is changed here only, in the call that the program's
 * thread is in.
 *
 * Calls on streams return before the peers have come to them, so that ranks of a node may be calls
 * apart when one of them fails. The first rank that stops says which call was its last. A rank that
 * is behind fails its own calls up to that one as it comes to them (@behind); one that is ahead has
 * taken part in what its peers will do in the MPI below in its place (the result of end).
 */
#ifndef TIARA_COMM_STATE_H
#define TIARA_COMM_STATE_H

#include "base/wait.h"

enum tiara_comm_phase {
    TIARA_COMM_SETTING_UP,
    TIARA_COMM_SERVING,
    TIARA_COMM_FALLEN_BACK,
    TIARA_COMM_REVOKED
};

struct tiara_comm_state {
    enum tiara_comm_phase phase;
    const char *why; /* static text: why it does not serve; NULL: it does */
    uint64_t call; /* FALLEN_BACK, REVOKED: the number of the call in which that began */
    uint64_t behind; /* calls that failed on peers before this rank came to them */
};

struct tiara_comm;

/* All ranks have what it takes. */
void tiara_state_serve(struct tiara_comm *c);
/* Agreed, at set-up or inside a call: there is nobody to be told. Calls go to the MPI below. */
void tiara_state_fall_back(struct tiara_comm *c, const char *why);
/*
 * This rank alone leaves call @number, which is under way, and tells all that may wait for it:
 * @revoke: because of an error of the call; else because the arena was revoked by another
 * communicator. Returns how many later calls it has begun that its peers have not, and which they
 * will do in the MPI below.
 */
uint64_t tiara_state_leave(struct tiara_comm *c, uint64_t number, bool revoke);

/* Prepares the wait of the call that begins: whose watchdog asks whether it can end at all. */
struct tiara_wait *tiara_watch_begin(struct tiara_comm *c);
/* For a wait that does not end: what messages that nobody asked for say of their senders' calls. */
TIARA_MUST_USE enum tiara_err tiara_watch_net(struct tiara_comm *c);

#endif
