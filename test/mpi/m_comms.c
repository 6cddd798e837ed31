/*
 * Communicators of every origin and shape, used one after the other, interleaved, and after others
 * were freed.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 5 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 6 TIARA_LAYOUT=0,1,1,0,2,0 */
/* tiara-test: vcluster 2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed-inout */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>

/* A tiny, a small and a large sum on @comm, seeded by @salt. */
static void use(MPI_Comm comm, int salt)
{
    const size_t counts[] = {1, 300, 9000};
    for (int k = 0; k < 3; k++) {
        struct mt_case c = {.type = mt_type_find(MPI_INT),
            .oper = MT_SUM,
            .count = counts[k],
            .in_place = salt % 2,
            .seed = mt_seed() + (uint64_t)salt,
            .comm = comm};
        mt_allreduce(&c);
    }
}

static void use_and_free(MPI_Comm *comm, int salt)
{
    if (*comm == MPI_COMM_NULL)
        return;
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    use(*comm, salt);
    MPI_Comm_free(comm);
}

START_TEST(test_comms_self_copies)
{
    use(MPI_COMM_SELF, mt_rank);
    mt_agree();
}
END_TEST

/* All ways of splitting: halves at once, one rank of each pair, singles, everyone but one, reversed
 * and shuffled order. */
START_TEST(test_comms_split_any_way_are_right)
{
    const int colours[] = {mt_rank < mt_size / 2, mt_rank % 2, mt_rank / 2, mt_rank, 0, 0,
        mt_rank == 0 ? MPI_UNDEFINED : 1, mt_rank == mt_size / 2};
    const int keys[] = {0, 0, 0, 0, -mt_rank, (mt_rank * 7 + 3) % 11, mt_rank, -mt_rank};
    for (int k = 0; k < 8; k++) {
        MPI_Comm part;
        mt_note("split %d", k);
        MPI_Comm_split(MPI_COMM_WORLD, colours[k], keys[k], &part);
        use_and_free(&part, k);
    }
    mt_agree();
}
END_TEST

START_TEST(test_comms_of_every_constructor_are_right)
{
    int dims[2] = {0, 0}, periods[2] = {0, 1}, degree = 1, weight = 1,
        next = (mt_rank + 1) % mt_size;
    MPI_Group all, some;
    MPI_Comm comms[5] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Dims_create(mt_size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &comms[0]);
    MPI_Dist_graph_create(
        MPI_COMM_WORLD, 1, &mt_rank, &degree, &next, &weight, MPI_INFO_NULL, 0, &comms[1]);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -mt_rank, MPI_INFO_NULL, &comms[2]);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    int last = mt_size - 1;
    MPI_Group_incl(all, mt_size > 1 ? 2 : 1, (int[]){last, 0}, &some);
    if (mt_rank == 0 || mt_rank == last)
        MPI_Comm_create_group(MPI_COMM_WORLD, some, 5, &comms[3]);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comms[4]);
    for (int k = 4; k >= 0; k--) {
        mt_note("constructor %d", k);
        use_and_free(&comms[k], k);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    mt_agree();
}
END_TEST

START_TEST(test_comms_idup_used_in_reverse_order)
{
    MPI_Comm comms[10];
    MPI_Request requests[10];
    for (int k = 0; k < 10; k++)
        MPI_Comm_idup(MPI_COMM_WORLD, &comms[k], &requests[k]);
    MPI_Waitall(10, requests, MPI_STATUSES_IGNORE);
    for (int k = 9; k >= 0; k--)
        use_and_free(&comms[k], k);
    mt_agree();
}
END_TEST

/*
 * State is made for a communicator, not inherited by its copies; and it outlives neither of them.
 */
START_TEST(test_comms_dup_outlives_its_parent)
{
    MPI_Comm parent, child, grandchild;
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    use(parent, 1);
    MPI_Comm_dup(parent, &child);
    use(child, 2);
    use(parent, 3);
    MPI_Comm_dup(child, &grandchild);
    MPI_Comm_free(&parent);
    use(child, 4);
    MPI_Comm_free(&child);
    use_and_free(&grandchild, 5);
    mt_agree();
}
END_TEST

/* Two communicators of one group share memory perhaps, but not calls. Ranks are not in step between
 * them. */
