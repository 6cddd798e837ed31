/*
 * MPI_Allreduce with operators of the program (MPI 4.0, section 6.9.5) and derived types: holes,
 * bounds, absolute addresses, rank order, and what an operator may see: the handle of the call, and
 * 1 to count elements.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 5 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify */
#include "s_suite.h"

#include <pthread.h>

enum {
    HOLE = 0x5c
};

/*
 * What the running operator may expect, and what it saw; operators have no argument of their own.
 */
static struct {
    MPI_Datatype type;
    int count;
    ptrdiff_t extent,
        at; /* from one element to the next, and from the address passed to the first datum */
    pthread_t thread; /* a program of one thread has its operators called in that one */
    int calls, bad_calls;
} seen;

static void op_enter(const int *len, const MPI_Datatype *type)
{
    seen.calls++;
    seen.bad_calls += *type != seen.type || *len < 1 || *len > seen.count ||
                      !pthread_equal(pthread_self(), seen.thread);
}

/* All-reduces @count elements, some blocking, some not, and checks what the operator saw. */
static void call(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op)
{
    static unsigned ncalls;
    MPI_Aint lb, extent;
    int err;
    MPI_Type_get_extent(type, &lb, &extent);
    seen.type = type;
    seen.count = count;
    seen.extent = extent;
    seen.thread = pthread_self();
    seen.calls = seen.bad_calls = 0;
    if (ncalls++ % 3 == 2) {
        MPI_Request request;
        err = MPI_Iallreduce(send, recv, count, type, op, MPI_COMM_WORLD, &request);
        if (err == MPI_SUCCESS)
            err = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        err = MPI_Allreduce(send, recv, count, type, op, MPI_COMM_WORLD);
    }
    mt_check(err == MPI_SUCCESS, "count %d: error %d", count, err);
    mt_check(seen.bad_calls == 0, "count %d: %d of %d calls had a foreign type, length or thread",
        count, seen.bad_calls, seen.calls);
    mt_check(mt_size > 1 || seen.calls == 0, "operator called for a single rank");
}

/* Number @field of element @i of rank @rank. */
static int datum(int rank, int i, int field)
{
    return s_datum(mt_seed(), rank, 4 * (size_t)i + (size_t)field);
}

static int datum_sum(int i, int field)
{
    return s_sum(mt_seed(), mt_size, 4 * (size_t)i + (size_t)field);
}

/* Adds ints at 0, 8 and 16 bytes of each element: the only bytes that the call may touch. */
static void add_three(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    for (int i = 0; i < *len; i++) {
        for (int k = 0; k < 3; k++) {
            ptrdiff_t at = i * seen.extent + seen.at + 8 * k;
            int a, b;
            memcpy(&a, (char *)in + at, sizeof a);
            memcpy(&b, (char *)inout + at, sizeof b);
            b += a;
            memcpy((char *)inout + at, &b, sizeof b);
        }
    }
}

/*
 * Three ints with holes between them, in elements of @extent bytes from @lb on. The address that is
 * passed lies @room bytes into the buffer.
 */
static void check_holes(MPI_Datatype type, size_t extent, size_t room, int count, bool in_place)
{
    size_t bytes = room + (size_t)count * extent + 24;
    struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(bytes, 0);
    memset(send.data, HOLE + 1, bytes);
    memset(recv.data, HOLE, bytes);
    unsigned char *wanted = malloc(bytes);
    memset(wanted, HOLE, bytes);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3; k++) {
            size_t at = room + (size_t)i * extent + 8 * (size_t)k;
            int mine = datum(mt_rank, i, k), sum = datum_sum(i, k);
            memcpy((in_place ? recv.data : send.data) + at, &mine, sizeof mine);
            memcpy(wanted + at, &sum, sizeof sum);
        }
    }
    MPI_Op op;
    MPI_Op_create(add_three, count % 2, &op);
    call(in_place ? MPI_IN_PLACE : send.data + room, recv.data + room, count, type, op);
    MPI_Op_free(&op);
    mt_check(memcmp(wanted, recv.data, bytes) == 0, "count %d: sums or holes are wrong", count);
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "count %d: guards damaged", count);
    free(wanted);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

static const int some_counts[] = {1, 2, 3, 10, 500, 3001};

