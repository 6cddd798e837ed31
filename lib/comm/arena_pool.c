/*
 * The one idea: an arena is found again by the processes it joins, in order. Blocking collectives
 * on two communicators of the same processes cannot overlap in a single-threaded program without
 * being able to deadlock in any MPI, so they can take turns in one arena. Where threads of any rank
 * may call at the same time (MPI_THREAD_MULTIPLE), every communicator gets its own, and so do the
 * nonblocking calls of each. A shared arena whose last communicator is freed is kept for the next
 * one, until KEEP others have been.
 *
 * Agreement: whether an arena is reused, and how large a new one may be, is agreed upon by all
 * ranks of the communicator. Each node opens a new one in its own group, so that a node where
 * something fails does not leave another in an exchange; after each try all ranks agree, and go on
 * to the next size together.
 */
#include "comm/arena_pool.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/bootstrap.h"
#include "comm/comm.h"
#include <pthread.h>
#include <string.h>

/* Unused arenas that are kept. */
#define KEEP 2
/* Sizes of a cell, tried from the largest. 0: small slots only. */
static const size_t cell_sizes[] = {262144, 32768, 0};
#define NCELL_SIZES ((int)(sizeof(cell_sizes) / sizeof(cell_sizes[0])))

struct tiara_pool_entry {
    struct tiara_arena arena;
    int refs;
    uint32_t id; /* of the communicator that it was made for: alike on its ranks, and no other's */
    bool exclusive;
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
        tiara_xport_find(TIARA_XPORT_GET | TIARA_XPORT_PROCESSES)->close(e->cma);
    tiara_free(e->cma);
    tiara_arena_close(&e->arena);
    tiara_free(e->key);
    tiara_free(e->world_rank);
    tiara_free(e);
}

