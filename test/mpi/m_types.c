/*
 * Every predefined type with every operator that the standard defines for it, at sizes around every
 * threshold, against an oracle in C; and what happens for pairs that are not defined.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 3 TIARA_LAYOUT=1+2 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=0,1,1,0,2,0 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 9 TIARA_TEST_SWEEP=0 */
/* tiara-test: vcluster 2x2 TIARA_TEST_SWEEP=0 */
/* tiara-test: vcluster 4x2 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3+1
 * TIARA_CUDA_AWARE=on */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=node-ring */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=mixed TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=managed TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=pinned TIARA_TEST_SWEEP=0 TIARA_CUDA=off */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A case whose form varies with @i: in place or not, on or off the alignment of the type. */
static struct mt_case varied_case(
    const struct mt_type *type, enum mt_oper oper, size_t count, unsigned i)
{
    return (struct mt_case){.type = type,
        .oper = oper,
        .count = count,
        .in_place = i % 2,
        .offset = i / 2 % 2 ? (type->value.size + 1) / 2 : 0,
        .seed = mt_seed() + i,
        .comm = MPI_COMM_WORLD};
}

static void sweep_all_pairs(const size_t *counts, unsigned ncounts, unsigned stride)
{
    int ntypes;
    const struct mt_type *types = mt_types(&ntypes);
    unsigned i = 0;
    for (int t = 0; t < ntypes; t++) {
        for (enum mt_oper oper = 0; oper < MT_NOPER; oper++) {
            if (!(types[t].opers & 1u << oper))
                continue;
            for (unsigned k = i % stride; k < ncounts; k += stride, i++) {
                struct mt_case c = varied_case(&types[t], oper, counts[k], i + i / ncounts);
                mt_allreduce(&c);
            }
            i++;
        }
    }
}

START_TEST(test_types_all_pairs_small_are_right)
{
    static const size_t counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 31};
    sweep_all_pairs(counts, COUNT_OF(counts), mt_sweep() > 1 ? 1 : mt_sweep() > 0 ? 2 : 5);
    mt_agree();
}
END_TEST

START_TEST(test_types_all_pairs_medium_are_right)
{
    static const size_t counts[] = {40, 41, 63, 64, 65, 127, 251, 511, 512, 513, 1021, 1023, 1024,
        1025, 2047, 4095, 4096, 4097};
    sweep_all_pairs(counts, COUNT_OF(counts), mt_sweep() > 1 ? 1 : mt_sweep() > 0 ? 6 : 17);
    mt_agree();
}
END_TEST

START_TEST(test_types_large_are_right)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_DOUBLE, MT_SUM}, {MPI_FLOAT, MT_MAX}, {MPI_INT, MT_PROD},
        {MPI_INT8_T, MT_BXOR}, {MPI_UINT16_T, MT_MIN}, {MPI_2INT, MT_MINLOC},
        {MPI_LONG_DOUBLE, MT_SUM}, {TIARA_BFLOAT16, MT_SUM}, {TIARA_FLOAT8_E4M3, MT_SUM},
        {TIARA_FLOAT8_E5M2, MT_MAX}};
    static const size_t counts[] = {10007, 16383, 16384, 16385, 65535, 65536, 65537, 104729, 262143,
        262144, 262145, 1000003, 1048575, 1048576, 1048577};
    unsigned step = mt_sweep() > 1 ? 1 : mt_sweep() > 0 ? 3 : 7;
    for (unsigned p = 0; p < COUNT_OF(pairs); p++) {
        if (pairs[p].type == MPI_DATATYPE_NULL)
            continue;
        for (unsigned k = p % step; k < COUNT_OF(counts); k += step) {
            bool is_slow = mt_size > 4 || getenv("TIARA_TEST_MEMORY");
            bool too_long = is_slow && counts[k] > (mt_sweep() > 0 ? 300000 : 70000);
            struct mt_case c =
                varied_case(mt_type_find(pairs[p].type), pairs[p].oper, counts[k], k + p);
            if (!too_long)
                mt_allreduce(&c);
        }
    }
    mt_agree();
}
END_TEST

