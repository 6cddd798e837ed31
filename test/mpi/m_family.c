/*
 * The calls around the all-reduce: reduce-scatter, all-gather, large counts, the mean, and the
 * calls that return text.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 5 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=socket */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=1+2+3 */
/* tiara-test: vcluster 2x2 */
/* tiara-test: vcluster 4x2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_NET=socket */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=none */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=pool */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=vmm */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed-inout */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=managed TIARA_LAYOUT=2x2 */
/* tiara-test: vcluster 2x2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const size_t blocks[] = {0, 1, 2, 3, 7, 40, 1000, 4096, 10007, 60001};

/* Block @mt_rank of a reduction over size x count elements; nothing past the block is written when
 * out of place. */
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
    int err = TIARA_Reduce_scatter_block(c->in_place ? MPI_IN_PLACE : mt_buf_lend(&send),
        mt_buf_lend(&recv), (int)c->count, c->type->handle, mt_oper_handle(c->oper), c->comm);
    if (!c->in_place)
        mt_buf_take(&send);
    mt_buf_take(&recv);
    mt_check(err == MPI_SUCCESS, "reduce-scatter count %zu: error %d", c->count, err);
    mt_verify(c, mt_size, c->count * (size_t)mt_rank, c->count, recv.data);
    mt_check(
        mt_buf_intact(&recv) && mt_buf_intact(&send), "reduce-scatter count %zu: guards", c->count);
    mt_check(mt_digest(send.data, send.bytes) == before, "reduce-scatter count %zu: input changed",
        c->count);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_reduce_scatter_block_is_right)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_INT, MT_SUM}, {MPI_DOUBLE, MT_SUM}, {MPI_UINT8_T, MT_MAX},
        {MPI_FLOAT, MT_AVG}, {MPI_DOUBLE_INT, MT_MINLOC}};
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

START_TEST(test_reduce_scatter_block_on_self_copies)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const int in[3] = {mt_rank, 7, -1};
        struct mt_buf send = mt_buf_new(sizeof in, 0), recv = mt_buf_new_result(sizeof in, 0);
        memcpy(send.data, in, sizeof in);
        memcpy(recv.data, in, in_place ? sizeof in : 0);
        int err = TIARA_Reduce_scatter_block(in_place ? MPI_IN_PLACE : mt_buf_lend(&send),
            mt_buf_lend(&recv), 3, MPI_INT, MPI_SUM, MPI_COMM_SELF);
        mt_buf_take(&recv);
        mt_check(
            err == MPI_SUCCESS && memcmp(in, recv.data, sizeof in) == 0 && mt_buf_intact(&recv),
            "in place %d: error %d", in_place, err);
        mt_buf_free(&send);
        mt_buf_free(&recv);
    }
    mt_agree();
}
END_TEST

/* Element i of rank r's contribution to a gather. */
static int gathered(int r, size_t i)
{
    return (int)mt_hash(mt_hash(mt_seed(), (uint64_t)r), i);
}

/* @pairs: the sender speaks of pairs of ints, which is the same signature. */
static void check_allgather(size_t count, bool in_place, bool pairs)
{
    size_t bytes = count * sizeof(int), total = bytes * (size_t)mt_size;
    mt_note("allgather count %zu in place %d pairs %d", count, in_place, pairs);
    struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(total, 0);
    int *mine = in_place ? (int *)recv.data + count * (size_t)mt_rank : (int *)send.data;
    for (size_t i = 0; i < count; i++)
        mine[i] = gathered(mt_rank, i);
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    int err = TIARA_Allgather(in_place ? MPI_IN_PLACE : mt_buf_lend(&send),
        in_place ? 0 : (int)count / (pairs ? 2 : 1),
        in_place ? MPI_DATATYPE_NULL
        : pairs  ? two
                 : MPI_INT,
        mt_buf_lend(&recv), (int)count, MPI_INT, MPI_COMM_WORLD);
    mt_buf_take(&recv);
    mt_check(err == MPI_SUCCESS && mt_buf_intact(&recv), "allgather count %zu: error %d or guards",
        count, err);
    const int *all = (const int *)recv.data;
    size_t wrong = 0;
    for (size_t i = 0; i < count * (size_t)mt_size; i++)
        wrong += all[i] != gathered((int)(i / count), i % count);
    mt_check(
        wrong == 0, "allgather count %zu in place %d: %zu elements wrong", count, in_place, wrong);
    MPI_Type_free(&two);
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_allgather_is_right)
{
    for (unsigned k = 0; k < COUNT_OF(blocks); k++) {
        check_allgather(blocks[k], false, false);
        check_allgather(blocks[k], true, false);
        if (blocks[k] % 2 == 0)
            check_allgather(blocks[k], false, true);
    }
    mt_agree();
}
END_TEST

