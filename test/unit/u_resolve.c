/*
 * Which blocks an op works on: compared with a data flow of all ranks together.
 *
 * The library looks at one rank's plan and reasons forwards and backwards. Here all ranks' plans
 * run, step by step, on memory that holds nothing but block numbers: what an op then finds in its
 * sources is the truth.
 */
#include "algo/algo.h"
#include "base/alloc.h"
#include "test/plan/plan_set.h"
#include "test/harness/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING (-1)
#define ON_ITS_WAY (-2) /* a receive was posted here */
#define MAX_BLOCKS 512

/* A message on its way. */
struct letter {
    int count;
    int blocks[MAX_BLOCKS];
};

/* What every block of every rank's memory holds. */
struct flow {
    const struct plan_set *set;
    int holds[PLAN_SET_MAX][TIARA_NBUF][MAX_BLOCKS];
    int pc[PLAN_SET_MAX];
    int delivered[PLAN_SET_MAX]; /* ops before this one wait for no message */
    struct letter mail[PLAN_SET_MAX][PLAN_SET_MAX]; /* [to][from]; count 0: none */
    char name[160];
};

static int *at(struct flow *f, struct tiara_slice s)
{
    return &f->holds[s.owner][s.buf][s.first];
}

static void flow_init(struct flow *f, const struct plan_set *set)
{
    for (size_t i = 0; i < sizeof(f->holds) / sizeof(int); i++)
        (&f->holds[0][0][0])[i] = NOTHING;
    memset(f->pc, 0, sizeof(f->pc));
    memset(f->delivered, 0, sizeof(f->delivered));
    memset(f->mail, 0, sizeof(f->mail));
    f->set = set;
    for (int r = 0; r < set->layout.nranks; r++) {
        const struct tiara_plan *p = &set->plans[r];

        ck_assert_int_le(p->nblocks, MAX_BLOCKS);
        ck_assert_int_le(p->tmp_blocks, MAX_BLOCKS);
        for (int b = 0; b < p->nblocks; b++)
            if (p->coll != TIARA_COLL_ALLGATHER || b == r)
                f->holds[r][TIARA_BUF_IN][b] = b;
    }
}

/* Consecutive blocks from the one that the library named. */
static void assert_blocks(
    const struct flow *f, const struct tiara_op *op, int rank, const int *blocks, int count)
{
    for (int k = 0; k < count; k++)
        ck_assert_msg(blocks[k] == op->block + k,
            "%s: rank %d, op %d: block %d of the vector is taken for %d", f->name, rank,
            (int)(op - f->set->plans[rank].ops), blocks[k], op->block + k);
}

static bool is_on_its_way(struct flow *f, struct tiara_slice s)
{
    for (int k = 0; k < s.count; k++)
        if (at(f, s)[k] == ON_ITS_WAY)
            return true;
    return false;
}

/* Outside TMP a block lies at its own place. */
static void assert_target(const struct flow *f, const struct tiara_op *op, int rank)
{
    ck_assert_msg(op->dst.buf == TIARA_BUF_TMP || op->dst.first == op->block,
        "%s: rank %d, op %d: block %d lies at %d", f->name, rank,
        (int)(op - f->set->plans[rank].ops), op->block, op->dst.first);
}

/* False when the op must wait for a message of an earlier one. */
static bool flow_op(struct flow *f, int rank, const struct tiara_op *op)
{
    const struct tiara_slice *src = f->set->plans[rank].srcs + op->src;
    struct letter *mail = op->kind == TIARA_OP_SEND ? &f->mail[op->peer][rank] : NULL;

    for (int i = 0; i < op->nsrc; i++)
        if (is_on_its_way(f, src[i]))
            return false;
    if (mail) {
        if (mail->count != 0)
            return false;
        mail->count = src->count;
        memcpy(mail->blocks, at(f, *src), (size_t)src->count * sizeof(int));
        assert_blocks(f, op, rank, mail->blocks, src->count);
        return true;
    }
    if (is_on_its_way(f, op->dst))
        return false;
    assert_target(f, op, rank);
    for (int i = 0; i < op->nsrc; i++)
        assert_blocks(f, op, rank, at(f, src[i]), op->dst.count);
    if (op->kind != TIARA_OP_RECV)
        memmove(at(f, op->dst), at(f, src[0]), (size_t)op->dst.count * sizeof(int));
    for (int k = 0; op->kind == TIARA_OP_RECV && k < op->dst.count; k++)
        at(f, op->dst)[k] = ON_ITS_WAY;
    return true;
}

