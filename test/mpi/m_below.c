/*
 * What only Tiara knows, its types and TIARA_AVG, where the MPI below does the call: right in every
 * form, also on intercommunicators; the same bits on all ranks; and without a rank's memory
 * following from the number of ranks.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 4 TIARA_ALGO=mpi */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call TIARA_ALGO=mpi */
/* tiara-test: mpirun 3 TIARA_ALGO=mpi TIARA_TEST_MEMORY=device */
#include "m_requests_case.h"
#include "mpi_wide.h"

/* Nothing is proved about the MPI below by calls that Tiara does. */
static void check_is_left(void)
{
    int answer;
    const char *why;
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    TIARA_Comm_serves(MPI_COMM_WORLD, 1, 1000, MPI_FLOAT, TIARA_AVG, &answer, &why);
    mt_check(answer == TIARA_SERVES_NO, "nonblocking calls are Tiara's: %s", why);
}

static void check_case(const struct mt_case *c, bool persistent)
{
    struct mr_job job = mr_new(c);
    if (persistent) {
        mr_init(&job);
        for (int k = 0; k < 2; k++) {
            if (!job.c.in_place)
                mt_buf_take(&job.send);
            mt_buf_take(&job.recv);
            mr_fill(&job);
            mr_lend(&job);
            mt_buf_lend(&job.recv);
            TIARA_Start(&job.request);
            TIARA_Wait(&job.request, MPI_STATUS_IGNORE);
            mr_check(&job);
        }
        TIARA_Request_free(&job.request);
        mr_free(&job);
    } else {
        mr_start(&job);
        mr_wait(&job);
    }
}

START_TEST(test_below_all_that_mpi_lacks_is_right)
{
    static const size_t counts[] = {1, 7, 1000, 9001};
    int ntypes;
    const struct mt_type *types = mt_types(&ntypes);
    unsigned i = 0;
    check_is_left();
    for (int t = 0; t < ntypes; t++) {
        bool own = strncmp(types[t].name, "TIARA_", 6) == 0;
        for (enum mt_oper oper = 0; oper < MT_NOPER; oper++) {
            if (!(types[t].opers & 1u << oper) || (!own && oper != MT_AVG))
                continue;
            for (unsigned k = i % 2; k < COUNT_OF(counts); k += 2, i++) {
                struct mt_case c = {.type = &types[t],
                    .oper = oper,
                    .count = counts[k],
                    .in_place = i / 2 % 2,
                    .seed = mt_seed() + i,
                    .comm = MPI_COMM_WORLD};
                mt_note("%s %s count %zu", types[t].name, mt_oper_name(oper), counts[k]);
                mt_allreduce(&c);
                check_case(&c, i % 3 == 0);
            }
            i++;
        }
    }
    mt_agree();
}
END_TEST

