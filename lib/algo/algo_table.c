/*
 * The table of algorithms: the only list of them.
 */
#include "algo/algo.h"
#include <string.h>

const struct tiara_algo *const tiara_algo_table[] = {
    &tiara_algo_reduce_bcast,
    &tiara_algo_ring,
    &tiara_algo_tree,
    &tiara_algo_double_tree,
    &tiara_algo_recdbl,
    &tiara_algo_rabenseifner,
    &tiara_algo_chain,
    &tiara_algo_direct,
    &tiara_algo_node_ring,
    &tiara_algo_hier,
    &tiara_algo_hier_chain,
    NULL,
};

const struct tiara_algo *tiara_algo_find(const char *name)
{
    for (int i = 0; tiara_algo_table[i] != NULL; i++) {
        if (strcmp(tiara_algo_table[i]->name, name) == 0)
            return tiara_algo_table[i];
    }
    return NULL;
}

bool tiara_algo_opts_same(
    const struct tiara_algo *algo, const struct tiara_algo_opts *a, const struct tiara_algo_opts *b)
{
    unsigned differ = (a->leaders != b->leaders ? TIARA_ALGO_OPT_LEADERS : 0) |
                      (a->inter != b->inter ? TIARA_ALGO_OPT_INTER : 0) |
                      (a->one_shot != b->one_shot ? TIARA_ALGO_OPT_ONE_SHOT : 0) |
                      (a->single_copy != b->single_copy ? TIARA_ALGO_OPT_SINGLE_COPY : 0) |
                      (a->node_ring != b->node_ring ? TIARA_ALGO_OPT_NODE_RING : 0) |
                      (a->order != b->order ? TIARA_ALGO_OPT_ORDER : 0);

    return a->coll == b->coll && !(differ & algo->reads);
}