/* Fills the oldest posted receive of @rank. True when there was a message for it. */
static bool flow_deliver(struct flow *f, int rank)
{
    const struct tiara_plan *p = &f->set->plans[rank];
    const struct tiara_op *op = &p->ops[f->delivered[rank]];
    struct letter *mail;

    if (f->delivered[rank] == f->pc[rank])
        return false;
    if (op->kind == TIARA_OP_RECV) {
        mail = &f->mail[rank][op->peer];
        if (mail->count == 0)
            return false;
        ck_assert_int_eq(mail->count, op->dst.count);
        memcpy(at(f, op->dst), mail->blocks, (size_t)mail->count * sizeof(int));
        assert_blocks(f, op, rank, mail->blocks, mail->count);
        mail->count = 0;
    }
    f->delivered[rank]++;
    return true;
}

/* One rank in one step, as far as it goes. True when it moved. */
static bool flow_rank(struct flow *f, int rank, int step)
{
    const struct tiara_plan *p = &f->set->plans[rank];
    bool moved = false;

    while (f->pc[rank] < p->nops && p->ops[f->pc[rank]].step == step &&
           flow_op(f, rank, &p->ops[f->pc[rank]])) {
        f->pc[rank]++;
        moved = true;
    }
    while (flow_deliver(f, rank))
        moved = true;
    return moved;
}

static void flow_run(struct flow *f)
{
    int nranks = f->set->layout.nranks;

    for (int step = 1; step <= f->set->plans[0].nsteps; step++) {
        bool moved = true;

        while (moved) {
            moved = false;
            for (int r = 0; r < nranks; r++)
                moved |= flow_rank(f, r, step);
        }
    }
    for (int r = 0; r < nranks; r++)
        ck_assert_msg(f->delivered[r] == f->set->plans[r].nops, "%s: rank %d is stuck", f->name, r);
}

static void check_case(
    const struct tiara_algo *algo, const char *layout, const struct tiara_algo_opts *opts)
{
    struct flow *f = calloc(1, sizeof(*f));
    struct plan_set set;

    plan_set_init(&set, layout);
    snprintf(f->name, sizeof(f->name), "%s, collective %d, %s, leaders %d, inter %s, %d %d",
        algo->name, opts->coll, layout, opts->leaders, opts->inter ? opts->inter->name : "-",
        opts->one_shot, opts->single_copy);
    for (int r = 0; r < set.layout.nranks; r++) {
        ck_assert_int_eq(tiara_algo_generate(algo, &set.layout, r, opts, &set.plans[r]), TIARA_OK);
        ck_assert_msg(tiara_plan_resolve(&set.plans[r]) == TIARA_OK, "%s: rank %d", f->name, r);
    }
    flow_init(f, &set);
    flow_run(f);
    plan_set_fini(&set);
    free(f);
}

/* One algorithm on one layout, with all the options that it looks at. */
static void check_options(
    const struct tiara_algo *algo, const char *layout, enum tiara_coll coll, int nnodes)
{
    struct tiara_algo_opts opts = {.coll = coll};

    check_case(algo, layout, &opts);
    if (algo->flags & TIARA_ALGO_NODE) {
        opts.single_copy = true;
        check_case(algo, layout, &opts);
        opts = (struct tiara_algo_opts){.coll = coll, .one_shot = true};
        check_case(algo, layout, &opts);
    }
    for (int i = 0; tiara_algo_table[i] && algo->flags & TIARA_ALGO_HIER && nnodes > 1; i++) {
        for (int leaders = 1; leaders <= 2; leaders++) {
            opts = (struct tiara_algo_opts){
                .coll = coll, .leaders = leaders, .inter = tiara_algo_table[i]};
            if (opts.inter->flags & TIARA_ALGO_FLAT)
                check_case(algo, layout, &opts);
        }
    }
}

