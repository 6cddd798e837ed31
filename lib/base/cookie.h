/*
 * Random numbers that name things: no other process has the same, whatever namespaces it lives in.
 */
#ifndef TIARA_BASE_COOKIE_H
#define TIARA_BASE_COOKIE_H

#include <stdint.h>

/* A new one at each call; never 0. */
uint64_t tiara_cookie(void);
/* This process's own, always the same. Process ids will not do: each PID namespace begins with 1.
 */
uint64_t tiara_cookie_process(void);

#endif
