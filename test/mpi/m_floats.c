/*
 * Sums of floats whose result depends on the order: all ranks end with the same bits, the same call
 * twice gives the same bits, the result is close to the exact sum; and with TIARA_REPRODUCIBLE=1 it
 * is the strict left fold in rank order, whatever the layout.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 7 */
/* tiara-test: mpirun 2 TIARA_LAYOUT=2x1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=1+3 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3:rr */
/* tiara-test: mpirun 6 TIARA_LAYOUT=0,1,1,0,2,0 */
/* tiara-test: mpirun 1 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 3 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 4 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=3+1 TIARA_CHUNK=4k */
/* tiara-test: mpirun 6 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=1+2+3 */
/* tiara-test: mpirun 6 TIARA_REPRODUCIBLE=1 TIARA_LAYOUT=0,1,1,0,2,0 */
/* tiara-test: vcluster 2x2 */
/* tiara-test: vcluster 2x2 TIARA_REPRODUCIBLE=1 */
/* tiara-test: vcluster 4x2 */
/* tiara-test: vcluster 4x2 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=ring */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_REPRODUCIBLE=1
 * TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed-inout TIARA_TEST_SWEEP=0 TIARA_REPRODUCIBLE=1 */
#include "mpi_buf.h"
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLOAT,
    DOUBLE,
    FLOAT16,
    BFLOAT16,
    E4M3,
    E5M2,
    NTYPES
};

static const size_t counts[] = {1, 2, 3, 5, 8, 10, 11, 33, 513, 1024, 4097, 16384, 65537, 300007};
static const size_t sizes[NTYPES] = {4, 8, 2, 2, 1, 1};
static const double eps[NTYPES] = {0x1p-23, 0x1p-52, 0x1p-10, 0x1p-7, 0x1p-3, 0x1p-2};

static MPI_Datatype handle_of(int type)
{
    const MPI_Datatype handles[] = {
        MPI_FLOAT, MPI_DOUBLE, TIARA_FLOAT16, TIARA_BFLOAT16, TIARA_FLOAT8_E4M3, TIARA_FLOAT8_E5M2};
    return handles[type];
}

/* Random signs and significands, exponents over a range in which every addition rounds. */
static void put_random(int type, uint64_t h, unsigned char *p)
{
    float f = (float)ldexp((double)(h >> 40) - 0x1p23, -20 - (int)(h % 13));
    double d = ldexp((double)(h >> 11) - 0x1p52, -50 - (int)(h % 29));
    uint16_t half = (uint16_t)((h >> 48 & 0x83ff) | (12 + h % 7) << 10);
    uint16_t bhalf = (uint16_t)((h >> 48 & 0x807f) | (122 + h % 11) << 7);
    uint8_t e4m3 = (uint8_t)((h >> 48 & 0x87) | (3 + h % 7) << 3);
    uint8_t e5m2 = (uint8_t)((h >> 48 & 0x83) | (10 + h % 9) << 2);
    const void *sources[] = {&f, &d, &half, &bhalf, &e4m3, &e5m2};
    memcpy(p, sources[type], sizes[type]);
}

static double get_fp8(unsigned code, int digits, int bias)
{
    int exponent = (int)(code & 0x7f) >> digits, one = exponent ? 1 << digits : 0;
    double x =
        ldexp(((int)code & ((1 << digits) - 1)) + one, (exponent ? exponent : 1) - bias - digits);
    return code & 0x80 ? -x : x;
}

static double get(int type, const unsigned char *p)
{
    uint16_t half;
    uint32_t wide;
    float f;
    double d;
    if (type == DOUBLE) {
        memcpy(&d, p, 8);
        return d;
    }
    if (type == FLOAT16) {
        memcpy(&half, p, 2);
        int exponent = half >> 10 & 31;
        d = ldexp((half & 0x3ff) + (exponent ? 0x400 : 0), (exponent ? exponent : 1) - 25);
        return half & 0x8000 ? -d : d;
    }
    if (type == BFLOAT16) {
        memcpy(&half, p, 2);
        wide = (uint32_t)half << 16;
        memcpy(&f, &wide, 4);
        return f;
    }
    if (type == E4M3 || type == E5M2)
        return type == E4M3 ? get_fp8(*p, 3, 7) : get_fp8(*p, 2, 15);
    memcpy(&f, p, 4);
    return f;
}

static void fill(int type, int rank, size_t count, unsigned char *data)
{
    for (size_t i = 0; i < count; i++)
        put_random(type, mt_hash(mt_hash(mt_seed(), (uint64_t)rank), i), data + i * sizes[type]);
}

/* Within the error bound of any order of rounded additions. */
static void check_is_sum(int type, size_t count, const unsigned char *got)
{
    unsigned char x[8];
    for (size_t i = 0; i < count; i += 1 + count / 500) {
        long double sum = 0, magnitude = 0;
        for (int r = 0; r < mt_size; r++) {
            put_random(type, mt_hash(mt_hash(mt_seed(), (uint64_t)r), i), x);
            sum += get(type, x);
            magnitude += fabs(get(type, x));
        }
        double value = get(type, got + i * sizes[type]);
        if (!mt_check(fabsl(value - sum) <= mt_size * eps[type] * magnitude,
                "type %d count %zu: element %zu is %a, not about %La", type, count, i, value, sum))
            return;
    }
}

