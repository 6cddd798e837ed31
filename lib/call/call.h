/*
 * One collective call: what its caller described, and what follows from it.
 *
 * The description is filled once, by the layer above, and goes unchanged to whoever carries the
 * call out (way.h), however it is driven: by a thread that waits in it, by a request, or in a
 * stream.
 */
#ifndef TIARA_CALL_CALL_H
#define TIARA_CALL_CALL_H

#include "comm/comm.h"
#include "elem/elem.h"

/* As the caller gave them: what the MPI below gets. */
struct tiara_args {
    const void *sendbuf; /* MPI_IN_PLACE */
    void *recvbuf;
    MPI_Count count; /* elements of the vector (ALLREDUCE), or of one block */
    MPI_Datatype type;
    MPI_Op op;
    int send_count; /* ALLGATHER */
    MPI_Datatype send_type; /* ALLGATHER */
};

struct tiara_call {
    enum tiara_coll coll;
    struct tiara_args args;
    /* Dense elements, as the engine moves them; of an all-gather, bytes. */
    struct tiara_elem elem;
    bool packed_in, packed_out; /* the caller's buffers have holes, and have to be packed */
    size_t send_size; /* ALLGATHER: bytes of an element of send_type */
    size_t recv_size; /* ALLGATHER: bytes of an element of args.type */
    const void *in; /* == out: in place */
    void *out;
    size_t count; /* elements of the vector, or of one block */
    bool device_in, device_out; /* GPU memory */
    int ordinal; /* of its device; -1: not both, or not the same */
    uint64_t number; /* among the calls of its communicator; 0: it has none yet */
    bool begun; /* node peers may see what it is */
    /* Ranks of other nodes have the call done by the MPI below, while it has failed here. */
    bool is_missed;
};

static inline bool tiara_call_is_in_place(const struct tiara_call *call)
{
    return call->in == call->out;
}

/* What peers may print of a call, and get from. */
struct tiara_arena_desc tiara_call_desc(const struct tiara_call *call);
/* A one-shot call, on its host buffers, for exec. */
struct tiara_small_call tiara_call_small(const struct tiara_call *call);
/* A call with a plan, of chunks as @choice says, for exec. */
struct tiara_exec_call tiara_call_exec(const struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice);
/* 32 bits that differ when two ranks call differently, or on different communicators. */
uint32_t tiara_call_digest(const struct tiara_comm *c, const struct tiara_call *call);

/* Where a call's buffers are, for the choice. */
enum tiara_where {
    TIARA_ON_HOST,
    TIARA_ON_DEVICE, /* on all ranks */
    TIARA_ON_DEVICE_UNSHARED /* the same, and peers cannot map them */
};
/* What to do with @call. Logged. The path is MPI when @c does not serve. */
void tiara_call_choose(const struct tiara_comm *c, const struct tiara_call *call,
    enum tiara_where where, struct tiara_tune_choice *choice_out);
/* The same as the question of tune and its answer, which is not logged. */
void tiara_call_query(const struct tiara_comm *c, const struct tiara_call *call,
    enum tiara_where where, struct tiara_tune_call *query_out,
    struct tiara_tune_choice *choice_out);

/* Begins the call, once: the wait is its, and node peers may see what it is, as soon as something
 * of it is published. */
void tiara_call_begin(struct tiara_comm *c, struct tiara_call *call);
/*
 * The one way to leave a call before its end: the others learn of it. @err: TIARA_ERR_UNSUPPORTED,
 * nothing was moved, and the call goes to the MPI below; any other, the call has failed, and the
 * communicator is revoked. Where the communicator has been revoked already, the others are in the
 * MPI below: then this rank takes part in what they agree on there. Returns what the call ends
 * with.
 */
enum tiara_err tiara_call_leave(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err);

#endif
