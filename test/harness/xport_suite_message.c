/*
 * Conformance cases about messages. Data depends on sender, receiver, tag, number and index; every
 * buffer lies between guards; every pair of ranks talks, each rank also to itself.
 */
#include "test/harness/exchange.h"
#include "test/harness/test.h"
#include "test/harness/xport_suite_priv.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 16
#define MIB ((size_t)1 << 20)

/* One side of a message. */
struct side {
    struct tiara_xport_req req;
    struct tiara_test_guarded buf;
    uint64_t key;
    bool is_recv;
};

/* What a message holds: @number tells messages of equal tags apart. */
static uint64_t key_of(int src, int dst, unsigned tag, unsigned number)
{
    return (uint64_t)src + 16u * (unsigned)dst + 256u * tag + 65536u * number;
}

static void side_send(struct suite_rank *r, void *x, struct side *s, int dst, unsigned tag,
    unsigned number, size_t len)
{
    s->is_recv = false;
    s->key = key_of(r->rank, dst, tag, number);
    tiara_test_guarded_init(&s->buf, len, 1 + tag % 5);
    suite_fill(s->buf.data, s->key, len);
    EXPECT(&r->expect, r->row->send(x, dst, tag, s->buf.data, len, &s->req) == TIARA_OK);
}

static void side_recv(struct suite_rank *r, void *x, struct side *s, int src, unsigned tag,
    unsigned number, size_t len)
{
    s->is_recv = true;
    s->key = key_of(src, r->rank, tag, number);
    tiara_test_guarded_init(&s->buf, len, 3 + tag % 5);
    EXPECT(&r->expect, r->row->recv(x, src, tag, s->buf.data, len, &s->req) == TIARA_OK);
}

/* Completes a message and checks it. */
static void side_finish(struct suite_rank *r, void *x, struct side *s)
{
    EXPECT(&r->expect, suite_req_wait(r, x, &s->req) == TIARA_OK);
    EXPECT(&r->expect, s->req.done);
    EXPECT(&r->expect, r->row->test(x, &s->req) == TIARA_OK); /* harmless when done */
    if (s->is_recv)
        EXPECT(&r->expect, suite_holds(s->buf.data, s->key, s->buf.bytes));
    EXPECT(&r->expect, tiara_test_guarded_is_intact(&s->buf));
    tiara_test_guarded_fini(&s->buf);
}

/* All pairs, one message of @len each way; one kind is started everywhere before the other. */
static void pairs_try(struct suite_rank *r, void *x, size_t len, bool recv_first)
{
    struct side recvs[RANKS_MAX], sends[RANKS_MAX];

    for (int peer = 0; peer < r->size && recv_first; peer++)
        side_recv(r, x, &recvs[peer], peer, 7, 0, len);
    suite_sync(r);
    for (int peer = 0; peer < r->size; peer++)
        side_send(r, x, &sends[peer], peer, 7, 0, len);
    suite_sync(r);
    for (int peer = 0; peer < r->size && !recv_first; peer++)
        side_recv(r, x, &recvs[peer], peer, 7, 0, len);
    for (int peer = 0; peer < r->size; peer++) {
        side_finish(r, x, &sends[peer]);
        side_finish(r, x, &recvs[peer]);
    }
}

static void pairs_all_sizes(struct suite_rank *r, bool recv_first)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, MIB + 3};
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        pairs_try(r, x, sizes[i], recv_first);
    suite_sync(r);
    suite_close(r, x);
}

void suite_message_recv_first(struct suite_rank *r)
{
    pairs_all_sizes(r, true);
}

void suite_message_send_first(struct suite_rank *r)
{
    pairs_all_sizes(r, false);
}

#define TAGS 10

/* Bytes of the message with a tag: some small, some large. */
static size_t tag_bytes(unsigned tag)
{
    return 100 + 1000 * (size_t)tag;
}

/* Tags up to the largest that every transport has. */
static unsigned tag_of(unsigned i)
{
    return i == TAGS - 1 ? 32767 : i;
}

void suite_message_tags(struct suite_rank *r)
{
    struct side recvs[RANKS_MAX][TAGS], sends[RANKS_MAX][TAGS];
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    for (unsigned i = 0; i < TAGS; i++) {
        for (int peer = 0; peer < r->size; peer++) {
            side_send(r, x, &sends[peer][i], peer, tag_of(i), 0, tag_bytes(i));
            /* against the order of the sends */
            side_recv(
                r, x, &recvs[peer][i], peer, tag_of(TAGS - 1 - i), 0, tag_bytes(TAGS - 1 - i));
        }
    }
    for (int peer = 0; peer < r->size; peer++) {
        for (unsigned i = 0; i < TAGS; i++) {
            side_finish(r, x, &recvs[peer][i]);
            side_finish(r, x, &sends[peer][i]);
        }
    }
    suite_sync(r);
    suite_close(r, x);
}

