/*
 * What the programs of test/train check of their training: that it converges, that all ranks have
 * the same parameters, that a second run gives the same bits, and that one process alone, without
 * any message, gets the same.
 */
#ifndef TIARA_TEST_TRAIN_CHECK_H
#define TIARA_TEST_TRAIN_CHECK_H

#include "train_net.h"

#include <check.h>
#include <mpi.h>

struct train_case {
    const char *name;
    /* Trains @params: [train_params()] result. Returns the mean loss of the last step. Collective
     * over @comm, whose errors are fatal. */
    double (*train)(const struct train_run *run, double *params, MPI_Comm comm);
    /* The same optimiser for one process; its state is [@state] doubles, zeroed. */
    train_update_fn update;
    size_t state;
    int steps;
    size_t batch; /* samples of a step, of all ranks */
    double bound; /* the loss comes below */
};

/*
 * Adds the checks of @c, which stays where it is, to the suite. One case per program. With
 * TIARA_TEST_SWEEP=-1: only the training, and that it converges.
 */
void train_check_add(TCase *tests, const struct train_case *c);

#endif
