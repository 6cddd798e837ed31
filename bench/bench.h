/*
 * What tiara-bench's files share: options, types, test data, buffers, timing, output.
 *
 * The one idea: a *run* is one collective on one communicator, measured for one or two *sides*
 * (Tiara, and the MPI below it or NCCL) over a list of sizes. Everything that decides how long or
 * how often something is done is a function of values that are equal on all ranks, so the ranks
 * never have to agree by luck.
 *
 * Only tiara.h and MPI are used, as any program would. Functions that print, print on rank 0 only.
 */
#ifndef TIARA_BENCH_H
#define TIARA_BENCH_H

#include "tiara.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BENCH_MAX_SIZES = 256,
    BENCH_WHY_SIZE = 512
};
enum {
    BENCH_GUARD_BYTES = 64
}; /* behind each receive buffer */

/* Exit status of the programs: WRONG is a wrong result of Tiara, FAILED a bad option or a run that
 * could not be made. */
enum {
    BENCH_EXIT_OK = 0,
    BENCH_EXIT_WRONG = 1,
    BENCH_EXIT_FAILED = 2
};

/* ---- types and operators (bench_types.c) ---- */

enum bench_type_kind {
    BENCH_INT,
    BENCH_UINT,
    BENCH_FLOAT,
    BENCH_FLOAT16,
    BENCH_BFLOAT16,
    BENCH_E4M3, /* 8-bit floats */
    BENCH_E5M2
};
struct bench_type {
    const char *name; /* what -T takes */
    const char *mpi_name; /* what the header prints, as MPI spells it */
    enum bench_type_kind kind;
    size_t bytes;
    bool in_mpi; /* false: only Tiara has it */
};

enum bench_op_id {
    BENCH_SUM,
    BENCH_PROD,
    BENCH_MIN,
    BENCH_MAX,
    BENCH_BAND,
    BENCH_BOR,
    BENCH_BXOR,
    BENCH_LAND,
    BENCH_LOR,
    BENCH_LXOR,
    BENCH_AVG
};
struct bench_op {
    const char *name;
    enum bench_op_id id;
    bool integers_only;
    bool in_mpi;
};

/* Any case, with or without "mpi_", "tiara_" and "_t". NULL when there is none; then why[@size]
 * lists the names. */
const struct bench_type *bench_type_find(const char *name, char *why, size_t size);
const struct bench_op *bench_op_find(const char *name, char *why, size_t size);
/* Valid between MPI_Init and MPI_Finalize. */
MPI_Datatype bench_type_mpi(const struct bench_type *type);
MPI_Op bench_op_mpi(const struct bench_op *op);

/* ---- numbers in options (bench_parse.c); all return false and write a sentence to why on bad text
 * ---- */

struct bench_why {
    char text[BENCH_WHY_SIZE]; /* empty = nothing to complain about */
};
/*
 * printf into @why; returns false, so that a parser can end with it. The first complaint is kept.
 */
