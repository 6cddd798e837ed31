/*
 * The engine's table, the shortest way of a call, and its beginning and end.
 */
#include "base/log.h"
#include "pmpi/engine_fortran.h"
#include "pmpi/engine_priv.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NEXT tiara_engine_host->next

/* ---- calls ---- */

enum verdict {
    PASS,
    SERVE,
    ASK
};

/* What is known about an all-reduce without a second look. */
static inline enum verdict quick(const void *sendbuf, const void *recvbuf, MPI_Count count,
    MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct tiara_engine_comm *c = tiara_engine_comm_last(comm);
    const struct tiara_engine_known *known;

    if (!c)
        return ASK;
    switch (c->stage) {
    case TIARA_STAGE_PASSING:
        return PASS;
    case TIARA_STAGE_ENGAGED:
        known = tiara_engine_slot(c, count, type, op);
        if (known->count != count || known->type != type || known->op != op || count == 0)
            return ASK;
        if (!known->serve)
            return PASS;
        return tiara_engine_is_odd(sendbuf, recvbuf) ? ASK : SERVE;
    case TIARA_STAGE_COUNTING:
        if (count < 0 || type == MPI_DATATYPE_NULL || op == MPI_OP_NULL ||
            tiara_engine_is_odd(sendbuf, recvbuf))
            return ASK;
        if (++c->calls >= tiara_engine_settings.after)
            c->stage = TIARA_STAGE_SLOW;
        return PASS;
    default:
        return ASK;
    }
}

#define ARGS(kind_, sendbuf_, recvbuf_, count_, type_, op_, comm_)                                 \
    {                                                                                              \
        .kind = (kind_), .sendbuf = (sendbuf_), .recvbuf = (recvbuf_), .count = (count_),          \
        .type = (type_), .op = (op_), .comm = (comm_)                                              \
    }

/* Apart, so that the shortest way saves no registers. */
static __attribute__((noinline)) int allreduce_asked(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_ALLREDUCE, sendbuf, recvbuf, count, type, op, comm);

    if (tiara_engine_passes(&a))
        return NEXT.Allreduce(sendbuf, recvbuf, count, type, op, comm);
    return tiara_engine_serve(&a, NULL);
}

static int allreduce(
    const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    enum verdict verdict = quick(sendbuf, recvbuf, count, type, op, comm);

    if (verdict == SERVE)
        return TIARA_Allreduce(sendbuf, recvbuf, count, type, op, comm);
    if (verdict == PASS)
        return NEXT.Allreduce(sendbuf, recvbuf, count, type, op, comm);
    return allreduce_asked(sendbuf, recvbuf, count, type, op, comm);
}

/* The other kinds: each call is looked at. */
static int allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_ALLREDUCE, sendbuf, recvbuf, count, type, op, comm);

    if (tiara_engine_passes(&a))
        return NEXT.Allreduce_c(sendbuf, recvbuf, count, type, op, comm);
    return tiara_engine_serve(&a, NULL);
}

static int iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Request *request)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_IALLREDUCE, sendbuf, recvbuf, count, type, op, comm);

    if (tiara_engine_passes(&a))
        return NEXT.Iallreduce(sendbuf, recvbuf, count, type, op, comm, request);
    return tiara_engine_serve(&a, request);
}

static int iallreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_IALLREDUCE, sendbuf, recvbuf, count, type, op, comm);

    if (tiara_engine_passes(&a))
        return NEXT.Iallreduce_c(sendbuf, recvbuf, count, type, op, comm, request);
    return tiara_engine_serve(&a, request);
}

static int allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_ALLREDUCE_INIT, sendbuf, recvbuf, count, type, op, comm);

    a.info = info;
    if (tiara_engine_passes(&a))
        return NEXT.Allreduce_init(sendbuf, recvbuf, count, type, op, comm, info, request);
    return tiara_engine_serve(&a, request);
}

static int allreduce_init_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
    MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_ALLREDUCE_INIT, sendbuf, recvbuf, count, type, op, comm);

    a.info = info;
    if (tiara_engine_passes(&a))
        return NEXT.Allreduce_init_c(sendbuf, recvbuf, count, type, op, comm, info, request);
    return tiara_engine_serve(&a, request);
}

static int reduce_scatter_block(
    const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_REDUCE_SCATTER_BLOCK, sendbuf, recvbuf, recvcount, type, op, comm);

    if (tiara_engine_passes(&a))
        return NEXT.Reduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, comm);
    return tiara_engine_serve(&a, NULL);
}

static int allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    struct tiara_engine_args a =
        ARGS(TIARA_KIND_ALLGATHER, sendbuf, recvbuf, recvcount, recvtype, MPI_OP_NULL, comm);

    a.sendcount = sendcount;
    a.sendtype = sendtype;
    if (tiara_engine_passes(&a))
        return NEXT.Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
    return tiara_engine_serve(&a, NULL);
}

/* ---- beginning and end ---- */

static bool is_yes(const char *text)
{
    return text && (strcasecmp(text, "1") == 0 || strcasecmp(text, "yes") == 0 ||
                       strcasecmp(text, "on") == 0 || strcasecmp(text, "true") == 0);
}

