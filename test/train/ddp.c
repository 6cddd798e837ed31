/*
 * Data-parallel training, as frameworks do it, with Tiara.
 *
 * Every rank has all parameters and works off its share of each batch. Then the gradients of all
 * ranks are averaged, and every rank changes its parameters in the same way; so they stay the same
 * on all ranks, bit for bit, without ever being sent.
 *
 * The average is what costs. Two things make it cheap here:
 *   - The backward pass goes from the last layer to the first. As soon as the gradients of a few
 *     layers are there, a bucket, their all-reduce is started (TIARA_Iallreduce), and goes on while
 *     the layers below are worked off.
 *   - Biases are many short vectors. Each by itself would cost as much time as a message takes to
 *     arrive; together they cost it once (TIARA_Allreduce_multi).
 *
 * Its results are checked by test/harness/train_check.c. By hand:
 *     mpirun -n 4 build/test/train/ddp
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 3 TIARA_TEST_SERVED=1 */
/* tiara-test: mpirun 4 TIARA_TEST_SERVED=1 */
/* tiara-test: mpirun 4 TIARA_TEST_SERVED=1 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call TIARA_TEST_SERVED=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=thread TIARA_TEST_SERVED=1
 * TIARA_TEST_THREADS=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=4x1 TIARA_PROGRESS=call TIARA_TEST_SERVED=1
 * TIARA_REPRODUCIBLE=1 */
/* tiara-test: vcluster 2x2 TIARA_PROGRESS=call TIARA_TEST_SERVED=1 */
#include "mpi_run.h"
#include "tiara.h"
#include "train_check.h"

#include <stdlib.h>

/* ---- the training ---- */

enum {
    BUCKET = 2048 /* gradients that are worth a message of their own */
};

/* Gradient descent with momentum. @velocity: [train_params()] the optimiser's state, zeroed at the
 * start. */
static void descend(void *velocity, double *params, const double *grads, int step)
{
    double *v = velocity;
    (void)step;
    for (size_t i = 0; i < train_params(); i++) {
        v[i] = 0.9 * v[i] + grads[i];
        params[i] -= 0.1 * v[i];
    }
}

/*
 * The backward pass. The weights of the layers lie one behind the other, so a bucket is one piece
 * of the array. Returns how many all-reduces are under way; until they are complete, nobody may
 * touch their gradients.
 */
static int backward(struct train_batch *batch, const double *params, double *grads, MPI_Comm comm,
    TIARA_Request requests[TRAIN_LAYERS])
{
    int nrequests = 0;
    size_t end = train_weights_at(TRAIN_LAYERS); /* of the bucket that is being filled */
    for (int layer = TRAIN_LAYERS - 1; layer >= 0; layer--) {
        size_t first = train_weights_at(layer);
        train_backward(batch, params, grads, layer);
        if (end - first < BUCKET && layer > 0)
            continue;
        TIARA_Iallreduce(MPI_IN_PLACE, grads + first, (int)(end - first), MPI_DOUBLE, TIARA_AVG,
            comm, &requests[nrequests++]);
        end = first;
    }
    return nrequests;
}

/*
 * The biases of all layers. They could have memory of their own each. The call waits for the other
 * ranks, but not for the buckets, which may be under way: what counts is that all ranks start their
 * calls in the same order.
 */
static void average_biases(double *grads, MPI_Comm comm)
{
    const void *from[TRAIN_LAYERS];
    void *to[TRAIN_LAYERS];
    int counts[TRAIN_LAYERS];
    for (int layer = 0; layer < TRAIN_LAYERS; layer++) {
        from[layer] = MPI_IN_PLACE;
        to[layer] = grads + train_biases_at(layer);
        counts[layer] = (int)train_biases_of(layer);
    }
    TIARA_Allreduce_multi(TRAIN_LAYERS, from, to, counts, MPI_DOUBLE, TIARA_AVG, comm);
}

/*
 * Trains @params: [train_params()]. Returns the mean loss of the last step. Errors of the
 * communicator are fatal, as they are by default, so nothing looks at return values.
 */
static double train(const struct train_run *run, double *params, MPI_Comm comm)
{
    int rank;
    double loss = 0, *grads = calloc(train_params(), sizeof *grads);
    double *velocity = calloc(train_params(), sizeof *velocity);
    struct train_batch batch;
    TIARA_Request requests[TRAIN_LAYERS];

    MPI_Comm_rank(comm, &rank);
    train_batch_init(&batch, run->batch / (size_t)run->ranks);
    /* Now, so that the first step's nonblocking calls find what they need. */
    TIARA_Comm_prepare(comm);
    /* The same seed gives all ranks the same parameters. Else one would broadcast its own. */
    train_params_init(params, run->seed);
    for (int step = 0; step < run->steps; step++) {
        train_load(&batch, run->seed, (size_t)step * run->batch + (size_t)rank * batch.n);
        loss = train_forward(&batch, params);
        int nrequests = backward(&batch, params, grads, comm, requests);
        average_biases(grads, comm);
        /* The optimiser is the first who needs the averages. */
        TIARA_Waitall(nrequests, requests, MPI_STATUSES_IGNORE);
        descend(velocity, params, grads, step);
    }
    TIARA_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, TIARA_AVG, comm);
    train_batch_fini(&batch);
    free(velocity);
    free(grads);
    return loss;
}

/* ---- the checks ---- */

/* Where a run says so, Tiara itself runs the buckets: the results above would be the same if the
 * MPI below did. */
START_TEST(test_buckets_are_served)
{
    MPI_Comm comm;
    int answer = -1;
    const char *why = "";
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    TIARA_Comm_prepare(comm);
    for (MPI_Count count = 1; count <= (MPI_Count)train_params(); count += 2000) {
        int err = TIARA_Comm_serves(comm, 1, count, MPI_DOUBLE, TIARA_AVG, &answer, &why);
        mt_check(
            err == MPI_SUCCESS && (!mt_env("TIARA_TEST_SERVED", 0) || answer == TIARA_SERVES_YES),
            "count %d: error %d, answer %d: %s", (int)count, err, answer, why);
    }
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    /* Guessing costs log 3 = 1.1. */
    struct train_case ddp = {.name = "ddp",
        .train = train,
        .update = descend,
        .state = train_params(),
        .steps = 300,
        .batch = 96,
        .bound = 0.1};
    int threads = mt_env("TIARA_TEST_THREADS", 0) ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    TCase *tests = mt_begin(&argc, &argv, "ddp", threads);
    if (ddp.batch % (size_t)mt_size != 0)
        return mt_skip("a batch of 96 samples cannot be shared by so many ranks");
    train_check_add(tests, &ddp);
    tcase_add_test(tests, test_buckets_are_served);
    return mt_end();
}
