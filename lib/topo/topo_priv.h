/*
 * Between the files of lib/topo, and for their unit test.
 */
#ifndef TIARA_TOPO_TOPO_PRIV_H
#define TIARA_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

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
