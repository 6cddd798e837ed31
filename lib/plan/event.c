/*
 * The simulator's queue: a binary heap ordered by time.
 */
#include "plan/event.h"
#include "plan/array.h"

bool tiara_events_push(struct tiara_events *events, struct tiara_event event)
{
    struct tiara_event *items =
        tiara_array_reserve(events->items, &events->cap, events->n + 1, sizeof(*events->items));
    int at = events->n;

    if (items == NULL)
        return false;
    events->items = items;
    events->n++;
    while (at > 0 && items[(at - 1) / 2].time > event.time) {
        items[at] = items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    items[at] = event;
    return true;
}

struct tiara_event tiara_events_pop(struct tiara_events *events)
{
    struct tiara_event *items = events->items;
    struct tiara_event first = items[0], last = items[--events->n];
    int at = 0;

    for (int child = 1; child < events->n; child = 2 * at + 1) {
        if (child + 1 < events->n && items[child + 1].time < items[child].time)
            child++;
        if (items[child].time >= last.time)
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = last;
    return first;
}
