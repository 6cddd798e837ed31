/* See train_check.h. */
#include "train_check.h"
#include "mpi_buf.h"
#include "mpi_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result {
    double loss, *params;
};

static const struct train_case *at_work;
static struct result first;

static struct train_run run_of_all_ranks(void)
{
    return (struct train_run){
        .seed = 1, .steps = at_work->steps, .batch = at_work->batch, .ranks = mt_size};
}

static struct result result_of_training(void)
{
    struct train_run run = run_of_all_ranks();
    struct result result = {.params = calloc(train_params(), sizeof(double))};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    mt_note("training");
    result.loss = at_work->train(&run, result.params, comm);
    MPI_Comm_free(&comm);
    return result;
}

static bool has_same_bits(const struct result *a, const struct result *b)
{
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
           memcmp(a->params, b->params, train_params() * sizeof *a->params) == 0;
}

/* test/train/layouts.sh reads the line. */
START_TEST(test_training_converges)
{
    first = result_of_training();
    mt_check(first.loss < at_work->bound, "the loss is %g", first.loss);
    if (mt_rank == 0)
        printf("%s: loss %a (%.6f) after %d steps on %d ranks\n", at_work->name, first.loss,
            first.loss, at_work->steps, mt_size);
    mt_agree();
}
END_TEST

START_TEST(test_all_ranks_have_the_same_parameters)
{
    mt_check(mt_same_bits(first.params, train_params() * sizeof(double), mt_private) &&
                 mt_same_bits(&first.loss, sizeof first.loss, mt_private),
        "parameters differ between ranks; the loss is %a here", first.loss);
    mt_agree();
}
END_TEST

START_TEST(test_training_again_gives_the_same_bits)
{
    struct result again = result_of_training();
    mt_check(has_same_bits(&first, &again), "the loss was %a and is %a", first.loss, again.loss);
    free(again.params);
    mt_agree();
}
END_TEST

/* The same but for the order of additions, which TIARA_REPRODUCIBLE=1 fixes. */
START_TEST(test_training_alone_gives_the_same)
{
    struct train_run run = run_of_all_ranks();
    struct result alone = {.params = calloc(train_params(), sizeof(double))};
    double *state = calloc(at_work->state, sizeof *state);
    mt_note("training alone");
    alone.loss = train_alone(&run, alone.params, at_work->update, state);
    /* Another order was seen to change the loss by some 1e-13 of it. */
    mt_check(fabs(first.loss - alone.loss) <= 1e-9 * alone.loss, "the loss is %a, alone %a",
        first.loss, alone.loss);
    bool is_exact = mt_env("TIARA_REPRODUCIBLE", 0) || mt_size == 1;
    mt_check(!is_exact || has_same_bits(&first, &alone), "bits differ: the loss is %a, alone %a",
        first.loss, alone.loss);
    free(state);
    free(alone.params);
    mt_agree();
}
END_TEST

void train_check_add(TCase *tests, const struct train_case *c)
{
    at_work = c;
    tcase_add_test(tests, test_training_converges);
    if (mt_sweep() < 0)
        return;
    tcase_add_test(tests, test_all_ranks_have_the_same_parameters);
    tcase_add_test(tests, test_training_again_gives_the_same_bits);
    tcase_add_test(tests, test_training_alone_gives_the_same);
}
