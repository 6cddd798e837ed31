/*
 * Calls that are ordered in a stream of the program's.
 *
 * On one node such a call is one launch of a kernel in that stream; nothing of the host takes part.
 * With several nodes the network has to be driven: a gate in the stream holds back what comes
 * after, and the communicator's proxy thread runs the call when the stream has reached the gate,
 * and then opens it. A call that the GPUs cannot do waits for the stream, and is run at once.
 *
 * Agreement. What needs the other ranks (the agreement, the node's segments, a plan) is done in the
 * first call that needs it, which waits for them; whether it is needed is the same on all ranks.
 * After that nothing is agreed on any more: all buffers are GPU memory, as promised.
 *
 * One call at a time: the proxy works while no other call on the communicator does, since those
 * wait for it first.
 */
#include "call/stream.h"
#include "base/log.h"
#include "call/below.h"
#include "call/on_device.h"
#include "call/proxy.h"
#include "call/run.h"
#include "call/way.h"

/* ---- gates ---- */

struct reach {
    void *gate;
    enum tiara_err err;
};

static bool has_reached(void *arg, struct tiara_wait_on *on)
{
    struct reach *r = arg;
    bool yes = false;

    on->word = NULL;
    r->err = tiara_device()->stream->reached(r->gate, &yes);
    return yes || r->err != TIARA_OK;
}

/* Waits, however long the program's own work takes. */
static enum tiara_err await_gate(void *gate)
{
    struct tiara_wait patient = {.yields = 64};
    struct reach r = {gate, TIARA_OK};
    enum tiara_err err = tiara_wait(&patient, has_reached, &r);

    return tiara_err_first(err, r.err);
}

/* ---- in the proxy's thread ---- */

/* When the communicator has been revoked, the others have this call done by the MPI, and learn here
 * that it cannot be done. */
static enum tiara_err run_behind_gate(struct tiara_comm *c, struct tiara_proxied *p)
{
    struct tiara_task t = {.c = c, .call = &p->call, .choice = p->choice, .way = &tiara_way_device};
    enum tiara_err err = await_gate(p->gate);

    if (err == TIARA_OK && !tiara_comm_serves(c))
        err = TIARA_ERR_PEER;
    if (err == TIARA_OK)
        err = tiara_run_task(&t);
    if (err == TIARA_ERR_UNSUPPORTED) {
        p->call.is_missed = true;
        err = TIARA_ERR_PEER;
    }
    if (err != TIARA_OK)
        err = tiara_call_leave(c, &p->call, err);
    tiara_device()->stream->pass(p->gate);
    return err;
}

/* ---- a call ---- */

/* This rank cannot take part in the call as it should. Returns the error, raised. */
static int fail(struct tiara_comm *c, struct tiara_call *call, enum tiara_err err)
{
    tiara_proxy_rest(c);
    return tiara_below_raise(c->comm, tiara_call_leave(c, call, err));
}

/*
 * Now: waits for what the stream has before it, and returns when the result is there. The gate is
 * opened before the call, which may free memory, and CUDA waits for all streams then.
 */
static int run_now(struct tiara_comm *c, struct tiara_call *call, void *stream)
{
    const struct tiara_gpu *gpu = tiara_device();
    void *gate = NULL;
    enum tiara_err err = gpu->stream->gate(stream, call->ordinal, &gate);

    if (err == TIARA_OK) {
        err = await_gate(gate);
        gpu->stream->pass(gate);
    }
    return err == TIARA_OK ? tiara_run(c, call, TIARA_OK) : fail(c, call, err);
}

/* One rank: its own vector is the result. Nothing tells later whether the copy is over, so the
 * stream is waited for. */
static enum tiara_err run_alone(const struct tiara_call *call, bool capturing, void *stream)
{
    const struct tiara_gpu *gpu = tiara_device();
    void *gate = NULL;
    enum tiara_err err =
        gpu->stream->copy(stream, call->out, call->in, call->count * call->elem.size);

    if (err == TIARA_OK && !capturing)
        err = gpu->stream->gate(stream, call->ordinal, &gate);
    if (gate) {
        err = await_gate(gate);
        gpu->stream->pass(gate);
    }
    return err;
}

/* Both buffers are GPU memory of the device that the communicator works on; else says what they
 * are. */
static enum tiara_err check_buffers(const struct tiara_comm *c, const struct tiara_call *call)
{
    bool both = call->device_in && call->device_out;

    if (both && call->ordinal >= 0 && (!c->device.node || call->ordinal == c->device.ordinal))
        return TIARA_OK;
    if (both && call->ordinal >= 0)
        tiara_error("rank %d of the communicator: the buffers of TIARA_Allreduce_on_stream lie on "
                    "device %d, those of earlier calls on device %d",
            c->rank, call->ordinal, c->device.ordinal);
    else if (both)
        tiara_error("rank %d of the communicator: sendbuf and recvbuf of TIARA_Allreduce_on_stream "
                    "lie on different devices",
            c->rank);
    else
        tiara_error("rank %d of the communicator: %s of TIARA_Allreduce_on_stream is host memory "
                    "at %p; a call on a stream needs GPU memory",
            c->rank, call->device_out ? "sendbuf" : "recvbuf",
            call->device_out ? call->in : call->out);
    return TIARA_ERR_ARG;
}

