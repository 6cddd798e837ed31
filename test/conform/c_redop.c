/*
 * Every fold of every instruction set that this CPU has, against the scalar oracle, byte by byte.
 *
 * The oracle knows nothing of an element's position, of alignment, of the row and of which source
 * the result overwrites; so rows that equal it do not depend on these either.
 */
#include "test/harness/test.h"
#include "test/conform/redop_oracle.h"
#include "redop/redop.h"
#include <stdio.h>
#include <string.h>

static uint64_t seed; /* of all tests; printed by main */

enum {
    MAX_N = 4099,
    MAX_SRC = ORACLE_MAX_SRC,
    MAX_SIZE = 16,
    SPREAD = 64
};

static const size_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 1000, MAX_N};
static const int counts[] = {1, 2, 3, 4, 5, 8, MAX_SRC};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Test data: a third special values, a third small numbers, a third random bits. */

static const float specials[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, -NAN, FLT_MIN,
    -FLT_MIN, 0x1p-149f, -0x1p-149f, FLT_MAX, -FLT_MAX, 0x1p-24f, 0x1p-14f, 65504.0f, 65520.0f,
    0x1p-133f};

static double double_pick(struct tiara_test_random *random)
{
    static const double doubles[] = {5e-324, -5e-324, DBL_MAX, -DBL_MAX, DBL_MIN, 1e300};

    switch (tiara_test_random_below(random, 6)) {
    case 0:
        return specials[tiara_test_random_below(random, LENGTH(specials))];
    case 1:
        return doubles[tiara_test_random_below(random, LENGTH(doubles))];
    case 2:
        return (double)tiara_test_random_below(random, 100) - 50;
    default:
        return ldexp((double)tiara_test_random_next(random),
            (int)tiara_test_random_below(random, 160) - 140);
    }
}

/* One real number (a part of a complex one) of @type. */
static void real_fill(unsigned char *p, enum tiara_type type, struct tiara_test_random *random)
{
    double x = double_pick(random);
    float f32 = (float)x;
    long double f80 = x;
    uint64_t bits = tiara_test_random_next(random);
    bool is_random = tiara_test_random_below(random, 3) == 0;
    uint16_t half;

    if (type == TIARA_TYPE_F80) {
        memset(p, 0, sizeof(f80));
        memcpy(p, &f80, oracle_value_size(type));
    } else if (type == TIARA_TYPE_F64 || type == TIARA_TYPE_C64) {
        memcpy(p, is_random ? (void *)&bits : (void *)&x, sizeof(x));
    } else if (oracle_is_half(type)) {
        half =
            is_random ? (uint16_t)bits : (uint16_t)oracle_half_encode(oracle_half_format(type), x);
        memcpy(p, &half, sizeof(half));
    } else if (oracle_is_fp8(type)) {
        *p = is_random ? (unsigned char)bits : (unsigned char)oracle_fp8_encode(type, x);
    } else {
        memcpy(p, is_random ? (void *)&bits : (void *)&f32, sizeof(f32));
    }
}

static void int_fill(unsigned char *p, enum tiara_type type, struct tiara_test_random *random)
{
    size_t size = tiara_type_size(type);
    uint64_t top = UINT64_C(1) << (8 * size - 1);
    const uint64_t edges[] = {0, 1, UINT64_MAX, top, top - 1, top + 1, 0, 2};
    uint64_t bits = tiara_test_random_next(random);

    if (type == TIARA_TYPE_BOOL)
        bits &= 1;
    else if (tiara_test_random_below(random, 3) == 0)
        bits = edges[tiara_test_random_below(random, LENGTH(edges))];
    memcpy(p, &bits, size);
}

static void fill(unsigned char *p, enum tiara_type type, size_t n, struct tiara_test_random *random)
{
    size_t size = tiara_type_size(type);

    for (size_t i = 0; i < n; i++, p += size) {
        if (oracle_is_int(type) || type == TIARA_TYPE_BOOL) {
            int_fill(p, type, random);
            continue;
        }
        real_fill(p, type, random);
        if (oracle_is_complex(type))
            real_fill(p + size / 2, type, random);
    }
}

/* The sources of one type, each at its own misalignment, and the result expected of them. */
static struct {
    unsigned char memory[MAX_SRC][MAX_N * MAX_SIZE + SPREAD];
    const unsigned char *src[MAX_SRC];
    unsigned char expected[MAX_N * MAX_SIZE];
} data;

