/*
 * What the library keeps about GPU memory, and what it must not: buffers at every alignment, freed
 * and allocated again at the same place, by the thousand; work of other streams; and pointers that
 * are none.
 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=device TIARA_CUDA_MAP=no TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device TIARA_ONE_SHOT=1 TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device STANDIN_PEERS=none TIARA_TEST_SWEEP=0 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device STANDIN_DELAY_US=3000 TIARA_TEST_SWEEP=0 */
#include "mpi_run.h"
#include "mpi_type.h"
#include "test.h"
#include "tiara.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct mt_case sum_of_floats(size_t count, uint64_t seed)
{
    return (struct mt_case){.type = mt_type_find(MPI_FLOAT),
        .oper = MT_SUM,
        .count = count,
        .seed = mt_seed() + seed,
        .comm = MPI_COMM_WORLD};
}

/* ---- alignment ---- */

/* One sum of @count bytes from @in of @from to @out of @to; whole buffers are compared. */
static void check_offsets(
    unsigned char *from, unsigned char *to, size_t in, size_t out, size_t count)
{
    enum {
        ROOM = 6000
    };
    static unsigned char view[ROOM], back[ROOM];
    struct mt_case c = {.type = mt_type_find(MPI_UINT8_T),
        .oper = MT_SUM,
        .count = count,
        .seed = mt_seed() + 16 * in + out,
        .comm = MPI_COMM_WORLD};
    mt_note("offsets %zu and %zu, count %zu", in, out, count);
    mt_fill(c.type, c.oper, c.seed, mt_rank, 0, count, view);
    mt_device_copy(from + in, view, count);
    memset(view, 0x5a, sizeof view);
    mt_device_copy(to, view, sizeof view);
    int err = TIARA_Allreduce(from + in, to + out, (int)count, MPI_UINT8_T, MPI_SUM, c.comm);
    mt_device_copy(back, to, sizeof back);
    mt_check(err == MPI_SUCCESS, "offsets %zu and %zu: error %d", in, out, err);
    mt_verify(&c, mt_size, 0, count, back + out);
    mt_check(memcmp(back, view, out) == 0 &&
                 memcmp(back + out + count, view, sizeof back - out - count) == 0,
        "offsets %zu and %zu, count %zu: bytes outside the buffer written", in, out, count);
}

START_TEST(test_device_all_alignments_are_right)
{
    unsigned char *from = mt_device_new(MT_PLACE_DEVICE, 8192),
                  *to = mt_device_new(MT_PLACE_DEVICE, 8192);
    size_t step = mt_sweep() > 0 ? 1 : 3;
    for (size_t in = 0; in < 16; in++) {
        for (size_t out = in % step; out < 16; out += step)
            check_offsets(from, to, in, out, 37);
        check_offsets(from, to, in, (5 * in + 3) % 16, 5001);
        check_offsets(from, to, in, in, 5001);
    }
    mt_device_free(MT_PLACE_DEVICE, from, 8192);
    mt_device_free(MT_PLACE_DEVICE, to, 8192);
    mt_agree();
}
END_TEST

/* ---- handles ---- */

/* The allocator gives the same addresses again, to other sizes: what peers have mapped there is
 * old. */
START_TEST(test_device_memory_allocated_again_is_new)
{
    static const size_t counts[] = {400000, 3, 270000, 20000, 400000};
    for (unsigned k = 0; k < (mt_sweep() > 0 ? 30 : 10); k++) {
        struct mt_case c = sum_of_floats(counts[k % 5], k);
        c.in_place = k % 3 == 0;
        mt_allreduce(&c);
    }
    mt_agree();
}
END_TEST

static int count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int n = 0, c;
    while (file && (c = getc(file)) != EOF)
        n += c == '\n';
    if (file)
        fclose(file);
    return n;
}

/* @n calls in place, each on a buffer of its own; sizes for all paths, the one that maps peers'
 * buffers too. */
