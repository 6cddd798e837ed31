/*
 * The memory of the last call that took some from the heap, for the next one of any communicator:
 * new memory of this size costs more in page faults than packing saves.
 */
#include "api/scratch.h"
#include "base/alloc.h"
#include <pthread.h>

static struct tiara_scratch kept; /* lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void scratch_free(struct tiara_scratch *s)
{
    tiara_free(s->out);
    tiara_free(s->in);
    *s = (struct tiara_scratch){0};
}

/* Puts @next in the place of what is kept, which is returned. */
static struct tiara_scratch swap(struct tiara_scratch next)
{
    struct tiara_scratch before;

    pthread_mutex_lock(&lock);
    before = kept;
    kept = next;
    pthread_mutex_unlock(&lock);
    return before;
}

struct tiara_scratch tiara_scratch_take(size_t bytes)
{
    struct tiara_scratch s = swap((struct tiara_scratch){0});

    if (s.bytes >= bytes)
        return s;
    scratch_free(&s);
    s.in = tiara_alloc_aligned(64, bytes);
    s.out = tiara_alloc_aligned(64, bytes);
    s.bytes = bytes;
    if (!s.in || !s.out)
        scratch_free(&s);
    return s;
}

/* Another thread's may be there already. */
void tiara_scratch_give(struct tiara_scratch s)
{
    struct tiara_scratch other = swap(s);

    scratch_free(&other);
}

void tiara_scratch_release(void)
{
    tiara_scratch_give((struct tiara_scratch){0});
}
