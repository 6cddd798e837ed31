/*
 * TIARA_Allreduce_multi: any number of buffers of any sizes get what an all-reduce of each would
 * give them, in one message where they are small; errors name what is wrong.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 */
/* tiara-test: mpirun 5 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=4x1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 */
/* tiara-test: mpirun 4 TIARA_ALGO=mpi */
/* tiara-test: mpirun 3 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=2x2 */
/* tiara-test: vcluster 2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=mpi */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed-inout TIARA_TEST_SWEEP=0 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    MOST = 240 /* buffers of a call */
};

/* The buffers of one call. */
struct set {
    int n;
    int counts[MOST];
    struct mt_buf send[MOST], recv[MOST];
    const void *from[MOST];
    void *to[MOST];
};

static struct set *set_new(const int *counts, int n, size_t extent)
{
    struct set *s = calloc(1, sizeof *s);
    s->n = n;
    for (int i = 0; i < n; i++) {
        s->counts[i] = counts[i];
        s->send[i] = mt_buf_new((size_t)counts[i] * extent, 0);
        s->recv[i] = mt_buf_new_result((size_t)counts[i] * extent, 0);
    }
    return s;
}

static void set_free(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        mt_buf_free(&s->send[i]);
        mt_buf_free(&s->recv[i]);
    }
    free(s);
}

/* How a call says that it is in place. */
enum way {
    APART,
    IN_PLACE, /* MPI_IN_PLACE instead of the array */
    IN_PLACE_SOME, /* MPI_IN_PLACE for every other buffer, others on odd ranks */
    NWAYS
};

static bool is_in_place(enum way way, int i)
{
    return way == IN_PLACE || (way == IN_PLACE_SOME && (i + mt_rank) % 2 == 0);
}

/* Lends all buffers to one call, and takes them back. Returns what the call returned. */
static int call(struct set *s, enum way way, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    for (int i = 0; i < s->n; i++) {
        s->to[i] = mt_buf_lend(&s->recv[i]);
        s->from[i] = is_in_place(way, i) ? MPI_IN_PLACE : mt_buf_lend(&s->send[i]);
        if (s->counts[i] == 0 && i % 2 == 0) {
            s->to[i] = NULL;
            s->from[i] = s->from[i] == MPI_IN_PLACE ? MPI_IN_PLACE : NULL;
        }
    }
    int err = TIARA_Allreduce_multi(
        s->n, way == IN_PLACE ? MPI_IN_PLACE : s->from, s->to, s->counts, type, op, comm);
    for (int i = 0; i < s->n; i++) {
        if (!is_in_place(way, i))
            mt_buf_take(&s->send[i]);
        mt_buf_take(&s->recv[i]);
    }
    return err;
}

/* One call; buffer i has data and results of the seed c->seed + i. */
static void check_set(struct mt_case c, const int *counts, int n, enum way way)
{
    int rank, size;
    MPI_Comm_rank(c.comm, &rank);
    MPI_Comm_size(c.comm, &size);
    mt_note("%d buffers of %s, %s, way %d", n, c.type->name, mt_oper_name(c.oper), way);
    struct set *s = set_new(counts, n, mt_type_extent(c.type));
    uint64_t before[MOST], seed = c.seed;
    for (int i = 0; i < n; i++) {
        mt_fill(c.type, c.oper, seed + (uint64_t)i, rank, 0, (size_t)counts[i],
            is_in_place(way, i) ? s->recv[i].data : s->send[i].data);
        before[i] = mt_digest(s->send[i].data, s->send[i].bytes);
    }
    int err = call(s, way, c.type->handle, mt_oper_handle(c.oper), c.comm);
    mt_check(err == MPI_SUCCESS, "%d buffers: error %d", n, err);
    for (int i = 0; i < n; i++) {
        c.seed = seed + (uint64_t)i;
        c.count = (size_t)counts[i];
        bool right = mt_verify(&c, size, 0, c.count, s->recv[i].data);
        mt_check(right && mt_buf_intact(&s->recv[i]) && mt_buf_intact(&s->send[i]),
            "buffer %d of %d, way %d: wrong, or guards damaged", i, n, way);
        mt_check(mt_digest(s->send[i].data, s->send[i].bytes) == before[i],
            "buffer %d of %d, way %d: input changed", i, n, way);
    }
    set_free(s);
}

/* ---- results ---- */

/* Sets of counts: few and many, empty ones between, below and above what goes by itself and what is
 * packed at a time. */
