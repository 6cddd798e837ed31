/*
 * What all calls have in common, however they are carried out: their description in other words,
 * their beginning, and their early end.
 */
#include "call/call.h"
#include "base/log.h"
#include "call/below.h"

/*
 * 32 bits that differ, with overwhelming odds, when two ranks call differently. Each bit depends on
 * all that is hashed, since message tags have room for the lower ones only. Source: the finalizer
 * of MurmurHash3 (Appleby, public domain).
 */
uint32_t tiara_call_digest(const struct tiara_comm *c, const struct tiara_call *call)
{
    uint64_t h = call->count * call->elem.size;

    h ^= (uint64_t)call->coll << 60 ^ (uint64_t)(call->elem.type + 1) << 50 ^
         (uint64_t)(call->elem.oper + 1) << 55;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h ^ h >> 33) ^ c->id * 0x9e3779b9u;
}

struct tiara_arena_desc tiara_call_desc(const struct tiara_call *call)
{
    return (struct tiara_arena_desc){.in_addr = (uintptr_t)call->in,
        .out_addr = (uintptr_t)call->out,
        .count = call->count,
        .elem_size = (uint32_t)call->elem.size,
        .coll = call->coll,
        .type = call->elem.type,
        .oper = call->elem.oper < TIARA_NOPER ? call->elem.oper : -1};
}

struct tiara_small_call tiara_call_small(const struct tiara_call *call)
{
    return (struct tiara_small_call){.op = call->elem.redop,
        .mem = &tiara_mem_host,
        .in = call->in,
        .out = call->out,
        .count = call->count,
        .bytes = call->count * call->elem.size};
}

struct tiara_exec_call tiara_call_exec(const struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice)
{
    return (struct tiara_exec_call){.op = call->elem.redop,
        .in = call->in,
        .out = call->out,
        .count = call->count,
        .elem_size = call->elem.size,
        .chunk_elems = choice->chunk_elems,
        .slots = choice->slots,
        .digest = tiara_call_digest(c, call),
        .finish_ranks = c->size};
}

void tiara_call_query(const struct tiara_comm *c, const struct tiara_call *call,
    enum tiara_where where, struct tiara_tune_call *q, struct tiara_tune_choice *choice)
{
    struct tiara_tune_facts facts;

    *q = (struct tiara_tune_call){.coll = call->coll,
        .count = call->count,
        .elem_size = call->elem.size,
        .commutative = !call->elem.redop || call->elem.redop->commutative,
        .device = where != TIARA_ON_HOST};
    if (!tiara_comm_serves(c)) {
        *choice = (struct tiara_tune_choice){.path = TIARA_PATH_MPI, .why = c->state.why};
    } else if (where != TIARA_ON_HOST) {
        facts = c->facts;
        facts.device = c->device.facts;
        facts.device.share = facts.device.share && where == TIARA_ON_DEVICE;
        tiara_tune_choose(&facts, q, choice);
    } else {
        tiara_tune_choose(&c->facts, q, choice);
    }
}

void tiara_call_choose(const struct tiara_comm *c, const struct tiara_call *call,
    enum tiara_where where, struct tiara_tune_choice *choice)
{
    struct tiara_tune_call q;
    char text[256];

    tiara_call_query(c, call, where, &q, choice);
    if (!tiara_log_enabled(TIARA_LOG_DEBUG))
        return;
    tiara_tune_describe(&c->facts, &q, choice, text, sizeof(text));
    tiara_debug("communicator %u, %s of %zu x %zu bytes: %s", c->id, tiara_coll_name(q.coll),
        q.count, q.elem_size, text);
}

void tiara_call_begin(struct tiara_comm *c, struct tiara_call *call)
{
    struct tiara_arena_desc d = tiara_call_desc(call);

    if (call->begun)
        return;
    call->begun = true;
    tiara_watch_begin(c);
    c->digest = tiara_call_digest(c, call);
    if (c->arena) {
        c->arena->comm_id = c->id;
        c->arena->call = call->number;
        tiara_arena_begin(c->arena, c->digest, &d);
    }
}

enum tiara_err tiara_call_leave(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err)
{
    bool revoke = err != TIARA_ERR_UNSUPPORTED;
    uint64_t ahead;

    if (!tiara_comm_serves(c))
        return revoke && !call->begun ? tiara_below_agree(c, err) : err;
    if (call->number == 0)
        call->number = ++c->ncalls;
    if (revoke)
        tiara_call_begin(c, call);
    for (ahead = tiara_state_leave(c, call->number, revoke); ahead > 0; ahead--)
        (void)!tiara_below_agree(c, TIARA_ERR_PEER);
    /* Within a node the arena's last call tells, and tiara_state_leave has seen to it. */
    return call->is_missed && c->layout.nnodes > 1 ? tiara_below_agree(c, err) : err;
}