START_TEST(test_derived_holes_are_kept)
{
    MPI_Datatype vector, padded, below;
    MPI_Type_vector(3, 1, 2, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 48, &padded);
    MPI_Type_create_resized(vector, -8, 40, &below);
    MPI_Type_commit(&vector);
    MPI_Type_commit(&padded);
    MPI_Type_commit(&below);
    seen.at = 0;
    for (unsigned k = 0; k < 2 * COUNT_OF(some_counts); k++) {
        mt_note("holes, count %d in place %d", some_counts[k / 2], k % 2);
        check_holes(vector, 20, 0, some_counts[k / 2], k % 2);
        check_holes(padded, 48, 0, some_counts[k / 2], k % 2);
        check_holes(below, 40, 8, some_counts[k / 2], k % 2);
    }
    MPI_Type_free(&vector);
    MPI_Type_free(&padded);
    MPI_Type_free(&below);
    mt_agree();
}
END_TEST

/*
 * A type of absolute addresses, with MPI_BOTTOM for the buffer. Types differ between ranks, as
 * addresses do, but signatures do not. A single element: Open MPI 4.1 damages memory with long
 * vectors of displaced types.
 */
START_TEST(test_derived_absolute_addresses_are_right)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        int send[5] = {0}, recv[5] = {HOLE, HOLE, HOLE, HOLE, HOLE}, lengths[3] = {1, 1, 1};
        int *data = in_place ? recv : send;
        MPI_Aint base, other, bottom, at[3];
        MPI_Datatype type;
        MPI_Op op;
        for (int k = 0; k < 3; k++)
            data[2 * k] = datum(mt_rank, 0, k);
        MPI_Get_address(data, &base);
        MPI_Get_address(recv, &other);
        MPI_Get_address(MPI_BOTTOM, &bottom);
        for (int k = 0; k < 3; k++)
            at[k] = MPI_Aint_add(base, 8 * k);
        MPI_Type_create_hindexed(3, lengths, at, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Op_create(add_three, 1, &op);
        seen.at = base;
        mt_note("absolute addresses, in place %d", in_place);
        if (in_place)
            call(MPI_IN_PLACE, MPI_BOTTOM, 1, type, op);
        else
            call(MPI_BOTTOM, (void *)MPI_Aint_add(bottom, MPI_Aint_diff(other, base)), 1, type, op);
        for (int k = 0; k < 3; k++)
            mt_check(recv[2 * k] == datum_sum(0, k), "in place %d: number %d is %d, not %d",
                in_place, k, recv[2 * k], datum_sum(0, k));
        mt_check(recv[1] == HOLE && recv[3] == HOLE, "in place %d: a hole was written", in_place);
        MPI_Op_free(&op);
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

static void check_records(MPI_Datatype type, int count, int commute)
{
    MPI_Op op;
    MPI_Op_create(merge_records, commute, &op);
    mt_note("records, count %d commute %d", count, commute);
    struct record *in = calloc((size_t)count, sizeof *in),
                  *out = calloc((size_t)count, sizeof *out);
    for (int i = 0; i < count; i++)
        in[i] = (struct record){datum(mt_rank, i, 0),
            {datum(mt_rank, i, 1), datum(mt_rank, i, 2), datum(mt_rank, i, 3)}};
    call(in, out, count, type, op);
    for (int i = 0; i < count; i++) {
        bool right = out[i].weight == datum_sum(i, 0);
        for (int k = 1; k < 4; k++) {
            int best = datum(0, i, k);
            for (int r = 1; r < mt_size; r++)
                best = datum(r, i, k) > best ? datum(r, i, k) : best;
            right = right && out[i].best[k - 1] == best;
        }
        mt_check(right, "count %d: record %d is {%g, %d, %d, %d}", count, i, out[i].weight,
            out[i].best[0], out[i].best[1], out[i].best[2]);
    }
    free(in);
    free(out);
    MPI_Op_free(&op);
}

START_TEST(test_derived_structs_are_right)
{
    MPI_Datatype type = record_type();
    for (unsigned k = 0; k < 2 * COUNT_OF(some_counts); k++)
        check_records(type, some_counts[k / 2], k % 2);
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

/* A word of up to 16 ranks: its letters tell who was combined, and in which order. */
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

static void check_words(MPI_Datatype type, MPI_Op op, int count, bool in_place)
{
    mt_note("words, count %d in place %d", count, in_place);
    size_t bytes = (size_t)count * sizeof(struct word);
    struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(bytes, 0);
    struct word *in = (struct word *)(in_place ? recv.data : send.data);
    const struct word *out = (struct word *)recv.data;
    for (int i = 0; i < count; i++)
        in[i] = (struct word){2, {(char)('A' + mt_rank), (char)('a' + i % 26)}};
    call(in_place ? MPI_IN_PLACE : in, recv.data, count, type, op);
    for (int i = 0; i < count; i++) {
        bool right = out[i].length == 2 * mt_size;
        for (int r = 0; r < mt_size && right; r++)
            right = out[i].text[2 * r] == 'A' + r && out[i].text[2 * r + 1] == 'a' + i % 26;
        mt_check(right, "count %d: element %d is %.*s", count, i, out[i].length & 31, out[i].text);
    }
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "count %d: guards damaged", count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_derived_operator_without_commutativity_runs_in_rank_order)
{
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous((int)sizeof(struct word), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(join_words, 0, &op);
    for (unsigned k = 0; k < 2 * COUNT_OF(some_counts); k++)
        check_words(type, op, some_counts[k / 2], k % 2);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

static void add_longs(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    for (int i = 0; i < *len; i++)
        ((long *)inout)[i] += ((long *)in)[i];
}

static void take_larger_longs(void *in, void *inout, int *len, MPI_Datatype *type)
{
    op_enter(len, type);
    for (int i = 0; i < *len; i++) {
        if (((long *)in)[i] > ((long *)inout)[i])
            ((long *)inout)[i] = ((long *)in)[i];
    }
}

/* MPI gives handles of freed operators out again, for other functions: nothing may be remembered of
 * a handle. */
START_TEST(test_derived_recycled_operators_are_new)
{
    long in[600], out[600];
    for (int i = 0; i < 600; i++)
        in[i] = i + mt_rank;
    for (int k = 0; k < 24; k++) {
        MPI_Op op;
        int count = k % 3 ? 5 : 600;
        MPI_Op_create(k % 2 ? add_longs : take_larger_longs, k / 2 % 2, &op);
        call(in, out, count, MPI_LONG, op);
        MPI_Op_free(&op);
        for (int i = 0; i < count; i++) {
            long want = k % 2 ? (long)mt_size * i + mt_size * (mt_size - 1) / 2 : i + mt_size - 1;
            mt_check(out[i] == want, "round %d: element %d is %ld, not %ld", k, i, out[i], want);
        }
    }
    mt_agree();
}
END_TEST

/* So it is with types: the same handle may mean another extent. */
START_TEST(test_derived_recycled_types_are_new)
{
    seen.at = 0;
    for (int k = 0; k < 16; k++) {
        MPI_Datatype vector, type;
        size_t extent = k % 2 ? 20 : 32;
        MPI_Type_vector(3, 1, 2, MPI_INT, &vector);
        MPI_Type_create_resized(vector, 0, (MPI_Aint)extent, &type);
        MPI_Type_free(&vector);
        MPI_Type_commit(&type);
        check_holes(type, extent, 0, k % 3 ? 4 : 300, false);
        MPI_Type_free(&type);
    }
    mt_agree();
}
END_TEST

static void never_needed(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in;
    (void)inout;
    op_enter(len, type);
}

START_TEST(test_derived_empty_types_touch_nothing)
{
    MPI_Datatype type;
    MPI_Op op;
    int in = 1, out = 2;
    MPI_Type_contiguous(0, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(never_needed, 1, &op);
    for (int count = 0; count < 4; count++) {
        int err = MPI_Allreduce(&in, &out, count, type, op, MPI_COMM_WORLD);
        mt_check(err == MPI_SUCCESS && out == 2, "count %d: error %d, %d", count, err, out);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_derived", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_derived_holes_are_kept);
    tcase_add_test(tests, test_derived_absolute_addresses_are_right);
    tcase_add_test(tests, test_derived_structs_are_right);
    tcase_add_test(tests, test_derived_operator_without_commutativity_runs_in_rank_order);
    tcase_add_test(tests, test_derived_recycled_operators_are_new);
    tcase_add_test(tests, test_derived_recycled_types_are_new);
    tcase_add_test(tests, test_derived_empty_types_touch_nothing);
    return mt_end();
}
