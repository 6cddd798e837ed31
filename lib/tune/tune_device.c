/*
 * The choice for buffers in GPU memory.
 *
 * The algorithms are the host's: what differs is where ranks reach each other, and that a chunk is
 * a launch of a kernel, so that it has to be large.
 */
#include "tune/tune_priv.h"

/*
 * Bytes up to which every GPU reduces the whole vector: one hand-over less, against more bytes over
 * the links. With two ranks it is as many bytes either way. From published measurements of one-shot
 * kernels over NVLink (vLLM), not our own.
 */
static size_t one_shot_max(const struct tiara_tune_facts *f)
{
    if (f->one_shot_max > 0)
        return f->one_shot_max;
    if (f->layout->max_local <= 2)
        return (size_t)1 << 20;
    return (size_t)(f->layout->max_local <= 4 ? 512 : 256) << 10;
}

/* Below, an agreement on mappings costs more than the copies into cells that it spares. */
#define SHARE_MIN ((size_t)1 << 20)

static size_t packets_max(const struct tiara_tune_facts *f)
{
    size_t most = f->device.packets_max;

    if (f->device.ring || f->layout->nnodes > 1 || f->algo)
        return 0;
    return f->one_shot_max > 0 && f->one_shot_max < most ? f->one_shot_max : most;
}

/* Elements of a chunk: what fits into a cell; between nodes enough chunks that stages overlap. */
static size_t chunk_elems(const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    size_t most = f->device.cell_bytes, bytes = most;

    if (f->layout->nnodes > 1)
        bytes = tiara_tune_clamp(tiara_tune_bytes(f, c) / 8, 262144, most);
    if (f->chunk_bytes > 0)
        bytes = f->chunk_bytes;
    return tiara_tune_elems(f, c, bytes < most ? bytes : most);
}

static void choose_variant(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    struct tiara_tune_choice *out)
{
    size_t bytes = c->count * c->elem_size;

    if (out->algo->reads & TIARA_ALGO_OPT_ORDER)
        out->opts.order = f->device.order;
    if (out->algo->reads & TIARA_ALGO_OPT_ONE_SHOT && c->coll == TIARA_COLL_ALLREDUCE) {
        out->opts.one_shot = bytes <= one_shot_max(f);
        out->opts.single_copy = !out->opts.one_shot && f->device.share && bytes >= SHARE_MIN;
        /* Without cells there is nothing that a chunk has to fit into. */
        if (out->opts.single_copy && f->chunk_bytes == 0)
            out->chunk_elems = 0;
    }
}

/* The host's choice where links form a ring only; NULL: there is none. A ring does not keep the
 * ranks' order. */
static const struct tiara_algo *around_the_ring(const struct tiara_tune_facts *f,
    const struct tiara_tune_call *c, const struct tiara_algo *algo, struct tiara_algo_opts *opts)
{
    if (algo->flags & (TIARA_ALGO_FLAT | TIARA_ALGO_NEIGHBOURS))
        return algo;
    if (!c->commutative)
        return NULL;
    if (algo->flags & TIARA_ALGO_NODE && !f->reproducible)
        return &tiara_algo_node_ring;
    if (algo->reads & TIARA_ALGO_OPT_NODE_RING && f->layout->min_local == f->layout->max_local &&
        opts->leaders == f->layout->min_local) {
        opts->node_ring = true;
        return algo;
    }
    return NULL;
}

void tiara_tune_choose_device(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    struct tiara_tune_choice *out)
{
    const struct tiara_algo *wanted;
    size_t shard;

    if (!f->has_arena) {
        out->why = "no shared memory on the nodes";
        if (f->algo)
            out->unfit = out->why;
        return;
    }
    if (c->coll == TIARA_COLL_ALLREDUCE && c->count * c->elem_size <= packets_max(f)) {
        out->path = TIARA_PATH_ONESHOT;
        out->why = "small, all ranks on GPUs of one node";
        return;
    }
    wanted = out->algo = tiara_tune_algo(f, c, &out->why, &out->unfit);
    out->opts.leaders = tiara_tune_leaders(f);
    if (out->algo && f->device.ring && f->layout->max_local > 1)
        out->algo = around_the_ring(f, c, out->algo, &out->opts);
    if (f->algo && !out->unfit && out->algo != wanted)
        out->unfit = "the GPUs of a node reach their neighbours only";
    if (out->algo)
        out->chunk_elems = chunk_elems(f, c);
    if (out->chunk_elems == 0) {
        out->why = "no way between the GPUs";
        if (f->algo && !out->unfit)
            out->unfit = "an element is larger than a cell";
        out->algo = NULL;
        return;
    }
    out->path = TIARA_PATH_PLAN;
    out->slots = f->slots > 0 && f->slots < f->device.slots ? f->slots : f->device.slots;
    shard = c->count * c->elem_size / (size_t)out->opts.leaders;
    if (out->algo->reads & TIARA_ALGO_OPT_INTER && c->coll == TIARA_COLL_ALLREDUCE)
        out->opts.inter = tiara_tune_inter(f, c, shard);
    choose_variant(f, c, out);
}
