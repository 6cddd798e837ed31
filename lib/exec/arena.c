/*
 * Making an arena, and what all calls do at their beginning and when they are stuck. The layout and
 * the argument why it is right are in arena.h.
 */
#include "exec/arena.h"
#include "base/alloc.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct tiara_arena_ctl) <= TIARA_ARENA_SMALL_AT, "ctl is the first page");

static enum tiara_err alloc_tables(struct tiara_arena *a)
{
    size_t n = (size_t)a->size;

    a->ctl = tiara_alloc(n, sizeof(*a->ctl));
    a->known = tiara_alloc(n, sizeof(*a->known));
    a->sleepers = tiara_alloc(n, sizeof(*a->sleepers));
    a->srcs = tiara_alloc(n, sizeof(*a->srcs));
    a->xport_obj = tiara_alloc(1, a->xport->size);
    if (!a->ctl || !a->known || !a->sleepers || !a->srcs || !a->xport_obj)
        return TIARA_ERR_NOMEM;
    return TIARA_OK;
}

static enum tiara_err stuck(void *arg, double waited_s, bool first)
{
    return tiara_arena_inspect(arg, waited_s, first);
}

enum tiara_err tiara_arena_open(struct tiara_arena *a, const struct tiara_xport *xport,
    const struct tiara_xport_group *group, size_t cell_bytes)
{
    enum tiara_err err;
    int npeers = 0;

    a->index = group->rank;
    a->size = group->size;
    a->cell_bytes = cell_bytes;
    a->xport = xport;
    err = tiara_xport_agree(group, alloc_tables(a));
    if (err != TIARA_OK)
        return err;
    err = xport->open(a->xport_obj, group, tiara_arena_bytes(cell_bytes));
    if (err != TIARA_OK)
        return err;
    for (int i = 0; i < a->size; i++) {
        a->ctl[i] = tiara_xport_base(a->xport_obj, i);
        if (i != a->index)
            a->sleepers[npeers++] = &a->ctl[i]->sleeping;
    }
    a->wait = (struct tiara_wait){.sleeping = &a->ctl[a->index]->sleeping,
        .peers = a->sleepers,
        .npeers = npeers,
        .stuck = stuck,
        .stuck_arg = a};
    return TIARA_OK;
}

void tiara_arena_close(struct tiara_arena *a)
{
    if (a->xport_obj)
        a->xport->close(a->xport_obj);
    tiara_free(a->xport_obj);
    tiara_free(a->srcs);
    tiara_free(a->sleepers);
    tiara_free(a->known);
    tiara_free(a->ctl);
    memset(a, 0, sizeof(*a));
}

/* The rank that a message names for node index @i. */
static int shown_rank(const struct tiara_arena *a, int i)
{
    return a->world_rank ? a->world_rank[i] : i;
}

/* What the failed word says: communicator, call, and in the lowest bit whether it is innocent.
 * Never 0. */
static uint64_t failed_word(const struct tiara_arena *a, bool innocent)
{
    return UINT64_C(1) << 63 | (uint64_t)a->comm_id << 32 | (a->call & 0x7fffffff) << 1 | innocent;
}

void tiara_arena_fail(struct tiara_arena *a, bool innocent)
{
    /* [arena.failed] release: nothing is published with it; the pair only makes it seen. */
    tiara_store_release(&a->ctl[a->index]->failed, failed_word(a, innocent));
}

bool tiara_arena_last_call(const struct tiara_arena *a, uint64_t call, int64_t *after_out)
{
    bool found = false;

    for (int i = 0; i < a->size; i++) {
        /* [arena.failed] acquire: pairs with tiara_arena_fail. */
        uint64_t failed = tiara_load_acquire(&a->ctl[i]->failed);
        uint64_t last =
            (failed >> 1) - (failed & 1); /* an innocent rank has left before its call */
        int64_t after = (int32_t)((uint32_t)(last - call) << 1) / 2; /* of 31 bits */

        if (failed == 0 || i == a->index || (failed ^ failed_word(a, false)) >> 32 != 0)
            continue;
        if (!found || after < *after_out)
            *after_out = after;
        found = true;
    }
    return found;
}

enum tiara_err tiara_arena_has_left(const struct tiara_arena *a, int i)
{
    /* [arena.failed] acquire: pairs with tiara_arena_fail. */
    uint64_t failed = tiara_load_acquire(&a->ctl[i]->failed);

    if (failed == 0)
        return TIARA_OK;
    return a->posted || failed == failed_word(a, false) ? TIARA_ERR_PEER : TIARA_ERR_UNSUPPORTED;
}

/* ---- calls that differ ---- */

/* "allreduce of 12 f32 with sum" into text[size]. */
static const char *describe(const struct tiara_arena_desc *d, char *text, size_t size)
{
    static const char *const coll[] = {"allreduce", "reduce_scatter_block", "allgather"};
    char type[32];

    snprintf(type, sizeof(type), "%u-byte elements", d->elem_size);
    snprintf(text, size, "%s of %llu %s%s%s", coll[d->coll], (unsigned long long)d->count,
        d->type >= 0 ? tiara_type_name((enum tiara_type)d->type) : type,
        d->oper >= 0 ? " with " : "",
        d->oper >= 0 ? tiara_operator_name((enum tiara_operator)d->oper) : "");
    return text;
}

