/* tiara-test: timeout 300 */
/*
 * The reductions of the kernels, in their CPU build: every element type and operator against a
 * scalar oracle, byte by byte.
 *
 * The oracle is that of the host's reductions, so the kernels give the same bits. It knows nothing
 * of alignment, of threads, and of which source the result overwrites; so results that equal it do
 * not depend on these either.
 */
#include "kernels/kernels.h"
#include "kernels/on_cpu.h"
#include "test/conform/redop_oracle.h"
#include "test/harness/test.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_N = 70000,
    MAX_SRC = 5,
    MAX_SIZE = 8,
    SPREAD = 64,
    GUARD = 64
};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t seed; /* of all tests; printed by main */

/* ---- running the kernel ---- */

struct team {
    pthread_barrier_t barrier;
    _Alignas(64) char shared[TIARA_ON_CPU_SHARED];
};

struct member {
    struct tiara_on_cpu self;
    const struct tiara_kernel_reduce_args *args;
};

static void sync_team(struct tiara_on_cpu *self)
{
    struct team *team = self->launcher;

    pthread_barrier_wait(&team->barrier);
}

static void *member_main(void *arg)
{
    struct member *m = arg;

    tiara_kernel_reduce_on_cpu(&m->self, m->args);
    return NULL;
}

/* A grid of @nblocks x @nthreads, all running at the same time. */
static void launch(const struct tiara_kernel_reduce_args *args, unsigned nblocks, unsigned nthreads)
{
    struct team *team = aligned_alloc(64, nblocks * sizeof(*team));
    struct member *member = calloc((size_t)nblocks * nthreads, sizeof(*member));
    pthread_t *id = calloc((size_t)nblocks * nthreads, sizeof(*id));

    ck_assert(team && member && id);
    for (unsigned b = 0; b < nblocks; b++)
        ck_assert_int_eq(pthread_barrier_init(&team[b].barrier, NULL, nthreads), 0);
    for (unsigned i = 0; i < nblocks * nthreads; i++) {
        struct team *mine = &team[i / nthreads];
        member[i].args = args;
        member[i].self = (struct tiara_on_cpu){.block = i / nthreads,
            .nblocks = nblocks,
            .thread = i % nthreads,
            .nthreads = nthreads,
            .shared = mine->shared,
            .sync = sync_team,
            .launcher = mine};
        if (i > 0)
            ck_assert_int_eq(pthread_create(&id[i], NULL, member_main, &member[i]), 0);
    }
    member_main(&member[0]);
    for (unsigned i = 1; i < nblocks * nthreads; i++)
        pthread_join(id[i], NULL);
    for (unsigned b = 0; b < nblocks; b++)
        pthread_barrier_destroy(&team[b].barrier);
    free(id);
    free(member);
    free(team);
}

/* ---- data: a third edge values, a third small numbers, a third random bits ---- */

static uint64_t edge_bits(int type, struct tiara_test_random *random)
{
    static const uint64_t f16[] = {
        0, 0x8000, 1, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfd55};
    static const uint64_t bf16[] = {
        0, 0x8000, 1, 0x7f, 0x80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffaa};
    static const uint64_t f32[] = {0, 0x80000000, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0xff7fffff,
        0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345};
    static const uint64_t f64[] = {0, 0x8000000000000000, 1, 0xfffffffffffff, 0x10000000000000,
        0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
        0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0xfff0000012345678};
    static const uint64_t e4m3[] = {0, 0x80, 1, 7, 8, 0x7e, 0xfe, 0x7f, 0xff, 0x7d, 0x38, 0xb8, 9};
    static const uint64_t e5m2[] = {0, 0x80, 1, 3, 4, 0x7b, 0xfb, 0x7c, 0xfc, 0x7d, 0xff, 0x7e, 5};
    static const uint64_t *const floats[] = {f16, bf16, e4m3, e5m2, f32, f64};
    uint64_t top = UINT64_C(1) << (8 * tiara_type_size(type) - 1);
    const uint64_t integers[] = {0, 1, UINT64_MAX, top, top - 1, top + 1, 2};

    if (type < TIARA_TYPE_F16)
        return integers[tiara_test_random_below(random, LENGTH(integers))];
    return floats[type - TIARA_TYPE_F16][tiara_test_random_below(random, LENGTH(f16))];
}

static uint64_t small_bits(int type, int value)
{
    float f32 = (float)value / 4;
    double f64 = f32;
    uint64_t bits = 0;

    if (oracle_is_fp8(type))
        return oracle_fp8_encode(type, f64);
    if (oracle_is_half(type))
        return oracle_half_encode(oracle_half_format(type), f64);
    if (type == TIARA_TYPE_F32)
        memcpy(&bits, &f32, sizeof(f32));
    else if (type == TIARA_TYPE_F64)
        memcpy(&bits, &f64, sizeof(f64));
    else
        bits = (uint64_t)(int64_t)value;
    return bits;
}

