/*
 * tiara-plan: prints, proves and prices plans, without MPI and without the cluster.
 *
 * The one idea: a plan is data, so the plans of all ranks can be made on one machine, and what they
 * would do on a cluster follows from them. Layouts are written as TIARA_LAYOUT takes them.
 */
#include "bench_plan.h"
#include "algo/algo.h"
#include "plan/plan.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NSIZES 7 /* of cost's table: 64 bytes to 16 MiB */

struct options {
    struct bench_plan_options line;
    struct tiara_algo_opts algo; /* what the line says about the plans */
    int *order; /* [norder] algo.order, NULL when none was given */
    int norder;
};

/* All ranks' plans. */
struct set {
    struct tiara_layout layout;
    struct tiara_plan *plans; /* [nplans] */
    const struct tiara_plan **views; /* [nplans] */
    int nplans;
};

static void *take(size_t n, size_t size)
{
    void *memory = calloc(n > 0 ? n : 1, size);

    if (memory == NULL)
        bench_plan_die("out of memory");
    return memory;
}

/* ---- sets of plans ---- */

static const struct tiara_algo *find_algo(const char *name)
{
    const struct tiara_algo *algo = tiara_algo_find(name);

    if (algo == NULL)
        bench_plan_die("no algorithm '%s'; tiara-plan list names them", name);
    return algo;
}

/* @text as in the usage; @one_node says where a bare number's ranks are. */
static void parse_layout(const char *text, bool one_node, struct tiara_layout *layout_out)
{
    char why[256], expanded[64];

    if (strspn(text, "0123456789") == strlen(text) && *text != '\0') {
        snprintf(expanded, sizeof(expanded), one_node ? "1x%.40s" : "%.40sx1", text);
        text = expanded;
    }
    if (tiara_layout_parse(layout_out, text, 0, why, sizeof(why)) != TIARA_OK)
        bench_plan_die("%s", why);
}

static void set_reserve(struct set *set, int nplans)
{
    set->plans = take((size_t)nplans, sizeof(*set->plans));
    set->views = take((size_t)nplans, sizeof(*set->views));
    set->nplans = nplans;
    for (int r = 0; r < nplans; r++)
        set->views[r] = &set->plans[r];
}

static void set_free(struct set *set)
{
    for (int r = 0; r < set->nplans; r++)
        tiara_plan_fini(&set->plans[r]);
    free(set->plans);
    free(set->views);
    tiara_layout_fini(&set->layout);
}

/* Fails without a word when a plan has waits that cannot hold; the checker then says why. */
static enum tiara_err set_depend(struct set *set)
{
    const struct tiara_layout *layout = &set->layout;
    const struct tiara_plan **peers = take((size_t)layout->max_local, sizeof(*peers));
    enum tiara_err err = TIARA_OK;

    for (int r = 0; r < set->nplans && err == TIARA_OK; r++) {
        int node = layout->node_of[r], nlocal = tiara_layout_local_size(layout, node);

        for (int i = 0; i < nlocal; i++)
            peers[i] = set->views[tiara_layout_rank(layout, node, i)];
        err = tiara_plan_depend(&set->plans[r], peers, nlocal);
    }
    free(peers);
    return err;
}

/* Fills @set; its layout is given. False when @algo has no such plans. */
static bool set_generate(
    struct set *set, const struct tiara_algo *algo, const struct tiara_algo_opts *opts)
{
    set_reserve(set, set->layout.nranks);
    for (int r = 0; r < set->nplans; r++) {
        if (tiara_algo_generate(algo, &set->layout, r, opts, &set->plans[r]) != TIARA_OK)
            return false;
    }
    return true;
}

/* Whether --order, if given, may name each rank of a node. */
static bool fits_order(const struct options *o, const struct tiara_layout *layout)
{
    return o->order == NULL || o->norder == layout->max_local;
}

