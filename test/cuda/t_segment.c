/*
 * A node's segments: all ranks have them mapped, probed and zeroed, or none has; and the ring that
 * is found where not every pair is linked.
 *
 *     tiara-test: env STANDIN_STRICT=1
 */
#include "test/cuda/t_common.h"
#include "gpu/segment.h"

#define CELL 8192

/* What a rank sets before its first call; NULL: as it is. */
struct setting {
    const char *devices, *peers, *broken, *visible;
    const char *fail; /* on rank @fail_rank */
    int fail_rank;
    int ordinal; /* of all ranks; -1: the rank's number, as far as devices go */
};

static void set(const char *name, const char *value)
{
    if (value != NULL)
        setenv(name, value, 1);
}

static struct tiara_gpu_node_params settings_use(
    struct tiara_expect *e, const struct setting *set_to, const struct tiara_xport_group *group)
{
    struct tiara_gpu_node_params params = {.group = group, .cell_bytes = CELL, .spin_s = 2.5};

    set("STANDIN_DEVICES", set_to->devices);
    set("STANDIN_PEERS", set_to->peers);
    set("STANDIN_PEERS_BROKEN", set_to->broken);
    set("CUDA_VISIBLE_DEVICES", set_to->visible);
    if (group->rank == set_to->fail_rank)
        set("STANDIN_FAIL", set_to->fail);
    params.ordinal = gpu_begin(e, TIARA_LOG_WARN);
    if (set_to->ordinal >= 0)
        params.ordinal = set_to->ordinal;
    return params;
}

/* ---- links ---- */

static bool is_linked(const uint16_t *reach, int a, int b)
{
    return (reach[a] >> b & 1) != 0;
}

/* All ways to go on from @order[0 .. n - 1] through the ranks of @left and back. */
static bool has_ring(const uint16_t *reach, int size, int last, unsigned left)
{
    if (left == 0)
        return is_linked(reach, last, 0);
    for (int next = 1; next < size; next++) {
        if ((left >> next & 1) != 0 && is_linked(reach, last, next) &&
            has_ring(reach, size, next, left & ~(1u << next)))
            return true;
    }
    return false;
}

static void links_check(const uint16_t *reach, int size)
{
    int pairs = 0, order[TIARA_KERNEL_PEERS];
    enum tiara_gpu_links links;
    enum tiara_err err = tiara_gpu_links_find(reach, size, &links, order);
    unsigned seen = 0;

    for (int a = 0; a < size; a++) {
        for (int b = 0; b < a; b++)
            pairs += is_linked(reach, a, b);
    }
    if (pairs == size * (size - 1) / 2) {
        ck_assert(err == TIARA_OK && links == TIARA_GPU_LINKS_ALL);
        return;
    }
    if (size < 3 || !has_ring(reach, size, 0, (1u << size) - 2)) {
        ck_assert_int_eq(err, TIARA_ERR_UNSUPPORTED);
        return;
    }
    ck_assert(err == TIARA_OK && links == TIARA_GPU_LINKS_RING && order[0] == 0);
    for (int i = 0; i < size; i++) {
        seen |= 1u << order[i];
        ck_assert(is_linked(reach, order[i], order[(i + 1) % size]));
    }
    ck_assert_uint_eq(seen, (1u << size) - 1);
}

/* A graph whose edges are the bits of @edges, pairs in order. */
static void graph_make(uint64_t edges, int size, uint16_t *reach)
{
    memset(reach, 0, TIARA_KERNEL_PEERS * sizeof *reach);
    for (int a = 0; a < size; a++) {
        reach[a] |= (uint16_t)(1u << a);
        for (int b = 0; b < a; b++, edges >>= 1) {
            if ((edges & 1) != 0) {
                reach[a] |= (uint16_t)(1u << b);
                reach[b] |= (uint16_t)(1u << a);
            }
        }
    }
}

START_TEST(test_links_of_every_small_graph)
{
    uint16_t reach[TIARA_KERNEL_PEERS];

    for (int size = 1; size <= 5; size++) {
        for (uint64_t edges = 0; edges >> (size * (size - 1) / 2) == 0; edges++) {
            graph_make(edges, size, reach);
            links_check(reach, size);
        }
    }
}
END_TEST