static enum tiara_err enqueue(struct tiara_comm *c, struct tiara_call *call,
    const struct tiara_tune_choice *choice, void *stream)
{
    const struct tiara_gpu *gpu = tiara_device();
    struct tiara_proxied behind = {.call = *call, .choice = *choice, .run = run_behind_gate};
    enum tiara_err err;

    if (c->layout.nnodes == 1) {
        struct tiara_task t = {.c = c,
            .call = call,
            .choice = *choice,
            .way = &tiara_way_device,
            .gpu = {.in_stream = true, .stream = stream}};

        c->device.enqueued = true;
        return t.way->start(&t);
    }
    err = tiara_proxy_open(c);
    if (err == TIARA_OK)
        err = gpu->stream->gate(stream, call->ordinal, &behind.gate);
    if (err == TIARA_OK) {
        err = tiara_proxy_add(c, &behind);
        if (err != TIARA_OK)
            gpu->stream->pass(behind.gate);
    }
    return err;
}

static int refuse_capture(const struct tiara_comm *c)
{
    tiara_error(
        "rank %d of the communicator: TIARA_Allreduce_on_stream cannot be captured here: %s",
        c->rank,
        c->layout.nnodes > 1 ? "ranks of several nodes need the network"
                             : "call it once with this type and size without capturing, or its "
                               "type and operator are none that kernels know");
    return tiara_below_raise_code(c->comm, MPI_ERR_UNSUPPORTED_OPERATION);
}

/* The buffers are known. Returns MPI_SUCCESS or a raised error. */
static int run_classified(struct tiara_comm *c, struct tiara_call *call, void *stream)
{
    struct tiara_tune_choice choice = {.path = TIARA_PATH_MPI};
    bool native = call->elem.type >= 0, capturing = false;
    enum tiara_err err = tiara_device()->stream->capturing(stream, &capturing);

    if (err == TIARA_OK && c->size == 1 && !c->inter && native)
        return tiara_below_raise(c->comm, run_alone(call, capturing, stream));
    if (err == TIARA_OK && native && tiara_comm_serves(c))
        err = tiara_on_device_prepare(c, call, !capturing, &choice);
    if (err != TIARA_OK)
        return fail(c, call, err);
    if (choice.path == TIARA_PATH_MPI || (c->layout.nnodes > 1 && !c->threads))
        return capturing ? refuse_capture(c) : run_now(c, call, stream);
    if (capturing && c->layout.nnodes > 1)
        return refuse_capture(c);
    err = enqueue(c, call, &choice, stream);
    return err == TIARA_OK ? MPI_SUCCESS : fail(c, call, err);
}

/* What lies behind the address of a derived type's buffer is MPI's to know. */
static enum tiara_err classify(const struct tiara_comm *c, struct tiara_call *call)
{
    size_t size = call->elem.size;
    enum tiara_err err;

    if (call->elem.type < 0)
        call->elem.size = 1;
    err = tiara_on_device_classify(c, call);
    call->elem.size = size;
    return err;
}

int tiara_stream_run(struct tiara_comm *c, struct tiara_call *call, void *stream)
{
    enum tiara_err err;

    call->number = ++c->ncalls;
    err = tiara_proxy_failed(c);
    if (err == TIARA_OK)
        err = classify(c, call);
    if (err == TIARA_OK)
        err = check_buffers(c, call);
    return err == TIARA_OK ? run_classified(c, call, stream) : fail(c, call, err);
}

struct idle {
    struct tiara_comm *c;
    enum tiara_err err;
};

static bool is_idle(void *arg, struct tiara_wait_on *on)
{
    struct idle *i = arg;
    bool moved, idle = false;

    on->word = NULL;
    i->err = tiara_device()->node->poll(i->c->device.node, &moved, &idle);
    return idle || i->err != TIARA_OK;
}

int tiara_stream_synchronize(struct tiara_comm *c)
{
    struct tiara_call last = {.number = c->ncalls, .begun = true};
    struct idle idle = {c, TIARA_OK};
    enum tiara_err err = tiara_proxy_drain(c);

    if (err == TIARA_OK && c->device.enqueued) {
        err = tiara_wait(tiara_watch_begin(c), is_idle, &idle);
        err = tiara_err_first(err, idle.err);
        c->device.enqueued = false;
    }
    /* The calls have returned: it is too late to have them done by the MPI below. */
    if (err == TIARA_ERR_UNSUPPORTED)
        err = TIARA_ERR_PEER;
    if (err != TIARA_OK)
        err = tiara_call_leave(c, &last, err);
    return tiara_below_raise(c->comm, err);
}
