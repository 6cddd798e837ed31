/*
 * A node whose ranks run the kernels' CPU build: segments, user buffers, calls, and how a rank
 * makes its part of a call.
 *
 * The segments are plain memory, the plans those of lib/algo, translated as the host's part does
 * it. All that a call is made of follows from struct call, which is alike on all ranks; expected
 * results come from the test data.
 */
#ifndef TIARA_TEST_KERNEL_NODE_H
#define TIARA_TEST_KERNEL_NODE_H

#include "algo/algo.h"
#include "kernels/kernels.h"
#include "kernels/on_cpu.h"
#include "test/harness/expect.h"

enum {
    MAX_RANKS = 5,
    MAX_COUNT = 2500,
    MAX_CALLS = 80,
    SKEW = 8, /* elements by which user buffers are shifted, at most */
    CELL_BYTES = 16384,
    TMP_BYTES = 2 * CELL_BYTES,
    USER_BYTES = (MAX_RANKS * MAX_COUNT + SKEW) * 8
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- a grid of threads ---- */

/* Returns when all threads have ended. */
void kernel_node_launch(
    tiara_on_cpu_kernel *kernel, const void *args, unsigned grid, unsigned nthreads);

/* ---- calls ---- */

/* A kind of plan. */
struct kind {
    const struct tiara_algo *algo;
    enum tiara_coll coll;
    bool one_shot, single_copy;
    bool is_ordered; /* folds in rank order */
};

#define KERNEL_NODE_NKINDS 10
extern const struct kind kernel_node_kinds[KERNEL_NODE_NKINDS];

/* One call, alike on all ranks. */
struct call {
    struct kind kind; /* algo NULL: packets */
    int type; /* I16, I32, I64 or F64 */
    size_t count;
    size_t chunk_elems;
    int slot, nslots;
    unsigned grid, nthreads;
    bool in_place, average;
    bool split; /* each chunk in two launches, at an op that each rank chooses itself */
    size_t align; /* elements that stripes are multiples of */
};

/* A node, as all its ranks see it. */
struct node {
    int nranks;
    bool is_ring; /* only neighbours reach each other */
    char *segment[MAX_RANKS];
    char *user[MAX_RANKS][2]; /* IN and OUT */
    char *tmp[MAX_RANKS];
    struct tiara_kernel_memory memory[MAX_RANKS];
    struct tiara_kernel_status status[MAX_RANKS][TIARA_KERNEL_BLOCKS];
    uint32_t abort;
    uint64_t spin_ns;
    struct call call[MAX_CALLS];
    int ncalls;
};

size_t kernel_node_size_of(int type);
void kernel_node_init(struct node *n, int nranks);
void kernel_node_fini(struct node *n);

/* ---- a rank's data ---- */

/* Where @rank's vector of call @c begins: each rank has another alignment. */
char *kernel_node_user(const struct node *n, const struct call *c, int rank, bool is_out);
void kernel_node_fill(const struct node *n, const struct call *c, int number, int rank);

/* The number of wrong elements, with those just outside. */
int kernel_node_look(const struct node *n, const struct call *c, int number, int rank);

/* ---- from a plan to a program ---- */

struct program {
    struct tiara_kernel_op *ops;
    struct tiara_kernel_slice *srcs;
    struct tiara_kernel_wait *waits;
};

void kernel_node_program_init(struct program *p, const struct tiara_plan *plan);
void kernel_node_program_fini(struct program *p);

/* ---- one rank's part of a call ---- */

struct tiara_kernel_exec_args kernel_node_exec_args(
    struct node *n, const struct call *c, int rank, const struct tiara_plan *plan);
enum tiara_err kernel_node_plan(
    const struct node *n, const struct call *c, int rank, struct tiara_plan *plan);
void kernel_node_run(struct tiara_expect *e, struct node *n, const struct call *c);
struct tiara_kernel_small_args kernel_node_small_args(
    struct node *n, const struct call *c, int rank);

#endif
