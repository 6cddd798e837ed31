/*
 * User-defined operators: on derived types with holes, odd extents and lower bounds, without
 * commutativity, on every layout. An operator sees only what the standard allows it to see: the
 * handle of the call and 1 to count elements.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 5 */
/* tiara-test: mpirun 9 */
/* tiara-test: mpirun 2 TIARA_LAYOUT=2x1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 TIARA_CHUNK=4k */
/* tiara-test: mpirun 6 TIARA_LAYOUT=1+2+3 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3:rr */
/* tiara-test: mpirun 6 TIARA_LAYOUT=0,1,1,0,2,0 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2:rr TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=sub */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=mixed-inout */
#include "mpi_buf.h"
#include "mpi_run.h"
#include "tiara.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOLE = 0x5c
};

/*
 * What the running operator may expect, and what it saw; operators have no argument of their own.
 */
static struct {
    MPI_Datatype type;
    int count;
    size_t extent;
    int calls, bad_calls;
} seen;

static void op_enter(const int *len, const MPI_Datatype *type)
{
    seen.calls++;
    seen.bad_calls += *type != seen.type || *len < 1 || *len > seen.count;
}

/* All-reduces @count elements and checks what the operator saw. */
static void call(struct mt_buf *send, struct mt_buf *recv, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type, &lb, &extent);
    seen.type = type;
    seen.count = count;
    seen.extent = (size_t)extent;
    seen.calls = seen.bad_calls = 0;
    int err = TIARA_Allreduce(send ? (char *)mt_buf_lend(send) - lb : MPI_IN_PLACE,
        (char *)mt_buf_lend(recv) - lb, count, type, op, MPI_COMM_WORLD);
    if (send)
        mt_buf_take(send);
    mt_buf_take(recv);
    mt_check(err == MPI_SUCCESS, "count %d: error %d", count, err);
    mt_check(seen.bad_calls == 0, "count %d: %d of %d calls had a foreign type or length", count,
        seen.bad_calls, seen.calls);
    mt_check(mt_size > 1 || seen.calls == 0, "operator called for a single rank");
    mt_check(
        mt_buf_intact(recv) && (!send || mt_buf_intact(send)), "count %d: guards damaged", count);
}

/* Number @field of element @i on @rank; small, so that sums of doubles are exact. */
static int datum(int rank, int i, int field)
{
    return (int)(mt_hash(mt_hash(mt_seed(), (uint64_t)rank), (uint64_t)(4 * i + field)) % 1000);
}

static int datum_sum(int i, int field)
{
    int sum = 0;
    for (int r = 0; r < mt_size; r++)
        sum += datum(r, i, field);
    return sum;
}

/* Three ints at @places of each element: the only bytes that the call may touch. */
static const int places[3] = {0, 8, 16};

static void sum_three_ints(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    for (int i = 0; i < *len; i++) {
        for (int k = 0; k < 3; k++) {
            size_t at = (size_t)i * seen.extent + (size_t)places[k];
            int a, b;
            memcpy(&a, (char *)in + at, sizeof a);
            memcpy(&b, (char *)inout + at, sizeof b);
            b += a;
            memcpy((char *)inout + at, &b, sizeof b);
        }
    }
}

/* sum_three_ints for types whose data starts at @delta from the element. */
static int first_int_at;
static void sum_three_ints_moved(void *in, void *inout, int *len, MPI_Datatype *type)
{
    sum_three_ints((char *)in + first_int_at, (char *)inout + first_int_at, len, type);
}

/*
 * Every second of six ints in an element of @extent bytes. data[0] is the first byte of the first
 * element's extent, and the ints begin @skip bytes after it.
 */