static void use_buffers(int n, size_t elems)
{
    static float view[400000], back[400000];
    for (int k = 0; k < n; k++) {
        size_t count = elems ? elems : 1 + (size_t)k % 50;
        float *at = mt_device_new(MT_PLACE_DEVICE, count * sizeof *at);
        mt_note("buffer %d of %d, count %zu", k, n, count);
        for (size_t i = 0; i < count; i++)
            view[i] = (float)(mt_rank + k % 100);
        mt_device_copy(at, view, count * sizeof *at);
        TIARA_Allreduce(MPI_IN_PLACE, at, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        mt_device_copy(back, at, count * sizeof *at);
        float want = (float)(mt_size * (k % 100) + mt_size * (mt_size - 1) / 2);
        size_t wrong = 0;
        for (size_t i = 0; i < count; i++)
            wrong += back[i] != want;
        mt_check(wrong == 0, "buffer %d: %zu of %zu elements wrong", k, wrong, count);
        mt_device_free(MT_PLACE_DEVICE, at, count * sizeof *at);
    }
}

START_TEST(test_device_buffers_by_the_thousand_leave_nothing)
{
    int nshort = mt_sweep() > 0 ? 9500 : 900, nmapped = mt_sweep() > 0 ? 400 : 80;
    use_buffers(100, 0);
    use_buffers(70, 270000);
    int descriptors = tiara_test_count_entries("/proc/self/fd", ""), mappings = count_mappings();
    use_buffers(nshort, 0);
    use_buffers(nmapped, 270000);
    mt_check(tiara_test_count_entries("/proc/self/fd", "") <= descriptors + 4,
        "%d open files, then %d", descriptors, tiara_test_count_entries("/proc/self/fd", ""));
    mt_check(count_mappings() <= mappings + 40, "%d mappings, then %d", mappings, count_mappings());
    mt_agree();
}
END_TEST

/* ---- streams of the program ---- */

static void hold(void *arg)
{
    volatile unsigned *turns = arg;
    while (*turns > 0)
        --*turns;
}

/* Work that was enqueued in another stream, and waited for, is the input; and the result is there
 * for a stream that waits for nobody. */
START_TEST(test_device_work_that_was_waited_for_is_seen)
{
    mt_stream before, after;
    MT_CUDA(StreamCreateWithFlags(&before, MT_CUDA_NON_BLOCKING));
    MT_CUDA(StreamCreateWithFlags(&after, MT_CUDA_NON_BLOCKING));
    static const int counts[] = {5, 3000, 100000, 300000};
    for (int k = 0; k < 8; k++) {
        int count = counts[k / 2];
        size_t bytes = (size_t)count * sizeof(int);
        int *view = malloc(bytes), *at = mt_device_new(MT_PLACE_DEVICE, bytes);
        unsigned turns = mt_rank % 2 == k % 2 ? 1000000 : 0;
        for (int i = 0; i < count; i++)
            view[i] = i + mt_rank;
        mt_note("work of other streams, count %d", count);
        MT_CUDA(MemsetAsync(at, 0xff, bytes, before));
        MT_CUDA(LaunchHostFunc(before, hold, &turns));
        MT_CUDA(MemcpyAsync(at, view, bytes, MT_CUDA_COPY_ANY, before));
        MT_CUDA(StreamSynchronize(before));
        int err = TIARA_Allreduce(MPI_IN_PLACE, at, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MT_CUDA(MemcpyAsync(view, at, bytes, MT_CUDA_COPY_ANY, after));
        MT_CUDA(StreamSynchronize(after));
        int wrong = 0;
        for (int i = 0; i < count; i++)
            wrong += view[i] != mt_size * i + mt_size * (mt_size - 1) / 2;
        mt_check(
            err == MPI_SUCCESS && wrong == 0, "count %d: error %d, %d wrong", count, err, wrong);
        mt_device_free(MT_PLACE_DEVICE, at, bytes);
        free(view);
    }
    MT_CUDA(StreamDestroy(before));
    MT_CUDA(StreamDestroy(after));
    mt_agree();
}
END_TEST

/* ---- pointers that are none ---- */

enum {
    WRONG_BYTES = 64 << 20
};

/* Whether the process has any memory there. */
static bool is_mapped(const void *at)
{
    unsigned char resident;
    return mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &resident) == 0 ||
           errno != ENOMEM;
}

static void *freed_pointer(void)
{
    void *at = mt_device_new(MT_PLACE_DEVICE, WRONG_BYTES);
    mt_device_free(MT_PLACE_DEVICE, at, WRONG_BYTES);
    return at;
}

/* The address of a buffer of the last rank's, which this one does not have. */
static void *foreign_pointer(void **keep_out)
{
    void *at = *keep_out =
        mt_rank == mt_size - 1 ? mt_device_new(MT_PLACE_DEVICE, WRONG_BYTES) : NULL;
    PMPI_Bcast(&at, sizeof at, MPI_BYTE, mt_size - 1, mt_private);
    return at;
}

/*
 * A call in which rank 0 passes @wrong, as input or as result. All ranks get an error, rank 0 says
 * what is wrong, and the communicator goes on.
 */
static void check_wrong(const char *what, void *wrong, int count, bool is_input)
{
    MPI_Comm comm;
    size_t bytes = (size_t)count * sizeof(float);
    int class = MPI_SUCCESS, skip = mt_rank == 0 && is_mapped(wrong);
    PMPI_Bcast(&skip, 1, MPI_INT, 0, mt_private);
    if (skip)
        return;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    struct mt_case good = sum_of_floats((size_t)count, 1);
    good.comm = comm;
    mt_allreduce(&good);
    struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(bytes, 0);
    memset(send.data, 0, bytes);
    void *from = mt_buf_lend(&send), *to = mt_buf_lend(&recv);
    mt_note("%s as %s, count %d", what, is_input ? "input" : "result", count);
    if (mt_rank == 0)
        *(is_input ? &from : &to) = wrong;
    mt_stderr_begin();
    int err = TIARA_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, comm);
    char *text = mt_stderr_end();
    MPI_Error_class(err, &class);
    mt_check(err != MPI_SUCCESS, "%s, count %d: no error", what, count);
    if (mt_rank == 0) {
        mt_check(class == MPI_ERR_BUFFER, "%s, count %d: error class %d", what, count, class);
        mt_check(strstr(text, is_input ? "sendbuf" : "recvbuf") && strstr(text, "rank 0"),
            "%s, count %d: said %s", what, count, text);
    }
    free(text);
    mt_buf_take(&send);
    mt_buf_take(&recv);
    mt_check(mt_buf_intact(&send) && mt_buf_intact(&recv), "%s: guards damaged", what);
    mt_buf_free(&send);
    mt_buf_free(&recv);
    mt_note("after %s, count %d", what, count);
    mt_allreduce(&good);
    good.in_place = true;
    mt_allreduce(&good);
    MPI_Comm_free(&comm);
}

