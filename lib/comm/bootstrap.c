/*
 * What a communicator's state is filled with: what its ranks tell each other, and what follows from
 * that.
 */
#include "comm/bootstrap.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/arena_pool.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "comm/plan_cache.h"
#include "tiara.h"
#include <pthread.h>
#include <string.h>

/* Above the ids of all states so far. A communicator's is the largest of its ranks'. */
static uint32_t next_id = 1;
static pthread_mutex_t id_lock = PTHREAD_MUTEX_INITIALIZER;

/* What all ranks have in common; rank 0's settings are everybody's. */
static void adopt(struct tiara_comm *c, const struct tiara_boot *boot)
{
    struct tiara_comm_device *d = &c->device;
    const struct tiara_boot *differs = NULL;

    c->config = boot[0].config;
    c->threads = d->ready = d->direct = true;
    d->next_agreement = 1;
    for (const struct tiara_boot *b = boot; b < boot + c->size; b++) {
        if (!differs && memcmp(&b->config, &c->config, sizeof(c->config)) != 0)
            differs = b;
        if (b->next_id > c->id)
            c->id = b->next_id;
        c->threads &= b->threads == MPI_THREAD_MULTIPLE;
        d->possible |= b->device != TIARA_DEVICE_NONE;
        d->ready &= b->device == TIARA_DEVICE_READY;
        d->direct &= b->device_direct != 0;
    }
    if (differs && c->rank == 0)
        tiara_warn("TIARA_ variables of rank %d differ from rank %d's, which are used",
            differs->world_rank, boot[0].world_rank);
    pthread_mutex_lock(&id_lock);
    if (next_id <= c->id)
        next_id = c->id + 1;
    pthread_mutex_unlock(&id_lock);
}

/* Tables that follow from the layout. */
static enum tiara_err make_tables(struct tiara_comm *c)
{
    const struct tiara_layout *l = &c->layout;
    uint64_t *colour = tiara_alloc((size_t)l->nnodes, sizeof(*colour));
    enum tiara_err err = TIARA_ERR_NOMEM;

    c->node_index = tiara_alloc((size_t)c->size, sizeof(int));
    c->rail = tiara_alloc((size_t)l->nnodes, sizeof(int));
    if (colour && c->node_index && c->rail) {
        for (int r = 0; r < c->size; r++)
            c->node_index[r] = l->node_of[r] == l->node_of[c->rank] ? l->local_of[r] : -1;
        for (int n = 0; n < l->nnodes; n++) {
            c->rail[n] = l->local_of[c->rank] < tiara_layout_local_size(l, n)
                             ? tiara_layout_rank(l, n, l->local_of[c->rank])
                             : -1;
            colour[n] = (uint64_t)n;
        }
        err = tiara_layout_init(&c->nodes_layout, l->nnodes, colour);
    }
    tiara_free(colour);
    return err;
}

static void make_execs(struct tiara_comm *c)
{
    c->exec = (struct tiara_exec){.rank = c->rank,
        .nranks = c->size,
        .arena = c->arena,
        .node_index = c->node_index,
        .mem = &tiara_mem_host,
        .trace = c->twin ? NULL : tiara_config_trace(), /* threads may drive it */
        .getter = tiara_xport_find(TIARA_XPORT_GET | TIARA_XPORT_PROCESSES),
        .getter_obj = c->cma,
        .tag_bits = 15};
    c->between = c->exec;
    c->between.arena = NULL;
    c->between.net_rank = c->rail;
    c->between.rank = c->layout.node_of[c->rank];
    c->between.nranks = c->layout.nnodes;
}

/* Whether one of the machines has more ranks than cores: then all ranks give way early. */
static bool is_crowded(const struct tiara_comm *c)
{
    for (int r = 0; r < c->size; r++) {
        int ranks, cores;
        tiara_topo_share(c->topo, c->size, r, &ranks, &cores);
        if (ranks > cores)
            return true;
    }
    return false;
}

static void make_policy(struct tiara_comm *c)
{
    c->facts.crowded = is_crowded(c);
    tiara_wait_policy(&c->wait, c->facts.crowded ? 2 : 1, 1);
    if (c->config.spin >= 0)
        c->wait.spins = c->config.spin;
    c->wait.warn_s = (double)c->config.warn_us * 1e-6;
    c->wait.limit_s = (double)c->config.timeout_us * 1e-6;
}

