/*
 * The symbolic run: all ranks advance together, step by step.
 *
 * Within a step ranks depend on one another only through sends and receives, because a remote read
 * of what its owner writes in the same step is refused. So any order of ranks gives the same
 * values, and a pass over all ranks in which nobody moves, before the step is done, is a deadlock.
 * Sends are taken to be synchronous: complete when the receive has been posted. Awaits are taken
 * as the executor takes them: everything up to the last async that must be complete.
 */
#include "plan/check_priv.h"
#include "plan/slice.h"

/* Remote reads of these blocks in this step are races. */
static void mark_writes(struct tiara_check *c, int rank, int step)
{
    const struct tiara_plan *plan = c->plans[rank];

    for (int i = c->cursor[rank]; i < plan->nops && plan->ops[i].step == step; i++) {
        const struct tiara_slice *dst = &plan->ops[i].dst;

        for (int b = 0; tiara_op_writes(&plan->ops[i]) && b < dst->count; b++)
            c->written_step[tiara_check_at(c, rank, dst->buf, dst->first + b)] = step;
    }
}

/* How many of @rank's asyncs must be complete before its op @op: 0, or one more than the last
 * conflicting one. */
static int needed_asyncs(const struct tiara_check *c, int rank, int op)
{
    const struct tiara_plan *plan = c->plans[rank];

    for (int k = c->nissued[rank] - 1; k >= c->first_async[rank]; k--) {
        int other = c->match.op[c->match.first[rank] + k];

        if (tiara_op_conflicts(plan, &plan->ops[op], &plan->ops[other], c->in_place))
            return k + 1;
    }
    return 0;
}

static bool may_start(const struct tiara_check *c, int rank)
{
    int needed = needed_asyncs(c, rank, c->cursor[rank]);

    for (int k = c->first_async[rank]; k < needed; k++) {
        if (!tiara_check_is_complete(c, rank, k))
            return false;
    }
    return true;
}

/* The tree that op @op of @rank reads as block @b of @src. */
static enum tiara_err read_block(
    struct tiara_check *c, int rank, int op, const struct tiara_slice *src, int b, int *tree_out)
{
    size_t at = tiara_check_at(c, src->owner, src->buf, src->first + b);

    if (src->owner != rank && c->written_step[at] == c->plans[rank]->ops[op].step)
        return tiara_check_fail(c, rank, op,
            "reads %s[%d] of rank %d, which writes it in the same step", tiara_buf_name(src->buf),
            src->first + b, src->owner);
    if (c->tree[at] == 0)
        return tiara_check_fail(c, rank, op, "reads %s[%d] of rank %d, which was never written",
            tiara_buf_name(src->buf), src->first + b, src->owner);
    *tree_out = c->tree[at];
    return TIARA_OK;
}

/* @tree goes to block @b of the target of op @op of @rank. Outside TMP a block's place says which
 * one it is. */
static enum tiara_err write_block(struct tiara_check *c, int rank, int op, int b, int tree)
{
    const struct tiara_slice *dst = &c->plans[rank]->ops[op].dst;
    int block = c->trees.trees[tree].block;

    if (dst->buf != TIARA_BUF_TMP && block != dst->first + b)
        return tiara_check_fail(
            c, rank, op, "puts block %d where block %d belongs", block, dst->first + b);
    c->tree[tiara_check_at(c, rank, dst->buf, dst->first + b)] = tree;
    return TIARA_OK;
}

/* COPY or REDUCE of block @b. */
static enum tiara_err compute_block(struct tiara_check *c, int rank, int op, int b)
{
    const struct tiara_plan *plan = c->plans[rank];
    const struct tiara_op *o = &plan->ops[op];
    int acc = 0, next = 0;

