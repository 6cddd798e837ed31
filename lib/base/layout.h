/*
 * Layout: which rank sits on which node. Pure data, equal on all ranks of a communicator.
 *
 * Nodes are numbered by their lowest rank, the ranks of a node are listed in ascending order; so a
 * layout has one normal form and two ranks that know the same placement hold the same arrays.
 */
#ifndef TIARA_BASE_LAYOUT_H
#define TIARA_BASE_LAYOUT_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tiara_layout {
    int nranks;
    int nnodes;
    int *node_of; /* [nranks] node of a rank */
    int *local_of; /* [nranks] index of a rank among its node's ranks */
    int *node_start; /* [nnodes + 1] where a node's ranks begin in node_ranks */
    int *node_ranks; /* [nranks] ranks, grouped by node, ascending inside a node */
    int min_local; /* ranks on the smallest node */
    int max_local; /* ranks on the largest node */
};

/* From one colour per rank (equal colour = same node, any values); the caller runs fini. */
TIARA_MUST_USE enum tiara_err tiara_layout_init(
    struct tiara_layout *layout_out, int nranks, const uint64_t *colour);
/*
 * From text, for @nranks ranks (0: as many as the text says):
 *   "2x4"        2 nodes of 4 ranks, block placement
 *   "2x4:rr"     the same, ranks dealt round-robin over the nodes
 *   "3+1", "1+2+3"  nodes of 3 and 1 ranks, block placement
 *   "0,0,1,1,0"  one node number per rank
 * TIARA_ERR_ARG with a sentence in why[@why_size] that quotes the text and says what is allowed;
 * NULL and 0: nobody asks.
 */
TIARA_MUST_USE enum tiara_err tiara_layout_parse(
    struct tiara_layout *layout_out, const char *text, int nranks, char *why, size_t why_size);
/* Accepts a zeroed object and one whose init failed. */
void tiara_layout_fini(struct tiara_layout *layout);

static inline int tiara_layout_local_size(const struct tiara_layout *l, int node)
{
    return l->node_start[node + 1] - l->node_start[node];
}
/* The rank with local index @i on @node. */
static inline int tiara_layout_rank(const struct tiara_layout *l, int node, int i)
{
    return l->node_ranks[l->node_start[node] + i];
}
/* True when every node's ranks are consecutive (block placement). */
bool tiara_layout_is_block(const struct tiara_layout *l);

#endif
