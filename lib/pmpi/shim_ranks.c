/*
 * Whether all ranks of the job have the shim.
 *
 * A rank without it cannot be asked, and whoever waits for its answer waits for ever. So each rank
 * with it leaves a mark where the job's starter keeps what ranks tell each other, while MPI is
 * being initialised. MPI_Init distributes all that was left there, as ranks find their peers'
 * addresses that way. So once it has returned, a mark that is not there means a rank without the
 * shim, and all ranks see the same marks, without having waited for anybody.
 *
 * Two starters are known: those that speak PMIx (mpirun of Open MPI, prterun, srun --mpi=pmix), and
 * Hydra (mpiexec of MPICH and its relatives).
 */
#include "pmpi/shim_priv.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY "tiara.pmpi"

/* ---- PMIx: the mark is put beside those of the MPI, just before it commits them ---- */

/* As PMIx has them since version 2. */
enum {
    PMIX_SCOPE_GLOBAL = 3,
    PMIX_TYPE_BOOL = 1
};
struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        void *unknown[3];
    } data;
};
struct pmix_proc {
    char job[256];
    uint32_t rank;
};
struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};
typedef int pmix_put(unsigned char scope, const char *key, struct pmix_value *value);
typedef int pmix_get(const struct pmix_proc *proc, const char *key, const struct pmix_info *info,
    size_t ninfo, struct pmix_value **value_out);

static pmix_get *pmix_look; /* once the mark is put */

static bool pmix_has_mark(int rank)
{
    /* Only what is here already: never ask another process. */
    struct pmix_info only = {.key = "pmix.optional", .value = {PMIX_TYPE_BOOL, {.flag = true}}};
    struct pmix_value *value = NULL;
    struct pmix_proc proc = {.rank = (uint32_t)rank};
    const char *job = getenv("PMIX_NAMESPACE");
    bool found;

    snprintf(proc.job, sizeof(proc.job), "%s", job ? job : "");
    found = pmix_look(&proc, KEY, &only, 1, &value) == 0 && value;
    free(found ? value : NULL);
    return found;
}

static void pmix_leave_mark(pmix_put *put, pmix_get *look)
{
    struct pmix_value mark = {PMIX_TYPE_BOOL, {.flag = true}};

    /* Other programs than those of MPI speak PMIx as well. */
    if (!pmix_look && tiara_shim_next("PMPI_Init") && tiara_shim_mpi_fits() &&
        put(PMIX_SCOPE_GLOBAL, KEY, &mark) == 0)
        pmix_look = look;
}

/* Open MPI has a copy of PMIx in which all names have a prefix, for systems without one. */
#define PMIX_COMMIT(prefix)                                                                        \
    int prefix##PMIx_Commit(void);                                                                 \
    int prefix##PMIx_Commit(void)                                                                  \
    {                                                                                              \
        static tiara_u64 kept, kept_put, kept_get;                                                 \
        void *caller = __builtin_return_address(0);                                                \
        int (*next)(void) =                                                                        \
            (int (*)(void))tiara_shim_next_by(#prefix "PMIx_Commit", &kept, caller);               \
                                                                                                   \
        pmix_leave_mark((pmix_put *)tiara_shim_next_by(#prefix "PMIx_Put", &kept_put, caller),     \
            (pmix_get *)tiara_shim_next_by(#prefix "PMIx_Get", &kept_get, caller));                \
        return next();                                                                             \
    }
PMIX_COMMIT()
PMIX_COMMIT(OPAL_MCA_PMIX3X_)

/* ---- Hydra: lines over a socket, each with its answer; the MPI uses it in MPI_Init only ---- */

static char hydra_space[256]; /* the job's, once the mark is put */

/* @text: a command, then its answer. False: there is none. */
static bool hydra_ask(char *text, size_t size)
{
    const char *number = getenv("PMI_FD");
    int fd = number ? atoi(number) : -1;
    size_t n = 0;

    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return false;
    while (n + 1 < size && recv(fd, &text[n], 1, 0) == 1 && text[n] != '\n')
        n++;
    text[n] = '\0';
    return n > 0;
}

static bool hydra_says(char *line, size_t size, const char *part)
{
    return hydra_ask(line, size) && strstr(line, part);
}

static void hydra_leave_mark(void)
{
    const char *rank = getenv("PMI_RANK");
    char line[1024], name[sizeof(hydra_space)];

    /* Others give PMI_FD too, and Hydra alone the number of ranks on the machine. */
    if (hydra_space[0] || !getenv("PMI_FD") || !rank || !getenv("MPI_LOCALNRANKS"))
        return;
    /* The first one makes Hydra forget what came before, so that of the MPI must not be it. */
    snprintf(line, sizeof(line), "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (!hydra_says(line, sizeof(line), "rc=0"))
        return;
    snprintf(line, sizeof(line), "cmd=get_my_kvsname\n");
    if (!hydra_says(line, sizeof(line), "kvsname=") ||
        sscanf(strstr(line, "kvsname="), "kvsname=%255s", name) != 1)
        return;
    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=" KEY ".%s value=1\n", name, rank);
    if (hydra_says(line, sizeof(line), "rc=0"))
        strcpy(hydra_space, name);
}

static bool hydra_has_mark(int rank)
{
    char line[1024];

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=" KEY ".%d\n", hydra_space, rank);
    return hydra_says(line, sizeof(line), "rc=0");
}

/* ---- both ---- */

/* tiara-run wants to know whether the library got anywhere. */
static void tell_tiara_run(void)
{
    const char *path = getenv("_TIARA_RUN");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    /* without it, it says once too often that nobody did */
    ssize_t ignored = write(fd, ".", 1);
    (void)ignored;
    close(fd);
}

void tiara_shim_leave_mark(void)
{
    tell_tiara_run();
    if (getenv("PMI_FD") && tiara_shim_mpi_fits())
        hydra_leave_mark();
}

static bool is_yes(const char *text)
{
    return text && (strcasecmp(text, "1") == 0 || strcasecmp(text, "yes") == 0 ||
                       strcasecmp(text, "on") == 0 || strcasecmp(text, "true") == 0);
}

bool tiara_shim_is_everywhere(int rank, int size, bool is_wanted)
{
    bool (*has_mark)(int) = pmix_look ? pmix_has_mark : hydra_space[0] ? hydra_has_mark : NULL;
    int missing = 0, first = size;
    char detail[160];

    if (size == 1 || (!has_mark && is_yes(getenv("TIARA_PMPI_EVERYWHERE"))))
        return true;
    if (!has_mark) {
        if (is_wanted)
            tiara_shim_warn("MPI calls are not intercepted",
                "the job's starter does not tell whether all ranks have libtiara-pmpi.so "
                "preloaded; "
                "TIARA_PMPI_EVERYWHERE=1 says that they have");
        return false;
    }
    for (int i = size - 1; i >= 0; i--) {
        if (has_mark(i))
            first = i;
        else
            missing++;
    }
    snprintf(detail, sizeof(detail),
        "libtiara-pmpi.so is preloaded into %d of %d ranks, and must be in all or none",
        size - missing, size);
    if (missing && rank == first && is_wanted)
        tiara_shim_say("MPI calls are not intercepted", detail);
    return !missing;
}