/* Returns the algorithm that the command line names. */
static const struct tiara_algo *make_set(const struct options *o, struct set *set_out)
{
    const struct tiara_algo *algo;

    if (o->line.nwords != 2)
        bench_plan_die("an algorithm and a layout are needed");
    *set_out = (struct set){0};
    algo = find_algo(o->line.words[0]);
    parse_layout(o->line.words[1], algo->flags & TIARA_ALGO_NODE, &set_out->layout);
    if (!fits_order(o, &set_out->layout))
        bench_plan_die("--order '%s' names %d ranks, and a node has %d", o->line.order, o->norder,
            set_out->layout.max_local);
    if (!set_generate(set_out, algo, &o->algo))
        bench_plan_die("%s has no plans for %s on layout '%s'", algo->name,
            tiara_coll_name(o->algo.coll), o->line.words[1]);
    return algo;
}

/* Appends the plans in file @name, one or more, to @plans, which may move. */
static void read_file(const char *name, struct tiara_plan **plans, int *nplans)
{
    FILE *from = fopen(name, "r");
    char why[256];
    int c;

    if (from == NULL)
        bench_plan_die("cannot read '%s'", name);
    while ((c = fgetc(from)) != EOF) {
        if (isspace(c))
            continue;
        ungetc(c, from);
        *plans = realloc(*plans, ((size_t)*nplans + 1) * sizeof(**plans));
        if (*plans == NULL)
            bench_plan_die("out of memory");
        if (tiara_plan_parse(*plans + (*nplans)++, from, why, sizeof(why)) != TIARA_OK)
            bench_plan_die("%s: %s", name, why);
    }
    fclose(from);
}

/* The plans that the files @o->line.words hold, by rank. */
static void read_set(const struct options *o, struct set *set_out)
{
    struct tiara_plan *plans = NULL;
    char count[32];
    int n = 0;

    *set_out = (struct set){0};
    for (int i = 0; i < o->line.nwords; i++)
        read_file(o->line.words[i], &plans, &n);
    if (n == 0)
        bench_plan_die("--file needs files with plans");
    snprintf(count, sizeof(count), "%d", n);
    parse_layout(o->line.layout != NULL ? o->line.layout : count, false, &set_out->layout);
    if (set_out->layout.nranks != n)
        bench_plan_die("--layout '%s' is for %d ranks, and there are %d plans", o->line.layout,
            set_out->layout.nranks, n);
    set_reserve(set_out, n);
    for (int i = 0; i < n; i++) {
        int r = plans[i].rank;

        if (plans[i].nranks != n || r < 0 || r >= n || set_out->plans[r].nranks != 0)
            bench_plan_die("the files hold %d plans, but not those of %d ranks, each once", n,
                plans[i].nranks);
        set_out->plans[r] = plans[i];
    }
    free(plans);
}

/* ---- commands ---- */

static int run_list(const struct options *o)
{
    if (o->line.nwords > 0)
        bench_plan_die("list takes no '%s'", o->line.words[0]);
    for (int i = 0; tiara_algo_table[i] != NULL; i++) {
        const struct tiara_algo *a = tiara_algo_table[i];

        printf("%-18s  %s\n", a->name, a->help);
        printf("%-18s  %s%s;", "",
            a->flags & TIARA_ALGO_FLAT   ? "between any ranks"
            : a->flags & TIARA_ALGO_NODE ? "one node"
                                         : "two levels",
            a->flags & TIARA_ALGO_ORDERED         ? ", rank order kept"
            : a->flags & TIARA_ALGO_ORDERED_BLOCK ? ", rank order kept with block placement"
                                                  : "");
        for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
            if (a->colls & (1u << coll))
                printf(" %s", tiara_coll_name((enum tiara_coll)coll));
        }
        puts("");
    }
    return BENCH_PLAN_RIGHT;
}

