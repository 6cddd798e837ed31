/*
 * Making an arena, and what all calls do at their beginning and when they are stuck. The layout and
 * the argument why it is right are in arena.h.
 */
#include "exec/arena.h"
#include "base/alloc.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define PAGE ((size_t)4096)
/* Where the cells begin: on the page after the small slots. */
#define CELLS_AT                                                                                   \
    ((PAGE + TIARA_ARENA_SMALL_SLOTS * TIARA_ARENA_SMALL_STRIDE + PAGE - 1) / PAGE * PAGE)

_Static_assert(sizeof(struct tiara_arena_ctl) <= 4096, "the control block is the first page");

size_t tiara_arena_bytes(size_t cell_bytes)
{
    return CELLS_AT + TIARA_SLOTS * cell_bytes;
}

static enum tiara_err alloc_tables(struct tiara_arena *a)
{
    size_t n = (size_t)a->size;

    a->ctl = tiara_alloc(n, sizeof(*a->ctl));
    a->small = tiara_alloc(n, sizeof(*a->small));
    a->cells = tiara_alloc(n, sizeof(*a->cells));
    a->seen = tiara_alloc(n * TIARA_SLOTS, sizeof(*a->seen));
    a->checked = tiara_alloc(n, sizeof(*a->checked));
    a->sleepers = tiara_alloc(n, sizeof(*a->sleepers));
    a->srcs = tiara_alloc(n, sizeof(*a->srcs));
    a->xport_obj = tiara_alloc(1, a->xport->size);
    if (!a->ctl || !a->small || !a->cells || !a->seen || !a->checked || !a->sleepers || !a->srcs ||
        !a->xport_obj)
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
        char *base = tiara_xport_base(a->xport_obj, i);
        a->ctl[i] = (struct tiara_arena_ctl *)(void *)base;
        a->small[i] = base + PAGE;
        a->cells[i] = base + CELLS_AT;
        if (i != a->index)
            a->sleepers[npeers++] = &a->ctl[i]->sleeping;
    }
    a->wait.sleeping = &a->ctl[a->index]->sleeping;
    a->wait.peers = a->sleepers;
    a->wait.npeers = npeers;
    a->wait.stuck = stuck;
    a->wait.stuck_arg = a;
    return TIARA_OK;
}

void tiara_arena_close(struct tiara_arena *a)
{
    if (a->xport_obj)
        a->xport->close(a->xport_obj);
    tiara_free(a->xport_obj);
    tiara_free(a->srcs);
    tiara_free(a->sleepers);
    tiara_free(a->checked);
    tiara_free(a->seen);
    tiara_free(a->cells);
    tiara_free(a->small);
    tiara_free(a->ctl);
    memset(a, 0, sizeof(*a));
}

int tiara_arena_shown_rank(const struct tiara_arena *a, int i)
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

/* "allreduce of 12 x f32 with sum" */
void tiara_arena_describe(const struct tiara_arena_desc *d, char *text, size_t size)
{
    static const char *const coll[] = {"allreduce", "reduce_scatter_block", "allgather"};
    char type[32];

    snprintf(type, sizeof(type), "%u-byte elements", d->elem_size);
    snprintf(text, size, "%s of %llu %s%s%s", coll[d->coll], (unsigned long long)d->count,
        d->type >= 0 ? tiara_type_name((enum tiara_type)d->type) : type,
        d->oper >= 0 ? " with " : "",
        d->oper >= 0 ? tiara_operator_name((enum tiara_operator)d->oper) : "");
}

enum tiara_err tiara_arena_disagree(const struct tiara_arena *a, int peer,
    const struct tiara_arena_desc *mine, const struct tiara_arena_desc *its)
{
    char my_text[96], its_text[96];
    /* A peer that has left counts its calls otherwise. */
    enum tiara_err err = tiara_arena_has_left(a, peer);

    if (err != TIARA_OK)
        return err;
    tiara_arena_describe(mine, my_text, sizeof(my_text));
    tiara_arena_describe(its, its_text, sizeof(its_text));
    tiara_error("ranks disagree: rank %d called %s, rank %d called %s",
        tiara_arena_shown_rank(a, a->index), my_text, tiara_arena_shown_rank(a, peer), its_text);
    return TIARA_ERR_MISMATCH;
}

