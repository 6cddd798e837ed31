/*
 * The facts about this process, from the kernel.
 *
 * The kernel's own files are read instead of asking hwloc: loading an hwloc topology took 2 to 9 ms
 * on a virtual machine with 2 cores and grows with the machine, more than the whole set-up of a
 * communicator should cost; what is read here takes about 0.02 ms.
 *
 * A node is a kernel and a host name. Machines cannot be told apart by name alone (clones, two
 * "localhost"), and not by kernel alone: containers and virtual nodes on one machine have names of
 * their own and are meant to be different nodes.
 */
#include "topo/topo.h"
#include "base/cookie.h"
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(
    sizeof(struct tiara_topo_facts) == 3 * 8 + TIARA_TOPO_CPU_WORDS * 8 + 4 * 4 + TIARA_TOPO_HOST,
    "facts travel as bytes and must have no padding");

/* Eight times the kernel's usual set: the call fails when the set is smaller than the machine. */
#define AFFINITY_SETS 8

/* FNV-1a over the letters of @text, continuing from @hash. */
static uint64_t text_hash(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* The first line of a file without its end; false when it cannot be read or is empty. */
static bool line_read(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return false;
    if (fgets(line, (int)size, file) == NULL)
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

/* The kernel draws a new boot id at each start. Without it, the host's id and name must do. */
static uint64_t machine_find(const char *host)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char id[64];

    if (!line_read("/proc/sys/kernel/random/boot_id", id, sizeof(id))) {
        snprintf(id, sizeof(id), "%lx ", (unsigned long)gethostid());
        hash = text_hash(hash, host);
    }
    return text_hash(hash, id);
}

/* How many cores @process (0: this one) may use, and which; 0: no answer, and none. */
static int affinity_read(pid_t process, cpu_set_t sets[AFFINITY_SETS])
{
    size_t size = AFFINITY_SETS * sizeof(*sets);

    memset(sets, 0, size);
    return sched_getaffinity(process, size, sets) == 0 ? CPU_COUNT_S(size, sets) : 0;
}

/* "3,2(x4),1": the tasks of each node. 0: not that. */
static int slurm_tasks(const char *list, int node)
{
    while (*list >= '0' && *list <= '9') {
        char *end;
        int tasks = (int)strtol(list, &end, 10), times = 1;

        if (end[0] == '(' && end[1] == 'x')
            times = (int)strtol(end + 2, &end, 10);
        if (node < times)
            return tasks;
        node -= times;
        list = end + strcspn(end, ",");
        list += *list == ',';
    }
    return 0;
}

/* How many ranks of the job are on this machine, as its starter says; 0: it does not. */
static int job_ranks_find(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"};
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE"), *node = getenv("SLURM_NODEID");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return tasks && node ? slurm_tasks(tasks, atoi(node)) : 0;
}

/* Sets cpus, cores and job_ranks. */
static void cores_find(struct tiara_topo_facts *facts)
{
    cpu_set_t sets[AFFINITY_SETS];

    facts->cores = affinity_read(0, sets);
    for (int cpu = 0; cpu < TIARA_TOPO_CPUS; cpu++)
        if (CPU_ISSET_S((size_t)cpu, sizeof(sets), sets))
            facts->cpus[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    if (facts->cores == 0)
        facts->cores = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    facts->job_ranks = job_ranks_find();
    /* the starter, whose child this process is, may use all cores that it gives to ranks */
    if (facts->job_ranks <= facts->cores || facts->job_ranks <= affinity_read(getppid(), sets))
        facts->job_ranks = 0;
}

/* Takes the cores of a list such as "0-3,8-11" out of @cpus. */
static void cpulist_remove(const char *list, uint64_t cpus[TIARA_TOPO_CPU_WORDS])
{
    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < TIARA_TOPO_CPUS; cpu++)
            cpus[cpu / 64] &= ~(UINT64_C(1) << (cpu % 64));
        list = end + (*end == ',');
    }
}

int tiara_topo_numa_find(const char *directory, const uint64_t cpus[TIARA_TOPO_CPU_WORDS])
{
    DIR *dir;
    struct dirent *entry;
    int found = -1;

    if (tiara_topo_cpus_count(cpus) == 0)
        return -1;
    dir = opendir(directory);
    if (dir == NULL)
        return -1;
    while (found < 0 && (entry = readdir(dir)) != NULL) {
        uint64_t outside[TIARA_TOPO_CPU_WORDS];
        char path[512], list[4096];
        int numa;

        if (sscanf(entry->d_name, "node%d", &numa) != 1)
            continue;
        snprintf(path, sizeof(path), "%s/node%d/cpulist", directory, numa);
        if (!line_read(path, list, sizeof(list)))
            continue;
        memcpy(outside, cpus, sizeof(outside));
        cpulist_remove(list, outside);
        if (tiara_topo_cpus_count(outside) == 0)
            found = numa;
    }
    closedir(dir);
    return found;
}

void tiara_topo_local(struct tiara_topo_facts *facts_out)
{
    char host[256] = "";
    char node[sizeof(host) + 1];

    memset(facts_out, 0, sizeof(*facts_out));
    /* a name that does not fit may come without its end */
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    snprintf(facts_out->host, sizeof(facts_out->host), "%.*s", TIARA_TOPO_HOST - 1, host);
    facts_out->machine = machine_find(host);
    snprintf(node, sizeof(node), "/%s", host);
    facts_out->node = text_hash(facts_out->machine, node);
    facts_out->process = tiara_cookie_process();
    cores_find(facts_out);
    facts_out->numa = tiara_topo_numa_find("/sys/devices/system/node", facts_out->cpus);
}