/* The bits of ((x0 + x1) + x2) + ... in the type itself. */
static void check_is_left_fold(int type, size_t count, const unsigned char *got)
{
    unsigned char x[8];
    for (size_t i = 0; i < count; i++) {
        volatile float f = 0;
        volatile double d = 0;
        for (int r = 0; r < mt_size; r++) {
            put_random(type, mt_hash(mt_hash(mt_seed(), (uint64_t)r), i), x);
            f = r == 0 ? (float)get(type, x) : f + (float)get(type, x);
            d = r == 0 ? get(type, x) : d + get(type, x);
        }
        double want = type == FLOAT ? f : d, value = get(type, got + i * sizes[type]);
        if (!mt_check(want == value, "type %d count %zu: element %zu is %a, the left fold is %a",
                type, count, i, value, want))
            return;
    }
}

static void check_one(int type, size_t count, bool in_place, size_t offset)
{
    size_t bytes = count * sizes[type];
    struct mt_buf send = mt_buf_new(bytes, offset), recv[2];
    fill(type, mt_rank, count, send.data);
    for (int k = 0; k < 2; k++) {
        recv[k] = mt_buf_new_result(bytes, offset);
        if (in_place)
            memcpy(recv[k].data, send.data, bytes);
        int err = TIARA_Allreduce(in_place ? MPI_IN_PLACE : mt_buf_lend(&send),
            mt_buf_lend(&recv[k]), (int)count, handle_of(type), MPI_SUM, MPI_COMM_WORLD);
        if (!in_place)
            mt_buf_take(&send);
        mt_buf_take(&recv[k]);
        mt_check(err == MPI_SUCCESS && mt_buf_intact(&recv[k]),
            "type %d count %zu: error %d or guards", type, count, err);
    }
    mt_check(mt_same_bits(recv[0].data, bytes, mt_private), "type %d count %zu: ranks differ", type,
        count);
    mt_check(memcmp(recv[0].data, recv[1].data, bytes) == 0, "type %d count %zu: runs differ", type,
        count);
    check_is_sum(type, count, recv[0].data);
    if (mt_env("TIARA_REPRODUCIBLE", 0) && type <= DOUBLE)
        check_is_left_fold(type, count, recv[0].data);
    mt_buf_free(&send);
    mt_buf_free(&recv[0]);
    mt_buf_free(&recv[1]);
}

START_TEST(test_floats_sums_have_the_same_bits)
{
    for (int type = 0; type < NTYPES; type++) {
        if (handle_of(type) == MPI_DATATYPE_NULL)
            continue;
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            mt_note("type %d count %zu", type, counts[k]);
            check_one(type, counts[k], (k + (size_t)type) % 2, k % 3 == 2 ? 1 : 0);
        }
    }
    mt_agree();
}
END_TEST

/* The blocks of a reduce-scatter, put together again, are the all-reduce: within rounding, and in
 * reproducible mode to the bit. */
START_TEST(test_floats_reduce_scatter_is_the_sum)
{
    static const size_t blocks[] = {1, 7, 1000, 40001};
    for (size_t k = 0; k < sizeof blocks / sizeof blocks[0]; k++) {
        size_t count = blocks[k] * (size_t)mt_size, block_bytes = blocks[k] * sizes[DOUBLE];
        struct mt_buf send = mt_buf_new(count * sizes[DOUBLE], 0),
                      mine = mt_buf_new_result(block_bytes, 0);
        unsigned char *all = malloc(count * sizes[DOUBLE]);
        mt_note("reduce-scatter, blocks of %zu", blocks[k]);
        fill(DOUBLE, mt_rank, count, send.data);
        int err = TIARA_Reduce_scatter_block(mt_buf_lend(&send), mt_buf_lend(&mine), (int)blocks[k],
            MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        mt_buf_take(&mine);
        mt_check(err == MPI_SUCCESS, "reduce-scatter, blocks of %zu: error %d", blocks[k], err);
        PMPI_Allgather(
            mine.data, (int)block_bytes, MPI_BYTE, all, (int)block_bytes, MPI_BYTE, mt_private);
        check_is_sum(DOUBLE, count, all);
        if (mt_env("TIARA_REPRODUCIBLE", 0))
            check_is_left_fold(DOUBLE, count, all);
        free(all);
        mt_buf_free(&mine);
        mt_buf_free(&send);
    }
    mt_agree();
}
END_TEST

/* NaN against numbers and zeros of both signs: MIN and MAX are not commutative there, yet all ranks
 * agree. */
START_TEST(test_floats_nan_and_signed_zero_agree)
{
    double in[600], out[600] = {0}, again[600] = {0};
    const double values[] = {0.0, -0.0, NAN, 1.0, -INFINITY, INFINITY};
    for (int i = 0; i < 600; i++)
        in[i] = values[mt_hash((uint64_t)mt_rank, (uint64_t)i) % 6];
    const MPI_Op ops[] = {MPI_MIN, MPI_MAX, MPI_SUM, MPI_PROD};
    for (int k = 0; k < 8; k++) {
        size_t count = k < 4 ? 5 : 600;
        size_t bytes = count * sizeof(double);
        mt_allreduce_arrays(in, out, count, MPI_DOUBLE, ops[k % 4], MPI_COMM_WORLD);
        mt_allreduce_arrays(in, again, count, MPI_DOUBLE, ops[k % 4], MPI_COMM_WORLD);
        mt_check(mt_same_bits(out, bytes, mt_private), "operator %d count %zu: ranks differ", k % 4,
            count);
        mt_check(
            memcmp(out, again, bytes) == 0, "operator %d count %zu: runs differ", k % 4, count);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_floats", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_floats_sums_have_the_same_bits);
    tcase_add_test(tests, test_floats_reduce_scatter_is_the_sum);
    tcase_add_test(tests, test_floats_nan_and_signed_zero_agree);
    return mt_end();
}