START_TEST(test_links_of_random_graphs)
{
    struct tiara_test_random random = {tiara_test_seed()};
    uint16_t reach[TIARA_KERNEL_PEERS];

    for (int i = 0; i < 3000; i++) {
        uint64_t edges = tiara_test_random_next(&random);

        /* Few edges are where it is hard. */
        if (i % 2 == 0)
            edges &= tiara_test_random_next(&random);
        graph_make(edges, 6 + i % 3, reach);
        links_check(reach, 6 + i % 3);
    }
}
END_TEST

/* A ring in a random order among 16, with a few edges more, and the same with one edge of the ring
 * missing. */
START_TEST(test_links_of_the_largest_node)
{
    struct tiara_test_random random = {tiara_test_seed()};
    enum {
        SIZE = TIARA_KERNEL_PEERS
    };

    for (int i = 0; i < 50; i++) {
        int at[SIZE], order[SIZE];
        uint16_t reach[SIZE] = {0};
        enum tiara_gpu_links links;

        for (int k = 0; k < SIZE; k++) {
            int to = (int)tiara_test_random_below(&random, (uint64_t)k + 1);

            at[k] = at[to];
            at[to] = k;
        }
        for (int k = 0; k < SIZE; k++) {
            reach[at[k]] |= (uint16_t)(1u << at[(k + 1) % SIZE]);
            reach[at[(k + 1) % SIZE]] |= (uint16_t)(1u << at[k]);
        }
        links_check(reach, SIZE);
        reach[at[0]] &= (uint16_t) ~(1u << at[1]);
        reach[at[1]] &= (uint16_t) ~(1u << at[0]);
        ck_assert_int_eq(tiara_gpu_links_find(reach, SIZE, &links, order), TIARA_ERR_UNSUPPORTED);
    }
}
END_TEST

START_TEST(test_links_out_of_memory)
{
    uint16_t reach[TIARA_KERNEL_PEERS];
    int order[TIARA_KERNEL_PEERS];
    enum tiara_gpu_links links;

    graph_make(1, 4, reach);
    tiara_alloc_fail_after(1);
    ck_assert_int_eq(tiara_gpu_links_find(reach, 4, &links, order), TIARA_ERR_NOMEM);
    tiara_alloc_fail_after(0);
}
END_TEST

/* ---- what an open one is ---- */

/* Device memory [@at, @at + @bytes) is zero. */
static bool is_zero(const void *at, size_t bytes)
{
    unsigned char *copy = malloc(bytes);
    bool zero = cudaMemcpy(copy, at, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;

    for (size_t i = 0; i < bytes && zero; i++)
        zero = copy[i] == 0;
    free(copy);
    return zero;
}

static void quiet_check(struct tiara_expect *e, const struct tiara_gpu_segments *s)
{
    static const struct tiara_kernel_status none[TIARA_KERNEL_BLOCKS];

    EXPECT(e, is_zero(s->segment[s->index], tiara_kernel_segment_bytes(s->cell_bytes)));
    EXPECT(e, is_zero(s->memory, sizeof *s->memory));
    EXPECT(e, *s->abort == 0 && memcmp(s->status, none, sizeof none) == 0);
    EXPECT(e, s->guard.abort != NULL && s->guard.status != NULL);
    EXPECT(e, s->guard.spin_ns == 2500000000u);
}

/* Each rank leaves a word in the cells of all that it has mapped, and reads what its peers hold. */
static void mappings_check(struct tiara_expect *e, const struct tiara_gpu_segments *s,
    const struct tiara_xport_group *group)
{
    size_t at = tiara_kernel_cell_at(TIARA_KERNEL_SLOTS - 1, CELL);

    /* All have looked whether theirs is zero. */
    gpu_barrier(e, group);
    gpu_fill(e, s->segment[s->index] + at + CELL / 2, s->index, 16);
    for (int peer = 0; peer < s->size; peer++) {
        if (s->segment[peer] != NULL)
            gpu_fill(e, s->segment[peer] + at + 64 * s->index, 100 + s->index, 8);
    }
    gpu_barrier(e, group);
    for (int peer = 0; peer < s->size; peer++) {
        if (s->segment[peer] == NULL)
            continue;
        EXPECT(e, gpu_is_filled(s->segment[peer] + at + CELL / 2, peer, 0, 16));
        EXPECT(e, gpu_is_filled(s->segment[s->index] + at + 64 * peer, 100 + peer, 0, 8));
    }
    gpu_barrier(e, group);
}

static int rank_opens(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, arg, group);
    size_t available = gpu_free_bytes();
    int before = gpu_descriptors();
    struct tiara_gpu_segments s;

    for (int i = 0; i < 3 && e.failures == 0; i++) {
        if (!EXPECT(&e, tiara_gpu_segments_open(&s, &params) == TIARA_OK))
            break;
        EXPECT(&e, s.links == TIARA_GPU_LINKS_ALL && s.index == rank && s.size == group->size);
        for (int peer = 0; peer < group->size; peer++)
            EXPECT(&e, s.segment[peer] != NULL && s.order[peer] == peer);
        quiet_check(&e, &s);
        mappings_check(&e, &s, group);
        tiara_gpu_segments_close(&s);
        tiara_gpu_segments_close(&s);
        gpu_barrier(&e, group);
    }
    EXPECT(&e, tiara_alloc_live() == 0 && cudaGetLastError() == cudaSuccess);
    if (gpu_is_standin())
        EXPECT(&e, gpu_free_bytes() == available && gpu_descriptors() == before);
    gpu_barrier(&e, group);
    return e.failures;
}

