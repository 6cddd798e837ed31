/*
 * Ranks that run the kernels on the CPU: grids of threads, data, programs, and the kernels'
 * arguments.
 */
#include "test/ranks/kernel_node.h"
#include "base/block.h"
#include "test/harness/scene.h"
#include "test/harness/test.h"
#include "test/harness/threads.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- a grid of threads ---- */

struct team {
    pthread_barrier_t barrier;
    _Alignas(64) char shared[TIARA_ON_CPU_SHARED];
};

struct member {
    struct tiara_on_cpu self;
    tiara_on_cpu_kernel *kernel;
    const void *args;
};

static void sync_team(struct tiara_on_cpu *self)
{
    struct team *team = self->launcher;

    pthread_barrier_wait(&team->barrier);
}

static void *member_main(void *arg)
{
    struct member *m = arg;

    m->kernel(&m->self, m->args);
    return NULL;
}

void kernel_node_launch(
    tiara_on_cpu_kernel *kernel, const void *args, unsigned grid, unsigned nthreads)
{
    unsigned n = grid * nthreads;
    struct team *team = aligned_alloc(64, grid * sizeof(*team));
    struct member *member = calloc(n, sizeof(*member));
    pthread_t *id = calloc(n, sizeof(*id));

    if (!team || !member || !id)
        abort();
    for (unsigned b = 0; b < grid; b++)
        pthread_barrier_init(&team[b].barrier, NULL, nthreads);
    for (unsigned i = 0; i < n; i++) {
        struct team *mine = &team[i / nthreads];
        member[i] = (struct member){.kernel = kernel, .args = args};
        member[i].self = (struct tiara_on_cpu){.block = i / nthreads,
            .nblocks = grid,
            .thread = i % nthreads,
            .nthreads = nthreads,
            .shared = mine->shared,
            .sync = sync_team,
            .launcher = mine};
        if (i > 0 && pthread_create(&id[i], NULL, member_main, &member[i]) != 0)
            abort(); /* the others would wait for it */
    }
    member_main(&member[0]);
    for (unsigned i = 1; i < n; i++)
        pthread_join(id[i], NULL);
    for (unsigned b = 0; b < grid; b++)
        pthread_barrier_destroy(&team[b].barrier);
    free(id);
    free(member);
    free(team);
}

/* ---- calls ---- */

const struct kind kernel_node_kinds[KERNEL_NODE_NKINDS] = {
    {&tiara_algo_direct, TIARA_COLL_ALLREDUCE, false, false, true},
    {&tiara_algo_direct, TIARA_COLL_ALLREDUCE, true, false, true},
    {&tiara_algo_direct, TIARA_COLL_ALLREDUCE, false, true, true},
    {&tiara_algo_direct, TIARA_COLL_REDUCE_SCATTER, false, false, true},
    {&tiara_algo_direct, TIARA_COLL_REDUCE_SCATTER, false, true, true},
    {&tiara_algo_direct, TIARA_COLL_ALLGATHER, false, false, true},
    {&tiara_algo_direct, TIARA_COLL_ALLGATHER, false, true, true},
    {&tiara_algo_node_ring, TIARA_COLL_ALLREDUCE, false, false, false},
    {&tiara_algo_node_ring, TIARA_COLL_REDUCE_SCATTER, false, false, false},
    {&tiara_algo_node_ring, TIARA_COLL_ALLGATHER, false, false, false},
};

size_t kernel_node_size_of(int type)
{
    return type == TIARA_TYPE_I16 ? 2 : type == TIARA_TYPE_I32 ? 4 : 8;
}

void kernel_node_init(struct node *n, int nranks)
{
    size_t bytes = tiara_kernel_segment_bytes(CELL_BYTES);

    memset(n, 0, sizeof(*n));
    n->nranks = nranks;
    n->spin_ns = UINT64_C(100000000000);
    for (int r = 0; r < nranks; r++) {
        n->segment[r] = aligned_alloc(4096, bytes);
        n->tmp[r] = malloc((size_t)TMP_BYTES * TIARA_KERNEL_SLOTS);
        ck_assert(n->segment[r] && n->tmp[r]);
        memset(n->segment[r], 0, bytes);
        for (int i = 0; i < 2; i++) {
            n->user[r][i] = aligned_alloc(64, (USER_BYTES + 63) / 64 * 64);
            ck_assert(n->user[r][i] != NULL);
        }
    }
}

