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
