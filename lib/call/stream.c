/*
 * Calls that are ordered in a stream of the program's.
 *
 * On one node such a call is one launch of a kernel in that stream; nothing of the host takes part.
 * With several nodes the network has to be driven: a gate in the stream holds back what comes
 * after, and the communicator's proxy thread runs the call when the stream has reached the gate,
 * and then opens it. A call that the GPUs cannot do waits for the stream, and is run at once.
 *
 * Agreement. What needs the other ranks (the vote, the node's segments, a plan) is done in the
 * first call that needs it, which waits for them; whether it is needed is the same on all ranks.
 * After that nothing is agreed on any more: all buffers are GPU memory, as promised.
 *
 * One call at a time: the proxy works while no other call on the communicator does, since those
 * wait for it first.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"
#include "tiara_cuda.h"
#include <pthread.h>

/* A call behind its gate. */
struct job {
    struct tiara_call call;
    struct tiara_tune_choice choice;
    void *gate;
    struct job *next;
};

struct tiara_proxy {
    struct tiara_comm *c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, **last; /* lock; the first is being run */
    bool stop; /* lock */
    enum tiara_err err; /* lock: of the calls since the last drain */
};

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

/* ---- the proxy ---- */

/* When the communicator has been given up, the others have this call done by the MPI, and learn
 * here that it cannot be done. */
static enum tiara_err run_job(struct tiara_comm *c, struct job *job)
{
    enum tiara_err err = await_gate(job->gate);

    if (c->facts.mpi_only) {
        err = tiara_near_agree(c, tiara_err_first(err, TIARA_ERR_PEER));
    } else {
        if (err == TIARA_OK)
            err = tiara_device_run_choice(c, &job->call, &job->choice);
        if (err != TIARA_OK)
            tiara_comm_give_up_in(c, job->call.number);
        if (err == TIARA_ERR_UNSUPPORTED)
            err = tiara_near_agree(c, TIARA_ERR_PEER);
    }
    tiara_device()->stream->pass(job->gate);
    return err;
}

static void *serve(void *arg)
{
    struct tiara_proxy *p = arg;

    pthread_mutex_lock(&p->lock);
    while (p->first || !p->stop) {
        struct job *job = p->first;
        enum tiara_err err;

        if (!job) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        err = run_job(p->c, job);
        pthread_mutex_lock(&p->lock);
        p->err = tiara_err_first(p->err, err);
        p->first = job->next;
        if (!p->first)
            p->last = &p->first;
        tiara_free(job);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static enum tiara_err proxy_open(struct tiara_comm *c)
{
    struct tiara_proxy *p;

    if (c->device.proxy)
        return TIARA_OK;
    p = tiara_alloc(1, sizeof(*p));
    if (!p)
        return TIARA_ERR_NOMEM;
    p->c = c;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, serve, p) != 0) {
        tiara_error("a thread for calls on streams could not be started");
        tiara_free(p);
        return TIARA_ERR_SYS;
    }
    c->device.proxy = p;
    return TIARA_OK;
}

void tiara_stream_fini(struct tiara_comm *c)
{
    struct tiara_proxy *p = c->device.proxy;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    tiara_free(p);
    c->device.proxy = NULL;
}

void tiara_stream_rest(struct tiara_comm *c)
{
    struct tiara_proxy *p = c->device.proxy;

    if (!p || pthread_equal(p->thread, pthread_self()))
        return;
    pthread_mutex_lock(&p->lock);
    while (p->first)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* What calls have failed with since the last look. @all: waits until the proxy has none left. */
static enum tiara_err look_back(struct tiara_comm *c, bool all)
{
    struct tiara_proxy *p = c->device.proxy;
    enum tiara_err err = TIARA_OK;
    bool idle;

    if (all)
        tiara_stream_rest(c);
    if (p) {
        pthread_mutex_lock(&p->lock);
        err = p->err;
        p->err = TIARA_OK;
        pthread_mutex_unlock(&p->lock);
    }
    if (err == TIARA_OK && c->device.enqueued)
        err = tiara_device()->node->poll(c->device.node, &idle);
    return err;
}

enum tiara_err tiara_stream_drain(struct tiara_comm *c)
{
    return look_back(c, true);
}

enum tiara_err tiara_stream_failed(struct tiara_comm *c)
{
    return look_back(c, false);
}

static enum tiara_err hand_over(struct tiara_comm *c, const struct tiara_call *call,
    const struct tiara_tune_choice *choice, void *gate)
{
    struct tiara_proxy *p = c->device.proxy;
    struct job *job = tiara_alloc(1, sizeof(*job));

    if (!job)
        return TIARA_ERR_NOMEM;
    *job = (struct job){.call = *call, .choice = *choice, .gate = gate};
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return TIARA_OK;
}

/* ---- a call ---- */

/*
 * Now: waits for what the stream has before it, and returns when the result is there. The gate is
 * opened before the call, which may free memory, and CUDA waits for all streams then.
 */
static int run_now(struct tiara_comm *c, struct tiara_call *call, MPI_Datatype type, MPI_Op op,
    struct CUstream_st *stream)
{
    const struct tiara_gpu *gpu = tiara_device();
    const void *in = call->in == call->out ? MPI_IN_PLACE : call->in;
    void *gate = NULL;
    enum tiara_err err = gpu->stream->gate(stream, call->ordinal, &gate);

    if (err == TIARA_OK) {
        err = await_gate(gate);
        gpu->stream->pass(gate);
    }
    if (err != TIARA_OK)
        return tiara_call_fail(c, call, err);
    c->ncalls--; /* it is this call */
    return TIARA_Allreduce_c(in, call->out, (MPI_Count)call->count, type, op, c->comm);
}

/* One rank: its own vector is the result. Nothing tells later whether the copy is over, so the
 * stream is waited for. */
static enum tiara_err run_alone(
    const struct tiara_call *call, bool capturing, struct CUstream_st *stream)
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

static bool is_multi_threaded(void)
{
    int provided = MPI_THREAD_SINGLE;

    PMPI_Query_thread(&provided);
    return provided == MPI_THREAD_MULTIPLE;
}

/* Both buffers are GPU memory of the device that the communicator works on; else says what they
 * are. */
static enum tiara_err check_buffers(const struct tiara_comm *c, const struct tiara_call *call)
{
    bool both = call->far_in && call->far_out;

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
            c->rank, call->far_out ? "sendbuf" : "recvbuf", call->far_out ? call->in : call->out);
    return TIARA_ERR_ARG;
}

