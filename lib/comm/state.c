/*
 * The one place where the state of a communicator changes (state.h).
 */
#include "comm/state.h"
#include "comm/comm.h"
#include "comm/watch.h"

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
        tiara_watch_tell(c, number, revoke);
    if (c->arena)
        behind = leave_arena(c, number, revoke);
    /* Last, since peers whose kernels end look at what has been said. */
    if (c->device.node)
        tiara_device()->node->abort(c->device.node);
    c->state.behind = behind > 0 ? (uint64_t)behind : 0;
    return behind < 0 ? (uint64_t)-behind : 0;
}