/* Send type: 4 ints every 8 bytes, so that elements overlap; the type map rules, not the size. */
START_TEST(test_allgather_of_overlapping_elements_follows_the_type_map)
{
    MPI_Datatype four, overlapping;
    MPI_Type_contiguous(4, MPI_INT, &four);
    MPI_Type_create_resized(four, 0, 2 * sizeof(int), &overlapping);
    MPI_Type_commit(&overlapping);
    struct mt_buf send = mt_buf_new(8 * sizeof(int), 0),
                  recv = mt_buf_new_result((size_t)mt_size * 12 * sizeof(int), 0);
    int *in = (int *)send.data, *out = (int *)recv.data;
    for (int i = 0; i < 8; i++)
        in[i] = 100 * mt_rank + i;
    int err = TIARA_Allgather(
        mt_buf_lend(&send), 3, overlapping, mt_buf_lend(&recv), 12, MPI_INT, MPI_COMM_WORLD);
    mt_buf_take(&recv);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    for (int i = 0; i < 12 * mt_size; i++) {
        int want = 100 * (i / 12) + i % 12 / 4 * 2 + i % 4;
        mt_check(out[i] == want, "element %d is %d, not %d", i, out[i], want);
    }
    mt_buf_free(&send);
    mt_buf_free(&recv);
    MPI_Type_free(&overlapping);
    MPI_Type_free(&four);
    mt_agree();
}
END_TEST

/* Odd ranks spread their buffers over every second int: what a rank calls the data must not part it
 * from the others. */
static void check_allgather_mixed(int count, bool in_place)
{
    int step = mt_rank % 2 ? 2 : 1, total = count * mt_size;
    MPI_Datatype one, type;
    MPI_Type_create_resized(MPI_INT, 0, step * (MPI_Aint)sizeof(int), &one);
    MPI_Type_contiguous(1, one, &type);
    MPI_Type_commit(&type);
    struct mt_buf send = mt_buf_new((size_t)(count * step) * sizeof(int), 0);
    struct mt_buf recv = mt_buf_new_result((size_t)(total * step) * sizeof(int), 0);
    int *in = (int *)send.data, *out = (int *)recv.data;
    for (int i = 0; i < total * step; i++)
        out[i] = -1;
    for (int i = 0; i < count; i++)
        in[i * step] = out[(mt_rank * count + i) * step] = gathered(mt_rank, (size_t)i);
    int err = TIARA_Allgather(in_place ? MPI_IN_PLACE : mt_buf_lend(&send), count, type,
        mt_buf_lend(&recv), count, type, MPI_COMM_WORLD);
    mt_buf_take(&recv);
    mt_check(err == MPI_SUCCESS, "mixed types, count %d: error %d", count, err);
    for (int i = 0; i < total * step; i++) {
        int want = i % step ? -1 : gathered(i / step / count, (size_t)(i / step % count));
        mt_check(
            out[i] == want, "mixed types, count %d: int %d is %d, not %d", count, i, out[i], want);
    }
    mt_buf_free(&send);
    mt_buf_free(&recv);
    MPI_Type_free(&type);
    MPI_Type_free(&one);
}

START_TEST(test_allgather_types_may_differ_between_ranks)
{
    check_allgather_mixed(3, false);
    check_allgather_mixed(3, true);
    check_allgather_mixed(5000, false);
    check_allgather_mixed(5000, true);
    mt_agree();
}
END_TEST

START_TEST(test_avg_truncates_towards_zero)
{
    int in[3] = {-7 - mt_rank, 7 + mt_rank, mt_rank == 0 ? -1 : 0}, out[3] = {0};
    int sum = 0;
    for (int r = 0; r < mt_size; r++)
        sum += 7 + r;
    int err = mt_allreduce_arrays(in, out, 3, MPI_INT, TIARA_AVG, MPI_COMM_WORLD);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    mt_check(out[0] == -(sum / mt_size) && out[1] == sum / mt_size && out[2] == -1 / mt_size,
        "got %d %d %d, sum %d", out[0], out[1], out[2], sum);
    mt_agree();
}
END_TEST

