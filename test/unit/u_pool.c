/*
 * The pool of arenas: who shares one, what is kept, and what the budget leaves.
 */
/* tiara-test: mpirun 3 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_SHM_BUDGET=3m */
/* tiara-test: mpirun 3 TIARA_SHM_BUDGET=64k */
#include "base/alloc.h"
#include "comm/arena_pool.h"
#include "comm/comm.h"
#include "mpi_run.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY = 5
};

/* The state of a new communicator: the ranks of @old in @key's order. */
static const struct tiara_comm *state_of(MPI_Comm old, int key, MPI_Comm *comm_out)
{
    struct tiara_comm *c = NULL;
    MPI_Comm_split(old, 0, key, comm_out);
    TIARA_Comm_prepare(*comm_out);
    tiara_comm_find(*comm_out, false, &c);
    mt_check(c != NULL, "a communicator has no state");
    return c;
}

/* The largest of three sizes of a cell that the budget leaves to the ranks of a node; -1: none. */
static long cell_expected(int ranks)
{
    const long sizes[] = {262144, 32768, 0};
    const char *text = getenv("TIARA_SHM_BUDGET");
    long budget = !text ? 1 << 30 : strcmp(text, "3m") == 0 ? 3 << 20 : 64 << 10;
    for (int i = 0; i < 3; i++) {
        /* 4096 bytes of control words, 16 slots of a head and 32 KiB, to whole pages; 8 cells. */
        long bytes = (4096 + 16 * 32896 + 4095) / 4096 * 4096 + 8 * sizes[i];
        if (ranks * bytes <= budget)
            return sizes[i];
    }
    return -1;
}

START_TEST(test_the_same_processes_share_one)
{
    MPI_Comm first, second, turned;
    const struct tiara_comm *a = state_of(MPI_COMM_WORLD, 0, &first),
                            *b = state_of(MPI_COMM_WORLD, 0, &second),
                            *c = state_of(MPI_COMM_WORLD, -mt_rank, &turned);
    long cell = cell_expected(getenv("TIARA_LAYOUT") ? 2 : mt_size);
    if (cell < 0) {
        mt_check(!a->arena && !b->arena, "there is an arena, and no room for one");
    } else {
        mt_check(a->arena && a->arena == b->arena, "two of the same processes do not share");
        mt_check(a->arena != c->arena, "another order of the processes has the same arena");
        mt_check((long)a->arena->cell_bytes == cell, "cells of %zu bytes, %ld were expected",
            a->arena->cell_bytes, cell);
    }
    const struct tiara_arena *before = a->arena;
    MPI_Comm_free(&turned);
    MPI_Comm_free(&first);
    MPI_Comm_free(&second);
    a = state_of(MPI_COMM_WORLD, 0, &first);
    mt_check(cell != 262144 || a->arena == before, "an unused arena was not kept");
    MPI_Comm_free(&first);
    mt_agree();
}
END_TEST

/* Groups of all sizes and orders, one after the other. */
START_TEST(test_few_unused_ones_are_kept)
{
    MPI_Comm comms[MANY];
    size_t one = 0;
    for (int k = 0; k < MANY; k++) {
        MPI_Comm half;
        MPI_Comm_split(MPI_COMM_WORLD, k > 1 && mt_rank == 0, mt_rank, &half);
        const struct tiara_comm *c = state_of(half, k % 2 ? -mt_rank : k / 2, &comms[k]);
        if (k == 0 && c->arena)
            one = (size_t)c->arena->size * tiara_arena_bytes(c->arena->cell_bytes);
        MPI_Comm_free(&half);
    }
    for (int k = 0; k < MANY; k++)
        MPI_Comm_free(&comms[k]);
    mt_check(tiara_pool_bytes() <= 2 * one, "%zu bytes are kept, two arenas have %zu",
        tiara_pool_bytes(), 2 * one);
    tiara_pool_clear();
    mt_check(tiara_pool_bytes() == 0, "%zu bytes are left of a cleared pool", tiara_pool_bytes());
    mt_agree();
}
END_TEST

/* What nonblocking calls have is nobody else's, and goes with them. */
START_TEST(test_a_twin_shares_with_nobody)
{
    MPI_Comm comm;
    struct tiara_comm *c = (struct tiara_comm *)(uintptr_t)state_of(MPI_COMM_WORLD, 0, &comm);
    struct tiara_comm *twins[2];
    size_t before = tiara_pool_bytes();
    for (int k = 0; k < 2; k++)
        mt_check(tiara_comm_twin(c, true, true, &twins[k]) == TIARA_OK, "there is no twin");
    bool has = c->arena && twins[0]->arena && twins[1]->arena;
    mt_check(!has || (twins[0]->arena != twins[1]->arena && twins[0]->arena != c->arena),
        "a twin shares its arena");
    mt_check(!has || twins[0]->arena->cell_bytes == 0, "a twin of small calls has cells");
    for (int k = 0; k < 2; k++)
        tiara_comm_free(twins[k]);
    mt_check(tiara_pool_bytes() == before, "%zu bytes, %zu without the twins", tiara_pool_bytes(),
        before);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/* One rank cannot keep an entry: then nobody has the arena, and the call is MPI's. */
START_TEST(test_all_have_it_or_none)
{
    for (int n = 1; n < 12; n++) {
        MPI_Comm comm;
        int one = 1, sum = 0, has, all;
        MPI_Comm_split(MPI_COMM_WORLD, 0, n % 2 ? mt_rank : -mt_rank, &comm);
        tiara_pool_clear();
        MPI_Barrier(mt_private);
        if (mt_rank == mt_size - 1)
            tiara_alloc_fail_after((uint64_t)n);
        TIARA_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        tiara_alloc_fail_after(0);
        mt_check(sum == mt_size, "allocation %d fails: the sum is %d", n, sum);
        struct tiara_comm *c = NULL;
        tiara_comm_find(comm, false, &c);
        has = c && tiara_comm_serves(c) && c->arena;
        PMPI_Allreduce(&has, &all, 1, MPI_INT, MPI_SUM, mt_private);
        mt_check(all == 0 || all == mt_size, "allocation %d fails: %d ranks have an arena", n, all);
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "u_pool", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_the_same_processes_share_one);
    tcase_add_test(tests, test_few_unused_ones_are_kept);
    tcase_add_test(tests, test_a_twin_shares_with_nobody);
    tcase_add_test(tests, test_all_have_it_or_none);
    return mt_end();
}