START_TEST(test_device_pointers_that_are_none_are_errors)
{
    static const int counts[] = {3, 50000};
    void *keep = NULL, *foreign = foreign_pointer(&keep);
    for (int k = 0; k < 2 && mt_size > 1; k++) {
        check_wrong("a freed buffer", freed_pointer(), counts[k], k % 2 == 0);
        check_wrong("another process's buffer", foreign, counts[k], k % 2);
    }
    if (keep)
        mt_device_free(MT_PLACE_DEVICE, keep, WRONG_BYTES);
    mt_agree();
}
END_TEST

/* A buffer that ends before the vector does. */
START_TEST(test_device_buffer_too_short_is_an_error)
{
    if (mt_size > 1) {
        MPI_Comm comm;
        char *at = mt_device_new(MT_PLACE_DEVICE, 1 << 20);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        mt_stderr_begin();
        int err = TIARA_Allreduce(
            MPI_IN_PLACE, mt_rank == 0 ? at + (1 << 20) - 400 : at, 1000, MPI_FLOAT, MPI_SUM, comm);
        char *text = mt_stderr_end();
        mt_check(err != MPI_SUCCESS, "no error");
        mt_check(
            mt_rank != 0 || (strstr(text, "recvbuf") && strstr(text, "rank 0")), "said %s", text);
        free(text);
        mt_device_free(MT_PLACE_DEVICE, at, 1 << 20);
        MPI_Comm_free(&comm);
        struct mt_case good = sum_of_floats(1000, 5);
        mt_allreduce(&good);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_device_memory", MPI_THREAD_SINGLE);
    if (!mt_cuda())
        return mt_skip("TIARA_TEST_MEMORY is not device");
    tcase_add_test(tests, test_device_all_alignments_are_right);
    tcase_add_test(tests, test_device_memory_allocated_again_is_new);
    tcase_add_test(tests, test_device_buffers_by_the_thousand_leave_nothing);
    tcase_add_test(tests, test_device_work_that_was_waited_for_is_seen);
    tcase_add_test(tests, test_device_pointers_that_are_none_are_errors);
    tcase_add_test(tests, test_device_buffer_too_short_is_an_error);
    return mt_end();
}