void kernel_node_fini(struct node *n)
{
    for (int r = 0; r < n->nranks; r++) {
        free(n->segment[r]);
        free(n->tmp[r]);
        free(n->user[r][0]);
        free(n->user[r][1]);
    }
}

/* ---- a rank's data ---- */

char *kernel_node_user(const struct node *n, const struct call *c, int rank, bool is_out)
{
    size_t skew = ((size_t)rank * 3 + c->count + (is_out && !c->in_place ? 5 : 0)) % SKEW;

    return n->user[rank][is_out || c->in_place] + skew * kernel_node_size_of(c->type);
}

static void put(char *base, int type, size_t i, double value)
{
    int64_t integer = (int64_t)value;

    if (type == TIARA_TYPE_F64)
        memcpy(base + i * 8, &value, 8);
    else /* little-endian */
        memcpy(base + i * kernel_node_size_of(type), &integer, kernel_node_size_of(type));
}

/* Element @i of the whole vector of @rank in call number @number. */
static double value_of(const struct call *c, int number, int rank, size_t i)
{
    size_t index = i + (size_t)number * 100003;

    return c->type == TIARA_TYPE_F64 ? tiara_test_inexact(rank, index)
                                     : tiara_test_value(rank, index);
}

static double result_of(const struct call *c, int number, int nranks, size_t i)
{
    double acc = value_of(c, number, 0, i);

    for (int q = 1; q < nranks; q++)
        acc += value_of(c, number, q, i);
    if (!c->average)
        return acc;
    return c->type == TIARA_TYPE_F64 ? acc / nranks : (double)((int64_t)acc / nranks);
}

static bool is_coll(const struct call *c, enum tiara_coll coll)
{
    return c->kind.coll == coll;
}

void kernel_node_fill(const struct node *n, const struct call *c, int number, int rank)
{
    char *in = kernel_node_user(n, c, rank, false);
    bool one = is_coll(c, TIARA_COLL_ALLGATHER);
    size_t blocks = is_coll(c, TIARA_COLL_REDUCE_SCATTER) ? (size_t)n->nranks : 1;
    size_t at = one && c->in_place ? (size_t)rank * c->count : 0;

    memset(n->user[rank][1], 0xa5, USER_BYTES);
    for (size_t i = 0; i < blocks * c->count; i++)
        put(in, c->type, at + i, value_of(c, number, rank, one ? (size_t)rank * c->count + i : i));
}

int kernel_node_look(const struct node *n, const struct call *c, int number, int rank)
{
    const char *out = kernel_node_user(n, c, rank, true);
    size_t es = kernel_node_size_of(c->type),
           blocks = is_coll(c, TIARA_COLL_ALLGATHER) ? (size_t)n->nranks : 1;
    int wrong = 0;

    for (size_t i = 0; i < blocks * c->count; i++) {
        size_t whole = is_coll(c, TIARA_COLL_REDUCE_SCATTER) ? (size_t)rank * c->count + i : i;
        char expected[8];
        if (is_coll(c, TIARA_COLL_ALLGATHER))
            put(expected, c->type, 0, value_of(c, number, (int)(i / c->count), i));
        else
            put(expected, c->type, 0, result_of(c, number, n->nranks, whole));
        wrong += memcmp(out + i * es, expected, es) != 0;
    }
    for (const char *p = n->user[rank][1]; p < out; p++)
        wrong += *p != (char)0xa5;
    for (const char *p = out + blocks * c->count * es; p < n->user[rank][1] + USER_BYTES; p++)
        wrong += *p != (char)0xa5;
    return wrong;
}

/* ---- from a plan to a program ---- */

static struct tiara_kernel_slice slice_of(const struct tiara_slice *s)
{
    static const int bufs[] = {[TIARA_BUF_IN] = TIARA_KERNEL_IN,
        [TIARA_BUF_OUT] = TIARA_KERNEL_OUT,
        [TIARA_BUF_CELL] = TIARA_KERNEL_CELL,
        [TIARA_BUF_TMP] = TIARA_KERNEL_TMP};

    return (struct tiara_kernel_slice){s->owner, bufs[s->buf], s->first, s->count};
}

