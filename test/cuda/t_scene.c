/*
 * Plans, data and calls of a rank of a scene, and the stage on which all ranks play.
 */
#include "test/cuda/t_scene.h"
#include <sys/mman.h>

/* ---- plans ---- */

enum tiara_err gpu_plan_make(const struct gpu_actor *a, const struct tiara_algo *algo,
    const struct tiara_algo_opts *opts, struct tiara_plan *plan)
{
    const struct tiara_layout *l = a->layout;
    int node = l->node_of[a->rank], n = tiara_layout_local_size(l, node);
    struct tiara_plan peers[SOCKETS_MAX] = {0};
    const struct tiara_plan *list[SOCKETS_MAX];
    enum tiara_err err = tiara_algo_generate(algo, l, a->rank, opts, plan);

    for (int i = 0; i < n && err == TIARA_OK; i++) {
        list[i] = &peers[i];
        err = tiara_algo_generate(algo, l, tiara_layout_rank(l, node, i), opts, &peers[i]);
    }
    if (err == TIARA_OK)
        err = tiara_plan_depend(plan, list, algo->flags & TIARA_ALGO_FLAT ? 0 : n);
    if (err == TIARA_OK)
        err = tiara_plan_resolve(plan);
    for (int i = 0; i < n; i++)
        tiara_plan_fini(&peers[i]);
    return err;
}

/* ---- data ---- */

#define GPU_GUARD 64 /* elements */

void gpu_data_init(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act)
{
    size_t ranks = (size_t)a->layout->nranks, own = (size_t)a->rank * act->count;
    size_t whole = act->count * (act->coll == TIARA_COLL_ALLREDUCE ? 1 : ranks);
    bool gathers = act->coll == TIARA_COLL_ALLGATHER && !act->in_place;
    bool scatters = act->coll == TIARA_COLL_REDUCE_SCATTER;
    void *all = NULL;

    memset(d, 0, sizeof(*d));
    d->nin = gathers ? act->count : whole;
    d->nout = scatters ? act->count : whole;
    d->in_skip = gathers ? own : 0;
    d->out_skip = scatters ? own : 0;
    d->in_at = GPU_GUARD + act->skew;
    d->out_at = act->in_place
                    ? d->in_at
                    : (d->in_at + d->nin + 2 * GPU_GUARD - 1) / GPU_GUARD * GPU_GUARD + act->skew;
    d->n = d->out_at + d->nout + GPU_GUARD;
    EXPECT_CUDA(&a->e, cudaMalloc(&all, d->n * sizeof(int32_t)));
    d->all = all;
    d->in = d->all + d->in_at;
    d->out = d->all + d->out_at;
    d->host = malloc(d->n * sizeof(int32_t));
}

void gpu_data_fini(struct gpu_data *d, struct gpu_actor *a)
{
    EXPECT_CUDA(&a->e, cudaFree(d->all));
    free(d->host);
}

static int32_t bits_of(const struct gpu_act *act, int64_t value)
{
    float f = (float)value;
    int32_t bits = (int32_t)value;

    if (act->average)
        memcpy(&bits, &f, sizeof(bits));
    return bits;
}

void gpu_data_fill(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act, int round)
{
    size_t first = 0, end = d->nin;

    for (size_t i = 0; i < d->n; i++)
        d->host[i] = 0x5a5a5a5a;
    if (act->coll == TIARA_COLL_ALLGATHER && act->in_place) {
        first = (size_t)a->rank * act->count;
        end = first + act->count;
    }
    for (size_t i = first; i < end; i++)
        d->host[d->in_at + i] =
            bits_of(act, tiara_test_value(a->rank, d->in_skip + i + (size_t)round));
    EXPECT_CUDA(&a->e, cudaMemcpy(d->all, d->host, d->n * sizeof(int32_t), cudaMemcpyHostToDevice));
}

