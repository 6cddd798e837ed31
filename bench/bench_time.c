/*
 * Timing one size.
 *
 * A *sample* is one barrier and then a batch of calls back to back between two readings of the
 * clock; its time is that of the slowest rank, divided by the calls. A batch lasts 200 us or more,
 * because the ranks leave a barrier up to a microsecond apart, as long as a small call takes, and
 * several context switches when they share cores. With --stream the batch is enqueued, and the
 * second reading is when the stream has passed it. In a run of two sides the samples alternate, and
 * the side that goes first alternates too: what disturbs the machine for longer than a sample
 * disturbs both sides alike, and the ratio of the two samples of a round hardly feels it.
 *
 * All ranks make the same calls: batch and samples follow from the warm-up's time, of which all
 * ranks take the largest.
 */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum {
    LARGE_BYTES = 8192,
    MIN_SAMPLES = 3,
    MAX_BATCH = 1000
};
static const double SAMPLE_SECONDS = 200e-6;

static double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One sample of this rank: seconds per call. @turn counts calls, to walk over the slots. */
static double sample_take(const struct bench_run *run, enum bench_side side,
    const struct bench_result *result, size_t *turn, int *code)
{
    PMPI_Barrier(MPI_COMM_WORLD);
    double start = clock_seconds();
    for (size_t i = 0; i < result->batch; i++) {
        int rc = bench_run_call(run, side, &result->shape, (*turn)++ % run->buffers.nslots);
        *code = rc != MPI_SUCCESS ? rc : *code;
    }
    int waited = bench_run_wait(run, side);
    double seconds = clock_seconds() - start;
    int settled = bench_run_settle(run, side);
    *code = waited != MPI_SUCCESS ? waited : settled != MPI_SUCCESS ? settled : *code;
    return seconds / (double)result->batch;
}

/* Warms a side up; returns its seconds per call, equal on all ranks. The first call may set things
 * up and does not count. */
static double warm_up(const struct bench_run *run, enum bench_side side,
    struct bench_result *result, size_t *turn, int *code)
{
    long left = run->opts->warmup;
    if (left < 0)
        left = result->shape.bytes > LARGE_BYTES ? 10 : 200;
    double spent = 0, counted = 0, calls = 0, first = 0;
    for (result->batch = 1; spent == 0 || left > 0; result->batch *= 2) {
        if (spent > 0 && result->batch > (size_t)left)
            result->batch = (size_t)left;
        double mine = sample_take(run, side, result, turn, code) * (double)result->batch;
        double slowest;
        PMPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (spent == 0) {
            first = slowest;
        } else {
            counted += slowest;
            calls += (double)result->batch;
        }
        spent += slowest > 0 ? slowest : 1e-9;
        left -= (long)result->batch;
        if (run->opts->max_time > 0 && spent > run->opts->max_time / 4)
            break;
    }
    return calls > 0 && counted > 0 ? counted / calls : first > 0 ? first : 1e-9;
}

/* From the seconds per call of the faster and the slower side: how many calls per sample, and
 * samples. */
