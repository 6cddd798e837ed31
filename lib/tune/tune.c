/*
 * The choice. Thresholds say where they were measured; everything here is decided from agreed facts
 * only.
 */
#include "tune/tune_priv.h"
#include <stdio.h>

/* Bytes that all ranks of a node may send together in one round of a small call. */
#define SMALL_NODE_BYTES ((size_t)4096)

/*
 * Bytes up to which a call is small: every rank of a node reduces the whole vector itself, and more
 * ranks read more. Between nodes a small call sends the whole vector in each round, and its stages
 * do not overlap.
 */
static size_t one_shot_max(const struct tiara_tune_facts *f)
{
    size_t ranks = (size_t)f->layout->max_local;
    size_t limit = f->crowded ? 16384 : 65536 / ranks;

    if (f->one_shot_max > 0)
        limit = f->one_shot_max;
    else if (f->layout->nnodes > 1)
        limit = 4096;
    else if (ranks <= 2)
        limit = 32768;
    return limit < f->small_max ? limit : f->small_max;
}

/*
 * Bytes of a chunk, of all its blocks. On one node: half the vector, so that the copies of two
 * chunks overlap, but no more than what stays in a second-level cache together with all cells;
 * ranks that share cores switch less often with longer ones. Between nodes: enough chunks that the
 * stages overlap. Measured on virtual nodes with links of 1 Gbit/s, 16 MiB: on 2x2, 32k takes 1.06
 * of the bound, 64k 1.14, 128k 1.31; on 4x2, 64k takes 1.20, 32k 1.22, 128k 1.7 (2 cores, virtual
 * Intel Xeon, 2026-11): best are 8 chunks in flight whose messages fit into a TCP window together.
 */
static size_t auto_chunk(const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    size_t bytes = tiara_tune_bytes(f, c);

    if (f->layout->nnodes == 1)
        return tiara_tune_clamp(bytes / 2, 16384, f->crowded ? 262144 : 65536);
    return tiara_tune_clamp(bytes / 8, 16384, f->layout->nnodes == 2 ? 32768 : 65536);
}

/* Elements of a chunk, at least one. */
static size_t choose_chunk(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    const struct tiara_algo *algo)
{
    size_t bytes = f->chunk_bytes ? f->chunk_bytes : auto_chunk(f, c);
    size_t elems;

    if (!(algo->flags & TIARA_ALGO_FLAT) && bytes > f->cell_bytes)
        bytes = f->cell_bytes;
    elems = tiara_tune_elems(f, c, bytes);
    return elems > 0 ? elems : 1;
}

size_t tiara_tune_small_max(const struct tiara_tune_facts *f)
{
    return f->has_arena && !f->algo && !f->mpi_only ? one_shot_max(f) : 0;
}

/* Ranks of a node that speak to other nodes in a small call: all of a few, if every node has as
 * many; else one. */
static int small_leaders(const struct tiara_tune_facts *f, size_t bytes)
{
    int most = f->leaders > 0 ? f->leaders : 4;
    int ranks = f->layout->max_local;
    bool few_bytes = bytes * (size_t)ranks <= SMALL_NODE_BYTES;

    return ranks == f->layout->min_local && ranks <= most && few_bytes ? ranks : 1;
}

static bool small_fits(const struct tiara_tune_facts *f, const struct tiara_tune_call *c)
{
    return c->coll == TIARA_COLL_ALLREDUCE && tiara_tune_bytes(f, c) <= tiara_tune_small_max(f) &&
           !(f->layout->nnodes > 1 && tiara_tune_needs_strict_order(f, c));
}

/* A flat plan for what does not fit into cells. */
static void choose_flat(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    struct tiara_tune_choice *out)
{
    out->why = "an element is larger than a cell";
    if (f->algo && !out->unfit)
        out->unfit = out->why;
    if (c->coll != TIARA_COLL_ALLREDUCE)
        return;
    out->path = TIARA_PATH_PLAN;
    out->algo = f->reproducible ? &tiara_algo_chain : &tiara_algo_tree;
    out->chunk_elems = 1;
}

void tiara_tune_choose(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    struct tiara_tune_choice *out)
{
    size_t bytes;

    *out = (struct tiara_tune_choice){.path = TIARA_PATH_MPI, .slots = f->slots > 0 ? f->slots : 8};
    out->opts.coll = c->coll;
    if (f->mpi_only) {
        out->why = f->mpi_only;
        return;
    }
    if (c->device) {
        tiara_tune_choose_device(f, c, out);
        return;
    }
    bytes = tiara_tune_bytes(f, c);
    if (small_fits(f, c)) {
        out->path = TIARA_PATH_ONESHOT;
        out->opts.inter = tiara_tune_inter(f, c, bytes);
        out->opts.leaders = small_leaders(f, bytes);
        out->why = "small";
        return;
    }
    out->algo = tiara_tune_algo(f, c, &out->why, &out->unfit);
    if (!out->algo)
        return;
    if (c->elem_size * tiara_tune_blocks(f, c) > f->cell_bytes &&
        !(out->algo->flags & TIARA_ALGO_FLAT)) {
        choose_flat(f, c, out);
        return;
    }
    out->path = TIARA_PATH_PLAN;
    out->chunk_elems = choose_chunk(f, c, out->algo);
    out->opts.leaders = tiara_tune_leaders(f);
    if (c->coll != TIARA_COLL_ALLREDUCE)
        return;
    if (out->algo->reads & TIARA_ALGO_OPT_INTER)
        out->opts.inter = tiara_tune_inter(f, c, bytes / (size_t)out->opts.leaders);
    if (out->algo->reads & TIARA_ALGO_OPT_SINGLE_COPY)
        out->opts.single_copy = f->has_get;
}

int tiara_tune_describe(const struct tiara_tune_facts *f, const struct tiara_tune_call *c,
    const struct tiara_tune_choice *choice, char *text, size_t size)
{
    char how[96] = "", why[160], chunks[64];

    snprintf(why, sizeof(why), "%s%s%s", choice->why, choice->unfit ? "; not TIARA_ALGO's: " : "",
        choice->unfit ? choice->unfit : "");
    if (choice->path == TIARA_PATH_MPI)
        return snprintf(text, size, "%s: %s",
            c->device && !f->mpi_only ? "through host memory" : "the MPI below", why);
    if (choice->path == TIARA_PATH_ONESHOT && f->layout->nnodes > 1)
        return snprintf(text, size, "small slots, leaders per node: %d, %s between nodes: %s",
            choice->opts.leaders, choice->opts.inter->name, why);
    if (choice->path == TIARA_PATH_ONESHOT)
        return snprintf(text, size, "%s, every rank reduces all: %s",
            c->device ? "packets between GPUs" : "small slots", why);
    if (choice->chunk_elems == 0)
        snprintf(chunks, sizeof(chunks), "in one chunk");
    else
        snprintf(chunks, sizeof(chunks), "chunks of %zu bytes, up to %d in flight",
            choice->chunk_elems * c->elem_size, choice->slots);
    if (choice->algo->describe)
        choice->algo->describe(&choice->opts, how, sizeof(how));
    return snprintf(text, size, "%s%s%s%s%s, %s: %s", c->device ? "GPUs: " : "", choice->algo->name,
        *how ? " (" : "", how, *how ? ")" : "", chunks, why);
}
