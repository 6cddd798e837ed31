/* tiara-test: timeout 300 */
/*
 * Calls on the GPUs of several nodes: hierarchies and flat plans, device memory straight to the
 * network and through pinned memory, messages of many pieces, chunks in flight; and what becomes of
 * a call when another node is gone.
 */
#include "gpu/node.h"
#include "test/cuda/t_scene.h"

#include <sched.h>
#include <unistd.h>

#define CELL_BYTES ((size_t)65536)

struct test_case {
    const struct tiara_algo *algo;
    struct tiara_algo_opts opts;
};

static const struct test_case cases[] = {
    {&tiara_algo_hier, {.coll = TIARA_COLL_ALLREDUCE, .inter = &tiara_algo_ring}},
    {&tiara_algo_hier, {.coll = TIARA_COLL_ALLREDUCE, .inter = &tiara_algo_recdbl}},
    {&tiara_algo_hier, {.coll = TIARA_COLL_ALLREDUCE, .inter = &tiara_algo_tree, .leaders = 1}},
    {&tiara_algo_hier, {.coll = TIARA_COLL_REDUCE_SCATTER}},
    {&tiara_algo_hier, {.coll = TIARA_COLL_ALLGATHER}},
    {&tiara_algo_hier_chain, {.coll = TIARA_COLL_ALLREDUCE}},
    {&tiara_algo_ring, {.coll = TIARA_COLL_ALLREDUCE}},
    {&tiara_algo_chain, {.coll = TIARA_COLL_ALLREDUCE}},
};
#define NCASES ((int)(sizeof(cases) / sizeof(cases[0])))

static const char *const layouts[] = {"2x2", "3+1", "2x1", "1+2", "2x2:rr"};
#define NLAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

static const size_t counts[] = {1, 63, 1000, 5003, 16384, 100003};
#define NCOUNTS (sizeof(counts) / sizeof(counts[0]))

/* All ranks count chunks alike, since tags of messages hold the count. */
static void verify_chunk_seq(struct gpu_actor *a)
{
    uint64_t mine = a->exec.chunk_seq, all[SOCKETS_MAX] = {0};

    EXPECT(&a->e, a->all.allgather(a->all.arg, &mine, all, sizeof(mine)) == TIARA_OK);
    for (int r = 0; r < a->layout->nranks; r++)
        EXPECT(&a->e, all[r] == mine);
}

static void play_case(struct gpu_actor *a, void *arg)
{
    const struct test_case *t = arg;
    struct tiara_plan plan = {0};
    enum tiara_err err = gpu_plan_make(a, t->algo, &t->opts, &plan);
    bool is_allreduce = t->opts.coll == TIARA_COLL_ALLREDUCE;

    for (size_t i = 0; i < 2 * NCOUNTS && err == TIARA_OK && a->e.failures == 0; i++) {
        /* A message must lie in one piece: reduce-scatter and all-gather are not cut into chunks
         * here. */
        struct gpu_act act = {.coll = t->opts.coll,
            .plan = &plan,
            .count = is_allreduce ? counts[i / 2] : counts[i / 2] % 4001 + 1,
            .chunk_elems = is_allreduce && i % 4 < 2 ? 3001 : 0,
            .slots = 1 + (int)(i / 2) % 5,
            .in_place = i % 4 == 1 && t->opts.coll != TIARA_COLL_REDUCE_SCATTER,
            .direct = i % 2,
            .average = i % 3 == 2 && t->opts.coll != TIARA_COLL_ALLGATHER,
            .skew = i % 5,
            .digest = 77000 + (uint32_t)i};

        gpu_perform(a, &act, 2);
    }
    EXPECT(&a->e, err == TIARA_OK);
    if (a->e.failures == 0)
        verify_chunk_seq(a);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_net_every_algorithm_and_layout_computes)
{
    const struct test_case *t = &cases[_i / NLAYOUTS];
    struct gpu_scene s = {.layout = layouts[_i % NLAYOUTS],
        .cell_bytes = CELL_BYTES,
        .play = play_case,
        .arg = (void *)(uintptr_t)t};

    ck_assert_msg(
        gpu_scene_run(&s) == 0, "%s, coll %d, on %s", t->algo->name, (int)t->opts.coll, s.layout);
}
END_TEST