/* What OUT element @i must be. */
static int32_t wanted(const struct gpu_data *d, const struct gpu_actor *a,
    const struct gpu_act *act, int round, size_t i)
{
    size_t at = d->out_skip + i + (size_t)round;
    int n = a->layout->nranks;
    float f = (float)tiara_test_sum(n, at) / (float)n;
    int32_t bits;

    if (act->coll == TIARA_COLL_ALLGATHER)
        return bits_of(act, tiara_test_value((int)(i / act->count), at));
    if (!act->average)
        return (int32_t)tiara_test_sum(n, at);
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

bool gpu_data_verify(struct gpu_data *d, struct gpu_actor *a, const struct gpu_act *act, int round)
{
    EXPECT_CUDA(&a->e, cudaMemcpy(d->host, d->all, d->n * sizeof(int32_t), cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < d->n; k++) {
        int32_t want = 0x5a5a5a5a;

        if (k >= d->out_at && k < d->out_at + d->nout)
            want = wanted(d, a, act, round, k - d->out_at);
        else if (k >= d->in_at && k < d->in_at + d->nin)
            want =
                bits_of(act, tiara_test_value(a->rank, d->in_skip + k - d->in_at + (size_t)round));
        if (d->host[k] == want)
            continue;
        if (a->e.failures++ < TIARA_EXPECT_PRINTED)
            fprintf(stderr,
                "rank %d of %d on %d nodes, coll %d%s%s, count %zu, chunks of %zu, %d slots, "
                "round %d: element %zd of OUT is %08x, not %08x\n",
                a->rank, a->layout->nranks, a->layout->nnodes, (int)act->coll,
                act->in_place ? " in place" : "", act->plan ? "" : " in packets", act->count,
                act->chunk_elems, act->slots, round, (ssize_t)(k - d->out_at), (unsigned)d->host[k],
                (unsigned)want);
        return false;
    }
    return true;
}

/* ---- calls ---- */

static struct tiara_exec_call exec_call(const struct gpu_act *act, const void *in, void *out)
{
    return (struct tiara_exec_call){.plan = act->plan,
        .in = in,
        .out = out,
        .count = act->count,
        .elem_size = sizeof(int32_t),
        .chunk_elems = act->chunk_elems,
        .slots = act->slots,
        .digest = act->digest};
}

static struct tiara_gpu_call gpu_call(const struct gpu_actor *a, const struct gpu_act *act)
{
    return (struct tiara_gpu_call){.type = act->average ? TIARA_TYPE_F32 : TIARA_TYPE_I32,
        .oper = act->coll == TIARA_COLL_ALLGATHER ? -1 : TIARA_OPER_SUM,
        .finish_ranks = act->average ? a->layout->nranks : 0,
        .direct = act->direct,
        .share = act->share};
}

struct poll {
    struct tiara_gpu_node *node;
    enum tiara_err err;
};

static bool is_over(void *arg, struct tiara_wait_on *on)
{
    struct poll *p = arg;
    bool moved = true, over = false;
    on->word = NULL;
    while (moved && !over && p->err == TIARA_OK)
        p->err = tiara_gpu.node->poll(p->node, &moved, &over);
    return over || p->err != TIARA_OK;
}

enum tiara_err gpu_run(struct gpu_actor *a, const struct gpu_act *act, const void *in, void *out)
{
    struct tiara_exec_call call = exec_call(act, in, out);
    struct tiara_gpu_call gpu = gpu_call(a, act);

    struct poll p = {a->node, TIARA_OK};
    enum tiara_err err = tiara_gpu.node->start(a->node, &a->exec, &call, &gpu);
    if (err != TIARA_OK)
        return err;
    err = tiara_wait(a->exec.wait, is_over, &p);
    return tiara_gpu.node->finish(a->node, tiara_err_first(err, p.err));
}

enum tiara_err gpu_enqueue(
    struct gpu_actor *a, const struct gpu_act *act, const void *in, void *out, cudaStream_t stream)
{
    struct tiara_exec_call call = exec_call(act, in, out);
    struct tiara_gpu_call gpu = gpu_call(a, act);

    gpu.in_stream = true;
    gpu.stream = stream;
    return tiara_gpu.node->start(a->node, &a->exec, &call, &gpu);
}

void gpu_perform(struct gpu_actor *a, const struct gpu_act *act, int rounds)
{
    struct gpu_data d;

    gpu_data_init(&d, a, act);
    for (int round = 0; round < rounds; round++) {
        gpu_data_fill(&d, a, act, round);
        if (!EXPECT(&a->e, gpu_run(a, act, d.in, d.out) == TIARA_OK) ||
            !gpu_data_verify(&d, a, act, round))
            break;
    }
    gpu_data_fini(&d, a);
}

/* ---- the stage ---- */

/* A rank that is gone will not come any more. */
static enum tiara_err stuck(void *arg, double waited_s, bool first)
{
    const struct gpu_actor *a = arg;
    const struct tiara_exchange *x = ((const struct tiara_exchange_rank *)a->all.arg)->whole;

    (void)first;
    for (int i = 0; i < x->size; i++)
        if (tiara_load_relaxed(&x->ranks[i].has_left)) /* relaxed: nothing else is read */
            return TIARA_ERR_PEER;
    return waited_s < TIARA_TEST_PATIENCE_S ? TIARA_OK : TIARA_ERR_TIMEOUT;
}

static void actor_init(struct gpu_actor *a, struct gpu_scene *s)
{
    const struct tiara_layout *l = &s->where;
    int node = l->node_of[a->rank];

    a->e.rank = a->rank;
    a->layout = l;
    a->node_group = tiara_exchange_group(s->node_groups[node], l->local_of[a->rank]);
    sockets_take(&a->sockets, &s->mesh, a->rank);
    for (int r = 0; r < l->nranks; r++)
        a->node_index[r] = l->node_of[r] == node ? l->local_of[r] : -1;
    tiara_wait_policy(&a->wait, l->nranks, 1);
    a->wait.yields = -1;
    a->wait.stuck = stuck;
    a->wait.stuck_arg = a;
    a->exec = (struct tiara_exec){.rank = a->rank,
        .nranks = l->nranks,
        .node_index = a->node_index,
        .net = &sockets_xport,
        .net_obj = &a->sockets,
        .wait = &a->wait,
        .tag_bits = 15};
}

static int enter(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct gpu_scene *s = arg;
    struct gpu_actor a = {.rank = rank, .all = *group};
    struct tiara_gpu_node_params params = {
        .group = &a.node_group, .cell_bytes = s->cell_bytes, .spin_s = s->spin_s};
    enum tiara_err err = TIARA_ERR_SYS;
    uint64_t live = tiara_alloc_live();

    if (s->devices)
        setenv("STANDIN_DEVICES", s->devices, 1);
    if (s->fail && rank == s->where.nranks - 1)
        setenv("STANDIN_FAIL", s->fail, 1);
    actor_init(&a, s);
    a.device = params.ordinal = gpu_begin(&a.e, TIARA_LOG_WARN);
    if (a.device >= 0)
        err = tiara_gpu.node->open(&a.node, &params);
    EXPECT(&a.e, err == TIARA_OK || s->fail);
    if (err == TIARA_OK) {
        s->play(&a, s->arg);
        /* Peers may still be reading this rank's segment. */
        if (!a.is_alone)
            (void)gpu_barrier(&a.e, group);
        tiara_gpu.node->close(a.node);
        tiara_gpu.close();
    }
    sockets_leave(&a.sockets);
    EXPECT(&a.e, err != TIARA_OK || tiara_alloc_live() == live);
    tiara_exchange_leave(s->node_groups[a.layout->node_of[rank]], a.layout->local_of[rank]);
    return a.e.failures;
}

int gpu_scene_run(struct gpu_scene *s)
{
    size_t bytes[SOCKETS_MAX];
    int failed;

    if (tiara_layout_parse(&s->where, s->layout, 0, NULL, 0) != TIARA_OK)
        return 1;
    sockets_mesh_make(&s->mesh, s->where.nranks);
    for (int n = 0; n < s->where.nnodes; n++) {
        bytes[n] = tiara_exchange_bytes(tiara_layout_local_size(&s->where, n));
        s->node_groups[n] =
            mmap(NULL, bytes[n], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        tiara_exchange_init(s->node_groups[n], tiara_layout_local_size(&s->where, n));
    }
    failed = tiara_procs_run(s->where.nranks, enter, s);
    for (int n = 0; n < s->where.nnodes; n++)
        munmap(s->node_groups[n], bytes[n]);
    sockets_mesh_close(&s->mesh);
    tiara_layout_fini(&s->where);
    return failed;
}