/* One to five ranks on four devices, so that some share one; all on one; and each with its own view
 * of the devices. */
START_TEST(test_segments_open_on_all)
{
    struct setting four = {.devices = "4", .ordinal = -1}, one = {.ordinal = 0};

    for (int ranks = 1; ranks <= 5; ranks++)
        ck_assert_int_eq(tiara_procs_run(ranks, rank_opens, &four), 0);
    ck_assert_int_eq(tiara_procs_run(3, rank_opens, &one), 0);
}
END_TEST

static int rank_hides(int rank, const struct tiara_xport_group *group, void *arg)
{
    static const char *const visible[] = {"0", "1", "2"};
    struct setting own = {.devices = "4", .visible = visible[rank], .ordinal = 0};

    (void)arg;
    return rank_opens(rank, group, &own);
}

START_TEST(test_segments_open_where_devices_are_hidden)
{
    if (gpu_have_standin())
        ck_assert_int_eq(tiara_procs_run(3, rank_hides, NULL), 0);
}
END_TEST

static int rank_too_many(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct setting plain = {.ordinal = -1};
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, &plain, group);
    struct tiara_gpu_segments s;

    (void)arg;
    EXPECT(&e, tiara_gpu_segments_open(&s, &params) == TIARA_ERR_UNSUPPORTED);
    tiara_gpu_segments_close(&s);
    return e.failures;
}

START_TEST(test_segments_of_too_many_ranks)
{
    ck_assert_int_eq(tiara_procs_run(TIARA_KERNEL_PEERS + 1, rank_too_many, NULL), 0);
}
END_TEST

/* ---- links of the stand-in ---- */

struct linked {
    struct setting setting;
    int ranks;
    const char *order; /* digits; NULL: there is no ring */
    const char *pair; /* named where there is none */
};

static const struct linked linked[] = {
    {{.devices = "4", .peers = "ring", .ordinal = -1}, 4, "0123", NULL},
    {{.devices = "4", .peers = "0-2,2-1,1-3,3-0", .ordinal = -1}, 4, "0213", NULL},
    {{.devices = "4", .broken = "1-2", .ordinal = -1}, 4, "0132", NULL},
    {{.devices = "5", .peers = "0-1,1-2,2-3,3-4,4-0,1-3", .ordinal = -1}, 5, "01234", NULL},
    {{.devices = "4", .broken = "1-2", .ordinal = -1}, 3, NULL, "ranks 1 and 2"},
    {{.devices = "4", .peers = "ring", .broken = "0-3", .ordinal = -1}, 4, NULL, "ranks 0 and 2"},
    {{.devices = "2", .peers = "none", .ordinal = -1}, 2, NULL, "ranks 0 and 1"},
    {{.devices = "2", .broken = "0-1", .ordinal = -1}, 3, NULL, "ranks 0 and 1"},
};

