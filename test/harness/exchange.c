/*
 * The allgather of exchange.h.
 */
#include "test/harness/exchange.h"

#include <sched.h>
#include <string.h>
#include <time.h>

double tiara_test_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t tiara_exchange_bytes(int size)
{
    return sizeof(struct tiara_exchange) + (size_t)size * sizeof(struct tiara_exchange_rank);
}

void tiara_exchange_init(struct tiara_exchange *x, int size)
{
    x->size = size;
    for (int i = 0; i < size; i++) {
        x->ranks[i].rank = i;
        x->ranks[i].whole = x;
    }
}

/* Waits until @peer has written @round. */
static enum tiara_err round_wait(struct tiara_exchange_rank *peer, uint64_t round)
{
    double begin = 0;

    for (;;) {
        /* [exchange.left] acquire: its last round is seen below */
        bool has_left = tiara_load_acquire(&peer->has_left) != 0;

        /* [exchange.round] acquire: its slot of this round may be read */
        if (tiara_load_acquire(&peer->round) >= round)
            return TIARA_OK;
        if (has_left)
            return TIARA_ERR_PEER;
        sched_yield();
        if (begin == 0)
            begin = tiara_test_now();
        else if (tiara_test_now() - begin > TIARA_TEST_PATIENCE_S)
            return TIARA_ERR_TIMEOUT;
    }
}

/* One round of at most a slot. Rank r's bytes go to out + r * stride. */
static enum tiara_err round_run(struct tiara_exchange_rank *me, const unsigned char *in,
    unsigned char *out, size_t bytes, size_t stride)
{
    struct tiara_exchange *x = me->whole;
    uint64_t round = ++me->mine;

    memcpy(me->slot[round % 2], in, bytes);
    /* [exchange.round] release: the slot is written */
    tiara_store_release(&me->round, round);
    for (int i = 0; i < x->size; i++) {
        struct tiara_exchange_rank *peer = &x->ranks[i];
        enum tiara_err err = round_wait(peer, round);

        if (err != TIARA_OK)
            return err;
        memcpy(out + (size_t)i * stride, peer->slot[round % 2], bytes);
    }
    return TIARA_OK;
}

static enum tiara_err exchange_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    size_t done = 0;

    do {
        size_t piece = bytes - done < TIARA_EXCHANGE_SLOT ? bytes - done : TIARA_EXCHANGE_SLOT;
        enum tiara_err err = round_run(
            arg, (const unsigned char *)in + done, (unsigned char *)out + done, piece, bytes);

        if (err != TIARA_OK)
            return err;
        done += piece;
    } while (done < bytes);
    return TIARA_OK;
}

struct tiara_xport_group tiara_exchange_group(struct tiara_exchange *x, int rank)
{
    return (struct tiara_xport_group){
        .rank = rank, .size = x->size, .allgather = exchange_allgather, .arg = &x->ranks[rank]};
}

void tiara_exchange_leave(struct tiara_exchange *x, int rank)
{
    /* [exchange.left] release: the rounds that it wrote stay readable */
    tiara_store_release(&x->ranks[rank].has_left, 1);
}