static int make_counts(int which, int *counts)
{
    static const int mixed[] = {3, 0, 40000, 1, 0, 7, 100000, 2, 20000, 5};
    static const int edges[] = {2048, 2049, 4095, 4096, 4097, 1, 16383, 16384, 16385, 1, 8192};
    static const int one[] = {5};
    static const int none[] = {0, 0, 0};
    const int *from[] = {one, none, mixed, edges};
    const int lengths[] = {COUNT_OF(one), COUNT_OF(none), COUNT_OF(mixed), COUNT_OF(edges)};
    if (which < 4) {
        memcpy(counts, from[which], (size_t)lengths[which] * sizeof *counts);
        return lengths[which];
    }
    int n = which == 4 ? 37 : which == 5 ? MOST : 90;
    for (int i = 0; i < n; i++)
        counts[i] = which == 6 ? 4000 + i : (int)(mt_hash((uint64_t)which, (uint64_t)i) % 90);
    return n;
}
enum {
    NSETS = 7
};

START_TEST(test_every_buffer_gets_its_result)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_INT, MT_SUM}, {MPI_DOUBLE, MT_SUM}, {MPI_FLOAT, MT_AVG},
        {MPI_UINT8_T, MT_BXOR}, {TIARA_BFLOAT16, MT_SUM}, {MPI_DOUBLE_INT, MT_MINLOC}};
    int counts[MOST];
    for (int which = 0; which < NSETS; which++) {
        int n = make_counts(which, counts);
        for (unsigned k = 0; k < COUNT_OF(pairs) * NWAYS; k++) {
            struct mt_case c = {.type = mt_type_find(pairs[k / NWAYS].type),
                .oper = pairs[k / NWAYS].oper,
                .seed = mt_seed() + 1000 * k,
                .comm = MPI_COMM_WORLD};
            if (which < 2 || (k + (unsigned)which) % (mt_sweep() > 0 ? 4 : 6) == 0)
                check_set(c, counts, n, (enum way)(k % NWAYS));
        }
    }
    mt_agree();
}
END_TEST

START_TEST(test_no_buffers_are_no_call)
{
    const void *const *in_place[] = {NULL, MPI_IN_PLACE};
    for (int k = 0; k < 2; k++) {
        int err =
            TIARA_Allreduce_multi(0, in_place[k], NULL, NULL, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        mt_check(err == MPI_SUCCESS, "in place %d: error %d", k, err);
    }
    mt_agree();
}
END_TEST

START_TEST(test_other_communicators_are_served)
{
    MPI_Comm half, inter;
    int counts[MOST], n = make_counts(4, counts), low = mt_rank < mt_size / 2;
    struct mt_case c = {.type = mt_type_find(MPI_INT), .oper = MT_SUM, .seed = mt_seed()};
    c.comm = MPI_COMM_SELF;
    check_set(c, counts, n, APART);
    MPI_Comm_split(MPI_COMM_WORLD, low, -mt_rank, &half);
    c.comm = half;
    check_set(c, counts, n, IN_PLACE);
    if (mt_size > 1) {
        MPI_Intercomm_create(
            half, 0, MPI_COMM_WORLD, low ? mt_size - 1 : mt_size / 2 - 1, 9, &inter);
        int in[3] = {mt_rank, 1, 2 * mt_rank}, out[3] = {-1, -1, -1}, sum = 0;
        const void *from[2] = {in, in + 1};
        void *to[2] = {out, out + 1};
        const int sizes[2] = {1, 2};
        int err = TIARA_Allreduce_multi(2, from, to, sizes, MPI_INT, MPI_SUM, inter);
        int first = low ? mt_size / 2 : 0, end = low ? mt_size : mt_size / 2;
        for (int r = first; r < end; r++)
            sum += r;
        mt_check(err == MPI_SUCCESS && out[0] == sum && out[1] == end - first && out[2] == 2 * sum,
            "between groups: error %d, %d %d %d", err, out[0], out[1], out[2]);
        MPI_Comm_free(&inter);
    }
    MPI_Comm_free(&half);
    mt_agree();
}
END_TEST

/* Numbers whose sums depend on the order of addition. */
static float inexact(int rank, int buffer, int i)
{
    uint64_t h = mt_hash(mt_hash(mt_seed(), (uint64_t)(rank + 100 * buffer)), (uint64_t)i);
    return (float)(h >> 40) * (h % 2 ? 1e-3F : 1e3F);
}

/* With TIARA_REPRODUCIBLE the sums from the left, in rank order; the same bits on all ranks, and
 * again, in any case. */
START_TEST(test_sums_have_the_same_bits_everywhere)
{
    int counts[MOST], n = make_counts(4, counts);
    struct set *s = set_new(counts, n, sizeof(float));
    uint64_t digest[2] = {0, 0};
    for (int run = 0; run < 2; run++) {
        for (int b = 0; b < n; b++)
            for (int i = 0; i < counts[b]; i++)
                ((float *)s->send[b].data)[i] = inexact(mt_rank, b, i);
        int err = call(s, APART, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        mt_check(err == MPI_SUCCESS, "error %d", err);
        for (int b = 0; b < n; b++)
            digest[run] = mt_hash(digest[run], mt_digest(s->recv[b].data, s->recv[b].bytes));
    }
    mt_check(digest[0] == digest[1], "the second call has other bits");
    mt_check(mt_same_bits(digest, sizeof digest, mt_private), "ranks have different bits");
    for (int b = 0; b < n && mt_env("TIARA_REPRODUCIBLE", 0); b++)
        for (int i = 0; i < counts[b]; i++) {
            volatile float sum = inexact(0, b, i);
            for (int r = 1; r < mt_size; r++)
                sum += inexact(r, b, i);
            float got = ((float *)s->recv[b].data)[i];
            mt_check(got == sum, "buffer %d, element %d: %a, the left fold is %a", b, i,
                (double)got, (double)sum);
        }
    set_free(s);
    mt_agree();
}
END_TEST

/* Two ints of each three, joined by an operator that has an order: (a, b) then (c, d) is (a, d). */
static void ends_of(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        ((int *)inout)[3 * i] = ((int *)in)[3 * i];
}

START_TEST(test_elements_with_holes_keep_them)
{
    MPI_Datatype pair, type;
    MPI_Op op;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 3 * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Op_create(ends_of, 0, &op);
    const int counts[] = {4, 0, 1, 700};
    struct set *s = set_new(counts, 4, 3 * sizeof(int));
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < 3 * counts[b]; i++) {
            ((int *)s->send[b].data)[i] = 1000 * mt_rank + i + b;
            ((int *)s->recv[b].data)[i] = -7;
        }
    int err = call(s, APART, type, op, MPI_COMM_WORLD);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < 3 * counts[b]; i++) {
            int got = ((int *)s->recv[b].data)[i];
            int want = i % 3 == 0 ? i + b : i % 3 == 1 ? -7 : 1000 * (mt_size - 1) + i + b;
            mt_check(got == want, "buffer %d, int %d is %d, not %d", b, i, got, want);
        }
    set_free(s);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Type_free(&pair);
    mt_agree();
}
END_TEST

