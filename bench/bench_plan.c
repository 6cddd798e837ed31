/*
 * tiara-plan's command line. Each option is one row of a table, with the commands that know it.
 */
#include "bench_plan.h"
#include <ctype.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: tiara-plan list\n"
    "       tiara-plan print ALGO LAYOUT [--rank R] [--waits]\n"
    "       tiara-plan prove ALGO LAYOUT [--in-place]\n"
    "       tiara-plan prove all\n"
    "       tiara-plan prove --file FILE... [--layout LAYOUT] [--in-place]\n"
    "       tiara-plan cost ALGO|all LAYOUT [--bytes SIZE] [--chunk SIZE] [MODEL]\n"
    "\n"
    "  ALGO     a name from tiara-plan list\n"
    "  LAYOUT   2x4, 2x4:rr, 3+1, 0,0,1,1,0 (a node per rank), or P: P ranks on P nodes (direct "
    "and\n"
    "           node-ring: on one)\n"
    "  SIZE     bytes: 65536, 64k, 16m, 1g\n"
    "\n"
    "list       the algorithms\n"
    "print      the plans in text form, of one rank or all; --waits: with the derived "
    "dependencies\n"
    "prove      execute the plans of all ranks symbolically: each contribution is in each result "
    "exactly\n"
    "           once, all ranks build the same tree, nothing races or deadlocks; in place and not, "
    "or only\n"
    "           in place; exit status 1 and the reason when not\n"
    "           all: every algorithm over many layouts; --file: plans that print wrote, in any "
    "number\n"
    "           of files (default layout: each rank on its own node)\n"
    "cost       counts, and the time that a model of the cluster gives; all: compare the "
    "algorithms\n"
    "\n"
    "of the plans (print, prove, cost)\n"
    "  --coll C         allreduce (default), reduce-scatter, allgather\n"
    "  --leaders K      hier: ranks per node that use the network (default: all of the smallest "
    "node)\n"
    "  --inter ALGO     hier: the flat algorithm between nodes (default: ring)\n"
    "  --one-shot       direct: every rank reduces everything itself\n"
    "  --single-copy    direct: peers read the caller's buffers\n"
    "  --node-ring      hier: nodes work as rings\n"
    "  --order N,N,...  node-ring, hier --node-ring: the ranks of a node in ring order (default: "
    "0,1,2,..)\n"
    "of the model (cost)\n"
    "  --slots N        chunks in flight (default 4); --chunk SIZE (default 256k), 0: one chunk\n"
    "  --net-alpha US   latency between nodes (2)      --net-bw GB/s   bandwidth of a node's link "
    "(12.5)\n"
    "  --shm-alpha US   latency inside a node (0.3)    --shm-bw GB/s   bandwidth of a copy (20)\n"
    "  --reduce-bw GB/s bandwidth of a reduction (10)\n";

/* The commands by number, and sets of them. */
static const char *const commands[] = {"list", "print", "prove", "cost"};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))
#define IN(command) (1u << (BENCH_PLAN_##command))
#define IN_ALL (IN(PRINT) | IN(PROVE) | IN(COST))

struct row {
    const char *name;
    unsigned commands; /* that know it */
    size_t offset; /* of its value in struct bench_plan_options */
    enum {
        FLAG,
        TEXT,
        NUMBER,
        SIZE
    } kind;
    double least, most; /* of a number */
};

