/*
 * The options of tiara-bench. One table is the list: getopt_long, the help text and the error
 * messages read it.
 *
 * Names follow osu_allreduce where it has the option. What Tiara reads from its environment
 * (algorithm, leaders, chunk) is set there, so that the program needs no private way into the
 * library.
 */
#include "bench.h"
#include "bench_device.h"
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum option_code {
    OPT_NO_VALIDATION = 256,
    OPT_VS,
    OPT_ONLY,
    OPT_STREAM,
    OPT_OP,
    OPT_COLL,
    OPT_ALGO,
    OPT_LEADERS,
    OPT_CHUNK,
    OPT_OFF_CACHE,
    OPT_JSON,
    OPT_BW,
    OPT_SIZES,
    OPT_STEP_FACTOR,
    OPT_MAX_TIME,
    OPT_PROGRESS,
    OPT_FAULT
};

struct option_row {
    int code; /* below 256: also the short option */
    const char *name; /* the long option; NULL = short only */
    const char *arg; /* NULL = none; "[...]" = may be left out */
    const char *help; /* NULL = not shown */
};

static const struct option_row rows[] = {
    {'m', "message-size", "[MIN:]MAX", "sizes in bytes, K M G allowed (default 1:1M)"},
    {OPT_SIZES, "sizes", "A,B,...", "exactly these sizes"},
    {OPT_STEP_FACTOR, "step-factor", "F", "ratio of neighbouring sizes, 1.1 or more (default 2)"},
    {'i', "iterations", "N", "timed calls per size (default 1000; 100 above 8 KiB)"},
    {'x', "warmup", "N", "calls before (default 200; 10 above 8 KiB)"},
    {OPT_MAX_TIME, "max-time", "SECONDS",
        "bound per size and side, 0 = none (default 2; 0 with -i)"},
    {OPT_COLL, "coll", "NAME", "allreduce, reduce_scatter_block or allgather"},
    {'T', "type", "NAME", "mpi_char mpi_int mpi_float double int8 ... bfloat16 float8_e4m3"},
    {OPT_OP, "op", "NAME", "sum prod min max band bor bxor land lor lxor avg"},
    {'M', "in-place", NULL, "MPI_IN_PLACE as the send buffer"},
    {'d', "device", "host|cuda", "where the buffers are: host (default) or GPU memory"},
    {OPT_STREAM, "stream", NULL, "time calls that are ordered in a stream; with -d cuda"},
    {OPT_VS, "vs", "mpi|nccl", "measure Tiara and the other in turns, print both and the ratio"},
    {OPT_ONLY, "only", "tiara|mpi|nccl", "measure this side only (default tiara)"},
    {OPT_ALGO, "algo", "NAME", "sets TIARA_ALGO"},
    {OPT_LEADERS, "leaders", "K", "sets TIARA_LEADERS"},
    {OPT_CHUNK, "chunk", "BYTES", "sets TIARA_CHUNK"},
    {OPT_OFF_CACHE, "off-cache", "[BYTES]",
        "rotate over buffers of so much memory (default: the cache)"},
    {'f', "full", NULL, "minimum, maximum and iterations too"},
    {'t', "tail-lat", NULL, "P50, P90 and P99 too"},
    {OPT_BW, "bw", NULL, "algorithm and bus bandwidth too"},
    {'c', "validation", NULL, "a column with the outcome of the checks, which are always made"},
    {OPT_NO_VALIDATION, "no-validation", NULL, "make no checks"},
    {OPT_JSON, "json", "FILE|-", "write results as JSON; - replaces the table on standard output"},
    {OPT_PROGRESS, "progress", NULL, "say on standard error which size is measured"},
    {'v', "version", NULL, "print the version"},
    {'h', "help", NULL, "print this text"},
    {'l', NULL, NULL, NULL}, /* OMB 7 calls -M -l, and -t -z */
    {'z', NULL, NULL, NULL},
    {OPT_FAULT, "fault", "RANK:INDEX", NULL},
};
enum {
    NROWS = sizeof rows / sizeof rows[0]
};

static const char *const coll_names[] = {"allreduce", "reduce_scatter_block", "allgather"};

const char *bench_coll_name(enum bench_coll coll)
{
    return coll_names[coll];
}

enum bench_side bench_other_side(const struct bench_options *opts)
{
    return opts->side[BENCH_MPI] ? BENCH_MPI : opts->side[BENCH_NCCL] ? BENCH_NCCL : BENCH_NSIDES;
}