static void check_three_ints(
    MPI_Datatype type, size_t extent, size_t skip, int count, bool in_place)
{
    size_t span =
        (size_t)(count > 0 ? count - 1 : 0) * extent + (extent > skip + 24 ? extent : skip + 24);
    struct mt_buf send = mt_buf_new(span, 0), recv = mt_buf_new_result(span, 0);
    memset(send.data, HOLE + 1, span);
    memset(recv.data, HOLE, span);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3; k++) {
            int value = datum(mt_rank, i, k);
            size_t at = (size_t)i * extent + skip + (size_t)places[k];
            memcpy((in_place ? recv.data : send.data) + at, &value, sizeof value);
        }
    }
    MPI_Op op;
    MPI_Op_create(sum_three_ints_moved, 1, &op);
    call(in_place ? NULL : &send, &recv, count, type, op);
    MPI_Op_free(&op);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3; k++) {
            int value;
            unsigned char *p = recv.data + (size_t)i * extent + skip + (size_t)places[k];
            memcpy(&value, p, sizeof value);
            mt_check(value == datum_sum(i, k), "count %d: element %d.%d is %d, not %d", count, i, k,
                value, datum_sum(i, k));
            memset(p, HOLE, sizeof value);
        }
    }
    size_t written = 0;
    for (size_t b = 0; b < span; b++)
        written += recv.data[b] != HOLE;
    mt_check(written == 0, "count %d: %zu bytes of holes written", count, written);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

static const int some_counts[] = {0, 1, 2, 3, 10, 500, 4001};

