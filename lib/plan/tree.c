/*
 * Interned expression trees: a growing array and an open-addressed table of its indices.
 */
#include "plan/tree.h"
#include "base/alloc.h"
#include <string.h>

#define LEAVES_MAX ((int64_t)1 << 40)

static uint32_t hash_of(const struct tiara_tree *t)
{
    uint64_t h = (uint64_t)(uint32_t)t->left << 32 | (uint32_t)t->right;

    h = (h ^ (uint32_t)t->block) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

/* The slot where a tree equal to @t is, or the empty one where it belongs. */
static int *find_slot(const struct tiara_trees *trees, const struct tiara_tree *t)
{
    uint32_t mask = (uint32_t)trees->nslots - 1;
    uint32_t at = hash_of(t) & mask;

    while (trees->slots[at] != 0) {
        const struct tiara_tree *seen = &trees->trees[trees->slots[at]];

        if (seen->left == t->left && seen->right == t->right && seen->block == t->block)
            break;
        at = (at + 1) & mask;
    }
    return &trees->slots[at];
}

/* Room for one more tree in both tables. */
static bool grow(struct tiara_trees *trees)
{
    int cap = trees->cap > 0 ? 2 * trees->cap : 256;
    struct tiara_tree *moved;
    int *slots;

    if (trees->n + 1 < trees->cap)
        return true;
    moved = tiara_realloc(trees->trees, (size_t)cap, sizeof(*moved));
    if (moved == NULL)
        return false;
    trees->trees = moved;
    slots = tiara_alloc((size_t)cap * 2, sizeof(*slots));
    if (slots == NULL)
        return false;
    tiara_free(trees->slots);
    trees->slots = slots;
    trees->nslots = 2 * cap;
    trees->cap = cap;
    for (int i = 1; i <= trees->n; i++)
        *find_slot(trees, &trees->trees[i]) = i;
    return true;
}

static int intern(struct tiara_trees *trees, const struct tiara_tree *t)
{
    int *slot;

    if (!grow(trees))
        return 0;
    slot = find_slot(trees, t);
    if (*slot == 0) {
        *slot = ++trees->n;
        trees->trees[*slot] = *t;
    }
    return *slot;
}

void tiara_trees_fini(struct tiara_trees *trees)
{
    tiara_free(trees->trees);
    tiara_free(trees->slots);
    memset(trees, 0, sizeof(*trees));
}

int tiara_trees_leaf(struct tiara_trees *trees, int rank, int block)
{
    return intern(trees, &(struct tiara_tree){0, rank, block, rank, rank, 1, true});
}

int tiara_trees_join(struct tiara_trees *trees, int left, int right)
{
    const struct tiara_tree *l = &trees->trees[left], *r = &trees->trees[right];
    struct tiara_tree join = {.left = left, .right = right};

    join.block = l->block;
    join.lowest = l->lowest < r->lowest ? l->lowest : r->lowest;
    join.highest = l->highest > r->highest ? l->highest : r->highest;
    join.nleaves = l->nleaves + r->nleaves;
    if (join.nleaves > LEAVES_MAX)
        join.nleaves = LEAVES_MAX;
    join.ordered = l->ordered && r->ordered && l->highest < r->lowest;
    return intern(trees, &join);
}

bool tiara_trees_covers(const struct tiara_trees *trees, int tree, int nranks, int *scratch)
{
    int *seen = scratch, *stack = scratch + nranks, depth = 0;

    /* The count bounds the walk: shared subtrees would otherwise make it exponential. */
    if (trees->trees[tree].nleaves != nranks)
        return false;
    memset(seen, 0, (size_t)nranks * sizeof(*seen));
    stack[depth++] = tree;
    while (depth > 0) {
        const struct tiara_tree *t = &trees->trees[stack[--depth]];

        if (t->left != 0) {
            stack[depth++] = t->right;
            stack[depth++] = t->left;
        } else if (seen[t->right]) {
            return false;
        } else {
            seen[t->right] = true;
        }
    }
    return true;
}
