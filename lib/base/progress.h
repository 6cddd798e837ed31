/*
 * What a process owes to others, and who moves it.
 *
 * A peer may need something of this process while it waits for something else: the rest of a large
 * message of the program's, its part of a nonblocking operation. So whoever waits moves all of it;
 * the layers above say how, and base knows neither MPI nor operations.
 */
#ifndef TIARA_BASE_PROGRESS_H
#define TIARA_BASE_PROGRESS_H

#include <stdbool.h>

/*
 * Moves one kind of what is owed, a bounded amount, and never waits. True when something moved, as
 * far as can be known: nobody sleeps while something does. Called in any thread that waits.
 */
typedef bool (*tiara_progress_fn)(void);

#define TIARA_PROGRESS_MAX 4 /* kinds in a process */

/* Adds @fn, once and for the life of the process. */
void tiara_progress_add(tiara_progress_fn fn);

/* Runs all that were added. True when one moved something. */
bool tiara_progress(void);

#endif