static void data_fill(enum tiara_type type, size_t n, struct tiara_test_random *random)
{
    for (int k = 0; k < MAX_SRC; k++) {
        unsigned char *p = data.memory[k] + tiara_test_random_below(random, SPREAD);
        fill(p, type, n, random);
        data.src[k] = p;
    }
}

static void data_expect(enum tiara_type type, enum tiara_operator oper, int nsrc, size_t n)
{
    size_t size = tiara_type_size(type);
    const unsigned char *element[MAX_SRC];

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < nsrc; k++)
            element[k] = data.src[k] + i * size;
        oracle(data.expected + i * size, type, oper, element, nsrc);
    }
}

/*
 * The loops over elements below do not assert: Check notes each assertion in a file, and there are
 * millions.
 */

/* Folds @n elements into a guarded buffer; @alias: the source that is also dst, or -1. */
static void fold_check(const struct tiara_redop *op, int nsrc, size_t n, size_t misalign, int alias)
{
    struct tiara_test_guarded dst;
    const void *src[MAX_SRC];
    size_t bytes = n * op->elem_size;

    tiara_test_guarded_init(&dst, bytes, misalign);
    for (int k = 0; k < nsrc; k++)
        src[k] = k == alias ? dst.data : data.src[k];
    if (alias >= 0)
        memcpy(dst.data, data.src[alias], bytes);
    ck_assert_int_eq(op->fold(op, dst.data, src, nsrc, n), TIARA_OK);
    ck_assert_msg(tiara_test_guarded_is_intact(&dst),
        "%s nsrc %d n %zu misalign %zu alias %d: wrote outside", op->name, nsrc, n, misalign,
        alias);
    for (size_t at = 0; at < bytes; at++)
        if (dst.data[at] != data.expected[at])
            ck_abort_msg("%s nsrc %d n %zu misalign %zu alias %d: element %zu is wrong", op->name,
                nsrc, n, misalign, alias, at / op->elem_size);
    tiara_test_guarded_fini(&dst);
}

/* All rows that exist, all sizes, all aliases. */
static void pair_check(enum tiara_type type, enum tiara_operator oper, int nsrc)
{
    const int aliases[] = {-1, 0, nsrc / 2, nsrc - 1};

    for (size_t r = 0; tiara_redop_isas[r]; r++) {
        const struct tiara_redop_isa *isa = tiara_redop_isas[r];
        const struct tiara_redop *op = isa->supported() ? tiara_redop_in(isa, type, oper) : NULL;
        for (size_t s = 0; op && s < LENGTH(sizes); s++)
            for (size_t a = 0; a < LENGTH(aliases); a++)
                fold_check(
                    op, nsrc, sizes[s], (7 * s + 16 * a + (size_t)nsrc) % SPREAD, aliases[a]);
    }
}

START_TEST(test_fold_every_pair_equals_oracle)
{
    struct tiara_test_random random = {seed};
    enum tiara_type type = (enum tiara_type)_i;

    data_fill(type, MAX_N, &random);
    for (int oper = 0; oper < TIARA_NOPER; oper++)
        for (size_t c = 0; oracle_is_defined(type, (enum tiara_operator)oper) && c < LENGTH(counts);
             c++) {
            data_expect(type, (enum tiara_operator)oper, counts[c], MAX_N);
            pair_check(type, (enum tiara_operator)oper, counts[c]);
        }
}
END_TEST

START_TEST(test_fold_any_misalignment_equals_oracle)
{
    struct tiara_test_random random = {seed};
    enum {
        n = 131
    };

    for (size_t misalign = 0; misalign < SPREAD; misalign++) {
        data_fill(TIARA_TYPE_F32, n, &random);
        data_expect(TIARA_TYPE_F32, TIARA_OPER_SUM, 3, n);
        for (size_t r = 0; tiara_redop_isas[r]; r++) {
            const char *isa = tiara_redop_isas[r]->name;
            const struct tiara_redop *op = tiara_redop_find(TIARA_TYPE_F32, TIARA_OPER_SUM, isa);
            for (size_t n_folded = 0; n_folded <= n; n_folded++)
                fold_check(op, 3, n_folded, misalign, (int)(n_folded % 4) - 1);
        }
    }
}
END_TEST

/* Cuts an array at random into pieces and folds each by itself, and by any row. */
static void pieces_check(
    enum tiara_type type, enum tiara_operator oper, struct tiara_test_random *random)
{
    unsigned char out[1000 * MAX_SIZE];
    const size_t size = tiara_type_size(type), n = 1000;
    const void *src[MAX_SRC];
    int nsrc = 2 + (int)tiara_test_random_below(random, 4);