/* ---- one message ---- */

/* Calls so far of small slots, plans and the MPI below. */
static unsigned long long calls_of(MPI_Comm comm)
{
    static const char label[] = "calls through small slots, plans, MPI";
    unsigned long long small = 0, plan = 0, mpi = 0;
    char text[4000] = "";
    TIARA_Report(TIARA_REPORT_STATE, comm, text, sizeof text, NULL);
    const char *line = strstr(text, label);
    mt_check(line && sscanf(line + strlen(label), " %llu , %llu , %llu", &small, &plan, &mpi) == 3,
        "the report does not count calls: %s", text);
    return small + plan + mpi;
}

START_TEST(test_small_buffers_share_a_message)
{
    int counts[MOST], n = make_counts(4, counts);
    struct mt_case c = {.type = mt_type_find(MPI_FLOAT), .oper = MT_SUM, .seed = mt_seed()};
    MPI_Comm_dup(MPI_COMM_WORLD, &c.comm);
    bool by_mpi_staged = mt_place_of(true) != MT_PLACE_HOST && getenv("TIARA_ALGO");
    TIARA_Comm_prepare(c.comm);
    unsigned long long before = calls_of(c.comm);
    check_set(c, counts, n, APART);
    unsigned long long more = calls_of(c.comm) - before;
    mt_check(mt_size == 1 || by_mpi_staged || more == 1, "%d buffers took %llu calls", n, more);
    MPI_Comm_free(&c.comm);
    mt_agree();
}
END_TEST

/* ---- errors ---- */

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

/* The arguments of a right call of three buffers, of 4, 0 and 2 ints, for one thing to be made
 * wrong. */
struct args {
    int n;
    const void *from[3];
    void *to[3];
    int counts[3];
    MPI_Datatype type;
    MPI_Op op;
};
static struct mt_buf wrong_in, wrong_out;

static struct args right_args(void)
{
    int *in = mt_buf_lend(&wrong_in), *out = mt_buf_lend(&wrong_out);
    return (struct args){3, {in, NULL, in + 4}, {out, NULL, out + 4}, {4, 0, 2}, MPI_INT, MPI_SUM};
}

/* @says: what the line on standard error has to name. */
static void expect(const char *what, const struct args *a, int want, const char *says)
{
    mt_note("%s", what);
    mt_stderr_begin();
    int err =
        TIARA_Allreduce_multi(a->n, a->from, a->to, a->counts, a->type, a->op, MPI_COMM_WORLD);
    char *text = mt_stderr_end();
    mt_check(class_of(err) == want, "%s: error class %d, not %d", what, class_of(err), want);
    mt_check(strstr(text, says) != NULL, "%s: no \"%s\" in: %s", what, says, text);
    free(text);
    const int counts[] = {1, 20, 300};
    check_set((struct mt_case){.type = mt_type_find(MPI_INT),
                  .oper = MT_SUM,
                  .seed = mt_seed(),
                  .comm = MPI_COMM_WORLD},
        counts, 3, APART);
}

