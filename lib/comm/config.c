/*
 * Settings from the environment. Only here the names of algorithms in variables are looked up.
 */
#include "comm/config.h"
#include "algo/algo.h"
#include "base/env.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/text.h"
#include "mem/mem.h"
#include "xport/xport.h"
#include <mpi.h>
#include <pthread.h>
#include <string.h>

static struct tiara_config config;
static int layout_node;
static struct tiara_trace *trace;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* The name of row @i of a table, NULL behind its end; of a row that cannot be chosen, "". */
typedef const char *(*name_fn)(int i);

static const char *algo_name(int i)
{
    return tiara_algo_table[i] ? tiara_algo_table[i]->name : NULL;
}

static const char *flat_algo_name(int i)
{
    const struct tiara_algo *algo = tiara_algo_table[i];

    return !algo || algo->flags & TIARA_ALGO_FLAT ? algo_name(i) : "";
}

static const char *net_name(int i)
{
    const unsigned needed = TIARA_XPORT_MESSAGE | TIARA_XPORT_PROCESSES;
    const struct tiara_xport *row = tiara_xport_table[i];

    if (!row)
        return NULL;
    return (row->flags & needed) == needed ? row->name : "";
}

/* Index of the row that @var names; -1 for "auto", which also stands in for unknown names. */
static int find_row(enum tiara_env var, name_fn name_of)
{
    const char *asked = tiara_env_text(var), *name;
    char names[256] = "";
    struct tiara_text allowed = {names, sizeof(names), 0};

    if (strcmp(asked, "auto") == 0)
        return -1;
    for (int i = 0; (name = name_of(i)); i++) {
        if (*name && strcmp(name, asked) == 0)
            return i;
        if (*name)
            tiara_text_add(&allowed, " %s", name);
    }
    tiara_error("%s is \"%s\": allowed are auto%s%s; auto is used", tiara_env_row(var)->name, asked,
        var == TIARA_ENV_ALGO ? " mpi" : "", names);
    return -1;
}

static void set_cell_store(void)
{
    static const enum tiara_store stores[] = {
        TIARA_STORE_PLAIN, TIARA_STORE_STREAM, TIARA_STORE_STRING};
    int64_t choice = tiara_env_value(TIARA_ENV_CELL_STORE);
    enum tiara_store store = choice > 0 ? stores[choice - 1] : tiara_mem_store_default();

    if (!tiara_mem_store_supported(store)) {
        tiara_error("TIARA_CELL_STORE is \"%s\", which this CPU does not have; auto is used",
            tiara_env_text(TIARA_ENV_CELL_STORE));
        store = tiara_mem_store_default();
    }
    /* Below some hundred bytes a string store costs more to start than the lines it saves. */
    tiara_mem_store_set(store, 1024);
}

/* The text describes the whole job: a communicator of some of its ranks takes its part of it. */
static int read_layout(void)
{
    const char *text = tiara_env_text(TIARA_ENV_LAYOUT);
    struct tiara_layout layout = {0};
    int rank, size, node = -1;
    char why[256];

    if (!*text)
        return -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (tiara_layout_parse(&layout, text, size, why, sizeof(why)) == TIARA_OK)
        node = layout.node_of[rank];
    else if (rank == 0)
        tiara_error("TIARA_LAYOUT: %s; it is not used", why);
    tiara_layout_fini(&layout);
    return node;
}

static void read_config(void)
{
    int world_rank;

    if (PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank) != MPI_SUCCESS)
        world_rank = -1;
    /* One rank speaks of wrong variables: they are alike everywhere, or else rank 0's are used. */
    tiara_log_setup(world_rank == 0 ? TIARA_LOG_WARN : (enum tiara_log_level) - 1, world_rank);
    tiara_env_read(NULL, false);
    if (strcmp(tiara_env_text(TIARA_ENV_ALGO), "mpi") == 0)
        config.algo = -2;
    else
        config.algo = find_row(TIARA_ENV_ALGO, algo_name);
    config.inter = find_row(TIARA_ENV_INTER, flat_algo_name);
    config.net = find_row(TIARA_ENV_NET, net_name);
    config.leaders = (int32_t)tiara_env_value(TIARA_ENV_LEADERS);
    config.slots = (int32_t)tiara_env_value(TIARA_ENV_SLOTS);
    config.spin = (int32_t)tiara_env_value(TIARA_ENV_SPIN);
    config.reproducible = (int32_t)tiara_env_value(TIARA_ENV_REPRODUCIBLE);
    config.shm = (int32_t)tiara_env_value(TIARA_ENV_SHM);
    config.cma = (int32_t)tiara_env_value(TIARA_ENV_CMA);
    config.cuda_map = (int32_t)tiara_env_value(TIARA_ENV_CUDA_MAP);
    config.progress = (int32_t)tiara_env_value(TIARA_ENV_PROGRESS);
    config.cuda_cell = tiara_env_value(TIARA_ENV_CUDA_CELL);
    config.chunk = tiara_env_value(TIARA_ENV_CHUNK);
    config.one_shot = tiara_env_value(TIARA_ENV_ONE_SHOT);
    config.shm_budget = tiara_env_value(TIARA_ENV_SHM_BUDGET);
    config.warn_us = tiara_env_value(TIARA_ENV_WARN);
    config.timeout_us = tiara_env_value(TIARA_ENV_TIMEOUT);
    layout_node = read_layout();
    /* What cannot be written has been reported; the trace is off then. */
    if (*tiara_env_text(TIARA_ENV_TRACE))
        (void)!tiara_trace_open(tiara_env_text(TIARA_ENV_TRACE), world_rank, &trace);
    set_cell_store();
    tiara_log_setup((enum tiara_log_level)tiara_env_value(TIARA_ENV_LOG), world_rank);
}

int tiara_config_read(struct tiara_config *config_out)
{
    pthread_once(&config_once, read_config);
    *config_out = config;
    return layout_node;
}

struct tiara_trace *tiara_config_trace(void)
{
    return trace;
}

void tiara_config_release(void)
{
    tiara_trace_close(trace);
    trace = NULL;
}
