/*
 * Cookies from the kernel; where a sandbox forbids that, from what differs between processes.
 */
#include "base/cookie.h"
#include <pthread.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process;
static pid_t owner; /* whose it is: a forked child needs one of its own */

uint64_t tiara_cookie(void)
{
    uint64_t cookie;
    struct timespec now;

    if (getrandom(&cookie, sizeof cookie, GRND_NONBLOCK) == (ssize_t)sizeof cookie)
        return cookie | 1;
    /* Time, process and stack address differ between any two processes of a job. */
    clock_gettime(CLOCK_REALTIME, &now);
    cookie = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return ((cookie ^ ((uint64_t)getpid() << 40) ^ (uint64_t)(uintptr_t)&now) *
               0x9e3779b97f4a7c15u) |
           1;
}

uint64_t tiara_cookie_process(void)
{
    uint64_t cookie;

    pthread_mutex_lock(&lock);
    if (process == 0 || owner != getpid())
        process = tiara_cookie();
    owner = getpid();
    cookie = process;
    pthread_mutex_unlock(&lock);
    return cookie;
}
