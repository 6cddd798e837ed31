/*
 * A scene for GPUs: forked processes as ranks on nodes of a layout, each with a node object, an
 * executor and sockets between all.
 *
 * A test writes one function that every rank plays. Expected results come from the test data, and
 * buffers lie between guards, so that a block at a wrong place, or of an older call, or a write
 * outside, is seen. Every wait ends when a rank is gone.
 */
#ifndef TIARA_TEST_CUDA_SCENE_H
#define TIARA_TEST_CUDA_SCENE_H

#include "algo/algo.h"
#include "gpu/gpu.h"
#include "kernels/kernels.h"
#include "test/cuda/t_common.h"
#include "test/cuda/t_sockets.h"

/* What one rank has while it plays. */
struct gpu_actor {
    struct tiara_expect e;
    int rank, device;
    const struct tiara_layout *layout;
    struct tiara_xport_group all, node_group; /* of the job, and of the node */
    struct tiara_gpu_node *node;
    struct tiara_exec exec;
    struct tiara_wait wait;
    struct sockets sockets;
    int node_index[SOCKETS_MAX];
    /* set by a player whose peers may be gone: the scene does not end with a barrier */
    bool is_alone;
};

typedef void (*gpu_play_fn)(struct gpu_actor *a, void *arg);

struct gpu_scene {
    const char *layout;
    size_t cell_bytes;
    double spin_s;
    gpu_play_fn play;
    void *arg;
    const char *devices; /* of the stand-in; NULL: its default */
    const char *fail; /* STANDIN_FAIL of the last rank: the node object may not open then */
    /* Filled by gpu_scene_run. */
    struct tiara_layout where;
    struct sockets_mesh mesh;
    struct tiara_exchange *node_groups[SOCKETS_MAX];
};

/* A call. Elements are int32_t, or float with AVG. */
struct gpu_act {
    enum tiara_coll coll;
    const struct tiara_plan *plan; /* NULL: packets */
    size_t count, chunk_elems;
    int slots;
    bool in_place, direct, share, average;
    size_t skew; /* elements that buffers begin behind an aligned address */
    uint32_t digest;
};

/* ---- plans ---- */

/* The plan of the actor's rank. The caller runs tiara_plan_fini() in any case. */
enum tiara_err gpu_plan_make(const struct gpu_actor *a, const struct tiara_algo *algo,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan);

/* ---- data ---- */

struct gpu_data {
    int32_t *in, *out; /* in device memory; may be one */
    int32_t *all; /* the allocation */
    int32_t *host; /* the same on the host */
    size_t n; /* elements of the allocation */
    size_t nin, nout, in_at, out_at; /* in the allocation */
    size_t in_skip, out_skip; /* index in the whole vector of in[0] and out[0] */
};

void gpu_data_init(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act);
void gpu_data_fini(struct gpu_data *d, struct gpu_actor *a);

/* The input of @round; what is no input is of no use to anybody. */
void gpu_data_fill(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act, int round);

/* Compares the result, the guards, and the input when it is apart. Prints and counts the first
 * difference. */
bool gpu_data_verify(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act, int round);

/* ---- calls ---- */

/* The call alone, on the caller's data. */
enum tiara_err gpu_run(struct gpu_actor *a, const struct gpu_act *act, const void *in, void *out);
enum tiara_err gpu_enqueue(
    struct gpu_actor *a, const struct gpu_act *act, const void *in, void *out, cudaStream_t stream);

/* @rounds calls on data of their own, in the same buffers. */
void gpu_perform(struct gpu_actor *a, const struct gpu_act *act, int rounds);

/* ---- the stage ---- */

/* Plays as all ranks; returns how many failed. */
int gpu_scene_run(struct gpu_scene *s);

#endif