/* A small whole number as the upper half of a float. */
static uint16_t bfloat(int value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

START_TEST(test_below_reduce_scatter_is_right)
{
    enum {
        BLOCK = 3001
    };
    for (int in_place = 0; in_place < 2; in_place++) {
        struct mt_buf all = mt_buf_new_result((size_t)mt_size * BLOCK * 4, 0);
        struct mt_buf mine = mt_buf_new_result(BLOCK * 4, 0);
        struct mt_buf *result = in_place ? &all : &mine;
        for (int i = 0; i < mt_size * BLOCK; i++)
            ((float *)all.data)[i] = (float)(i % 100 + mt_rank);
        void *from = mt_buf_lend(&all), *to = in_place ? from : mt_buf_lend(&mine);
        TIARA_Reduce_scatter_block(
            in_place ? MPI_IN_PLACE : from, to, BLOCK, MPI_FLOAT, TIARA_AVG, MPI_COMM_WORLD);
        mt_buf_take(result);
        for (int i = 0; i < BLOCK; i++) {
            int sum = (mt_rank * BLOCK + i) % 100 * mt_size + mt_size * (mt_size - 1) / 2;
            float want = (float)sum / (float)mt_size;
            if (!mt_check(((float *)result->data)[i] == want, "in place %d: %d is %g, not %g",
                    in_place, i, ((float *)result->data)[i], want))
                break;
        }
        mt_buf_free(&all);
        mt_buf_free(&mine);
    }
    mt_agree();
}
END_TEST

/* The mean and the sum of the other group's. */
START_TEST(test_below_intercommunicators_are_right)
{
    enum {
        COUNT = 500
    };
    if (mt_size > 1) {
        MPI_Comm half, inter;
        TIARA_Request request;
        int cut = mt_size / 2, low = mt_rank < cut;
        int first = low ? cut : 0, end = low ? mt_size : cut, sum = 0, wrong = 0;
        float x[COUNT], mean[COUNT], again[COUNT];
        uint16_t y[COUNT], total[COUNT];
        MPI_Comm_split(MPI_COMM_WORLD, low, mt_rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? cut : 0, 9, &inter);
        for (int r = first; r < end; r++)
            sum += r;
        for (int i = 0; i < COUNT; i++) {
            x[i] = (float)(i + mt_rank);
            y[i] = bfloat(i % 8 + mt_rank);
        }
        TIARA_Allreduce(x, mean, COUNT, MPI_FLOAT, TIARA_AVG, inter);
        TIARA_Allreduce(y, total, COUNT, TIARA_BFLOAT16, MPI_SUM, inter);
        TIARA_Iallreduce(x, again, COUNT, MPI_FLOAT, TIARA_AVG, inter, &request);
        TIARA_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            float want = (float)(i * (end - first) + sum) / (float)(end - first);
            wrong += mean[i] != want || again[i] != want ||
                     total[i] != bfloat(i % 8 * (end - first) + sum);
        }
        mt_check(wrong == 0, "%d of %d are wrong", wrong, COUNT);
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        mt_check(TIARA_Allreduce(x, mean, COUNT, MPI_C_BOOL, TIARA_AVG, inter) != MPI_SUCCESS,
            "an average of booleans is no error");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    mt_agree();
}
END_TEST

/* NaN against numbers and zeros of both signs, where it matters which one is on the left. */
START_TEST(test_below_nan_and_signed_zero_agree)
{
    static const uint16_t values[] = {0, 0x8000, 0x7fc0, 0xffc0, 0x3f80, 0xff80, 0x7f80};
    const MPI_Op ops[] = {MPI_MIN, MPI_MAX, MPI_SUM, MPI_PROD};
    uint16_t in[20000], out[20000];
    for (int k = 0; k < 8; k++) {
        size_t count = k < 4 ? 9 : COUNT_OF(in);
        for (size_t i = 0; i < count; i++)
            in[i] = values[mt_hash(mt_seed() + (uint64_t)mt_rank, i) % COUNT_OF(values)];
        mt_allreduce_arrays(in, out, count, TIARA_BFLOAT16, ops[k % 4], MPI_COMM_WORLD);
        mt_check(mt_same_bits(out, count * sizeof *out, mt_private),
            "operator %d count %zu: ranks differ", k % 4, count);
    }
    mt_agree();
}
END_TEST

START_TEST(test_below_memory_does_not_follow_from_ranks)
{
    check_is_left();
    enum {
        COUNT = 2 << 20
    };
    static float in[COUNT], out[COUNT];
    long before, more, most = 3 * (long)(sizeof in >> 10) + 8192;
    TIARA_Request request;
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)(i % 1000 + mt_rank);
        out[i] = 0;
    }
    before = mt_peak_kib();
    TIARA_Iallreduce(in, out, COUNT, MPI_FLOAT, TIARA_AVG, MPI_COMM_WORLD, &request);
    TIARA_Wait(&request, MPI_STATUS_IGNORE);
    more = mt_peak_kib() - before;
    mt_check(more <= most, "%ld KiB more, not at most %ld", more, most);
    for (int i = 0; i < COUNT; i++) {
        float want = (float)(i % 1000 * mt_size + mt_size * (mt_size - 1) / 2) / (float)mt_size;
        if (!mt_check(out[i] == want, "%d is %g, not %g", i, out[i], want))
            break;
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_below", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_below_memory_does_not_follow_from_ranks);
    tcase_add_test(tests, test_below_all_that_mpi_lacks_is_right);
    tcase_add_test(tests, test_below_reduce_scatter_is_right);
    tcase_add_test(tests, test_below_intercommunicators_are_right);
    tcase_add_test(tests, test_below_nan_and_signed_zero_agree);
    return mt_end();
}