    data_expect(type, oper, nsrc, n);
    for (size_t first = 0, piece; first < n; first += piece) {
        size_t row = tiara_test_random_below(random, 3);
        const char *isa = row == 0 ? "avx512" : row == 1 ? "avx2" : "portable";
        const struct tiara_redop *op = tiara_redop_find(type, oper, isa);
        piece = 1 + tiara_test_random_below(random, 150);
        piece = piece < n - first ? piece : n - first;
        for (int k = 0; k < nsrc; k++)
            src[k] = data.src[k] + first * size;
        ck_assert_int_eq(op->fold(op, out + first * size, src, nsrc, piece), TIARA_OK);
    }
    ck_assert_msg(memcmp(out, data.expected, n * size) == 0, "%s %s: pieces differ from the whole",
        tiara_type_name(type), tiara_operator_name(oper));
}

START_TEST(test_fold_pieces_by_mixed_rows_equal_the_whole)
{
    struct tiara_test_random random = {seed};

    for (int type = 0; type < TIARA_NTYPE; type++) {
        data_fill((enum tiara_type)type, 1000, &random);
        for (int oper = 0; oper < TIARA_NOPER; oper++)
            if (oracle_is_defined((enum tiara_type)type, (enum tiara_operator)oper))
                pieces_check((enum tiara_type)type, (enum tiara_operator)oper, &random);
    }
}
END_TEST

/* All 65536 numbers, each combined with @other. */
static void halves_check(enum tiara_type type, enum tiara_operator oper, uint16_t other)
{
    static uint16_t all[65536], others[65536], out[65536];
    const void *src[] = {all, others};

    for (size_t i = 0; i < LENGTH(all); i++) {
        all[i] = (uint16_t)i;
        others[i] = other;
    }
    for (size_t r = 0; tiara_redop_isas[r]; r++) {
        const struct tiara_redop *op = tiara_redop_find(type, oper, tiara_redop_isas[r]->name);
        ck_assert_int_eq(op->fold(op, out, src, 2, LENGTH(all)), TIARA_OK);
        for (size_t i = 0; i < LENGTH(all); i++) {
            const unsigned code[] = {all[i], other};
            unsigned expected = oracle_half_fold(type, oper, code, 2);
            if (out[i] != expected)
                ck_abort_msg("%s of %04x and %04x: %04x, not %04x", op->name, code[0], code[1],
                    out[i], expected);
        }
    }
}

START_TEST(test_fold_all_halves_equal_oracle)
{
    /* zero, one, near one, infinity, smallest, halves of the last place, large, signalling NaN */
    static const uint16_t others[] = {0x0000, 0x8000, 0x3c00, 0x3f80, 0x3bff, 0x3f7f, 0x7c00,
        0x7f80, 0x0001, 0x8001, 0x1000, 0x2fff, 0x7bff, 0x7f7f, 0x1234, 0x0400, 0x0080, 0x7c01,
        0x7f81};
    enum tiara_type type = _i == 0 ? TIARA_TYPE_F16 : TIARA_TYPE_BF16;

    for (size_t i = 0; i < LENGTH(others); i++)
        for (int oper = TIARA_OPER_SUM; oper <= TIARA_OPER_MAX; oper++)
            halves_check(type, (enum tiara_operator)oper, others[i]);
}
END_TEST

/* All pairs of 8-bit floats, and of the NaN and infinities among them. */
static void fp8_check(enum tiara_type type, enum tiara_operator oper)
{
    static uint8_t a[65536], b[65536], out[65536];
    const struct tiara_redop *op = tiara_redop_find(type, oper, "portable");
    const void *src[] = {a, b};

    for (size_t i = 0; i < LENGTH(a); i++) {
        a[i] = (uint8_t)i;
        b[i] = (uint8_t)(i >> 8);
    }
    ck_assert_int_eq(op->fold(op, out, src, 2, LENGTH(a)), TIARA_OK);
    for (size_t i = 0; i < LENGTH(a); i++) {
        const unsigned code[] = {a[i], b[i]};
        unsigned expected = oracle_fp8_fold(type, oper, code, 2);

        if (out[i] != expected)
            ck_abort_msg("%s of %02x and %02x: %02x, not %02x", op->name, code[0], code[1], out[i],
                expected);
    }
}

/* Every number divided by counts of ranks: results between all neighbours, halfway too, and
 * denormals. */