/* Frees unused entries beyond the @keep most recent. Lock held. */
static void trim(int keep)
{
    struct tiara_pool_entry **at = &pool, *e;
    int unused = 0;

    while ((e = *at)) {
        if (e->refs == 0 && (e->exclusive || ++unused > keep || e->arena.dead)) {
            *at = e->next;
            entry_free(e);
        } else {
            at = &e->next;
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

size_t tiara_pool_bytes(void)
{
    size_t sum = 0;

    pthread_mutex_lock(&pool_lock);
    for (struct tiara_pool_entry *e = pool; e; e = e->next)
        sum += (size_t)e->size * tiara_arena_bytes(e->arena.cell_bytes);
    pthread_mutex_unlock(&pool_lock);
    return sum;
}

/* ---- opening: on all nodes of a communicator or on none ---- */

/* TIARA_OK when it is everybody's; TIARA_ERR_NOSPACE when smaller segments might cure the rest. */
static enum tiara_err agree(const struct tiara_comm *c, enum tiara_err mine)
{
    enum {
        FINE = 1,
        CURABLE = 2
    };
    uint64_t all, word = mine == TIARA_OK ? FINE | CURABLE : 0;
    enum tiara_err err =
        tiara_agree_setup(c->comm, mine == TIARA_ERR_NOSPACE ? CURABLE : word, &all);

    if (err != TIARA_OK || all & FINE)
        return err;
    return all & CURABLE ? TIARA_ERR_NOSPACE : TIARA_ERR_UNSUPPORTED;
}

/* Tries each size of a cell from @from on; only lack of room is cured by a smaller one. */
static enum tiara_err open_sizes(const struct tiara_comm *c, struct tiara_arena *arena,
    const struct tiara_xport_group *group, int from)
{
    const struct tiara_xport *row = tiara_xport_find(TIARA_XPORT_EXPOSE | TIARA_XPORT_PROCESSES);
    enum tiara_err err = TIARA_ERR_NOSPACE;

    for (int i = from; i < NCELL_SIZES && err == TIARA_ERR_NOSPACE; i++) {
        err = agree(c, tiara_arena_open(arena, row, group, cell_sizes[i]));
        if (err != TIARA_OK)
            tiara_arena_close(arena);
    }
    return err;
}

/* Single copy, where it is asked for and allowed on every node; else *cma_out is NULL. */
static enum tiara_err open_cma(
    const struct tiara_comm *c, const struct tiara_xport_group *group, void **cma_out)
{
    const struct tiara_xport *row = tiara_xport_find(TIARA_XPORT_GET | TIARA_XPORT_PROCESSES);
    void *cma = tiara_alloc(1, row->size);
    enum tiara_err err = agree(c, cma ? TIARA_OK : TIARA_ERR_NOMEM);

    if (err == TIARA_OK)
        err = agree(c, row->open(cma, group, 0));
    if (err == TIARA_OK) {
        *cma_out = cma;
        return TIARA_OK;
    }
    if (c->rank == 0)
        tiara_warn("single copy between processes is not allowed here; cells are used");
    if (cma)
        row->close(cma);
    tiara_free(cma);
    return err == TIARA_ERR_MPI ? err : TIARA_OK;
}

static enum tiara_err open_memory(const struct tiara_comm *c, struct tiara_pool_entry *e, int from)
{
    int node = c->layout.node_of[c->rank];
    MPI_Comm node_comm;
    struct tiara_xport_group group = {.rank = c->node_index[c->rank],
        .size = e->size,
        .allgather = tiara_agree_exchange,
        .arg = &node_comm};
    enum tiara_err err;

    if (from == NCELL_SIZES)
        return TIARA_ERR_NOSPACE;
    if (PMPI_Comm_split(c->comm, node, c->rank, &node_comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    PMPI_Comm_set_errhandler(node_comm, MPI_ERRORS_RETURN);
    err = open_sizes(c, &e->arena, &group, from);
    if (err == TIARA_OK && c->config.cma == TIARA_CMA_ON)
        err = open_cma(c, &group, &e->cma);
    PMPI_Comm_free(&node_comm);
    return err;
}

/* ---- one that exists, or a new one ---- */

static struct tiara_pool_entry *find(const struct tiara_pool_entry *like)
{
    for (struct tiara_pool_entry *e = pool; e; e = e->next)
        if (!e->exclusive && !e->arena.dead && e->size == like->size &&
            memcmp(e->key, like->key, (size_t)e->size * sizeof(*e->key)) == 0)
            return e;
    return NULL;
}

static int largest_cell(int size, int64_t budget)
{
    size_t held;
    int i = 0;

    tiara_pool_clear();
    held = tiara_pool_bytes();
    while (
        i < NCELL_SIZES && held + (size_t)size * tiara_arena_bytes(cell_sizes[i]) > (size_t)budget)
        i++;
    return i;
}

/* For the processes of the own node, without an arena. */
static struct tiara_pool_entry *entry_new(
    const struct tiara_comm *c, const struct tiara_boot *boot, bool exclusive)
{
    int node = c->layout.node_of[c->rank], size = tiara_layout_local_size(&c->layout, node);
    struct tiara_pool_entry *e = tiara_alloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->id = c->id;
    e->exclusive = exclusive;
    e->size = size;
    e->key = tiara_alloc((size_t)size, sizeof(*e->key));
    e->world_rank = tiara_alloc((size_t)size, sizeof(*e->world_rank));
    if (!e->key || !e->world_rank) {
        entry_free(e);
        return NULL;
    }
    for (int i = 0; i < size; i++) {
        const struct tiara_boot *b = &boot[tiara_layout_rank(&c->layout, node, i)];

        e->key[i] = b->topo.process;
        e->world_rank[i] = b->world_rank;
    }
    return e;
}

static void use(struct tiara_comm *c, struct tiara_pool_entry *e)
{
    c->pool = e;
    c->arena = &e->arena;
    c->cma = e->cma;
}

/* Makes a new arena with cells of at most cell_sizes[@from]; leaves c->arena NULL when there is no
 * way. */
static enum tiara_err make(struct tiara_comm *c, struct tiara_pool_entry *e, int from)
{
    enum tiara_err err = open_memory(c, e, from);

    if (err != TIARA_OK) {
        if (c->rank == 0 && c->config.shm != TIARA_SHM_OFF && !c->twin)
            tiara_warn("no shared memory on the nodes of a communicator of %d ranks; its calls go "
                       "to the MPI below (TIARA_LOG=info says why)",
                c->size);
        entry_free(e);
        return err == TIARA_ERR_MPI ? err : TIARA_OK;
    }
    e->arena.world_rank = e->world_rank;
    e->refs = 1;
    pthread_mutex_lock(&pool_lock);
    e->next = pool;
    pool = e;
    pthread_mutex_unlock(&pool_lock);
    use(c, e);
    return TIARA_OK;
}

/*
 * What a rank says, of which all keep what they have in common: the id of an arena of this group
 * that can be shared, and its complement, so that an id is left only if it is everybody's; a rank
 * may have freed one of several that its node peers still have. Then a bit for each size of a cell
 * that the budget allows in a new one. Ranks with the same arena have the rest of it in common.
 */
#define ID_BITS 30
#define ID_MASK (((uint64_t)1 << ID_BITS) - 1)
_Static_assert(NCELL_SIZES <= 64 - 2 * ID_BITS, "there is a bit for each size");

static uint64_t word_of(const struct tiara_pool_entry *found, int largest)
{
    uint64_t id = found ? found->id & ID_MASK : 0, word = id | (~id & ID_MASK) << ID_BITS;

    for (int i = largest; i < NCELL_SIZES; i++)
        word |= (uint64_t)1 << (2 * ID_BITS + i);
    return word;
}

static bool is_same_id(uint64_t word)
{
    uint64_t id = word & ID_MASK;

    return id != 0 && (word >> ID_BITS & ID_MASK) == (~id & ID_MASK);
}

/* Index of the largest cell that all allow; NCELL_SIZES: none. */
static int largest_of(uint64_t word)
{
    int i = 0;

    while (i < NCELL_SIZES && !(word >> (2 * ID_BITS + i) & 1))
        i++;
    return i;
}

enum tiara_err tiara_pool_take(struct tiara_comm *c, const struct tiara_boot *boot)
{
    bool on = c->config.shm != TIARA_SHM_OFF, exclusive = c->twin;
    struct tiara_pool_entry *found = NULL, *fresh;
    int largest = NCELL_SIZES;
    uint64_t all;
    enum tiara_err err;

    for (int i = 0; i < c->size; i++)
        exclusive |= boot[i].threads == MPI_THREAD_MULTIPLE;
    fresh = entry_new(c, boot, exclusive);
    pthread_mutex_lock(&pool_lock);
    if (fresh && !exclusive && on)
        found = find(fresh);
    if (found)
        found->refs++;
    pthread_mutex_unlock(&pool_lock);
    if (fresh && on)
        largest = found ? 0 : largest_cell(fresh->size, c->config.shm_budget);
    if (c->small_only && largest < NCELL_SIZES - 1)
        largest = NCELL_SIZES - 1;
    err = tiara_agree_setup(c->comm, word_of(found, largest), &all);
    if (err == TIARA_OK && is_same_id(all)) {
        use(c, found);
        found = NULL;
    } else if (err == TIARA_OK && fresh) {
        err = make(c, fresh, largest_of(all));
        fresh = NULL;
    }
    if (found)
        tiara_pool_give(found);
    if (fresh)
        entry_free(fresh);
    return err;
}
