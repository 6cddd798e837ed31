/*
 * What Tiara says about itself: TIARA_Explain and the sections of TIARA_Report; and, without any
 * other rank, TIARA_Comm_serves, TIARA_Variable and TIARA_Get_version.
 */
#include "api/describe.h"
#include "api/process.h"
#include "base/env.h"
#include "base/text.h"
#include "call/async.h"
#include "call/below.h"
#include "comm/arena_pool.h"
#include "tiara.h"
#include <stdio.h>
#include <string.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- explain ---- */

int TIARA_Explain(
    MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, char *text, int size)
{
    struct tiara_elem_mpi m = {0};
    struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE, .count = (size_t)count};
    struct tiara_tune_choice choice;
    struct tiara_tune_call q;
    enum tiara_err err = TIARA_OK;
    int rc;
    struct tiara_comm *c = tiara_process_get(comm, &rc);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = count < 0 ? MPI_ERR_COUNT : tiara_describe_bad_handles(datatype, op, NULL);
    if (rc == MPI_SUCCESS && (!text || size <= 0))
        rc = MPI_ERR_ARG;
    if (rc != MPI_SUCCESS)
        return tiara_below_raise_code(comm, rc);
    if (!tiara_elem_native(datatype, op, &call.elem))
        err = tiara_elem_other(datatype, op, &call.elem, &m);
    if (err != TIARA_OK)
        return tiara_below_raise(comm, err);
    if (!c) {
        snprintf(text, (size_t)size, "the MPI below: a rank has no memory");
    } else if (!call.elem.redop) {
        snprintf(text, (size_t)size, "the MPI below: it judges this type and operator");
    } else {
        tiara_call_query(c, &call, TIARA_ON_HOST, &q, &choice);
        tiara_tune_describe(&c->facts, &q, &choice, text, (size_t)size);
    }
    tiara_elem_mpi_fini(&m);
    return MPI_SUCCESS;
}

/* ---- sections ---- */

#ifdef HAVE_CUDA
static const char cuda_name[] = TIARA_CUDA_NAME;
#else
static const char cuda_name[] = "not built in";
#endif

static void report_build(struct tiara_text *t)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    PMPI_Get_library_version(mpi, &length);
    mpi[strcspn(mpi, "\n,")] = '\0';
    tiara_text_add(t, "tiara        %d.%d.%d\n", TIARA_VERSION_MAJOR, TIARA_VERSION_MINOR,
        TIARA_VERSION_PATCH);
    tiara_text_add(t, "compiler     %s\n", __VERSION__);
    tiara_text_add(t, "mpi          %s\n", mpi);
    tiara_text_add(t, "reductions  ");
    for (int i = 0; tiara_redop_isas[i]; i++)
        tiara_text_add(t, " %s", tiara_redop_isas[i]->name);
    tiara_text_add(t, "\ntransports  ");
    for (int i = 0; tiara_xport_table[i]; i++)
        tiara_text_add(t, " %s", tiara_xport_table[i]->name);
    tiara_text_add(t, "\nalgorithms  ");
    for (int i = 0; tiara_algo_table[i]; i++)
        tiara_text_add(t, " %s", tiara_algo_table[i]->name);
    tiara_text_add(t, "\ncuda         %s\nucx          not built in\n", cuda_name);
}

static const char *yes(bool is)
{
    return is ? "yes" : "no";
}