static const struct option_row *row_find(int code)
{
    for (size_t i = 0; i < NROWS; i++)
        if (rows[i].code == code)
            return &rows[i];
    return NULL;
}

/* "--type 'quux': <allowed>": the option, the value, what is allowed. */
static bool complain_value(struct bench_why *why, int code, const char *value, const char *allowed)
{
    return bench_complain(why, "--%s '%s': %s", row_find(code)->name, value, allowed);
}

static bool complain_name(struct bench_why *why, int code, const char *value, const char *names)
{
    return bench_complain(
        why, "--%s '%s': unknown, known are: %s", row_find(code)->name, value, names);
}

static bool apply_coll(struct bench_options *opts, const char *arg, struct bench_why *why)
{
    for (int i = 0; i <= BENCH_ALLGATHER; i++) {
        if (strcmp(arg, coll_names[i]) == 0) {
            opts->coll = (enum bench_coll)i;
            return true;
        }
    }
    return complain_name(why, OPT_COLL, arg, "allreduce reduce_scatter_block allgather");
}

static bool apply_type(struct bench_options *opts, const char *arg, struct bench_why *why)
{
    char names[256];
    opts->type = bench_type_find(arg, names, sizeof names);
    return opts->type != NULL || complain_name(why, 'T', arg, names);
}

static bool apply_op(struct bench_options *opts, const char *arg, struct bench_why *why)
{
    char names[256];
    opts->op = bench_op_find(arg, names, sizeof names);
    return opts->op != NULL || complain_name(why, OPT_OP, arg, names);
}

static bool apply_side(struct bench_options *opts, int code, const char *arg, struct bench_why *why)
{
    bool is_mpi = strcmp(arg, "mpi") == 0, is_nccl = strcmp(arg, "nccl") == 0;
    if (!is_mpi && !is_nccl && (code == OPT_VS || strcmp(arg, "tiara") != 0))
        return complain_name(why, code, arg, code == OPT_VS ? "mpi nccl" : "tiara mpi nccl");
    opts->side[BENCH_TIARA] = code == OPT_VS || (!is_mpi && !is_nccl);
    opts->side[BENCH_MPI] = is_mpi;
    opts->side[BENCH_NCCL] = is_nccl;
    return true;
}

static bool apply_device(struct bench_options *opts, const char *arg, struct bench_why *why)
{
    opts->cuda = strcmp(arg, "cuda") == 0;
    return opts->cuda || strcmp(arg, "host") == 0 || complain_name(why, 'd', arg, "host cuda");
}

/* Hands a setting to the library, on every rank alike. */
static bool apply_setting(int code, const char *variable, const char *arg, struct bench_why *why)
{
    size_t bytes;
    long leaders;
    if (code == OPT_CHUNK && !bench_parse_bytes(arg, &bytes))
        return complain_value(why, code, arg, "need a size in bytes, such as 65536 or 64k");
    if (code == OPT_LEADERS && !bench_parse_long(arg, 0, INT_MAX, &leaders))
        return complain_value(why, code, arg, "need a number of 0 (automatic) or more");
    if (arg[0] == '\0')
        return complain_value(why, code, arg, "need a name; tiara(7) lists them");
    if (setenv(variable, arg, 1) != 0)
        return complain_value(why, code, arg, "no memory to set it");
    return true;
}

static bool apply_fault(struct bench_options *opts, const char *arg, struct bench_why *why)
{
    char rank[16];
    size_t len = strcspn(arg, ":");
    snprintf(rank, sizeof rank, "%.*s", (int)len, arg);
    if (arg[len] != ':' || !bench_parse_long(rank, 0, INT_MAX, &opts->fault_rank) ||
        !bench_parse_long(arg + len + 1, 0, LONG_MAX, &opts->fault_index))
        return complain_value(why, OPT_FAULT, arg, "need RANK:INDEX");
    return true;
}

/* What the size options ask for, until all of them are known. */
struct size_request {
    size_t min, max;
    double factor;
    const char *list;
    bool has_max_time;
};