static bool is_digit_neighbour(const char *order, int a, int b)
{
    int size = (int)strlen(order);

    for (int i = 0; i < size; i++) {
        if (order[i] == '0' + a)
            return order[(i + 1) % size] == '0' + b || order[(i + size - 1) % size] == '0' + b;
    }
    return false;
}

/* One of the two directions of the ring that is expected. */
static bool is_order(const int *order, const char *expected)
{
    int size = (int)strlen(expected);
    bool is_same = order[0] == 0;

    for (int i = 0; i < size; i++)
        is_same = is_same && is_digit_neighbour(expected, order[i], order[(i + 1) % size]);
    return is_same;
}

static int rank_links(int rank, const struct tiara_xport_group *group, void *arg)
{
    const struct linked *l = arg;
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, &l->setting, group);
    int all[TIARA_KERNEL_PEERS * TIARA_KERNEL_PEERS];
    size_t available = gpu_free_bytes();
    struct tiara_gpu_segments s;
    char text[4096];
    enum tiara_err err;

    if (!gpu_is_standin())
        return e.failures;
    tiara_log_setup(TIARA_LOG_INFO, rank);
    tiara_test_stderr_begin();
    err = tiara_gpu_segments_open(&s, &params);
    tiara_test_stderr_end(text, sizeof text);
    tiara_log_setup(TIARA_LOG_WARN, rank);
    if (l->order == NULL) {
        EXPECT(&e, err == TIARA_ERR_UNSUPPORTED);
        EXPECT(&e, rank != 0 || strstr(text, l->pair) != NULL);
        EXPECT(&e, strstr(text, "error: ") == NULL && strstr(text, "warn: ") == NULL);
    } else if (EXPECT(&e, err == TIARA_OK)) {
        EXPECT(&e, s.links == TIARA_GPU_LINKS_RING && is_order(s.order, l->order));
        EXPECT(&e, group->allgather(group->arg, s.order, all, sizeof s.order) == TIARA_OK);
        for (int peer = 0; peer < s.size; peer++) {
            EXPECT(&e, memcmp(all + peer * TIARA_KERNEL_PEERS, s.order, sizeof s.order) == 0);
            if (peer == rank || is_digit_neighbour(l->order, rank, peer))
                EXPECT(&e, s.segment[peer] != NULL);
        }
        quiet_check(&e, &s);
        mappings_check(&e, &s, group);
        tiara_gpu_segments_close(&s);
    }
    gpu_barrier(&e, group);
    EXPECT(&e, gpu_free_bytes() == available && cudaGetLastError() == cudaSuccess);
    return e.failures;
}

START_TEST(test_segments_links)
{
    struct linked l = linked[_i];

    ck_assert_int_eq(tiara_procs_run(l.ranks, rank_links, &l), 0);
}
END_TEST

/* A mapping that does not work is not held: rank 1 and 2 are out of each other's reach, though the
 * driver promised it. */
static int rank_unmaps(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct setting setting = {.devices = "4", .broken = "1-2", .ordinal = -1};
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, &setting, group);
    struct tiara_gpu_segments s;

    (void)arg;
    if (!gpu_is_standin() || !EXPECT(&e, tiara_gpu_segments_open(&s, &params) == TIARA_OK))
        return e.failures;
    for (int peer = 0; peer < s.size; peer++) {
        bool is_broken = (rank == 1 && peer == 2) || (rank == 2 && peer == 1);

        EXPECT(&e, (s.segment[peer] == NULL) == is_broken);
    }
    gpu_barrier(&e, group);
    tiara_gpu_segments_close(&s);
    return e.failures;
}

START_TEST(test_segments_broken_mapping_is_given_up)
{
    ck_assert_int_eq(tiara_procs_run(4, rank_unmaps, NULL), 0);
}
END_TEST

/* ---- failures ---- */

static const char *const calls[] = {"cudaStreamCreateWithFlags", "cudaHostAlloc",
    "cudaHostGetDevicePointer", "cudaMalloc", "cudaMemsetAsync", "cudaStreamSynchronize",
    "cudaDeviceGetPCIBusId", "cudaIpcGetMemHandle", "cudaGetDeviceCount", "cudaDeviceCanAccessPeer",
    "cudaIpcOpenMemHandle", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamDestroy",
    "cudaIpcCloseMemHandle", "cudaFreeHost", "cudaSetDevice", "cudaGetDevice"};

