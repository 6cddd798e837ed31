/*
 * Which algorithm for which call.
 *
 * A pure function of facts that are equal on all ranks of the communicator (law of agreement): the
 * call, the layout, the agreed configuration and capabilities. Explains itself in words.
 */
#ifndef TIARA_TUNE_TUNE_H
#define TIARA_TUNE_TUNE_H

#include "algo/algo.h"
#include "base/layout.h"

enum tiara_path {
    TIARA_PATH_MPI, /* the MPI below */
    /* one exchange of small slots, or of packets between GPUs; leaders combine between nodes */
    TIARA_PATH_ONESHOT,
    TIARA_PATH_PLAN /* a plan, in chunks */
};

/* GPUs that all ranks have and reach, for calls whose buffers are in their memory on all ranks. */
struct tiara_tune_device {
    bool ring; /* ranks of a node reach their neighbours in @order only */
    const int *order; /* ring of local indices; borrowed */
    bool share; /* peers may read each other's buffers */
    size_t packets_max; /* bytes of a vector that goes in packets */
    size_t cell_bytes; /* device memory per chunk in flight */
    int slots;
};

/* Equal on all ranks: rank 0's settings, and what every rank can do. */
struct tiara_tune_facts {
    const struct tiara_layout *layout;
    const struct tiara_algo *algo; /* forced; NULL: auto */
    const struct tiara_algo *inter; /* forced; NULL: auto */
    const char *mpi_only; /* why all calls go to the MPI below; NULL: they do not */
    bool reproducible;
    bool has_arena; /* every node has shared memory: small slots, and cells when cell_bytes > 0 */
    bool has_get; /* every node can copy between processes */
    bool crowded; /* some machine has more ranks than cores */
    int leaders; /* forced; 0: auto */
    int slots; /* forced; 0: auto */
    size_t chunk_bytes; /* forced; 0: auto */
    size_t one_shot_max; /* forced; 0: auto */
    size_t small_max; /* payload of a small slot */
    size_t cell_bytes; /* of a cell; 0: no cells */
    struct tiara_tune_device device;
};

struct tiara_tune_call {
    enum tiara_coll coll;
    size_t count; /* elements of the vector (ALLREDUCE) or of one block */
    size_t elem_size;
    bool commutative; /* true for ALLGATHER */
    bool device; /* in GPU memory on all ranks */
};

struct tiara_tune_choice {
    enum tiara_path path;
    const struct tiara_algo *algo; /* PLAN */
    struct tiara_algo_opts opts; /* PLAN, and SMALL between nodes (opts.inter) */
    size_t chunk_elems; /* PLAN; 0: all at once */
    int slots;
    const char *why; /* static text */
    const char *unfit; /* why a forced algorithm was not taken; NULL: it was, or none was forced */
};

/* Bytes up to which a commutative all-reduce takes the small path; 0: never. */
size_t tiara_tune_small_max(const struct tiara_tune_facts *facts);

void tiara_tune_choose(const struct tiara_tune_facts *facts, const struct tiara_tune_call *call,
    struct tiara_tune_choice *choice_out);

/* "hier (2 leaders, ring between nodes), chunks of 65536 bytes, 8 in flight: why"; returns what
 * snprintf would. */
int tiara_tune_describe(const struct tiara_tune_facts *facts, const struct tiara_tune_call *call,
    const struct tiara_tune_choice *choice, char *text, size_t size);

#endif
