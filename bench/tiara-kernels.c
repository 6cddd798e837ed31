/*
 * tiara-kernels: how fast a GPU reduces, measured against how fast it copies.
 *
 * A reduction of n vectors reads n and writes one; a copy that moves as many bytes in all is the
 * best that memory allows. The two take turns within a round, and both walk through a pool of
 * memory that is larger than the cache, so that what is compared is memory and nothing else. Unlike
 * tiara-bench it holds the kernels themselves, and is linked with the CUDA runtime.
 */
#include "bench.h"
#include "kernels/kernels.h"
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 11, /* of which the median counts */
    MAX_BATCH = 50,
    MAX_TYPES = 16,
    POOL_VECTORS = 64, /* footprints in the pool, when these are small */
    CHECK_ELEMENTS = 100003, /* no multiple of anything that a kernel likes */
    LARGE_BYTES = 16 << 20 /* from here on --expect applies */
};
static const size_t BATCH_BYTES = (size_t)256 << 20; /* moved by a batch, at least */
static const size_t POOL_BYTES = (size_t)1 << 30; /* several times the cache of any GPU */
static const int source_counts[] = {2, 4, 8};
enum {
    NSOURCE_COUNTS = sizeof source_counts / sizeof source_counts[0],
    MAX_SOURCES = 8
};

struct options {
    const struct bench_type *types[MAX_TYPES];
    size_t ntypes;
    size_t min, max; /* bytes of a vector */
    double expect; /* share of the copy's bandwidth */
    const char *json;
    bool help;
};

struct gpu {
    int nblocks; /* of a launch that fills the GPU once */
    char *pool;
    size_t pool_bytes, at; /* the next launch starts at @at */
    cudaStream_t stream;
    cudaEvent_t before, between, after;
    struct cudaDeviceProp prop;
};

struct row {
    const struct bench_type *type;
    int nsrc;
    size_t bytes; /* of a vector */
    double reduce_gbs, copy_gbs;
};

static bool cuda_ok(cudaError_t code, const char *call, struct bench_why *why)
{
    return code == cudaSuccess || bench_complain(why, "%s: %s", call, cudaGetErrorString(code));
}
#define OK(call, why) cuda_ok((call), #call, (why))

/* ---- options ---- */