START_TEST(test_allreduce_c_small_is_right)
{
    const long n = 5000;
    struct mt_buf send = mt_buf_new((size_t)n * sizeof(long), 0),
                  recv = mt_buf_new_result(send.bytes, 0);
    long *in = (long *)send.data, *out = (long *)recv.data;
    for (long i = 0; i < n; i++)
        in[i] = i * (mt_rank + 1);
    void *from = mt_buf_lend(&send), *to = mt_buf_lend(&recv);
    int err = TIARA_Allreduce_c(from, to, (MPI_Count)n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    mt_buf_take(&recv);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    for (long i = 0; i < n; i++)
        mt_check(out[i] == i * mt_size * (mt_size + 1) / 2, "element %ld is %ld", i, out[i]);
    err = TIARA_Allreduce_c(from, to, -1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    mt_check(err != MPI_SUCCESS, "a negative count was accepted");
    mt_buf_free(&send);
    mt_buf_free(&recv);
    mt_agree();
}
END_TEST

/* More than INT_MAX elements, when asked for by TIARA_TEST_BIG=1 and there is room. */
START_TEST(test_allreduce_c_beyond_int_is_right)
{
    const size_t n = ((size_t)1 << 31) + 3;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (!mt_env("TIARA_TEST_BIG", 0) || mt_size != 2 || pages < (12L << 30) / page) {
        if (mt_rank == 0)
            printf("m_family: large count skipped: needs TIARA_TEST_BIG=1, 2 ranks and 12 GB\n");
        return;
    }
    unsigned char *data = malloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i % 251 + (size_t)mt_rank);
    int err = TIARA_Allreduce_c(
        MPI_IN_PLACE, data, (MPI_Count)n, MPI_UNSIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
    mt_check(err == MPI_SUCCESS, "error %d", err);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += data[i] != (unsigned char)(2 * (i % 251) + 1);
    mt_check(wrong == 0, "%zu elements wrong", wrong);
    free(data);
    mt_agree();
}
END_TEST

START_TEST(test_comm_prepare_and_version_succeed)
{
    int major = -1, minor = -1, patch = -1;
    mt_check(TIARA_Comm_prepare(MPI_COMM_WORLD) == MPI_SUCCESS, "prepare failed");
    mt_check(TIARA_Comm_prepare(MPI_COMM_WORLD) == MPI_SUCCESS, "prepare failed the second time");
    mt_check(TIARA_Comm_prepare(MPI_COMM_SELF) == MPI_SUCCESS, "prepare of self failed");
    mt_check(TIARA_Get_version(&major, &minor, &patch) == MPI_SUCCESS, "version failed");
    mt_check(major == TIARA_VERSION_MAJOR && minor == TIARA_VERSION_MINOR &&
                 patch == TIARA_VERSION_PATCH,
        "version is %d.%d.%d", major, minor, patch);
    mt_agree();
}
END_TEST

START_TEST(test_explain_is_equal_on_all_ranks)
{
    const MPI_Count counts[] = {0, 1, 1000, 1000000};
    for (int k = 0; k < 4; k++) {
        char text[4000];
        memset(text, 0, sizeof text);
        int err = TIARA_Explain(counts[k], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, text, sizeof text);
        mt_check(
            err == MPI_SUCCESS && text[0] != '\0', "count %d: error %d, text %s", k, err, text);
        mt_check(
            mt_same_bits(text, strlen(text), mt_private), "count %d: this rank says: %s", k, text);
        char shorter[12] = "...........";
        err = TIARA_Explain(counts[k], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, shorter, 8);
        mt_check(err == MPI_SUCCESS && strlen(shorter) <= 7 &&
                     strncmp(shorter, text, strlen(shorter)) == 0,
            "short text is %s", shorter);
        mt_check(memcmp(shorter + 8, "...", 3) == 0, "written past the end of the text");
    }
    mt_agree();
}
END_TEST

START_TEST(test_report_sections_are_filled)
{
    for (int section = TIARA_REPORT_BUILD; section <= TIARA_REPORT_STATE; section++) {
        char text[20000], shorter[8];
        int length = -1, same = -1;
        mt_note("report section %d", section);
        int err = TIARA_Report(section, MPI_COMM_WORLD, text, sizeof text, &length);
        mt_check(err == MPI_SUCCESS && length > 0 && (size_t)length == strlen(text),
            "section %d: error %d length %d", section, err, length);
        mt_check(length > 0 && text[length - 1] == '\n', "section %d does not end in a newline",
            section);
        err = TIARA_Report(section, MPI_COMM_WORLD, shorter, sizeof shorter, &same);
        mt_check(err == MPI_SUCCESS && strlen(shorter) < sizeof shorter, "section %d: short text",
            section);
        mt_check(section == TIARA_REPORT_STATE || same == length, "section %d: length %d, then %d",
            section, length, same);
        mt_check(section != TIARA_REPORT_ENVIRONMENT || strstr(text, "TIARA_CHUNK"),
            "no TIARA_CHUNK in: %s", text);
    }
    char text[10];
    mt_check(TIARA_Report(99, MPI_COMM_WORLD, text, sizeof text, NULL) != MPI_SUCCESS,
        "section 99 exists");
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_family", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_reduce_scatter_block_is_right);
    tcase_add_test(tests, test_reduce_scatter_block_on_self_copies);
    tcase_add_test(tests, test_allgather_is_right);
    tcase_add_test(tests, test_allgather_of_overlapping_elements_follows_the_type_map);
    tcase_add_test(tests, test_allgather_types_may_differ_between_ranks);
    tcase_add_test(tests, test_avg_truncates_towards_zero);
    tcase_add_test(tests, test_allreduce_c_small_is_right);
    tcase_add_test(tests, test_allreduce_c_beyond_int_is_right);
    tcase_add_test(tests, test_comm_prepare_and_version_succeed);
    tcase_add_test(tests, test_explain_is_equal_on_all_ranks);
    tcase_add_test(tests, test_report_sections_are_filled);
    return mt_end();
}
