/*
 * The state of a communicator: made by its first call, cached as an attribute, freed with it.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "core/core.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int state_keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;

static struct tiara_comm *states; /* all of them; keyval_lock */

/* Above the ids of all states so far; keyval_lock. A communicator's is the largest of its ranks'. */
static uint32_t next_id = 1;

/* Counts freed states: a thread's last state is good only while nothing was freed since. */
static tiara_u64 generation;

struct last {
    MPI_Comm comm;
    struct tiara_comm *state;
    uint64_t generation;
};
static _Thread_local struct last last_used __attribute__((tls_model("initial-exec")));

struct tiara_comm *tiara_comm_last(MPI_Comm comm)
{
    /* relaxed: a communicator is not freed by one thread while another calls on it */
    if (last_used.state && last_used.comm == comm &&
        last_used.generation == tiara_load_relaxed(&generation))
        return last_used.state;
    return NULL;
}

/* ---- the end ---- */

static void free_plans(struct tiara_comm *c)
{
    struct tiara_cached_plan *p, *next;

    for (p = c->plans; p; p = next) {
        next = p->next;
        tiara_plan_fini(&p->plan);
        tiara_free(p);
    }
}

static void state_free(struct tiara_comm *c)
{
    struct tiara_comm **at;

    pthread_mutex_lock(&keyval_lock);
    for (at = &states; *at && *at != c; at = &(*at)->next)
        ;
    if (*at)
        *at = c->next;
    /* relaxed: see tiara_comm_last; the lock makes this thread the only writer */
    tiara_store_relaxed(&generation, tiara_load_relaxed(&generation) + 1);
    pthread_mutex_unlock(&keyval_lock);
    tiara_device_comm_fini(c);
    free_plans(c);
    tiara_exec_fini(&c->exec);
    tiara_exec_fini(&c->between);
    if (c->net_obj)
        tiara_xport_mpi.close(c->net_obj);
    tiara_free(c->net_obj);
    if (c->net != MPI_COMM_NULL)
        PMPI_Comm_free(&c->net);
    if (c->pool)
        tiara_pool_give(c->pool);
    tiara_layout_fini(&c->layout);
    tiara_layout_fini(&c->nodes_layout);
    tiara_free(c->room);
    tiara_free(c->topo);
    tiara_free(c->node_index);
    tiara_free(c->column);
    tiara_free(c);
}

static int delete_state(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    state_free(value);
    return MPI_SUCCESS;
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first: the last chance to free what all communicators shared. */
static int delete_process(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    /* MPI still works here, which it may not when it deletes the attributes of the other communicators. */
    while (states)
        PMPI_Comm_delete_attr(states->comm, state_keyval);
    PMPI_Comm_free_keyval(&state_keyval);
    tiara_pool_clear();
    tiara_device_release();
    tiara_elem_release();
    tiara_config_release();
    return MPI_SUCCESS;
}

static int make_keyval(void)
{
    int self_keyval, rc = MPI_SUCCESS;

    pthread_mutex_lock(&keyval_lock);
    if (state_keyval == MPI_KEYVAL_INVALID) {
        rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_state, &state_keyval, NULL);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_process, &self_keyval, NULL);
        if (rc == MPI_SUCCESS) {
            rc = PMPI_Comm_set_attr(MPI_COMM_SELF, self_keyval, NULL);
            PMPI_Comm_free_keyval(&self_keyval);
        }
    }
    pthread_mutex_unlock(&keyval_lock);
    return rc;
}

/* ---- the beginning ---- */

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

/* No duplicate of the program's communicator: that would run the copy functions of the program's attributes. */
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
        .trace = tiara_config_trace(),
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
    f->small_max = TIARA_ARENA_SMALL_MAX;
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
    if (node >= 0)
        hello->topo.node = hello->topo.machine * 1000003u + (uint64_t)node + 1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &hello->world_rank);
    pthread_mutex_lock(&keyval_lock);
    hello->next_id = next_id;
    pthread_mutex_unlock(&keyval_lock);
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
    for (int i = 0; i < c->size; i++) {
        c->topo[i] = hello[i].topo;
        if (hello[i].next_id > c->id)
            c->id = hello[i].next_id;
        if (hello[i].version != mine.version) {
            tiara_warn("rank %d runs another version of Tiara; calls go to the MPI below",
                hello[i].world_rank);
            return TIARA_ERR_UNSUPPORTED;
        }
    }
    pthread_mutex_lock(&keyval_lock);
    if (next_id <= c->id)
        next_id = c->id + 1;
    pthread_mutex_unlock(&keyval_lock);
    adopt_config(c, hello);
    tiara_device_comm_init(c, hello);
    err = tiara_topo_layout(&c->layout, c->topo, c->size, "", NULL, 0);
    if (err == TIARA_OK)
        err = make_tables(c);
    if (err == TIARA_OK)
        make_policy(c);
    return err;
}

/* One exchange: do all ranks go on. TIARA_ERR_UNSUPPORTED when one cannot: then all leave the communicator to MPI. */
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

static struct tiara_comm *state_new(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c = tiara_alloc(1, sizeof(*c));
    enum tiara_err err = TIARA_OK;
    int inter;

    if (!c) {
        *rc_out = tiara_core_raise(comm, TIARA_ERR_NOMEM);
        return NULL;
    }
    c->comm = comm;
    c->net = MPI_COMM_NULL;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &c->rank);
    PMPI_Comm_size(comm, &c->size);
    c->inter = inter != 0;
    if (c->inter)
        c->facts.mpi_only = "an intercommunicator";
    else if (c->size == 1)
        c->facts.mpi_only = "one rank";
    if (!c->facts.mpi_only)
        err = state_fill(c);
    make_facts(c);
    make_execs(c);
    if (err == TIARA_OK && !c->facts.mpi_only)
        err = tiara_core_plan_usual(c);
    if (err == TIARA_OK && PMPI_Comm_set_attr(comm, state_keyval, c) != MPI_SUCCESS)
        err = TIARA_ERR_MPI;
    if (err != TIARA_OK) {
        state_free(c);
        *rc_out = tiara_core_raise(comm, err);
        return NULL;
    }
    if (c->facts.mpi_only)
        tiara_info("communicator %u, %d ranks: calls go to the MPI below, %s", c->id, c->size,
            c->facts.mpi_only);
    else
        tiara_info("communicator %u, %d ranks on %d nodes, cells of %zu bytes, %s", c->id, c->size,
            c->layout.nnodes, c->facts.cell_bytes,
            c->facts.crowded ? "ranks share cores" : "a core for each rank");
    pthread_mutex_lock(&keyval_lock);
    c->next = states;
    states = c;
    pthread_mutex_unlock(&keyval_lock);
    return c;
}

struct tiara_comm *tiara_comm_get(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c = tiara_comm_last(comm);
    int found = 0;

    *rc_out = MPI_SUCCESS;
    if (c)
        return c;
    if (state_keyval == MPI_KEYVAL_INVALID) {
        *rc_out = make_keyval();
        if (*rc_out != MPI_SUCCESS)
            return NULL;
    }
    /* Also the check of the handle: MPI raises its own error for a null or freed communicator. */
    *rc_out = PMPI_Comm_get_attr(comm, state_keyval, &c, &found);
    if (*rc_out != MPI_SUCCESS)
        return NULL;
    if (!found)
        c = state_new(comm, rc_out);
    if (c)
        last_used = (struct last){
            comm, c, tiara_load_relaxed(&generation)}; /* relaxed: see tiara_comm_last */
    return c;
}
