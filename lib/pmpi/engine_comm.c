/*
 * The policy: which calls Tiara takes over.
 *
 * The first calls on a communicator are left to MPI, since most communicators are used a few times,
 * and Tiara's state would not pay. All that is decided here depends on the number of the call, on
 * arguments that are alike on all ranks, and on what Tiara itself answers alike; so all ranks
 * decide alike without asking each other. What makes state waits for other ranks, and so is left to
 * blocking calls with data, in which MPI waits as well.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "pmpi/engine_priv.h"
#include <limits.h>
#include <pthread.h>

_Thread_local struct tiara_engine_last tiara_engine_last;
tiara_u64 tiara_engine_generation;

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The communicator that this thread frees. */
static _Thread_local struct {
    bool is;
    MPI_Comm comm;
} going;
static struct tiara_engine_comm left_to_mpi = {.stage = TIARA_STAGE_PASSING};

/* No thread's last state is good any more. */
static void forget_last(void)
{
    pthread_mutex_lock(&lock);
    /* relaxed: see tiara_engine_comm_last; the lock makes this thread the only writer */
    tiara_store_relaxed(&tiara_engine_generation, tiara_load_relaxed(&tiara_engine_generation) + 1);
    pthread_mutex_unlock(&lock);
}

/* For a rank that has no memory for more: one without a state would count no calls, and so decide
 * otherwise than the others. */
#define NSPARE 32
static struct {
    struct tiara_engine_comm state;
    bool taken; /* lock */
} spares[NSPARE];

/* An empty state; NULL: even the spare ones are taken. */
static struct tiara_engine_comm *state_take(void)
{
    struct tiara_engine_comm *c = tiara_alloc(1, sizeof(*c));

    pthread_mutex_lock(&lock);
    for (int i = 0; i < NSPARE && !c; i++) {
        if (spares[i].taken)
            continue;
        spares[i].taken = true;
        c = &spares[i].state;
        *c = (struct tiara_engine_comm){0};
    }
    pthread_mutex_unlock(&lock);
    return c;
}

static void state_give(struct tiara_engine_comm *c)
{
    bool is_spare = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < NSPARE && !is_spare; i++) {
        is_spare = c == &spares[i].state;
        spares[i].taken &= !is_spare;
    }
    pthread_mutex_unlock(&lock);
    if (!is_spare)
        tiara_free(c);
}

static int delete_state(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)extra;
    forget_last();
    state_give(value);
    return MPI_SUCCESS;
}

bool tiara_engine_comm_init(void)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_state, &keyval, NULL) ==
           MPI_SUCCESS;
}

/* Whether all ranks of @comm are of this MPI_COMM_WORLD. Others may run without the shim. */
static bool is_of_world(MPI_Comm comm, int size)
{
    int mine[64], theirs[64];
    MPI_Group group, world;
    bool all = true;

    if (PMPI_Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int at = 0; at < size && all; at += 64) {
        int n = size - at < 64 ? size - at : 64;

        for (int i = 0; i < n; i++)
            mine[i] = at + i;
        PMPI_Group_translate_ranks(group, n, mine, world, theirs);
        for (int i = 0; i < n; i++)
            all = all && theirs[i] != MPI_UNDEFINED;
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return all;
}

/* The stage of calls that need no second look, when neither report nor verify wants one. */
static enum tiara_engine_stage stage_of(const struct tiara_engine_comm *c)
{
    if (tiara_engine_settings.report || tiara_engine_settings.mode != TIARA_MODE_ON)
        return TIARA_STAGE_SLOW;
    if (c->always != TIARA_FATE_SERVED)
        return TIARA_STAGE_PASSING;
    if (c->calls < tiara_engine_settings.after)
        return TIARA_STAGE_COUNTING;
    return c->wanted && !c->prepared ? TIARA_STAGE_SLOW : TIARA_STAGE_ENGAGED;
}

static struct tiara_engine_comm *make(MPI_Comm comm)
{
    struct tiara_engine_comm *c = state_take();
    int inter = 0;

    if (!c) {
        tiara_error(
            "no memory to count the calls on a communicator, which all ranks must do alike");
        PMPI_Abort(comm, MPI_ERR_NO_MEM);
    }
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &c->size);
    PMPI_Comm_rank(comm, &c->rank);
    if (inter)
        c->always = TIARA_FATE_INTER;
    else if (c->size == 1)
        c->always = TIARA_FATE_ALONE;
    else if (!is_of_world(comm, c->size))
        c->always = TIARA_FATE_FOREIGN;
    c->stage = stage_of(c);
    if (PMPI_Comm_set_attr(comm, keyval, c) != MPI_SUCCESS) {
        state_give(c);
        return NULL;
    }
    return c;
}

