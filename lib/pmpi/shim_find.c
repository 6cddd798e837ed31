/*
 * Finding the MPI behind us: functions, its name and its version, without being linked with it.
 */
#include "pmpi/engine_fortran.h"
#include "pmpi/shim_priv.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- messages ---- */

/* The rank that the starter of the job gave this process; NULL when nothing did. */
static const char *started_as(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "MPI_RANKID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return getenv(names[i]);
    return NULL;
}

void tiara_shim_say(const char *text, const char *detail)
{
    const char *rank = started_as(), *level = getenv("TIARA_LOG");
    char line[1024];
    int length;

    if (level && strcasecmp(level, "error") == 0)
        return;
    length = snprintf(line, sizeof(line), "tiara: [%s] warn: %s%s%s\n", rank ? rank : "-", text,
        detail ? ": " : "", detail ? detail : "");
    if (length >= (int)sizeof(line)) {
        length = sizeof(line) - 1;
        line[length - 1] = '\n';
    }
    /* there is nowhere to report that reporting failed */
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)length);
    (void)ignored;
}

void tiara_shim_warn(const char *text, const char *detail)
{
    const char *rank = started_as();

    if (!rank || strcmp(rank, "0") == 0)
        tiara_shim_say(text, detail);
}

/* ---- the next definition ---- */

struct nth {
    int left;
    char name[PATH_MAX];
};

/*
 * Names only: opening an object inside the walk would take the loader's locks in the wrong order.
 */
static int take_nth(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct nth *n = arg;

    (void)size;
    if (n->left-- > 0)
        return 0;
    snprintf(n->name, sizeof(n->name), "%s", info->dlpi_name ? info->dlpi_name : "");
    return 1;
}

/* A handle of the first loaded object that has, or depends on, an MPI; NULL: there is none. */
static void *open_local_mpi(void)
{
    struct nth n;

    for (int i = 0;; i++) {
        void *object;

        n.left = i;
        if (!dl_iterate_phdr(take_nth, &n))
            return NULL;
        object = n.name[0] ? dlopen(n.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (object && dlsym(object, "PMPI_Init"))
            return object;
        if (object)
            dlclose(object);
    }
}

void *tiara_shim_next(const char *name)
{
    /* relaxed: a handle is a number to its users, and any of two that race is good */
    static tiara_u64 local_mpi;
    void *at = dlsym(RTLD_NEXT, name);
    void *object;

    if (at)
        return at;
    /* Python and its kind open MPI for themselves: then no scope that we can search has it. */
    object = (void *)(uintptr_t)tiara_load_relaxed(&local_mpi);
    if (!object) {
        object = open_local_mpi();
        tiara_store_relaxed(&local_mpi, (uintptr_t)object);
    }
    return object ? dlsym(object, name) : NULL;
}

void *tiara_shim_next_kept(const char *name, tiara_u64 *kept)
{
    /* relaxed: the address of code, which was there before */
    void *at = (void *)(uintptr_t)tiara_load_relaxed(kept);

    if (TIARA_SHIM_LIKELY(at))
        return at;
    at = tiara_shim_next(name);
    if (!at) {
        fprintf(stderr, "tiara: error: the program called %s, and no MPI in the process has it\n",
            name);
        abort();
    }
    tiara_store_relaxed(kept, (uintptr_t)at);
    return at;
}

/* Code in an object that was opened for itself, as by Python: it and what it is linked with know
 * where its MPI is. */
static void *next_of_caller(const char *name, void *caller)
{
    Dl_info info;
    void *object, *at;

    if (!dladdr(caller, &info) || !info.dli_fname)
        return NULL;
    object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!object)
        return NULL;
    at = dlsym(object, name);
    dlclose(object);
    return at;
}

void *tiara_shim_next_by(const char *name, tiara_u64 *kept, void *caller)
{
    /* relaxed: the address of code, which was there before */
    void *at = (void *)(uintptr_t)tiara_load_relaxed(kept);

    if (TIARA_SHIM_LIKELY(at))
        return at;
    at = tiara_shim_next(name);
    if (!at)
        at = next_of_caller(name, caller);
    if (!at)
        return tiara_shim_next_kept(name, kept);
    tiara_store_relaxed(kept, (uintptr_t)at);
    return at;
}