    for (int i = 0; i < o->nsrc; i++) {
        enum tiara_err err = read_block(c, rank, op, &plan->srcs[o->src + i], b, &next);

        if (err != TIARA_OK)
            return err;
        if (acc != 0 && c->trees.trees[acc].block != c->trees.trees[next].block)
            return tiara_check_fail(c, rank, op, "adds block %d to block %d",
                c->trees.trees[next].block, c->trees.trees[acc].block);
        acc = acc == 0 ? next : tiara_trees_join(&c->trees, acc, next);
        if (acc == 0)
            return TIARA_ERR_NOMEM;
    }
    return write_block(c, rank, op, b, acc);
}

static enum tiara_err deliver(struct tiara_check *c, int send, int recv)
{
    int from = c->match.rank[send], to = c->match.rank[recv];
    const struct tiara_op *s = &c->plans[from]->ops[c->match.op[send]];
    const struct tiara_slice *src = &c->plans[from]->srcs[s->src];

    for (int b = 0; b < src->count; b++) {
        int tree = 0;
        enum tiara_err err = read_block(c, from, c->match.op[send], src, b, &tree);

        if (err == TIARA_OK)
            err = write_block(c, to, c->match.op[recv], b, tree);
        if (err != TIARA_OK)
            return err;
    }
    return TIARA_OK;
}

/* Runs the op at @rank's cursor, which may start, and moves the cursor. */
static enum tiara_err run_op(struct tiara_check *c, int rank)
{
    int op = c->cursor[rank]++;
    const struct tiara_op *o = &c->plans[rank]->ops[op];
    enum tiara_err err = TIARA_OK;
    int async, partner;

    if (!tiara_op_is_async(o)) {
        for (int b = 0; err == TIARA_OK && b < o->dst.count; b++)
            err = compute_block(c, rank, op, b);
        return err;
    }
    async = c->match.first[rank] + c->nissued[rank]++;
    partner = c->match.partner[async];
    if (!tiara_check_is_complete(c, rank, async - c->match.first[rank]))
        return TIARA_OK;
    if (o->kind == TIARA_OP_SEND)
        return deliver(c, async, partner);
    return deliver(c, partner, async);
}

static bool is_in_step(const struct tiara_check *c, int rank, int step)
{
    const struct tiara_plan *plan = c->plans[rank];

    return c->cursor[rank] < plan->nops && plan->ops[c->cursor[rank]].step == step;
}

/* All ranks to the end of @step. */
static enum tiara_err run_step(struct tiara_check *c, int step)
{
    bool moved = true;

    for (int r = 0; r < c->nranks; r++) {
        mark_writes(c, r, step);
        c->first_async[r] = c->nissued[r];
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < c->nranks; r++) {
            while (is_in_step(c, r, step) && may_start(c, r)) {
                enum tiara_err err = run_op(c, r);

                if (err != TIARA_OK)
                    return err;
                moved = true;
            }
        }
    }
    for (int r = 0; r < c->nranks; r++) {
        if (is_in_step(c, r, step))
            return tiara_check_fail(c, r, c->cursor[r],
                "cannot start: deadlock among the sends and receives of its step");
    }
    return TIARA_OK;
}

static enum tiara_err place_inputs(struct tiara_check *c)
{
    bool own_only = c->plans[0]->coll == TIARA_COLL_ALLGATHER;

    for (int r = 0; r < c->nranks; r++) {
        for (int b = own_only ? r : 0; b < (own_only ? r + 1 : c->nblocks); b++) {
            int leaf = tiara_trees_leaf(&c->trees, r, b);

            if (leaf == 0)
                return TIARA_ERR_NOMEM;
            c->tree[tiara_check_at(c, r, TIARA_BUF_IN, b)] = leaf;
        }
    }
    return TIARA_OK;
}

enum tiara_err tiara_check_run(struct tiara_check *c)
{
    enum tiara_err err = place_inputs(c);

    for (int step = 1; err == TIARA_OK && step <= c->plans[0]->nsteps; step++)
        err = run_step(c, step);
    return err;
}
