/*
 * Which way calls on GPU memory go: to the GPUs, or staged through host memory. The result is right
 * either way; so the counters of the report are what tells a library whose kernels run from one
 * that copies everything to the host.
 *
 * TIARA_TEST_SMALL and TIARA_TEST_LARGE say what is expected of short and of long vectors: gpus,
 * staged or host, for buffers that are host memory to the library.
 */
/* tiara-test: mpirun 1 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=any TIARA_TEST_LARGE=any */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 5 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=gpus
 * TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=gpus
 * TIARA_LAYOUT=3+1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus
 * STANDIN_PEERS=ring */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=staged
 * STANDIN_PEERS=none */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus
 * STANDIN_PEERS_BROKEN=1-2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=staged
 * STANDIN_PEERS=ring STANDIN_PEERS_BROKEN=1-2 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus
 * TIARA_CUDA_MAP=no */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=pool TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=vmm TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=sub TIARA_TEST_SMALL=gpus TIARA_TEST_LARGE=gpus */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=managed TIARA_TEST_SMALL=host TIARA_TEST_LARGE=host */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=pinned TIARA_TEST_SMALL=host TIARA_TEST_LARGE=host
 * TIARA_CUDA=off */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=staged */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=mixed TIARA_TEST_SMALL=staged TIARA_TEST_LARGE=staged
 * TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed-inout TIARA_TEST_SMALL=staged
 * TIARA_TEST_LARGE=staged */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    SMALL = 16, /* bytes: below every threshold */
    LARGE = 80000, /* above those between nodes */
    MAPPED =
        /* above that of mapping peers' buffers; of few elements, as the oracle takes its time */
        1100000
};

static bool is_host(bool result)
{
    enum mt_place place = mt_place_of(result);
    return place == MT_PLACE_HOST || place == MT_PLACE_MANAGED || place == MT_PLACE_PINNED;
}

/* Whether @paths has grown since @before by one call as @wanted. @in_place: the input is no buffer
 * of its own. */
static void check_path(const char *what, const char *wanted, bool in_place,
    const struct mt_paths *before, const struct mt_paths *after)
{
    bool all_host = is_host(true) && (in_place || is_host(false));
    unsigned long long gpus = strcmp(wanted, "gpus") == 0 && !all_host,
                       staged = strcmp(wanted, "staged") == 0 && !all_host;
    if (strcmp(wanted, "any") == 0)
        return;
    mt_check(after->gpus - before->gpus == gpus && after->staged - before->staged == staged,
        "%s: %llu calls on GPUs and %llu staged, not %llu and %llu", what,
        after->gpus - before->gpus, after->staged - before->staged, gpus, staged);
}

static const char *expected(size_t bytes)
{
    const char *wanted = getenv(bytes <= 64 ? "TIARA_TEST_SMALL" : "TIARA_TEST_LARGE");
    return wanted ? wanted : "any";
}

/* An all-reduce of about @bytes, which must go the way @wanted. */
static void check_call(
    MPI_Datatype handle, enum mt_oper oper, size_t bytes, bool in_place, const char *wanted)
{
    struct mt_case c = {.type = mt_type_find(handle),
        .oper = oper,
        .in_place = in_place,
        .seed = mt_seed() + bytes,
        .comm = MPI_COMM_WORLD};
    c.count = bytes / mt_type_extent(c.type);
    struct mt_paths before = mt_paths(c.comm);
    mt_allreduce(&c);
    struct mt_paths after = mt_paths(c.comm);
    check_path(c.type->name, wanted, in_place, &before, &after);
}

static const size_t sizes[] = {SMALL, LARGE};

START_TEST(test_device_calls_go_the_expected_way)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_FLOAT, MT_SUM}, {MPI_INT, MT_MAX}, {TIARA_BFLOAT16, MT_SUM},
        {MPI_UINT8_T, MT_BXOR}, {MPI_DOUBLE, MT_AVG}, {MPI_INT64_T, MT_LAND}};
    for (unsigned p = 0; p < COUNT_OF(pairs); p++) {
        for (unsigned k = 0; k < COUNT_OF(sizes); k++)
            check_call(pairs[p].type, pairs[p].oper, sizes[k], (p + k) % 2, expected(sizes[k]));
    }
    check_call(MPI_DOUBLE, MT_SUM, MAPPED, false, expected(MAPPED));
    check_call(MPI_INT64_T, MT_MIN, MAPPED, true, expected(MAPPED));
    mt_agree();
}
END_TEST