static void fill(unsigned char *p, int type, size_t n, struct tiara_test_random *random)
{
    size_t size = tiara_type_size(type);

    for (size_t i = 0; i < n; i++, p += size) {
        uint64_t bits = tiara_test_random_next(random);
        uint64_t way = tiara_test_random_below(random, 3);

        if (way == 0)
            bits = edge_bits(type, random);
        else if (way == 1)
            bits = small_bits(type, (int)tiara_test_random_below(random, 100) - 50);
        memcpy(p, &bits, size);
    }
}

/* ---- one case ---- */

struct test_case {
    int type, oper, nsrc;
    int finish_ranks;
    int in_place; /* the source that dst is; -1: none */
    size_t n;
    size_t skew[MAX_SRC + 1]; /* of each source, and of dst, from a multiple of 64 */
    unsigned nblocks, nthreads;
};

static struct {
    _Alignas(64) unsigned char memory[MAX_SRC + 1][MAX_N * MAX_SIZE + SPREAD + 2 * GUARD];
    unsigned char original[MAX_SRC][MAX_N * MAX_SIZE];
    unsigned char expected[MAX_N * MAX_SIZE];
} data;

static void expect_case(const struct test_case *t)
{
    size_t size = tiara_type_size(t->type);

    for (size_t i = 0; i < t->n; i++) {
        const unsigned char *element[MAX_SRC] = {0};
        unsigned char sum[16] = {0}, result[16] = {0};

        for (int k = 0; k < t->nsrc; k++)
            element[k] = data.original[k] + i * size;
        oracle(sum, t->type, t->oper, element, t->nsrc);
        memcpy(result, sum, size);
        if (t->finish_ranks)
            oracle_divide(result, t->type, sum, t->finish_ranks);
        memcpy(data.expected + i * size, result, size);
    }
}

static bool is_intact(const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (from[i] != 0xa5)
            return false;
    return true;
}

static const char *case_name(const struct test_case *t, size_t i)
{
    static char text[256];

    snprintf(text, sizeof(text),
        "type %d oper %d, %d sources, %zu elements, in place %d, AVG %d, %u x %u threads, element "
        "%zu: "
        "skews %zu %zu .. dst %zu",
        t->type, t->oper, t->nsrc, t->n, t->in_place, t->finish_ranks, t->nblocks, t->nthreads, i,
        t->skew[0], t->skew[1], t->skew[MAX_SRC]);
    return text;
}

/* On data.original, which holds the sources. */
static void run_case(const struct test_case *t)
{
    size_t bytes = t->n * tiara_type_size(t->type);
    struct tiara_kernel_reduce_args args = {.type = t->type,
        .oper = t->oper,
        .finish_ranks = t->finish_ranks,
        .nsrc = t->nsrc,
        .count = t->n};
    unsigned char *dst = data.memory[MAX_SRC] + GUARD + t->skew[MAX_SRC];

    for (int k = 0; k < t->nsrc; k++) {
        unsigned char *p = data.memory[k] + GUARD + t->skew[k];
        memset(p - GUARD, 0xa5, bytes + 2 * GUARD);
        memcpy(p, data.original[k], bytes);
        args.src[k] = p;
        if (t->in_place == k)
            dst = p;
    }
    if (t->in_place < 0)
        memset(dst - GUARD, 0xa5, bytes + 2 * GUARD);
    args.dst = dst;
    launch(&args, t->nblocks, t->nthreads);
    for (size_t i = 0; memcmp(dst, data.expected, bytes) != 0 && i < bytes; i++)
        ck_assert_msg(dst[i] == data.expected[i], "%s: byte %02x, not %02x",
            case_name(t, i / tiara_type_size(t->type)), dst[i], data.expected[i]);
    ck_assert_msg(is_intact(dst - GUARD, GUARD) && is_intact(dst + bytes, GUARD),
        "%s: wrote outside", case_name(t, 0));
    for (int k = 0; k < t->nsrc; k++)
        ck_assert_msg(t->in_place == k || memcmp(args.src[k], data.original[k], bytes) == 0,
            "%s: wrote into source %d", case_name(t, 0), k);
}

/* ---- the tests ---- */

static void test_sizes(struct test_case t, struct tiara_test_random *random)
{
    static const size_t sizes[] = {0, 1, 2, 7, 31, 64, 129, 257};

    for (size_t s = 0; s < LENGTH(sizes); s++) {
        t.n = sizes[s];
        for (int k = 0; k <= MAX_SRC; k++)
            t.skew[k] = s % 2 ? 0 : tiara_test_random_below(random, SPREAD);
        t.in_place = (int)tiara_test_random_below(random, (uint64_t)t.nsrc + 1) - 1;
        expect_case(&t);
        run_case(&t);
    }
}

