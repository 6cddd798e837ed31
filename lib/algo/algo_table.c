/*
 * The table of algorithms, which is the only list of them, and what is the same for all.
 */
#include "algo/algo.h"
#include "base/log.h"
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

enum tiara_err tiara_algo_generate(const struct tiara_algo *algo, const struct tiara_layout *layout,
    int rank, const struct tiara_algo_opts *opts, struct tiara_plan *plan_out)
{
    int nsteps = 1;

    tiara_plan_init(plan_out, opts->coll, rank, layout->nranks, 1);
    if (!(algo->colls & (1u << opts->coll))) {
        tiara_debug("algorithm %s has no plan for collective %d", algo->name, (int)opts->coll);
        return TIARA_ERR_UNSUPPORTED;
    }
    if (algo->flags & TIARA_ALGO_NODE && layout->nnodes != 1) {
        tiara_debug("algorithm %s needs one node, not %d", algo->name, layout->nnodes);
        return TIARA_ERR_UNSUPPORTED;
    }
    if (layout->nranks > 1)
        nsteps = algo->generate(layout, opts, plan_out);
    else
        tiara_plan_copy(plan_out, 1, tiara_slice(rank, TIARA_BUF_OUT, 0, 1),
            tiara_slice(rank, TIARA_BUF_IN, 0, 1));
    return tiara_plan_finish(plan_out, nsteps);
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
