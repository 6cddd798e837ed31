/*
 * What follows from the facts of all ranks: the layout, and how crowded a machine is.
 */
#include "topo/topo.h"
#include "base/alloc.h"
#include <stdio.h>

void tiara_topo_cpus_add(uint64_t cpus[TIARA_TOPO_CPU_WORDS], const struct tiara_topo_facts *facts)
{
    for (int i = 0; i < TIARA_TOPO_CPU_WORDS; i++)
        cpus[i] |= facts->cpus[i];
}

int tiara_topo_cpus_count(const uint64_t cpus[TIARA_TOPO_CPU_WORDS])
{
    int count = 0;

    for (int i = 0; i < TIARA_TOPO_CPU_WORDS; i++)
        count += __builtin_popcountll(cpus[i]);
    return count;
}

enum tiara_err tiara_topo_layout(struct tiara_layout *layout_out,
    const struct tiara_topo_facts *facts, int nranks, const char *text, char *why, size_t why_size)
{
    uint64_t *colour;
    enum tiara_err err;

    if (*text != '\0')
        return tiara_layout_parse(layout_out, text, nranks, why, why_size);

    snprintf(why, why_size, "%s", "");
    *layout_out = (struct tiara_layout){0};
    colour = tiara_alloc((size_t)nranks, sizeof(*colour));
    if (colour == NULL)
        return TIARA_ERR_NOMEM;
    for (int rank = 0; rank < nranks; rank++)
        colour[rank] = facts[rank].node;
    err = tiara_layout_init(layout_out, nranks, colour);
    tiara_free(colour);
    return err;
}

void tiara_topo_share(
    const struct tiara_topo_facts *facts, int nranks, int rank, int *ranks_out, int *cores_out)
{
    uint64_t cpus[TIARA_TOPO_CPU_WORDS] = {0};
    int ranks = 0, cores = 1, job_ranks = 0;

    for (int peer = 0; peer < nranks; peer++) {
        if (facts[peer].machine != facts[rank].machine)
            continue;
        ranks++;
        tiara_topo_cpus_add(cpus, &facts[peer]);
        /* the set cannot name all cores of a very large machine; each rank's own count is right */
        if (facts[peer].cores > cores)
            cores = facts[peer].cores;
        if (facts[peer].job_ranks > job_ranks)
            job_ranks = facts[peer].job_ranks;
    }
    if (tiara_topo_cpus_count(cpus) > cores)
        cores = tiara_topo_cpus_count(cpus);
    *ranks_out = job_ranks > ranks ? job_ranks : ranks;
    *cores_out = cores;
}