static void amount_choose(
    struct bench_result *result, const struct bench_options *opts, double fast, double slow)
{
    bool large = result->shape.bytes > LARGE_BYTES;
    size_t calls = opts->iterations > 0 ? (size_t)opts->iterations : large ? 100 : 1000;
    double batch = ceil(SAMPLE_SECONDS / fast);
    result->batch = batch < MAX_BATCH ? (size_t)batch : MAX_BATCH;
    if (result->batch > calls)
        result->batch = calls;
    result->samples = calls / result->batch;
    if (opts->iterations == 0 && result->samples < (large ? 100 : 200))
        result->samples =
            large ? 100 : 200; /* calls this short cost nothing, and percentiles want samples */
    double bound = opts->max_time / ((double)result->batch * slow);
    if (opts->max_time > 0 && (double)result->samples > bound)
        result->samples = bound > MIN_SAMPLES ? (size_t)bound : MIN_SAMPLES;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that is not below @percent of all. */
static double percentile(const double *sorted, size_t n, double percent)
{
    size_t place = (size_t)ceil(percent / 100 * (double)n);
    return sorted[place > 0 ? place - 1 : 0];
}

static double median_of(const double *sorted, size_t n)
{
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* Sorts @times. */
static struct bench_stats stats_of(double *times, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += times[i] *= 1e6;
    qsort(times, n, sizeof *times, double_compare);
    return (struct bench_stats){.avg = sum / (double)n,
        .median = median_of(times, n),
        .min = times[0],
        .max = times[n - 1],
        .p90 = percentile(times, n, 90),
        .p99 = percentile(times, n, 99)};
}

/* The sides that are measured; returns how many. */
static size_t sides_list(const struct bench_options *opts, enum bench_side sides[BENCH_NSIDES])
{
    size_t n = 0;
    for (int side = 0; side < BENCH_NSIDES; side++)
        if (opts->side[side])
            sides[n++] = (enum bench_side)side;
    return n;
}

/* On rank 0: @times[side] hold the slowest ranks' seconds; they are used up. */
static void evaluate(struct bench_result *result, const struct bench_options *opts,
    double *const times[BENCH_NSIDES], double *ratios)
{
    size_t n = result->samples;
    enum bench_side other = bench_other_side(opts);
    if (opts->side[BENCH_TIARA] && other != BENCH_NSIDES) {
        for (size_t i = 0; i < n; i++)
            ratios[i] = times[BENCH_TIARA][i] / fmax(times[other][i], 1e-9);
        qsort(ratios, n, sizeof *ratios, double_compare);
        result->ratio = (struct bench_ratio){
            median_of(ratios, n), percentile(ratios, n, 25), percentile(ratios, n, 75)};
    }
    for (int side = 0; side < BENCH_NSIDES; side++)
        if (opts->side[side])
            result->stats[side] = stats_of(times[side], n);
}

/* The timed rounds: @mine[side] gets this rank's samples. */
static void rounds_take(const struct bench_run *run, const struct bench_result *result,
    double *const mine[BENCH_NSIDES], int *code)
{
    enum bench_side sides[BENCH_NSIDES];
    size_t nsides = sides_list(run->opts, sides);
    size_t turn = 0;
    for (size_t round = 0; round < result->samples; round++) {
        for (size_t i = 0; i < nsides; i++) {
            enum bench_side side = sides[(i + round) % nsides];
            mine[side][round] = sample_take(run, side, result, &turn, code);
        }
    }
}

bool bench_time(struct bench_run *run, struct bench_result *result, struct bench_why *why)
{
    const struct bench_options *opts = run->opts;
    double fast = INFINITY, slow = 0;
    size_t turn = 0;
    int code = MPI_SUCCESS;
    for (int side = 0; side < BENCH_NSIDES; side++) {
        if (!opts->side[side])
            continue;
        double seconds = warm_up(run, (enum bench_side)side, result, &turn, &code);
        fast = fmin(fast, seconds);
        slow = fmax(slow, seconds);
    }
    if (!bench_run_agree(run, code, why))
        return false;
    amount_choose(result, opts, fast, slow);
    size_t n = result->samples;
    double *space = calloc((2 * BENCH_NSIDES + 1) * n, sizeof *space);
    int have = space != NULL, all;
    PMPI_Allreduce(&have, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    bool good = all || bench_complain(why, "no memory for %zu samples; use fewer --iterations", n);
    if (good) {
        double *const mine[BENCH_NSIDES] = {space, space + n, space + 2 * n};
        double *const slowest[BENCH_NSIDES] = {space + 3 * n, space + 4 * n, space + 5 * n};
        rounds_take(run, result, mine, &code);
        good = bench_run_agree(run, code, why);
        for (int side = 0; side < BENCH_NSIDES; side++)
            PMPI_Reduce(mine[side], slowest[side], (int)n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (run->rank == 0)
            evaluate(result, opts, slowest, space + 6 * n);
    }
    free(space);
    return good;
}
