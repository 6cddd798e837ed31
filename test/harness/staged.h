/*
 * Pretended device memory: what the CPU cannot reach, for tests of staging without a device.
 *
 * A device address is a host one with a bit that no valid address has, so that whoever touches it
 * crashes. The stage knows the way back. Its copies are done late: not before test() has been asked
 * a few times.
 */
#ifndef TIARA_TEST_STAGED_H
#define TIARA_TEST_STAGED_H

#include "exec/exec.h"

extern const struct tiara_stage tiara_test_stage;

/* The device address of @host memory. */
void *tiara_test_device(const void *host);

#endif
