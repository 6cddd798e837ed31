/*
 * From a preloaded object to an engine: when, and whether.
 *
 * A process is unsettled until its MPI runs. Then the shim looks at that MPI, and whether all ranks
 * have the shim (shim_ranks.c); without that, it asks nobody anything. It opens the engine from its
 * own directory, and asks the other ranks: one rank that cannot makes all go without. That exchange
 * needs all ranks inside MPI_Init; where MPI was initialised behind our back, as by a tool in front
 * of us that calls PMPI_Init, there is none.
 */
#include "pmpi/shim_priv.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ENGINE "libtiara-pmpi-engine.so.0"

tiara_u64 tiara_shim_current = TIARA_SHIM_UNSETTLED;

/* Recursive, in case that something calls MPI while the process is being settled. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool settling; /* lock */
static bool finalizing; /* lock */
static bool settled_together; /* lock; in MPI_Init, on all ranks */
static bool are_all_ours; /* all ranks have the shim, and the MPI that Tiara was built with; lock */
static struct tiara_pmpi_host host; /* written once, while settling */

/* Where the shim is, when the loader was told so by a relative path; a program may change its
 * directory. */
static char absolute_path[PATH_MAX];

static void __attribute__((constructor)) remember_path(void)
{
    Dl_info info;

    if (dladdr(&tiara_shim_current, &info) && info.dli_fname && info.dli_fname[0] != '/' &&
        !realpath(info.dli_fname, absolute_path))
        absolute_path[0] = '\0';
}

/* A child has its parent's memory, and not its parent's peers. */
static void leave_in_child(void)
{
    /* relaxed: the child has one thread */
    tiara_store_relaxed(&tiara_shim_current, 0);
}

static const struct tiara_engine *open_engine(void)
{
    char path[PATH_MAX + sizeof(ENGINE) + 1];
    const char *slash, *own = absolute_path;
    const struct tiara_engine *engine;
    void *object;
    Dl_info info;

    if (!own[0])
        own = dladdr(&tiara_shim_current, &info) && info.dli_fname ? info.dli_fname : "";
    slash = strrchr(own, '/');
    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - own + 1) : 0, own, ENGINE);
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    engine = object ? dlsym(object, "tiara_pmpi_engine") : NULL;
    if (!engine)
        tiara_shim_warn("MPI calls are not intercepted", dlerror());
    return engine;
}

/*
 * The handles of the exchange. Open MPI's are addresses of variables, to which the shim must not
 * refer. A program may have copies of them, which all objects use then: so the first definition
 * counts, not the next.
 */
#ifdef OPEN_MPI
static void *variable(const char *name)
{
    void *first = dlsym(RTLD_DEFAULT, name);

    return first ? first : tiara_shim_next(name);
}
static MPI_Comm world(void)
{
    return variable("ompi_mpi_comm_world");
}
static MPI_Datatype type_int(void)
{
    return variable("ompi_mpi_int");
}
static MPI_Op op_max(void)
{
    return variable("ompi_mpi_op_max");
}
#else
static MPI_Comm world(void)
{
    return MPI_COMM_WORLD;
}
static MPI_Datatype type_int(void)
{
    return MPI_INT;
}
static MPI_Op op_max(void)
{
    return MPI_MAX;
}
#endif

/* True on all ranks when it is @mine on all. Collective over MPI_COMM_WORLD. */
static bool agree(bool mine)
{
    int (*start)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *) =
        (int (*)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm,
            MPI_Request *))tiara_shim_next("PMPI_Iallreduce");
    int (*test)(MPI_Request *, int *, MPI_Status *) =
        (int (*)(MPI_Request *, int *, MPI_Status *))tiara_shim_next("PMPI_Test");
    int not_here = !mine, not_all = 1, over = 0;
    MPI_Request request;

    if (!start || !test ||
        start(&not_here, &not_all, 1, type_int(), op_max(), world(), &request) != MPI_SUCCESS)
        return false;
    while (test(&request, &over, MPI_STATUS_IGNORE) == MPI_SUCCESS && !over)
        sched_yield();
    return over && !not_all;
}

