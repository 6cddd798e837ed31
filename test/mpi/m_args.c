/*
 * Wrong arguments on all ranks, and calls that differ between ranks: an error of the right class,
 * never a hang, no byte written outside the buffers, and the library remains usable.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 2 TIARA_LAYOUT=2x1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3:rr */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device STANDIN_PEERS=none */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

static double *in, *out; /* of 16, where calls can read and write them */

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

/* A right call on @comm, after something went wrong. */
static void check_usable(MPI_Comm comm)
{
    struct mt_case c = {
        .type = mt_type_find(MPI_DOUBLE), .oper = MT_SUM, .seed = mt_seed(), .comm = comm};
    const size_t counts[] = {1, 100, 3000};
    for (int k = 0; k < 3; k++) {
        c.count = counts[k];
        mt_allreduce(&c);
    }
}

static void expect(const char *what, int err, int want)
{
    mt_note("after %s", what);
    mt_check(class_of(err) == want, "%s: error class %d, not %d", what, class_of(err), want);
    check_usable(MPI_COMM_WORLD);
}

START_TEST(test_args_of_allreduce_are_checked)
{
    expect("negative count", TIARA_Allreduce(in, out, -1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_COUNT);
    expect("null send buffer", TIARA_Allreduce(NULL, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_BUFFER);
    expect("null receive buffer", TIARA_Allreduce(in, NULL, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_BUFFER);
    expect("equal buffers", TIARA_Allreduce(out, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_BUFFER);
    expect("null type", TIARA_Allreduce(in, out, 4, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_TYPE);
    expect("null operator", TIARA_Allreduce(in, out, 4, MPI_DOUBLE, MPI_OP_NULL, MPI_COMM_WORLD),
        MPI_ERR_OP);
    expect("null communicator", TIARA_Allreduce(in, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL),
        MPI_ERR_COMM);
    mt_agree();
}
END_TEST

START_TEST(test_args_of_the_family_are_checked)
{
    char text[100];
    expect("prepare of null", TIARA_Comm_prepare(MPI_COMM_NULL), MPI_ERR_COMM);
    expect("large negative count",
        TIARA_Allreduce_c(in, out, -5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_COUNT);
    expect("reduce-scatter count",
        TIARA_Reduce_scatter_block(in, out, -1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        MPI_ERR_COUNT);
    expect("reduce-scatter communicator",
        TIARA_Reduce_scatter_block(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL), MPI_ERR_COMM);
    expect("allgather count",
        TIARA_Allgather(in, -1, MPI_DOUBLE, out, -1, MPI_DOUBLE, MPI_COMM_WORLD), MPI_ERR_COUNT);
    expect("allgather communicator",
        TIARA_Allgather(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, MPI_COMM_NULL), MPI_ERR_COMM);
    expect("explain operator",
        TIARA_Explain(4, MPI_DOUBLE, MPI_OP_NULL, MPI_COMM_WORLD, text, sizeof text), MPI_ERR_OP);
    mt_agree();
}
END_TEST

/* MPI need not notice that a type was not committed; a call that succeeds must be right. */
START_TEST(test_args_uncommitted_type_is_refused_or_right)
{
    MPI_Datatype type;
    int two[2] = {1, mt_rank}, sums[2] = {0, 0};
    MPI_Type_contiguous(2, MPI_INT, &type);
    int err = mt_allreduce_arrays(two, sums, 1, type, MPI_SUM, MPI_COMM_WORLD);
    mt_check(err != MPI_SUCCESS || sums[0] == mt_size, "accepted, and the sum is %d", sums[0]);
    MPI_Type_free(&type);
    check_usable(MPI_COMM_WORLD);
    mt_agree();
}
END_TEST

START_TEST(test_args_count_zero_touches_nothing)
{
    mt_check(TIARA_Allreduce(NULL, NULL, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS,
        "null buffers");
    mt_check(TIARA_Allreduce(out, out, 0, MPI_INT, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS,
        "equal buffers");
    mt_check(
        TIARA_Allreduce(MPI_IN_PLACE, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS,
        "in place");
    mt_check(
        TIARA_Allreduce_c(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "large");
    mt_check(
        TIARA_Reduce_scatter_block(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS,
        "scatter");
    mt_check(TIARA_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS,
        "gather");
    check_usable(MPI_COMM_WORLD);
    mt_agree();
}
END_TEST

/* In place is a local matter: some ranks may use it while others do not. */
START_TEST(test_args_in_place_on_some_ranks_is_legal)
{
    const int counts[] = {1, 9, 1000, 50000};
    for (int k = 0; k < 4; k++) {
        struct mt_case c = {.type = mt_type_find(MPI_INT),
            .oper = MT_SUM,
            .count = (size_t)counts[k],
            .in_place = mt_rank % 2 == k % 2,
            .seed = mt_seed(),
            .comm = MPI_COMM_WORLD};
        mt_allreduce(&c);
    }
    mt_agree();
}
END_TEST

static int handler_calls;
static void count_call(MPI_Comm *comm, int *err, ...)
{
    (void)comm;
    (void)err;
    handler_calls++;
}

START_TEST(test_args_errors_go_to_the_communicator_s_handler)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(count_call, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    handler_calls = 0;
    int err = TIARA_Allreduce(in, out, -1, MPI_DOUBLE, MPI_SUM, comm);
    mt_check(handler_calls == 1 && class_of(err) == MPI_ERR_COUNT, "%d calls, class %d",
        handler_calls, class_of(err));
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

/*
 * One call in which rank @odd differs from the others. Every rank must return; at least one must
 * see it; nobody writes past what its own arguments allow. The communicator goes on working.
 */
struct mismatch {
    const char *what;
    int count, odd_count;
    MPI_Datatype type, odd_type;
    MPI_Op op, odd_op;
};

static void check_mismatch(const struct mismatch *m, int odd)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check_usable(comm);
    bool is_odd = mt_rank == odd;
    int count = is_odd ? m->odd_count : m->count, size, err, mine, anyone;
    MPI_Datatype type = is_odd ? m->odd_type : m->type;
    MPI_Type_size(type, &size);
    struct mt_buf send = mt_buf_new((size_t)count * (size_t)size, 0),
                  recv = mt_buf_new_result(send.bytes, 0);
    memset(send.data, 0, send.bytes);
    uint64_t before = mt_digest(send.data, send.bytes);
    mt_note("mismatch in %s, counts %d and %d, odd rank %d", m->what, m->count, m->odd_count, odd);
    err = TIARA_Allreduce(
        mt_buf_lend(&send), mt_buf_lend(&recv), count, type, is_odd ? m->odd_op : m->op, comm);
    mt_buf_take(&send);
    mt_buf_take(&recv);
    mine = err != MPI_SUCCESS;
    PMPI_Allreduce(&mine, &anyone, 1, MPI_INT, MPI_MAX, mt_private);
    mt_check(anyone, "%s, counts %d and %d, odd rank %d: no rank saw it", m->what, m->count,
        m->odd_count, odd);
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "%s: guards damaged", m->what);
    mt_check(mt_digest(send.data, send.bytes) == before, "%s: input changed", m->what);
    mt_buf_free(&send);
    mt_buf_free(&recv);
    mt_note("after the mismatch in %s, counts %d and %d, odd rank %d", m->what, m->count,
        m->odd_count, odd);
    check_usable(comm);
    MPI_Comm_free(&comm);
}

START_TEST(test_args_that_differ_between_ranks_are_seen)
{
    const struct mismatch mismatches[] = {
        {"count", 1, 2, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_SUM},
        {"count", 5, 6, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_SUM},
        {"count", 1000, 1001, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_SUM},
        {"count", 4, 100000, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_SUM},
        {"count", 200000, 200001, MPI_INT, MPI_INT, MPI_MAX, MPI_MAX},
        {"type", 3, 3, MPI_DOUBLE, MPI_FLOAT, MPI_SUM, MPI_SUM},
        {"type", 50000, 50000, MPI_DOUBLE, MPI_INT, MPI_SUM, MPI_SUM},
        {"operator", 2, 2, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_MAX},
        {"operator", 3000, 3000, MPI_INT, MPI_INT, MPI_MIN, MPI_MAX},
        {"operator", 300000, 300000, MPI_INT, MPI_INT, MPI_SUM, MPI_BOR},
    };
    for (unsigned k = 0; mt_size > 1 && k < sizeof mismatches / sizeof mismatches[0]; k++) {
        check_mismatch(&mismatches[k], 0);
        check_mismatch(&mismatches[k], mt_size - 1);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_args", MPI_THREAD_SINGLE);
    struct mt_buf send = mt_buf_new(16 * sizeof *in, 0),
                  recv = mt_buf_new_result(16 * sizeof *out, 0);
    in = mt_buf_lend(&send);
    out = mt_buf_lend(&recv);
    tcase_add_test(tests, test_args_of_allreduce_are_checked);
    tcase_add_test(tests, test_args_of_the_family_are_checked);
    tcase_add_test(tests, test_args_uncommitted_type_is_refused_or_right);
    tcase_add_test(tests, test_args_count_zero_touches_nothing);
    tcase_add_test(tests, test_args_in_place_on_some_ranks_is_legal);
    tcase_add_test(tests, test_args_errors_go_to_the_communicator_s_handler);
    tcase_add_test(tests, test_args_that_differ_between_ranks_are_seen);
    int status = mt_end();
    mt_buf_free(&send);
    mt_buf_free(&recv);
    return status;
}