static void fp8_divide_check(enum tiara_type type)
{
    const struct tiara_redop *op = tiara_redop_find_avg(type, NULL);

    for (int nranks = 1; nranks <= 600; nranks++) {
        uint8_t all[256], expected;

        for (size_t i = 0; i < LENGTH(all); i++)
            all[i] = (uint8_t)i;
        op->finish(op, all, LENGTH(all), nranks);
        for (size_t i = 0; i < LENGTH(all); i++) {
            const uint8_t code = (uint8_t)i;

            oracle_divide(&expected, type, &code, nranks);
            if (all[i] != expected)
                ck_abort_msg(
                    "%s: %02x / %d is %02x, not %02x", op->name, code, nranks, all[i], expected);
        }
    }
}

START_TEST(test_fold_all_8_bit_floats_equal_oracle)
{
    enum tiara_type type = _i == 0 ? TIARA_TYPE_E4M3 : TIARA_TYPE_E5M2;

    for (int oper = TIARA_OPER_SUM; oper <= TIARA_OPER_MAX; oper++)
        fp8_check(type, (enum tiara_operator)oper);
    fp8_divide_check(type);
}
END_TEST

/* Stated here without the oracle: what the formats are, and what happens at their ends. */
START_TEST(test_fold_8_bit_floats_are_those_of_the_ocp)
{
    static const struct {
        enum tiara_type type;
        enum tiara_operator oper;
        uint8_t a, b, result;
    } rows[] = {
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x38, 0x38, 0x40}, /* 1 + 1 = 2 */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x7e, 0x7e, 0x7e}, /* 448 + 448 saturates */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0xfe, 0xfe, 0xfe},
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x7e, 0x58,
            0x7e}, /* 448 + 16: halfway to what is not there */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x01, 0x01, 0x02}, /* 2^-9 twice: denormals stay */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0x48, 0x31, 0x49}, /* 4 + 9/16: 4.5 */
        {TIARA_TYPE_E4M3, TIARA_OPER_PROD, 0x08, 0x30, 0x04}, /* 2^-6 / 2 */
        {TIARA_TYPE_E4M3, TIARA_OPER_PROD, 0x01, 0x30, 0x00}, /* 2^-9 / 2: a tie, to even */
        {TIARA_TYPE_E4M3, TIARA_OPER_PROD, 0x03, 0x30, 0x02}, /* 1.5 units: a tie, to even */
        {TIARA_TYPE_E4M3, TIARA_OPER_SUM, 0xff, 0x38, 0x7f}, /* NaN */
        {TIARA_TYPE_E4M3, TIARA_OPER_MAX, 0xff, 0x38, 0xff}, /* 1 is not above NaN */
        {TIARA_TYPE_E4M3, TIARA_OPER_MIN, 0x80, 0x00, 0x80}, /* 0 is not below -0 */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0x3c, 0x3c, 0x40}, /* 1 + 1 = 2 */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0x7b, 0x7b, 0x7b}, /* 57344 twice saturates */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0xfc, 0x3c, 0xfb}, /* -infinity saturates */
        {TIARA_TYPE_E5M2, TIARA_OPER_SUM, 0x7c, 0xfc, 0x7f}, /* infinities cancel: NaN */
        {TIARA_TYPE_E5M2, TIARA_OPER_MAX, 0x7b, 0x7c, 0x7c}, /* and are copied by MAX */
        {TIARA_TYPE_E5M2, TIARA_OPER_MIN, 0xfd, 0xfc, 0xfd},
        {TIARA_TYPE_E5M2, TIARA_OPER_PROD, 0x01, 0x38, 0x00}, /* 2^-16 / 2: a tie, to even */
        {TIARA_TYPE_E5M2, TIARA_OPER_PROD, 0x03, 0x38, 0x02},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct tiara_redop *op = tiara_redop_find(rows[i].type, rows[i].oper, NULL);
        const void *src[] = {&rows[i].a, &rows[i].b};
        uint8_t out;

        ck_assert_int_eq(op->fold(op, &out, src, 2, 1), TIARA_OK);
        ck_assert_msg(out == rows[i].result, "%s of %02x and %02x: %02x, not %02x", op->name,
            rows[i].a, rows[i].b, out, rows[i].result);
    }
}
END_TEST