static bool apply_number(struct bench_options *opts, struct size_request *request, int code,
    const char *arg, struct bench_why *why)
{
    switch (code) {
    case 'm':
        return (bench_parse_range(arg, &request->min, &request->max) && request->max > 0 &&
                   request->min <= request->max) ||
               complain_value(why, code, arg, "need MAX or MIN:MAX in bytes, MIN not above MAX");
    case OPT_STEP_FACTOR:
        return bench_parse_double(arg, 1.1, 1e9, &request->factor) ||
               complain_value(why, code, arg, "need a number of 1.1 or more");
    case 'i':
        return bench_parse_long(arg, 1, 1000000000, &opts->iterations) ||
               complain_value(why, code, arg, "need a number from 1 to 1000000000");
    case 'x':
        return bench_parse_long(arg, 0, 1000000000, &opts->warmup) ||
               complain_value(why, code, arg, "need a number from 0 to 1000000000");
    case OPT_MAX_TIME:
        request->has_max_time = true;
        return bench_parse_double(arg, 0, 1e6, &opts->max_time) ||
               complain_value(why, code, arg, "need seconds from 0 (no bound) to 1000000");
    default: /* OPT_OFF_CACHE */
        if (arg == NULL) {
            opts->off_cache = BENCH_WHOLE_CACHE;
            return true;
        }
        return bench_parse_bytes(arg, &opts->off_cache) ||
               complain_value(why, code, arg, "need a size in bytes, such as 64M");
    }
}

static void apply_flag(struct bench_options *opts, int code)
{
    opts->in_place |= code == 'M' || code == 'l';
    opts->stream |= code == OPT_STREAM;
    opts->show_full |= code == 'f';
    opts->show_tail |= code == 't' || code == 'z';
    opts->show_bandwidth |= code == OPT_BW;
    opts->show_validation |= code == 'c';
    opts->show_progress |= code == OPT_PROGRESS;
    opts->validate &= code != OPT_NO_VALIDATION;
    opts->version |= code == 'v';
    opts->help |= code == 'h';
}

static bool apply(struct bench_options *opts, struct size_request *request, int code,
    const char *arg, struct bench_why *why)
{
    switch (code) {
    case OPT_COLL:
        return apply_coll(opts, arg, why);
    case 'T':
        return apply_type(opts, arg, why);
    case OPT_OP:
        return apply_op(opts, arg, why);
    case OPT_VS:
    case OPT_ONLY:
        return apply_side(opts, code, arg, why);
    case 'd':
        return apply_device(opts, arg, why);
    case OPT_ALGO:
        return apply_setting(code, "TIARA_ALGO", arg, why);
    case OPT_LEADERS:
        return apply_setting(code, "TIARA_LEADERS", arg, why);
    case OPT_CHUNK:
        return apply_setting(code, "TIARA_CHUNK", arg, why);
    case OPT_FAULT:
        return apply_fault(opts, arg, why);
    case OPT_SIZES:
        request->list = arg;
        return true;
    case OPT_JSON:
        opts->json = arg;
        return arg[0] != '\0' || complain_value(why, code, arg, "need a file name or -");
    case 'm':
    case OPT_STEP_FACTOR:
    case 'i':
    case 'x':
    case OPT_MAX_TIME:
    case OPT_OFF_CACHE:
        return apply_number(opts, request, code, arg, why);
    default:
        apply_flag(opts, code);
        return true;
    }
}

/* The same for GPU memory and NCCL. */
static bool combine_device(const struct bench_options *opts, struct bench_why *why)
{
    bool nccl = opts->side[BENCH_NCCL];
    if (opts->stream && !opts->cuda)
        return bench_complain(why, "--stream: needs --device 'cuda'");
    if (opts->stream && opts->side[BENCH_MPI] && !opts->side[BENCH_TIARA])
        return bench_complain(why, "--stream: MPI has no calls that are ordered in a stream");
    if (opts->stream && opts->coll != BENCH_ALLREDUCE)
        return bench_complain(why, "--stream: only allreduce can be ordered in a stream");
    if (nccl && !opts->cuda)
        return bench_complain(why, "NCCL can be measured only with --device 'cuda'");
    if (nccl && opts->coll != BENCH_ALLREDUCE)
        return bench_complain(why, "NCCL is measured only for --coll 'allreduce'");
    return !nccl || bench_nccl_knows(opts->type, opts->op, why);
}

