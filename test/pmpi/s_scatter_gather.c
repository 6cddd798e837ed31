/*
 * MPI_Reduce_scatter_block (MPI 4.0, section 6.10.1) and MPI_Allgather (section 6.7): blocks, in
 * place, types that differ between the two sides, extents that overlap, nothing written past a
 * block.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify */
/* tiara-test: vcluster 2x2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
#include "mpi_type.h"
#include "s_suite.h"

#include <stdint.h>

static const size_t blocks[] = {1, 2, 3, 7, 40, 1000, 4096, 10007, 40009};

/* Block @mt_rank of a reduction; in place the result lies at the start of the receive buffer. */
static void check_reduce_scatter(const struct mt_case *c)
{
    size_t extent = mt_type_extent(c->type), total = c->count * (size_t)mt_size;
    mt_note("reduce-scatter %s count %zu in place %d", c->type->name, c->count, c->in_place);
    struct mt_buf send = mt_buf_new(total * extent, 0);
    struct mt_buf recv = mt_buf_new_result((c->in_place ? total : c->count) * extent, 0);
    mt_fill(c->type, c->oper, c->seed, mt_rank, 0, total, send.data);
    if (c->in_place)
        memcpy(recv.data, send.data, send.bytes);
    uint64_t before = mt_digest(send.data, send.bytes);
    int err = MPI_Reduce_scatter_block(c->in_place ? MPI_IN_PLACE : send.data, recv.data,
        (int)c->count, c->type->handle, mt_oper_handle(c->oper), c->comm);
    mt_check(err == MPI_SUCCESS, "reduce-scatter count %zu: error %d", c->count, err);
    mt_verify(c, mt_size, c->count * (size_t)mt_rank, c->count, recv.data);
    mt_check(
        mt_buf_intact(&recv) && mt_buf_intact(&send), "reduce-scatter count %zu: guards", c->count);
    mt_check(mt_digest(send.data, send.bytes) == before, "reduce-scatter count %zu: input changed",
        c->count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_scatter_is_right)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_INT, MT_SUM}, {MPI_DOUBLE, MT_SUM}, {MPI_UINT8_T, MT_BXOR},
        {MPI_FLOAT, MT_MAX}, {MPI_LONG, MT_PROD}, {MPI_DOUBLE_INT, MT_MINLOC}};
    for (unsigned p = 0; p < COUNT_OF(pairs); p++) {
        for (unsigned k = 0; k < 2 * COUNT_OF(blocks); k++) {
            struct mt_case c = {.type = mt_type_find(pairs[p].type),
                .oper = pairs[p].oper,
                .count = blocks[k / 2],
                .in_place = k % 2,
                .seed = mt_seed() + k,
                .comm = MPI_COMM_WORLD};
            if (p == 0 || k % 3 == p % 3)
                check_reduce_scatter(&c);
        }
    }
    mt_agree();
}
END_TEST

START_TEST(test_scatter_on_one_rank_copies)
{
    const int in[3] = {mt_rank, 7, -1};
    for (int in_place = 0; in_place < 2; in_place++) {
        struct mt_buf recv = mt_buf_new_result(sizeof in, 0);
        if (in_place)
            memcpy(recv.data, in, sizeof in);
        int err = MPI_Reduce_scatter_block(
            in_place ? MPI_IN_PLACE : in, recv.data, 3, MPI_INT, MPI_SUM, MPI_COMM_SELF);
        mt_check(
            err == MPI_SUCCESS && memcmp(in, recv.data, sizeof in) == 0 && mt_buf_intact(&recv),
            "in place %d: error %d", in_place, err);
        mt_buf_free(&recv);
    }
    mt_agree();
}
END_TEST

/* inout = in x inout, 2x2 matrices of wrapping integers. */
static MPI_Datatype matrix;
static int bad_calls;
static void multiply_matrices(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const uint64_t *a = in;
    uint64_t *b = inout;
    bad_calls += *type != matrix || *len < 1;
    for (int i = 0; i < *len; i++, a += 4, b += 4) {
        uint64_t product[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, product, sizeof product);
    }
}