static const char *const layouts[] = {"1x1", "1x2", "1x3", "1x4", "1x7", "2x1", "5x1", "8x1", "2x2",
    "2x2:rr", "3+1", "1+2+3", "3x2", "3x2:rr", "2x4", "5+3", "0,1,1,0,2", "4x4"};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

START_TEST(test_resolve_follows_the_data)
{
    const struct tiara_algo *algo = tiara_algo_table[_i];

    for (size_t i = 0; i < NLAYOUTS; i++) {
        struct tiara_layout l;
        int nnodes;

        ck_assert_int_eq(tiara_layout_parse(&l, layouts[i], 0, NULL, 0), TIARA_OK);
        nnodes = l.nnodes;
        tiara_layout_fini(&l);
        for (int coll = TIARA_COLL_ALLREDUCE; coll <= TIARA_COLL_ALLGATHER; coll++)
            if (algo->colls & (1u << coll) && !(algo->flags & TIARA_ALGO_NODE && nnodes > 1))
                check_options(algo, layouts[i], (enum tiara_coll)coll, nnodes);
    }
}
END_TEST

/* ---- plans by hand ---- */

#define IN(first, count) tiara_slice(0, TIARA_BUF_IN, first, count)
#define OUT(first, count) tiara_slice(0, TIARA_BUF_OUT, first, count)
#define TMP(first, count) tiara_slice(0, TIARA_BUF_TMP, first, count)

static void begin(struct tiara_plan *p)
{
    tiara_plan_init(p, TIARA_COLL_ALLREDUCE, 0, 2, 4);
    tiara_plan_tmp(p, 4);
}

/* Finishes and resolves @p, whose errors are logged. */
static enum tiara_err resolve(struct tiara_plan *p)
{
    char log[512];
    enum tiara_err err;

    ck_assert_int_eq(tiara_plan_finish(p, 9), TIARA_OK);
    tiara_test_stderr_begin();
    err = tiara_plan_resolve(p);
    tiara_test_stderr_end(log, sizeof(log));
    if (err == TIARA_ERR_PLAN)
        ck_assert_msg(strstr(log, "plan of rank 0"), "log: %s", log);
    return err;
}