START_TEST(test_find_undefined_pair_is_null)
{
    for (int t = 0; t < TIARA_NTYPE; t++)
        for (int o = 0; o < TIARA_NOPER; o++) {
            enum tiara_type type = (enum tiara_type)t;
            enum tiara_operator oper = (enum tiara_operator)o;
            const struct tiara_redop *op = tiara_redop_find(type, oper, NULL);
            ck_assert_int_eq(op != NULL, oracle_is_defined(type, oper));
            ck_assert_int_eq(tiara_redop_find(type, oper, "portable") != NULL, op != NULL);
            for (size_t r = 0; tiara_redop_isas[r]; r++)
                ck_assert(op || !tiara_redop_in(tiara_redop_isas[r], type, oper));
        }
}
END_TEST

START_TEST(test_find_row_says_what_it_is)
{
    char name[64];

    for (int t = 0; t < TIARA_NTYPE; t++)
        for (int o = 0; o < TIARA_NOPER; o++) {
            enum tiara_type type = (enum tiara_type)t;
            enum tiara_operator oper = (enum tiara_operator)o;
            const struct tiara_redop *op = tiara_redop_find(type, oper, "portable");
            if (!op)
                continue;
            snprintf(name, sizeof(name), "%s %s portable", tiara_type_name(type),
                tiara_operator_name(oper));
            ck_assert_str_eq(op->name, name);
            ck_assert_uint_eq(op->elem_size, tiara_type_size(type));
            ck_assert(op->commutative);
            ck_assert_ptr_null(op->finish);
        }
    ck_assert_str_eq(
        tiara_redop_find(TIARA_TYPE_F32, TIARA_OPER_SUM, "portable")->name, "f32 sum portable");
    ck_assert_ptr_eq(tiara_redop_find(TIARA_TYPE_F32, TIARA_OPER_SUM, "auto"),
        tiara_redop_find(TIARA_TYPE_F32, TIARA_OPER_SUM, NULL));
    ck_assert_str_eq(tiara_redop_find_avg(TIARA_TYPE_C64, "portable")->name, "c64 avg portable");
}
END_TEST

/* The average of src[0..3) in row @isa, whose sum is data.expected. */
static void avg_check(
    enum tiara_type type, const char *isa, size_t n, const unsigned char *averages)
{
    const struct tiara_redop *op = tiara_redop_find_avg(type, isa);
    const void *src[] = {data.src[0], data.src[1], data.src[2]};
    struct tiara_test_guarded out;

    tiara_test_guarded_init(&out, n * op->elem_size, 1);
    ck_assert_int_eq(op->fold(op, out.data, src, 3, n), TIARA_OK);
    ck_assert(memcmp(out.data, data.expected, n * op->elem_size) == 0);
    op->finish(op, out.data, n, 3);
    ck_assert(tiara_test_guarded_is_intact(&out));
    ck_assert_msg(memcmp(out.data, averages, n * op->elem_size) == 0, "%s is wrong", op->name);
    tiara_test_guarded_fini(&out);
}

START_TEST(test_avg_equals_oracle)
{
    struct tiara_test_random random = {seed};
    static unsigned char averages[200 * MAX_SIZE];
    enum tiara_type type = (enum tiara_type)_i;
    enum {
        n = 199
    };

    if (type == TIARA_TYPE_BOOL) {
        ck_assert_ptr_null(tiara_redop_find_avg(type, NULL));
        return;
    }
    data_fill(type, n, &random);
    data_expect(type, TIARA_OPER_SUM, 3, n);
    for (size_t i = 0; i < n * tiara_type_size(type); i += tiara_type_size(type))
        oracle_divide(averages + i, type, data.expected + i, 3);
    for (size_t r = 0; tiara_redop_isas[r]; r++)
        avg_check(type, tiara_redop_isas[r]->name, n, averages);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redop");
    TCase *tcase = tcase_create("fold");

    seed = tiara_test_seed();
    tcase_add_loop_test(tcase, test_fold_every_pair_equals_oracle, 0, TIARA_NTYPE);
    tcase_add_test(tcase, test_fold_any_misalignment_equals_oracle);
    tcase_add_test(tcase, test_fold_pieces_by_mixed_rows_equal_the_whole);
    tcase_add_loop_test(tcase, test_fold_all_halves_equal_oracle, 0, 2);
    tcase_add_loop_test(tcase, test_fold_all_8_bit_floats_equal_oracle, 0, 2);
    tcase_add_test(tcase, test_fold_8_bit_floats_are_those_of_the_ocp);
    tcase_add_test(tcase, test_find_undefined_pair_is_null);
    tcase_add_test(tcase, test_find_row_says_what_it_is);
    tcase_add_loop_test(tcase, test_avg_equals_oracle, 0, TIARA_NTYPE);
    suite_add_tcase(suite, tcase);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
