/*
 * What the caller of a nonblocking call holds.
 */
#ifndef TIARA_CALL_REQUEST_H
#define TIARA_CALL_REQUEST_H

#include "call/async.h"
#include "call/bounce.h"

/* What an active request waits for. */
enum tiara_request_way {
    TIARA_REQUEST_DONE, /* nothing: it was over at once */
    TIARA_REQUEST_TASK, /* Tiara's own */
    TIARA_REQUEST_MPI /* the MPI below */
};

struct tiara_request {
    bool persistent, active;
    bool spare; /* the storage is its maker's, who had no memory */
    bool over; /* was so in the last look of a completing call, which reports what it saw then */
    const void *sendbuf;
    void *recvbuf;
    MPI_Count count;
    MPI_Datatype type; /* of a persistent request: its own, when @own_type */
    bool own_type;
    MPI_Op op;
    MPI_Comm comm;
    uint32_t comm_id; /* of its state; 0: none */
    /* What follows from the arguments, once and for all: the communicator may be freed before the
     * end. */
    struct tiara_elem elem;
    bool native; /* elem.redop is there */
    bool inter;
    int ranks; /* whose data is combined */
    /* of a persistent request that Tiara serves; then nothing else needs the communicator */
    struct tiara_async *channel;
    enum tiara_request_way way;
    int rc; /* DONE: what it ended with */
    struct tiara_async_task task;
    /* GPU memory: copies, while active; where the MPI below has a persistent operation, always */
    struct tiara_bounce in, out;
    struct tiara_comm *copier; /* what such copies need of a state; NULL: none so far */
    /* [nmpi] a call of MPI's has an int for its count; of a persistent request, persistent */
    MPI_Request *mpi;
    MPI_Request one; /* storage for it */
    int nmpi;
    struct tiara_request *next; /* of those given up while active */
};

/*
 * Makes the persistent operation of the MPI below, when @r has no channel. Collective. Returns
 * MPI_SUCCESS or a raised error.
 */
int tiara_request_prepare(struct tiara_request *r);
/*
 * Starts @r, whose arguments are checked. @c: the state of its communicator; NULL: there is none,
 * or @r is persistent. Local. Returns MPI_SUCCESS, and then the request is active; or an error
 * that was raised.
 */
int tiara_request_start(struct tiara_request *r, struct tiara_comm *c);
/* Whether the operation of @r is over; never waits. */
bool tiara_request_is_over(struct tiara_request *r);
/*
 * Ends the active, finished operation of @r: its result is where the caller wants it. Returns the
 * MPI error of the operation. *blame_out: the communicator on which it still has to be raised;
 * MPI_COMM_NULL: none.
 */
int tiara_request_conclude(struct tiara_request *r, MPI_Comm *blame_out);
void tiara_request_delete(struct tiara_request *r);

/* ---- requests that were given up while active: request_complete.c ---- */

/* Ends those whose operations are over. */
void tiara_request_reap(void);
/* At MPI_Finalize: waits for all. */
void tiara_request_finish(void);

#endif
