/*
 * A group's exchange without MPI: an allgather over memory that all ranks see, threads or
 * processes.
 *
 * Rounds are numbered. A rank writes its bytes into its slot of the round, then its round number;
 * it reads a peer's slot once that peer's number has come up. Two slots in turn are enough: a rank
 * that writes round k + 2 has seen all in round k + 1, so that all have finished reading round k.
 *
 * A rank that leaves early is noticed, and every wait ends after a minute; so a broken test fails
 * and never hangs.
 */
#ifndef TIARA_TEST_EXCHANGE_H
#define TIARA_TEST_EXCHANGE_H

#include "base/sync.h"
#include "xport/xport.h"

#define TIARA_EXCHANGE_SLOT 512 /* bytes of a round; longer ones take several */

struct tiara_exchange;

struct tiara_exchange_rank {
    _Alignas(TIARA_LINE) tiara_u64 round; /* rounds that this rank has written; its only writer */
    tiara_u32 has_left; /* it takes part no more */
    int rank;
    struct tiara_exchange *whole;
    uint64_t mine; /* private to the rank: rounds begun */
    unsigned char slot[2][TIARA_EXCHANGE_SLOT];
};

struct tiara_exchange {
    int size;
    struct tiara_exchange_rank ranks[];
};

/* Bytes of the memory (zeroed, aligned to TIARA_LINE) that an exchange of @size ranks needs. */
size_t tiara_exchange_bytes(int size);
void tiara_exchange_init(struct tiara_exchange *x, int size);
/* A rank's view, as transports want it; params NULL. Valid as long as @x. */
struct tiara_xport_group tiara_exchange_group(struct tiara_exchange *x, int rank);
/* @rank takes part no more: who waits for it gets TIARA_ERR_PEER. */
void tiara_exchange_leave(struct tiara_exchange *x, int rank);

/* What a rank runs. Returns its number of failures. */
typedef int (*tiara_rank_fn)(int rank, const struct tiara_xport_group *group, void *arg);

/* Seconds after which a wait of a test gives up. */
#define TIARA_TEST_PATIENCE_S 60
/* Monotonic seconds. */
double tiara_test_now(void);

#endif