void kernel_node_program_init(struct program *p, const struct tiara_plan *plan)
{
    p->ops = calloc((size_t)plan->nops + 1, sizeof(*p->ops));
    p->srcs = calloc((size_t)plan->nsrcs + 1, sizeof(*p->srcs));
    p->waits = calloc((size_t)plan->nwaits + 1, sizeof(*p->waits));
    if (!p->ops || !p->srcs || !p->waits)
        abort();
    for (int i = 0; i < plan->nops; i++) {
        const struct tiara_op *op = &plan->ops[i];
        p->ops[i] = (struct tiara_kernel_op){
            .kind = op->kind == TIARA_OP_COPY ? TIARA_KERNEL_COPY : TIARA_KERNEL_REDUCE,
            .block = op->block,
            .dst = slice_of(&op->dst),
            .src = op->src,
            .nsrc = op->nsrc,
            .wait = op->wait,
            .nwait = op->nwait,
            .post = op->post};
    }
    for (int i = 0; i < plan->nsrcs; i++)
        p->srcs[i] = slice_of(&plan->srcs[i]);
    for (int i = 0; i < plan->nwaits; i++)
        p->waits[i] = (struct tiara_kernel_wait){plan->waits[i].peer, plan->waits[i].step};
}

void kernel_node_program_fini(struct program *p)
{
    free(p->ops);
    free(p->srcs);
    free(p->waits);
}

/* ---- one rank's part of a call ---- */

static bool reaches(const struct node *n, int a, int b)
{
    int apart = (a - b + n->nranks) % n->nranks;

    return !n->is_ring || apart <= 1 || apart == n->nranks - 1;
}

static struct tiara_kernel_guard guard_of(struct node *n, int rank)
{
    return (struct tiara_kernel_guard){&n->abort, n->status[rank], n->spin_ns};
}

static size_t block_len(const struct call *c, size_t chunk, int nblocks)
{
    if (!is_coll(c, TIARA_COLL_ALLREDUCE))
        return chunk;
    return tiara_block_uniform(chunk, (size_t)nblocks, 0, 16 / kernel_node_size_of(c->type)).count;
}

struct tiara_kernel_exec_args kernel_node_exec_args(
    struct node *n, const struct call *c, int rank, const struct tiara_plan *plan)
{
    size_t nchunks = (c->count + c->chunk_elems - 1) / c->chunk_elems;
    size_t last = c->count - (nchunks - 1) * c->chunk_elems;
    struct tiara_kernel_exec_args a = {
        .program = {.nops = plan->nops, .nsteps = plan->nsteps, .nblocks = plan->nblocks},
        .end_op = plan->nops,
        .tail_wait = plan->exit_wait,
        .tail_nwait = plan->exit_nwait,
        .flags = TIARA_KERNEL_FIRST | TIARA_KERNEL_LAST,
        .type = c->type,
        .oper = TIARA_OPER_SUM,
        .finish_ranks = c->average ? n->nranks : 0,
        .rank = rank,
        .nranks = n->nranks,
        .slot = c->slot,
        .nslots = c->nslots,
        .digest = (uint32_t)c->count * 31 + (uint32_t)c->type,
        .count = c->count,
        .chunk_elems = c->chunk_elems,
        .nchunks = nchunks,
        .block_len = block_len(c, c->chunk_elems, plan->nblocks),
        .last_block_len = block_len(c, last, plan->nblocks),
        .in_stride = is_coll(c, TIARA_COLL_ALLREDUCE) ? -1 : (int64_t)c->count,
        .out_stride = is_coll(c, TIARA_COLL_ALLREDUCE) ? -1 : (int64_t)c->count,
        .cell_bytes = CELL_BYTES,
        .in = kernel_node_user(n, c, rank, false),
        .out = kernel_node_user(n, c, rank, true),
        .tmp = n->tmp[rank],
        .tmp_bytes = TMP_BYTES,
        .memory = &n->memory[rank],
        .guard = guard_of(n, rank)};

    if (is_coll(c, TIARA_COLL_ALLGATHER) && !c->in_place)
        a.in_stride = 0;
    if (is_coll(c, TIARA_COLL_REDUCE_SCATTER))
        a.out_stride = 0;
    a.stripe = (a.block_len + c->grid - 1) / c->grid;
    a.stripe = (a.stripe + c->align - 1) / c->align * c->align;
    for (int q = 0; q < n->nranks; q++)
        if (reaches(n, rank, q)) {
            a.peer[q].segment = n->segment[q];
            a.peer[q].in = c->kind.single_copy ? kernel_node_user(n, c, q, false) : NULL;
            a.peer[q].out = c->kind.single_copy ? kernel_node_user(n, c, q, true) : NULL;
        }
    return a;
}

/*
 * Chunk @number of a call by itself, in two launches, as if a message were between them. On ranks
 * of even number the second launch pushes the last post of the first one (head_post), on the others
 * the first launch waits for what the second's first op needs (tail_wait).
 */
