/*
 * tiara-plan's command line: what was asked for, still in words. It knows nothing of plans.
 */
#ifndef TIARA_BENCH_PLAN_H
#define TIARA_BENCH_PLAN_H

#include <stdbool.h>

/* Exit status. WRONG: a plan is not what it should be. */
enum {
    BENCH_PLAN_RIGHT = 0,
    BENCH_PLAN_WRONG = 1,
    BENCH_PLAN_USAGE = 2
};

enum bench_plan_command {
    BENCH_PLAN_LIST,
    BENCH_PLAN_PRINT,
    BENCH_PLAN_PROVE,
    BENCH_PLAN_COST
};

/* All texts are borrowed from argv. */
struct bench_plan_options {
    enum bench_plan_command command;
    char **words; /* [nwords] what is no option, in order */
    int nwords;
    const char *coll;
    const char *inter; /* NULL: not given; layout alike */
    const char *layout;
    const char *order;
    bool one_shot, single_copy, node_ring, in_place, is_file, with_waits;
    double leaders; /* 0: not given */
    double rank; /* -1: all */
    double bytes; /* 0: a list of sizes */
    double chunk, slots; /* chunk 0: all in one */
    double net_alpha, net_bw, shm_alpha, shm_bw, reduce_bw; /* microseconds, GB/s */
};

/* Prints what is wrong with the command line, and ends the program with BENCH_PLAN_USAGE. */
void bench_plan_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Returns what @argv asks for. Does not return when that is help, or cannot be understood. */
struct bench_plan_options bench_plan_parse(int argc, char **argv);

#endif
