/*
 * Far memory: buffers that the CPU cannot reach, for tests of staging without a device.
 *
 * A far address is a near one with a bit that no valid address has, so that whoever touches it
 * crashes. The stage knows the way back. Its copies are done late: not before test() has been asked
 * a few times.
 */
#ifndef TIARA_TEST_FAR_H
#define TIARA_TEST_FAR_H

#include "exec/exec.h"

extern const struct tiara_stage tiara_far_stage;

/* The far address of near memory. */
void *tiara_far(const void *near);

#endif
