/*
 * The report at MPI_Finalize: what was intercepted, what became of it, and what that was worth.
 *
 * Calls are counted while the program runs. Times are not: how long a call takes says more about
 * when the ranks came than about who served it. So both ways are measured at the end, in turn and
 * for the sizes that were used, and the gain is an estimate from that.
 */
#include "base/alloc.h"
#include "pmpi/engine_priv.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    NCLASSES = 48, /* class k: up to 2^k bytes */
    NWHYS = 6
};

/* Counts of one process, then of all: only uint64_t. */
struct counts {
    uint64_t calls[TIARA_NKINDS], bytes[TIARA_NKINDS];
    uint64_t fates[TIARA_NKINDS][TIARA_NFATES];
    uint64_t served[TIARA_NKINDS][NCLASSES];
    uint64_t compared, differed, not_compared;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counts counts; /* lock */
static struct {
    const char *text;
    uint64_t calls;
} whys[NWHYS]; /* of declined calls, on this rank; lock */

static const char *const kind_names[TIARA_NKINDS] = {"MPI_Allreduce", "MPI_Iallreduce",
    "MPI_Allreduce_init", "MPI_Reduce_scatter_block", "MPI_Allgather"};
static const char *const fate_names[TIARA_NFATES] = {
    [TIARA_FATE_SERVED] = "served by Tiara",
    [TIARA_FATE_FIRST] = "first calls on their communicator",
    [TIARA_FATE_EMPTY] = "without elements",
    [TIARA_FATE_JUDGED] = "with arguments that MPI judges",
    [TIARA_FATE_ALONE] = "on a communicator of one rank",
    [TIARA_FATE_INTER] = "on an intercommunicator",
    [TIARA_FATE_FOREIGN] = "with ranks of another MPI_COMM_WORLD",
    [TIARA_FATE_UNPREPARED] = "nonblocking, before a blocking call made what that needs",
    [TIARA_FATE_TOOL] = "nonblocking, and another tool takes completing calls",
    [TIARA_FATE_DECLINED] = "declined by Tiara",
};

/* ---- counting ---- */

/* Bytes of the whole vector. */
static uint64_t bytes_of(const struct tiara_engine_args *a)
{
    int size = 0, ranks = 1;

    if (a->count <= 0 || a->type == MPI_DATATYPE_NULL ||
        PMPI_Type_size(a->type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    if (a->kind == TIARA_KIND_REDUCE_SCATTER_BLOCK || a->kind == TIARA_KIND_ALLGATHER)
        PMPI_Comm_size(a->comm, &ranks);
    return (uint64_t)a->count * (uint64_t)size * (uint64_t)ranks;
}

static int class_of(uint64_t bytes)
{
    int k = 0;

    while (k < NCLASSES - 1 && (uint64_t)1 << k < bytes)
        k++;
    return k;
}

static void note_why(const char *why)
{
    for (int i = 0; i < NWHYS; i++) {
        if (whys[i].text && strcmp(whys[i].text, why) != 0)
            continue;
        whys[i].text = why;
        whys[i].calls++;
        return;
    }
}

void tiara_engine_note(
    const struct tiara_engine_args *a, enum tiara_engine_fate fate, const char *why)
{
    uint64_t bytes = bytes_of(a);

    pthread_mutex_lock(&lock);
    counts.calls[a->kind]++;
    counts.bytes[a->kind] += bytes;
    counts.fates[a->kind][fate]++;
    if (fate == TIARA_FATE_SERVED)
        counts.served[a->kind][class_of(bytes)]++;
    if (fate == TIARA_FATE_DECLINED && why)
        note_why(why);
    pthread_mutex_unlock(&lock);
}

void tiara_engine_note_verified(enum tiara_engine_verdict verdict)
{
    pthread_mutex_lock(&lock);
    counts.compared += verdict != TIARA_VERDICT_UNKNOWN;
    counts.differed += verdict == TIARA_VERDICT_DIFFERS;
    counts.not_compared += verdict == TIARA_VERDICT_UNKNOWN;
    pthread_mutex_unlock(&lock);
}

/* ---- measuring ---- */

enum {
    MEASURED_MAX = 26, /* the largest class that is measured; larger ones are scaled */
    WARM_UP = 2,
    FEWEST = 3,
    MOST = 25
};
#define SECONDS_PER_CLASS 0.05

struct bench {
    MPI_Comm comm; /* the report's own */
    int size;
    char *in, *out; /* 2^MEASURED_MAX bytes each, as far as needed */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one call of @kind on 2^@k bytes; negative: it failed. */
static double once(const struct bench *b, enum tiara_engine_kind kind, int k, bool by_tiara)
{
    int bytes = 1 << k, n = bytes / 4 > 0 ? bytes / 4 : 1;
    int share = n / b->size > 0 ? n / b->size : 1;
    double start = now();
    int rc;

    if (kind == TIARA_KIND_ALLREDUCE)
        rc = (by_tiara ? TIARA_Allreduce : PMPI_Allreduce)(
            b->in, b->out, n, MPI_FLOAT, MPI_SUM, b->comm);
    else if (kind == TIARA_KIND_REDUCE_SCATTER_BLOCK)
        rc = (by_tiara ? TIARA_Reduce_scatter_block : PMPI_Reduce_scatter_block)(
            b->in, b->out, share, MPI_FLOAT, MPI_SUM, b->comm);
    else
        rc = (by_tiara ? TIARA_Allgather : PMPI_Allgather)(
            b->in, share, MPI_FLOAT, b->out, share, MPI_FLOAT, b->comm);
    return rc == MPI_SUCCESS ? now() - start : -1;
}

/* Rank 0's clock decides for all how often. */
static int repetitions(const struct bench *b, enum tiara_engine_kind kind, int k)
{
    double pair = 0;
    int n = MOST;

    for (int i = 0; i < WARM_UP; i++)
        pair = once(b, kind, k, false) + once(b, kind, k, true);
    if (pair * MOST > SECONDS_PER_CLASS)
        n = (int)(SECONDS_PER_CLASS / pair);
    n = n < FEWEST ? FEWEST : n;
    PMPI_Bcast(&n, 1, MPI_INT, 0, b->comm);
    return n;
}

static double median(double *times, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double t = times[j];

            times[j] = times[j - 1];
            times[j - 1] = t;
        }
    return times[n / 2];
}

/* seconds_out: by MPI and by Tiara, of the slowest rank; false on all ranks when they could not be
 * measured. Collective. */
static bool measure(
    const struct bench *b, enum tiara_engine_kind kind, int k, double seconds_out[2])
{
    int kk = k < MEASURED_MAX ? k : MEASURED_MAX, n = repetitions(b, kind, kk);
    double times[2][MOST], scale = (double)((uint64_t)1 << (k - kk)), mine[2];

    for (int i = 0; i < n; i++)
        for (int way = 0; way < 2; way++)
            times[way][i] = once(b, kind, kk, way == 1);
    for (int way = 0; way < 2; way++)
        mine[way] = times[way][0] < 0 ? 1e30 : median(times[way], n) * scale;
    PMPI_Allreduce(mine, seconds_out, 2, MPI_DOUBLE, MPI_MAX, b->comm);
    return seconds_out[0] < 1e29 && seconds_out[1] < 1e29;
}

/* Collective; false on all ranks when one has no left. */
static bool bench_open(struct bench *b, const struct counts *all)
{
    int ok, top = 0;

    for (int kind = 0; kind < TIARA_NKINDS; kind++)
        for (int k = 0; k < NCLASSES; k++)
            if (all->served[kind][k] && k > top)
                top = k;
    top = top < MEASURED_MAX ? top : MEASURED_MAX;
    *b = (struct bench){.comm = MPI_COMM_NULL};
    if (tiara_engine_like(MPI_COMM_WORLD, &b->comm) != MPI_SUCCESS)
        return false;
    PMPI_Comm_set_errhandler(b->comm, MPI_ERRORS_RETURN);
    PMPI_Comm_size(b->comm, &b->size);
    /* A share of a small vector is at least an element. */
    b->in = tiara_alloc(1, ((size_t)1 << top) + 4 * (size_t)b->size);
    b->out = tiara_alloc(1, ((size_t)1 << top) + 4 * (size_t)b->size);
    ok = b->in && b->out;
    PMPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, b->comm);
    return ok;
}

static void bench_close(struct bench *b)
{
    tiara_free(b->in);
    tiara_free(b->out);
    if (b->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&b->comm);
}

/* ---- printing ---- */

/* Rank 0 collects the text, and writes it at once. */
struct text {
    bool wanted;
    size_t length;
    char bytes[16384];
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    size_t left = sizeof(t->bytes) - t->length;
    va_list args;
    int n;

    if (!t->wanted)
        return;
    va_start(args, format);
    n = vsnprintf(t->bytes + t->length, left, format, args);
    va_end(args);
    if (n > 0)
        t->length += (size_t)n < left ? (size_t)n : left - 1;
}

static const char *human(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int u = 0;

    while (value >= 1024 && u < 5) {
        value /= 1024;
        u++;
    }
    snprintf(text, 32, value < 10 && u > 0 ? "%.1f %s" : "%.0f %s", value, units[u]);
    return text;
}

static void say_calls(struct text *t, const struct counts *all)
{
    char bytes[32];

    say(t, "  %-26s %12s %10s %12s %12s\n", "call", "calls", "bytes", "by Tiara", "left to MPI");
    for (int kind = 0; kind < TIARA_NKINDS; kind++) {
        uint64_t served = all->fates[kind][TIARA_FATE_SERVED];

        if (all->calls[kind] == 0)
            continue;
        say(t, "  %-26s %12llu %10s %12llu %12llu\n", kind_names[kind],
            (unsigned long long)all->calls[kind], human(all->bytes[kind], bytes),
            (unsigned long long)served, (unsigned long long)(all->calls[kind] - served));
        for (int fate = TIARA_FATE_SERVED + 1; fate < TIARA_NFATES; fate++)
            if (all->fates[kind][fate])
                say(t, "    left to MPI: %llu %s\n", (unsigned long long)all->fates[kind][fate],
                    fate_names[fate]);
    }
    for (int i = 0; i < NWHYS && whys[i].text; i++)
        say(t, "    declined on rank 0: %llu because: %s\n", (unsigned long long)whys[i].calls,
            whys[i].text);
}

/* A line for each size that was used. Collective. */
static double say_class(struct text *t, const struct bench *b, int kind, int k, double calls)
{
    double seconds[2], gain;
    char bytes[32];

    if (!measure(b, (enum tiara_engine_kind)kind, k, seconds)) {
        say(t, "  %-26s %10s: could not be measured\n", kind_names[kind],
            human((uint64_t)1 << k, bytes));
        return 0;
    }
    gain = calls / b->size * (seconds[0] - seconds[1]);
    say(t, "  %-26s %10s %12.0f %12.2f %12.2f   %s %.6f s\n", kind_names[kind],
        human((uint64_t)1 << k, bytes), calls, seconds[0] * 1e6, seconds[1] * 1e6,
        gain < 0 ? "lost" : "saved", gain < 0 ? -gain : gain);
    return gain;
}

static void say_gain(struct text *t, const struct bench *b, const struct counts *all)
{
    static const int kinds[] = {
        TIARA_KIND_ALLREDUCE, TIARA_KIND_REDUCE_SCATTER_BLOCK, TIARA_KIND_ALLGATHER};
    double total = 0;

    say(t, "  %-26s %10s %12s %12s %12s   estimate, per rank\n", "served by Tiara", "up to",
        "calls", "MPI (us)", "Tiara (us)");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (int k = 0; k < NCLASSES; k++)
            if (all->served[kinds[i]][k])
                total += say_class(t, b, kinds[i], k, (double)all->served[kinds[i]][k]);
    say(t, "  in all, estimated: %s %.6f s per rank\n", total < 0 ? "lost" : "saved",
        total < 0 ? -total : total);
    say(t, "  Estimated: calls x (time by MPI - time by Tiara). Both were measured just now, in "
           "turn, on all ranks, with sums of floats;\n"
           "  what the program gained also depends on its communicators and on when its ranks "
           "call. Nonblocking calls are not in it.\n");
}

static void say_report(struct text *t, const struct counts *all, int size)
{
    bool served = false;
    struct bench b;

    say(t, "tiara: report of %d ranks; calls and bytes are the sums over all\n", size);
    say_calls(t, all);
    for (int kind = 0; kind < TIARA_NKINDS; kind++)
        served |= kind != TIARA_KIND_IALLREDUCE && kind != TIARA_KIND_ALLREDUCE_INIT &&
                  all->fates[kind][TIARA_FATE_SERVED] > 0;
    if (!served)
        return;
    if (bench_open(&b, all))
        say_gain(t, &b, all);
    else
        say(t, "  what that gained could not be measured\n");
    bench_close(&b);
}

void tiara_engine_report(void)
{
    static struct text t; /* large, and needed once */
    struct counts all;
    int rank, size;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (PMPI_Allreduce(&counts, &all, sizeof(all) / sizeof(uint64_t), MPI_UINT64_T, MPI_SUM,
            MPI_COMM_WORLD) != MPI_SUCCESS)
        return;
    t.wanted = rank == 0;
    if (tiara_engine_settings.report)
        say_report(&t, &all, size);
    if (tiara_engine_settings.mode == TIARA_MODE_VERIFY)
        say(&t, "tiara: verify: %llu calls compared, %llu differ, %llu could not be compared\n",
            (unsigned long long)all.compared, (unsigned long long)all.differed,
            (unsigned long long)all.not_compared);
    fwrite(t.bytes, 1, t.length, stderr);
    fflush(stderr);
}