static int run_print(const struct options *o)
{
    struct set set;
    int rank = (int)o->line.rank;

    make_set(o, &set);
    if (rank >= set.nplans)
        bench_plan_die("--rank %d: the layout has %d ranks", rank, set.nplans);
    if (o->line.with_waits && set_depend(&set) != TIARA_OK)
        bench_plan_die("the plans have no valid dependencies");
    for (int r = 0; r < set.nplans; r++) {
        if (rank < 0 || r == rank)
            tiara_plan_print(&set.plans[r], stdout);
    }
    set_free(&set);
    return ferror(stdout) ? BENCH_PLAN_WRONG : BENCH_PLAN_RIGHT;
}

/* True when @set is right in place and, unless @in_place, also not in place. */
static bool prove_set(struct set *set, bool in_place, struct tiara_plan_report *report_out)
{
    *report_out = (struct tiara_plan_report){0};
    if (set_depend(set) != TIARA_OK)
        snprintf(report_out->text, sizeof(report_out->text), "a wait could never hold");
    if (tiara_plan_check(set->views, &set->layout, true, report_out) != TIARA_OK)
        return false;
    return in_place || tiara_plan_check(set->views, &set->layout, false, report_out) == TIARA_OK;
}

static void print_counts(const struct set *set, const struct tiara_plan_report *report)
{
    double n = set->plans[0].nblocks;

    printf("  steps %d, of which a rank uses the network in at most %d; the vector has %d blocks\n",
        report->nsteps, report->net_rounds, set->plans[0].nblocks);
    printf("  in vectors: busiest rank sends %.4g, reads %.4g from node peers, reduces %.4g\n",
        (double)report->net_sent_max / n, (double)report->shm_read_max / n,
        (double)report->reduce_max / n);
    printf("  in vectors: busiest node sends %.4g and receives %.4g\n",
        (double)report->net_node_sent_max / n, (double)report->net_node_recv_max / n);
}

/* One case of prove all; counts it, and prints it when it is wrong. */
static bool prove_case(
    const struct tiara_algo *algo, const char *text, const struct tiara_algo_opts *opts, int *n)
{
    struct tiara_plan_report report;
    struct set set = {0};
    bool is_right = true;

    parse_layout(text, algo->flags & TIARA_ALGO_NODE, &set.layout);
    if (set_generate(&set, algo, opts)) {
        ++*n;
        is_right = prove_set(&set, false, &report);
        if (!is_right)
            printf("WRONG: %s %s on %s, leaders %d, inter %s: %s\n", algo->name,
                tiara_coll_name(opts->coll), text, opts->leaders,
                opts->inter != NULL ? opts->inter->name : "-", report.text);
    }
    set_free(&set);
    return is_right;
}

/* All collectives, leaders and inter-node algorithms of @algo on one layout. */
static bool prove_layout(const struct tiara_algo *algo, const char *text, int *n)
{
    const struct tiara_algo *const *inter = tiara_algo_table;
    int nleaders = algo->reads & TIARA_ALGO_OPT_LEADERS ? 3 : 1;
    bool is_right = true;

    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        for (int k = 0; k < nleaders; k++) {
            struct tiara_algo_opts opts = {.coll = (enum tiara_coll)coll, .leaders = k};
            bool has_rings = algo->reads & TIARA_ALGO_OPT_NODE_RING && k == 0;

            if (!(algo->colls & (1u << coll)))
                continue;
            is_right = prove_case(algo, text, &opts, n) && is_right;
            for (int i = 0; algo->reads & TIARA_ALGO_OPT_INTER && inter[i] != NULL; i++) {
                opts.inter = inter[i];
                is_right = prove_case(algo, text, &opts, n) && is_right;
            }
            opts.inter = NULL;
            opts.node_ring = true;
            is_right = (!has_rings || prove_case(algo, text, &opts, n)) && is_right;
        }
    }
    return is_right;
}