static enum tiara_err enqueue(struct tiara_comm *c, struct tiara_call *call,
    const struct tiara_tune_choice *choice, struct CUstream_st *stream)
{
    const struct tiara_gpu *gpu = tiara_device();
    void *gate = NULL;
    enum tiara_err err;

    if (c->layout.nnodes == 1) {
        c->device.enqueued = true;
        return tiara_device_enqueue_choice(c, call, choice, stream);
    }
    err = proxy_open(c);
    if (err == TIARA_OK)
        err = gpu->stream->gate(stream, call->ordinal, &gate);
    if (err == TIARA_OK) {
        err = hand_over(c, call, choice, gate);
        if (err != TIARA_OK)
            gpu->stream->pass(gate);
    }
    return err;
}

/* @call has its buffers and its element. Returns MPI_SUCCESS or a raised error. */
static int run_on_stream(struct tiara_comm *c, struct tiara_call *call, MPI_Datatype type,
    MPI_Op op, struct CUstream_st *stream)
{
    struct tiara_tune_choice choice = {.path = TIARA_PATH_MPI};
    bool capturing = false;
    enum tiara_err err = tiara_device()->stream->capturing(stream, &capturing);

    if (err == TIARA_OK && c->size == 1 && !c->inter && call->elem.redop)
        return tiara_core_raise(c->comm, run_alone(call, capturing, stream));
    if (err == TIARA_OK && call->elem.redop && !c->facts.mpi_only)
        err = tiara_device_prepare_choice(c, call, !capturing, &choice);
    if (err != TIARA_OK)
        return tiara_call_fail(c, call, err);
    if (choice.path == TIARA_PATH_MPI || (c->layout.nnodes > 1 && !is_multi_threaded())) {
        if (!capturing)
            return run_now(c, call, type, op, stream);
    } else if (!capturing || c->layout.nnodes == 1) {
        err = enqueue(c, call, &choice, stream);
        return err == TIARA_OK ? MPI_SUCCESS : tiara_call_fail(c, call, err);
    }
    tiara_error(
        "rank %d of the communicator: TIARA_Allreduce_on_stream cannot be captured here: %s",
        c->rank,
        c->layout.nnodes > 1 ? "ranks of several nodes need the network"
                             : "call it once with this type and size without capturing, or its "
                               "type and operator are none that kernels know");
    return tiara_core_raise_code(c->comm, MPI_ERR_UNSUPPORTED_OPERATION);
}

int TIARA_Allreduce_on_stream(const void *sendbuf, void *recvbuf, MPI_Count count,
    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, struct CUstream_st *stream)
{
    struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE,
        .in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf,
        .out = recvbuf,
        .count = (size_t)count};
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);
    bool native;
    enum tiara_err err;

    if (!c)
        return rc;
    native = tiara_elem_native(datatype, op, &call.elem);
    /* Wrong arguments, and calls without data, are judged where all others are. */
    if (count <= 0 || !recvbuf || !sendbuf || sendbuf == recvbuf || recvbuf == MPI_IN_PLACE ||
        datatype == MPI_DATATYPE_NULL || op == MPI_OP_NULL)
        return TIARA_Allreduce_c(sendbuf, recvbuf, count, datatype, op, comm);
    if (!native)
        call.elem = (struct tiara_elem){.type = -1, .oper = -1, .size = 1};
    c->ncalls++;
    call.number = c->ncalls;
    err = tiara_stream_failed(c);
    if (err == TIARA_OK)
        err = tiara_device_classify(c, &call);
    if (err == TIARA_OK)
        err = check_buffers(c, &call);
    if (err == TIARA_OK)
        return run_on_stream(c, &call, datatype, op, stream);
    return tiara_call_fail(c, &call, err);
}

struct idle {
    struct tiara_comm *c;
    enum tiara_err err;
};

static bool is_idle(void *arg, struct tiara_wait_on *on)
{
    struct idle *i = arg;
    bool idle = false;

    on->word = NULL;
    i->err = tiara_device()->node->poll(i->c->device.node, &idle);
    return idle || i->err != TIARA_OK;
}

int TIARA_Comm_synchronize(MPI_Comm comm)
{
    int rc;
    struct tiara_comm *c = tiara_comm_get(comm, &rc);
    struct idle idle = {c, TIARA_OK};
    enum tiara_err err;

    if (!c)
        return rc;
    err = tiara_stream_drain(c);
    if (err == TIARA_OK && c->device.enqueued) {
        err = tiara_wait(tiara_comm_wait(c), is_idle, &idle);
        err = tiara_err_first(err, idle.err);
        c->device.enqueued = false;
    }
    if (err != TIARA_OK)
        tiara_comm_give_up(c);
    return tiara_core_raise(comm, err);
}