/* Local, and alike on all ranks. */
static bool is_everywhere(bool is_wanted)
{
    int (*ask_rank)(MPI_Comm, int *) = (int (*)(MPI_Comm, int *))tiara_shim_next("PMPI_Comm_rank");
    int (*ask_size)(MPI_Comm, int *) = (int (*)(MPI_Comm, int *))tiara_shim_next("PMPI_Comm_size");
    int rank, size;

    return ask_rank && ask_size && ask_rank(world(), &rank) == MPI_SUCCESS &&
           ask_size(world(), &size) == MPI_SUCCESS &&
           tiara_shim_is_everywhere(rank, size, is_wanted);
}

/*
 * No tool in front of us, nor the program itself, has one of @names, of which the shim has its own.
 */
static bool reaches(const char *const names[], void *self)
{
    for (int i = 0; names[i]; i++) {
        void *ours = dlsym(self, names[i]);

        if (ours && dlsym(RTLD_DEFAULT, names[i]) != ours)
            return false;
    }
    return true;
}

static bool completes_all(void)
{
    void *self;
    Dl_info info;

    if (!dladdr(&tiara_shim_current, &info))
        return false;
    self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return self && reaches(tiara_shim_completions, self);
}

static const struct tiara_engine *engine_for(bool from_init)
{
    const char *mode = getenv("TIARA_PMPI");
    const struct tiara_engine *engine = NULL;
    bool is_wanted = !mode || strcasecmp(mode, "off") != 0;

    are_all_ours = tiara_shim_mpi_fits() && is_everywhere(is_wanted);
    settled_together = from_init;
    if (!are_all_ours)
        return NULL;
    if (is_wanted)
        engine = open_engine();
    if (from_init && !agree(engine != NULL))
        return NULL;
    if (!engine)
        return NULL;
    tiara_shim_next_calls(&host);
    host.find = tiara_shim_next;
    host.from_init = from_init;
    host.completes_all = completes_all();
    if (!engine->init(&host))
        return NULL;
    pthread_atfork(NULL, NULL, leave_in_child);
    return engine;
}

/* MPI_Init has returned, and MPI_Finalize has not. */
static bool mpi_runs(void)
{
    static tiara_u64 kept_initialized, kept_finalized;
    int (*initialized)(int *) =
        (int (*)(int *))tiara_shim_next_kept("PMPI_Initialized", &kept_initialized);
    int (*finalized)(int *) =
        (int (*)(int *))tiara_shim_next_kept("PMPI_Finalized", &kept_finalized);
    int yes = 0, over = 0;

    initialized(&yes);
    finalized(&over);
    return yes && !over;
}

static const struct tiara_engine *settle(bool from_init)
{
    const struct tiara_engine *engine = NULL;
    uint64_t at;

    pthread_mutex_lock(&lock);
    /* relaxed: the lock orders it */
    at = tiara_load_relaxed(&tiara_shim_current);
    if (at != TIARA_SHIM_UNSETTLED) {
        engine = (const struct tiara_engine *)(uintptr_t)at;
    } else if (!settling) {
        settling = true;
        engine = engine_for(from_init);
        settling = false;
        /* [pmpi.engine] release: what init wrote is visible to whoever takes the address. */
        tiara_store_release(&tiara_shim_current, (uintptr_t)engine);
    }
    pthread_mutex_unlock(&lock);
    return engine;
}

const struct tiara_engine *tiara_shim_settle(void)
{
    return mpi_runs() ? settle(false) : NULL;
}

void tiara_shim_initializing(void)
{
    tiara_shim_leave_mark();
}

void tiara_shim_initialized(void)
{
    settle(true);
}

void tiara_shim_finalizing(void)
{
    const struct tiara_engine *engine = tiara_shim_engine();
    bool together, alone;

    pthread_mutex_lock(&lock);
    /* relaxed: the lock orders it, and the program calls nothing of MPI at the same time */
    tiara_store_relaxed(&tiara_shim_current, 0);
    together = settled_together;
    alone = are_all_ours && !together && !finalizing;
    finalizing = true;
    pthread_mutex_unlock(&lock);
    /* Settled one by one: here, at last, all ranks are at the same place. */
    if (alone)
        together = agree(engine != NULL);
    if (engine)
        engine->finalize(together);
}
