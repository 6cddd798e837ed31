/*
 * The shared helpers of test.h. A helper that cannot do its work ends the program: a test without
 * its harness proves nothing.
 */
#include "test/harness/test.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GUARD_BYTES 4096

static void require(bool is_met, const char *what)
{
    if (is_met)
        return;
    fprintf(stderr, "test harness: %s failed\n", what);
    abort();
}

/*
 * Check gives a test 4 seconds, which a busy machine takes away from one that has nothing wrong.
 * What hangs is ended just before the runner would end the whole program, so that Check can name
 * it. Check asks when a test case is made: so before main.
 */
__attribute__((constructor)) static void set_time_limit(void)
{
    const char *limit = getenv("TIARA_TEST_ALARM");

    setenv("CK_DEFAULT_TIMEOUT", limit != NULL ? limit : "0", 0);
}

int tiara_test_run(Suite *suite, enum fork_status fork)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_fork_status(runner, fork);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

void tiara_test_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(77);
}

uint64_t tiara_test_seed(void)
{
    const char *given = getenv("TIARA_TEST_SEED");
    struct timespec now;
    uint64_t seed;

    clock_gettime(CLOCK_REALTIME, &now);
    if (given != NULL && *given != '\0')
        seed = strtoull(given, NULL, 0);
    else
        seed = (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
    printf("TIARA_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* The finaliser of splitmix64: every bit of the input reaches every bit of the output. */
static uint64_t bits_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t tiara_test_random_next(struct tiara_test_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return bits_mix(random->state);
}

uint64_t tiara_test_random_below(struct tiara_test_random *random, uint64_t n)
{
    return tiara_test_random_next(random) % n;
}

uint64_t tiara_test_bits(int rank, size_t index)
{
    return bits_mix(bits_mix((uint64_t)rank + 1) + (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15));
}

int tiara_test_value(int rank, size_t index)
{
    return (int)(tiara_test_bits(rank, index) % 1000) - 500;
}

int64_t tiara_test_sum(int nranks, size_t index)
{
    int64_t sum = 0;

    for (int rank = 0; rank < nranks; rank++)
        sum += tiara_test_value(rank, index);
    return sum;
}

double tiara_test_inexact(int rank, size_t index)
{
    uint64_t bits = tiara_test_bits(rank, index);
    double scale = (double)(UINT64_C(1) << (bits & 15));

    return (1.0 + (double)(bits >> 12)) / 1e15 * scale;
}

/* No byte of a guard equals its neighbour, so that a guard copied to a wrong place is noticed. */
static unsigned char guard_byte(size_t i)
{
    return (unsigned char)(0x5a + 7 * i);
}

void tiara_test_guarded_init(struct tiara_test_guarded *guarded, size_t bytes, size_t misalign)
{
    size_t whole_bytes = 2 * GUARD_BYTES + misalign + bytes;
    void *whole = NULL;

    require(posix_memalign(&whole, GUARD_BYTES, whole_bytes) == 0, "posix_memalign");
    guarded->whole = whole;
    guarded->bytes = bytes;
    guarded->data = guarded->whole + GUARD_BYTES + misalign;
    memset(guarded->data, 0xa5, bytes);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        guarded->data[bytes + i] = guard_byte(i);
        (guarded->data - GUARD_BYTES)[i] = guard_byte(i);
    }
}

bool tiara_test_guarded_is_intact(const struct tiara_test_guarded *guarded)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (guarded->data[guarded->bytes + i] != guard_byte(i) ||
            (guarded->data - GUARD_BYTES)[i] != guard_byte(i))
            return false;
    return true;
}

void tiara_test_guarded_fini(struct tiara_test_guarded *guarded)
{
    free(guarded->whole);
    memset(guarded, 0, sizeof(*guarded));
}

static int real_stderr = -1;
static int captured = -1;

void tiara_test_stderr_begin(void)
{
    require(captured < 0, "capturing stderr twice");
    fflush(stderr);
    captured = memfd_create("stderr", MFD_CLOEXEC);
    real_stderr = dup(STDERR_FILENO);
    require(captured >= 0 && real_stderr >= 0, "capturing stderr");
    /* without it, two threads may write at the same place */
    require(fcntl(captured, F_SETFL, O_APPEND) == 0, "fcntl");
    require(dup2(captured, STDERR_FILENO) >= 0, "dup2");
}

char *tiara_test_stderr_end(char *text, size_t size)
{
    ssize_t length;

    require(captured >= 0, "capturing stderr");
    fflush(stderr);
    require(dup2(real_stderr, STDERR_FILENO) >= 0, "dup2");
    length = pread(captured, text, size - 1, 0);
    require(length >= 0, "reading what was captured");
    text[length] = '\0';
    close(captured);
    close(real_stderr);
    captured = real_stderr = -1;
    return text;
}

int tiara_test_count_entries(const char *path, const char *part)
{
    DIR *dir = opendir(path);
    int n = 0;

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        n += strstr(entry->d_name, part) != NULL;
    if (dir)
        closedir(dir);
    return n;
}
