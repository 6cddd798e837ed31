/*
 * The results as one JSON object. Rows are written as they come, so the file of a run that was
 * killed lacks only its end.
 */
#include "bench.h"
#include "bench_device.h"
#include <stdlib.h>

static void string_print(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 ||
            c >= 0x7f) /* other bytes need not be UTF-8; as Latin-1 they are always valid */
            fprintf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

/* What the environment asked Tiara for; null where it did not. */
static void setting_print(FILE *out, const char *key, const char *variable)
{
    const char *value = getenv(variable);
    fprintf(out, "  \"%s\": ", key);
    if (value != NULL)
        string_print(out, value);
    else
        fprintf(out, "null");
    fprintf(out, ",\n");
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* Where the buffers are. */
static void device_print(FILE *out, const struct bench_run *run)
{
    const struct bench_device *device = run->device;
    if (device == NULL) {
        fprintf(out, "  \"device\": \"host\",\n");
        return;
    }
    fprintf(out, "  \"device\": \"cuda\",\n  \"stream\": %s,\n  \"cuda_runtime\": %d,\n",
        truth(run->opts->stream), device->version);
    fprintf(out, "  \"node_ranks\": %d,\n  \"node_gpus\": %d,\n", device->node_ranks,
        device->node_gpus);
    if (run->opts->side[BENCH_MPI])
        fprintf(out, "  \"mpi_takes_gpu_memory\": %s,\n", truth(device->mpi_direct));
    if (run->nccl != NULL)
        fprintf(out, "  \"nccl_version\": %d,\n", bench_nccl_version(run->nccl));
}

void bench_json_begin(FILE *out, const struct bench_run *run)
{
    const struct bench_options *opts = run->opts;
    fprintf(out, "{\n  \"program\": \"tiara-bench\",\n  \"version\": \"%d.%d.%d\",\n",
        TIARA_VERSION_MAJOR, TIARA_VERSION_MINOR, TIARA_VERSION_PATCH);
    fprintf(out, "  \"collective\": \"%s\",\n  \"type\": \"%s\",\n", bench_coll_name(opts->coll),
        opts->type->name);
    if (opts->coll != BENCH_ALLGATHER)
        fprintf(out, "  \"op\": \"%s\",\n", opts->op->name);
    fprintf(out, "  \"ranks\": %d,\n  \"in_place\": %s,\n  \"off_cache_bytes\": %zu,\n",
        run->nranks, truth(opts->in_place), run->buffers.off_cache);
    device_print(out, run);
    setting_print(out, "algo", "TIARA_ALGO");
    setting_print(out, "leaders", "TIARA_LEADERS");
    setting_print(out, "chunk", "TIARA_CHUNK");
    fprintf(out, "  \"results\": [");
    fflush(out);
}

static void side_print(
    FILE *out, const struct bench_run *run, const struct bench_result *result, enum bench_side side)
{
    static const char *const names[] = {"tiara", "mpi", "nccl"};
    const struct bench_options *opts = run->opts;
    const struct bench_stats *s = &result->stats[side];
    double algbw = bench_algbw(opts->coll, &result->shape, opts->type->bytes, run->nranks, s->avg);
    fprintf(out, ",\n     \"%s\": {\"valid\": %s, \"avg_us\": %.4f, \"median_us\": %.4f, ",
        names[side], opts->validate ? truth(result->valid[side]) : "null", s->avg, s->median);
    fprintf(out, "\"min_us\": %.4f, \"max_us\": %.4f, \"p90_us\": %.4f, \"p99_us\": %.4f, ", s->min,
        s->max, s->p90, s->p99);
    fprintf(out, "\"algbw_gbs\": %.4f, \"busbw_gbs\": %.4f}", algbw,
        bench_busbw(opts->coll, algbw, run->nranks));
}

void bench_json_row(
    FILE *out, const struct bench_run *run, const struct bench_result *result, bool first)
{
    fprintf(out,
        "%s\n    {\"bytes\": %zu, \"count\": %zu, \"samples\": %zu, \"calls_per_sample\": %zu",
        first ? "" : ",", result->shape.bytes, result->shape.count, result->samples, result->batch);
    for (int side = 0; side < BENCH_NSIDES; side++)
        if (run->opts->side[side])
            side_print(out, run, result, (enum bench_side)side);
    if (run->opts->side[BENCH_TIARA] && bench_other_side(run->opts) != BENCH_NSIDES)
        fprintf(out, ",\n     \"ratio\": {\"median\": %.4f, \"p25\": %.4f, \"p75\": %.4f}",
            result->ratio.median, result->ratio.p25, result->ratio.p75);
    fprintf(out, "}");
    fflush(out);
}

void bench_json_end(FILE *out)
{
    fprintf(out, "\n  ]\n}\n");
    fflush(out);
}