START_TEST(test_vector_with_holes_keeps_its_holes)
{
    MPI_Datatype type;
    MPI_Type_vector(3, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    first_int_at = 0;
    for (unsigned k = 0; k < sizeof some_counts / sizeof some_counts[0]; k++) {
        mt_note("vector count %d", some_counts[k]);
        check_three_ints(type, 20, 0, some_counts[k], false);
        check_three_ints(type, 20, 0, some_counts[k], true);
    }
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

/* Lower bounds below and above zero, with room on both sides of the data. */
START_TEST(test_resized_types_with_lower_bounds_are_right)
{
    MPI_Datatype vector;
    MPI_Type_vector(3, 1, 2, MPI_INT, &vector);
    for (int lb = -8; lb <= 0; lb += 4) {
        MPI_Datatype type;
        MPI_Type_create_resized(vector, lb, 48, &type);
        MPI_Type_commit(&type);
        first_int_at = 0;
        for (unsigned k = 1; k < sizeof some_counts / sizeof some_counts[0]; k++) {
            mt_note("resized lb %d count %d", lb, some_counts[k]);
            check_three_ints(type, 48, (size_t)-lb, some_counts[k], k % 2);
        }
        MPI_Type_free(&type);
    }
    MPI_Type_free(&vector);
    mt_agree();
}
END_TEST

/*
 * The data lies at negative, then at positive displacements from the address that is passed. Long
 * vectors only when everything is asked for: Open MPI 4.1.4's ring damages memory with them, and
 * they may be passed on to it.
 */
START_TEST(test_displaced_types_are_right)
{
    for (int at = -32; at <= 40; at += 72) {
        int lengths[3] = {1, 1, 1};
        MPI_Aint displacements[3] = {at, at + 8, at + 16};
        MPI_Datatype type;
        MPI_Type_create_hindexed(3, lengths, displacements, MPI_INT, &type);
        MPI_Type_commit(&type);
        first_int_at = at;
        unsigned ncounts = mt_sweep() > 1 ? sizeof some_counts / sizeof some_counts[0] : 5;
        for (unsigned k = 1; k < ncounts; k++) {
            mt_note("displacement %d count %d", at, some_counts[k]);
            check_three_ints(type, 20, 0, some_counts[k], k % 2);
        }
        MPI_Type_free(&type);
    }
    mt_agree();
}
END_TEST

struct record {
    double weight;
    int best[3];
};

static void merge_records(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    const struct record *a = in;
    struct record *b = inout;
    for (int i = 0; i < *len; i++) {
        b[i].weight += a[i].weight;
        for (int k = 0; k < 3; k++)
            b[i].best[k] = a[i].best[k] > b[i].best[k] ? a[i].best[k] : b[i].best[k];
    }
}

static MPI_Datatype record_type(void)
{
    MPI_Datatype packed, type, parts[2] = {MPI_DOUBLE, MPI_INT};
    int lengths[2] = {1, 3};
    MPI_Aint at[2] = {offsetof(struct record, weight), offsetof(struct record, best)};
    MPI_Type_create_struct(2, lengths, at, parts, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(struct record), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&packed);
    return type;
}

START_TEST(test_struct_is_right)
{
    MPI_Datatype type = record_type();
    for (int k = 0; k < 14; k++) {
        int count = some_counts[k / 2];
        MPI_Op op;
        MPI_Op_create(merge_records, k % 2, &op);
        mt_note("struct count %d commute %d", count, k % 2);
        struct mt_buf send = mt_buf_new((size_t)count * sizeof(struct record), 0);
        struct mt_buf recv = mt_buf_new_result(send.bytes, 0);
        struct record *in = (struct record *)send.data, *out = (struct record *)recv.data;
        for (int i = 0; i < count; i++)
            in[i] = (struct record){datum(mt_rank, i, 0),
                {datum(mt_rank, i, 1), datum(mt_rank, i, 2), datum(mt_rank, i, 3)}};
        call(&send, &recv, count, type, op);
        for (int i = 0; i < count; i++) {
            int best = 0;
            for (int r = 0; r < mt_size; r++)
                best = datum(r, i, 3) > best ? datum(r, i, 3) : best;
            mt_check(out[i].weight == datum_sum(i, 0) && out[i].best[2] == best,
                "element %d is {%g, .. %d}", i, out[i].weight, out[i].best[2]);
        }
        mt_buf_free(&send);
        mt_buf_free(&recv);
        MPI_Op_free(&op);
    }
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

/*
 * A word of up to 16 letters, one per rank: its letters tell who was combined, and in which order.
 */
struct word {
    int length;
    char text[28];
};

static void join_words(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    for (int i = 0; i < *len; i++) {
        struct word *left = (struct word *)in + i, *right = (struct word *)inout + i,
                    joined = *left;
        int room = (int)sizeof joined.text - left->length;
        int take = right->length < room ? right->length : room;
        memcpy(joined.text + joined.length, right->text, (size_t)take);
        joined.length += take;
        *right = joined;
    }
}

START_TEST(test_operator_without_commutativity_runs_in_rank_order)
{
    MPI_Datatype type;
    MPI_Type_contiguous((int)sizeof(struct word), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Op op;
    MPI_Op_create(join_words, 0, &op);
    for (int k = 0; k < 14; k++) {
        int count = some_counts[k / 2];
        mt_note("words count %d in place %d", count, k % 2);
        struct mt_buf send = mt_buf_new((size_t)count * sizeof(struct word), 0);
        struct mt_buf recv = mt_buf_new_result(send.bytes, 0);
        struct word *in = (struct word *)(k % 2 ? recv.data : send.data),
                    *out = (struct word *)recv.data;
        for (int i = 0; i < count; i++)
            in[i] = (struct word){2, {(char)('A' + mt_rank), (char)('a' + i % 26)}};
        call(k % 2 ? NULL : &send, &recv, count, type, op);
        for (int i = 0; i < count; i++) {
            bool right = out[i].length == 2 * mt_size;
            for (int r = 0; r < mt_size && right; r++)
                right = out[i].text[2 * r] == 'A' + r && out[i].text[2 * r + 1] == 'a' + i % 26;
            mt_check(
                right, "count %d: element %d is %.*s", count, i, out[i].length & 31, out[i].text);
        }
        mt_buf_free(&send);
        mt_buf_free(&recv);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

/* inout = in x inout, 2x2 matrices of wrapping integers on the predefined type, four to an element
 * of a derived one. */
static void multiply_matrices(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    const uint64_t *a = in;
    uint64_t *b = inout;
    for (int i = 0; i < *len; i++, a += 4, b += 4) {
        uint64_t product[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, product, sizeof product);
    }
}

static void matrix_of(int rank, int i, uint64_t matrix[4])
{
    for (int k = 0; k < 4; k++)
        matrix[k] = mt_hash(mt_hash(mt_seed(), (uint64_t)rank), (uint64_t)(4 * i + k));
}

START_TEST(test_matrix_product_runs_in_rank_order)
{
    MPI_Datatype type;
    MPI_Type_contiguous(4, MPI_UINT64_T, &type);
    MPI_Type_commit(&type);
    MPI_Op op;
    MPI_Op_create(multiply_matrices, 0, &op);
    const int counts[] = {1, 2, 37, 2500, 20011};
    for (int k = 0; k < 5; k++) {
        mt_note("matrices count %d", counts[k]);
        struct mt_buf send = mt_buf_new((size_t)counts[k] * 32, 0),
                      recv = mt_buf_new_result(send.bytes, 0);
        for (int i = 0; i < counts[k]; i++)
            matrix_of(mt_rank, i, (uint64_t *)send.data + 4 * i);
        call(&send, &recv, counts[k], type, op);
        int one = 1;
        for (int i = 0; i < counts[k]; i++) {
            uint64_t left[4], want[4];
            matrix_of(mt_size - 1, i, want);
            for (int r = mt_size - 2; r >= 0; r--) {
                matrix_of(r, i, left);
                multiply_matrices(left, want, &one, &type);
            }
            mt_check(memcmp(want, recv.data + 32 * (size_t)i, 32) == 0, "count %d: matrix %d",
                counts[k], i);
        }
        mt_buf_free(&send);
        mt_buf_free(&recv);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

static void add_doubles(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    int ndoubles = (int)(seen.extent / sizeof(double));
    for (int i = 0; i < *len * ndoubles; i++)
        ((double *)inout)[i] += ((double *)in)[i];
}

static void check_doubles(MPI_Datatype type, int count, int ndoubles, MPI_Op op)
{
    mt_note("%d elements of %d doubles", count, ndoubles);
    struct mt_buf send = mt_buf_new((size_t)count * (size_t)ndoubles * sizeof(double), 0);
    struct mt_buf recv = mt_buf_new_result(send.bytes, 0);
    for (int i = 0; i < count * ndoubles; i++)
        ((double *)send.data)[i] = datum(mt_rank, i, 0);
    call(&send, &recv, count, type, op);
    for (int i = 0; i < count * ndoubles; i++)
        mt_check(((double *)recv.data)[i] == datum_sum(i, 0), "%d x %d: double %d is %g", count,
            ndoubles, i, ((double *)recv.data)[i]);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

/* An element larger than any chunk, and the same operator on a predefined type. */
START_TEST(test_huge_elements_and_predefined_types_are_right)
{
    MPI_Datatype huge;
    MPI_Type_contiguous(5000, MPI_DOUBLE, &huge);
    MPI_Type_commit(&huge);
    for (int commute = 0; commute < 2; commute++) {
        MPI_Op op;
        MPI_Op_create(add_doubles, commute, &op);
        check_doubles(huge, 1, 5000, op);
        check_doubles(huge, 7, 5000, op);
        for (unsigned k = 1; k < sizeof some_counts / sizeof some_counts[0]; k++)
            check_doubles(MPI_DOUBLE, some_counts[k], 1, op);
        MPI_Op_free(&op);
    }
    MPI_Type_free(&huge);
    mt_agree();
}
END_TEST

/* A handle that MPI gives out again after it was freed must not meet what was remembered about the
 * old one. */
START_TEST(test_freed_types_and_operators_are_forgotten)
{
    for (int k = 0; k < 200; k++) {
        int ndoubles = 1 + k % 5;
        MPI_Datatype type;
        MPI_Op op;
        MPI_Type_contiguous(ndoubles, MPI_DOUBLE, &type);
        MPI_Type_commit(&type);
        MPI_Op_create(add_doubles, k / 5 % 2, &op);
        check_doubles(type, 3 + k % 7, ndoubles, op);
        MPI_Op_free(&op);
        MPI_Type_free(&type);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_derived", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_vector_with_holes_keeps_its_holes);
    tcase_add_test(tests, test_resized_types_with_lower_bounds_are_right);
    tcase_add_test(tests, test_displaced_types_are_right);
    tcase_add_test(tests, test_struct_is_right);
    tcase_add_test(tests, test_operator_without_commutativity_runs_in_rank_order);
    tcase_add_test(tests, test_matrix_product_runs_in_rank_order);
    tcase_add_test(tests, test_huge_elements_and_predefined_types_are_right);
    tcase_add_test(tests, test_freed_types_and_operators_are_forgotten);
    return mt_end();
}