#define MANY 100

/* Bytes of message @i of many: large and small in turn, which must not overtake each other. */
static size_t many_bytes(unsigned i)
{
    return i % 3 == 0 ? 6000 + i : i;
}

void suite_message_order(struct suite_rank *r)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    struct side *sends = calloc(MANY, sizeof *sends), *recvs = calloc(MANY, sizeof *recvs);
    void *x = suite_open(r, 0);

    if (x == NULL || !EXPECT(&r->expect, sends != NULL && recvs != NULL))
        return;
    for (unsigned i = 0; i < MANY; i++) {
        side_send(r, x, &sends[i], next, 5, i, many_bytes(i));
        side_recv(r, x, &recvs[i], last, 5, i, many_bytes(i));
    }
    /* Which request is tested first says nothing about which message it gets. */
    for (unsigned i = MANY; i-- > 0;) {
        side_finish(r, x, &recvs[i]);
        side_finish(r, x, &sends[i]);
    }
    suite_sync(r);
    suite_close(r, x);
    free(sends);
    free(recvs);
}

/* A message of @sent bytes to the next rank, received from the last one as @expected bytes. */
static void mismatch_try(struct suite_rank *r, void *x, size_t sent, size_t expected)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    struct side send, recv;

    side_recv(r, x, &recv, last, 9, 0, expected);
    side_send(r, x, &send, next, 9, 0, sent);
    EXPECT(&r->expect, suite_req_wait(r, x, &recv.req) == TIARA_ERR_MISMATCH);
    EXPECT(&r->expect, recv.req.done);
    EXPECT(&r->expect, tiara_test_guarded_is_intact(&recv.buf));
    tiara_test_guarded_fini(&recv.buf);
    side_finish(r, x, &send);
    /* The message is consumed: the next one is the next one. */
    side_recv(r, x, &recv, last, 9, 1, 77);
    side_send(r, x, &send, next, 9, 1, 77);
    side_finish(r, x, &recv);
    side_finish(r, x, &send);
}

/* Messages that are too long, and how an MPI may fail to notice: see the top of
 * lib/xport/xport_mpi.c. */
static bool is_mismatch_safe(const struct suite_rank *r, size_t sent, size_t expected)
{
    return r->suite->ranks != TIARA_SUITE_MPI || sent < expected || (r->size > 1 && sent < 4000);
}

void suite_message_mismatch(struct suite_rank *r)
{
    static const size_t lengths[][2] = {
        {100, 50}, {100, 200}, {0, 1}, {1, 0}, {100000, 5000}, {5000, 100000}, {100000, 100001}};
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (is_mismatch_safe(r, lengths[i][0], lengths[i][1]))
            mismatch_try(r, x, lengths[i][0], lengths[i][1]);
    }
    suite_sync(r);
    suite_close(r, x);
}

void suite_message_progress(struct suite_rank *r)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    struct side send, recv;
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    side_recv(r, x, &recv, last, 1, 0, MIB);
    side_send(r, x, &send, next, 1, 0, MIB);
    /* All ranks wait for their sends only, which end only if that also receives. */
    side_finish(r, x, &send);
    side_finish(r, x, &recv);
    suite_sync(r);
    suite_close(r, x);
}

/* A receive that was given up takes no message: the one that comes goes to the next receive. */
void suite_message_cancel(struct suite_rank *r)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    unsigned char given_up[64];
    struct tiara_xport_req req;
    struct side send, recv;
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    memset(given_up, 0x3c, sizeof given_up);
    EXPECT(&r->expect, r->row->recv(x, last, 1, given_up, sizeof given_up, &req) == TIARA_OK);
    r->row->cancel(x, &req);
    EXPECT(&r->expect, req.done);
    suite_sync(r);
    side_send(r, x, &send, next, 1, 0, sizeof given_up);
    side_recv(r, x, &recv, last, 1, 0, sizeof given_up);
    side_finish(r, x, &send);
    side_finish(r, x, &recv);
    for (size_t i = 0; i < sizeof given_up; i++)
        EXPECT(&r->expect, given_up[i] == 0x3c);
    suite_sync(r);
    suite_close(r, x);
}

/* Probes for a message of @peer until there is one; its tag. */
static uint32_t probe_wait(struct suite_rank *r, void *x, int peer)
{
    double begin = tiara_test_now();
    uint32_t tag = UINT32_MAX;

    while (!r->row->probe(x, peer, &tag)) {
        sched_yield();
        if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S) {
            EXPECT(&r->expect, !"a message in time");
            break;
        }
    }
    return tag;
}

