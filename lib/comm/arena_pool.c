/*
 * The arenas of this process, shared by communicators of the same node group.
 *
 * The one idea: an arena is found again by the processes it joins, in order. Blocking collectives
 * on two communicators of the same processes cannot overlap in a single-threaded program without
 * being able to deadlock in any MPI, so they can take turns in one arena; where threads may call at
 * the same time (MPI_THREAD_MULTIPLE), every communicator gets its own, and so do the nonblocking
 * calls of each. A shared arena whose last communicator is freed is kept for the next one, until
 * KEEP others have been.
 *
 * Agreement: whether an arena is reused, and how large a new one may be, is voted on by all ranks
 * of the communicator.
 */
#include "comm/arena_pool.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/bootstrap.h"
#include "comm/comm.h"
#include "comm/node_memory.h"
#include <pthread.h>
#include <string.h>

/* Unused arenas that are kept. */
#define KEEP 2
/* Sizes of a cell, tried from the largest. 0: small slots only. */
static const size_t cell_sizes[] = {262144, 32768, 0};
#define NCELL_SIZES (sizeof(cell_sizes) / sizeof(cell_sizes[0]))

struct tiara_pool_entry {
    struct tiara_arena arena;
    int refs;
    uint32_t id; /* of the communicator that it was made for: alike on its ranks, and no other's */
    bool exclusive;
    size_t bytes; /* of all segments of the group: what the node pays */
    int size;
    uint64_t *key; /* [size] who its processes are, in order */
    int *world_rank;
    void *cma; /* single copy between the group's processes; NULL: none */
    struct tiara_pool_entry *next;
};

static struct tiara_pool_entry *pool;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static void entry_free(struct tiara_pool_entry *e)
{
    if (e->cma)
        tiara_xport_find(TIARA_XPORT_PULL | TIARA_XPORT_PROCESSES)->close(e->cma);
    tiara_free(e->cma);
    tiara_arena_close(&e->arena);
    tiara_free(e->key);
    tiara_free(e->world_rank);
    tiara_free(e);
}

static void unlink_entry(struct tiara_pool_entry *e)
{
    for (struct tiara_pool_entry **at = &pool; *at; at = &(*at)->next) {
        if (*at == e) {
            *at = e->next;
            return;
        }
    }
}

/* Frees unused entries beyond the @keep most recent. Lock held. */
static void trim(int keep)
{
    struct tiara_pool_entry *e, *next;
    int unused = 0;

    for (e = pool; e; e = next) {
        next = e->next;
        if (e->refs == 0 && (e->exclusive || ++unused > keep || e->arena.dead)) {
            unlink_entry(e);
            entry_free(e);
        }
    }
}

void tiara_pool_give(struct tiara_pool_entry *e)
{
    pthread_mutex_lock(&pool_lock);
    e->refs--;
    trim(KEEP);
    pthread_mutex_unlock(&pool_lock);
}

void tiara_pool_clear(void)
{
    pthread_mutex_lock(&pool_lock);
    trim(0);
    pthread_mutex_unlock(&pool_lock);
}

static size_t bytes_held(void)
{
    size_t sum = 0;

    for (struct tiara_pool_entry *e = pool; e; e = e->next)
        sum += e->bytes;
    return sum;
}

size_t tiara_pool_bytes(void)
{
    size_t sum;

    pthread_mutex_lock(&pool_lock);
    sum = bytes_held();
    pthread_mutex_unlock(&pool_lock);
    return sum;
}

/* ---- what a rank brings to the vote ---- */

struct ballot {
    int32_t have; /* an arena of this group that can be shared */
    int32_t largest; /* index of the largest cell that the budget allows; NCELL_SIZES: none */
    uint64_t cell; /* bytes of a cell of the arena that can be shared */
    int32_t pull; /* it has single copy */
    uint32_t
        id; /* which it is: a rank may have freed one of several that its node peers still have */
};

static struct tiara_pool_entry *find(const uint64_t *key, int size)
{
    for (struct tiara_pool_entry *e = pool; e; e = e->next)
        if (!e->exclusive && !e->arena.dead && e->size == size &&
            memcmp(e->key, key, (size_t)size * sizeof(*key)) == 0)
            return e;
    return NULL;
}

static int largest_cell(int size, int64_t budget)
{
    size_t held;
    int i = 0;

    pthread_mutex_lock(&pool_lock);
    trim(0);
    held = bytes_held();
    pthread_mutex_unlock(&pool_lock);
    while (i < (int)NCELL_SIZES &&
           held + (size_t)size * tiara_arena_bytes(cell_sizes[i]) > (size_t)budget)
        i++;
    return i;
}

static struct tiara_pool_entry *entry_new(
    const struct tiara_comm *c, const struct tiara_hello *hello, const uint64_t *key, int size)
{
    struct tiara_pool_entry *e = tiara_alloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->key = tiara_alloc((size_t)size, sizeof(*e->key));
    e->world_rank = tiara_alloc((size_t)size, sizeof(*e->world_rank));
    if (!e->key || !e->world_rank) {
        entry_free(e);
        return NULL;
    }
    memcpy(e->key, key, (size_t)size * sizeof(*key));
    for (int i = 0; i < size; i++)
        e->world_rank[i] =
            hello[tiara_layout_rank(&c->layout, c->layout.node_of[c->rank], i)].world_rank;
    e->size = size;
    return e;
}

