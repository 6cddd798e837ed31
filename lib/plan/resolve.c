/*
 * Which blocks of the vector an op works on.
 *
 * TMP is storage without a meaning of its own; what it holds follows from the data flow. One walk
 * forward carries what each TMP block holds from the op that wrote it to those that read it; a
 * receive into TMP is resolved backwards, from the first op that reads it.
 */
#include "plan/plan.h"
#include "base/alloc.h"
#include "base/log.h"
#include "plan/slice.h"

/* The block that @slice's first block holds, -1 unknown. */
static int slice_block(struct tiara_slice slice, const int *tmp_holds)
{
    if (slice.buf != TIARA_BUF_TMP)
        return slice.first;
    return tmp_holds[slice.first];
}

static bool writes_tmp(const struct tiara_op *op)
{
    return tiara_op_writes(op) && op->dst.buf == TIARA_BUF_TMP;
}

/* The block that @op's target says it works on, -1 none. */
static int dst_block(const struct tiara_op *op)
{
    return tiara_op_writes(op) && op->dst.buf != TIARA_BUF_TMP ? op->dst.first : -1;
}

/* What @op itself says: -1 when nothing, -2 when it contradicts itself. */
static int op_own_block(
    const struct tiara_plan *plan, const struct tiara_op *op, const int *tmp_holds)
{
    int block = dst_block(op);

    for (int i = 0; i < op->nsrc; i++) {
        int from = slice_block(plan->srcs[op->src + i], tmp_holds);
        if (from >= 0 && block >= 0 && from != block)
            return -2;
        if (from >= 0)
            block = from;
    }
    return block;
}

/* The block that a later op gives to TMP block @tmp, -1 when none does before it is overwritten. */
static int block_from_reader(const struct tiara_plan *plan, int after, int tmp)
{
    for (int i = after + 1; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];
        int known = dst_block(op), offset = -1;

        for (int k = 0; k < op->nsrc; k++) {
            struct tiara_slice s = plan->srcs[op->src + k];
            if (s.buf != TIARA_BUF_TMP)
                known = s.first;
            else if (tmp >= s.first && tmp < s.first + s.count)
                offset = tmp - s.first;
        }
        if (offset >= 0 && known >= 0)
            return known + offset;
        if (writes_tmp(op) && tmp >= op->dst.first && tmp < op->dst.first + op->dst.count)
            return -1;
    }
    return -1;
}

enum tiara_err tiara_plan_resolve(struct tiara_plan *plan)
{
    enum tiara_err err = TIARA_OK;
    int *holds = tiara_alloc((size_t)plan->tmp_blocks + 1, sizeof(*holds));

    if (!holds)
        return TIARA_ERR_NOMEM;
    for (int i = 0; i < plan->tmp_blocks; i++)
        holds[i] = -1;
    for (int i = 0; i < plan->nops; i++) {
        struct tiara_op *op = &plan->ops[i];

        op->block = op_own_block(plan, op, holds);
        if (op->block == -1 && op->kind == TIARA_OP_RECV)
            op->block = block_from_reader(plan, i, op->dst.first);
        if (op->block < 0) {
            tiara_error("plan of rank %d: the blocks of op %d do not follow from its slices",
                plan->rank, i);
            err = TIARA_ERR_PLAN;
            break;
        }
        for (int k = 0; writes_tmp(op) && k < op->dst.count; k++)
            holds[op->dst.first + k] = op->block + k;
    }
    tiara_free(holds);
    return err;
}