#define MOST 12 /* calls of one function in an open */

/*
 * The n-th call of one function fails on one rank. The end is the same on all: an error with
 * nothing held, or segments that work. Of three times, one at most fails. After a call that gives
 * something back something is lost.
 */
static int rank_fails(int rank, const struct tiara_xport_group *group, void *arg)
{
    const struct setting *setting = arg;
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, setting, group);
    bool gives_back = strstr(setting->fail, "Close") || strstr(setting->fail, "Free");
    size_t available = gpu_free_bytes();
    int before = gpu_descriptors(), failed = 0, all[3], own;
    struct tiara_gpu_segments s;

    /* A call before open may be the one that fails; then there is nothing to be seen. */
    own = params.ordinal >= 0 && gpu_is_standin() ? TIARA_OK : TIARA_ERR_UNSUPPORTED;
    if (tiara_xport_agree(group, (enum tiara_err)own) != TIARA_OK)
        return 0;
    for (int i = 0; i < 3; i++) {
        own = tiara_gpu_segments_open(&s, &params);
        EXPECT(&e, group->allgather(group->arg, &own, all, sizeof own) == TIARA_OK);
        for (int peer = 0; peer < group->size; peer++)
            EXPECT(&e, all[peer] == own);
        EXPECT(&e, own == TIARA_OK || own == TIARA_ERR_SYS || own == TIARA_ERR_NOSPACE ||
                       own == TIARA_ERR_UNSUPPORTED);
        failed += own != TIARA_OK;
        if (own == TIARA_OK && s.links == TIARA_GPU_LINKS_ALL) {
            quiet_check(&e, &s);
            mappings_check(&e, &s, group);
        }
        if (own == TIARA_OK)
            tiara_gpu_segments_close(&s);
        gpu_barrier(&e, group);
        if (!gives_back)
            EXPECT(&e, gpu_free_bytes() == available && gpu_descriptors() == before);
        if (gives_back)
            break;
    }
    EXPECT(&e, failed <= 1);
    EXPECT(&e, tiara_alloc_live() == 0 && cudaGetLastError() == cudaSuccess);
    return e.failures;
}

START_TEST(test_segments_failing_calls)
{
    for (int n = 1; n <= MOST && gpu_have_standin(); n++) {
        char fail[64];
        struct setting setting = {.devices = "3", .fail = fail, .fail_rank = n % 3, .ordinal = -1};

        snprintf(fail, sizeof fail, "%s:%d", calls[_i], n);
        ck_assert_msg(tiara_procs_run(3, rank_fails, &setting) == 0, "%s on rank %d", fail, n % 3);
    }
}
END_TEST

/* A rank that is gone ends the open of the others. */
static int rank_leaves(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct setting plain = {.ordinal = -1};
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_node_params params = settings_use(&e, &plain, group);
    struct tiara_gpu_segments s;

    (void)arg;
    if (rank == 1)
        return e.failures;
    EXPECT(&e, tiara_gpu_segments_open(&s, &params) == TIARA_ERR_PEER);
    EXPECT(&e, tiara_alloc_live() == 0);
    return e.failures;
}

START_TEST(test_segments_a_rank_that_is_gone)
{
    ck_assert_int_eq(tiara_procs_run(3, rank_leaves, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("segment");
    TCase *all = tcase_create("all");

    tcase_add_test(all, test_links_of_every_small_graph);
    tcase_add_test(all, test_links_of_random_graphs);
    tcase_add_test(all, test_links_of_the_largest_node);
    tcase_add_test(all, test_links_out_of_memory);
    tcase_add_test(all, test_segments_open_on_all);
    tcase_add_test(all, test_segments_open_where_devices_are_hidden);
    tcase_add_test(all, test_segments_of_too_many_ranks);
    tcase_add_loop_test(all, test_segments_links, 0, (int)(sizeof linked / sizeof linked[0]));
    tcase_add_test(all, test_segments_broken_mapping_is_given_up);
    tcase_add_loop_test(all, test_segments_failing_calls, 0, (int)(sizeof calls / sizeof calls[0]));
    tcase_add_test(all, test_segments_a_rank_that_is_gone);
    suite_add_tcase(suite, all);
    return tiara_test_run(suite, CK_NOFORK);
}