/* Makes a new arena with cells of at most cell_sizes[@from]; leaves c->arena NULL when there is no
 * way. */
static enum tiara_err make(struct tiara_comm *c, struct tiara_pool_entry *e, int from, char *room)
{
    struct tiara_node_memory memory = {.c = c, .room = room, .arena = &e->arena};
    int threads = MPI_THREAD_SINGLE;
    enum tiara_err err = TIARA_ERR_NOSPACE;

    PMPI_Query_thread(&threads);
    e->id = c->id;
    e->exclusive = c->twin || threads == MPI_THREAD_MULTIPLE;
    if (from < (int)NCELL_SIZES)
        err = tiara_node_memory_open(&memory, &cell_sizes[from], (int)NCELL_SIZES - from);
    e->cma = memory.cma;
    if (err != TIARA_OK) {
        if (c->rank == 0 && c->config.shm != TIARA_SHM_OFF && !c->twin)
            tiara_warn("no shared memory on the nodes of a communicator of %d ranks; its calls go "
                       "to the MPI below (TIARA_LOG=info says why)",
                c->size);
        entry_free(e);
        return err == TIARA_ERR_MPI ? err : TIARA_OK;
    }
    e->arena.world_rank = e->world_rank;
    e->bytes = (size_t)e->size * tiara_arena_bytes(e->arena.cell_bytes);
    e->refs = 1;
    pthread_mutex_lock(&pool_lock);
    e->next = pool;
    pool = e;
    pthread_mutex_unlock(&pool_lock);
    c->pool = e;
    c->arena = &e->arena;
    c->facts.cell_bytes = e->arena.cell_bytes;
    c->facts.has_pull = e->cma != NULL;
    return TIARA_OK;
}

/* Whether rank @i would share the same arena as the first of its node. */
static bool is_common(const struct tiara_layout *l, const struct ballot *ballots, int i)
{
    return ballots[i].id == ballots[tiara_layout_rank(l, l->node_of[i], 0)].id;
}

/* One exchange: do all ranks have an arena to share, and how large may a new one be. */
static enum tiara_err vote(
    struct tiara_comm *c, struct ballot mine, char *all, struct ballot *result_out)
{
    struct ballot *ballots = (struct ballot *)(void *)all;
    enum tiara_err err = tiara_agree_exchange(c->comm, &mine, all, sizeof(mine));

    *result_out = mine;
    for (int i = 0; err == TIARA_OK && i < c->size; i++) {
        result_out->have &= ballots[i].have && is_common(&c->layout, ballots, i);
        result_out->pull &= ballots[i].pull;
        if (ballots[i].cell < result_out->cell)
            result_out->cell = ballots[i].cell;
        if (ballots[i].largest > result_out->largest)
            result_out->largest = ballots[i].largest;
    }
    return err;
}

enum tiara_err tiara_pool_take(struct tiara_comm *c, const struct tiara_hello *hello, char *all)
{
    int node = c->layout.node_of[c->rank], size = tiara_layout_local_size(&c->layout, node);
    uint64_t *key = tiara_alloc((size_t)size, sizeof(*key));
    struct tiara_pool_entry *found = NULL, *fresh = NULL;
    struct ballot ballot = {0};
    enum tiara_err err;

    for (int i = 0; key && i < size; i++)
        key[i] = hello[tiara_layout_rank(&c->layout, node, i)].topo.process;
    pthread_mutex_lock(&pool_lock);
    found = key && !c->twin ? find(key, size) : NULL;
    if (found)
        found->refs++;
    pthread_mutex_unlock(&pool_lock);
    fresh = key ? entry_new(c, hello, key, size) : NULL;
    ballot.have = found != NULL;
    ballot.pull = found && found->cma;
    ballot.cell = found ? found->arena.cell_bytes : 0;
    ballot.id = found ? found->id : 0;
    ballot.largest =
        fresh ? (found ? 0 : largest_cell(size, c->config.shm_budget)) : (int)NCELL_SIZES;
    if (c->small_only && ballot.largest < (int)NCELL_SIZES - 1)
        ballot.largest = (int)NCELL_SIZES - 1;
    if (c->config.shm == TIARA_SHM_OFF)
        ballot = (struct ballot){.largest = NCELL_SIZES};
    err = vote(c, ballot, all, &ballot);
    if (err == TIARA_OK && ballot.have) {
        c->pool = found;
        c->arena = &found->arena;
        c->facts.cell_bytes = ballot.cell;
        c->facts.has_pull = ballot.pull != 0;
        found = NULL;
    } else if (err == TIARA_OK && fresh) {
        err = make(c, fresh, ballot.largest, all);
        fresh = NULL;
    } else if (err == TIARA_OK) {
        err = ballot.largest == (int)NCELL_SIZES ? TIARA_OK : TIARA_ERR_NOMEM;
    }
    if (found)
        tiara_pool_give(found);
    if (fresh)
        entry_free(fresh);
    tiara_free(key);
    return err;
}

void *tiara_pool_puller(const struct tiara_pool_entry *e)
{
    return e ? e->cma : NULL;
}