/* What no option alone can see. */
static bool combine(
    struct bench_options *opts, const struct size_request *request, struct bench_why *why)
{
    if (opts->iterations > 0 && !request->has_max_time)
        opts->max_time = 0;
    if (opts->op->integers_only && opts->type->kind > BENCH_UINT)
        return bench_complain(
            why, "--op '%s': not defined for --type '%s'", opts->op->name, opts->type->name);
    if (opts->side[BENCH_MPI] && !opts->type->in_mpi && opts->coll != BENCH_ALLGATHER)
        return bench_complain(why,
            "--type '%s': the MPI below has no such type, so it cannot be measured",
            opts->type->name);
    if (opts->side[BENCH_MPI] && !opts->op->in_mpi && opts->coll != BENCH_ALLGATHER)
        return bench_complain(why,
            "--op '%s': the MPI below has no such operator, so it cannot be measured",
            opts->op->name);
    if (!combine_device(opts, why))
        return false;
    if (request->list != NULL) {
        opts->nsizes = bench_parse_sizes(request->list, opts->sizes, BENCH_MAX_SIZES);
        return opts->nsizes > 0 || complain_value(why, OPT_SIZES, request->list,
                                       "need at most 256 sizes, such as 4,1k,1M");
    }
    opts->nsizes = bench_sizes_fill(request->min, request->max, request->factor, opts->sizes);
    if (opts->nsizes == BENCH_MAX_SIZES)
        return bench_complain(why, "--step-factor '%g': gives more than %d sizes; use a larger one",
            request->factor, BENCH_MAX_SIZES - 1);
    return true;
}

/* The table in getopt's terms. */
static void table_convert(struct option *longs, char *shorts)
{
    *shorts++ = ':';
    for (size_t i = 0; i < NROWS; i++) {
        const char *arg = rows[i].arg;
        int has_arg = arg == NULL ? no_argument : required_argument;
        if (arg != NULL && rows[i].code == OPT_OFF_CACHE)
            has_arg = optional_argument;
        if (rows[i].name != NULL)
            *longs++ = (struct option){rows[i].name, has_arg, NULL, rows[i].code};
        if (rows[i].code < 256) {
            *shorts++ = (char)rows[i].code;
            if (has_arg == required_argument)
                *shorts++ = ':';
        }
    }
    *longs = (struct option){0};
    *shorts = '\0';
}

bool bench_options_parse(struct bench_options *opts, int argc, char **argv, struct bench_why *why)
{
    char names[256];
    *opts = (struct bench_options){.type = bench_type_find("float", names, sizeof names),
        .op = bench_op_find("sum", names, sizeof names),
        .warmup = -1,
        .max_time = 2,
        .side = {[BENCH_TIARA] = true},
        .validate = true,
        .fault_rank = -1};
    struct size_request request = {.min = 1, .max = 1 << 20, .factor = 2};
    struct option longs[NROWS + 1];
    char shorts[2 * NROWS + 2];
    table_convert(longs, shorts);
    opterr = 0;
    optind = 1;
    int code;
    while ((code = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const char *typed = argv[optind - 1];
        if (code == ':')
            return bench_complain(why, "option '%s' needs a value", typed);
        if (code == '?' && row_find(optopt) != NULL)
            return bench_complain(why, "option '%s' takes no value", typed);
        if (code == '?' && optopt != 0)
            return bench_complain(why, "unknown option '-%c'; see --help", optopt);
        if (code == '?')
            return bench_complain(why, "unknown option '%s'; see --help", typed);
        if (!apply(opts, &request, code, optarg, why))
            return false;
    }
    if (optind < argc)
        return bench_complain(
            why, "argument '%s': only options are allowed; see --help", argv[optind]);
    return opts->help || opts->version || combine(opts, &request, why);
}

void bench_options_print_help(FILE *out)
{
    fprintf(out, "usage: mpirun ... tiara-bench [options]\n"
                 "Time of Tiara's collectives, in the format of osu_allreduce.\n\n");
    for (size_t i = 0; i < NROWS; i++) {
        char left[48];
        const char *arg = rows[i].arg != NULL ? rows[i].arg : "";
        const char *gap = arg[0] == '\0' ? "" : rows[i].code == OPT_OFF_CACHE ? "=" : " ";
        if (rows[i].help == NULL)
            continue;
        snprintf(left, sizeof left, "--%s%s%s", rows[i].name, gap, arg);
        if (rows[i].code < 256)
            fprintf(out, "  -%c, %-26s %s\n", rows[i].code, left, rows[i].help);
        else
            fprintf(out, "      %-26s %s\n", left, rows[i].help);
    }
    fprintf(out, "\nThe man page tiara-bench(1) defines every column and describes the method.\n");
}
