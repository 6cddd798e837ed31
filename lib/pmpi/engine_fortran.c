/*
 * Collective calls of Fortran, given to the same policy as those of C: handles and buffers are
 * translated, and no argument is touched when the call goes on to the MPI. engine_fortran.h says
 * which calls come here.
 */
#include "pmpi/engine_fortran.h"
#include "pmpi/engine_fortran_priv.h"
#include "pmpi/engine_priv.h"
#include <dlfcn.h>
#include <pthread.h>

#ifdef TIARA_FORTRAN_ALL_ENTRIES
/*
 * Open MPI's sentinels are common blocks of the program, in the spelling of its compiler, which the
 * loader has made one with those of libmpi; in mpi_f08 they are variables of the same names. Where
 * Fortran was opened for itself, as by Python, they are those of the object in which libmpi sees
 * its MPI_F_STATUS_IGNORE, and no search from here would find them.
 */
enum {
    NSPELLINGS = 4
};
static const char *const in_place_names[NSPELLINGS] = {"mpi_fortran_in_place_",
    "mpi_fortran_in_place__", "mpi_fortran_in_place", "MPI_FORTRAN_IN_PLACE"};
static const char *const bottom_names[NSPELLINGS] = {
    "mpi_fortran_bottom_", "mpi_fortran_bottom__", "mpi_fortran_bottom", "MPI_FORTRAN_BOTTOM"};

/* Where they are, each place once. Constant once learned. */
struct sentinel {
    int n;
    const char *at[2 * NSPELLINGS];
};
static struct sentinel in_place, bottom;

static bool is_sentinel(const struct sentinel *s, const char *at)
{
    for (int i = 0; i < s->n; i++)
        if (at == s->at[i])
            return true;
    return false;
}

static void add_place(struct sentinel *s, const char *at)
{
    if (at && !is_sentinel(s, at))
        s->at[s->n++] = at;
}

static void learn_sentinel(struct sentinel *s, const char *const names[NSPELLINGS], void *object)
{
    for (int i = 0; i < NSPELLINGS; i++) {
        add_place(s, dlsym(RTLD_DEFAULT, names[i]));
        if (object)
            add_place(s, dlsym(object, names[i]));
    }
}

static void learn_sentinels(void)
{
    Dl_info info;
    void *object = NULL;

    if (dladdr(MPI_F_STATUS_IGNORE, &info) && info.dli_fname)
        object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    learn_sentinel(&in_place, in_place_names, object);
    learn_sentinel(&bottom, bottom_names, object);
    if (object)
        dlclose(object);
}

static void *buffer(char *at)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, learn_sentinels);
    if (is_sentinel(&in_place, at))
        return MPI_IN_PLACE;
    return is_sentinel(&bottom, at) ? MPI_BOTTOM : at;
}

/* False: the call goes on. @request: of the calls that have one. */
static bool run(struct tiara_engine_args *a, MPI_Fint *request, MPI_Fint *ierror)
{
    MPI_Request started = MPI_REQUEST_NULL;
    int rc;

    if (tiara_engine_passes(a))
        return false;
    rc = tiara_engine_serve(a, request ? &started : NULL);
    if (request && rc == MPI_SUCCESS)
        *request = PMPI_Request_c2f(started);
    if (ierror)
        *ierror = rc;
    return true;
}

/* What the shortest way of C in engine.c knows too, but for the counting: whose a call is, without
 * a second look. */
enum whose {
    ASK,
    OF_MPI,
    OF_TIARA
};
static enum whose whose_is(const struct tiara_engine_args *a)
{
    struct tiara_engine_comm *c = tiara_engine_comm_last(a->comm);
    const struct tiara_engine_known *known;

    if (c && c->stage == TIARA_STAGE_PASSING)
        return OF_MPI;
    if (!c || c->stage != TIARA_STAGE_ENGAGED || a->count == 0 ||
        tiara_engine_is_odd(a->sendbuf, a->recvbuf))
        return ASK;
    known = tiara_engine_slot(c, a->count, a->type, a->op);
    if (known->count != a->count || known->type != a->type || known->op != a->op)
        return ASK;
    return known->serve ? OF_TIARA : OF_MPI;
}