static const struct option long_options[] = {
    {"message-size", required_argument, NULL, 'm'},
    {"types", required_argument, NULL, 'T'},
    {"expect", required_argument, NULL, 'e'},
    {"json", required_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char help_text[] =
    "usage: tiara-kernels [options]\n"
    "Bandwidth of the reduction kernels on one GPU, and of a copy that moves as many bytes.\n\n"
    "  -m, --message-size [MIN:]MAX  bytes of each vector, in steps of 4 (default 1M:256M)\n"
    "  -T, --types A,B,...           element types (default "
    "float,bfloat16,double,int8,float8_e4m3)\n"
    "      --expect SHARE            fail when vectors of 16 MiB or more reach less of the copy's\n"
    "                                bandwidth, such as 0.9 (default 0: never)\n"
    "      --json FILE               write the results as JSON too\n"
    "  -h, --help                    print this text\n";

static bool types_parse(struct options *opts, const char *text, struct bench_why *why)
{
    opts->ntypes = 0;
    for (;;) {
        char word[32], names[256];
        size_t len = strcspn(text, ",");
        snprintf(word, sizeof word, "%.*s", (int)len, text);
        const struct bench_type *type = bench_type_find(word, names, sizeof names);
        if (type == NULL)
            return bench_complain(why, "--types '%s': unknown, known are: %s", word, names);
        if (opts->ntypes == MAX_TYPES)
            return bench_complain(why, "--types: at most %d", MAX_TYPES);
        opts->types[opts->ntypes++] = type;
        if (text[len] == '\0')
            return true;
        text += len + 1;
    }
}

static bool option_apply(struct options *opts, int code, const char *arg, struct bench_why *why)
{
    switch (code) {
    case 'm':
        return (bench_parse_range(arg, &opts->min, &opts->max) && opts->min >= 1024 &&
                   opts->min <= opts->max && opts->max <= (size_t)1 << 32) ||
               bench_complain(
                   why, "--message-size '%s': need MAX or MIN:MAX in bytes, from 1k to 4G", arg);
    case 'T':
        return types_parse(opts, arg, why);
    case 'e':
        return bench_parse_double(arg, 0, 1, &opts->expect) ||
               bench_complain(why, "--expect '%s': need a number from 0 to 1", arg);
    case 'j':
        opts->json = arg;
        return true;
    case 'h':
        opts->help = true;
        return true;
    default:
        return bench_complain(why, "unknown option, or one without its value; see --help");
    }
}

static bool options_parse(struct options *opts, int argc, char **argv, struct bench_why *why)
{
    *opts = (struct options){.min = 1 << 20, .max = 256 << 20};
    opterr = 0;
    int code;
    while ((code = getopt_long(argc, argv, "m:T:h", long_options, NULL)) != -1)
        if (!option_apply(opts, code, optarg, why))
            return false;
    if (optind < argc)
        return bench_complain(
            why, "argument '%s': only options are allowed; see --help", argv[optind]);
    return opts->ntypes > 0 || types_parse(opts, "float,bfloat16,double,int8,float8_e4m3", why);
}

/* ---- the GPU ---- */

static size_t footprint(int nsrc, size_t bytes)
{
    return ((size_t)nsrc + 1) * bytes;
}

/* Device 0, and a pool for the largest sizes, or of half the memory. */
static bool gpu_open(struct gpu *gpu, const struct options *opts, struct bench_why *why)
{
    size_t available, total;
    int resident = 0;
    *gpu = (struct gpu){0};
    if (!OK(cudaSetDevice(0), why) || !OK(cudaGetDeviceProperties(&gpu->prop, 0), why) ||
        !OK(cudaMemGetInfo(&available, &total), why) ||
        !OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &resident, (const void *)tiara_kernel_reduce, TIARA_KERNEL_THREADS, 0),
            why))
        return false;
    gpu->nblocks = gpu->prop.multiProcessorCount * (resident > 0 ? resident : 1);
    size_t most = footprint(MAX_SOURCES, opts->max);
    gpu->pool_bytes = POOL_VECTORS * most < POOL_BYTES ? POOL_VECTORS * most : POOL_BYTES;
    if (gpu->pool_bytes < 2 * most)
        gpu->pool_bytes = 2 * most;
    if (gpu->pool_bytes > available / 2)
        gpu->pool_bytes = available / 2;
    return OK(cudaMalloc((void **)&gpu->pool, gpu->pool_bytes), why) &&
           OK(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), why) &&
           OK(cudaEventCreate(&gpu->before), why) && OK(cudaEventCreate(&gpu->between), why) &&
           OK(cudaEventCreate(&gpu->after), why) &&
           OK(cudaMemsetAsync(gpu->pool, 0x35, gpu->pool_bytes, gpu->stream), why) &&
           OK(cudaStreamSynchronize(gpu->stream), why);
}

static void gpu_close(struct gpu *gpu)
{
    if (gpu->before != NULL)
        cudaEventDestroy(gpu->before);
    if (gpu->between != NULL)
        cudaEventDestroy(gpu->between);
    if (gpu->after != NULL)
        cudaEventDestroy(gpu->after);
    if (gpu->stream != NULL)
        cudaStreamDestroy(gpu->stream);
    cudaFree(gpu->pool);
}

/* The next @bytes of the pool, from its start again at its end. */
static char *pool_next(struct gpu *gpu, size_t bytes)
{
    if (gpu->at + bytes > gpu->pool_bytes)
        gpu->at = 0;
    char *at = gpu->pool + gpu->at;
    gpu->at += bytes;
    return at;
}

