/*
 * What the files of the conformance suite share: a rank, objects, waiting, and what the process
 * holds.
 */
#ifndef TIARA_TEST_XPORT_SUITE_PRIV_H
#define TIARA_TEST_XPORT_SUITE_PRIV_H

#include "test/harness/expect.h"
#include "test/harness/xport_suite.h"

#include <stdint.h>

struct suite_rank {
    const struct tiara_xport_suite *suite;
    const struct tiara_xport *row;
    const struct tiara_xport_group *group;
    int rank, size;
    struct tiara_expect expect;
};

/* What a process holds. */
struct suite_holdings {
    uint64_t pieces; /* of the library's private memory */
    int descriptors;
    int segments; /* mappings of the library's own files */
    int named; /* mappings of files in /dev/shm */
};

/* All ranks arrive before one goes on. */
void suite_sync(struct suite_rank *r);
/* A new open object, or NULL (counted as a failure); closed and freed by suite_close. */
void *suite_open(struct suite_rank *r, size_t expose_bytes);
void suite_close(struct suite_rank *r, void *x);
/* The byte at index @i of the data that @key stands for. */
unsigned char suite_datum(uint64_t key, size_t i);
void suite_fill(unsigned char *to, uint64_t key, size_t len);
bool suite_holds(const unsigned char *at, uint64_t key, size_t len);
/* Waits until *@word >= @value; false (and a failure) when that takes too long. */
bool suite_word_wait(struct suite_rank *r, const void *word, uint64_t value);
/* Tests @req until it is done or in error; TIARA_ERR_TIMEOUT when that takes too long. */
enum tiara_err suite_req_wait(struct suite_rank *r, void *x, struct tiara_xport_req *req);
/* Collective, between calls: what the process holds while all ranks do nothing. Zeroes where it
 * cannot be told. */
struct suite_holdings suite_holdings(struct suite_rank *r);
bool suite_holdings_equal(const struct suite_holdings *a, const struct suite_holdings *b);

typedef void (*suite_case_fn)(struct suite_rank *r);

/* Cases by file: xport_suite.c, _expose.c, _message.c. Each says first what the row must
 * promise. */
void suite_open_repeats(struct suite_rank *r);
void suite_open_allocation_fails(struct suite_rank *r);
void suite_open_exchange_fails(struct suite_rank *r);
void suite_expose_segments(struct suite_rank *r);
void suite_expose_nothing(struct suite_rank *r);
void suite_expose_flags(struct suite_rank *r);
void suite_expose_two(struct suite_rank *r);
void suite_get_sizes(struct suite_rank *r);
void suite_get_bad_address(struct suite_rank *r);
void suite_message_recv_first(struct suite_rank *r);
void suite_message_send_first(struct suite_rank *r);
void suite_message_tags(struct suite_rank *r);
void suite_message_order(struct suite_rank *r);
void suite_message_mismatch(struct suite_rank *r);
void suite_message_progress(struct suite_rank *r);
void suite_message_cancel(struct suite_rank *r);
void suite_message_probe(struct suite_rank *r);
void suite_message_control(struct suite_rank *r);
void suite_message_flood(struct suite_rank *r);
void suite_message_alone(struct suite_rank *r);

#endif