void tiara_shim_next_calls(struct tiara_pmpi_host *host)
{
#define X(name, parameters, arguments)                                                             \
    host->next.name = (int(*) parameters)tiara_shim_next("MPI_" #name);
    TIARA_PMPI_CALLS(X)
#undef X
#define X(name, parameters, arguments)                                                             \
    if (!host->next.name)                                                                          \
        host->next.name = (int(*) parameters)tiara_shim_next("MPIX_" #name);
    TIARA_PMPI_PERSISTENT_CALLS(X)
#undef X
}

const char *const tiara_shim_completions[] = {
#define X(name, parameters, arguments) "MPI_" #name,
    TIARA_PMPI_REQUEST_CALLS(X)
#undef X
#ifdef TIARA_FORTRAN_ALL_ENTRIES
#define X(name, NAME, parameters, arguments)                                                       \
    "mpi_" #name "_", "mpi_" #name "__", "MPI_" #NAME, "mpi_" #name "_f08_",
        TIARA_FORTRAN_REQUEST_CALLS(X)
#undef X
#elif defined(TIARA_FORTRAN_F08_REQUEST_ENTRIES)
#define X(name, NAME, parameters, arguments) "mpi_" #name "_f08_",
        TIARA_FORTRAN_REQUEST_CALLS(X)
#undef X
#endif
            NULL};

/* ---- which MPI it is ---- */

/* The name under which the object that holds @address is known to the loader; NULL when it has
 * none. */
static const char *soname_of(void *address)
{
    const char *strings = NULL;
    struct link_map *map;
    ElfW(Sxword) name = -1;
    Dl_info info;

    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP))
        return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SONAME)
            name = (ElfW(Sxword))d->d_un.d_val;
        /* Most loaders have made it an address, some leave the offset. */
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)(d->d_un.d_ptr < map->l_addr ? d->d_un.d_ptr + map->l_addr
                                                                 : d->d_un.d_ptr);
    }
    return name >= 0 && strings ? strings + name : NULL;
}

/* Whether @text, what the MPI says of itself, begins with the name and the first two numbers of the
 * MPI of the build. */
static bool same_version(const char *text)
{
    static const struct {
        const char *built, *says;
    } names[] = {{"Open MPI ", "Open MPI v"}, {"MPICH ", "MPICH Version:"}};
    const char *end;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *version = &TIARA_MPI_NAME[strlen(names[i].built)];

        if (strncmp(TIARA_MPI_NAME, names[i].built, strlen(names[i].built)) != 0)
            continue;
        if (strncmp(text, names[i].says, strlen(names[i].says)) != 0)
            return false;
        text += strlen(names[i].says);
        text += strspn(text, " \t");
        end = strchr(version, '.');
        end = end ? end + 1 + strspn(end + 1, "0123456789") : version + strlen(version);
        return strncmp(text, version, (size_t)(end - version)) == 0 &&
               !strchr("0123456789", text[end - version] ? text[end - version] : '.');
    }
    /* Of another MPI only the name of the object is known. */
    return true;
}

static bool fits; /* constant once learned */

static void learn_whether_fits(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int (*version)(char *, int *) = tiara_shim_next("PMPI_Get_library_version");
    void *init = tiara_shim_next("PMPI_Init");
    const char *soname = init ? soname_of(init) : NULL;
    char detail[300];
    int length = 0;

    if (!soname || strcmp(soname, TIARA_MPI_SONAME) != 0) {
        snprintf(detail, sizeof(detail), "the program runs on %s, and Tiara was built with %s (%s)",
            soname ? soname : "an MPI without a name", TIARA_MPI_NAME, TIARA_MPI_SONAME);
        tiara_shim_warn("MPI calls are not intercepted", detail);
        return;
    }
    if (!version || version(text, &length) != MPI_SUCCESS || !same_version(text)) {
        text[strcspn(text, ",\n")] = '\0';
        snprintf(detail, sizeof(detail),
            "the program runs on \"%.100s\", and Tiara was built with %s", text, TIARA_MPI_NAME);
        tiara_shim_warn("MPI calls are not intercepted", detail);
        return;
    }
    fits = true;
}

bool tiara_shim_mpi_fits(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, learn_whether_fits);
    return fits;
}
