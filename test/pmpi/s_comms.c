/*
 * The calls on communicators of every origin (MPI 4.0, chapter 7): copies, parts, topologies, both
 * sides of an intercommunicator, many at once, many one after the other, and handles that MPI gives
 * out again.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 */
/* tiara-test: vcluster 2x2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
#include "s_suite.h"

/* Every call that is taken over, blocking and not, on @comm. */
static void use(MPI_Comm comm, uint64_t salt)
{
    int size = s_size(comm), rank = s_rank(comm), block = -1,
        *all = calloc((size_t)size, sizeof *all);
    struct s_job job = s_job_new(comm, salt % 2 ? 11 : 2500, salt, salt % 3 == 0);
    MPI_Request request;
    s_use(comm, salt);
    s_warm_up(comm);
    s_start(&job, &request);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int r = 0; r < size; r++)
        mt_check(all[r] == r, "gathered %d from rank %d of %d", all[r], r, size);
    MPI_Reduce_scatter_block(all, &block, 1, MPI_INT, MPI_SUM, comm);
    mt_check(block == rank * size, "block %d of %d is %d", rank, size, block);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    s_job_end(&job, comm);
    free(all);
}

static void use_and_free(MPI_Comm *comm, uint64_t salt)
{
    if (*comm == MPI_COMM_NULL)
        return;
    use(*comm, salt);
    MPI_Comm_free(comm);
}

START_TEST(test_comms_predefined_ones_are_right)
{
    for (uint64_t k = 0; k < 4; k++) {
        use(MPI_COMM_WORLD, k);
        use(MPI_COMM_SELF, k);
    }
    mt_agree();
}
END_TEST

/* Halves, every second, singles, all but one, reversed and shuffled. */
START_TEST(test_comms_split_any_way_are_right)
{
    const int colours[] = {mt_rank < mt_size / 2, mt_rank % 2, mt_rank / 2, mt_rank, 0, 0,
        mt_rank == 0 ? MPI_UNDEFINED : 1, mt_rank == mt_size / 2};
    const int keys[] = {0, 0, 0, 0, -mt_rank, (mt_rank * 7 + 3) % 11, mt_rank, -mt_rank};
    for (unsigned k = 0; k < COUNT_OF(colours); k++) {
        MPI_Comm part;
        mt_note("split %u", k);
        MPI_Comm_split(MPI_COMM_WORLD, colours[k], keys[k], &part);
        use_and_free(&part, k);
    }
    mt_agree();
}
END_TEST

START_TEST(test_comms_of_every_constructor_are_right)
{
    int dims[2] = {0, 0}, periods[2] = {0, 1}, remain[2] = {0, 1}, degree = 1, weight = 1,
        next = (mt_rank + 1) % mt_size, last = mt_size - 1;
    MPI_Group all, some;
    enum {
        N = 8
    };
    MPI_Comm comms[N];
    for (int k = 0; k < N; k++)
        comms[k] = MPI_COMM_NULL;
    MPI_Dims_create(mt_size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &comms[0]);
    MPI_Cart_sub(comms[0], remain, &comms[1]);
    MPI_Dist_graph_create(
        MPI_COMM_WORLD, 1, &mt_rank, &degree, &next, &weight, MPI_INFO_NULL, 0, &comms[2]);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -mt_rank, MPI_INFO_NULL, &comms[3]);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comms[4]);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, mt_size > 1 ? 2 : 1, (int[]){last, 0}, &some);
    if (mt_rank == 0 || mt_rank == last)
        MPI_Comm_create_group(MPI_COMM_WORLD, some, 5, &comms[5]);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comms[6]);
    MPI_Comm_dup(comms[3], &comms[7]);
    for (int k = N - 1; k >= 0; k--) {
        mt_note("constructor %d", k);
        use_and_free(&comms[k], (uint64_t)k);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    mt_agree();
}
END_TEST

/* Ten copies under way at once, and used in reverse order. */
START_TEST(test_comms_idup_are_right)
{
    MPI_Comm comms[10];
    MPI_Request requests[10];
    s_use(MPI_COMM_WORLD, 5);
    for (int k = 0; k < 10; k++)
        MPI_Comm_idup(MPI_COMM_WORLD, &comms[k], &requests[k]);
    MPI_Waitall(10, requests, MPI_STATUSES_IGNORE);
    for (int k = 9; k >= 0; k--)
        use_and_free(&comms[k], (uint64_t)k);
    mt_agree();
}
END_TEST

/* An attribute of the library's own is not to be copied along with a communicator, and dies with
 * its own one only. */
