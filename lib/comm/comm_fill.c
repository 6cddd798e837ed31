/*
 * What a communicator's state is filled with: what its ranks tell each other, and what follows from
 * that.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"
#include <pthread.h>
#include <string.h>

/* Above the ids of all states so far. A communicator's is the largest of its ranks'. */
static uint32_t next_id = 1;
static pthread_mutex_t id_lock = PTHREAD_MUTEX_INITIALIZER;

/* Rank 0's settings are everybody's; says so once when somebody's differ. */
static void adopt_config(struct tiara_comm *c, const struct tiara_hello *hello)
{
    c->config = hello[0].config;
    for (int i = 1; c->rank == 0 && i < c->size; i++) {
        if (memcmp(&hello[i].config, &c->config, sizeof(c->config)) != 0) {
            tiara_warn("TIARA_ variables of rank %d differ from rank %d's, which are used",
                hello[i].world_rank, hello[0].world_rank);
            return;
        }
    }
}

/* Tables that follow from the layout. */
static enum tiara_err make_tables(struct tiara_comm *c)
{
    const struct tiara_layout *l = &c->layout;
    uint64_t *colour = tiara_alloc((size_t)l->nnodes, sizeof(*colour));
    enum tiara_err err = TIARA_ERR_NOMEM;

    c->node_index = tiara_alloc((size_t)c->size, sizeof(int));
    c->column = tiara_alloc((size_t)l->nnodes, sizeof(int));
    if (colour && c->node_index && c->column) {
        for (int r = 0; r < c->size; r++)
            c->node_index[r] = l->node_of[r] == l->node_of[c->rank] ? l->local_of[r] : -1;
        for (int n = 0; n < l->nnodes; n++) {
            c->column[n] = l->local_of[c->rank] < tiara_layout_local_size(l, n)
                               ? tiara_layout_rank(l, n, l->local_of[c->rank])
                               : -1;
            colour[n] = (uint64_t)n;
        }
        err = tiara_layout_init(&c->nodes_layout, l->nnodes, colour);
    }
    tiara_free(colour);
    return err;
}

/* How many low bits of a tag this MPI lets messages use. */
static uint32_t tag_bits(MPI_Comm comm)
{
    int *top, flag = 0;
    uint32_t bits = 15;

    if (PMPI_Comm_get_attr(comm, MPI_TAG_UB, &top, &flag) == MPI_SUCCESS && flag)
        while (bits < 30 && ((int64_t)1 << (bits + 1)) - 1 <= *top)
            bits++;
    return bits;
}

/* No duplicate of the program's communicator: that would run the copy functions of the program's
 * attributes. */
static int create_net(struct tiara_comm *c)
{
    MPI_Errhandler handler;
    MPI_Group members;
    int rc;

    PMPI_Comm_get_errhandler(c->comm, &handler);
    PMPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    rc = PMPI_Comm_group(c->comm, &members);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Comm_create(c->comm, members, &c->net);
        PMPI_Group_free(&members);
    }
    PMPI_Comm_set_errhandler(c->comm, handler);
    PMPI_Errhandler_free(&handler);
    if (rc != MPI_SUCCESS)
        c->net = MPI_COMM_NULL;
    return rc;
}

enum tiara_err tiara_comm_net(struct tiara_comm *c)
{
    struct tiara_xport_group group = {.rank = c->rank, .size = c->size, .params = &c->net};
    enum tiara_err err;

    if (c->net_obj)
        return TIARA_OK;
    if (create_net(c) != MPI_SUCCESS) {
        tiara_warn(
            "MPI has no further communicator for one of %d ranks, whose calls go to it", c->size);
        return TIARA_ERR_UNSUPPORTED;
    }
    PMPI_Comm_set_errhandler(c->net, MPI_ERRORS_RETURN);
    c->net_obj = tiara_alloc(1, tiara_xport_mpi.size);
    err = c->net_obj ? tiara_xport_mpi.open(c->net_obj, &group, 0) : TIARA_ERR_NOMEM;
    c->exec.net = c->between.net = &tiara_xport_mpi;
    c->exec.net_obj = c->between.net_obj = c->net_obj;
    c->exec.tag_bits = c->between.tag_bits = tag_bits(c->net);
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
        .puller = &tiara_xport_cma,
        .puller_obj = tiara_pool_puller(c->pool),
        .tag_bits = 15};
    c->between = c->exec;
    c->between.arena = NULL;
    c->between.net_rank = c->column;
    c->between.rank = c->layout.nranks ? c->layout.node_of[c->rank] : 0;
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
    if (!f->mpi_only && c->config.algo == -2)
        f->mpi_only = "TIARA_ALGO is mpi";
    f->reproducible = c->config.reproducible != 0;
    f->has_arena = c->arena != NULL;
    f->leaders = c->config.leaders;
    f->slots = c->config.slots;
    f->chunk_bytes = (size_t)c->config.chunk;
    f->one_shot_max = (size_t)c->config.one_shot;
    /* Between nodes the nonblocking calls have plans only. */
    f->small_max = c->twin && c->layout.nnodes > 1 ? 0 : TIARA_ARENA_SMALL_MAX;
    /* A process cannot copy from another's GPU memory. */
    f->has_pull = f->has_pull && !c->device.possible;
    c->fast_max = c->layout.nnodes == 1 && !f->reproducible ? tiara_tune_small_max(f) : 0;
}