/* Nothing is there before it is sent; what is there stays until it is received. */
static void probe_try(struct suite_rank *r, void *x, size_t len)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    struct side sends[2], recvs[2];
    uint32_t tag;

    EXPECT(&r->expect, !r->row->probe(x, last, &tag));
    suite_sync(r);
    side_send(r, x, &sends[0], next, 11, 0, len);
    side_send(r, x, &sends[1], next, 12, 0, len);
    EXPECT(&r->expect, probe_wait(r, x, last) == 11);
    EXPECT(&r->expect, probe_wait(r, x, last) == 11);
    side_recv(r, x, &recvs[0], last, 11, 0, len);
    side_finish(r, x, &recvs[0]);
    EXPECT(&r->expect, probe_wait(r, x, last) == 12);
    side_recv(r, x, &recvs[1], last, 12, 0, len);
    side_finish(r, x, &recvs[1]);
    side_finish(r, x, &sends[0]);
    side_finish(r, x, &sends[1]);
    EXPECT(&r->expect, !r->row->probe(x, last, &tag));
    suite_sync(r);
}

void suite_message_probe(struct suite_rank *r)
{
    void *x = suite_open(r, 0);

    if (x == NULL)
        return;
    probe_try(r, x, 0);
    probe_try(r, x, 100);
    probe_try(r, x, MIB);
    suite_close(r, x);
}

/* A control message is seen before others that came first, and needs no request. */
void suite_message_control(struct suite_rank *r)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    void *x = suite_open(r, 0);
    struct side send, recv;
    uint32_t control, tag_bits;

    if (x == NULL)
        return;
    tag_bits = ((const struct tiara_xport_head *)x)->tag_bits;
    EXPECT(&r->expect, tag_bits >= 15 && tag_bits <= 31);
    for (unsigned kind = 0; kind < TIARA_XPORT_CONTROLS; kind++) {
        control = tiara_xport_control(tag_bits, kind);
        side_send(r, x, &send, next, 21, kind, 50);
        EXPECT(&r->expect, probe_wait(r, x, last) == 21);
        suite_sync(r);
        EXPECT(&r->expect, r->row->send(x, next, control, NULL, 0, NULL) == TIARA_OK);
        suite_sync(r);
        while (probe_wait(r, x, last) == 21 && r->expect.failures == 0)
            sched_yield();
        EXPECT(&r->expect, probe_wait(r, x, last) == control);
        side_recv(r, x, &recv, last, control, kind, 0);
        side_finish(r, x, &recv);
        side_recv(r, x, &recv, last, 21, kind, 50);
        side_finish(r, x, &recv);
        side_finish(r, x, &send);
        suite_sync(r);
    }
    suite_close(r, x);
}

#define FLOOD 40

/* More than any buffer between two ranks holds, each way at once, before anybody receives. */
void suite_message_flood(struct suite_rank *r)
{
    int next = (r->rank + 1) % r->size, last = (r->rank + r->size - 1) % r->size;
    struct side *sends = calloc(FLOOD, sizeof *sends), *recvs = calloc(FLOOD, sizeof *recvs);
    void *x = suite_open(r, 0);

    if (x == NULL || !EXPECT(&r->expect, sends != NULL && recvs != NULL))
        return;
    for (unsigned i = 0; i < FLOOD; i++)
        side_send(r, x, &sends[i], next, i, i, i % 2 ? 4000 : 100000);
    suite_sync(r);
    for (unsigned i = FLOOD; i-- > 0;)
        side_recv(r, x, &recvs[i], last, i, i, i % 2 ? 4000 : 100000);
    for (unsigned i = 0; i < FLOOD; i++) {
        side_finish(r, x, &sends[i]);
        side_finish(r, x, &recvs[i]);
    }
    suite_sync(r);
    suite_close(r, x);
    free(sends);
    free(recvs);
}

/* Objects that are closed when a rank comes by: nobody waits for others, and messages of one are
 * never taken for another's. */
void suite_message_alone(struct suite_rank *r)
{
    for (unsigned round = 0; round < 4; round++) {
        void *x[3];

        for (int i = 0; i < 3; i++)
            x[i] = suite_open(r, 0);
        for (int i = 0; i < 3 && x[i] != NULL; i++)
            pairs_try(r, x[i], 10 + round, i % 2 == 0);
        /* One after the other, and each in an order of its own. */
        for (int turn = 0; turn < r->size; turn++) {
            for (int i = 0; i < 3 && turn == r->rank; i++) {
                struct tiara_xport_head *head = x[(i + r->rank) % 3];

                if (head != NULL) {
                    head->end = TIARA_XPORT_END_ALONE;
                    suite_close(r, head);
                }
            }
            suite_sync(r);
        }
    }
    r->row->close(NULL);
    suite_sync(r);
}