START_TEST(test_resolve_receive_takes_the_blocks_of_its_reader)
{
    struct tiara_plan p;
    struct tiara_slice pair[2] = {TMP(1, 1), IN(3, 1)};

    begin(&p);
    tiara_plan_recv(&p, 1, 1, TMP(0, 2));
    tiara_plan_reduce(&p, 2, OUT(3, 1), pair, 2); /* the second of the blocks is block 3 */
    tiara_plan_copy(&p, 3, OUT(2, 1), TMP(0, 1));
    ck_assert_int_eq(resolve(&p), TIARA_OK);
    ck_assert_int_eq(p.ops[1].block, 3);
    ck_assert_int_eq(p.ops[2].block, 2);
    ck_assert_int_eq(p.ops[0].block, 2);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_resolve_receives_that_are_read_together_take_consecutive_blocks)
{
    struct tiara_plan p;

    begin(&p);
    tiara_plan_recv(&p, 1, 1, TMP(1, 1));
    tiara_plan_recv(&p, 2, 1, TMP(0, 1));
    tiara_plan_copy(&p, 3, OUT(2, 2), TMP(0, 2));
    ck_assert_int_eq(resolve(&p), TIARA_OK);
    ck_assert_int_eq(p.ops[0].block, 3);
    ck_assert_int_eq(p.ops[1].block, 2);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_resolve_reused_scratch_takes_the_blocks_of_its_last_writer)
{
    struct tiara_plan p;

    begin(&p);
    tiara_plan_copy(&p, 1, TMP(0, 2), IN(0, 2));
    tiara_plan_send(&p, 2, 1, TMP(0, 2));
    tiara_plan_copy(&p, 3, TMP(0, 2), IN(2, 2));
    tiara_plan_send(&p, 4, 1, TMP(1, 1));
    ck_assert_int_eq(resolve(&p), TIARA_OK);
    ck_assert_int_eq(p.ops[1].block, 0);
    ck_assert_int_eq(p.ops[3].block, 3);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_resolve_blocks_that_do_not_follow_are_an_error)
{
    struct tiara_plan p;

    begin(&p);
    tiara_plan_recv(&p, 1, 1, TMP(0, 1));
    ck_assert_int_eq(resolve(&p), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
    begin(&p);
    tiara_plan_send(&p, 1, 1, TMP(0, 1));
    ck_assert_int_eq(resolve(&p), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_resolve_blocks_that_differ_are_an_error)
{
    struct tiara_plan p;
    struct tiara_slice pair[2] = {TMP(0, 1), IN(2, 1)};

    begin(&p);
    tiara_plan_copy(&p, 1, TMP(0, 1), IN(1, 1));
    tiara_plan_reduce(&p, 2, OUT(2, 1), pair, 2);
    ck_assert_int_eq(resolve(&p), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
    begin(&p);
    tiara_plan_copy(&p, 1, OUT(1, 2), IN(0, 2));
    ck_assert_int_eq(resolve(&p), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
}
END_TEST

/* What a later op writes into the scratch says nothing about what was there before. */
START_TEST(test_resolve_overwritten_receive_is_not_taken_for_its_successor)
{
    struct tiara_plan p;

    begin(&p);
    tiara_plan_recv(&p, 1, 1, TMP(0, 1)); /* nobody reads it */
    tiara_plan_copy(&p, 2, TMP(0, 1), IN(3, 1));
    tiara_plan_copy(&p, 3, OUT(3, 1), TMP(0, 1));
    ck_assert_int_eq(resolve(&p), TIARA_ERR_PLAN);
    tiara_plan_fini(&p);
}
END_TEST

START_TEST(test_resolve_out_of_memory_is_an_error)
{
    struct tiara_plan p;
    uint64_t live;

    begin(&p);
    tiara_plan_copy(&p, 1, OUT(0, 4), IN(0, 4));
    live = tiara_alloc_live();
    tiara_alloc_fail_after(1);
    ck_assert_int_eq(resolve(&p), TIARA_ERR_NOMEM);
    tiara_alloc_fail_after(0);
    ck_assert_uint_eq(tiara_alloc_live(), live);
    ck_assert_int_eq(resolve(&p), TIARA_OK);
    ck_assert_uint_eq(tiara_alloc_live(), live);
    tiara_plan_fini(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan resolve");
    TCase *tcase = tcase_create("resolve");
    int nalgos = 0;

    while (tiara_algo_table[nalgos])
        nalgos++;
    tcase_add_loop_test(tcase, test_resolve_follows_the_data, 0, nalgos);
    tcase_add_test(tcase, test_resolve_receive_takes_the_blocks_of_its_reader);
    tcase_add_test(tcase, test_resolve_receives_that_are_read_together_take_consecutive_blocks);
    tcase_add_test(tcase, test_resolve_reused_scratch_takes_the_blocks_of_its_last_writer);
    tcase_add_test(tcase, test_resolve_blocks_that_do_not_follow_are_an_error);
    tcase_add_test(tcase, test_resolve_blocks_that_differ_are_an_error);
    tcase_add_test(tcase, test_resolve_overwritten_receive_is_not_taken_for_its_successor);
    tcase_add_test(tcase, test_resolve_out_of_memory_is_an_error);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