static int run_prove_all(void)
{
    static const char *const layouts[] = {"1", "2", "3", "4", "5", "6", "7", "8", "12", "16", "31",
        "32", "33", "64", "2x2", "4x2", "2x4", "3+1", "1+3", "2+3", "1+2+3", "1+1+4", "7+8",
        "2x4:rr", "4x2:rr", "0,1,1,0,2,0", "1x8", "2x16"};
    const int nflat = 14;
    const int nlayouts = (int)(sizeof(layouts) / sizeof(layouts[0]));
    bool is_right = true;

    for (int a = 0; tiara_algo_table[a] != NULL; a++) {
        const struct tiara_algo *algo = tiara_algo_table[a];
        bool is_good = true;
        int n = 0;

        for (int i = 0; i < (algo->flags & TIARA_ALGO_HIER ? nlayouts : nflat); i++)
            is_good = prove_layout(algo, layouts[i], &n) && is_good;
        printf("%-18s  %4d sets of plans: %s\n", algo->name, n,
            is_good ? "proved, in place and not" : "WRONG");
        is_right = is_right && is_good;
    }
    return is_right ? BENCH_PLAN_RIGHT : BENCH_PLAN_WRONG;
}

static int run_prove(const struct options *o)
{
    struct tiara_plan_report report;
    struct set set;
    bool is_right;

    if (!o->line.is_file && o->line.nwords == 1 && strcmp(o->line.words[0], "all") == 0)
        return run_prove_all();
    if (o->line.is_file)
        read_set(o, &set);
    else
        make_set(o, &set);
    is_right = prove_set(&set, o->line.in_place, &report);
    printf("%s of %s, %d ranks on %d nodes: %s\n", tiara_coll_name(set.plans[0].coll),
        o->line.is_file ? "the files" : o->line.words[0], set.nplans, set.layout.nnodes,
        !is_right          ? "WRONG"
        : o->line.in_place ? "proved in place"
                           : "proved, in place and not");
    if (is_right) {
        printf("  each contribution once, one tree for all ranks, no race, no deadlock\n");
        printf("  leaves %s rank order\n", report.ordered ? "in" : "not in");
        print_counts(&set, &report);
    } else {
        printf("  %s\n", report.text);
    }
    set_free(&set);
    return is_right ? BENCH_PLAN_RIGHT : BENCH_PLAN_WRONG;
}

/* Seconds for one call of @bytes; a negative number when @algo has no such plans. */
static double simulate(
    const struct options *o, const struct tiara_algo *algo, const char *text, double bytes)
{
    const struct tiara_sim_model model = {
        .net_alpha = o->line.net_alpha * 1e-6,
        .net_beta = 1e-9 / o->line.net_bw,
        .shm_alpha = o->line.shm_alpha * 1e-6,
        .shm_beta = 1e-9 / o->line.shm_bw,
        .gamma = 1e-9 / o->line.reduce_bw,
    };
    double seconds = -1, chunk = o->line.chunk > 0 ? o->line.chunk : bytes;
    struct set set = {0};

    parse_layout(text, algo->flags & TIARA_ALGO_NODE, &set.layout);
    if (fits_order(o, &set.layout) && set_generate(&set, algo, &o->algo) &&
        (set_depend(&set) != TIARA_OK || tiara_plan_simulate(set.views, &set.layout, &model, bytes,
                                             chunk, (int)o->line.slots, &seconds) != TIARA_OK))
        bench_plan_die("%s on '%s' cannot be simulated", algo->name, text);
    set_free(&set);
    return seconds;
}

