/*
 * Private to lib/plan: interned expression trees, the checker's idea of a value.
 *
 * A tree is a leaf (rank's contribution to a block) or a join of two trees in order. Equal trees
 * have equal numbers, so that "these ranks hold the same bits" is a comparison of two integers.
 * Number 0 is no tree: memory never written. Each tree carries what the proofs ask for, computed
 * when it is made.
 */
#ifndef TIARA_PLAN_TREE_H
#define TIARA_PLAN_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct tiara_tree {
    int left, right; /* trees; a leaf has left 0 and its rank in right */
    int block; /* of all leaves */
    int lowest, highest;
    int64_t nleaves; /* with multiplicity; stops growing at a bound no plan reaches */
    bool ordered; /* leaves, from left to right, ascend strictly by rank */
};

struct tiara_trees {
    struct tiara_tree *trees; /* [cap], 1 .. n in use */
    int n, cap;
    int *slots; /* [nslots] hash table of tree numbers, 0 empty, at most half full */
    int nslots;
};

/* @trees is zeroed by the caller before first use; fini frees what it holds. */
void tiara_trees_fini(struct tiara_trees *trees);
/* The number of the tree, or 0 when memory ran out. */
int tiara_trees_leaf(struct tiara_trees *trees, int rank, int block);
/* @left and @right are trees of one block. */
int tiara_trees_join(struct tiara_trees *trees, int left, int right);

/*
 * True when @tree's leaves are each rank 0 .. @nranks - 1 exactly once. @scratch[3 * nranks].
 */
bool tiara_trees_covers(const struct tiara_trees *trees, int tree, int nranks, int *scratch);

#endif
