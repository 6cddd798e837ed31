/*
 * The table on standard output: osu_allreduce's columns first, in its order and widths, ours behind
 * them.
 */
#include "bench.h"
#include "bench_device.h"

enum {
    BYTES_WIDTH = 10,
    FIELD_WIDTH = 18,
    COUNT_WIDTH = 12,
    PRECISION = 2
};

double bench_algbw(
    enum bench_coll coll, const struct bench_shape *shape, size_t elem_bytes, int nranks, double us)
{
    double bytes = (double)(shape->send_count * elem_bytes);
    if (coll == BENCH_ALLGATHER)
        bytes *= nranks;
    return us > 0 ? bytes / us / 1e3 : 0;
}

double bench_busbw(enum bench_coll coll, double algbw, int nranks)
{
    double factor = (double)(nranks - 1) / nranks;
    return algbw * (coll == BENCH_ALLREDUCE ? 2 * factor : factor);
}

/* The side of the first columns. */
static enum bench_side main_side(const struct bench_options *opts)
{
    return opts->side[BENCH_TIARA] ? BENCH_TIARA : bench_other_side(opts);
}

static bool both_sides(const struct bench_options *opts)
{
    return opts->side[BENCH_TIARA] && bench_other_side(opts) != BENCH_NSIDES;
}

static const char *title(enum bench_coll coll)
{
    static const char *const titles[] = {"Allreduce", "Reduce_scatter_block", "Allgather"};
    return titles[coll];
}

/* "2.21.5": before 2.9 the number has a digit less for the minor version. */
static void nccl_version_print(FILE *out, int version)
{
    int major = version >= 10000 ? 10000 : 1000;
    fprintf(out, "# NCCL: %d.%d.%d.\n", version / major, version % major / 100, version % 100);
}

/* What is measured, where GPUs have a part in it. */
static void device_header_print(FILE *out, const struct bench_run *run)
{
    const struct bench_device *device = run->device;
    fprintf(out,
        "# Buffers: GPU memory; CUDA runtime %d.%d; ranks on the first node %d, GPUs %d.\n",
        device->version / 1000, device->version % 1000 / 10, device->node_ranks, device->node_gpus);
    if (run->opts->stream)
        fprintf(out, "# Calls: ordered in a stream, the batch waited for.\n");
    if (run->opts->side[BENCH_MPI])
        fprintf(out, "# MPI: %s.\n",
            device->mpi_direct
                ? "takes GPU memory"
                : "takes no GPU memory, staged by hand: copy to pinned memory, MPI, copy back");
    if (run->nccl != NULL)
        nccl_version_print(out, bench_nccl_version(run->nccl));
}

void bench_print_header(FILE *out, const struct bench_run *run)
{
    const struct bench_options *opts = run->opts;
    fprintf(out, "\n# TIARA MPI%s %s Latency Test v%d.%d\n", opts->cuda ? "-CUDA" : "",
        title(opts->coll), TIARA_VERSION_MAJOR, TIARA_VERSION_MINOR);
    if (!opts->side[BENCH_TIARA])
        fprintf(
            out, "# Side: %s, without Tiara.\n", opts->side[BENCH_MPI] ? "the MPI below" : "NCCL");
    if (run->device != NULL)
        device_header_print(out, run);
    if (opts->coll != BENCH_ALLGATHER && opts->op->id != BENCH_SUM)
        fprintf(out, "# Operator: %s.\n", opts->op->name);
    fprintf(out, "# Datatype: %s.\n", opts->type->mpi_name);
    fprintf(out, "%-*s%*s", BYTES_WIDTH, "# Size", FIELD_WIDTH, "Avg Latency(us)");
    if (opts->show_full)
        fprintf(out, "%*s%*s%*s", FIELD_WIDTH, "Min Latency(us)", FIELD_WIDTH, "Max Latency(us)",
            COUNT_WIDTH, "Iterations");
    if (opts->show_validation)
        fprintf(out, "%*s", FIELD_WIDTH, "Validation");
    if (opts->show_tail)
        fprintf(out, "%*s%*s%*s", FIELD_WIDTH, "P50 Tail Lat(us)", FIELD_WIDTH, "P90 Tail Lat(us)",
            FIELD_WIDTH, "P99 Tail Lat(us)");
    if (opts->show_bandwidth)
        fprintf(out, "%*s%*s", FIELD_WIDTH, "Algbw(GB/s)", FIELD_WIDTH, "Busbw(GB/s)");
    if (both_sides(opts))
        fprintf(out, "%*s%*s", FIELD_WIDTH, opts->side[BENCH_MPI] ? "MPI Avg(us)" : "NCCL Avg(us)",
            COUNT_WIDTH, opts->side[BENCH_MPI] ? "Tiara/MPI" : "Tiara/NCCL");
    fprintf(out, "\n");
    fflush(out);
}

static void number_print(FILE *out, double value)
{
    fprintf(out, "%*.*f", FIELD_WIDTH, PRECISION, value);
}

void bench_print_row(FILE *out, const struct bench_run *run, const struct bench_result *result)
{
    const struct bench_options *opts = run->opts;
    enum bench_side side = main_side(opts);
    const struct bench_stats *stats = &result->stats[side];
    fprintf(out, "%-*zu", BYTES_WIDTH, result->shape.bytes);
    number_print(out, stats->avg);
    if (opts->show_full) {
        number_print(out, stats->min);
        number_print(out, stats->max);
        fprintf(out, "%*zu", COUNT_WIDTH, result->batch * result->samples);
    }
    if (opts->show_validation)
        fprintf(out, "%*s", FIELD_WIDTH,
            !opts->validate       ? "-"
            : result->valid[side] ? "Pass"
                                  : "Fail");
    if (opts->show_tail) {
        number_print(out, stats->median);
        number_print(out, stats->p90);
        number_print(out, stats->p99);
    }
    if (opts->show_bandwidth) {
        double algbw =
            bench_algbw(opts->coll, &result->shape, opts->type->bytes, run->nranks, stats->avg);
        number_print(out, algbw);
        number_print(out, bench_busbw(opts->coll, algbw, run->nranks));
    }
    if (both_sides(opts)) {
        number_print(out, result->stats[bench_other_side(opts)].avg);
        fprintf(out, "%*.3f", COUNT_WIDTH, result->ratio.median);
    }
    fprintf(out, "\n");
    fflush(out);
}
