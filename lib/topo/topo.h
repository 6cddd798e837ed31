/*
 * Topology: who is near whom.
 *
 * Each rank finds out facts about itself, without MPI; comm exchanges them by an all-gather, so
 * that every rank holds the same array. What follows from it is computed by pure functions of the
 * array. That keeps the ranks in agreement: no layout comes from what only one rank knows.
 */
#ifndef TIARA_TOPO_TOPO_H
#define TIARA_TOPO_TOPO_H

#include "base/err.h"
#include "base/layout.h"
#include <stddef.h>
#include <stdint.h>

#define TIARA_TOPO_CPUS 1024
#define TIARA_TOPO_CPU_WORDS (TIARA_TOPO_CPUS / 64)
#define TIARA_TOPO_HOST 64

/*
 * What one rank knows about itself. Plain bytes without padding, to be sent as they are between
 * ranks of one architecture. A core is what the kernel schedules on: a hardware thread.
 */
struct tiara_topo_facts {
    uint64_t machine; /* equal for ranks that run under one kernel and may share cores */
    uint64_t node; /* equal for ranks with the same machine and host name */
    uint64_t process; /* no other process has the same: tiara_cookie_process */
    /* the cores that this rank may run on: core c is bit c % 64 of word c / 64 */
    uint64_t cpus[TIARA_TOPO_CPU_WORDS];
    int32_t cores; /* how many cores it may run on, also beyond those that cpus can name */
    int32_t numa; /* the NUMA node on which all of cpus lie; -1: several, or unknown */
    /* ranks of the job on this machine, if more than cores for all of them; 0: not, or unknown */
    int32_t job_ranks, unused;
    char host[TIARA_TOPO_HOST]; /* host name, cut when longer, for people */
};

/*
 * tiara_topo_local() - the facts about the calling process
 * Never fails: what the system does not tell gets the next best answer, or is marked unknown.
 * Context: the thread whose binding counts. Reads a few small files below /proc and /sys.
 */
void tiara_topo_local(struct tiara_topo_facts *facts_out);

/*
 * tiara_topo_layout() - the layout that all ranks use
 * @facts: [nranks], borrowed
 * @text: TIARA_LAYOUT; "" takes the nodes of @facts
 * Errors: TIARA_ERR_ARG (@text is not acceptable; @why as in tiara_layout_parse), TIARA_ERR_NOMEM
 */
TIARA_MUST_USE enum tiara_err tiara_topo_layout(struct tiara_layout *layout_out,
    const struct tiara_topo_facts *facts, int nranks, const char *text, char *why, size_t why_size);

/*
 * tiara_topo_share() - how crowded @rank's machine is
 * @ranks_out: ranks of @facts on the same machine; or those of the job, if these are too many
 * @cores_out: cores that at least one of them may run on, at least 1
 * Counts by machine and not by node, because virtual nodes and containers share their host's cores.
 */
void tiara_topo_share(
    const struct tiara_topo_facts *facts, int nranks, int rank, int *ranks_out, int *cores_out);

/*
 * tiara_topo_draw() - a small drawing of nodes, ranks and the network, for people
 * @facts: [layout->nranks]; NULL draws without host names, cores and NUMA nodes
 * Many nodes, or many ranks on a node, are cut in the middle. Returns what snprintf would.
 */
size_t tiara_topo_draw(const struct tiara_layout *layout, const struct tiara_topo_facts *facts,
    char *text, size_t size);

/*
 * tiara_topo_hardware() - packages, cores, caches and NUMA nodes of this machine, for people
 * Slow, several milliseconds and more on large machines: for reports only. Says so when Tiara was
 * built without hwloc. Returns what snprintf would.
 */
size_t tiara_topo_hardware(char *text, size_t size);

/* ---- between the files of lib/topo, and for their unit test ---- */

/* Adds the cores of @facts to the set @cpus. */
void tiara_topo_cpus_add(uint64_t cpus[TIARA_TOPO_CPU_WORDS], const struct tiara_topo_facts *facts);
/* How many cores are in the set. */
int tiara_topo_cpus_count(const uint64_t cpus[TIARA_TOPO_CPU_WORDS]);
/*
 * The one NUMA node that has all of @cpus, or -1. @directory is /sys/devices/system/node, or
 * something of the same form: node<N>/cpulist with a text such as "0-3,8-11".
 */
int tiara_topo_numa_find(const char *directory, const uint64_t cpus[TIARA_TOPO_CPU_WORDS]);

#endif