START_TEST(test_wrong_arguments_are_named)
{
    struct args a = right_args();
    a.n = -3;
    expect("negative n", &a, MPI_ERR_COUNT, "n is -3");
    a = right_args();
    a.counts[2] = -17;
    expect("negative count", &a, MPI_ERR_COUNT, "counts[2] is -17");
    a = right_args();
    a.from[2] = NULL;
    expect("null send buffer", &a, MPI_ERR_BUFFER, "sendbufs[2]");
    a = right_args();
    a.to[0] = NULL;
    expect("null receive buffer", &a, MPI_ERR_BUFFER, "recvbufs[0]");
    a = right_args();
    a.from[2] = a.to[2];
    expect("equal buffers", &a, MPI_ERR_BUFFER, "recvbufs[2]");
    a = right_args();
    a.to[2] = MPI_IN_PLACE;
    expect("in place for a result", &a, MPI_ERR_BUFFER, "recvbufs[2]");
    a = right_args();
    a.type = MPI_DATATYPE_NULL;
    expect("null type", &a, MPI_ERR_TYPE, "");
    a = right_args();
    a.op = MPI_OP_NULL;
    expect("null operator", &a, MPI_ERR_OP, "");
    a = right_args();
    a.type = MPI_DOUBLE;
    a.op = MPI_BAND;
    expect("an operator that the type has not", &a, MPI_ERR_OP, "");
    a = right_args();
    int err = TIARA_Allreduce_multi(3, a.from, a.to, a.counts, a.type, a.op, MPI_COMM_NULL);
    mt_check(class_of(err) == MPI_ERR_COMM, "null communicator: class %d", class_of(err));
    err = TIARA_Allreduce_multi(3, a.from, a.to, NULL, a.type, a.op, MPI_COMM_WORLD);
    mt_check(class_of(err) == MPI_ERR_COUNT, "no counts: class %d", class_of(err));
    err = TIARA_Allreduce_multi(3, a.from, NULL, a.counts, a.type, a.op, MPI_COMM_WORLD);
    mt_check(class_of(err) == MPI_ERR_BUFFER, "no receive buffers: class %d", class_of(err));
    mt_agree();
}
END_TEST

/* One rank calls with another count. All return, at least one sees it, and the communicator goes on
 * working. */
START_TEST(test_counts_that_differ_between_ranks_are_seen)
{
    int counts[3] = {4000, 7, 20000}, mine, failed;
    struct mt_case c = {.type = mt_type_find(MPI_INT), .oper = MT_SUM, .seed = mt_seed()};
    /* The MPI below does not look. */
    bool looks = mt_size > 1 && !getenv("TIARA_ALGO");
    MPI_Comm_dup(MPI_COMM_WORLD, &c.comm);
    MPI_Comm_set_errhandler(c.comm, MPI_ERRORS_RETURN);
    check_set(c, counts, 3, APART);
    counts[1] = looks && mt_rank == mt_size - 1 ? 8 : 7;
    mt_note("a rank with another count");
    struct set *s = set_new(counts, 3, sizeof(int));
    mine = call(s, APART, MPI_INT, MPI_SUM, c.comm) != MPI_SUCCESS;
    PMPI_Allreduce(&mine, &failed, 1, MPI_INT, MPI_SUM, mt_private);
    mt_check(looks ? failed > 0 : failed == 0, "%d ranks saw an error", failed);
    for (int i = 0; i < 3; i++)
        mt_check(mt_buf_intact(&s->recv[i]), "guards of buffer %d", i);
    set_free(s);
    counts[1] = 7;
    check_set(c, counts, 3, APART);
    MPI_Comm_free(&c.comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_multi", MPI_THREAD_SINGLE);
    wrong_in = mt_buf_new(16 * sizeof(int), 0);
    wrong_out = mt_buf_new_result(16 * sizeof(int), 0);
    tcase_add_test(tests, test_every_buffer_gets_its_result);
    tcase_add_test(tests, test_no_buffers_are_no_call);
    tcase_add_test(tests, test_other_communicators_are_served);
    tcase_add_test(tests, test_sums_have_the_same_bits_everywhere);
    tcase_add_test(tests, test_elements_with_holes_keep_them);
    tcase_add_test(tests, test_small_buffers_share_a_message);
    tcase_add_test(tests, test_wrong_arguments_are_named);
    tcase_add_test(tests, test_counts_that_differ_between_ranks_are_seen);
    int status = mt_end();
    mt_buf_free(&wrong_in);
    mt_buf_free(&wrong_out);
    return status;
}