START_TEST(test_comms_copies_outlive_what_they_were_copied_from)
{
    MPI_Comm parent, child, grandchild;
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
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

/* The program's own attributes are copied and deleted as ever. */
static int ncopied, ndeleted;
static int count_copy(
    MPI_Comm comm, int keyval, void *extra, void *value, void *value_out, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    ncopied++;
    *(void **)value_out = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int count_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    ndeleted++;
    return MPI_SUCCESS;
}

START_TEST(test_comms_attributes_of_the_program_are_its_own)
{
    MPI_Comm comm, copy;
    int keyval, flag = 0;
    void *value = NULL;
    ncopied = ndeleted = 0;
    MPI_Comm_create_keyval(count_copy, count_delete, &keyval, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_attr(comm, keyval, &keyval);
    use(comm, 1);
    mt_check(ncopied == 0 && ndeleted == 0, "after the calls: %d copies, %d deletions", ncopied,
        ndeleted);
    MPI_Comm_dup(comm, &copy);
    use(copy, 2);
    MPI_Comm_get_attr(copy, keyval, &value, &flag);
    mt_check(ncopied == 1 && flag && value == &keyval, "%d copies, flag %d", ncopied, flag);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&copy);
    MPI_Comm_free_keyval(&keyval);
    mt_check(ndeleted == 2, "%d deletions", ndeleted);
    mt_agree();
}
END_TEST

/* Two communicators of one group, in different order, with calls on both under way. */
START_TEST(test_comms_of_the_same_group_do_not_mix)
{
    MPI_Comm a, b;
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -mt_rank, &b);
    for (int k = 0; k < 50; k++) {
        int i = k + mt_rank, sums[2] = {0, 0}, want = mt_size * k + mt_size * (mt_size - 1) / 2;
        MPI_Request request;
        MPI_Iallreduce(&i, &sums[0], 1, MPI_INT, MPI_SUM, k % 2 ? a : b, &request);
        MPI_Allreduce(&i, &sums[1], 1, MPI_INT, MPI_SUM, k % 2 ? b : a);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mt_check(sums[0] == want && sums[1] == want, "step %d: %d and %d, not %d", k, sums[0],
            sums[1], want);
    }
    MPI_Comm_free(&a);
    MPI_Comm_free(&b);
    mt_agree();
}
END_TEST

/* As many as fit into one job; each works when all are there, and when half of them are gone. */
START_TEST(test_comms_many_at_once_are_right)
{
    int n = mt_size == 2 ? 1000 : s_often(60, 20), sum, wrong = 0;
    MPI_Comm *comms = malloc((size_t)n * sizeof(MPI_Comm));
    for (int k = 0; k < n; k++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
    for (int round = 0; round < 3; round++) {
        for (int k = round == 2; k < n; k += round == 2 ? 2 : 1) {
            int mine = k + mt_rank;
            mt_note("communicator %d of many, round %d", k, round);
            MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comms[k]);
            wrong += sum != mt_size * k + mt_size * (mt_size - 1) / 2;
        }
        for (int k = 0; k < n && round > 0; k++) {
            if (k % 2 == round - 1)
                MPI_Comm_free(&comms[k]);
        }
    }
    mt_check(wrong == 0, "%d sums are wrong", wrong);
    free(comms);
    mt_agree();
}
END_TEST

/* MPI gives the handle of a freed communicator out again, for another group. */
START_TEST(test_comms_with_recycled_handles_are_new)
{
    int n = s_often(mt_size < 4 ? 300 : 60, 20), wrong = 0;
    for (int k = 0; k < n; k++) {
        MPI_Comm part;
        uint64_t h = mt_hash(mt_hash(mt_seed(), (uint64_t)k), (uint64_t)mt_rank);
        mt_note("recycled handle %d", k);
        MPI_Comm_split(MPI_COMM_WORLD, (int)(h % 3), (int)(h >> 8 & 15), &part);
        int mine = k + s_rank(part), size = s_size(part), sum = -1, again = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, part);
        MPI_Allreduce(&mine, &again, 1, MPI_INT, MPI_SUM, part);
        wrong += sum != size * k + size * (size - 1) / 2 || again != sum;
        MPI_Comm_free(&part);
    }
    mt_check(wrong == 0, "%d sums are wrong", wrong);
    mt_agree();
}
END_TEST

static void use_inter(MPI_Comm inter, int count, bool low)
{
    int *in = malloc((size_t)count * sizeof *in), *out = calloc((size_t)count, sizeof *out);
    int first = low ? mt_size / 2 : 0, end = low ? mt_size : mt_size / 2;
    MPI_Request request;
    for (int i = 0; i < count; i++)
        in[i] = i + mt_rank;
    for (int k = 0; k < 2; k++) {
        memset(out, 0, (size_t)count * sizeof *out);
        if (k == 0)
            MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, inter);
        else
            MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, inter, &request);
        if (k == 1)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) {
            int want = (end - first) * i + (end * (end - 1) - first * (first - 1)) / 2;
            mt_check(out[i] == want, "count %d: element %d is %d, not %d", count, i, out[i], want);
        }
    }
    free(in);
    free(out);
}

/* Each group gets the result of the other. */
START_TEST(test_comms_between_groups_are_right)
{
    MPI_Comm half, inter, merged;
    int low = mt_rank < mt_size / 2, all[16];
    if (mt_size == 1)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, low, mt_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? mt_size / 2 : 0, 9, &inter);
    for (int k = 0; k < 12; k++)
        use_inter(inter, k % 3 == 0 ? 1 : k % 3 == 1 ? 100 : 10000, low);
    int others = low ? mt_size - mt_size / 2 : mt_size / 2, first = low ? mt_size / 2 : 0;
    MPI_Allgather(&mt_rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int r = 0; r < others && r < 16; r++)
        mt_check(all[r] == first + r, "rank %d of the other group is %d", r, all[r]);
    MPI_Intercomm_merge(inter, low, &merged);
    use_and_free(&merged, 1);
    MPI_Comm_free(&inter);
    use_and_free(&half, 2);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_comms", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_comms_predefined_ones_are_right);
    tcase_add_test(tests, test_comms_split_any_way_are_right);
    tcase_add_test(tests, test_comms_of_every_constructor_are_right);
    tcase_add_test(tests, test_comms_idup_are_right);
    tcase_add_test(tests, test_comms_copies_outlive_what_they_were_copied_from);
    tcase_add_test(tests, test_comms_attributes_of_the_program_are_its_own);
    tcase_add_test(tests, test_comms_of_the_same_group_do_not_mix);
    tcase_add_test(tests, test_comms_many_at_once_are_right);
    tcase_add_test(tests, test_comms_with_recycled_handles_are_new);
    tcase_add_test(tests, test_comms_between_groups_are_right);
    return mt_end();
}