static int kernel_type(const struct bench_type *type)
{
    static const int by_size[] = {
        [1] = TIARA_TYPE_I8, [2] = TIARA_TYPE_I16, [4] = TIARA_TYPE_I32, [8] = TIARA_TYPE_I64};
    switch (type->kind) {
    case BENCH_INT:
        return by_size[type->bytes];
    case BENCH_UINT:
        return by_size[type->bytes] + 1;
    case BENCH_FLOAT:
        return type->bytes == 4 ? TIARA_TYPE_F32 : TIARA_TYPE_F64;
    case BENCH_FLOAT16:
        return TIARA_TYPE_F16;
    case BENCH_BFLOAT16:
        return TIARA_TYPE_BF16;
    case BENCH_E4M3:
        return TIARA_TYPE_E4M3;
    default: /* BENCH_E5M2 */
        return TIARA_TYPE_E5M2;
    }
}

/* Sum of vectors of @stride bytes that lie behind each other from @at; the last of them is the
 * result. */
static bool reduce_launch(struct gpu *gpu, const struct bench_type *type, int nsrc, size_t count,
    char *at, size_t stride, struct bench_why *why)
{
    struct tiara_kernel_reduce_args args = {.type = kernel_type(type),
        .oper = TIARA_OPER_SUM,
        .nsrc = nsrc,
        .count = count,
        .dst = at + (size_t)nsrc * stride};
    void *argv[] = {&args};
    dim3 grid = {(unsigned)gpu->nblocks, 1, 1}, block = {TIARA_KERNEL_THREADS, 1, 1};
    for (int k = 0; k < nsrc; k++)
        args.src[k] = at + (size_t)k * stride;
    return OK(
        cudaLaunchKernel((const void *)tiara_kernel_reduce, grid, block, argv, 0, gpu->stream),
        why);
}

/* ---- the check ---- */

/* 0 or 1, so that sums of all of them are exact in every type; by source and index. */
static int64_t check_value(int k, size_t i)
{
    return (int64_t)(((i + 1) * 2654435761u >> (k + 3)) & 1);
}

/* One reduction of vectors of an awkward length, compared bit by bit. @near: [MAX_SOURCES + 1]
 * vectors of @stride bytes. */
static bool reduce_check(struct gpu *gpu, const struct bench_type *type, int nsrc, char *near,
    size_t stride, struct bench_why *why)
{
    size_t elem = type->bytes, bytes = footprint(nsrc, stride);
    char *result = near + (size_t)nsrc * stride;
    memset(near, 0x7b, bytes);
    for (int k = 0; k < nsrc; k++)
        for (size_t i = 0; i < CHECK_ELEMENTS; i++)
            bench_element_store(type, check_value(k, i), near + (size_t)k * stride + i * elem);
    if (!OK(cudaMemcpyAsync(gpu->pool, near, bytes, cudaMemcpyHostToDevice, gpu->stream), why) ||
        !reduce_launch(gpu, type, nsrc, CHECK_ELEMENTS, gpu->pool, stride, why) ||
        !OK(cudaMemcpyAsync(near, gpu->pool, bytes, cudaMemcpyDeviceToHost, gpu->stream), why) ||
        !OK(cudaStreamSynchronize(gpu->stream), why))
        return false;
    for (size_t i = 0; i < CHECK_ELEMENTS; i++) {
        char want[8], got_text[40], want_text[40];
        int64_t sum = 0;
        for (int k = 0; k < nsrc; k++)
            sum += check_value(k, i);
        bench_element_store(type, sum, want);
        if (memcmp(want, result + i * elem, elem) == 0)
            continue;
        bench_element_print(type, result + i * elem, got_text, sizeof got_text);
        bench_element_print(type, want, want_text, sizeof want_text);
        return bench_complain(why, "wrong sum of %d vectors of %s, index %zu: got %s, not %s", nsrc,
            type->name, i, got_text, want_text);
    }
    return true;
}

