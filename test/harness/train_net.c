/* See train_net.h. */
#include "train_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const size_t train_widths[TRAIN_LAYERS + 1] = {TRAIN_INPUTS, 64, 64, 64, TRAIN_CLASSES};

/* ---- parameters ---- */

size_t train_weights_of(int layer)
{
    return train_widths[layer] * train_widths[layer + 1];
}

size_t train_weights_at(int layer)
{
    size_t at = 0;
    for (int l = 0; l < layer; l++)
        at += train_weights_of(l);
    return at;
}

size_t train_biases_of(int layer)
{
    return train_widths[layer + 1];
}

size_t train_biases_at(int layer)
{
    size_t at = train_weights_at(TRAIN_LAYERS);
    for (int l = 0; l < layer; l++)
        at += train_biases_of(l);
    return at;
}

size_t train_params(void)
{
    return train_biases_at(TRAIN_LAYERS);
}

/* 0 <= x < 1, from two numbers. */
static double uniform(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* Weights of a size that keeps the outputs of tanh layers from dying out or saturating; biases of
 * zero. */
void train_params_init(double *params, uint64_t seed)
{
    memset(params, 0, train_params() * sizeof *params);
    for (int l = 0; l < TRAIN_LAYERS; l++) {
        double *w = params + train_weights_at(l);
        double most = sqrt(6.0 / (double)(train_widths[l] + train_widths[l + 1]));
        for (size_t i = 0; i < train_weights_of(l); i++)
            w[i] = most * (2 * uniform(seed + (uint64_t)l + 1, i) - 1);
    }
}

/* ---- samples ---- */

static double *numbers(size_t n)
{
    double *x = malloc(n * sizeof *x);
    if (!x)
        abort();
    return x;
}

void train_batch_init(struct train_batch *b, size_t n)
{
    size_t widest = 0;
    b->n = n;
    b->arms = malloc(n * sizeof *b->arms);
    for (int l = 0; l <= TRAIN_LAYERS; l++) {
        b->act[l] = numbers(n * train_widths[l]);
        widest = train_widths[l] > widest ? train_widths[l] : widest;
    }
    b->delta[0] = numbers(n * widest);
    b->delta[1] = numbers(n * widest);
}

void train_batch_fini(struct train_batch *b)
{
    free(b->arms);
    for (int l = 0; l <= TRAIN_LAYERS; l++)
        free(b->act[l]);
    free(b->delta[0]);
    free(b->delta[1]);
}

/* A spiral with an arm for each class, of three quarters of a turn, a little blurred. */
void train_load(struct train_batch *b, uint64_t seed, size_t first)
{
    for (size_t i = 0; i < b->n; i++) {
        uint64_t sample = first + i;
        int arm = (int)(3 * uniform(seed, 3 * sample));
        double radius = uniform(seed, 3 * sample + 1);
        double blur = 0.1 * (uniform(seed, 3 * sample + 2) - 0.5);
        double angle = 2 * M_PI * (arm / 3.0 + 0.75 * radius) + blur;
        b->arms[i] = arm;
        b->act[0][2 * i] = radius * cos(angle);
        b->act[0][2 * i + 1] = radius * sin(angle);
    }
}

/* ---- the network ---- */

/* out[o] = bias[o] + sum of w[o][i] in[i], for one sample. */
static void linear(int layer, const double *params, const double *in, double *out)
{
    size_t nin = train_widths[layer], nout = train_widths[layer + 1];
    const double *w = params + train_weights_at(layer), *bias = params + train_biases_at(layer);
    for (size_t o = 0; o < nout; o++, w += nin) {
        out[o] = bias[o];
        for (size_t i = 0; i < nin; i++)
            out[o] += w[i] * in[i];
    }
}

/* Turns the last layer's outputs into probabilities; returns the loss of the sample. */
static double softmax(double *x, int arm)
{
    double most = x[0], sum = 0;
    for (int k = 1; k < TRAIN_CLASSES; k++)
        most = fmax(most, x[k]);
    for (int k = 0; k < TRAIN_CLASSES; k++)
        sum += x[k] = exp(x[k] - most);
    for (int k = 0; k < TRAIN_CLASSES; k++)
        x[k] /= sum;
    return -log(x[arm]);
}

double train_forward(struct train_batch *b, const double *params)
{
    double loss = 0;
    for (int l = 0; l < TRAIN_LAYERS; l++) {
        size_t nin = train_widths[l], nout = train_widths[l + 1];
        for (size_t s = 0; s < b->n; s++) {
            double *out = b->act[l + 1] + s * nout;
            linear(l, params, b->act[l] + s * nin, out);
            for (size_t o = 0; o < nout && l < TRAIN_LAYERS - 1; o++)
                out[o] = tanh(out[o]);
        }
    }
    for (size_t s = 0; s < b->n; s++)
        loss += softmax(b->act[TRAIN_LAYERS] + s * TRAIN_CLASSES, b->arms[s]);
    return loss / (double)b->n;
}

/* What the derivatives of the loss by the outputs of the last layer are, before softmax. */
static void begin_backward(struct train_batch *b, double *delta)
{
    memcpy(delta, b->act[TRAIN_LAYERS], b->n * TRAIN_CLASSES * sizeof *delta);
    for (size_t s = 0; s < b->n; s++)
        delta[s * TRAIN_CLASSES + (size_t)b->arms[s]] -= 1;
    for (size_t i = 0; i < b->n * TRAIN_CLASSES; i++)
        delta[i] /= (double)b->n;
}

/*
 * Derivatives by the outputs of the layer below, before its tanh, whose derivative is 1 - tanh^2.
 */
static void descend(const struct train_batch *b, const double *params, int layer,
    const double *delta, double *below)
{
    size_t nin = train_widths[layer], nout = train_widths[layer + 1];
    for (size_t s = 0; s < b->n; s++, delta += nout, below += nin) {
        const double *w = params + train_weights_at(layer), *act = b->act[layer] + s * nin;
        memset(below, 0, nin * sizeof *below);
        for (size_t o = 0; o < nout; o++, w += nin)
            for (size_t i = 0; i < nin; i++)
                below[i] += delta[o] * w[i];
        for (size_t i = 0; i < nin; i++)
            below[i] *= 1 - act[i] * act[i];
    }
}

void train_backward(struct train_batch *b, const double *params, double *grads, int layer)
{
    size_t nin = train_widths[layer], nout = train_widths[layer + 1];
    double *weights = grads + train_weights_at(layer), *biases = grads + train_biases_at(layer);
    double *delta = b->delta[layer % 2];
    if (layer == TRAIN_LAYERS - 1)
        begin_backward(b, delta);
    memset(weights, 0, train_weights_of(layer) * sizeof *weights);
    memset(biases, 0, nout * sizeof *biases);
    for (size_t s = 0; s < b->n; s++) {
        const double *in = b->act[layer] + s * nin, *d = delta + s * nout;
        for (size_t o = 0; o < nout; o++) {
            biases[o] += d[o];
            for (size_t i = 0; i < nin; i++)
                weights[o * nin + i] += d[o] * in[i];
        }
    }
    if (layer > 0)
        descend(b, params, layer, delta, b->delta[(layer + 1) % 2]);
}

/* ---- the reference ---- */

/* Loss and gradient of the share of @rank in step @step. */
static double share(const struct train_run *run, struct train_batch *b, int step, int rank,
    const double *params, double *grads)
{
    train_load(b, run->seed, (size_t)step * run->batch + (size_t)rank * b->n);
    double loss = train_forward(b, params);
    for (int l = TRAIN_LAYERS - 1; l >= 0; l--)
        train_backward(b, params, grads, l);
    return loss;
}

double train_alone(const struct train_run *run, double *params, train_update_fn update, void *state)
{
    size_t n = train_params();
    double *grads = numbers(n), *sum = numbers(n), loss = 0;
    struct train_batch b;
    train_batch_init(&b, run->batch / (size_t)run->ranks);
    train_params_init(params, run->seed);
    for (int step = 0; step < run->steps; step++) {
        loss = share(run, &b, step, 0, params, sum);
        for (int r = 1; r < run->ranks; r++) {
            loss += share(run, &b, step, r, params, grads);
            for (size_t i = 0; i < n; i++)
                sum[i] += grads[i];
        }
        loss /= run->ranks;
        for (size_t i = 0; i < n; i++)
            sum[i] /= run->ranks;
        update(state, params, sum, step);
    }
    train_batch_fini(&b);
    free(sum);
    free(grads);
    return loss;
}