START_TEST(test_every_type_and_operator_gives_the_hosts_bits)
{
    struct tiara_test_random random = {seed + (uint64_t)_i};
    struct test_case t = {.type = _i, .nblocks = 1, .nthreads = 1};

    for (int k = 0; k < MAX_SRC; k++)
        fill(data.original[k], t.type, 257, &random);
    for (t.oper = 0; t.oper < TIARA_NOPER; t.oper++)
        for (t.nsrc = 1; t.nsrc <= MAX_SRC && oracle_is_defined(t.type, t.oper); t.nsrc++)
            test_sizes(t, &random);
}
END_TEST

/* Each pointer at each place, the others at one that they share; and all of them together. */
START_TEST(test_any_alignment_of_any_pointer_gives_the_same)
{
    static const int opers[] = {TIARA_OPER_SUM, TIARA_OPER_MIN};
    struct tiara_test_random random = {seed + 100 + (uint64_t)_i};
    struct test_case t = {
        .type = _i, .nsrc = 3, .in_place = -1, .n = 101, .nblocks = 1, .nthreads = 1};

    for (int k = 0; k < t.nsrc; k++)
        fill(data.original[k], t.type, t.n, &random);
    for (size_t o = 0; o < LENGTH(opers); o++) {
        t.oper = opers[o];
        expect_case(&t);
        for (size_t shared = 0; shared < 16; shared += 3)
            for (int moved = -1; moved <= MAX_SRC; moved++)
                for (size_t skew = 0; skew < 16; skew++) {
                    for (int k = 0; k <= MAX_SRC; k++)
                        t.skew[k] = k == moved || moved < 0 ? skew : shared;
                    run_case(&t);
                }
    }
}
END_TEST

/* Sources end where their memory ends: AddressSanitizer and valgrind see a vector that reaches
 * beyond. */
START_TEST(test_nothing_behind_a_source_is_read)
{
    struct tiara_kernel_reduce_args args = {
        .type = TIARA_TYPE_U8, .oper = TIARA_OPER_BXOR, .nsrc = 2};
    unsigned char dst[128 + 16];

    for (args.count = 30; args.count < 100; args.count++) {
        unsigned char *a = malloc(args.count), *b = malloc(args.count);
        ck_assert(a && b);
        memset(a, 0x0f, args.count);
        memset(b, 0x3c, args.count);
        args.src[0] = a;
        args.src[1] = b;
        for (size_t skew = 0; skew < 16; skew++) {
            args.dst = dst + skew;
            launch(&args, 1, 1);
            for (size_t i = 0; i < args.count; i++)
                ck_assert_uint_eq(dst[skew + i], 0x33);
        }
        free(a);
        free(b);
    }
}
END_TEST

START_TEST(test_any_number_of_threads_gives_the_same)
{
    static const unsigned grids[][2] = {{1, 2}, {1, 7}, {3, 4}, {2, 33}, {1, TIARA_KERNEL_THREADS}};
    static const int types[] = {
        TIARA_TYPE_U8, TIARA_TYPE_BF16, TIARA_TYPE_I32, TIARA_TYPE_F64, TIARA_TYPE_E5M2};
    struct tiara_test_random random = {seed + 200 + (uint64_t)_i};
    struct test_case t = {.type = types[_i], .nsrc = 2, .n = 20011, .finish_ranks = 3};

    for (int k = 0; k < t.nsrc; k++)
        fill(data.original[k], t.type, t.n, &random);
    expect_case(&t);
    for (size_t g = 0; g < LENGTH(grids); g++)
        for (t.in_place = -1; t.in_place < t.nsrc; t.in_place++) {
            t.nblocks = grids[g][0];
            t.nthreads = grids[g][1];
            for (int k = 0; k <= MAX_SRC; k++)
                t.skew[k] = tiara_test_random_below(&random, SPREAD);
            run_case(&t);
        }
}
END_TEST

START_TEST(test_average_divides_as_the_host_does)
{
    static const int ranks[] = {1, 2, 3, 7, 16, 100};
    struct tiara_test_random random = {seed + 300 + (uint64_t)_i};
    struct test_case t = {.type = _i, .in_place = -1, .n = 301, .nblocks = 1, .nthreads = 3};

    for (int k = 0; k < MAX_SRC; k++)
        fill(data.original[k], t.type, t.n, &random);
    for (size_t r = 0; r < LENGTH(ranks); r++)
        /* Of one source also NaNs with a payload come here; what becomes of a small float's the
         * oracle does not know. */
        for (t.nsrc = oracle_is_half(t.type) ? 2 : 1; t.nsrc <= 3; t.nsrc++) {
            t.finish_ranks = ranks[r];
            for (int k = 0; k <= MAX_SRC; k++)
                t.skew[k] = tiara_test_random_below(&random, SPREAD);
            expect_case(&t);
            run_case(&t);
        }
}
END_TEST