static bool all_check(struct gpu *gpu, const struct options *opts, struct bench_why *why)
{
    size_t stride = (CHECK_ELEMENTS * 8 + 255) / 256 * 256;
    if (footprint(MAX_SOURCES, stride) > gpu->pool_bytes)
        return bench_complain(why, "this GPU has too little free memory");
    char *near = malloc(footprint(MAX_SOURCES, stride));
    bool good = near != NULL || bench_complain(why, "no memory");
    for (size_t t = 0; good && t < opts->ntypes; t++)
        for (int n = 0; good && n < NSOURCE_COUNTS; n++)
            good = reduce_check(gpu, opts->types[t], source_counts[n], near, stride, why);
    free(near);
    return good;
}

/* ---- timing ---- */

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool batch_enqueue(
    struct gpu *gpu, const struct row *row, bool copy, size_t batch, struct bench_why *why)
{
    size_t moved = footprint(row->nsrc, row->bytes);
    bool good = true;
    for (size_t i = 0; good && i < batch; i++) {
        char *at = pool_next(gpu, moved);
        good = copy ? OK(cudaMemcpyAsync(
                             at, at + moved / 2, moved / 2, cudaMemcpyDeviceToDevice, gpu->stream),
                          why)
                    : reduce_launch(gpu, row->type, row->nsrc, row->bytes / row->type->bytes, at,
                          row->bytes, why);
    }
    return good;
}

/* A round: both in one go, so that the GPU never waits for the CPU between them. Milliseconds of
 * each. */
static bool round_take(struct gpu *gpu, const struct row *row, bool copy_first, size_t batch,
    float ms_out[2], struct bench_why *why)
{
    return OK(cudaEventRecord(gpu->before, gpu->stream), why) &&
           batch_enqueue(gpu, row, copy_first, batch, why) &&
           OK(cudaEventRecord(gpu->between, gpu->stream), why) &&
           batch_enqueue(gpu, row, !copy_first, batch, why) &&
           OK(cudaEventRecord(gpu->after, gpu->stream), why) &&
           OK(cudaStreamSynchronize(gpu->stream), why) &&
           OK(cudaEventElapsedTime(&ms_out[copy_first], gpu->before, gpu->between), why) &&
           OK(cudaEventElapsedTime(&ms_out[!copy_first], gpu->between, gpu->after), why);
}

static bool row_measure(struct gpu *gpu, struct row *row, struct bench_why *why)
{
    size_t moved = footprint(row->nsrc, row->bytes);
    size_t batch = BATCH_BYTES / moved;
    double ms[2][ROUNDS]; /* reductions, copies */
    batch = batch < 1 ? 1 : batch > MAX_BATCH ? MAX_BATCH : batch;
    for (int round = -1; round < ROUNDS; round++) { /* the first warms up */
        float taken[2];
        if (!round_take(gpu, row, round % 2 != 0, batch, taken, why))
            return false;
        for (int which = 0; round >= 0 && which < 2; which++)
            ms[which][round] = taken[which] > 0 ? taken[which] : 1e-6;
    }
    for (int which = 0; which < 2; which++)
        qsort(ms[which], ROUNDS, sizeof ms[which][0], double_compare);
    row->reduce_gbs = (double)(moved * batch) / ms[0][ROUNDS / 2] / 1e6;
    row->copy_gbs = (double)(moved * batch) / ms[1][ROUNDS / 2] / 1e6;
    return true;
}

/* ---- output ---- */

static double share_of(const struct row *row)
{
    return row->reduce_gbs / row->copy_gbs;
}

static void row_print(FILE *json, const struct row *row, bool first)
{
    printf("%-12s%8d%12zu%14.1f%14.1f%10.3f\n", row->type->name, row->nsrc, row->bytes,
        row->reduce_gbs, row->copy_gbs, share_of(row));
    fflush(stdout);
    if (json != NULL)
        fprintf(json,
            "%s\n    {\"type\": \"%s\", \"sources\": %d, \"bytes\": %zu, \"reduce_gbs\": %.2f, "
            "\"copy_gbs\": %.2f, \"share\": %.4f}",
            first ? "" : ",", row->type->name, row->nsrc, row->bytes, row->reduce_gbs,
            row->copy_gbs, share_of(row));
}