static int use_what_goes(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    (void)value;
    (void)extra;
    use(comm, 3);
    return MPI_SUCCESS;
}

/* Before the state goes, and after: it is made again then, and is gone before MPI is. */
START_TEST(test_comms_are_used_while_they_are_freed)
{
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_what_goes, &keyval, NULL);
    for (int round = 0; round < 6; round++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (round % 2)
            MPI_Comm_set_attr(comm, keyval, &keyval);
        use(comm, round);
        if (!(round % 2))
            MPI_Comm_set_attr(comm, keyval, &keyval);
        MPI_Comm_free(&comm);
        use(MPI_COMM_WORLD, round);
    }
    MPI_Comm_free_keyval(&keyval);
    mt_agree();
}
END_TEST

START_TEST(test_comms_of_the_same_group_interleave)
{
    MPI_Comm a, b;
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -mt_rank, &b);
    TIARA_Comm_prepare(b);
    for (int k = 0; k < 50; k++) {
        int i = k + mt_rank, sum_a = 0, sum_b = 0, want = mt_size * k + mt_size * (mt_size - 1) / 2;
        mt_allreduce_arrays(&i, &sum_a, 1, MPI_INT, MPI_SUM, a);
        mt_allreduce_arrays(&i, &sum_b, 1, MPI_INT, MPI_SUM, b);
        mt_check(
            sum_a == want && sum_b == want, "step %d: %d and %d, not %d", k, sum_a, sum_b, want);
        if (k % 10 == 0)
            use(k % 20 ? a : b, k);
    }
    MPI_Comm_free(&a);
    MPI_Comm_free(&b);
    mt_agree();
}
END_TEST

/* MPI gives the handle of a freed communicator out again, for another group. */
START_TEST(test_comms_with_recycled_handles_are_new)
{
    for (int k = 0; k < 60; k++) {
        MPI_Comm part;
        uint64_t h = mt_hash(mt_hash(mt_seed(), (uint64_t)k), (uint64_t)mt_rank);
        mt_note("recycled handle %d", k);
        MPI_Comm_split(MPI_COMM_WORLD, (int)(h % 3), (int)(h >> 8 & 15), &part);
        use_and_free(&part, k);
    }
    mt_agree();
}
END_TEST

START_TEST(test_comms_between_groups_pass_through)
{
    if (mt_size == 1)
        return;
    MPI_Comm half, inter, merged;
    int low = mt_rank < mt_size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, mt_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? mt_size / 2 : 0, 9, &inter);
    for (int count = 1; count <= 10000; count *= 100) {
        int *in = malloc((size_t)count * sizeof *in), *out = calloc((size_t)count, sizeof *out);
        for (int i = 0; i < count; i++)
            in[i] = i + mt_rank;
        int err = mt_allreduce_arrays(in, out, (size_t)count, MPI_INT, MPI_SUM, inter);
        int first = low ? mt_size / 2 : 0, end = low ? mt_size : mt_size / 2;
        for (int i = 0; i < count; i++) {
            int want = 0;
            for (int r = first; r < end; r++)
                want += i + r;
            mt_check(err == MPI_SUCCESS && out[i] == want, "count %d: element %d is %d, not %d",
                count, i, out[i], want);
        }
        free(in);
        free(out);
    }
    mt_check(TIARA_Comm_prepare(inter) == MPI_SUCCESS, "prepare of an intercommunicator failed");
    MPI_Intercomm_merge(inter, low, &merged);
    use_and_free(&merged, 1);
    MPI_Comm_free(&inter);
    use_and_free(&half, 2);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_comms", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_comms_self_copies);
    tcase_add_test(tests, test_comms_split_any_way_are_right);
    tcase_add_test(tests, test_comms_of_every_constructor_are_right);
    tcase_add_test(tests, test_comms_idup_used_in_reverse_order);
    tcase_add_test(tests, test_comms_dup_outlives_its_parent);
    tcase_add_test(tests, test_comms_are_used_while_they_are_freed);
    tcase_add_test(tests, test_comms_of_the_same_group_interleave);
    tcase_add_test(tests, test_comms_with_recycled_handles_are_new);
    tcase_add_test(tests, test_comms_between_groups_pass_through);
    return mt_end();
}
