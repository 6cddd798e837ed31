/*
 * The list of what moves on what the process owes. It is read without a lock, as it only grows.
 */
#include "base/progress.h"
#include "base/err.h"
#include "base/sync.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tiara_progress_fn kinds[TIARA_PROGRESS_MAX]; /* the first nkinds; written under the lock */
static tiara_u32 nkinds;

void tiara_progress_add(tiara_progress_fn fn)
{
    uint32_t i, n;

    pthread_mutex_lock(&lock);
    n = tiara_load_relaxed(&nkinds); /* relaxed: written under the lock */
    for (i = 0; i < n && kinds[i] != fn; i++)
        ;
    if (i == n) {
        tiara_assert(n < TIARA_PROGRESS_MAX);
        kinds[n] = fn;
        /* [progress.kinds] release: the entry is there */
        tiara_store_release(&nkinds, n + 1);
    }
    pthread_mutex_unlock(&lock);
}

bool tiara_progress(void)
{
    /* [progress.kinds] acquire: as many entries may be read */
    uint32_t n = tiara_load_acquire(&nkinds);
    bool moved = false;

    for (uint32_t i = 0; i < n; i++)
        moved |= kinds[i]();
    return moved;
}