/* Messages of more pieces than a message has bounce buffers, two levels, several chunks. */
static void play_large(struct gpu_actor *a, void *arg)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    struct tiara_plan plan = {0};

    (void)arg;
    EXPECT(&a->e, gpu_plan_make(a, &tiara_algo_hier, &opts, &plan) == TIARA_OK);
    for (int direct = 0; direct < 2; direct++) {
        struct gpu_act act = {.coll = TIARA_COLL_ALLREDUCE,
            .plan = &plan,
            .count = ((size_t)5 << 20) + 77,
            .chunk_elems = (size_t)2 << 20,
            .slots = 2,
            .direct = direct,
            .digest = 99};

        gpu_perform(a, &act, 1);
    }
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_net_many_pieces_compute)
{
    struct gpu_scene s = {.layout = "2x1", .cell_bytes = (size_t)8 << 20, .play = play_large};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
    s.layout = "1+2";
    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* ---- messages by themselves ---- */

#define NMESSAGES 7

/*
 * Rank 0's messages to rank 1, and as many back; several in flight, of all lengths around a piece.
 */
static const size_t messages[NMESSAGES] = {0, 1, TIARA_GPU_PIECE_BYTES, TIARA_GPU_PIECE_BYTES + 1,
    5 * TIARA_GPU_PIECE_BYTES + 12345, 100, 3 * TIARA_GPU_PIECE_BYTES};

static unsigned char message_byte(int rank, int message, size_t at)
{
    return (unsigned char)tiara_test_bits(rank * NMESSAGES + message, at / 8);
}

/* Sends from, or receives into, message number @i / 2 at @at. */
static enum tiara_err start_message(
    struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net, int peer, int i, char *at)
{
    struct tiara_message m = {
        .sends = i % 2 == 0, .peer = peer, .tag = 7, .at = at, .bytes = messages[i / 2]};

    return tiara_gpu_mail_start(mail, net, &m, false);
}

/* All messages, at most a window at a time; a rank looks after its messages more or less often. */
static void exchange_messages(struct gpu_actor *a, char *const *at, int window)
{
    struct tiara_gpu_mail *mail = &a->node->slot[1].mail;
    struct tiara_gpu_net net = {&sockets_xport, &a->sockets, a->node->down, a->node->up};
    struct tiara_test_random random = {77 + (uint64_t)a->rank};
    double begin = tiara_test_now();
    enum tiara_err err = TIARA_OK;
    int next = 0;
    bool moved;

    mail->started = mail->done = 0;
    while (err == TIARA_OK && mail->done < 2 * NMESSAGES) {
        if (next < 2 * NMESSAGES && next - mail->done < window &&
            tiara_test_random_below(&random, 4) == 0) {
            err = start_message(mail, &net, 1 - a->rank, next, at[next]);
            next++;
        } else if (tiara_test_random_below(&random, 3) == 0) {
            err = tiara_gpu_mail_drive(mail, &net, &moved);
        } else {
            sched_yield();
        }
        if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S)
            err = TIARA_ERR_TIMEOUT;
    }
    EXPECT(&a->e, err == TIARA_OK);
}

static void play_messages(struct gpu_actor *a, void *arg)
{
    const int window = *(const int *)arg;
    char *at[2 * NMESSAGES], *host = malloc(messages[4] + 1);
    size_t wrong = 0;

    EXPECT(&a->e, tiara_gpu_mail_reserve(a->node, window, messages[4]) == TIARA_OK);
    for (int i = 0; i < 2 * NMESSAGES; i++) {
        EXPECT_CUDA(&a->e, cudaMalloc((void **)&at[i], messages[i / 2] + 1));
        for (size_t k = 0; k <= messages[i / 2]; k++)
            host[k] = (char)(i % 2 ? 0 : message_byte(a->rank, i / 2, k));
        EXPECT_CUDA(&a->e, cudaMemcpy(at[i], host, messages[i / 2] + 1, cudaMemcpyHostToDevice));
    }
    exchange_messages(a, at, window);
    for (int i = 1; i < 2 * NMESSAGES; i += 2) {
        EXPECT_CUDA(&a->e, cudaMemcpy(host, at[i], messages[i / 2] + 1, cudaMemcpyDeviceToHost));
        for (size_t k = 0; k < messages[i / 2]; k++)
            wrong += (unsigned char)host[k] != message_byte(1 - a->rank, i / 2, k);
        wrong += host[messages[i / 2]] != 0;
    }
    EXPECT(&a->e, wrong == 0);
    for (int i = 0; i < 2 * NMESSAGES; i++)
        EXPECT_CUDA(&a->e, cudaFree(at[i]));
    free(host);
}

START_TEST(test_net_pieces_of_several_messages_keep_order)
{
    int windows[] = {2, 3, 5, 2 * NMESSAGES};
    struct gpu_scene s = {
        .layout = "2x1", .cell_bytes = CELL_BYTES, .play = play_messages, .arg = &windows[_i]};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

/* ---- errors ---- */

/* The last rank, on another node than the first, is gone, or calls differently. */
static void play_fault(struct gpu_actor *a, void *arg)
{
    static const struct tiara_algo_opts opts = {.coll = TIARA_COLL_ALLREDUCE};
    const int fault = *(const int *)arg;
    bool is_last = a->rank == a->layout->nranks - 1;
    struct gpu_act act = {.coll = TIARA_COLL_ALLREDUCE,
        .count = 40000,
        .chunk_elems = 3001,
        .slots = 3,
        .direct = fault % 2,
        .digest = 2};
    struct tiara_plan plan = {0};
    struct gpu_data d;

    EXPECT(&a->e, gpu_plan_make(a, &tiara_algo_hier, &opts, &plan) == TIARA_OK);
    act.plan = &plan;
    gpu_perform(a, &act, 1);
    a->is_alone = true;
    if (is_last && fault < 2)
        _exit(0);
    if (is_last)
        act.digest = 3;
    gpu_data_init(&d, a, &act);
    gpu_data_fill(&d, a, &act, 0);
    EXPECT(&a->e, gpu_run(a, &act, d.in, d.out) != TIARA_OK);
    EXPECT(&a->e, gpu_run(a, &act, d.in, d.out) == TIARA_ERR_PEER);
    gpu_data_fini(&d, a);
    tiara_gpu.node->close(a->node);
    a->node = NULL;
    tiara_plan_fini(&plan);
}

START_TEST(test_net_fault_on_another_node_ends_call)
{
    int fault = _i;
    struct gpu_scene s = {
        .layout = "2x2", .cell_bytes = CELL_BYTES, .play = play_fault, .arg = &fault};

    ck_assert_int_eq(gpu_scene_run(&s), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("net");
    TCase *tcase = tcase_create("net");

    tcase_add_loop_test(tcase, test_net_every_algorithm_and_layout_computes, 0, NCASES * NLAYOUTS);
    tcase_add_test(tcase, test_net_many_pieces_compute);
    tcase_add_loop_test(tcase, test_net_pieces_of_several_messages_keep_order, 0, 4);
    tcase_add_loop_test(tcase, test_net_fault_on_another_node_ends_call, 0, 4);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