bool bench_complain(struct bench_why *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "4096", "64k", "1M", "2G": powers of 1024. */
bool bench_parse_bytes(const char *text, size_t *bytes_out);
/* "MIN:MAX", "MIN:", ":MAX" or "MAX"; what is not given is left alone. */
bool bench_parse_range(const char *text, size_t *min_out, size_t *max_out);
bool bench_parse_long(const char *text, long min, long max, long *value_out);
bool bench_parse_double(const char *text, double min, double max, double *value_out);
/* "4,1k,1M": returns how many, 0 when the text is wrong or more than @max are given. */
size_t bench_parse_sizes(const char *text, size_t *sizes, size_t max);
/* From @min to @max in steps of @factor > 1, at least one byte each; returns how many. */
size_t bench_sizes_fill(size_t min, size_t max, double factor, size_t *sizes);

/* ---- options (bench_options.c) ---- */

enum bench_coll {
    BENCH_ALLREDUCE,
    BENCH_REDUCE_SCATTER_BLOCK,
    BENCH_ALLGATHER
};
enum bench_side {
    BENCH_TIARA,
    BENCH_MPI,
    BENCH_NCCL,
    BENCH_NSIDES
};
/* off_cache: as much as the cache of where the buffers are. */
#define BENCH_WHOLE_CACHE SIZE_MAX

struct bench_options {
    enum bench_coll coll;
    const struct bench_type *type;
    const struct bench_op *op;
    size_t sizes[BENCH_MAX_SIZES]; /* bytes, as asked for */
    size_t nsizes;
    long iterations; /* 0 = chosen per size */
    long warmup; /* -1 = chosen per size */
    double max_time; /* seconds per size and side; 0 = no bound */
    /*
     * Bytes that each rank's buffers shall cover, or BENCH_WHOLE_CACHE; 0 = reuse the same buffers.
     */
    size_t off_cache;
    bool side[BENCH_NSIDES]; /* one or two, of which one is Tiara */
    bool cuda; /* the buffers are in GPU memory */
    bool stream; /* Tiara's calls are ordered in a stream */
    bool in_place;
    bool validate;
    bool show_full, show_tail, show_validation, show_bandwidth, show_progress;
    const char *json; /* file name, "-" = standard output instead of the table; NULL = none */
    bool help, version;
    long fault_rank,
        fault_index; /* of the tests: spoil this element of Tiara's result; rank -1 = off */
};
/* argv is equal on all ranks, so the result is too. Sets TIARA_ variables; call it before any
 * TIARA_ function. */
bool bench_options_parse(struct bench_options *opts, int argc, char **argv, struct bench_why *why);
void bench_options_print_help(FILE *out);
const char *bench_coll_name(enum bench_coll coll);
/* The side that Tiara is compared with; BENCH_NSIDES: none. */
enum bench_side bench_other_side(const struct bench_options *opts);

/* ---- one size of one run ---- */

struct bench_shape {
    size_t bytes; /* what the Size column prints */
    size_t count; /* elements: the count argument of the call */
    size_t send_count; /* elements each rank puts in */
    size_t recv_count; /* elements each rank gets */
    size_t recv_space; /* elements of the receive buffer: more than recv_count in place */
};
/* False when not even one element a rank fits into @bytes. */
bool bench_shape_init(
    struct bench_shape *shape, const struct bench_options *opts, size_t bytes, int nranks);

/* ---- single elements (bench_element.c) ---- */

/* Integer @value, exact in @type, as one element; integers too wide keep their low bits. */
void bench_element_store(const struct bench_type *type, int64_t value, void *dst);
/* One element as decimal text. */
void bench_element_print(const struct bench_type *type, const void *src, char *text, size_t size);

/* ---- test data (bench_data.c) ---- */

struct bench_data {
    enum bench_coll coll;
    const struct bench_type *type;
    enum bench_op_id op;
    int nranks, rank;
    int stride; /* SUM, PROD: rank r speaks at index i when r and i are equal modulo this */
    int64_t nweights; /* SUM: rank r weighs 1 + r % nweights */
    int64_t nfactors; /* SUM: index i counts 1 .. nfactors */
    int64_t spread; /* AVG: how far ranks differ from the mean */
    int64_t *class_sum; /* [stride] owned: weights (SUM) or number (PROD) of the ranks that speak */
    uint64_t all_and, all_or, all_xor; /* bit operators: over the ranks' own patterns */
};
/* False with a sentence when no data of this type can be summed exactly by so many ranks. */
bool bench_data_init(struct bench_data *data, const struct bench_options *opts, MPI_Comm comm,
    struct bench_why *why);
void bench_data_fini(struct bench_data *data);
/* @count elements of this rank's input, from index 0. */
void bench_data_fill(const struct bench_data *data, void *dst, size_t count);
/* Compares with the closed form (or, @input, with this rank's input); false: @why names the first
 * difference. */
bool bench_data_check(const struct bench_data *data, const void *got,
    const struct bench_shape *shape, struct bench_why *why);
bool bench_data_check_input(
    const struct bench_data *data, const void *got, size_t count, struct bench_why *why);

/* ---- buffers (bench_buffers.c) ---- */

struct bench_device; /* bench_device.h */
struct bench_nccl;

enum bench_buffer {
    BENCH_SEND,
    BENCH_RECV
};
/* Indexed by enum bench_buffer. Near: what the CPU reaches; slot 0 itself, or pinned memory as
 * large as a slot. */
struct bench_buffers {
    char *slots[2]; /* owned; nslots slots each, pages of their own */
    char *near[2]; /* owned when it is not slot 0 */
    size_t stride[2]; /* bytes from slot to slot */
    size_t nslots; /* 1, or as many as --off-cache needs */
    size_t off_cache; /* bytes that they were to cover */
    struct bench_device *device; /* borrowed; NULL: host memory */
};
/* Collective. Checks first that the memory is there, then allocates; all ranks return the same.
 * @device: NULL: host memory. */
bool bench_buffers_init(struct bench_buffers *buffers, const struct bench_options *opts,
    const struct bench_shape *largest, struct bench_device *device, MPI_Comm comm,
    struct bench_why *why);
void bench_buffers_fini(struct bench_buffers *buffers);
char *bench_buffers_slot(const struct bench_buffers *buffers, enum bench_buffer which, size_t slot);
/* The first @bytes of a slot become those of near, and the other way round. False after the device
 * kept the failure. */
bool bench_buffers_store(
    const struct bench_buffers *buffers, enum bench_buffer which, size_t slot, size_t bytes);
bool bench_buffers_fetch(
    const struct bench_buffers *buffers, enum bench_buffer which, size_t slot, size_t bytes);
/* The size of the last-level cache, or 32 MiB where the system does not tell. */
size_t bench_cache_bytes(void);

/* ---- calls, checks and timing (bench_run.c, bench_time.c) ---- */

struct bench_run {
    const struct bench_options *opts;
    struct bench_device *device; /* owned; NULL: host memory */
    struct bench_nccl *nccl; /* owned; NULL: not a side */
    struct bench_data data;
    struct bench_buffers buffers;
    MPI_Comm comm; /* the measured calls; errors return */
    int rank, nranks;
    MPI_Datatype type;
    MPI_Op op;
};

/* Collective. False with a sentence on all ranks; the run can be finished either way. */
bool bench_run_init(struct bench_run *run, const struct bench_options *opts, struct bench_why *why);
void bench_run_fini(struct bench_run *run);
/*
 * The measured call; an MPI error code. It may only have been enqueued: the data are there after
 * bench_run_wait, and errors of Tiara's after bench_run_settle.
 */
int bench_run_call(const struct bench_run *run, enum bench_side side,
    const struct bench_shape *shape, size_t slot);
int bench_run_wait(const struct bench_run *run, enum bench_side side);
int bench_run_settle(const struct bench_run *run, enum bench_side side);
/* Whether @code is MPI_SUCCESS on all ranks; else @why says what failed on the lowest one.
 * Collective. */
bool bench_run_agree(const struct bench_run *run, int code, struct bench_why *why);
/* One call with fresh data, checked everywhere. Collective; false on all ranks with the lowest bad
 * rank's difference. */
bool bench_run_check(struct bench_run *run, enum bench_side side, const struct bench_shape *shape,
    struct bench_why *why);

/* Of the samples' slowest ranks; microseconds. */
struct bench_stats {
    double avg, median, min, max, p90, p99;
};
struct bench_ratio {
    double median, p25, p75; /* of Tiara's time / the other side's, per round */
};
struct bench_result {
    struct bench_shape shape;
    size_t batch; /* calls per sample */
    size_t samples; /* of each side */
    struct bench_stats stats[BENCH_NSIDES];
    struct bench_ratio ratio; /* both sides only */
    bool valid[BENCH_NSIDES]; /* true also when not checked */
};
/* Collective. Fills batch, samples and, on rank 0, stats and ratio. False: no memory for the
 * samples, or a call failed. */
bool bench_time(struct bench_run *run, struct bench_result *result, struct bench_why *why);

/* ---- output (bench_print.c, bench_json.c) ---- */

/* Bandwidths as nccl-tests define them, in GB/s (10^9). */
double bench_algbw(enum bench_coll coll, const struct bench_shape *shape, size_t elem_bytes,
    int nranks, double us);
double bench_busbw(enum bench_coll coll, double algbw, int nranks);
void bench_print_header(FILE *out, const struct bench_run *run);
void bench_print_row(FILE *out, const struct bench_run *run, const struct bench_result *result);
void bench_json_begin(FILE *out, const struct bench_run *run);
void bench_json_row(
    FILE *out, const struct bench_run *run, const struct bench_result *result, bool first);
void bench_json_end(FILE *out);

#endif