/* A type that kernels do not know is the host's business, and the next call is not. */
START_TEST(test_device_types_unknown_to_kernels_are_staged)
{
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_C_DOUBLE_COMPLEX, MT_SUM}, {MPI_C_FLOAT_COMPLEX, MT_PROD},
        {MPI_LONG_DOUBLE, MT_SUM}, {MPI_C_BOOL, MT_LOR}};
    for (unsigned p = 0; p < COUNT_OF(pairs) && mt_size > 1; p++) {
        for (unsigned k = 0; k < COUNT_OF(sizes); k++) {
            check_call(pairs[p].type, pairs[p].oper, sizes[k], k % 2, "staged");
            check_call(MPI_FLOAT, MT_SUM, sizes[k], k % 2, expected(sizes[k]));
        }
    }
    mt_agree();
}
END_TEST

/* Neither are pairs, which have holes or are left to MPI. */
START_TEST(test_device_pairs_are_not_for_kernels)
{
    const MPI_Datatype types[] = {MPI_2INT, MPI_DOUBLE_INT, MPI_FLOAT_INT};
    for (unsigned k = 0; k < COUNT_OF(types) * COUNT_OF(sizes); k++) {
        struct mt_paths before = mt_paths(MPI_COMM_WORLD);
        check_call(types[k % 3], k % 2 ? MT_MINLOC : MT_MAXLOC, sizes[k / 3], k % 2, "any");
        struct mt_paths after = mt_paths(MPI_COMM_WORLD);
        mt_check(after.gpus == before.gpus, "pair %u: on GPUs", k);
    }
    mt_agree();
}
END_TEST

/* The halves of an all-reduce. All-gather moves bytes of any type. */
START_TEST(test_device_halves_go_the_expected_way)
{
    const int blocks[] = {1, 20000, 50000};
    for (int k = 0; k < 3; k++) {
        size_t block = (size_t)blocks[k], total = block * (size_t)mt_size;
        struct mt_case c = {.type = mt_type_find(MPI_INT),
            .oper = MT_SUM,
            .count = total,
            .seed = mt_seed(),
            .comm = MPI_COMM_WORLD};
        struct mt_buf in = mt_buf_new(total * sizeof(int), 0),
                      out = mt_buf_new_result(total * sizeof(int), 0),
                      piece = mt_buf_new_result(block * sizeof(int), 0);
        mt_note("halves, block %zu", block);
        mt_fill(c.type, c.oper, c.seed, mt_rank, 0, total, in.data);
        void *middle = mt_buf_lend(&piece);
        struct mt_paths start = mt_paths(c.comm);
        TIARA_Reduce_scatter_block(
            mt_buf_lend(&in), middle, blocks[k], MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        struct mt_paths half = mt_paths(c.comm);
        TIARA_Allgather(
            middle, blocks[k], MPI_INT, mt_buf_lend(&out), blocks[k], MPI_INT, MPI_COMM_WORLD);
        struct mt_paths end = mt_paths(c.comm);
        mt_buf_take(&out);
        mt_verify(&c, mt_size, 0, total, out.data);
        mt_check(mt_buf_intact(&out), "block %zu: guards damaged", block);
        if (k > 0) {
            check_path("reduce-scatter", expected(LARGE), false, &start, &half);
            check_path("all-gather", expected(LARGE), true, &half, &end);
        }
        mt_buf_free(&in);
        mt_buf_free(&out);
        mt_buf_free(&piece);
    }
    mt_agree();
}
END_TEST

/*
 * What is true of one communicator is true of the next, made after it, and of a part of the ranks.
 */
START_TEST(test_device_other_communicators_are_right)
{
    for (int k = 0; k < 4; k++) {
        MPI_Comm comm;
        if (k % 2)
            MPI_Comm_split(MPI_COMM_WORLD, mt_rank % 2, -mt_rank, &comm);
        else
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
            struct mt_case c = {.type = mt_type_find(MPI_FLOAT),
                .oper = MT_SUM,
                .count = sizes[i] / sizeof(float),
                .in_place = i == 1,
                .seed = mt_seed() + i,
                .comm = comm};
            mt_allreduce(&c);
        }
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_device", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_device_calls_go_the_expected_way);
    tcase_add_test(tests, test_device_types_unknown_to_kernels_are_staged);
    tcase_add_test(tests, test_device_pairs_are_not_for_kernels);
    tcase_add_test(tests, test_device_halves_go_the_expected_way);
    tcase_add_test(tests, test_device_other_communicators_are_right);
    return mt_end();
}