/* A row for each of @algos[@nalgos], a column for each size, whose least time is marked. */
static void print_times(const struct options *o, const struct tiara_algo *const *algos, int nalgos)
{
    double sizes[NSIZES] = {o->line.bytes}, best[NSIZES];
    double(*times)[NSIZES] = take((size_t)nalgos, sizeof(*times));
    int nsizes = o->line.bytes > 0 ? 1 : NSIZES;

    printf("  %-18s", "us, by bytes");
    for (int i = 0; i < nsizes; i++) {
        if (o->line.bytes <= 0)
            sizes[i] = i == 0 ? 64 : sizes[i - 1] * 8;
        printf("%10.0f ", sizes[i]);
        best[i] = -1;
        for (int a = 0; a < nalgos; a++) {
            times[a][i] = 1e6 * simulate(o, algos[a], o->line.words[1], sizes[i]);
            if (times[a][i] >= 0 && (best[i] < 0 || times[a][i] < best[i]))
                best[i] = times[a][i];
        }
    }
    puts("");
    for (int a = 0; a < nalgos; a++) {
        if (times[a][0] < 0)
            continue;
        printf("  %-18s", algos[a]->name);
        for (int i = 0; i < nsizes; i++)
            printf("%10.1f%c", times[a][i], nalgos > 1 && times[a][i] <= best[i] ? '*' : ' ');
        puts("");
    }
    free(times);
}

static int run_cost(const struct options *o)
{
    const struct tiara_algo *algo;
    struct tiara_plan_report report;
    struct set set;
    int nalgos = 0;

    if (o->line.nwords != 2)
        bench_plan_die("an algorithm, or all, and a layout are needed");
    printf("%s of %s on %s\n", tiara_coll_name(o->algo.coll), o->line.words[0], o->line.words[1]);
    if (strcmp(o->line.words[0], "all") == 0) {
        while (tiara_algo_table[nalgos] != NULL)
            nalgos++;
        print_times(o, tiara_algo_table, nalgos);
        return BENCH_PLAN_RIGHT;
    }
    algo = make_set(o, &set);
    if (!prove_set(&set, false, &report)) {
        printf("WRONG: %s\n", report.text);
        return BENCH_PLAN_WRONG;
    }
    print_counts(&set, &report);
    print_times(o, &algo, 1);
    set_free(&set);
    return BENCH_PLAN_RIGHT;
}

static enum tiara_coll parse_coll(const char *text)
{
    for (int coll = 0; coll <= TIARA_COLL_ALLGATHER; coll++) {
        if (strcmp(text, tiara_coll_name((enum tiara_coll)coll)) == 0)
            return (enum tiara_coll)coll;
    }
    bench_plan_die("--coll '%s': it is allreduce, reduce-scatter or allgather", text);
}

/* The local indices that @text lists; owned by the caller. */
static int *parse_order(const char *text, int *n_out)
{
    int *order = take(strlen(text) + 1, sizeof(*order)), n = 0;
    char *end;

    for (const char *at = text;; at = end + 1) {
        long value = strtol(at, &end, 10);

        if (end == at || (*end != ',' && *end != '\0') || value < 0 || value > 1000000)
            bench_plan_die("--order '%s': it is a list of numbers, as in 0,2,3,1", text);
        order[n++] = (int)value;
        if (*end == '\0')
            break;
    }
    *n_out = n;
    return order;
}

/* What the options say about the plans, as generators want it. */
static struct tiara_algo_opts algo_opts(const struct bench_plan_options *o)
{
    struct tiara_algo_opts opts = {
        .coll = parse_coll(o->coll),
        .leaders = (int)o->leaders,
        .one_shot = o->one_shot,
        .single_copy = o->single_copy,
        .node_ring = o->node_ring,
    };

    if (o->inter != NULL) {
        opts.inter = find_algo(o->inter);
        if (!(opts.inter->flags & TIARA_ALGO_FLAT))
            bench_plan_die("--inter '%s': it is no flat algorithm", o->inter);
    }
    return opts;
}

int main(int argc, char **argv)
{
    static int (*const runs[])(const struct options *o) = {
        run_list, run_print, run_prove, run_cost};
    struct options o = {0};
    int status;

    o.line = bench_plan_parse(argc, argv);
    o.algo = algo_opts(&o.line);
    if (o.line.order != NULL)
        o.order = parse_order(o.line.order, &o.norder);
    o.algo.order = o.order;
    status = runs[o.line.command](&o);
    free(o.order);
    return status;
}