/* Peer @peer called differently: says how. */
static enum tiara_err disagree(const struct tiara_arena *a, int peer)
{
    const struct tiara_arena_desc *its = &a->ctl[peer]->desc;

    if (a->posted)
        its = tiara_arena_slot_desc(tiara_arena_head(a, peer, a->seq), TIARA_ARENA_SMALL_STRIDE);
    return tiara_arena_disagree(a, peer, &a->ctl[a->index]->desc, its);
}

enum tiara_err tiara_arena_compare(struct tiara_arena *a, int peer)
{
    struct tiara_arena_head *head = tiara_arena_head(a, peer, a->seq);

    a->checked[peer] = a->seq;
    return __builtin_expect(head->digest == a->digest, 1) ? TIARA_OK : disagree(a, peer);
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

struct kind_arg {
    tiara_u64 *word;
    uint32_t call; /* the lower half, without device memory */
    uint64_t value;
};

static bool has_said_kind(void *arg, struct tiara_wait_on *on)
{
    struct kind_arg *k = arg;

    /* [arena.kind] acquire: the peer's desc may be read after it. */
    k->value = tiara_load_acquire(k->word);
    if ((uint32_t)(k->value & ~UINT64_C(1)) == k->call)
        return true;
    *on = (struct tiara_wait_on){k->word, k->value};
    return false;
}

enum tiara_err tiara_arena_await_kinds(struct tiara_arena *a, bool *all_device_out)
{
    *all_device_out = true;
    for (int i = 0; i < a->size; i++) {
        struct kind_arg k = {&a->ctl[i]->kind, (uint32_t)kind_word(a, false), 0};
        enum tiara_err err = tiara_wait(&a->wait, has_said_kind, &k);

        if (err != TIARA_OK)
            return err;
        if ((uint32_t)(k.value >> 32) != a->digest)
            return disagree(a, i);
        if (!(k.value & 1))
            *all_device_out = false;
    }
    return TIARA_OK;
}

/* ---- waiting for a head ---- */

struct await_arg {
    struct tiara_arena_head *head;
    uint64_t seq;
};

static bool has_published(void *arg, struct tiara_wait_on *on)
{
    struct await_arg *w = arg;
    /* [arena.head] acquire: the peer's payload, digest and desc may be read after it. */
    uint64_t seq = tiara_load_acquire(&w->head->seq);

    if (seq == w->seq)
        return true;
    on->word = &w->head->seq;
    on->seen = seq;
    return false;
}

enum tiara_err tiara_arena_await(struct tiara_arena *a, int peer)
{
    struct await_arg w = {tiara_arena_head(a, peer, a->seq), a->seq};
    enum tiara_err err = tiara_wait(&a->wait, has_published, &w);

    return err != TIARA_OK ? err : tiara_arena_compare(a, peer);
}

bool tiara_arena_poll(
    struct tiara_arena *a, int peer, struct tiara_wait_on *on, enum tiara_err *err_out)
{
    struct await_arg w = {tiara_arena_head(a, peer, a->seq), a->seq};

    *err_out = TIARA_OK;
    if (!has_published(&w, on))
        return false;
    if (a->checked[peer] != a->seq)
        *err_out = tiara_arena_compare(a, peer);
    return true;
}

enum tiara_err tiara_arena_inspect(struct tiara_arena *a, double waited_s, bool first)
{
    enum tiara_err err;
    char mine[96];

    tiara_arena_describe(&a->ctl[a->index]->desc, mine, sizeof(mine));
    for (int i = 0; i < a->size; i++) {
        struct tiara_arena_head *head = tiara_arena_head(a, i, a->seq);
        /* [arena.head] acquire: digest and desc may be read after it. */
        uint64_t seq = tiara_load_acquire(&head->seq);

        if (i == a->index)
            continue;
        if (seq == a->seq && a->checked[i] != a->seq) {
            err = tiara_arena_compare(a, i);
            if (err != TIARA_OK)
                return err;
        }
        err = tiara_arena_has_left(a, i);
        if (err != TIARA_OK)
            return err;
        if (first && seq != a->seq)
            tiara_warn("waiting for %.0f s in %s (call %llu of its node): rank %d has not called",
                waited_s, mine, (unsigned long long)a->seq, tiara_arena_shown_rank(a, i));
    }
    return TIARA_OK;
}
