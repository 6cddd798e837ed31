/*
 * Blocking calls: what has to be done around a call so that a way can carry it out, and the wait.
 */
#include "call/run.h"
#include "base/alloc.h"
#include "call/below.h"
#include "call/bounce.h"
#include "call/on_device.h"
#include "call/proxy.h"
#include "call/stage.h"
#include "call/way.h"
#include "elem/elem_mpi.h"
#include <limits.h>
#include <string.h>

/* ---- driving a way ---- */

struct poll_arg {
    struct tiara_task *t;
    enum tiara_err err;
};

static bool is_over(void *arg, struct tiara_wait_on *on)
{
    struct poll_arg *p = arg;

    do {
        if (p->t->way->poll(p->t, on, &p->err))
            return true;
    } while (p->t->moved);
    return false;
}

enum tiara_err tiara_run_task(struct tiara_task *t)
{
    struct poll_arg p = {t, TIARA_OK};
    enum tiara_err err = t->way->start(t);

    if (err != TIARA_OK)
        return err;
    err = tiara_wait(tiara_watch_begin(t->c), is_over, &p);
    return t->way->finish(t, tiara_err_first(err, p.err));
}

/* Reproducible mode has the strict order between nodes for whole vectors only: all blocks are
 * reduced, the own one is kept. */
static enum tiara_err scatter_by_allreduce(struct tiara_comm *c, struct tiara_call *call)
{
    size_t bytes = call->count * call->elem.size;
    struct tiara_call whole = *call;
    struct tiara_task t = {.c = c, .call = &whole, .way = &tiara_way_plan};
    char *mine;
    enum tiara_err err = TIARA_ERR_NOMEM;

    whole.coll = TIARA_COLL_ALLREDUCE;
    whole.count = call->count * (size_t)c->size;
    whole.out = tiara_alloc((size_t)c->size, bytes);
    whole.device_out = false;
    mine = (char *)whole.out + (size_t)c->rank * bytes;
    tiara_call_choose(c, &whole, TIARA_ON_HOST, &t.choice);
    t.way = tiara_way_of(&t.choice, false);
    if (whole.out)
        err = t.way ? tiara_run_task(&t) : TIARA_ERR_UNSUPPORTED;
    if (err == TIARA_OK && call->device_out)
        err = tiara_stage_copy(c, call->out, mine, bytes, true);
    else if (err == TIARA_OK)
        memcpy(call->out, mine, bytes);
    call->begun = whole.begun;
    call->is_missed = whole.is_missed;
    tiara_free(whole.out);
    return err;
}

/* On dense elements, by the host. */
static enum tiara_err run_host(struct tiara_comm *c, struct tiara_call *call, enum tiara_err mine)
{
    struct tiara_task t = {.c = c, .call = call};

    if (c->facts.reproducible && call->elem.redop && tiara_elem_is_small_float(&call->elem))
        call->elem.redop = tiara_elem_strict(call->elem.redop, &t.strict);
    tiara_call_choose(c, call, TIARA_ON_HOST, &t.choice);
    t.way = tiara_way_of(&t.choice, false);
    if (t.way)
        return mine == TIARA_OK ? tiara_run_task(&t) : mine;
    if (c->facts.reproducible && tiara_comm_serves(c) && call->coll == TIARA_COLL_REDUCE_SCATTER)
        return mine == TIARA_OK ? scatter_by_allreduce(c, call) : mine;
    return TIARA_ERR_UNSUPPORTED;
}

/* By the GPUs, if they can; *done_out says whether. */
static enum tiara_err run_on_device(struct tiara_comm *c, struct tiara_call *call, bool *done_out)
{
    struct tiara_task t = {.c = c, .call = call, .way = &tiara_way_device};
    enum tiara_err err = tiara_on_device_choose(c, call, &t.choice);

    if (err != TIARA_OK || t.choice.path == TIARA_PATH_MPI)
        return err;
    err = tiara_run_task(&t);
    if (err == TIARA_ERR_UNSUPPORTED && t.choice.opts.single_copy) {
        /* Agreed: a buffer cannot be mapped. */
        tiara_call_choose(c, call, TIARA_ON_DEVICE_UNSHARED, &t.choice);
        err = tiara_run_task(&t);
    }
    *done_out = err == TIARA_OK;
    if (err != TIARA_ERR_UNSUPPORTED)
        return err;
    /* Agreed: a rank could not prepare the plan. */
    c->device.refused = true;
    return TIARA_OK;
}

/*
 * On dense elements. @mine: an error that this rank has met before: it matters only when the call
 * is Tiara's. TIARA_ERR_UNSUPPORTED: this call is for the MPI below, on all ranks alike.
 */
static enum tiara_err run_dense(struct tiara_comm *c, struct tiara_call *call, enum tiara_err mine)
{
    bool done = false;
    enum tiara_err err = TIARA_OK;

    if (call->number == 0)
        call->number = ++c->ncalls;
    if (c->arena && c->arena->dead)
        return tiara_call_leave(c, call, TIARA_ERR_UNSUPPORTED);
    if (c->device.possible) {
        err = tiara_proxy_drain(c);
        if (err == TIARA_OK && mine == TIARA_OK)
            err = tiara_on_device_classify(c, call);
        if (err == TIARA_OK)
            err = run_on_device(c, call, &done);
    }
    if (err == TIARA_OK && !done)
        err = run_host(c, call, mine);
    return err == TIARA_OK || (err == TIARA_ERR_UNSUPPORTED && !call->begun)
               ? err
               : tiara_call_leave(c, call, err);
}

/* ---- elements with holes ---- */

/* A side of the call: the caller's elements, and their dense stand-ins. */
struct side {
    const void *user;
    size_t first, elems; /* those that are packed, of all */
    MPI_Datatype type;
    size_t size; /* bytes of one element */
};