static bool has_memfd(void)
{
    int fd = memfd_create("tiara", MFD_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Whether the kernel lets processes copy from each other at all; own processes in other containers
 * may still be refused. */
static bool has_cma(void)
{
    int from = 1, to = 0;
    struct iovec here = {&to, sizeof(to)}, there = {&from, sizeof(from)};

    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof(to);
}

static bool has_futex(void)
{
    uint32_t word = 0;

    return syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) >= 0;
}

static void report_capabilities(struct tiara_text *t)
{
    static const struct {
        enum tiara_store store;
        const char *name;
    } stores[] = {{TIARA_STORE_PLAIN, "plain"}, {TIARA_STORE_STREAM, "stream"},
        {TIARA_STORE_STRING, "string"}};

    tiara_text_add(t, "memfd        %s\n", yes(has_memfd()));
    tiara_text_add(t, "cma          %s\n", yes(has_cma()));
    tiara_text_add(t, "futex        %s\n", yes(has_futex()));
    tiara_text_add(t, "gpu memory   %s; the MPI takes it: %s\nreductions  ", tiara_device_why(),
        yes(tiara_device_mpi_direct()));
    for (int i = 0; tiara_redop_isas[i]; i++)
        tiara_text_add(
            t, " %s (%s)", tiara_redop_isas[i]->name, yes(tiara_redop_isas[i]->supported()));
    tiara_text_add(t, "\ncell stores ");
    for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
        tiara_text_add(t, " %s (%s%s)", stores[i].name,
            yes(tiara_mem_store_supported(stores[i].store)),
            stores[i].store == tiara_mem_store_default() ? ", default" : "");
    tiara_text_add(t, "\n");
}

static void report_layout(struct tiara_text *t, const struct tiara_comm *c)
{
    char drawing[8192];

    if (!c->layout.nranks) {
        tiara_text_add(t, "%d rank%s%s\n", c->size, c->size == 1 ? "" : "s",
            c->inter ? ", an intercommunicator" : "");
        return;
    }
    tiara_topo_draw(&c->layout, c->topo, drawing, sizeof(drawing));
    tiara_text_add(t, "%s", drawing);
    tiara_topo_hardware(drawing, sizeof(drawing));
    tiara_text_add(t, "this machine: %s", drawing);
}

static void report_state(struct tiara_text *t, const struct tiara_comm *c)
{
    tiara_text_add(t, "shared memory of this rank's node group   %zu bytes, cells of %zu\n",
        c->arena ? (size_t)c->arena->size * tiara_arena_bytes(c->arena->cell_bytes) : 0,
        c->arena ? c->arena->cell_bytes : 0);
    tiara_text_add(t, "shared memory of this process's groups    %zu bytes\n", tiara_pool_bytes());
    tiara_text_add(t, "messages to other nodes                   %s, %llu\n",
        c->net_obj ? c->exec.net->name : "none",
        c->net_obj ? (unsigned long long)((struct tiara_xport_head *)c->net_obj)->sent : 0);
    tiara_text_add(t, "waiting                                   %s\n",
        c->facts.crowded ? "yields at once: more ranks than cores" : "spins first");
    tiara_text_add(t, "calls through small slots, plans, MPI     %llu, %llu, %llu\n",
        (unsigned long long)c->calls[TIARA_COUNT_ONESHOT],
        (unsigned long long)c->calls[TIARA_COUNT_PLAN],
        (unsigned long long)c->calls[TIARA_COUNT_MPI]);
    tiara_text_add(t, "calls on GPUs, staged through host memory %llu, %llu\n",
        (unsigned long long)c->calls[TIARA_COUNT_DEVICE],
        (unsigned long long)c->calls[TIARA_COUNT_STAGED]);
    tiara_text_add(t, "nonblocking calls by Tiara, by MPI        %llu, %llu\n",
        (unsigned long long)c->calls[TIARA_COUNT_TASK],
        (unsigned long long)c->calls[TIARA_COUNT_LEFT]);
}

static void report_devices(struct tiara_text *t)
{
    const struct tiara_gpu *gpu = tiara_device_wake();
    char text[8192];

    if (gpu)
        gpu->describe(text, sizeof(text));
    tiara_text_add(t, gpu ? "%s" : "none: %s\n", gpu ? text : tiara_device_why());
}

static void report_environment(struct tiara_text *t)
{
    t->length = tiara_env_describe(t->text, t->size);
}

int TIARA_Report(int section, MPI_Comm comm, char *text, int size, int *length)
{
    static void (*const of_process[])(struct tiara_text * t) = {[TIARA_REPORT_BUILD] = report_build,
        [TIARA_REPORT_CAPABILITIES] = report_capabilities,
        [TIARA_REPORT_ENVIRONMENT] = report_environment,
        [TIARA_REPORT_DEVICES] = report_devices};
    struct tiara_comm *c = NULL;
    struct tiara_config ignored;
    struct tiara_text t;
    int rc = MPI_SUCCESS;

    if (size < 0 || section < TIARA_REPORT_BUILD || section > TIARA_REPORT_DEVICES)
        return tiara_below_raise_code(MPI_COMM_SELF, MPI_ERR_ARG);
    if (!of_process[section])
        c = tiara_process_get(comm, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    tiara_config_read(&ignored);
    t = (struct tiara_text){text, (size_t)size, 0};
    if (of_process[section])
        of_process[section](&t);
    else if (!c)
        tiara_text_add(&t, "a rank has no memory for this communicator\n");
    else if (section == TIARA_REPORT_LAYOUT)
        report_layout(&t, c);
    else
        report_state(&t, c);
    if (length)
        *length = (int)t.length;
    return MPI_SUCCESS;
}

/* ---- questions ---- */

/* Why not Tiara; NULL: it would. */
static const char *why_not(
    const struct tiara_comm *c, bool nonblocking, MPI_Count count, MPI_Datatype type, MPI_Op op)
{
    struct tiara_call call = {.coll = TIARA_COLL_ALLREDUCE, .count = (size_t)count};
    bool native = tiara_elem_native(type, op, &call.elem);
    struct tiara_tune_choice choice;
    struct tiara_tune_call query;
    const char *why;
    int size = 0;

    if (!tiara_comm_serves(c))
        return c->state.why;
    if (!native && tiara_describe_bad_handles(type, op, NULL) == MPI_SUCCESS &&
        PMPI_Type_size(type, &size) == MPI_SUCCESS)
        call.elem = (struct tiara_elem){.size = (size_t)size, .type = -1, .oper = -1};
    if (count <= 0 || (!native && size <= 0))
        return "nothing to combine";
    if (!nonblocking) {
        tiara_call_query(c, &call, TIARA_ON_HOST, &query, &choice);
        return choice.path == TIARA_PATH_MPI ? choice.why : NULL;
    }
    if (!native)
        return "a type or operator that MPI combines";
    if (!c->async)
        return c->async_why;
    return tiara_async_serves(c->async, &call, &why) ? NULL : why;
}

int TIARA_Comm_serves(MPI_Comm comm, int nonblocking, MPI_Count count, MPI_Datatype datatype,
    MPI_Op op, int *answer, const char **why)
{
    struct tiara_comm *c;
    int rc = tiara_process_find(comm, nonblocking != 0, &c);

    if (rc != MPI_SUCCESS)
        return rc;
    if (!c || (nonblocking && !c->async_why && tiara_comm_serves(c))) {
        *answer = TIARA_SERVES_UNKNOWN;
        *why = "not set up yet";
        return MPI_SUCCESS;
    }
    *why = why_not(c, nonblocking != 0, count, datatype, op);
    *answer = *why ? TIARA_SERVES_NO : TIARA_SERVES_YES;
    if (!*why)
        *why = "served by Tiara";
    return MPI_SUCCESS;
}

const char *TIARA_Variable(const char *name)
{
    tiara_env_read(NULL, false);
    for (int var = 0; var < TIARA_NENV; var++)
        if (strcmp(tiara_env_row((enum tiara_env)var)->name, name) == 0)
            return tiara_env_text((enum tiara_env)var);
    return NULL;
}

int TIARA_Get_version(int *major, int *minor, int *patch)
{
    *major = TIARA_VERSION_MAJOR;
    *minor = TIARA_VERSION_MINOR;
    *patch = TIARA_VERSION_PATCH;
    return MPI_SUCCESS;
}
