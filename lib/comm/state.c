/*
 * The one place where the state of a communicator changes (state.h), and what leads to that.
 *
 * A rank that waits asks from time to time whether the wait can end at all: did a node peer call
 * differently, or give up (arena.h); does a message that nobody asked for say the same of another
 * node. A rank that gives a call up tells both, so that none waits for it.
 */
#include "comm/state.h"
#include "base/log.h"
#include "comm/comm.h"

/*
 * A rank of another node gave up: in the present call or a later one, which has then failed here
 * too; or in an earlier one, as when it found the error only after this rank was through: then it
 * is in the MPI below, as this rank must be.
 */
static enum tiara_err judge_abort(const struct tiara_comm *c)
{
    uint64_t present = c->arena ? c->arena->call : c->ncalls;

    if (!c->twin && present > c->aborted_in)
        return TIARA_ERR_UNSUPPORTED;
    tiara_error("rank %d of the communicator gave up the call", c->aborted_by);
    return TIARA_ERR_PEER;
}

/*
 * What a rank says to its rail when it leaves a call: four kinds of giving up, with the lowest
 * bits of the call's number, which is at most one away from the present one; or that the call is
 * the MPI's.
 */
enum {
    ABORT_KINDS = 4, /* 0 .. 3 */
    LEAVE_KIND
};

/* Kept, since several waits may come to an end by it before the call does. */
static enum tiara_err take_abort(struct tiara_comm *c, int from, unsigned kind)
{
    uint64_t present = c->arena ? c->arena->call : c->ncalls;

    c->is_aborted = true;
    c->aborted_by = from;
    c->aborted_in = present + 1 - (present + 1 - kind) % ABORT_KINDS;
    return judge_abort(c);
}

/* What a message that nobody has asked for says about its sender's call. */
static enum tiara_err judge_message(struct tiara_comm *c, int from, uint32_t tag)
{
    uint32_t bits = c->exec.tag_bits, window = (1u << tiara_exec_seq_bits(bits)) - 1;
    uint32_t age = (uint32_t)(c->exec.chunk_seq - tag) & window;

    if (tag >= tiara_xport_control(bits, TIARA_XPORT_CONTROLS))
        return TIARA_OK; /* of an agreement, which the sender waits in */
    if (tag >= tiara_xport_control(bits, LEAVE_KIND))
        return TIARA_ERR_UNSUPPORTED;
    if (tag >= tiara_xport_control(bits, 0))
        return take_abort(c, from, tag - tiara_xport_control(bits, 0));
    /* Messages of later calls may wait; one of a chunk that has been started here must be of this
     * call. */
    if (age == 0 || age > TIARA_SLOTS || tag == tiara_exec_tag(bits, tag & window, c->digest))
        return TIARA_OK;
    tiara_error("ranks disagree: a message of rank %d of the communicator belongs to another call "
                "than this rank's",
        from);
    return TIARA_ERR_MISMATCH;
}

enum tiara_err tiara_watch_net(struct tiara_comm *c)
{
    enum tiara_err err = c->is_aborted ? judge_abort(c) : TIARA_OK;

    for (int node = 0; node < c->layout.nnodes && err == TIARA_OK; node++) {
        int peer = c->rail[node];
        uint32_t tag;

        if (peer >= 0 && peer != c->rank && c->exec.net->probe(c->net_obj, peer, &tag))
            err = judge_message(c, peer, tag);
    }
    return err;
}

static enum tiara_err stuck(void *arg, double waited_s, bool first)
{
    struct tiara_comm *c = arg;
    enum tiara_err err = TIARA_OK;

    if (c->arena)
        err = tiara_arena_inspect(c->arena, waited_s, first);
    if (err == TIARA_OK && c->net_obj)
        err = tiara_watch_net(c);
    return err;
}

struct tiara_wait *tiara_watch_begin(struct tiara_comm *c)
{
    struct tiara_wait *w = c->arena ? &c->arena->wait : &c->wait;

    w->crowded = c->wait.crowded;
    w->spins = c->wait.spins;
    w->yields = c->wait.yields;
    w->warn_s = c->wait.warn_s;
    w->limit_s = c->wait.limit_s;
    w->stuck = stuck;
    w->stuck_arg = c;
    c->exec.wait = w;
    c->between.wait = w;
    return w;
}

/* ---- how the state changes ---- */

void tiara_state_serve(struct tiara_comm *c)
{
    c->state = (struct tiara_comm_state){.phase = TIARA_COMM_SERVING};
}

static void end(struct tiara_comm *c, enum tiara_comm_phase phase, uint64_t number, const char *why)
{
    c->state = (struct tiara_comm_state){.phase = phase, .why = why, .call = number};
    c->fast_max = 0;
}

void tiara_state_fall_back(struct tiara_comm *c, const char *why)
{
    end(c, TIARA_COMM_FALLEN_BACK, c->ncalls, why);
}

/* How many calls this rank, which is through with @done, is behind the last one that a node peer
 * took part in before it left; negative: ahead. */
static int64_t distance(const struct tiara_comm *c, uint64_t done)
{
    int64_t after;

    if (!c->device.possible || c->layout.nnodes > 1 || c->arena->posted)
        return 0;
    return tiara_arena_last_call(c->arena, done, &after) ? after : 0;
}

/* Tells the node peers; returns the distance. */
static int64_t leave_arena(struct tiara_comm *c, uint64_t number, bool revoke)
{
    struct tiara_arena *a = c->arena;
    int64_t behind;

    a->comm_id = c->id;
    behind = distance(c, revoke ? number : number - 1);
    a->call = number + (uint64_t)behind;
    tiara_arena_fail(a, !revoke);
    /* Without node peers there is nobody to disagree with about the next call. */
    a->dead = a->size > 1;
    return behind;
}

/* Tells the ranks that this one exchanges messages with that it leaves call @number. */
static void tell_nodes(struct tiara_comm *c, uint64_t number, bool revoke)
{
    struct tiara_xport_head *head = c->net_obj;
    unsigned kind = revoke ? (unsigned)(number % ABORT_KINDS) : LEAVE_KIND;
    uint32_t tag = tiara_xport_control(c->exec.tag_bits, kind);

    head->end = TIARA_XPORT_END_BROKEN;
    for (int node = 0; node < c->layout.nnodes; node++) {
        int peer = c->rail[node];

        if (peer >= 0 && peer != c->rank)
            (void)!c->exec.net->send(c->net_obj, peer, tag, NULL, 0, NULL);
    }
}

uint64_t tiara_state_leave(struct tiara_comm *c, uint64_t number, bool revoke)
{
    int64_t behind = 0;

    if (!tiara_comm_serves(c))
        return 0;
    if (revoke)
        end(c, TIARA_COMM_REVOKED, number, "an earlier call failed");
    else
        end(c, TIARA_COMM_FALLEN_BACK, number,
            "the node's shared memory was revoked by another communicator");
    if (c->net_obj)
        tell_nodes(c, number, revoke);
    if (c->arena)
        behind = leave_arena(c, number, revoke);
    /* Last, since peers whose kernels end look at what has been said. */
    if (c->device.node)
        tiara_device()->node->abort(c->device.node);
    c->state.behind = behind > 0 ? (uint64_t)behind : 0;
    return behind < 0 ? (uint64_t)-behind : 0;
}