static void launch_split(const struct tiara_kernel_exec_args *whole, const struct program *p,
    int at, size_t number, const struct call *c)
{
    struct tiara_kernel_exec_args a = *whole, b;
    size_t first = number * a.chunk_elems, skip = first * kernel_node_size_of(c->type);
    struct tiara_kernel_op *tail = &p->ops[at - 1], *head = &p->ops[at];
    const struct tiara_kernel_op was_tail = *tail, was_head = *head;

    a.count = a.count - first < a.chunk_elems ? a.count - first : a.chunk_elems;
    a.nchunks = 1;
    a.last_block_len = number == whole->nchunks - 1 ? a.last_block_len : a.block_len;
    a.slot = (a.slot + (int)number) % a.nslots;
    a.in = (const char *)a.in + skip;
    a.out = (char *)a.out + skip;
    for (int q = 0; q < a.nranks; q++) {
        a.peer[q].in = a.peer[q].in ? a.peer[q].in + skip : NULL;
        a.peer[q].out = a.peer[q].out ? a.peer[q].out + skip : NULL;
    }
    b = a;
    a.end_op = at;
    a.flags = number == 0 ? TIARA_KERNEL_FIRST : 0;
    a.tail_nwait = 0;
    b.first_op = at;
    b.flags = TIARA_KERNEL_LAST;
    if (a.rank % 2 == 0) {
        b.head_post = tail->post;
        tail->post = 0;
    } else {
        a.tail_wait = head->wait;
        a.tail_nwait = head->nwait;
        head->nwait = 0;
    }
    kernel_node_launch(tiara_kernel_exec_on_cpu, &a, c->grid, c->nthreads);
    kernel_node_launch(tiara_kernel_exec_on_cpu, &b, c->grid, c->nthreads);
    *tail = was_tail;
    *head = was_head;
}

enum tiara_err kernel_node_plan(
    const struct node *n, const struct call *c, int rank, struct tiara_plan *plan)
{
    struct tiara_algo_opts opts = {
        .coll = c->kind.coll, .one_shot = c->kind.one_shot, .single_copy = c->kind.single_copy};
    struct tiara_layout layout;
    char text[8];
    enum tiara_err err;

    snprintf(text, sizeof(text), "1x%d", n->nranks);
    err = tiara_layout_parse(&layout, text, 0, NULL, 0);
    if (err == TIARA_OK)
        err = tiara_scene_plan(&layout, rank, c->kind.algo, &opts, plan);
    tiara_layout_fini(&layout);
    return err;
}

void kernel_node_run(struct tiara_expect *e, struct node *n, const struct call *c)
{
    struct tiara_plan plan = {0};
    struct program p;
    struct tiara_kernel_exec_args a;

    if (EXPECT(e, kernel_node_plan(n, c, e->rank, &plan) == TIARA_OK)) {
        kernel_node_program_init(&p, &plan);
        a = kernel_node_exec_args(n, c, e->rank, &plan);
        a.program.ops = p.ops;
        a.program.srcs = p.srcs;
        a.program.waits = p.waits;
        EXPECT(
            e, (size_t)plan.tmp_blocks * a.block_len * kernel_node_size_of(c->type) <= TMP_BYTES);
        EXPECT(e, (size_t)plan.nblocks * a.block_len * kernel_node_size_of(c->type) <= CELL_BYTES);
        if (c->split && plan.nops > 1)
            for (size_t i = 0; i < a.nchunks; i++)
                launch_split(&a, &p, 1 + (int)(i + (size_t)e->rank) % (plan.nops - 1), i, c);
        else
            kernel_node_launch(tiara_kernel_exec_on_cpu, &a, c->grid, c->nthreads);
        kernel_node_program_fini(&p);
    }
    tiara_plan_fini(&plan);
}

struct tiara_kernel_small_args kernel_node_small_args(
    struct node *n, const struct call *c, int rank)
{
    struct tiara_kernel_small_args a = {.type = c->type,
        .oper = TIARA_OPER_SUM,
        .finish_ranks = c->average ? n->nranks : 0,
        .rank = rank,
        .nranks = n->nranks,
        .digest = (uint32_t)c->count * 31 + (uint32_t)c->type,
        .count = c->count,
        .in = kernel_node_user(n, c, rank, false),
        .out = kernel_node_user(n, c, rank, true),
        .memory = &n->memory[rank],
        .guard = guard_of(n, rank)};

    memcpy(a.segment, n->segment, sizeof(n->segment));
    return a;
}
