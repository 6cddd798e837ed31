/*
 * tiara-bench: how long Tiara's collectives take, in the format of osu_allreduce; with --vs also
 * how long the MPI below, or NCCL, takes, in the same run.
 *
 * This file is the order of things: options, one run, one size after the other. The method is in
 * bench_time.c, the test data in bench_data.c.
 */
#include "bench.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Where rank 0 writes; other ranks have neither. */
struct outputs {
    FILE *table;
    FILE *json;
    bool progress_line; /* standard error is a terminal: the progress overwrites itself */
    bool progress_text; /* --progress: one line per size */
};

/* Opens what --json asks for. Collective: a rank that waits must know that rank 0 gave up. */
static bool outputs_open(struct outputs *out, const struct bench_run *run, struct bench_why *why)
{
    const char *json = run->opts->json;
    int failed = 0;
    *out = (struct outputs){0};
    if (run->rank == 0) {
        bool replaces = json != NULL && strcmp(json, "-") == 0;
        out->table = replaces ? NULL : stdout;
        out->json = replaces ? stdout : json != NULL ? fopen(json, "w") : NULL;
        failed = json != NULL && out->json == NULL ? errno : 0;
        out->progress_line = isatty(STDERR_FILENO);
        out->progress_text = run->opts->show_progress && !out->progress_line;
    }
    PMPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return failed == 0 || bench_complain(why, "--json '%s': %s", json, strerror(failed));
}

/* False when what was written did not reach the file. */
static bool outputs_close(struct outputs *out)
{
    bool good = true;
    if (out->json != NULL && out->json != stdout)
        good = fclose(out->json) == 0;
    return (out->table == NULL || fflush(stdout) == 0) && good;
}

static void progress_show(const struct outputs *out, size_t bytes, size_t at, size_t of)
{
    if (out->progress_line)
        fprintf(stderr, "\r\033[Ksize %zu, %zu of %zu", bytes, at, of);
    if (out->progress_text)
        fprintf(stderr, "size %zu, %zu of %zu\n", bytes, at, of);
}

static void progress_clear(const struct outputs *out)
{
    if (out->progress_line)
        fprintf(stderr, "\r\033[K");
}

static const char *side_fault(enum bench_side side)
{
    static const char *const texts[] = {"wrong result of Tiara",
        "wrong result of the MPI below (not Tiara's)", "wrong result of NCCL (not Tiara's)"};
    return texts[side];
}

/* Checks both sides; a difference is reported once per size and side. */
static void sides_check(struct bench_run *run, struct bench_result *result)
{
    for (int side = 0; side < BENCH_NSIDES; side++) {
        struct bench_why why = {""};
        if (!run->opts->side[side] || !result->valid[side])
            continue;
        result->valid[side] = bench_run_check(run, (enum bench_side)side, &result->shape, &why);
        if (result->valid[side] || run->rank != 0)
            continue;
        fprintf(stderr, "tiara-bench: %s, size %zu: %s\n", side_fault((enum bench_side)side),
            result->shape.bytes, why.text);
    }
}

/* All sizes. The exit status: wrong when a result of Tiara was; the MPI's own results are only
 * reported. */
static int sizes_run(struct bench_run *run, const struct outputs *out, struct bench_why *why)
{
    const struct bench_options *opts = run->opts;
    int status = BENCH_EXIT_OK;
    bool first = true;
    for (size_t i = 0; i < opts->nsizes; i++) {
        struct bench_result result = {.valid = {true, true, true}};
        if (!bench_shape_init(&result.shape, opts, opts->sizes[i], run->nranks))
            continue;
        progress_show(out, result.shape.bytes, i + 1, opts->nsizes);
        sides_check(run, &result);
        bool timed = bench_time(run, &result, why);
        if (timed && opts->validate)
            sides_check(run, &result);
        progress_clear(out);
        if (!timed)
            return result.valid[BENCH_TIARA] ? BENCH_EXIT_FAILED : BENCH_EXIT_WRONG;
        if (out->table != NULL)
            bench_print_row(out->table, run, &result);
        if (out->json != NULL)
            bench_json_row(out->json, run, &result, first);
        if (!result.valid[BENCH_TIARA])
            status = BENCH_EXIT_WRONG;
        first = false;
    }
    return status;
}

static int bench(const struct bench_options *opts, struct bench_why *why)
{
    struct bench_run run;
    struct outputs out = {0};
    int status = BENCH_EXIT_FAILED;
    if (!bench_run_init(&run, opts, why) || !outputs_open(&out, &run, why))
        goto out_run;
    if (out.table != NULL)
        bench_print_header(out.table, &run);
    if (out.json != NULL)
        bench_json_begin(out.json, &run);
    status = sizes_run(&run, &out, why);
    if (out.json != NULL)
        bench_json_end(out.json);
    if (!outputs_close(&out)) {
        bench_complain(why, "the results could not be written completely");
        status = BENCH_EXIT_FAILED;
    }
out_run:
    bench_run_fini(&run);
    return status;
}

/* What needs no run. */
static bool answer(const struct bench_options *opts, int rank)
{
    if (rank == 0 && opts->help)
        bench_options_print_help(stdout);
    else if (rank == 0 && opts->version)
        printf("tiara-bench %d.%d.%d\n", TIARA_VERSION_MAJOR, TIARA_VERSION_MINOR,
            TIARA_VERSION_PATCH);
    return opts->help || opts->version;
}

int main(int argc, char **argv)
{
    struct bench_options opts;
    struct bench_why why = {""};
    int rank;
    int status = BENCH_EXIT_FAILED;
    bool parsed = bench_options_parse(&opts, argc, argv, &why);
    /*
     * Calls in a stream have a thread of the library speak to other nodes. The other calls are
     * measured as most programs make them.
     */
    bool threads = parsed && opts.stream;
    int provided;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parsed)
        status = answer(&opts, rank) ? BENCH_EXIT_OK : bench(&opts, &why);
    if (rank == 0 && why.text[0] != '\0')
        fprintf(stderr, "tiara-bench: %s\n", why.text);
    MPI_Finalize();
    return status;
}