START_TEST(test_types_any_byte_offset_is_right)
{
    int ntypes;
    const struct mt_type *types = mt_types(&ntypes);
    for (int t = 0; t<ntypes; t += mt_sweep()> 0 ? 1 : 5) {
        enum mt_oper oper = 0;
        while (!(types[t].opers & 1u << oper))
            oper++;
        for (size_t offset = 1; offset < types[t].value.size; offset++) {
            struct mt_case c = {.type = &types[t],
                .oper = oper,
                .count = 77,
                .offset = offset,
                .seed = mt_seed(),
                .comm = MPI_COMM_WORLD};
            mt_allreduce(&c);
        }
    }
    mt_agree();
}
END_TEST

/* The integer sum of 16384 on each of two ranks does not saturate, with every vector length. */
START_TEST(test_types_short_sum_wraps)
{
    short in[130], out[130] = {0};
    signed char in8[130], out8[130] = {0};
    for (int i = 0; i < 130; i++) {
        in[i] = mt_rank < 2 ? 16384 : 0;
        in8[i] = mt_rank < 2 ? 64 : 0;
    }
    for (int count = 1; count <= 130; count += 3) {
        mt_allreduce_arrays(in, out, (size_t)count, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD);
        mt_allreduce_arrays(in8, out8, (size_t)count, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD);
        short want = mt_size > 1 ? -32768 : 16384;
        for (int i = 0; i < count; i++)
            mt_check(out[i] == want && out8[i] == want / 256, "count %d: element %d is %d and %d",
                count, i, out[i], out8[i]);
    }
    mt_agree();
}
END_TEST

/* 0 on rank 0, the greatest value elsewhere: a signed comparison would take the latter for -1. */
START_TEST(test_types_unsigned_extremes_are_ordered)
{
    const MPI_Datatype types[] = {MPI_UNSIGNED_CHAR, MPI_UINT8_T, MPI_UNSIGNED_SHORT, MPI_UINT16_T,
        MPI_UNSIGNED, MPI_UINT32_T, MPI_UNSIGNED_LONG, MPI_UINT64_T, MPI_UNSIGNED_LONG_LONG};
    uint64_t in[8], low[8] = {1, 1, 1, 1, 1, 1, 1, 1}, high[8] = {0};
    memset(in, mt_rank == 0 ? 0 : 0xff, sizeof in);
    for (unsigned t = 0; t < COUNT_OF(types) && mt_size > 1; t++) {
        int size;
        MPI_Type_size(types[t], &size);
        size_t count = sizeof in / (size_t)size;
        mt_allreduce_arrays(in, low, count, types[t], MPI_MIN, MPI_COMM_WORLD);
        mt_allreduce_arrays(in, high, count, types[t], MPI_MAX, MPI_COMM_WORLD);
        mt_check(
            low[0] == 0 && low[7] == 0, "MIN of type %u is %llx", t, (unsigned long long)low[0]);
        mt_check(high[0] == UINT64_MAX && high[7] == UINT64_MAX, "MAX of type %u is %llx", t,
            (unsigned long long)high[0]);
    }
    mt_agree();
}
END_TEST

START_TEST(test_types_denormals_survive)
{
    float f[40], fout[40] = {0};
    double d[40], dout[40] = {0};
    for (int i = 0; i < 40; i++) {
        f[i] = mt_rank == mt_size - 1 ? 1.4e-45F : 0.0F;
        d[i] = mt_rank == mt_size - 1 ? 5e-324 : 0.0;
    }
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX};
    for (int k = 0; k < 4; k++) {
        size_t n = k < 2 ? 40 : 3;
        mt_allreduce_arrays(f, fout, n, MPI_FLOAT, ops[k % 2], MPI_COMM_WORLD);
        mt_allreduce_arrays(d, dout, n, MPI_DOUBLE, ops[k % 2], MPI_COMM_WORLD);
        float fwant = 1.4e-45F;
        double dwant = 5e-324;
        mt_check(memcmp(&fout[n - 1], &fwant, sizeof fwant) == 0, "float became %a", fout[n - 1]);
        mt_check(memcmp(&dout[n - 1], &dwant, sizeof dwant) == 0, "double became %a", dout[n - 1]);
    }
    mt_agree();
}
END_TEST

