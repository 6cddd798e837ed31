/*
 * Conformance cases about reading a peer's memory: in place (EXPOSE) and by copy (PULL).
 */
#include "test/harness/exchange.h"
#include "test/harness/test.h"
#include "test/harness/xport_suite_priv.h"
#include "base/sync.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

static bool is_zero(const unsigned char *at, size_t len)
{
    return len == 0 || (at[0] == 0 && memcmp(at, at + 1, len - 1) == 0);
}

/* One object of @bytes: new segments are zero, then everybody's data is seen by everybody. */
static void segments_try(struct suite_rank *r, size_t bytes)
{
    unsigned char *x = suite_open(r, bytes);

    if (x == NULL)
        return;
    for (int peer = 0; peer < r->size; peer++) {
        const unsigned char *segment = tiara_xport_base(x, peer);

        EXPECT(&r->expect, segment != NULL && (uintptr_t)segment % 4096 == 0);
        EXPECT(&r->expect, is_zero(segment, bytes));
    }
    suite_sync(r);
    suite_fill(tiara_xport_base(x, r->rank), bytes + (unsigned)r->rank, bytes);
    suite_sync(r);
    for (int peer = 0; peer < r->size; peer++)
        EXPECT(&r->expect, suite_holds(tiara_xport_base(x, peer), bytes + (unsigned)peer, bytes));
    suite_close(r, x);
}

void suite_expose_segments(struct suite_rank *r)
{
    static const size_t sizes[] = {1, 4088, 4089, 4096, 4097, 300000, MIB + 3};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        segments_try(r, sizes[i]);
}

void suite_expose_nothing(struct suite_rank *r)
{
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    for (int peer = 0; peer < r->size; peer++)
        EXPECT(&r->expect, tiara_xport_base(x, peer) == NULL);
    suite_close(r, x);
}

#define WORDS 40
#define ROUNDS 1000

/* What a rank writes in expose_flag_orders_data; two sets of words in turn, as all must have read
 * the last but one. */
struct flagged {
    tiara_u64 flag;
    uint64_t words[2][WORDS];
};

/* Are the words of @round those of @peer? */
static bool words_hold(const struct flagged *f, int peer, uint64_t round)
{
    for (size_t i = 0; i < WORDS; i++) {
        if (f->words[round % 2][i] != tiara_test_bits(peer, round * WORDS + i))
            return false;
    }
    return true;
}

/* One round: write, raise the flag, and read all peers. */
static bool flags_round(struct suite_rank *r, void *x, uint64_t round)
{
    struct flagged *own = tiara_xport_base(x, r->rank);

    for (size_t i = 0; i < WORDS; i++)
        own->words[round % 2][i] = tiara_test_bits(r->rank, round * WORDS + i);
    /* [suite.flag] release: the words above */
    tiara_store_release(&own->flag, round);
    for (int peer = 0; peer < r->size; peer++) {
        const struct flagged *f = tiara_xport_base(x, peer);

        if (!suite_word_wait(r, &f->flag, round) || !EXPECT(&r->expect, words_hold(f, peer, round)))
            return false;
    }
    return true;
}

void suite_expose_flags(struct suite_rank *r)
{
    void *x = suite_open(r, sizeof(struct flagged));

    if (x == NULL)
        return;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (!flags_round(r, x, round))
            break;
    }
    suite_close(r, x);
}

void suite_expose_two(struct suite_rank *r)
{
    void *a = suite_open(r, 10000), *b = suite_open(r, 70000);

    if (a == NULL || b == NULL)
        return;
    suite_fill(tiara_xport_base(a, r->rank), 100 + (unsigned)r->rank, 10000);
    suite_fill(tiara_xport_base(b, r->rank), 200 + (unsigned)r->rank, 70000);
    suite_sync(r);
    for (int peer = 0; peer < r->size; peer++)
        EXPECT(&r->expect, suite_holds(tiara_xport_base(a, peer), 100 + (unsigned)peer, 10000));
    /*
     * Ranks close at different times: what a peer has closed stays readable until one's own close.
     */
    suite_close(r, a);
    for (int peer = 0; peer < r->size; peer++)
        EXPECT(&r->expect, suite_holds(tiara_xport_base(b, peer), 200 + (unsigned)peer, 70000));
    suite_close(r, b);
}

#define PULL_BYTES (MIB + 4096)

/* Pulls @len bytes at @offset of every rank's data, to an address of another alignment. */
static void get_try(struct suite_rank *r, void *x, const uint64_t *addrs, size_t offset, size_t len)
{
    struct tiara_test_guarded to;

    for (int peer = 0; peer < r->size; peer++) {
        bool holds = true;

        tiara_test_guarded_init(&to, len, offset % 13);
        EXPECT(&r->expect, r->row->get(x, peer, addrs[peer] + offset, to.data, len) == TIARA_OK);
        for (size_t i = 0; i < len; i++)
            holds = holds && to.data[i] == suite_datum((unsigned)peer, offset + i);
        EXPECT(&r->expect, holds);
        EXPECT(&r->expect, tiara_test_guarded_is_intact(&to));
        tiara_test_guarded_fini(&to);
    }
}

void suite_get_sizes(struct suite_rank *r)
{
    static const size_t sizes[] = {0, 1, 7, 4095, 4096, 4097, MIB + 3};
    static const size_t offsets[] = {0, 1, 63, 1000};
    unsigned char *from = malloc(PULL_BYTES);
    uint64_t addr = (uint64_t)(uintptr_t)from, addrs[256];
    void *x = suite_open(r, 0);

    if (x == NULL || !EXPECT(&r->expect, from != NULL))
        return;
    suite_fill(from, (unsigned)r->rank, PULL_BYTES);
    EXPECT(&r->expect, r->group->allgather(r->group->arg, &addr, addrs, sizeof addr) == TIARA_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof offsets / sizeof offsets[0]; j++)
            get_try(r, x, addrs, offsets[j], sizes[i]);
    }
    suite_sync(r);
    free(from);
    suite_close(r, x);
}

/* Two pages, of which only the first is mapped; at the same time in all ranks. */
static unsigned char *half_mapped(void)
{
    unsigned char *at =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    munmap(at + 4096, 4096);
    return at;
}

void suite_get_bad_address(struct suite_rank *r)
{
    unsigned char to[8192], *at;
    uint64_t addr, addrs[256];
    int peer = (r->rank + 1) % r->size;
    void *x;

    if (r->suite->ranks == TIARA_SUITE_THREADS)
        return;
    x = suite_open(r, 0);
    at = half_mapped();
    if (x == NULL || !EXPECT(&r->expect, at != NULL))
        return;
    suite_fill(at, (unsigned)r->rank, 4096);
    addr = (uint64_t)(uintptr_t)at;
    EXPECT(&r->expect, r->group->allgather(r->group->arg, &addr, addrs, sizeof addr) == TIARA_OK);
    EXPECT(&r->expect, r->row->get(x, peer, 8, to, sizeof to) == TIARA_ERR_SYS);
    EXPECT(&r->expect, r->row->get(x, peer, addrs[peer], to, sizeof to) == TIARA_ERR_SYS);
    EXPECT(&r->expect, r->row->get(x, peer, addrs[peer], to, 4096) == TIARA_OK);
    EXPECT(&r->expect, suite_holds(to, (unsigned)peer, 4096));
    suite_sync(r);
    munmap(at, 4096);
    suite_close(r, x);
}