static void header_print(FILE *json, const struct gpu *gpu)
{
    printf("# %s, %d multiprocessors; %d thread blocks of %d threads. Bytes read and written.\n"
           "%-12s%8s%12s%14s%14s%10s\n",
        gpu->prop.name, gpu->prop.multiProcessorCount, gpu->nblocks, TIARA_KERNEL_THREADS, "# Type",
        "Sources", "Bytes", "Reduce(GB/s)", "Copy(GB/s)", "Share");
    if (json != NULL)
        fprintf(json,
            "{\n  \"program\": \"tiara-kernels\",\n  \"gpu\": \"%s\",\n  \"multiprocessors\": %d,\n"
            "  \"thread_blocks\": %d,\n  \"results\": [",
            gpu->prop.name, gpu->prop.multiProcessorCount, gpu->nblocks);
}

/* All rows; the exit status. The lowest share of large vectors is in @why when it is too low. */
static int rows_measure(
    struct gpu *gpu, const struct options *opts, FILE *json, struct bench_why *why)
{
    struct row lowest = {0};
    bool first = true;
    for (size_t t = 0; t < opts->ntypes; t++) {
        for (int n = 0; n < NSOURCE_COUNTS; n++) {
            for (size_t bytes = opts->min; bytes <= opts->max; bytes *= 4) {
                struct row row = {
                    .type = opts->types[t], .nsrc = source_counts[n], .bytes = bytes / 256 * 256};
                if (footprint(row.nsrc, row.bytes) > gpu->pool_bytes)
                    continue;
                if (!row_measure(gpu, &row, why))
                    return BENCH_EXIT_FAILED;
                row_print(json, &row, first);
                first = false;
                if (bytes >= LARGE_BYTES &&
                    (lowest.type == NULL || share_of(&row) < share_of(&lowest)))
                    lowest = row;
            }
        }
    }
    if (lowest.type == NULL || share_of(&lowest) >= opts->expect)
        return BENCH_EXIT_OK;
    bench_complain(why, "%s, %d sources of %zu bytes: %.3f of the copy's bandwidth, less than %g",
        lowest.type->name, lowest.nsrc, lowest.bytes, share_of(&lowest), opts->expect);
    return BENCH_EXIT_WRONG;
}

static int measure(const struct options *opts, struct bench_why *why)
{
    struct gpu gpu;
    FILE *json = NULL;
    int status = BENCH_EXIT_FAILED;
    if (!gpu_open(&gpu, opts, why))
        goto out_close;
    if (!all_check(&gpu, opts, why)) {
        status = BENCH_EXIT_WRONG;
        goto out_close;
    }
    json = opts->json != NULL ? fopen(opts->json, "w") : NULL;
    if (opts->json != NULL && json == NULL) {
        bench_complain(why, "--json '%s': cannot be written", opts->json);
        goto out_close;
    }
    header_print(json, &gpu);
    status = rows_measure(&gpu, opts, json, why);
    if (json != NULL)
        fprintf(json, "\n  ]\n}\n");
    if (json != NULL && fclose(json) != 0) {
        bench_complain(why, "--json '%s': could not be written completely", opts->json);
        status = BENCH_EXIT_FAILED;
    }
out_close:
    gpu_close(&gpu);
    return status;
}

int main(int argc, char **argv)
{
    struct options opts;
    struct bench_why why = {""};
    int status = BENCH_EXIT_FAILED;
    if (options_parse(&opts, argc, argv, &why)) {
        if (opts.help)
            fputs(help_text, stdout);
        status = opts.help ? BENCH_EXIT_OK : measure(&opts, &why);
    }
    if (why.text[0] != '\0')
        fprintf(stderr, "tiara-kernels: %s\n", why.text);
    return status;
}