struct tiara_engine_comm *tiara_engine_comm_get(MPI_Comm comm)
{
    struct tiara_engine_comm *c = tiara_engine_comm_last(comm);
    int found = 0;

    if (c || comm == MPI_COMM_NULL)
        return c;
    if (going.is && going.comm == comm)
        return &left_to_mpi;
    if (PMPI_Comm_get_attr(comm, keyval, &c, &found) != MPI_SUCCESS)
        return NULL;
    if (!found)
        c = make(comm);
    if (c)
        /* relaxed: see tiara_engine_comm_last */
        tiara_engine_last =
            (struct tiara_engine_last){comm, c, tiara_load_relaxed(&tiara_engine_generation)};
    return c;
}

static int let_go(MPI_Comm *comm, int (*next)(MPI_Comm *))
{
    bool was = going.is;
    MPI_Comm before = going.comm;
    int rc;

    if (comm) {
        going.is = true;
        going.comm = *comm;
        forget_last();
    }
    rc = next(comm);
    going.is = was;
    going.comm = before;
    return rc;
}

int tiara_engine_comm_free(MPI_Comm *comm)
{
    return let_go(comm, tiara_engine_host->next.Comm_free);
}

int tiara_engine_comm_disconnect(MPI_Comm *comm)
{
    return let_go(comm, tiara_engine_host->next.Comm_disconnect);
}

/* ---- the decision ---- */

/* Handles that live as long as MPI. */
static bool is_predefined(MPI_Datatype type, MPI_Op op)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR,
        MPI_LXOR, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC};
    int integers, addresses, types, combiner = MPI_COMBINER_DUP;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (op == ops[i])
            return PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) ==
                       MPI_SUCCESS &&
                   combiner == MPI_COMBINER_NAMED;
    return false;
}

/* What Tiara is asked about: an all-reduce of as many bytes stands for the kinds that it has no
 * answer for. */
struct question {
    MPI_Count count;
    MPI_Datatype type;
    MPI_Op op;
};

static struct question question_of(
    const struct tiara_engine_comm *c, const struct tiara_engine_args *a)
{
    struct question q = {a->count, a->type, a->op};
    int size = 0;

    if (a->kind == TIARA_KIND_REDUCE_SCATTER_BLOCK) {
        q.count = a->count * c->size;
    } else if (a->kind == TIARA_KIND_ALLGATHER) {
        PMPI_Type_size(a->type, &size);
        q = (struct question){a->count * size * c->size, MPI_BYTE, MPI_BOR};
    }
    return q;
}

/* Whether Tiara would do it, from the known answers or from Tiara. *why_out: static text, when it
 * would not. */
static bool would_serve(
    struct tiara_engine_comm *c, const struct tiara_engine_args *a, const char **why_out)
{
    struct question q = question_of(c, a);
    bool nonblocking = a->kind == TIARA_KIND_IALLREDUCE || a->kind == TIARA_KIND_ALLREDUCE_INIT;
    int answer = TIARA_SERVES_NO;

    *why_out = "its arguments";
    if (TIARA_Comm_serves(a->comm, nonblocking, q.count, q.type, q.op, &answer, why_out) !=
        MPI_SUCCESS)
        return false;
    /* Before the first call of Tiara's, which makes the state, it is asked by calling it. */
    c->unknown = answer == TIARA_SERVES_UNKNOWN;
    if (c->unknown)
        return !nonblocking;
    if (!nonblocking && a->kind == TIARA_KIND_ALLREDUCE && is_predefined(a->type, a->op))
        *tiara_engine_slot(c, q.count, q.type, q.op) =
            (struct tiara_engine_known){q.count, q.type, q.op, answer == TIARA_SERVES_YES};
    return answer == TIARA_SERVES_YES;
}

static bool is_empty(const struct tiara_engine_args *a)
{
    int size = 1;

    if (a->count == 0 || a->kind != TIARA_KIND_ALLGATHER)
        return a->count == 0;
    /* Ranks may describe the same bytes by other types: what counts is the bytes. */
    return PMPI_Type_size(a->type, &size) != MPI_SUCCESS || size <= 0;
}

