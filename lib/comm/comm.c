/*
 * The state of a communicator: made by its first call, cached as an attribute, freed with it.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "api/multi.h"
#include "call/request.h"
#include "comm/mpi_progress.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int state_keyval = MPI_KEYVAL_INVALID;
/* On communicators without state: there was a nonblocking call. */
static int wanted_keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;

static struct tiara_comm *states; /* all of them; keyval_lock */

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

/* No thread's last state is good any more. keyval_lock. */
static void forget_last(void)
{
    /* relaxed: see tiara_comm_last; the lock makes this thread the only writer */
    tiara_store_relaxed(&generation, tiara_load_relaxed(&generation) + 1);
}

static void state_free(struct tiara_comm *c)
{
    struct tiara_comm **at;

    pthread_mutex_lock(&keyval_lock);
    for (at = &states; *at && *at != c; at = &(*at)->next)
        ;
    if (*at)
        *at = c->next;
    forget_last();
    pthread_mutex_unlock(&keyval_lock);
    tiara_async_part(c);
    tiara_device_comm_fini(c);
    free_plans(c);
    tiara_exec_fini(&c->exec);
    tiara_exec_fini(&c->between);
    if (c->net_obj)
        tiara_xport_mpi.close(c->net_obj);
    tiara_free(c->net_obj);
    /* A message that comes after its communicator was freed could be taken for one of the next
     * communicator. */
    if (c->net != MPI_COMM_NULL && !c->broken)
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

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first: the last chance to free what all
 * communicators shared. */
static int delete_process(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    tiara_request_finish();
    /* MPI still works here, which it may not when it deletes the attributes of the other
     * communicators. */
    while (states)
        PMPI_Comm_delete_attr(states->comm, state_keyval);
    tiara_async_release();
    PMPI_Comm_free_keyval(&state_keyval);
    PMPI_Comm_free_keyval(&wanted_keyval);
    tiara_pool_clear();
    tiara_multi_release();
    tiara_device_release();
    tiara_elem_release();
    tiara_config_release();
    tiara_mpi_progress_close();
    return MPI_SUCCESS;
}

static int make_keyval(void)
{
    int self_keyval, rc = MPI_SUCCESS;

    pthread_mutex_lock(&keyval_lock);
    if (state_keyval == MPI_KEYVAL_INVALID) {
        rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_state, &state_keyval, NULL);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Comm_create_keyval(
                MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &wanted_keyval, NULL);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_process, &self_keyval, NULL);
        if (rc == MPI_SUCCESS) {
            rc = PMPI_Comm_set_attr(MPI_COMM_SELF, self_keyval, NULL);
            PMPI_Comm_free_keyval(&self_keyval);
        }
        if (rc == MPI_SUCCESS)
            rc = tiara_mpi_progress_open();
    }
    pthread_mutex_unlock(&keyval_lock);
    return rc;
}

/* ---- the beginning ---- */

/* An empty state; NULL: no memory. */
static struct tiara_comm *state_alloc(MPI_Comm comm)
{
    struct tiara_comm *c = tiara_alloc(1, sizeof(*c));
    int inter;

    if (!c)
        return NULL;
    c->comm = comm;
    c->net = MPI_COMM_NULL;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &c->rank);
    PMPI_Comm_size(comm, &c->size);
    c->inter = inter != 0;
    return c;
}

static struct tiara_comm *state_new(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c = state_alloc(comm);
    enum tiara_err err;
    void *ignored;
    int wanted = 0;

    if (!c) {
        *rc_out = tiara_core_raise(comm, TIARA_ERR_NOMEM);
        return NULL;
    }
    if (c->inter)
        c->facts.mpi_only = "an intercommunicator";
    else if (c->size == 1)
        c->facts.mpi_only = "one rank";
    PMPI_Comm_get_attr(comm, wanted_keyval, (void *)&ignored, &wanted);
    c->async_wanted = wanted != 0;
    err = tiara_comm_fill(c);
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

enum tiara_err tiara_comm_twin(
    struct tiara_comm *c, const struct tiara_call *like, struct tiara_comm **twin_out)
{
    struct tiara_comm *twin = state_alloc(c->comm);
    unsigned char all;
    enum tiara_err err = tiara_core_vote(c, twin != NULL, &all);

    *twin_out = NULL;
    if (err == TIARA_OK && !(all & 1))
        err = TIARA_ERR_NOMEM;
    if (err == TIARA_OK) {
        twin->twin = true;
        twin->lean = like != NULL;
        twin->small_only = like && c->layout.nnodes == 1 &&
                           like->count * like->elem.size <= tiara_tune_small_max(&c->facts);
        err = tiara_comm_fill(twin);
    }
    if (err == TIARA_OK)
        *twin_out = twin;
    else if (twin)
        state_free(twin);
    return err;
}

void tiara_comm_twin_free(struct tiara_comm *twin)
{
    state_free(twin);
}

struct tiara_comm *tiara_comm_get(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c = tiara_comm_last(comm);
    enum tiara_err err = TIARA_OK;

    *rc_out = MPI_SUCCESS;
    if (c)
        return c;
    *rc_out = tiara_comm_find(comm, false, &c);
    if (*rc_out != MPI_SUCCESS)
        return NULL;
    if (!c)
        c = state_new(comm, rc_out);
    if (c && c->async_wanted)
        err = tiara_async_open(c);
    if (err != TIARA_OK) {
        *rc_out = tiara_core_raise(comm, err);
        return NULL;
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
        if (state_keyval == MPI_KEYVAL_INVALID)
            rc = make_keyval();
        /*
         * Also the check of the handle: MPI raises its own error for a null or freed communicator.
         */
        if (rc == MPI_SUCCESS)
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
        pthread_mutex_lock(&keyval_lock);
        forget_last();
        pthread_mutex_unlock(&keyval_lock);
    }
    return MPI_SUCCESS;
}