static void make_facts(struct tiara_comm *c)
{
    struct tiara_tune_facts *f = &c->facts;

    f->layout = &c->layout;
    f->algo = c->config.algo >= 0 ? tiara_algo_table[c->config.algo] : NULL;
    f->inter = c->config.inter >= 0 ? tiara_algo_table[c->config.inter] : NULL;
    if (c->config.algo == -2)
        f->mpi_only = "TIARA_ALGO is mpi";
    f->reproducible = c->config.reproducible != 0;
    f->has_arena = c->arena != NULL;
    f->cell_bytes = c->arena ? c->arena->cell_bytes : 0;
    if (!f->mpi_only && !f->has_arena && !f->algo && !f->reproducible)
        f->mpi_only = "no shared memory on the nodes";
    f->leaders = c->config.leaders;
    f->slots = c->config.slots;
    f->chunk_bytes = (size_t)c->config.chunk;
    f->one_shot_max = (size_t)c->config.one_shot;
    /* Between nodes the nonblocking calls have plans only. */
    f->small_max = c->twin && c->layout.nnodes > 1 ? 0 : TIARA_ARENA_SMALL_MAX;
    /* A process cannot copy from another's GPU memory. */
    f->has_get = c->cma && !c->device.possible;
    c->fast_max = c->layout.nnodes == 1 && !f->reproducible ? tiara_tune_small_max(f) : 0;
}

/* What this rank tells the others. */
static void describe_self(struct tiara_boot *boot)
{
    int node;

    memset(boot, 0, sizeof(*boot));
    boot->version = TIARA_VERSION_MAJOR * 10000 + TIARA_VERSION_MINOR * 100 + TIARA_VERSION_PATCH;
    node = tiara_config_read(&boot->config);
    tiara_topo_local(&boot->topo);
    boot->device = (int16_t)tiara_device_level();
    boot->device_direct = tiara_device_mpi_direct();
    PMPI_Query_thread(&boot->threads);
    if (node >= 0)
        boot->topo.node = boot->topo.machine * 1000003u + (uint64_t)node + 1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &boot->world_rank);
    pthread_mutex_lock(&id_lock);
    boot->next_id = next_id;
    pthread_mutex_unlock(&id_lock);
}

/* Everybody's boot, and what follows from it without further exchange. */
static enum tiara_err exchange_facts(struct tiara_comm *c, struct tiara_boot *boot)
{
    struct tiara_boot mine;
    enum tiara_err err;

    describe_self(&mine);
    err = tiara_agree_exchange(&c->comm, &mine, boot, sizeof(mine));
    if (err != TIARA_OK)
        return err;
    for (int i = 0; i < c->size; i++) {
        c->topo[i] = boot[i].topo;
        if (boot[i].version != mine.version) {
            tiara_warn("rank %d runs another version of Tiara; calls go to the MPI below",
                boot[i].world_rank);
            return TIARA_ERR_UNSUPPORTED;
        }
    }
    adopt(c, boot);
    err = tiara_topo_layout(&c->layout, c->topo, c->size, "", NULL, 0);
    if (err == TIARA_OK)
        err = make_tables(c);
    if (err == TIARA_OK)
        make_policy(c);
    return err;
}

/* What follows from the layout and the arena. Collective; the caller agrees on the result. */
static enum tiara_err equip(struct tiara_comm *c)
{
    enum tiara_err err = TIARA_OK;

    make_facts(c);
    make_execs(c);
    if (c->facts.mpi_only)
        return TIARA_OK;
    c->run = tiara_exec_run_new();
    c->run_between = tiara_exec_run_new();
    /* Most calls need messages, or an agreement that shared memory cannot give. */
    if (c->layout.nnodes > 1 || !c->arena)
        err = tiara_net_open(c);
    if (err == TIARA_OK && !c->lean)
        err = tiara_plan_prepare_usual(c);
    return c->run && c->run_between ? err : TIARA_ERR_NOMEM;
}

static enum tiara_err set_up(struct tiara_comm *c, struct tiara_boot *boot)
{
    enum tiara_err mine, err;

    mine = exchange_facts(c, boot);
    err = tiara_agree_setup_ready(c->comm, mine == TIARA_OK);
    if (err != TIARA_OK)
        return err;
    mine = tiara_pool_take(c, boot);
    mine = tiara_err_first(mine, equip(c));
    return tiara_agree_setup_ready(c->comm, mine == TIARA_OK);
}

enum tiara_err tiara_bootstrap(struct tiara_comm *c, MPI_Comm comm)
{
    size_t size = c ? (size_t)c->size : 1;
    struct tiara_boot *boot = tiara_alloc(size, sizeof(*boot));
    enum tiara_err err;

    if (c)
        c->topo = tiara_alloc(size, sizeof(*c->topo));
    err = tiara_agree_setup_ready(comm, c && c->topo && boot);
    if (err != TIARA_OK) {
        err = err == TIARA_ERR_UNSUPPORTED ? TIARA_ERR_NOMEM : err;
    } else {
        err = set_up(c, boot);
        if (err == TIARA_ERR_UNSUPPORTED)
            tiara_state_fall_back(c, "a rank could not set up");
        else if (err == TIARA_OK && c->facts.mpi_only)
            tiara_state_fall_back(c, c->facts.mpi_only);
        else if (err == TIARA_OK)
            tiara_state_serve(c);
        err = err == TIARA_ERR_UNSUPPORTED ? TIARA_OK : err;
    }
    tiara_free(boot);
    return err;
}