/* The error class of an all-reduce of one element by Tiara, or by the MPI below. */
static int class_of(bool tiara, MPI_Datatype type, enum mt_oper oper)
{
    char in[64] = {0}, out[64] = {0};
    MPI_Op op = mt_oper_handle(oper);
    int err = tiara ? mt_allreduce_arrays(in, out, 1, type, op, MPI_COMM_WORLD)
                    : PMPI_Allreduce(in, out, 1, type, op, MPI_COMM_WORLD);
    int class;
    MPI_Error_class(err, &class);
    return class;
}

/* MPICH lets logical operators on C's floating types through its check of the operator; it knows
 * LXOR, and ends the job on LAND and LOR. Calls that the MPI below takes are its own affair. */
#ifdef MPICH
#define LOGICAL_FLOATS_ARE_TAKEN true
#else
#define LOGICAL_FLOATS_ARE_TAKEN false
#endif

static bool taken_below(MPI_Datatype type, enum mt_oper oper)
{
    bool logical = oper == MT_LAND || oper == MT_LOR || oper == MT_LXOR;
    bool floating = type == MPI_FLOAT || type == MPI_DOUBLE || type == MPI_LONG_DOUBLE;
    return LOGICAL_FLOATS_ARE_TAKEN && logical && floating;
}

START_TEST(test_types_undefined_pairs_give_op_error)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_FLOAT, MT_BAND}, {MPI_DOUBLE, MT_LAND}, {MPI_DOUBLE, MT_BXOR},
        {MPI_LONG_DOUBLE, MT_LXOR}, {MPI_C_FLOAT_COMPLEX, MT_MAX}, {MPI_C_DOUBLE_COMPLEX, MT_MIN},
        {MPI_INT, MT_MINLOC}, {MPI_FLOAT_INT, MT_SUM}, {MPI_2INT, MT_BOR}, {TIARA_FLOAT16, MT_BAND},
        {TIARA_BFLOAT16, MT_LOR}, {TIARA_FLOAT8_E4M3, MT_BAND}, {TIARA_FLOAT8_E5M2, MT_LAND}};
    struct mt_case good = {.type = mt_type_find(MPI_DOUBLE),
        .oper = MT_SUM,
        .count = 100,
        .seed = mt_seed(),
        .comm = MPI_COMM_WORLD};
    for (unsigned p = 0; p < COUNT_OF(pairs); p++) {
        mt_note("undefined pair %u", p);
        if (pairs[p].type == MPI_DATATYPE_NULL || taken_below(pairs[p].type, pairs[p].oper))
            continue;
        int class = class_of(true, pairs[p].type, pairs[p].oper);
        mt_check(class == MPI_ERR_OP, "pair %u: error class %d", p, class);
        mt_allreduce(&good);
    }
    mt_agree();
}
END_TEST

/* Pairs outside the standard which the MPI below may or may not know: no worse than it. */
START_TEST(test_types_foreign_pairs_are_as_in_mpi)
{
    const MPI_Datatype types[] = {MPI_CHAR, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED, MPI_BYTE,
        MPI_C_BOOL, MPI_LOGICAL, MPI_INTEGER, MPI_AINT, MPI_REAL, MPI_COMPLEX, MPI_2REAL,
        MPI_REAL16, MPI_COMPLEX32};
    for (unsigned t = 0; t < COUNT_OF(types); t++) {
        for (enum mt_oper oper = 0; oper < MT_AVG; oper++) {
            if (types[t] == MPI_DATATYPE_NULL)
                continue;
            mt_note("foreign type %u %s", t, mt_oper_name(oper));
            int mine = class_of(true, types[t], oper), plain = class_of(false, types[t], oper);
            mt_check(mine == plain || mine == MPI_ERR_OP, "type %u %s: class %d, MPI says %d", t,
                mt_oper_name(oper), mine, plain);
        }
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_types", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_types_all_pairs_small_are_right);
    tcase_add_test(tests, test_types_all_pairs_medium_are_right);
    tcase_add_test(tests, test_types_large_are_right);
    tcase_add_test(tests, test_types_any_byte_offset_is_right);
    tcase_add_test(tests, test_types_short_sum_wraps);
    tcase_add_test(tests, test_types_unsigned_extremes_are_ordered);
    tcase_add_test(tests, test_types_denormals_survive);
    tcase_add_test(tests, test_types_undefined_pairs_give_op_error);
    tcase_add_test(tests, test_types_foreign_pairs_are_as_in_mpi);
    return mt_end();
}
