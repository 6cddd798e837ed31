/*
 * Conformance cases about messages. Data depends on sender, receiver, tag, number and index; every
 * buffer lies between guards; every pair of ranks talks, each rank also to itself.
 */
#include "test/harness/test.h"
#include "test/harness/xport_suite_priv.h"

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
