/*
 * Data-parallel training with the optimiser's state shared out (as ZeRO and FSDP do it), with
 * Tiara.
 *
 * Adam keeps two numbers for each parameter. In plain data-parallel training (ddp.c) every rank
 * keeps them all, and all ranks do the same with them. Here each rank keeps them for its shard, one
 * of as many equal parts as there are ranks, and an all-reduce is taken apart:
 *   1. TIARA_Reduce_scatter_block gives each rank the average gradients of its shard,
 *   2. the rank changes the parameters of its shard,
 *   3. TIARA_Allgather gives all ranks all parameters.
 * So much is sent as in one all-reduce, and the state takes 1/N of the memory.
 *
 * Shards are equal, so the parameters are padded with zeroes: to whole buckets, each of a block for
 * every rank. A rank's shard is its blocks of all buckets. Buckets are of a fixed size, so that it
 * does not matter where layers end.
 *
 * Its results are checked by test/harness/train_check.c. By hand:
 *     mpirun -n 4 build/test/train/zero
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 3 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=4x1 */
/* tiara-test: vcluster 2x2 */
#include "mpi_run.h"
#include "tiara.h"
#include "train_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 512 /* parameters of a bucket that are one rank's */
};

/* ---- the optimiser ---- */

/* Adam, for @n parameters whose moments are @m and @v. @step: 0, 1, ... */
static void adam(double *params, const double *grads, double *m, double *v, size_t n, int step)
{
    const double keep_m = 0.9, keep_v = 0.999, rate = 0.005;
    double unbias_m = 1 - pow(keep_m, step + 1), unbias_v = 1 - pow(keep_v, step + 1);
    for (size_t i = 0; i < n; i++) {
        m[i] = keep_m * m[i] + (1 - keep_m) * grads[i];
        v[i] = keep_v * v[i] + (1 - keep_v) * grads[i] * grads[i];
        params[i] -= rate * (m[i] / unbias_m) / (sqrt(v[i] / unbias_v) + 1e-8);
    }
}

/* ---- the training ---- */

/* What a rank owns of the optimiser's work: block @rank of each bucket. */
struct shard {
    int rank, ranks;
    size_t buckets;
    double *grads; /* [buckets x BLOCK] averages */
    double *m, *v; /* [buckets x BLOCK] */
};
static size_t state_bytes; /* of the moments of the last training, for the check below */

static void shard_init(struct shard *s, MPI_Comm comm)
{
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->ranks);
    size_t bucket = (size_t)s->ranks * BLOCK;
    s->buckets = (train_params() + bucket - 1) / bucket;
    s->grads = calloc(s->buckets * BLOCK, sizeof *s->grads);
    s->m = calloc(s->buckets * BLOCK, sizeof *s->m);
    s->v = calloc(s->buckets * BLOCK, sizeof *s->v);
    state_bytes = 2 * s->buckets * BLOCK * sizeof *s->m;
}

static void shard_fini(struct shard *s)
{
    free(s->grads);
    free(s->m);
    free(s->v);
}

/* Where bucket @b of all parameters begins. */
static size_t bucket_at(const struct shard *s, size_t b)
{
    return b * (size_t)s->ranks * BLOCK;
}

static void update(struct shard *s, double *params, double *grads, int step, MPI_Comm comm)
{
    for (size_t b = 0; b < s->buckets; b++)
        TIARA_Reduce_scatter_block(
            grads + bucket_at(s, b), s->grads + b * BLOCK, BLOCK, MPI_DOUBLE, TIARA_AVG, comm);
    for (size_t b = 0; b < s->buckets; b++) {
        double *mine = params + bucket_at(s, b) + (size_t)s->rank * BLOCK;
        adam(mine, s->grads + b * BLOCK, s->m + b * BLOCK, s->v + b * BLOCK, BLOCK, step);
    }
    for (size_t b = 0; b < s->buckets; b++)
        TIARA_Allgather(
            MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, params + bucket_at(s, b), BLOCK, MPI_DOUBLE, comm);
}

/*
 * Trains @result: [train_params()]. Returns the mean loss of the last step. Errors of the
 * communicator are fatal, as they are by default, so nothing looks at return values.
 */
static double train(const struct train_run *run, double *result, MPI_Comm comm)
{
    double loss = 0;
    struct train_batch batch;
    struct shard shard;
    shard_init(&shard, comm);
    train_batch_init(&batch, run->batch / (size_t)run->ranks);
    /* The padding stays zero: its gradients are. */
    double *params = calloc(bucket_at(&shard, shard.buckets), sizeof *params);
    double *grads = calloc(bucket_at(&shard, shard.buckets), sizeof *grads);
    train_params_init(params, run->seed);
    for (int step = 0; step < run->steps; step++) {
        train_load(&batch, run->seed, (size_t)step * run->batch + (size_t)shard.rank * batch.n);
        loss = train_forward(&batch, params);
        for (int layer = TRAIN_LAYERS - 1; layer >= 0; layer--)
            train_backward(&batch, params, grads, layer);
        update(&shard, params, grads, step, comm);
    }
    TIARA_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, TIARA_AVG, comm);
    memcpy(result, params, train_params() * sizeof *result);
    free(grads);
    free(params);
    train_batch_fini(&batch);
    shard_fini(&shard);
    return loss;
}

/* ---- the checks ---- */

/* The same optimiser with all of its state in one place. */
static void adam_alone(void *state, double *params, const double *grads, int step)
{
    double *m = state;
    adam(params, grads, m, m + train_params(), train_params(), step);
}

/* The state of all ranks together is that of all parameters, but for the padding of the last
 * bucket. */
START_TEST(test_state_is_shared_out)
{
    unsigned long long mine = state_bytes, all = 0;
    size_t whole = 2 * train_params() * sizeof(double);
    size_t bucket = 2 * (size_t)mt_size * BLOCK * sizeof(double);
    PMPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, mt_private);
    mt_check(all >= whole && all < whole + bucket && mine * (unsigned)mt_size == all,
        "%llu bytes here, %llu together, for a state of %zu", mine, all, whole);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    /* Guessing costs log 3 = 1.1. */
    struct train_case zero = {.name = "zero",
        .train = train,
        .update = adam_alone,
        .state = 2 * train_params(),
        .steps = 300,
        .batch = 96,
        .bound = 0.1};
    TCase *tests = mt_begin(&argc, &argv, "zero", MPI_THREAD_SINGLE);
    if (zero.batch % (size_t)mt_size != 0)
        return mt_skip("a batch of 96 samples cannot be shared by so many ranks");
    train_check_add(tests, &zero);
    tcase_add_test(tests, test_state_is_shared_out);
    return mt_end();
}
