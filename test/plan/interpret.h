/*
 * A second opinion on plans: a tiny interpreter that shares nothing with the checker.
 *
 * It runs several chunks through one slot with asynchronous ranks: any rank may move whenever its
 * waits and awaits allow, messages arrive when they like, cells keep what earlier chunks left in
 * them, and the caller's buffers are spoilt as soon as the rank has finished the chunk. A value
 * counts each rank's contributions and carries a hash that depends on the order of every addition;
 * so two ranks that agree on the hash have the same bits.
 */
#ifndef TIARA_TEST_PLAN_INTERPRET_H
#define TIARA_TEST_PLAN_INTERPRET_H

#include "test/plan/plan_set.h"

/* The same in every order, synchronous and not. */
bool interpret_all(const struct plan_set *set, bool in_place, uint64_t seed);

#endif
