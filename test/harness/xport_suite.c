/*
 * The list of cases, the cases about open, and what all cases use. See xport_suite.h.
 */
#include "test/harness/exchange.h"
#include "test/harness/test.h"
#include "test/harness/xport_suite_priv.h"
#include "base/alloc.h"
#include "base/sync.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned flags; /* what the row must promise */
    suite_case_fn run;
} cases[] = {
    {"open_repeats_and_holds_nothing", 0, suite_open_repeats},
    {"open_allocation_fails_on_all", 0, suite_open_allocation_fails},
    {"open_exchange_fails_and_holds_nothing", 0, suite_open_exchange_fails},
    {"expose_segments_are_zero_and_shared", TIARA_XPORT_EXPOSE, suite_expose_segments},
    {"expose_nothing_has_no_base", TIARA_XPORT_EXPOSE, suite_expose_nothing},
    {"expose_flag_orders_data", TIARA_XPORT_EXPOSE, suite_expose_flags},
    {"expose_two_objects_are_independent", TIARA_XPORT_EXPOSE, suite_expose_two},
    {"pull_any_size_and_alignment", TIARA_XPORT_GET, suite_get_sizes},
    {"pull_bad_address_is_error", TIARA_XPORT_GET, suite_get_bad_address},
    {"message_receive_first", TIARA_XPORT_MESSAGE, suite_message_recv_first},
    {"message_send_first", TIARA_XPORT_MESSAGE, suite_message_send_first},
    {"message_tags_match_out_of_order", TIARA_XPORT_MESSAGE, suite_message_tags},
    {"message_equal_tags_keep_order", TIARA_XPORT_MESSAGE, suite_message_order},
    {"message_length_mismatch_is_error", TIARA_XPORT_MESSAGE, suite_message_mismatch},
    {"message_test_drives_all", TIARA_XPORT_MESSAGE, suite_message_progress},
    {"message_cancelled_receive_writes_nothing", TIARA_XPORT_MESSAGE, suite_message_cancel},
    {"message_probe_sees_and_leaves", TIARA_XPORT_MESSAGE, suite_message_probe},
    {"message_control_is_seen_first", TIARA_XPORT_MESSAGE, suite_message_control},
    {"message_many_ways_at_once", TIARA_XPORT_MESSAGE, suite_message_flood},
    {"message_objects_end_one_by_one", TIARA_XPORT_MESSAGE, suite_message_alone},
};

int tiara_xport_suite_count(void)
{
    return (int)(sizeof cases / sizeof cases[0]);
}

const char *tiara_xport_suite_name(int i)
{
    return cases[i].name;
}

int tiara_xport_suite_run(
    const struct tiara_xport_suite *suite, int i, const struct tiara_xport_group *group)
{
    struct suite_rank r = {.suite = suite,
        .row = suite->row,
        .group = group,
        .rank = group->rank,
        .size = group->size,
        .expect = {.rank = group->rank}};

    if ((suite->row->flags & cases[i].flags) == cases[i].flags) {
        struct suite_holdings before = suite_holdings(&r), after;

        cases[i].run(&r);
        after = suite_holdings(&r);
        EXPECT(&r.expect, suite_holdings_equal(&before, &after));
    }
    if (r.expect.failures > 0)
        fprintf(stderr, "%s, rank %d of %d: %s: %d failures\n", suite->row->name, r.rank, r.size,
            cases[i].name, r.expect.failures);
    return r.expect.failures;
}

/* ---- what cases use ---- */

/* The group's exchange, for a case's own purposes. */
static void gather(struct suite_rank *r, const void *in, void *out, size_t bytes)
{
    EXPECT(&r->expect, r->group->allgather(r->group->arg, in, out, bytes) == TIARA_OK);
}

void suite_sync(struct suite_rank *r)
{
    unsigned char in = 0, out[256];

    gather(r, &in, out, 1);
}

void *suite_open(struct suite_rank *r, size_t expose_bytes)
{
    void *x = calloc(1, r->row->size);

    if (EXPECT(&r->expect, x != NULL && r->row->open(x, r->group, expose_bytes) == TIARA_OK))
        return x;
    free(x);
    return NULL;
}

void suite_close(struct suite_rank *r, void *x)
{
    r->row->close(x);
    free(x);
}

unsigned char suite_datum(uint64_t key, size_t i)
{
    return (unsigned char)(tiara_test_bits((int)key, i) >> 32);
}

void suite_fill(unsigned char *to, uint64_t key, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = suite_datum(key, i);
}

bool suite_holds(const unsigned char *at, uint64_t key, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] != suite_datum(key, i))
            return false;
    }
    return true;
}

bool suite_word_wait(struct suite_rank *r, const void *word, uint64_t value)
{
    tiara_u64 *at = (tiara_u64 *)(uintptr_t)word;
    double begin = tiara_test_now();

    /* [suite.flag] acquire: what its writer wrote before may be read after */
    while (tiara_load_acquire(at) < value) {
        sched_yield();
        if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S)
            return EXPECT(&r->expect, !"a peer's flag in time");
    }
    return true;
}

