/*
 * A drawing of a layout, such as
 *
 *   network
 *    +-- node 0  n0 (2 cores, NUMA 0)  [0]* [1]
 *    +-- node 1  n1 (2 cores, NUMA 0)  [2]* [3]
 *   * first leader of its node: speaks on the network
 *
 * A first pass over what is drawn finds the width of the column of names. What is too much is left
 * out in the middle, because the first and the last of a row tell best how the rest continues.
 */
#include "topo/topo.h"
#include "base/text.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Of more than MANY items, the first MANY - 2 and the last one are drawn. */
#define MANY 16

struct drawing {
    const struct tiara_layout *layout;
    const struct tiara_topo_facts *facts; /* NULL: not known */
    struct tiara_text out;
    int label_width; /* of host name, cores and NUMA node */
};

/* True when item @i of @n is drawn. */
static bool is_drawn(int i, int n)
{
    return n <= MANY || i < MANY - 2 || i == n - 1;
}

/* The facts about the rank with local index @i on @node. */
static const struct tiara_topo_facts *facts_of(const struct drawing *d, int node, int i)
{
    return &d->facts[tiara_layout_rank(d->layout, node, i)];
}

/* True when the ranks of @node are known not to be all on one NUMA node. */
static bool numa_is_mixed(const struct drawing *d, int node)
{
    for (int i = 1; d->facts != NULL && i < tiara_layout_local_size(d->layout, node); i++)
        if (facts_of(d, node, i)->numa != facts_of(d, node, 0)->numa)
            return true;
    return false;
}

/* Writes "host (2 cores, NUMA 0)" and returns its length; "" without facts. */
static int node_label(const struct drawing *d, int node, char *label, size_t size)
{
    uint64_t cpus[TIARA_TOPO_CPU_WORDS] = {0};
    char numa[32] = "";
    int cores;

    label[0] = '\0';
    if (d->facts == NULL)
        return 0;
    for (int i = 0; i < tiara_layout_local_size(d->layout, node); i++)
        tiara_topo_cpus_add(cpus, facts_of(d, node, i));
    cores = tiara_topo_cpus_count(cpus);
    if (facts_of(d, node, 0)->numa >= 0 && !numa_is_mixed(d, node))
        snprintf(numa, sizeof(numa), ", NUMA %d", facts_of(d, node, 0)->numa);
    return snprintf(label, size, "%.*s (%d core%s%s)", TIARA_TOPO_HOST, facts_of(d, node, 0)->host,
        cores, cores == 1 ? "" : "s", numa);
}

/* The ranks of a node. Where they lie on different NUMA nodes, each change is marked. */
static void ranks_draw(struct drawing *d, int node)
{
    int n = tiara_layout_local_size(d->layout, node);
    bool mark = numa_is_mixed(d, node);
    int last_numa = INT_MIN;

    for (int i = 0; i < n; i++) {
        int rank = tiara_layout_rank(d->layout, node, i);

        if (!is_drawn(i, n)) {
            if (is_drawn(i - 1, n))
                tiara_text_add(&d->out, " ... %d more ...", n - MANY + 1);
            continue;
        }
        if (mark && d->facts[rank].numa != last_numa) {
            last_numa = d->facts[rank].numa;
            if (last_numa >= 0)
                tiara_text_add(&d->out, " NUMA %d:", last_numa);
            else
                tiara_text_add(&d->out, " NUMA ?:");
        }
        tiara_text_add(&d->out, " [%d]%s", rank, i == 0 && d->layout->nnodes > 1 ? "*" : "");
    }
    tiara_text_add(&d->out, "\n");
}

static void node_draw(struct drawing *d, int node)
{
    char label[TIARA_TOPO_HOST + 64];
    int length = node_label(d, node, label, sizeof(label));
    int number_width = snprintf(NULL, 0, "%d", d->layout->nnodes - 1); /* the widest one */

    tiara_text_add(
        &d->out, "%snode %-*d ", d->layout->nnodes > 1 ? " +-- " : "", number_width, node);
    if (length > 0)
        tiara_text_add(&d->out, " %s%*s ", label, d->label_width - length, "");
    ranks_draw(d, node);
}

size_t tiara_topo_draw(const struct tiara_layout *layout, const struct tiara_topo_facts *facts,
    char *text, size_t size)
{
    struct drawing d = {.layout = layout, .facts = facts, .out = {text, size, 0}};
    int nnodes = layout->nnodes;

    if (size > 0)
        text[0] = '\0';
    for (int node = 0; node < nnodes; node++) {
        char label[TIARA_TOPO_HOST + 64];
        int length = is_drawn(node, nnodes) ? node_label(&d, node, label, sizeof(label)) : 0;

        if (length > d.label_width)
            d.label_width = length;
    }
    if (nnodes > 1)
        tiara_text_add(&d.out, "network\n");
    for (int node = 0; node < nnodes; node++) {
        if (is_drawn(node, nnodes))
            node_draw(&d, node);
        else if (is_drawn(node - 1, nnodes))
            tiara_text_add(&d.out, " |   ... %d more nodes ...\n", nnodes - MANY + 1);
    }
    if (nnodes > 1)
        tiara_text_add(&d.out, "* first leader of its node: speaks on the network\n");
    return d.out.length;
}