static void matrix_of(int rank, size_t i, uint64_t m[4])
{
    for (uint64_t k = 0; k < 4; k++)
        m[k] = mt_hash(mt_hash(mt_seed(), (uint64_t)rank), 4 * i + k);
}

START_TEST(test_scatter_operator_without_commutativity_runs_in_rank_order)
{
    static const size_t counts[] = {1, 3, 50, 1501};
    MPI_Op op;
    MPI_Type_contiguous(4, MPI_UINT64_T, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(multiply_matrices, 0, &op);
    bad_calls = 0;
    for (unsigned k = 0; k < COUNT_OF(counts); k++) {
        size_t count = counts[k], total = count * (size_t)mt_size;
        mt_note("matrices %zu", count);
        uint64_t *in = malloc(32 * total), *out = malloc(32 * count);
        for (size_t i = 0; i < total; i++)
            matrix_of(mt_rank, i, in + 4 * i);
        MPI_Reduce_scatter_block(in, out, (int)count, matrix, op, MPI_COMM_WORLD);
        for (size_t i = 0; i < count; i++) {
            uint64_t left[4], want[4];
            size_t element = (size_t)mt_rank * count + i;
            int one = 1;
            matrix_of(mt_size - 1, element, want);
            for (int r = mt_size - 2; r >= 0; r--) {
                matrix_of(r, element, left);
                multiply_matrices(left, want, &one, &matrix);
            }
            mt_check(memcmp(want, out + 4 * i, 32) == 0, "count %zu: matrix %zu", count, i);
        }
        free(in);
        free(out);
    }
    mt_check(bad_calls == 0, "%d calls had a foreign type or length", bad_calls);
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
    mt_agree();
}
END_TEST

static int gathered(int r, size_t i)
{
    return (int)mt_hash(mt_hash(mt_seed(), (uint64_t)r), i);
}

/* Where the data of a gather lies on one side: @step ints from one int to the next of a block. */
struct side {
    MPI_Datatype type;
    size_t per_element, step; /* ints of the type, and their distance */
};

/* Gathers @count ints from each rank, which the two sides lay out as they like. */
static void check_allgather(size_t count, const struct side *from, const struct side *to)
{
    size_t ranks = (size_t)mt_size;
    struct mt_buf send = mt_buf_new(count * from->step * sizeof(int), 0);
    struct mt_buf recv = mt_buf_new_result(count * to->step * ranks * sizeof(int), 0);
    int *mine = (int *)send.data, *all = (int *)recv.data;
    for (size_t i = 0; i < count; i++)
        mine[i * from->step] = gathered(mt_rank, i);
    uint64_t before = mt_digest(send.data, send.bytes);
    mt_note("allgather of %zu, steps %zu and %zu", count, from->step, to->step);
    int err = MPI_Allgather(mine, (int)(count / from->per_element), from->type, all,
        (int)(count / to->per_element), to->type, MPI_COMM_WORLD);
    mt_check(err == MPI_SUCCESS && mt_buf_intact(&recv) && mt_buf_intact(&send),
        "allgather of %zu: error %d or guards", count, err);
    mt_check(mt_digest(send.data, send.bytes) == before, "allgather of %zu: input changed", count);
    size_t wrong = 0;
    for (size_t i = 0; i < count * ranks; i++) {
        wrong += all[i * to->step] != gathered((int)(i / count), i % count);
        for (size_t hole = 1; hole < to->step; hole++)
            wrong += all[i * to->step + hole] != 0x7f7f7f7f;
    }
    mt_check(wrong == 0, "allgather of %zu, steps %zu and %zu: %zu elements or holes are wrong",
        count, from->step, to->step, wrong);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_gather_of_any_two_types_is_right)
{
    MPI_Datatype two, sparse, spread;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    MPI_Type_vector(2, 1, 3, MPI_INT, &sparse); /* x - - x, and resized to x - - x - - */
    MPI_Type_create_resized(sparse, 0, 6 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    const struct side sides[] = {{MPI_INT, 1, 1}, {two, 2, 1}, {spread, 2, 3}};
    static const size_t counts[] = {2, 8, 500, 4098, 30000};
    for (unsigned k = 0; k < COUNT_OF(counts); k++) {
        for (int pair = 0; pair < 9; pair++)
            check_allgather(counts[k], &sides[pair / 3], &sides[pair % 3]);
    }
    for (unsigned k = 0; k < COUNT_OF(blocks); k++)
        check_allgather(blocks[k], &sides[0], &sides[0]);
    MPI_Type_free(&two);
    MPI_Type_free(&sparse);
    MPI_Type_free(&spread);
    mt_agree();
}
END_TEST

START_TEST(test_gather_in_place_is_right)
{
    for (unsigned k = 0; k < COUNT_OF(blocks); k++) {
        size_t count = blocks[k], total = count * (size_t)mt_size, wrong = 0;
        struct mt_buf recv = mt_buf_new_result(total * sizeof(int), 0);
        int *all = (int *)recv.data;
        for (size_t i = 0; i < count; i++)
            all[(size_t)mt_rank * count + i] = gathered(mt_rank, i);
        /* Send count and type mean nothing here. */
        int err = MPI_Allgather(MPI_IN_PLACE, k % 2 ? -1 : 0, k % 2 ? MPI_DATATYPE_NULL : MPI_CHAR,
            all, (int)count, MPI_INT, MPI_COMM_WORLD);
        for (size_t i = 0; i < total; i++)
            wrong += all[i] != gathered((int)(i / count), i % count);
        mt_check(err == MPI_SUCCESS && wrong == 0 && mt_buf_intact(&recv),
            "count %zu: error %d, %zu wrong", count, err, wrong);
        mt_buf_free(&recv);
    }
    mt_agree();
}
END_TEST

/* Elements of four ints, each two ints after the one before: only a sender may do that. */
START_TEST(test_gather_of_overlapping_elements_is_right)
{
    MPI_Datatype four, overlapping;
    MPI_Type_contiguous(4, MPI_INT, &four);
    MPI_Type_create_resized(four, 0, 2 * sizeof(int), &overlapping);
    MPI_Type_commit(&overlapping);
    static const int counts[] = {1, 2, 5, 300, 5000};
    for (unsigned k = 0; k < COUNT_OF(counts); k++) {
        int count = counts[k], total = 4 * count * mt_size, wrong = 0;
        int *mine = malloc(((size_t)count * 2 + 2) * sizeof *mine);
        struct mt_buf recv = mt_buf_new_result((size_t)total * sizeof(int), 0);
        const int *all = (int *)recv.data;
        for (int i = 0; i < 2 * count + 2; i++)
            mine[i] = gathered(mt_rank, (size_t)i);
        int err =
            MPI_Allgather(mine, count, overlapping, recv.data, 4 * count, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < total; i++) {
            int at = i % (4 * count);
            wrong += all[i] != gathered(i / (4 * count), (size_t)(at / 4 * 2 + at % 4));
        }
        mt_check(err == MPI_SUCCESS && wrong == 0 && mt_buf_intact(&recv),
            "count %d: error %d, %d wrong", count, err, wrong);
        mt_buf_free(&recv);
        free(mine);
    }
    MPI_Type_free(&four);
    MPI_Type_free(&overlapping);
    mt_agree();
}
END_TEST

START_TEST(test_gather_and_scatter_of_nothing_touch_nothing)
{
    int guard = 77;
    for (int k = 0; k < 12; k++) {
        mt_check(MPI_Reduce_scatter_block(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) ==
                     MPI_SUCCESS,
            "scatter of null buffers");
        mt_check(MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS,
            "gather of null buffers");
        mt_check(MPI_Allgather(&guard, 0, MPI_INT, &guard, 0, MPI_DOUBLE, MPI_COMM_WORLD) ==
                         MPI_SUCCESS &&
                     guard == 77,
            "gather of nothing");
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_scatter_gather", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_gather_and_scatter_of_nothing_touch_nothing);
    tcase_add_test(tests, test_scatter_is_right);
    tcase_add_test(tests, test_scatter_on_one_rank_copies);
    tcase_add_test(tests, test_scatter_operator_without_commutativity_runs_in_rank_order);
    tcase_add_test(tests, test_gather_of_any_two_types_is_right);
    tcase_add_test(tests, test_gather_in_place_is_right);
    tcase_add_test(tests, test_gather_of_overlapping_elements_is_right);
    return mt_end();
}