enum tiara_err suite_req_wait(struct suite_rank *r, void *x, struct tiara_xport_req *req)
{
    double begin = tiara_test_now();
    enum tiara_err err = r->row->test(x, req);

    while (err == TIARA_OK && !req->done) {
        sched_yield();
        if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S)
            return TIARA_ERR_TIMEOUT;
        err = r->row->test(x, req);
    }
    return err;
}

/* Mappings whose file's name begins with @name. */
static int mappings_count(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        const char *path = strchr(line, '/');

        n += path != NULL && strncmp(path, name, strlen(name)) == 0;
    }
    if (maps != NULL)
        fclose(maps);
    return n;
}

struct suite_holdings suite_holdings(struct suite_rank *r)
{
    struct suite_holdings h = {0, 0, 0, 0};

    suite_sync(r);
    if (r->rank == 0 || r->suite->ranks != TIARA_SUITE_THREADS) {
        h.pieces = tiara_alloc_live();
        h.segments = mappings_count("/memfd:tiara");
        if (r->suite->ranks != TIARA_SUITE_MPI) {
            h.descriptors = tiara_test_count_entries("/proc/self/fd", "");
            h.named = mappings_count("/dev/shm");
        }
    }
    suite_sync(r);
    return h;
}

bool suite_holdings_equal(const struct suite_holdings *a, const struct suite_holdings *b)
{
    return a->pieces == b->pieces && a->descriptors == b->descriptors &&
           a->segments == b->segments && a->named == b->named;
}

/* ---- cases about open ---- */

void suite_open_repeats(struct suite_rank *r)
{
    struct suite_holdings before = suite_holdings(r), open, after;

    for (int i = 0; i < 10; i++) {
        void *x = suite_open(r, 8192);

        if (x == NULL)
            return;
        open = suite_holdings(r);
        EXPECT(&r->expect, open.descriptors == before.descriptors + r->suite->descriptors);
        EXPECT(&r->expect, open.named == before.named);
        suite_close(r, x);
        after = suite_holdings(r);
        EXPECT(&r->expect, suite_holdings_equal(&before, &after));
    }
}

/* Opens, with what was prepared to fail; true when that succeeded on all ranks. An error must be
 * the same on all. */
static bool open_same(struct suite_rank *r, const struct tiara_xport_group *group,
    enum tiara_err expected, void (*undo)(struct suite_rank *r))
{
    void *x = calloc(1, r->row->size);
    enum tiara_err err = r->row->open(x, group, 5000), errs[256];

    suite_sync(r);
    if (undo != NULL)
        undo(r);
    gather(r, &err, errs, sizeof err);
    for (int i = 0; i < r->size; i++)
        EXPECT(&r->expect, errs[i] == err);
    EXPECT(&r->expect, err == TIARA_OK || err == expected);
    suite_close(r, x); /* also after a failed open */
    return err == TIARA_OK;
}

static void allocation_succeeds(struct suite_rank *r)
{
    if (r->rank == r->size - 1)
        tiara_alloc_fail_after(0);
}

void suite_open_allocation_fails(struct suite_rank *r)
{
    struct suite_holdings before = suite_holdings(r), after;
    bool opened = false;
    uint64_t n;

    for (n = 1; n < 100 && !opened; n++) {
        if (r->rank == r->size - 1)
            tiara_alloc_fail_after(n);
        suite_sync(r);
        opened = open_same(r, r->group, TIARA_ERR_NOMEM, allocation_succeeds);
        after = suite_holdings(r);
        EXPECT(&r->expect, suite_holdings_equal(&before, &after));
    }
    EXPECT(&r->expect, opened);
    EXPECT(&r->expect, n > 2 || !r->suite->allocates);
}

/* An exchange that works, and says at its last time that it did not. */
struct failing_exchange {
    const struct tiara_xport_group *inner;
    int times;
};

static enum tiara_err failing_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    struct failing_exchange *f = arg;
    enum tiara_err err = f->inner->allgather(f->inner->arg, in, out, bytes);

    return --f->times == 0 ? TIARA_ERR_MPI : err;
}

void suite_open_exchange_fails(struct suite_rank *r)
{
    struct suite_holdings before = suite_holdings(r), after;
    bool opened = false;

    /* The transport mpi does not use the group's exchange. */
    for (int n = 1; n < 20 && !opened && r->suite->ranks != TIARA_SUITE_MPI; n++) {
        struct failing_exchange f = {r->group, n};
        struct tiara_xport_group group = *r->group;

        group.allgather = failing_allgather;
        group.arg = &f;
        opened = open_same(r, &group, TIARA_ERR_MPI, NULL);
        after = suite_holdings(r);
        EXPECT(&r->expect, suite_holdings_equal(&before, &after));
        EXPECT(&r->expect, n > 1 || !opened);
    }
    EXPECT(&r->expect, opened || r->suite->ranks == TIARA_SUITE_MPI);
}