/* Where @text stands among @words, which end in NULL; @otherwise when nowhere. */
static int word_of(const char *text, const char *const words[], int otherwise)
{
    for (int i = 0; text && words[i]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return i;
    return otherwise;
}

static struct tiara_engine_settings read_settings(void)
{
    static const char *const modes[] = {"off", "on", "verify", NULL};
    const char *after = TIARA_Variable("TIARA_PMPI_AFTER");
    const char *progress = TIARA_Variable("TIARA_PROGRESS");

    return (struct tiara_engine_settings){
        .mode = word_of(TIARA_Variable("TIARA_PMPI"), modes, TIARA_MODE_ON),
        .report = is_yes(TIARA_Variable("TIARA_REPORT")),
        .completes_all = tiara_engine_host->completes_all,
        .progress_by_calls = progress && strcasecmp(progress, "call") == 0,
        .after = after ? strtoull(after, NULL, 0) : 0};
}

static void set_up_log(void)
{
    static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
    int rank = -1;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    tiara_log_setup(
        (enum tiara_log_level)word_of(TIARA_Variable("TIARA_LOG"), levels, TIARA_LOG_WARN), rank);
}

/* Rank 0's settings are everybody's, and what one rank cannot do none does. */
static bool agree(struct tiara_engine_settings *s)
{
    int mine = s->completes_all;

    if (PMPI_Bcast(s, sizeof(*s), MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
        return false;
    return PMPI_Allreduce(&mine, &s->completes_all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

static bool init(const struct tiara_pmpi_host *host)
{
    struct tiara_engine_settings s;

    tiara_engine_host = host;
    set_up_log();
    s = read_settings();
    if (host->from_init && !agree(&s))
        return false;
    tiara_engine_settings = s;
    if (!s.completes_all)
        tiara_info("pmpi: another tool takes the calls that complete requests; MPI_Iallreduce is "
                   "left to the MPI below");
    tiara_engine_args_init();
    return s.mode != TIARA_MODE_OFF && tiara_engine_comm_init();
}

/* Programs poll their requests: while the engine has none, a look costs a few instructions more
 * than without it. */
static const struct tiara_pmpi_calls with_requests = {.Wait = tiara_engine_wait,
    .Waitall = tiara_engine_waitall,
    .Waitany = tiara_engine_waitany,
    .Waitsome = tiara_engine_waitsome,
    .Test = tiara_engine_test,
    .Testall = tiara_engine_testall,
    .Testany = tiara_engine_testany,
    .Testsome = tiara_engine_testsome,
    .Request_free = tiara_engine_request_free,
    .Request_get_status = tiara_engine_request_get_status,
    .Request_get_status_any = tiara_engine_request_get_status_any,
    .Request_get_status_all = tiara_engine_request_get_status_all,
    .Request_get_status_some = tiara_engine_request_get_status_some,
    .Start = tiara_engine_start_one,
    .Startall = tiara_engine_startall};
#define X(name, parameters, arguments)                                                             \
    static int or_next_##name parameters                                                           \
    {                                                                                              \
        /* relaxed: as in engine_request.c */                                                      \
        if (__builtin_expect(tiara_load_relaxed(&tiara_engine_nrequests) == 0, 1))                 \
            return tiara_engine_host->next.name arguments;                                         \
        return with_requests.name arguments;                                                       \
    }
TIARA_PMPI_REQUEST_CALLS(X)
#undef X

static void finalize(bool together)
{
    struct tiara_engine_settings *s = &tiara_engine_settings;

    tiara_engine_drain();
    /*
     * Where they could not be agreed upon in MPI_Init, they are what each rank's environment says.
     */
    if (together && !tiara_engine_host->from_init)
        together = agree(s);
    if (together && (s->report || s->mode == TIARA_MODE_VERIFY))
        tiara_engine_report();
}

__attribute__((visibility("default"))) const struct tiara_engine tiara_pmpi_engine = {
    .calls =
        {
            .Allreduce = allreduce,
            .Allreduce_c = allreduce_c,
            .Iallreduce = iallreduce,
            .Iallreduce_c = iallreduce_c,
            .Allreduce_init = allreduce_init,
            .Allreduce_init_c = allreduce_init_c,
            .Reduce_scatter_block = reduce_scatter_block,
            .Allgather = allgather,
            .Wait = or_next_Wait,
            .Waitall = or_next_Waitall,
            .Waitany = or_next_Waitany,
            .Waitsome = or_next_Waitsome,
            .Test = or_next_Test,
            .Testall = or_next_Testall,
            .Testany = or_next_Testany,
            .Testsome = or_next_Testsome,
            .Request_free = or_next_Request_free,
            .Request_get_status = or_next_Request_get_status,
            .Request_get_status_any = or_next_Request_get_status_any,
            .Request_get_status_all = or_next_Request_get_status_all,
            .Request_get_status_some = or_next_Request_get_status_some,
            .Start = or_next_Start,
            .Startall = or_next_Startall,
            .Comm_free = tiara_engine_comm_free,
            .Comm_disconnect = tiara_engine_comm_disconnect,
        },
    .init = init,
    .finalize = finalize,
    .fortran = &tiara_engine_fortran,
};