/* Every value with every other: 8-bit floats. */
START_TEST(test_all_pairs_of_8_bit_floats)
{
    struct test_case t = {.type = TIARA_TYPE_E4M3 + _i,
        .nsrc = 2,
        .in_place = -1,
        .n = 65536,
        .nblocks = 1,
        .nthreads = 1};

    for (size_t i = 0; i < t.n; i++) {
        data.original[0][i] = (unsigned char)i;
        data.original[1][i] = (unsigned char)(i >> 8);
    }
    for (t.oper = 0; t.oper <= TIARA_OPER_MAX; t.oper++) {
        expect_case(&t);
        run_case(&t);
    }
}
END_TEST

/* Every 16-bit float with some: all that can be converted, and all that rounding can meet. */
START_TEST(test_all_values_of_16_bit_floats)
{
    struct tiara_test_random random = {seed + 400};
    struct test_case t = {.type = TIARA_TYPE_F16 + _i,
        .nsrc = 2,
        .in_place = -1,
        .n = 65536,
        .nblocks = 1,
        .nthreads = 1};

    fill(data.original[1], t.type, t.n, &random);
    for (size_t i = 0; i < t.n; i++) {
        uint16_t code = (uint16_t)i;
        memcpy(data.original[0] + 2 * i, &code, sizeof(code));
    }
    for (t.oper = 0; t.oper <= TIARA_OPER_MAX; t.oper++) {
        expect_case(&t);
        run_case(&t);
    }
}
END_TEST

/* What the definitions say, without any oracle. */
START_TEST(test_8_bit_floats_saturate_and_have_one_nan)
{
    static const struct {
        int type, oper;
        unsigned char a, b, result;
    } known[] = {
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x7e, 0x7e, 0x7e}, /* 448 + 448 */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x38, 0x38, 0x40}, /* 1 + 1 */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0xff, 0x38, 0x7f}, /* NaN + 1 */
        {TIARA_TYPE_E4M3, TIARA_OPER_PROD, 0xfe, 0x7e, 0xfe}, /* -448 * 448 */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0x7c, 0x3c, 0x7b}, /* infinity + 1 */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0x7c, 0xfc, 0x7f}, /* infinity - infinity */
        {TIARA_TYPE_E5M2, TIARA_OPER_MAX, 0x7c, 0x3c, 0x7c}, /* of infinity and 1 */
        {TIARA_TYPE_E5M2, TIARA_OPER_MIN, 0xfd, 0x3c, 0xfd}, /* a NaN on the left stays */
        {TIARA_TYPE_E5M2, TIARA_OPER_MIN, 0x3c, 0xfd, 0x3c}, /* and on the right is passed over */
        {TIARA_TYPE_E4M3, TIARA_OPER_MIN, 0x00, 0x80, 0x00}, /* 0 and -0 are equal */
    };

    for (size_t i = 0; i < LENGTH(known); i++) {
        struct test_case t = {.type = known[i].type,
            .oper = known[i].oper,
            .nsrc = 2,
            .in_place = -1,
            .n = 1,
            .nblocks = 1,
            .nthreads = 1};
        data.original[0][0] = known[i].a;
        data.original[1][0] = known[i].b;
        data.expected[0] = known[i].result;
        run_case(&t);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("reductions");

    seed = tiara_test_seed();
    tcase_add_loop_test(
        tcase, test_every_type_and_operator_gives_the_hosts_bits, 0, TIARA_NGPU_TYPE);
    tcase_add_loop_test(
        tcase, test_any_alignment_of_any_pointer_gives_the_same, 0, TIARA_NGPU_TYPE);
    tcase_add_test(tcase, test_nothing_behind_a_source_is_read);
    tcase_add_loop_test(tcase, test_any_number_of_threads_gives_the_same, 0, 5);
    tcase_add_loop_test(tcase, test_average_divides_as_the_host_does, 0, TIARA_NGPU_TYPE);
    tcase_add_loop_test(tcase, test_all_pairs_of_8_bit_floats, 0, 2);
    tcase_add_loop_test(tcase, test_all_values_of_16_bit_floats, 0, 2);
    tcase_add_test(tcase, test_8_bit_floats_saturate_and_have_one_nan);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_NOFORK);
}