/* What this rank tells the others. */
static void say_hello(struct tiara_hello *hello)
{
    int node = tiara_config_node();

    memset(hello, 0, sizeof(*hello));
    hello->version = TIARA_VERSION_MAJOR * 10000 + TIARA_VERSION_MINOR * 100 + TIARA_VERSION_PATCH;
    tiara_config_read(&hello->config);
    tiara_topo_local(&hello->topo);
    hello->device = (int16_t)tiara_device_level();
    hello->device_direct = tiara_device_mpi_direct();
    PMPI_Query_thread(&hello->threads);
    if (node >= 0)
        hello->topo.node = hello->topo.machine * 1000003u + (uint64_t)node + 1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &hello->world_rank);
    pthread_mutex_lock(&id_lock);
    hello->next_id = next_id;
    pthread_mutex_unlock(&id_lock);
}

/* Everybody's hello, and what follows from it without further exchange. */
static enum tiara_err get_acquainted(struct tiara_comm *c, struct tiara_hello *hello)
{
    struct tiara_hello mine;
    enum tiara_err err;

    say_hello(&mine);
    err = tiara_core_exchange(c->comm, &mine, hello, sizeof(mine));
    if (err != TIARA_OK)
        return err;
    c->threads = true;
    for (int i = 0; i < c->size; i++) {
        c->topo[i] = hello[i].topo;
        c->threads &= hello[i].threads == MPI_THREAD_MULTIPLE;
        if (hello[i].next_id > c->id)
            c->id = hello[i].next_id;
        if (hello[i].version != mine.version) {
            tiara_warn("rank %d runs another version of Tiara; calls go to the MPI below",
                hello[i].world_rank);
            return TIARA_ERR_UNSUPPORTED;
        }
    }
    pthread_mutex_lock(&id_lock);
    if (next_id <= c->id)
        next_id = c->id + 1;
    pthread_mutex_unlock(&id_lock);
    adopt_config(c, hello);
    tiara_device_comm_init(c, hello);
    err = tiara_topo_layout(&c->layout, c->topo, c->size, "", NULL, 0);
    if (err == TIARA_OK)
        err = make_tables(c);
    if (err == TIARA_OK)
        make_policy(c);
    return err;
}

/* One exchange: do all ranks go on. TIARA_ERR_UNSUPPORTED when one cannot: then all leave the
 * communicator to MPI. */
static enum tiara_err agree(struct tiara_comm *c, enum tiara_err mine, char *room)
{
    char in = mine != TIARA_OK;
    enum tiara_err err = tiara_core_exchange(c->comm, &in, room, 1);

    for (int i = 0; err == TIARA_OK && i < c->size; i++)
        if (room[i])
            return TIARA_ERR_UNSUPPORTED;
    return err;
}

static enum tiara_err state_fill(struct tiara_comm *c)
{
    struct tiara_hello *hello = tiara_alloc((size_t)c->size, sizeof(*hello));
    char *room = tiara_alloc((size_t)c->size, TIARA_GROUP_BYTES);
    enum tiara_err err = TIARA_ERR_NOMEM;

    c->topo = tiara_alloc((size_t)c->size, sizeof(*c->topo));
    c->room = tiara_alloc((size_t)c->size + 1, 1);
    if (!hello || !room || !c->topo || !c->room)
        goto out_free;
    err = agree(c, get_acquainted(c, hello), room);
    if (err == TIARA_OK)
        err = agree(c, tiara_pool_take(c, hello, room), room);
    if (err == TIARA_ERR_UNSUPPORTED) {
        c->facts.mpi_only = "a rank could not set up";
        err = TIARA_OK;
    }
out_free:
    tiara_free(room);
    tiara_free(hello);
    return err;
}

enum tiara_err tiara_comm_fill(struct tiara_comm *c)
{
    enum tiara_err err = TIARA_OK;

    if (!c->facts.mpi_only)
        err = state_fill(c);
    make_facts(c);
    make_execs(c);
    if (err == TIARA_OK && !c->facts.mpi_only && !c->lean)
        err = tiara_core_plan_usual(c);
    return err;
}
