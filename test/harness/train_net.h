/*
 * A small network for the examples of test/train: a multilayer perceptron that tells the arms of a
 * spiral apart, in plain C.
 *
 * Everything is a pure function of a seed and of indices: the samples, the parameters at the start.
 * Arithmetic is in double and in a fixed order, so that what two programs compute from the same
 * numbers has the same bits.
 *
 * Parameters lie in one array: the weights of all layers, then the biases of all layers. Gradients
 * lie alike.
 */
#ifndef TIARA_TEST_TRAIN_NET_H
#define TIARA_TEST_TRAIN_NET_H

#include <stddef.h>
#include <stdint.h>

enum {
    TRAIN_LAYERS = 4,
    TRAIN_INPUTS = 2,
    TRAIN_CLASSES = 3
};

/* Numbers of inputs of each layer, then of outputs of the last one. */
extern const size_t train_widths[TRAIN_LAYERS + 1];

/* Where the parameters of a layer lie in the array, and how many they are. */
size_t train_weights_at(int layer);
size_t train_weights_of(int layer);
size_t train_biases_at(int layer);
size_t train_biases_of(int layer);
/* All parameters. */
size_t train_params(void);
void train_params_init(double *params, uint64_t seed);

/* A batch of samples on its way through the network; owns its memory. */
struct train_batch {
    size_t n;
    int *arms; /* [n] what is to be found out */
    double *
        act[TRAIN_LAYERS +
            1]; /* [n x width] inputs, then outputs of each layer; of the last one: probabilities */
    double *delta
        [2]; /* [n x widest] derivatives of the loss, of the layer at work and of the one below */
};
void train_batch_init(struct train_batch *b, size_t n);
void train_batch_fini(struct train_batch *b);

/* Samples @first .. @first + n - 1 of the endless stream of @seed. */
void train_load(struct train_batch *b, uint64_t seed, size_t first);
/* The mean loss (cross entropy, in nats) of the batch. */
double train_forward(struct train_batch *b, const double *params);
/*
 * Derivatives of the mean loss by the parameters of @layer, into @grads. To be called for the last
 * layer first, then for each below.
 */
void train_backward(struct train_batch *b, const double *params, double *grads, int layer);

/*
 * What a reference does with a gradient: changes @params. @state: the optimiser's. @step: 0, 1, ...
 */
typedef void (*train_update_fn)(void *state, double *params, const double *grads, int step);

struct train_run {
    uint64_t seed;
    int steps;
    size_t batch; /* samples of a step, of all ranks */
    int ranks;
};
/*
 * The training of @run by one process alone: it works off the shares of all ranks, adds their
 * gradients in rank order and divides by the number of ranks. Returns the loss of the last step;
 * @params: [train_params()] result. What data-parallel training computes too, but for the order of
 * additions.
 */
double train_alone(
    const struct train_run *run, double *params, train_update_fn update, void *state);

#endif