static enum tiara_engine_fate decide_nonblocking(
    struct tiara_engine_comm *c, const struct tiara_engine_args *a, const char **why_out)
{
    if (!tiara_engine_settings.completes_all)
        return TIARA_FATE_TOOL;
    if (!c->prepared)
        return TIARA_FATE_UNPREPARED;
    if (tiara_engine_settings.mode == TIARA_MODE_VERIFY &&
        (c->no_shadows || a->kind == TIARA_KIND_ALLREDUCE_INIT ||
            tiara_engine_measure_of(a->type, a->op).number == TIARA_MEASURE_NONE)) {
        *why_out = "it could not be verified";
        return TIARA_FATE_DECLINED;
    }
    return would_serve(c, a, why_out) ? TIARA_FATE_SERVED : TIARA_FATE_DECLINED;
}

/* Makes what nonblocking calls need. Collective, and waits. */
static void prepare(struct tiara_engine_comm *c, MPI_Comm comm)
{
    int no_shadows = 1;

    c->prepared = true;
    if (TIARA_Comm_prepare(comm) != MPI_SUCCESS)
        c->always = TIARA_FATE_DECLINED;
    if (tiara_engine_settings.mode == TIARA_MODE_VERIFY) {
        int mine = tiara_engine_has_cuda();

        PMPI_Allreduce(&mine, &no_shadows, 1, MPI_INT, MPI_MAX, comm);
        c->no_shadows = no_shadows;
    }
}

static enum tiara_engine_fate decide(
    struct tiara_engine_comm *c, const struct tiara_engine_args *a, const char **why_out)
{
    bool may_wait = a->kind != TIARA_KIND_IALLREDUCE;

    c->calls++;
    if (c->always != TIARA_FATE_SERVED)
        return c->always;
    if (a->kind == TIARA_KIND_IALLREDUCE || a->kind == TIARA_KIND_ALLREDUCE_INIT)
        c->wanted = tiara_engine_settings.completes_all;
    if (is_empty(a))
        return TIARA_FATE_EMPTY;
    if (c->calls <= tiara_engine_settings.after)
        return TIARA_FATE_FIRST;
    if (c->wanted && !c->prepared && may_wait)
        prepare(c, a->comm);
    if (a->kind == TIARA_KIND_IALLREDUCE || a->kind == TIARA_KIND_ALLREDUCE_INIT)
        return decide_nonblocking(c, a, why_out);
    return would_serve(c, a, why_out) ? TIARA_FATE_SERVED : TIARA_FATE_DECLINED;
}

bool tiara_engine_passes(struct tiara_engine_args *a)
{
    struct tiara_engine_comm *c = tiara_engine_comm_get(a->comm);
    enum tiara_engine_judgement judgement;
    enum tiara_engine_fate fate = TIARA_FATE_JUDGED;
    const char *why = NULL;

    if (c && c->stage == TIARA_STAGE_PASSING)
        return true;
    a->state = c;
    /* A call that MPI refuses is none to the other ranks, and so is not counted. */
    judgement = c && c->always == TIARA_FATE_SERVED ? tiara_engine_judge(a) : TIARA_ARGS_RIGHT;
    if (c && judgement == TIARA_ARGS_RIGHT)
        fate = decide(c, a, &why);
    else if (c && judgement == TIARA_ARGS_ODD)
        c->calls++;
    if (c)
        c->stage = stage_of(c);
    if (tiara_engine_settings.report && !(c && c->unknown && fate == TIARA_FATE_SERVED))
        tiara_engine_note(a, fate, why);
    return fate != TIARA_FATE_SERVED;
}

/* Notes a call that has run for the report, if Tiara could not say before what it would do with it.
 */
static void note_first(const struct tiara_engine_args *a)
{
    struct tiara_engine_comm *c = a->state;
    const char *why = NULL;
    bool served;

    if (!tiara_engine_settings.report || !c->unknown)
        return;
    served = would_serve(c, a, &why);
    tiara_engine_note(a, served ? TIARA_FATE_SERVED : TIARA_FATE_DECLINED, why);
    c->unknown = false;
}

int tiara_engine_serve(struct tiara_engine_args *a, MPI_Request *request)
{
    int rc = tiara_engine_part_buffers(a);

    if (rc != MPI_SUCCESS)
        return rc;
    if (a->kind == TIARA_KIND_IALLREDUCE || a->kind == TIARA_KIND_ALLREDUCE_INIT)
        return tiara_engine_start(a, request);
    rc = tiara_engine_settings.mode == TIARA_MODE_VERIFY ? tiara_engine_verify(a)
                                                         : tiara_engine_run(a);
    note_first(a);
    return rc;
}
