/*
 * What goes over the links between the GPUs of a node: the bytes that kernels read from peers'
 * memory, counted by the kernels' build for the CPU. A large all-reduce moves 2 (L - 1) / L vectors
 * into each GPU, whatever the way; with one launch a call, in which no step comes back to the host.
 *
 * Needs the stand-in for the CUDA runtime: a GPU does not count.
 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 TIARA_CUDA_MAP=no */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 STANDIN_PEERS=ring */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 TIARA_ALGO=node-ring
 * TIARA_CUDA_CELL=65536 */
#include "mpi_buf.h"
#include "mpi_run.h"
#include "tiara.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The counters of libkernels_on_cpu.so, which the stand-in has opened; NULL: there is none. */
static const uint64_t *counter(const char *name)
{
    const char *build = getenv("TIARA_TEST_BUILD");
    char path[4096];
    void *handle;

    snprintf(path, sizeof(path), "%s/test/cuda/standin/libkernels_on_cpu.so", build ? build : ".");
    handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : NULL;
}

/* Elements of a vector that all numbers of ranks up to 4 divide into whole lines of 64 bytes, for a
 * count of @about. */
static size_t even_count(size_t about)
{
    size_t unit = 16 * 12;

    return about / unit * unit;
}

static void check_bytes(size_t count, bool in_place)
{
    struct mt_buf send = mt_buf_new(count * sizeof(float), 0);
    struct mt_buf recv = mt_buf_new_result(count * sizeof(float), 0);
    float *in = (float *)(void *)(in_place ? recv.data : send.data);

    for (size_t i = 0; i < count; i++)
        in[i] = (float)(mt_rank + (int)(i % 1000));
    const void *from = mt_buf_lend(&send);
    void *to = mt_buf_lend(&recv);
    /* The first call opens what it needs, with launches of its own. */
    TIARA_Allreduce(
        in_place ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Barrier(mt_private);
    const uint64_t *bytes = counter("tiara_kernel_link_bytes_on_cpu"),
                   *launches = counter("tiara_kernel_exec_launches_on_cpu");
    if (mt_check(bytes && launches, "the kernels for the CPU count nothing")) {
        uint64_t bytes_before = *bytes, launches_before = *launches;
        TIARA_Allreduce(
            in_place ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        uint64_t want = 2 * (uint64_t)(mt_size - 1) * count * sizeof(float) / (uint64_t)mt_size;
        mt_check(*bytes - bytes_before == want,
            "count %zu%s: %llu bytes were read from peers, not %llu", count,
            in_place ? " in place" : "", (unsigned long long)(*bytes - bytes_before),
            (unsigned long long)want);
        mt_check(*launches - launches_before == 1, "count %zu: %llu launches, not one", count,
            (unsigned long long)(*launches - launches_before));
    }
    MPI_Barrier(mt_private);
    mt_buf_take(&send);
    mt_buf_take(&recv);
    const float *out = (const float *)(const void *)recv.data;
    for (size_t i = 0; i < count; i++)
        if (!mt_check(out[i] == (float)(mt_size - 1 + (int)(i % 1000)), "element %zu is %g", i,
                (double)out[i]))
            break;
    mt_buf_free(&send);
    mt_buf_free(&recv);
}

START_TEST(test_links_carry_what_the_formula_says)
{
    static const size_t counts[] = {20000, 300000, 1000000};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (int in_place = 0; in_place < 2; in_place++)
            check_bytes(even_count(counts[i]), in_place);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_device_links", MPI_THREAD_SINGLE);

    if (getenv("TIARA_TEST_GPU"))
        return mt_skip("skipped: a GPU does not count what its kernels read");
    tcase_add_test(tests, test_links_carry_what_the_formula_says);
    return mt_end();
}
