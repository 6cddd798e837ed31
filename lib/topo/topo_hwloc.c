/*
 * The machine as hwloc sees it, for reports. Loading its topology is slow (topo_local.c says how
 * slow), so nothing that a communicator waits for may come here.
 */
#include "topo/topo.h"
#include "base/text.h"

#if HAVE_HWLOC

#include <hwloc.h>

static void types_add(struct tiara_text *out, hwloc_topology_t topology)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } types[] = {
        {HWLOC_OBJ_PACKAGE, "package"},
        {HWLOC_OBJ_CORE, "core"},
        {HWLOC_OBJ_PU, "hardware thread"},
        {HWLOC_OBJ_NUMANODE, "NUMA node"},
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        int n = hwloc_get_nbobjs_by_type(topology, types[i].type);

        tiara_text_add(out, "%s%d %s%s", i > 0 ? ", " : "", n, types[i].name, n == 1 ? "" : "s");
    }
    tiara_text_add(out, "\n");
}

static void numa_nodes_add(struct tiara_text *out, hwloc_topology_t topology)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        char cpus[256] = "";

        if (node->cpuset != NULL)
            hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), node->cpuset);
        tiara_text_add(out, "NUMA %u: %llu MiB, cores %s\n", node->os_index,
            (unsigned long long)(node->attr->numanode.local_memory >> 20),
            cpus[0] != '\0' ? cpus : "none");
    }
}

/* The first cache of each level stands for its level. */
static void caches_add(struct tiara_text *out, hwloc_topology_t topology)
{
    for (hwloc_obj_type_t type = HWLOC_OBJ_L1CACHE; type <= HWLOC_OBJ_L5CACHE; type++) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
        int sharers;

        if (cache == NULL)
            continue;
        sharers = hwloc_bitmap_weight(cache->cpuset);
        tiara_text_add(out, "L%u: %llu KiB for %d hardware thread%s\n", cache->attr->cache.depth,
            (unsigned long long)(cache->attr->cache.size >> 10), sharers, sharers == 1 ? "" : "s");
    }
}

size_t tiara_topo_hardware(char *text, size_t size)
{
    struct tiara_text out = {text, size, 0};
    hwloc_topology_t topology;

    if (hwloc_topology_init(&topology) != 0) {
        tiara_text_add(&out, "hwloc cannot start\n");
        return out.length;
    }
    if (hwloc_topology_load(topology) != 0) {
        tiara_text_add(&out, "hwloc cannot read this machine\n");
    } else {
        types_add(&out, topology);
        numa_nodes_add(&out, topology);
        caches_add(&out, topology);
    }
    hwloc_topology_destroy(topology);
    return out.length;
}

#else

#include <stdio.h>

size_t tiara_topo_hardware(char *text, size_t size)
{
    return (size_t)snprintf(text, size, "not known: Tiara was built without hwloc\n");
}

#endif
