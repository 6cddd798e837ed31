/*
 * Private to lib/plan: the simulator's queue of what will happen, earliest first.
 */
#ifndef TIARA_PLAN_EVENT_H
#define TIARA_PLAN_EVENT_H

#include <stdbool.h>

/* An async of a chunk is complete, or (async -1) the op at work on a rank has ended. */
struct tiara_event {
    double time;
    int rank;
    int slot;
    int async;
};

/* A binary heap. Zeroed to begin; items is freed by the owner with tiara_free. */
struct tiara_events {
    struct tiara_event *items;
    int n, cap;
};

/* False when memory ran out. */
bool tiara_events_push(struct tiara_events *events, struct tiara_event event);
/* The earliest one, which leaves the queue; n > 0. */
struct tiara_event tiara_events_pop(struct tiara_events *events);

#endif
