/* See mpi_wide.h. */
#include "mpi_wide.h"
#include "mpi_buf.h"
#include "mpi_run.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    COLUMN_INTS = 64
};

struct mt_wide mt_wide_new(enum mt_wide_shape shape, size_t bytes)
{
    struct mt_wide wide = {.n = 2, .step = bytes - sizeof(int), .extent = bytes};
    MPI_Datatype ints;
    if (shape == MT_WIDE_FULL) {
        wide.n = (int)(bytes / sizeof(int));
        wide.step = sizeof(int);
    } else if (shape == MT_WIDE_COLUMN) {
        wide.n = COLUMN_INTS;
        wide.step = bytes / COLUMN_INTS;
        wide.extent = sizeof(int);
    }
    MPI_Type_create_hvector(wide.n, 1, (MPI_Aint)wide.step, MPI_INT, &ints);
    MPI_Type_create_resized(ints, 0, (MPI_Aint)wide.extent, &wide.type);
    MPI_Type_commit(&wide.type);
    MPI_Type_free(&ints);
    return wide;
}

void mt_wide_free(struct mt_wide *wide)
{
    MPI_Type_free(&wide->type);
}

/* Int @k of element @i. */
static char *at(const struct mt_wide *wide, const char *buf, int i, int k)
{
    return (char *)(uintptr_t)buf + (size_t)i * wide->extent + (size_t)k * wide->step;
}

static uint32_t load(const char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static void store(char *p, uint32_t x)
{
    memcpy(p, &x, sizeof x);
}

/* x = left then x. */
static void compose(const uint32_t left[2], uint32_t x[2])
{
    x[1] += left[1] * x[0];
    x[0] *= left[0];
}

static struct mt_wide known; /* to the operators, which have no argument of their own */

static void add_ints(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        for (int k = 0; k < known.n; k++)
            store(at(&known, inout, i, k),
                load(at(&known, in, i, k)) + load(at(&known, inout, i, k)));
}

static void compose_maps(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        for (int k = 0; k < known.n; k += 2) {
            uint32_t left[2] = {load(at(&known, in, i, k)), load(at(&known, in, i, k + 1))};
            uint32_t x[2] = {load(at(&known, inout, i, k)), load(at(&known, inout, i, k + 1))};
            compose(left, x);
            store(at(&known, inout, i, k), x[0]);
            store(at(&known, inout, i, k + 1), x[1]);
        }
}

MPI_Op mt_wide_op(const struct mt_wide *wide, bool commute)
{
    MPI_Op op;
    known = *wide;
    MPI_Op_create(commute ? add_ints : compose_maps, commute, &op);
    return op;
}

static size_t span(const struct mt_wide *wide, int count)
{
    return (size_t)(count - 1) * wide->extent + (size_t)(wide->n - 1) * wide->step + sizeof(int);
}

static uint32_t datum(int rank, int i, int k)
{
    return (uint32_t)mt_hash(mt_hash(mt_seed(), (uint64_t)rank), (uint64_t)i << 32 | (uint64_t)k);
}

char *mt_wide_buf(const struct mt_wide *wide, int count, bool fill)
{
    char *buf =
        mmap(NULL, span(wide, count), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < count && fill; i++)
        for (int k = 0; k < wide->n; k++)
            store(at(wide, buf, i, k), datum(mt_rank, i, k));
    return buf;
}

void mt_wide_buf_free(const struct mt_wide *wide, int count, char *buf)
{
    munmap(buf, span(wide, count));
}

bool mt_wide_verify(const struct mt_wide *wide, int first, int count, bool commute, const char *buf)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < wide->n; k += 2) {
            uint32_t want[2] = {datum(0, first + i, k), datum(0, first + i, k + 1)};
            for (int r = 1; r < mt_size; r++) {
                uint32_t left[2] = {want[0], want[1]};
                want[0] = datum(r, first + i, k);
                want[1] = datum(r, first + i, k + 1);
                if (commute) {
                    want[0] += left[0];
                    want[1] += left[1];
                } else {
                    compose(left, want);
                }
            }
            for (int part = 0; part < 2; part++) {
                uint32_t x = load(at(wide, buf, i, k + part));
                if (x != want[part])
                    return mt_check(false, "element %d: int %d is %x, not %x", first + i, k + part,
                        x, want[part]);
            }
        }
    return true;
}

size_t mt_wide_data(const struct mt_wide *wide, int count)
{
    return (size_t)count * (size_t)wide->n * sizeof(int);
}

static long status_kib(const char *format)
{
    char line[200];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, format, &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

long mt_peak_kib(void)
{
    return status_kib("VmHWM: %ld");
}

void mt_limit_memory(size_t more_mib)
{
    rlim_t bytes = ((rlim_t)status_kib("VmSize: %ld") << 10) + ((rlim_t)more_mib << 20);
    setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes});
}
