/*
 * tiara-info: what this Tiara is, what the machine allows, how the job is laid out, and what Tiara
 * would do for messages of every size, and why.
 *
 * Everything comes from TIARA_Report and TIARA_Explain, so that the program says what the library
 * in use says. It runs under mpirun with any number of ranks, and alone.
 */
#include "bench.h"
#include <dlfcn.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOW_EXPLAIN = TIARA_REPORT_DEVICES + 1,
    NSHOWS
};
enum {
    EXPLAIN_SIZE = 1024
};

struct info_options {
    bool show[NSHOWS]; /* by TIARA_REPORT_..., and the table of choices */
    const struct bench_type *type;
    const struct bench_op *op;
    size_t min, max; /* bytes of the table of choices */
    bool help, version;
};

static const struct option long_options[] = {
    {"build", no_argument, NULL, TIARA_REPORT_BUILD},
    {"layout", no_argument, NULL, TIARA_REPORT_LAYOUT},
    {"caps", no_argument, NULL, TIARA_REPORT_CAPABILITIES},
    {"env", no_argument, NULL, TIARA_REPORT_ENVIRONMENT},
    {"state", no_argument, NULL, TIARA_REPORT_STATE},
    {"devices", no_argument, NULL, TIARA_REPORT_DEVICES},
    {"explain", no_argument, NULL, SHOW_EXPLAIN},
    {"all", no_argument, NULL, 'a'},
    {"message-size", required_argument, NULL, 'm'},
    {"type", required_argument, NULL, 'T'},
    {"op", required_argument, NULL, 'o'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char help_text[] =
    "usage: [mpirun ...] tiara-info [options]\n"
    "What Tiara is, sees and would do here. Without options: everything.\n\n"
    "      --build                 version, compiler, what was built in\n"
    "      --caps                  what this machine allows\n"
    "      --devices               GPUs, and how each pair is linked\n"
    "      --env                   every environment variable and its value\n"
    "      --layout                which rank is on which node\n"
    "      --state                 shared memory held, calls by path\n"
    "      --explain               the choice for every message size, and why\n"
    "      --all                   all of these\n"
    "  -T, --type NAME             explain for this type (default float)\n"
    "      --op NAME               explain for this operator (default sum)\n"
    "  -m, --message-size [MIN:]MAX  explain these sizes in bytes (default "
    "1:1G)\n"
    "  -v, --version               print the version\n"
    "  -h, --help                  print this text\n";

/* One option; false with a sentence when its value is wrong. */
static bool option_apply(
    struct info_options *opts, int code, const char *arg, struct bench_why *why)
{
    char names[256];
    switch (code) {
    case 'a':
        for (int i = 0; i < NSHOWS; i++)
            opts->show[i] = true;
        return true;
    case 'T':
        opts->type = bench_type_find(arg, names, sizeof names);
        return opts->type != NULL ||
               bench_complain(why, "--type '%s': unknown, known are: %s", arg, names);
    case 'o':
        opts->op = bench_op_find(arg, names, sizeof names);
        return opts->op != NULL ||
               bench_complain(why, "--op '%s': unknown, known are: %s", arg, names);
    case 'm':
        return (bench_parse_range(arg, &opts->min, &opts->max) && opts->max > 0 &&
                   opts->min <= opts->max) ||
               bench_complain(why,
                   "--message-size '%s': need MAX or MIN:MAX in bytes, "
                   "MIN not above MAX",
                   arg);
    case 'v':
        opts->version = true;
        return true;
    case 'h':
        opts->help = true;
        return true;
    default:
        opts->show[code] = true;
        return true;
    }
}

static bool any_shown(const struct info_options *opts)
{
    for (int i = 0; i < NSHOWS; i++)
        if (opts->show[i])
            return true;
    return false;
}

static bool options_parse(struct info_options *opts, int argc, char **argv, struct bench_why *why)
{
    char names[256];
    *opts = (struct info_options){.type = bench_type_find("float", names, sizeof names),
        .op = bench_op_find("sum", names, sizeof names),
        .min = 1,
        .max = (size_t)1 << 30};
    opterr = 0;
    int code;
    while ((code = getopt_long(argc, argv, ":m:T:vh", long_options, NULL)) != -1) {
        if (code == ':')
            return bench_complain(why, "option '%s' needs a value", argv[optind - 1]);
        if (code == '?' && optopt > SHOW_EXPLAIN && strncmp(argv[optind - 1], "--", 2) != 0)
            return bench_complain(why, "unknown option '-%c'; see --help", optopt);
        if (code == '?')
            return bench_complain(why, "unknown option '%s'; see --help", argv[optind - 1]);
        if (!option_apply(opts, code, optarg, why))
            return false;
    }
    if (optind < argc)
        return bench_complain(
            why, "argument '%s': only options are allowed; see --help", argv[optind]);
    if (opts->op->integers_only && opts->type->kind > BENCH_UINT)
        return bench_complain(
            why, "--op '%s': not defined for --type '%s'", opts->op->name, opts->type->name);
    return any_shown(opts) || option_apply(opts, 'a', NULL, why);
}

/* "Environment" underlined. */
static void heading_print(const char *text)
{
    static bool is_next;
    printf("%s%s\n%.*s\n", is_next ? "\n" : "", text, (int)strlen(text),
        "----------------------------------------------------------------------");
    is_next = true;
}

/* The text of a section, owned by the caller; NULL on any rank that has not got it. Collective. */
static char *report_get(int section, MPI_Comm comm)
{
    int size = 16384;
    for (;;) {
        int length = 0, longest = 0;
        char *text = malloc((size_t)size);
        /* Without memory the call is made all the same, as other ranks are in it. */
        int code = TIARA_Report(section, comm, text, text != NULL ? size : 0, &length);
        if (code != MPI_SUCCESS || text == NULL) {
            free(text);
            text = NULL;
        }
        /* All ranks go round once more when one must. */
        PMPI_Allreduce(&length, &longest, 1, MPI_INT, MPI_MAX, comm);
        if (longest < size || longest > INT_MAX - 1)
            return text;
        free(text);
        size = longest + 1;
    }
}

static bool section_print(int section, int rank, MPI_Comm comm)
{
    static const char *const headings[] = {
        [TIARA_REPORT_BUILD] = "Build",
        [TIARA_REPORT_LAYOUT] = "Layout",
        [TIARA_REPORT_CAPABILITIES] = "Capabilities",
        [TIARA_REPORT_ENVIRONMENT] = "Environment",
        [TIARA_REPORT_STATE] = "State",
        [TIARA_REPORT_DEVICES] = "Devices",
    };
    char *text = report_get(section, comm);
    bool good = text != NULL;
    if (rank == 0) {
        heading_print(headings[section]);
        fputs(good ? text : "(Tiara could not tell)\n", stdout);
    }
    free(text);
    return good;
}

/* "4096" or "8 - 512", then the choice; further lines of it are indented. */
static void choice_print(size_t first, size_t last, const char *text)
{
    char range[48];
    snprintf(range, sizeof range, first == last ? "%zu" : "%zu - %zu", first, last);
    printf("%-24s", range);
    for (; *text != '\0'; text++) {
        if (*text != '\n')
            putchar(*text);
        else if (text[1] != '\0')
            printf("\n%-24s", "");
    }
    printf("\n");
}

/* Powers of two, neighbours with the same choice in one line. */
static bool explain_print(const struct info_options *opts, int rank, MPI_Comm comm)
{
    char text[EXPLAIN_SIZE], last_text[EXPLAIN_SIZE] = "";
    size_t sizes[BENCH_MAX_SIZES];
    size_t n = bench_sizes_fill(opts->min, opts->max, 2, sizes);
    size_t first = 0, last = 0;
    bool good = true;
    if (rank == 0) {
        heading_print("Choices");
        printf("TIARA_Allreduce of %s, %s, by bytes\n", opts->type->mpi_name, opts->op->name);
    }
    for (size_t i = 0; i < n; i++) {
        MPI_Count count = (MPI_Count)(sizes[i] / opts->type->bytes);
        if (count == 0)
            continue;
        if (TIARA_Explain(count, bench_type_mpi(opts->type), bench_op_mpi(opts->op), comm, text,
                sizeof text) != MPI_SUCCESS) {
            snprintf(text, sizeof text, "(Tiara could not tell)");
            good = false;
        }
        if (last != 0 && strcmp(text, last_text) != 0) {
            if (rank == 0)
                choice_print(first, last, last_text);
            first = 0;
        }
        first = first == 0 ? sizes[i] : first;
        last = sizes[i];
        memcpy(last_text, text, sizeof last_text);
    }
    if (rank == 0 && last != 0)
        choice_print(first, last, last_text);
    return good;
}

/* True when Tiara answered everything, on rank 0. */
static bool info(const struct info_options *opts, int rank)
{
    static const int order[] = {TIARA_REPORT_BUILD, TIARA_REPORT_CAPABILITIES, TIARA_REPORT_DEVICES,
        TIARA_REPORT_ENVIRONMENT, TIARA_REPORT_LAYOUT, SHOW_EXPLAIN, TIARA_REPORT_STATE};
    MPI_Comm comm;
    bool good = true;
    /* Tiara takes no interest in GPUs before the process has the driver, as a program with buffers
     * there has. */
    if (opts->show[TIARA_REPORT_DEVICES])
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (!opts->show[order[i]])
            continue;
        bool told = order[i] == SHOW_EXPLAIN ? explain_print(opts, rank, comm)
                                             : section_print(order[i], rank, comm);
        good = good && told;
    }
    MPI_Comm_free(&comm);
    return good;
}

int main(int argc, char **argv)
{
    struct info_options opts;
    struct bench_why why = {""};
    int rank;
    int status = BENCH_EXIT_OK;
    MPI_Init(&argc, &argv);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!options_parse(&opts, argc, argv, &why)) {
        status = BENCH_EXIT_FAILED;
        if (rank == 0)
            fprintf(stderr, "tiara-info: %s\n", why.text);
    } else if (opts.help || opts.version) {
        if (rank == 0 && opts.help)
            fputs(help_text, stdout);
        else if (rank == 0)
            printf("tiara-info %d.%d.%d\n", TIARA_VERSION_MAJOR, TIARA_VERSION_MINOR,
                TIARA_VERSION_PATCH);
    } else if (!info(&opts, rank)) {
        status = BENCH_EXIT_WRONG;
    }
    MPI_Finalize();
    return status;
}
