/*
 * Where states are kept: as attributes of their communicators, and in a list of all.
 */
#include "comm/comm.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/arena_pool.h"
#include "comm/bootstrap.h"
#include "comm/net.h"
#include "comm/plan_cache.h"
#include <pthread.h>

static int state_keyval = MPI_KEYVAL_INVALID;
/* On communicators without state: there was a nonblocking call. */
static int wanted_keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t states_lock = PTHREAD_MUTEX_INITIALIZER;

static struct tiara_comm *states; /* all of them; states_lock */
static void (*fini)(struct tiara_comm *c); /* of the layers above */

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

bool tiara_comm_lives(MPI_Comm comm, uint32_t id)
{
    const struct tiara_comm *c;

    pthread_mutex_lock(&states_lock);
    for (c = states; c && (c->comm != comm || c->id != id); c = c->next)
        ;
    pthread_mutex_unlock(&states_lock);
    return c != NULL;
}

/* ---- the end ---- */

/* No thread's last state is good any more. states_lock. */
static void forget_last(void)
{
    /* relaxed: see tiara_comm_last; the lock makes this thread the only writer */
    tiara_store_relaxed(&generation, tiara_load_relaxed(&generation) + 1);
}

/* True when @c was in the list. */
static bool unlist(const struct tiara_comm *c)
{
    struct tiara_comm **at;
    bool found;

    pthread_mutex_lock(&states_lock);
    for (at = &states; *at && *at != c; at = &(*at)->next)
        ;
    found = *at != NULL;
    if (found)
        *at = c->next;
    forget_last();
    pthread_mutex_unlock(&states_lock);
    return found;
}

void tiara_comm_free(struct tiara_comm *c)
{
    fini(c);
    tiara_plan_free_all(c);
    tiara_exec_fini(&c->exec);
    tiara_exec_fini(&c->between);
    tiara_free(c->run);
    tiara_free(c->run_between);
    tiara_net_close(c);
    if (c->pool)
        tiara_pool_give(c->pool);
    tiara_layout_fini(&c->layout);
    tiara_layout_fini(&c->nodes_layout);
    tiara_free(c->topo);
    tiara_free(c->node_index);
    tiara_free(c->rail);
    tiara_free(c);
}

static int delete_state(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    if (unlist(value))
        tiara_comm_free(value);
    return MPI_SUCCESS;
}

/* A communicator may have gone and left its state: a delete function of the program's called Tiara
 * after that of the state had run. Attributes that stay behind name states that are no more. */
void tiara_comm_close(void)
{
    for (struct tiara_comm *c = states; c; c = states) {
        unlist(c);
        tiara_comm_free(c);
    }
    PMPI_Comm_free_keyval(&state_keyval);
    PMPI_Comm_free_keyval(&wanted_keyval);
}

/* ---- the beginning ---- */

int tiara_comm_open(void (*fini_each)(struct tiara_comm *c))
{
    int rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_state, &state_keyval, NULL);

    fini = fini_each;
    if (rc == MPI_SUCCESS)
        rc = PMPI_Comm_create_keyval(
            MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &wanted_keyval, NULL);
    return rc;
}

/* An empty state; NULL: no memory. */
static struct tiara_comm *state_alloc(MPI_Comm comm)
{
    struct tiara_comm *c = tiara_alloc(1, sizeof(*c));
    int inter;

    if (!c)
        return NULL;
    c->comm = comm;
    c->apart = MPI_COMM_NULL;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &c->rank);
    PMPI_Comm_size(comm, &c->size);
    c->inter = inter != 0;
    return c;
}

/* Why calls on @comm are never Tiara's, whatever its ranks are; NULL: they may be. */
static const char *never(MPI_Comm comm)
{
    int inter, size;

    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    if (inter)
        return "an intercommunicator";
    return size == 1 ? "one rank" : NULL;
}

static void announce(const struct tiara_comm *c)
{
    if (c->state.why)
        tiara_info("communicator %u, %d ranks: calls go to the MPI below, %s", c->id, c->size,
            c->state.why);
    else
        tiara_info("communicator %u, %d ranks on %d nodes, cells of %zu bytes, %s", c->id, c->size,
            c->layout.nnodes, c->facts.cell_bytes,
            c->facts.crowded ? "ranks share cores" : "a core for each rank");
}

/* Errors: TIARA_ERR_NOMEM, alike on all ranks; TIARA_ERR_MPI. */
static enum tiara_err state_new(MPI_Comm comm, struct tiara_comm **c_out)
{
    struct tiara_comm *c = state_alloc(comm);
    const char *why = never(comm);
    enum tiara_err err = TIARA_OK;
    void *ignored;
    int wanted = 0;

    *c_out = NULL;
    if (!why)
        err = tiara_bootstrap(c, comm);
    else if (!c)
        err = TIARA_ERR_NOMEM;
    else
        tiara_state_fall_back(c, why);
    if (err == TIARA_OK) {
        PMPI_Comm_get_attr(comm, wanted_keyval, (void *)&ignored, &wanted);
        c->async_wanted = wanted != 0;
        if (PMPI_Comm_set_attr(comm, state_keyval, c) != MPI_SUCCESS)
            err = TIARA_ERR_MPI;
    }
    if (err != TIARA_OK) {
        if (c)
            tiara_comm_free(c);
        return err;
    }
    announce(c);
    pthread_mutex_lock(&states_lock);
    c->next = states;
    states = c;
    pthread_mutex_unlock(&states_lock);
    *c_out = c;
    return TIARA_OK;
}

enum tiara_err tiara_comm_twin(
    struct tiara_comm *c, bool lean, bool small_only, struct tiara_comm **twin_out)
{
    struct tiara_comm *twin = state_alloc(c->comm);
    enum tiara_err err;

    *twin_out = NULL;
    if (twin) {
        twin->twin = true;
        twin->lean = lean;
        twin->small_only = small_only;
    }
    err = tiara_bootstrap(twin, c->comm);
    if (err == TIARA_OK)
        *twin_out = twin;
    else if (twin)
        tiara_comm_free(twin);
    return err;
}

struct tiara_comm *tiara_comm_get(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c;
    enum tiara_err err = TIARA_OK;

    *rc_out = tiara_comm_find(comm, false, &c);
    if (*rc_out != MPI_SUCCESS)
        return NULL;
    if (!c)
        err = state_new(comm, &c);
    if (err != TIARA_OK && err != TIARA_ERR_NOMEM) {
        *rc_out = MPI_ERR_OTHER;
        PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    }
    if (c)
        last_used = (struct last){
            comm, c, tiara_load_relaxed(&generation)}; /* relaxed: see tiara_comm_last */
    return c;
}

int tiara_comm_find(MPI_Comm comm, bool wanted, struct tiara_comm **c_out)
{
    int found = 0, rc = MPI_SUCCESS;

    *c_out = tiara_comm_last(comm);
    if (!*c_out) {
        /* Also the check of the handle: MPI raises its own error for a null or freed one. */
        rc = PMPI_Comm_get_attr(comm, state_keyval, c_out, &found);
        if (!found)
            *c_out = NULL;
    }
    if (rc != MPI_SUCCESS || !wanted)
        return rc;
    if (!*c_out)
        return PMPI_Comm_set_attr(comm, wanted_keyval, NULL);
    if (!(*c_out)->async_wanted) {
        (*c_out)->async_wanted = true;
        /* The next blocking call must not take the short way to the state. */
        pthread_mutex_lock(&states_lock);
        forget_last();
        pthread_mutex_unlock(&states_lock);
    }
    return MPI_SUCCESS;
}