static struct side in_side(const struct tiara_comm *c, const struct tiara_call *call)
{
    const struct tiara_args *a = &call->args;
    bool in_place = a->sendbuf == MPI_IN_PLACE;
    size_t count = (size_t)a->count;
    struct side s = {in_place ? a->recvbuf : a->sendbuf, 0, count, a->type, call->elem.size};

    if (call->coll == TIARA_COLL_REDUCE_SCATTER)
        s.elems = count * (size_t)c->size;
    if (call->coll != TIARA_COLL_ALLGATHER)
        return s;
    if (!in_place)
        return (struct side){a->sendbuf, 0, (size_t)a->send_count, a->send_type, call->send_size};
    s.first = count * (size_t)c->rank;
    s.size = call->recv_size;
    return s;
}

static struct side out_side(const struct tiara_comm *c, const struct tiara_call *call)
{
    const struct tiara_args *a = &call->args;
    size_t count = (size_t)a->count;

    if (call->coll != TIARA_COLL_ALLGATHER)
        return (struct side){a->recvbuf, 0, count, a->type, call->elem.size};
    return (struct side){a->recvbuf, 0, count * (size_t)c->size, a->type, call->recv_size};
}

/* Packs or unpacks between a side and its @dense stand-in. */
static enum tiara_err pack(const struct side *s, char *dense, bool unpack)
{
    MPI_Aint lb, extent;

    if (PMPI_Type_get_extent(s->type, &lb, &extent) != MPI_SUCCESS ||
        tiara_elem_pack((const char *)s->user + (MPI_Aint)s->first * extent, extent, s->size,
            s->elems, s->type, dense + s->first * s->size, unpack) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    return TIARA_OK;
}

/* Dense copies of what is packed; the input has its data. In place: one of the larger size. */
static enum tiara_err open_dense(
    struct tiara_call *call, const struct side *in, const struct side *out)
{
    bool in_place = call->args.sendbuf == MPI_IN_PLACE;
    size_t in_bytes = in->elems * in->size, out_bytes = out->elems * out->size;
    char *dense = NULL;

    if (call->packed_out) {
        dense = tiara_alloc(1, in_place && in_bytes > out_bytes ? in_bytes : out_bytes);
        call->out = dense;
    }
    if (in_place)
        call->in = call->out;
    else if (call->packed_in)
        call->in = dense = call->out ? tiara_alloc(1, in_bytes) : NULL;
    if (!call->out || !call->in)
        return TIARA_ERR_NOMEM;
    if (!(in_place ? call->packed_out : call->packed_in))
        return TIARA_OK;
    return pack(in, (char *)(uintptr_t)call->in, false);
}

static enum tiara_err run_packed(struct tiara_comm *c, struct tiara_call *call, enum tiara_err mine)
{
    struct side in = in_side(c, call), out = out_side(c, call);
    const void *user_in = call->in;
    void *user_out = call->out;
    enum tiara_err err;

    if (mine == TIARA_OK)
        mine = open_dense(call, &in, &out);
    err = run_dense(c, call, mine);
    if (err == TIARA_OK && call->packed_out)
        err = pack(&out, call->out, true);
    if (call->in != user_in && call->in != call->out)
        tiara_free((void *)(uintptr_t)call->in);
    if (call->out != user_out)
        tiara_free(call->out);
    call->in = user_in;
    call->out = user_out;
    return err;
}

/* ---- a call ---- */

/* A rank may describe the block of an all-gather as one element with holes, and MPI packs none of
 * more than INT_MAX bytes. All ranks know the size of a block only. */
static bool may_be_served(const struct tiara_comm *c, const struct tiara_call *call)
{
    return tiara_comm_serves(c) &&
           (call->coll == TIARA_COLL_ALLGATHER ? call->count <= INT_MAX : call->elem.redop != NULL);
}

/* Whether the MPI below takes the call's buffers as they are. */
static bool takes_buffers(const struct tiara_call *call)
{
    return tiara_bounce_is_host_call(call) || (tiara_device_mpi_direct() && !call->elem.own);
}

/* By the MPI below. Returns MPI_SUCCESS or a raised error. */
static int pass_on(
    struct tiara_comm *c, struct tiara_call *call, struct tiara_bounces *b, enum tiara_err mine)
{
    tiara_proxy_rest(c);
    if (mine == TIARA_OK && !b->in.copy && !b->out.copy && !takes_buffers(call))
        mine = tiara_bounces_open(c, b, call);
    mine = tiara_below_agree(c, mine);
    return mine == TIARA_OK ? tiara_below_run(c->comm, c, call) : tiara_below_raise(c->comm, mine);
}

int tiara_run(struct tiara_comm *c, struct tiara_call *call, enum tiara_err mine)
{
    struct tiara_bounces b;
    bool packed = call->packed_in || call->packed_out;
    enum tiara_err copied = TIARA_OK, err = TIARA_ERR_UNSUPPORTED;
    int rc;

    b.in.copy = b.out.copy = NULL; /* not opened */
    if (may_be_served(c, call)) {
        /* MPI packs on the CPU. */
        if (packed && !tiara_bounce_is_host_call(call))
            copied = tiara_bounces_open(c, &b, call);
        mine = tiara_err_first(mine, copied);
        err = packed ? run_packed(c, call, mine) : run_dense(c, call, mine);
    }
    rc = err == TIARA_ERR_UNSUPPORTED ? pass_on(c, call, &b, copied)
                                      : tiara_below_raise(c->comm, err);
    if (!b.in.copy && !b.out.copy)
        return rc;
    err = tiara_bounces_close(c, &b, call, rc == MPI_SUCCESS);
    return rc == MPI_SUCCESS ? tiara_below_raise(c->comm, err) : rc;
}