/* What the calls with an operator have in common. */
static struct tiara_engine_args reduction(
    char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm)
{
    return (struct tiara_engine_args){.sendbuf = buffer(sendbuf),
        .recvbuf = buffer(recvbuf),
        .count = *count,
        .type = PMPI_Type_f2c(*type),
        .op = PMPI_Op_f2c(*op),
        .comm = PMPI_Comm_f2c(*comm)};
}

static bool fortran_allreduce(char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type,
    MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierror)
{
    struct tiara_engine_args a = reduction(sendbuf, recvbuf, count, type, op, comm);

    enum whose whose = whose_is(&a);
    int rc;

    a.kind = TIARA_KIND_ALLREDUCE;
    if (whose == OF_MPI)
        return false;
    if (whose == ASK)
        return run(&a, NULL, ierror);
    rc = TIARA_Allreduce(a.sendbuf, a.recvbuf, (int)a.count, a.type, a.op, a.comm);
    if (ierror)
        *ierror = rc;
    return true;
}

static bool fortran_iallreduce(char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type,
    MPI_Fint *op, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror)
{
    struct tiara_engine_args a = reduction(sendbuf, recvbuf, count, type, op, comm);

    a.kind = TIARA_KIND_IALLREDUCE;
    return run(&a, request, ierror);
}

static bool fortran_allreduce_init(char *sendbuf, char *recvbuf, MPI_Fint *count, MPI_Fint *type,
    MPI_Fint *op, MPI_Fint *comm, MPI_Fint *info, MPI_Fint *request, MPI_Fint *ierror)
{
    struct tiara_engine_args a = reduction(sendbuf, recvbuf, count, type, op, comm);

    a.kind = TIARA_KIND_ALLREDUCE_INIT;
    a.info = PMPI_Info_f2c(*info);
    return run(&a, request, ierror);
}

static bool fortran_reduce_scatter_block(char *sendbuf, char *recvbuf, MPI_Fint *recvcount,
    MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm, MPI_Fint *ierror)
{
    struct tiara_engine_args a = reduction(sendbuf, recvbuf, recvcount, type, op, comm);

    a.kind = TIARA_KIND_REDUCE_SCATTER_BLOCK;
    return run(&a, NULL, ierror);
}

static bool fortran_allgather(char *sendbuf, MPI_Fint *sendcount, MPI_Fint *sendtype, char *recvbuf,
    MPI_Fint *recvcount, MPI_Fint *recvtype, MPI_Fint *comm, MPI_Fint *ierror)
{
    struct tiara_engine_args a = {.kind = TIARA_KIND_ALLGATHER,
        .sendbuf = buffer(sendbuf),
        .sendcount = *sendcount,
        .sendtype = PMPI_Type_f2c(*sendtype),
        .recvbuf = buffer(recvbuf),
        .count = *recvcount,
        .type = PMPI_Type_f2c(*recvtype),
        .comm = PMPI_Comm_f2c(*comm)};

    return run(&a, NULL, ierror);
}
#endif

#if defined(TIARA_FORTRAN_ALL_ENTRIES) || defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)
static bool let_go(int (*go)(MPI_Comm *), MPI_Fint *comm, MPI_Fint *ierror)
{
    MPI_Comm c = PMPI_Comm_f2c(*comm);
    int rc = go(&c);

    if (rc == MPI_SUCCESS)
        *comm = PMPI_Comm_c2f(c);
    if (ierror)
        *ierror = rc;
    return true;
}

static bool fortran_comm_free(MPI_Fint *comm, MPI_Fint *ierror)
{
    return let_go(tiara_engine_comm_free, comm, ierror);
}

static bool fortran_comm_disconnect(MPI_Fint *comm, MPI_Fint *ierror)
{
    return let_go(tiara_engine_comm_disconnect, comm, ierror);
}
#endif

const struct tiara_engine_fortran tiara_engine_fortran = {
#ifdef TIARA_FORTRAN_ALL_ENTRIES
    .allreduce = fortran_allreduce,
    .iallreduce = fortran_iallreduce,
    .reduce_scatter_block = fortran_reduce_scatter_block,
    .allgather = fortran_allgather,
    .allreduce_init = fortran_allreduce_init,
#endif
#if defined(TIARA_FORTRAN_ALL_ENTRIES) || defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)
#define X(name, NAME, parameters, arguments) .name = tiara_engine_fortran_##name,
    TIARA_FORTRAN_REQUEST_CALLS(X)
#undef X
        .comm_free = fortran_comm_free,
    .comm_disconnect = fortran_comm_disconnect,
#endif
};