enum tiara_err tiara_posted_disagree(
    const struct tiara_arena *a, const struct tiara_posted *p, int peer)
{
    struct tiara_arena_head *head = tiara_posted_head(a, &p->ring, peer, p->seq);
    enum tiara_err err = tiara_arena_has_left(a, peer);
    char mine[96], its[96];

    if (err != TIARA_OK)
        return err;
    tiara_error("ranks disagree: rank %d called %s, rank %d called %s", shown_rank(a, a->index),
        describe(&p->desc, mine, sizeof(mine)), shown_rank(a, peer),
        describe(tiara_arena_slot_desc(head, p->ring.stride), its, sizeof(its)));
    return TIARA_ERR_MISMATCH;
}

/* The current call. */
static struct tiara_posted current(const struct tiara_arena *a)
{
    return (struct tiara_posted){.ring = TIARA_POSTED_ALL,
        .seq = a->seq,
        .digest = a->digest,
        .desc = *tiara_arena_desc_of(a, a->index)};
}

enum tiara_err tiara_arena_disagree(const struct tiara_arena *a, int peer)
{
    struct tiara_posted now = current(a);

    return tiara_posted_disagree(a, &now, peer);
}

enum tiara_err tiara_posted_inspect(
    struct tiara_arena *a, const struct tiara_posted *p, double waited_s, bool first)
{
    char mine[96];

    for (int i = 0; i < a->size; i++) {
        struct tiara_arena_head *head = tiara_posted_head(a, &p->ring, i, p->seq);
        /* [arena.head] acquire: digest and desc may be read after it. */
        bool is_there = tiara_load_acquire(&head->seq) == p->seq;
        enum tiara_err err = TIARA_OK;

        if (i == a->index)
            continue;
        if (is_there)
            err = tiara_posted_compare(a, p, i);
        if (err == TIARA_OK)
            err = tiara_arena_has_left(a, i);
        if (err != TIARA_OK)
            return err;
        if (first && !is_there)
            tiara_warn("waiting for %.0f s in %s%s (call %llu of its node): rank %d has not %s",
                waited_s, a->posted ? "nonblocking " : "", describe(&p->desc, mine, sizeof(mine)),
                (unsigned long long)p->seq, shown_rank(a, i), a->posted ? "started it" : "called");
    }
    return TIARA_OK;
}

enum tiara_err tiara_arena_inspect(struct tiara_arena *a, double waited_s, bool first)
{
    struct tiara_posted now = current(a);

    return tiara_posted_inspect(a, &now, waited_s, first);
}

/* ---- waiting ---- */

/* A word of a peer's, which has come when @mask of it is @want. */
struct edge {
    tiara_u64 *word;
    uint64_t want, mask;
    uint64_t value; /* last seen */
};

static bool has_come(void *arg, struct tiara_wait_on *on)
{
    struct edge *e = arg;

    /* [arena.head] acquire, [arena.kind] acquire: what the peer wrote before it may be read after
     * it. */
    e->value = tiara_load_acquire(e->word);
    if ((e->value & e->mask) == e->want)
        return true;
    *on = (struct tiara_wait_on){e->word, e->value};
    return false;
}

static struct edge head_of(const struct tiara_arena *a, int peer)
{
    return (struct edge){&tiara_arena_head(a, peer, a->seq)->seq, a->seq, UINT64_MAX, 0};
}

enum tiara_err tiara_arena_await(struct tiara_arena *a, int peer)
{
    struct edge head = head_of(a, peer);
    enum tiara_err err = tiara_wait(&a->wait, has_come, &head);

    return err != TIARA_OK ? err : tiara_arena_compare(a, peer);
}

bool tiara_arena_poll(
    struct tiara_arena *a, int peer, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    struct edge head = head_of(a, peer);

    *err_out = TIARA_OK;
    if (!has_come(&head, on))
        return false;
    if (a->known[peer].checked != a->seq)
        *err_out = tiara_arena_compare(a, peer);
    return true;
}

/* ---- kinds of memory ---- */

/* In the lower half what differs from call to call, as sleepers need it (wait.h): the call, and in
 * the lowest bit device memory. */
static uint64_t kind_word(const struct tiara_arena *a, bool device)
{
    return (uint64_t)a->digest << 32 | (uint32_t)(a->seq << 1) | device;
}

void tiara_arena_say_kind(struct tiara_arena *a, bool device)
{
    tiara_u64 *word = &a->ctl[a->index]->kind;

    /* [arena.kind] release: desc is visible to a peer that acquires this word. */
    tiara_store_release(word, kind_word(a, device));
    tiara_wait_wake(&a->wait, word);
}

enum tiara_err tiara_arena_await_kinds(struct tiara_arena *a, bool *all_device_out)
{
    *all_device_out = true;
    for (int i = 0; i < a->size; i++) {
        struct edge said = {&a->ctl[i]->kind, (uint32_t)kind_word(a, false), UINT32_MAX - 1, 0};
        enum tiara_err err = tiara_wait(&a->wait, has_come, &said);

        if (err != TIARA_OK)
            return err;
        if ((uint32_t)(said.value >> 32) != a->digest)
            return tiara_arena_disagree(a, i);
        if (!(said.value & 1))
            *all_device_out = false;
    }
    return TIARA_OK;
}