#define AT(field) offsetof(struct bench_plan_options, field)
static const struct row table[] = {
    {"--coll", IN_ALL, AT(coll), TEXT, 0, 0},
    {"--inter", IN_ALL, AT(inter), TEXT, 0, 0},
    {"--leaders", IN_ALL, AT(leaders), NUMBER, 1, 1e6},
    {"--one-shot", IN_ALL, AT(one_shot), FLAG, 0, 0},
    {"--single-copy", IN_ALL, AT(single_copy), FLAG, 0, 0},
    {"--node-ring", IN_ALL, AT(node_ring), FLAG, 0, 0},
    {"--order", IN_ALL, AT(order), TEXT, 0, 0},
    {"--rank", IN(PRINT), AT(rank), NUMBER, 0, 1e6},
    {"--waits", IN(PRINT), AT(with_waits), FLAG, 0, 0},
    {"--in-place", IN(PROVE), AT(in_place), FLAG, 0, 0},
    {"--file", IN(PROVE), AT(is_file), FLAG, 0, 0},
    {"--layout", IN(PROVE), AT(layout), TEXT, 0, 0},
    {"--bytes", IN(COST), AT(bytes), SIZE, 1, 1e13},
    {"--chunk", IN(COST), AT(chunk), SIZE, 0, 1e13},
    {"--slots", IN(COST), AT(slots), NUMBER, 1, 64},
    {"--net-alpha", IN(COST), AT(net_alpha), NUMBER, 0, 1e6},
    {"--net-bw", IN(COST), AT(net_bw), NUMBER, 1e-6, 1e6},
    {"--shm-alpha", IN(COST), AT(shm_alpha), NUMBER, 0, 1e6},
    {"--shm-bw", IN(COST), AT(shm_bw), NUMBER, 1e-6, 1e6},
    {"--reduce-bw", IN(COST), AT(reduce_bw), NUMBER, 1e-6, 1e6},
};

void bench_plan_die(const char *format, ...)
{
    va_list args;

    fputs("tiara-plan: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(" (tiara-plan --help)\n", stderr);
    exit(BENCH_PLAN_USAGE);
}

/* A number; a SIZE may have a power of 1024 behind it. */
static double parse_number(const struct row *row, const char *text)
{
    static const char suffixes[] = "kmg";
    char *end;
    double value = strtod(text, &end);

    if (row->kind == SIZE && *end != '\0' && end != text) {
        const char *suffix = strchr(suffixes, tolower((unsigned char)*end));

        for (long i = suffix != NULL ? suffix - suffixes : -1; i >= 0; i--)
            value *= 1024;
        end += suffix != NULL;
    }
    if (end == text || *end != '\0' || !(value >= row->least && value <= row->most))
        bench_plan_die("%s '%s': a number from %g to %g is needed%s", row->name, text, row->least,
            row->most, row->kind == SIZE ? "; k, m and g may follow it" : "");
    return value;
}

static const struct row *find_row(const char *name, enum bench_plan_command command)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, name) == 0 && table[i].commands & (1u << command))
            return &table[i];
    }
    bench_plan_die("%s has no option '%s'", commands[command], name);
}

/* The words after the command; @words keeps those that are no option. */
static void parse_words(struct bench_plan_options *o, int nwords, char **words)
{
    o->words = words;
    for (int i = 0; i < nwords; i++) {
        const struct row *row;
        char *value;

        if (words[i][0] != '-') {
            o->words[o->nwords++] = words[i];
            continue;
        }
        row = find_row(words[i], o->command);
        value = (char *)o + row->offset;
        if (row->kind == FLAG)
            *(bool *)value = true;
        else if (++i == nwords)
            bench_plan_die("%s needs a value", row->name);
        else if (row->kind == TEXT)
            *(const char **)value = words[i];
        else
            *(double *)value = parse_number(row, words[i]);
    }
}

struct bench_plan_options bench_plan_parse(int argc, char **argv)
{
    struct bench_plan_options o = {
        .coll = "allreduce",
        .rank = -1,
        .chunk = 262144,
        .slots = 4,
        .net_alpha = 2,
        .net_bw = 12.5,
        .shm_alpha = 0.3,
        .shm_bw = 20,
        .reduce_bw = 10,
    };
    size_t command = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            exit(BENCH_PLAN_RIGHT);
        }
    }
    if (argc == 1) {
        fputs(usage, stderr);
        exit(BENCH_PLAN_USAGE);
    }
    while (command < NCOMMANDS && strcmp(commands[command], argv[1]) != 0)
        command++;
    if (command == NCOMMANDS)
        bench_plan_die("no command '%s'", argv[1]);
    o.command = (enum bench_plan_command)command;
    parse_words(&o, argc - 2, argv + 2);
    return o;
}
