/*
 * tiara_gpu.look: what a pointer is, also after the program freed it, and what bad pointers are
 * told to be. Also the smaller entries of the table: open and describe.
 *
 *     tiara-test: env STANDIN_STRICT=1
 */
#include "test/cuda/t_common.h"

#include <pthread.h>
#include <sys/mman.h>

#define BYTES ((size_t)4 << 20)

/* look() of @ptr, of which nothing is said on stderr when it succeeds. */
static enum tiara_err look(const void *ptr, size_t bytes, struct tiara_gpu_pointer *p)
{
    memset(p, 0x5a, sizeof *p);
    return tiara_gpu.look(ptr, bytes, p);
}

/* The same for a look that fails, with its words in @text. */
static enum tiara_err look_at_bad(const void *ptr, size_t bytes, char *text, size_t size)
{
    struct tiara_gpu_pointer p;
    enum tiara_err err;

    tiara_test_stderr_begin();
    err = tiara_gpu.look(ptr, bytes, &p);
    tiara_test_stderr_end(text, size);
    return err;
}

static bool is_range(const struct tiara_gpu_pointer *p, const void *base, size_t bytes, int device)
{
    return p->device && p->ordinal == device && p->base == (uintptr_t)base && p->size >= bytes &&
           p->size < bytes + BYTES && p->id != 0;
}

/* ---- kinds ---- */

static int rank_kinds(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    static char on_stack_or_data[100];
    struct tiara_gpu_pointer p, again;
    void *pinned = NULL, *managed = NULL, *device = NULL, *other = NULL;
    int own = gpu_begin(&e, TIARA_LOG_WARN);

    (void)group;
    (void)arg;
    if (own < 0)
        return e.failures;
    EXPECT_CUDA(&e, cudaMallocHost(&pinned, BYTES));
    EXPECT_CUDA(&e, cudaMallocManaged(&managed, BYTES, cudaMemAttachGlobal));
    EXPECT_CUDA(&e, cudaMalloc(&device, BYTES));
    EXPECT_CUDA(&e, cudaMalloc(&other, BYTES));
    for (int i = 0; i < 2; i++) {
        EXPECT(&e, look(&p, sizeof p, &again) == TIARA_OK && !again.device);
        EXPECT(&e, look(on_stack_or_data, 100, &p) == TIARA_OK && !p.device);
        EXPECT(&e, look(pinned, BYTES, &p) == TIARA_OK && !p.device);
        EXPECT(&e, look(managed, BYTES, &p) == TIARA_OK && !p.device);
        EXPECT(&e, look(NULL, 0, &p) == TIARA_OK && !p.device);
        EXPECT(&e, look(device, BYTES, &p) == TIARA_OK && is_range(&p, device, BYTES, own));
        EXPECT(&e, p.share == TIARA_GPU_SHARE_IPC);
        /* A part of it is the same allocation, another one is not. */
        EXPECT(&e, look((char *)device + 12345, 17, &again) == TIARA_OK);
        EXPECT(&e, is_range(&again, device, BYTES, own) && again.id == p.id);
        EXPECT(&e, look((char *)device + BYTES - 1, 1, &again) == TIARA_OK && again.id == p.id);
        EXPECT(&e, look(other, 1, &again) == TIARA_OK && is_range(&again, other, BYTES, own));
        EXPECT(&e, again.id != p.id);
    }
    EXPECT_CUDA(&e, cudaFree(device));
    EXPECT_CUDA(&e, cudaFree(other));
    EXPECT_CUDA(&e, cudaFree(managed));
    EXPECT_CUDA(&e, cudaFreeHost(pinned));
    tiara_gpu.close();
    return e.failures;
}

START_TEST(test_pointer_kinds_are_told_apart)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_kinds, NULL), 0);
}
END_TEST

/* ---- other devices ---- */

/* The program's device and its last error are its own. */
static int rank_devices(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_pointer p;
    int count = 0, now = -1;
    char text[256];

    (void)group;
    (void)arg;
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0)
        return e.failures;
    EXPECT_CUDA(&e, cudaGetDeviceCount(&count));
    for (int device = 0; device < count; device++) {
        void *at = NULL;

        EXPECT_CUDA(&e, cudaSetDevice(device));
        EXPECT_CUDA(&e, cudaMalloc(&at, BYTES));
        EXPECT_CUDA(&e, cudaSetDevice(count - 1 - device));
        EXPECT(&e, look(at, BYTES, &p) == TIARA_OK && is_range(&p, at, BYTES, device));
        EXPECT(&e, look_at_bad(at, SIZE_MAX, text, sizeof text) == TIARA_ERR_ARG);
        EXPECT(&e, cudaGetDevice(&now) == cudaSuccess && now == count - 1 - device);
        EXPECT_CUDA(&e, cudaFree(at));
        EXPECT(&e, look_at_bad(at, BYTES, text, sizeof text) == TIARA_ERR_ARG);
        EXPECT(&e, cudaGetLastError() == cudaSuccess);
    }
    return e.failures;
}

START_TEST(test_pointer_look_leaves_device_and_error_alone)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_devices, NULL), 0);
}
END_TEST

/* ---- bad pointers ---- */

static int rank_bad(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_pointer p, before;
    char text[512], address[32];
    char *hole = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *at = NULL;

    (void)group;
    (void)arg;
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0)
        return e.failures;
    EXPECT_CUDA(&e, cudaMalloc(&at, BYTES));
    EXPECT(&e, look((char *)at + 100, BYTES - 100, &before) == TIARA_OK);
    /* Too long: the words give the numbers. */
    EXPECT(&e, look_at_bad(at, before.size + 1, text, sizeof text) == TIARA_ERR_ARG);
    EXPECT(&e, strstr(text, "leaves its device memory") && strstr(text, "error: "));
    EXPECT(&e, look_at_bad((char *)at + 100, before.size - 99, text, sizeof text) == TIARA_ERR_ARG);
    EXPECT(&e, look_at_bad((char *)at + 100, SIZE_MAX - 5, text, sizeof text) == TIARA_ERR_ARG);
    /* Freed; the address that is asked for was asked for before, or not. */
    EXPECT_CUDA(&e, cudaFree(at));
    for (int i = 0; i < 3; i++) {
        EXPECT(&e, look_at_bad((char *)at + i * 100000, 8, text, sizeof text) == TIARA_ERR_ARG);
        snprintf(address, sizeof address, "0x%llx of", (unsigned long long)(uintptr_t)at);
        EXPECT(&e, strstr(text, "was freed") && strstr(text, address));
    }
    /* Nobody's. */
    EXPECT(&e, look_at_bad(hole, 8, text, sizeof text) == TIARA_ERR_ARG);
    EXPECT(&e, strstr(text, "neither host nor device memory") != NULL);
    munmap(hole, BYTES);
    EXPECT(&e, look_at_bad(hole, 8, text, sizeof text) == TIARA_ERR_ARG);
    EXPECT(&e, strstr(text, "neither host nor device memory") != NULL);
    EXPECT(&e, look_at_bad(NULL, 8, text, sizeof text) == TIARA_ERR_ARG);
    /* Host memory where a device buffer was is host memory. */
    hole = mmap(
        at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (hole == at) {
        EXPECT(&e, look(at, 8, &p) == TIARA_OK && !p.device);
        munmap(hole, 4096);
    }
    return e.failures;
}

START_TEST(test_pointer_bad_ones_are_errors)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_bad, NULL), 0);
}
END_TEST

/* Another allocation at the address of a freed one is another allocation. */
static int rank_reuse(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    uint64_t last_id = 0, last_base = 0;
    int same_base = 0;

    (void)group;
    (void)arg;
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0)
        return e.failures;
    for (int i = 0; i < 10000; i++) {
        size_t bytes = BYTES * (size_t)(1 + i / 2 % 3);
        struct tiara_gpu_pointer p;
        void *at = NULL;

        EXPECT_CUDA(&e, cudaMalloc(&at, bytes));
        EXPECT(&e, look(at, bytes, &p) == TIARA_OK && is_range(&p, at, bytes, p.ordinal));
        EXPECT(&e, p.id != last_id);
        same_base += p.base == last_base;
        last_id = p.id;
        last_base = p.base;
        EXPECT_CUDA(&e, cudaFree(at));
        if (e.failures > 0)
            break;
    }
    /* Otherwise nothing was shown. */
    EXPECT(&e, !gpu_is_standin() || same_base > 1000);
    return e.failures;
}

START_TEST(test_pointer_new_allocation_has_new_id)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_reuse, NULL), 0);
}
END_TEST

/* ---- memory without cudaMalloc ---- */

static int rank_vmm(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_pointer p, again;
    struct gpu_vmm vmm, alone;
    char text[256];
    char *at;
    int own = gpu_begin(&e, TIARA_LOG_WARN);

    (void)group;
    (void)arg;
    if (own < 0)
        return e.failures;
    gpu_vmm_make(&e, &vmm, own, 3, true);
    gpu_vmm_make(&e, &alone, own, 1, false);
    at = (char *)(uintptr_t)vmm.base;
    EXPECT(&e, look((char *)(uintptr_t)alone.base + 5, 10, &p) == TIARA_OK && p.device);
    EXPECT(&e, p.share == TIARA_GPU_SHARE_NONE);
    EXPECT(&e, look(at + 64, vmm.piece_bytes - 64, &p) == TIARA_OK && p.base == vmm.base);
    EXPECT(&e, p.size == vmm.piece_bytes && p.share == TIARA_GPU_SHARE_FD && p.id != 0);
    /* Over several pieces it is one buffer, of which nobody has a handle. Twice: the second time it
     * was seen. */
    for (int i = 0; i < 2; i++) {
        EXPECT(&e, look(at + 64, 2 * vmm.piece_bytes, &again) == TIARA_OK && again.device);
        EXPECT(&e, again.share == TIARA_GPU_SHARE_NONE && again.size == 3 * vmm.piece_bytes);
        EXPECT(&e, look(at, 3 * vmm.piece_bytes, &again) == TIARA_OK);
        EXPECT(&e, look_at_bad(at, 3 * vmm.piece_bytes + 1, text, sizeof text) == TIARA_ERR_ARG);
        EXPECT(&e, look(at, vmm.piece_bytes, &again) == TIARA_OK);
        EXPECT(&e, again.share == TIARA_GPU_SHARE_FD && again.id == p.id);
    }
    /* Other memory at the same addresses. */
    gpu_vmm_unmap(&e, &vmm, 0);
    EXPECT(&e, look_at_bad(at, 8, text, sizeof text) == TIARA_ERR_ARG);
    EXPECT(&e, strstr(text, "was freed") != NULL);
    gpu_vmm_map(&e, &vmm, 0, own, true);
    EXPECT(&e, look(at, vmm.piece_bytes, &again) == TIARA_OK && again.id != p.id);
    gpu_vmm_free(&e, &vmm);
    gpu_vmm_free(&e, &alone);
    return e.failures;
}

START_TEST(test_pointer_mapped_pieces)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_vmm, NULL), 0);
}
END_TEST

static int rank_pool(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_pointer p;
    void *at = NULL;
    int own = gpu_begin(&e, TIARA_LOG_WARN);

    (void)group;
    (void)arg;
    if (own < 0)
        return e.failures;
    EXPECT_CUDA(&e, cudaMallocAsync(&at, BYTES, NULL));
    EXPECT_CUDA(&e, cudaStreamSynchronize(NULL));
    EXPECT(&e, look(at, BYTES, &p) == TIARA_OK && p.device && p.ordinal == own);
    EXPECT(&e, p.share == TIARA_GPU_SHARE_NONE);
    EXPECT_CUDA(&e, cudaFreeAsync(at, NULL));
    EXPECT_CUDA(&e, cudaStreamSynchronize(NULL));
    return e.failures;
}

START_TEST(test_pointer_pool_memory_is_not_shared)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_pool, NULL), 0);
}
END_TEST

/* ---- threads ---- */

#define THREADS 4
#define BUFFERS 300

struct looks {
    char *buffer[BUFFERS];
    struct tiara_expect e[THREADS];
    pthread_t id[THREADS];
};
static struct looks looks;

/* Looks at buffers that all threads look at, and at one that comes and goes. */
static void *thread_looks(void *arg)
{
    struct tiara_expect *e = arg;

    for (int i = 0; i < 3000 && e->failures == 0; i++) {
        char *shared = looks.buffer[i * (e->rank + 1) % BUFFERS];
        struct tiara_gpu_pointer p;
        void *own = NULL;

        EXPECT(e, look(shared + i % 4096, 4, &p) == TIARA_OK);
        EXPECT(e, p.device && p.base == (uintptr_t)shared);
        EXPECT(e, look(&p, 4, &p) == TIARA_OK && !p.device);
        if (i % 8 == 0) {
            EXPECT_CUDA(e, cudaMalloc(&own, BYTES));
            EXPECT(e, look(own, BYTES, &p) == TIARA_OK && p.device && p.base == (uintptr_t)own);
            EXPECT_CUDA(e, cudaFree(own));
        }
    }
    return NULL;
}

static int rank_threads(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};

    (void)group;
    (void)arg;
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0)
        return e.failures;
    for (int i = 0; i < BUFFERS; i++)
        EXPECT_CUDA(&e, cudaMalloc((void **)&looks.buffer[i], 4096 + 4));
    for (int i = 0; i < THREADS; i++) {
        looks.e[i].rank = i;
        EXPECT(&e, pthread_create(&looks.id[i], NULL, thread_looks, &looks.e[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(looks.id[i], NULL);
        e.failures += looks.e[i].failures;
    }
    for (int i = 0; i < BUFFERS; i++)
        EXPECT_CUDA(&e, cudaFree(looks.buffer[i]));
    return e.failures;
}

START_TEST(test_pointer_threads_look_together)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_threads, NULL), 0);
}
END_TEST

/* ---- what the driver lacks, and failures ---- */

/* One call fails, or always: device memory is still known as such, or it is an error. */
static const struct {
    const char *fail;
    enum tiara_err err;
} failures[] = {
    {"cudaPointerGetAttributes:1", TIARA_ERR_SYS},
    {"cudaGetDriverEntryPointByVersion:1+", TIARA_OK},
    {"cuMemGetAddressRange:1+", TIARA_OK},
    {"cuPointerGetAttribute:1+", TIARA_OK},
    {"cudaGetDevice:3", TIARA_OK},
};

static int rank_fails(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    int i = *(const int *)arg;
    struct tiara_gpu_pointer p;
    void *at = NULL;

    (void)group;
    setenv("STANDIN_FAIL", failures[i].fail, 1);
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0)
        return e.failures;
    EXPECT_CUDA(&e, cudaMalloc(&at, BYTES));
    if (!gpu_is_standin())
        goto out_free;
    EXPECT(&e, look(at, BYTES, &p) == failures[i].err);
    if (failures[i].err == TIARA_OK) {
        EXPECT(&e, p.device && p.size >= BYTES);
        /* The last one does not touch what is asked here. */
        EXPECT(&e, i == 4 || p.share == TIARA_GPU_SHARE_NONE);
    } else {
        EXPECT(&e, look(at, BYTES, &p) == TIARA_OK && p.device);
    }
    EXPECT(&e, look(&p, sizeof p, &p) == TIARA_OK && !p.device);
    EXPECT(&e, cudaGetLastError() == cudaSuccess);
out_free:
    EXPECT_CUDA(&e, cudaFree(at));
    return e.failures;
}

START_TEST(test_pointer_failing_calls)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_fails, &_i), 0);
}
END_TEST

/* ---- open and describe ---- */

static int rank_opens(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    struct tiara_gpu_host host = {.log_level = TIARA_LOG_WARN};
    char text[8192], why[64] = "";
    struct tiara_gpu_pointer p;
    int length, count = 0;

    (void)group;
    (void)arg;
    EXPECT(&e, tiara_gpu.version == TIARA_GPU_VERSION);
    setenv("STANDIN_FAIL", "cudaGetDeviceCount:1", 1);
    if (tiara_gpu.open(&host, why, sizeof why) != TIARA_OK) {
        EXPECT(&e, strcmp(why, "no device") == 0);
        EXPECT(&e, cudaGetLastError() == cudaSuccess);
        EXPECT(&e, tiara_gpu.open(&host, why, sizeof why) == TIARA_OK);
    }
    EXPECT(&e, look(&p, sizeof p, &p) == TIARA_OK);
    EXPECT_CUDA(&e, cudaGetDeviceCount(&count));
    length = tiara_gpu.describe(text, sizeof text);
    EXPECT(&e, length == (int)strlen(text) && strncmp(text, "  device 0: ", 12) == 0);
    for (int i = 0; i < count; i++) {
        char pci[32], begin[64];
        const char *line;

        snprintf(begin, sizeof begin, "  device %d: ", i);
        line = strstr(text, begin);
        EXPECT_CUDA(&e, cudaDeviceGetPCIBusId(pci, sizeof pci, i));
        EXPECT(&e, line != NULL && strstr(line, pci) != NULL);
    }
    /* What does not fit is cut, and the length says so. */
    memset(text, 'x', sizeof text);
    EXPECT(&e, tiara_gpu.describe(text, 20) == length && strlen(text) == 19);
    EXPECT(&e, tiara_gpu.describe(NULL, 0) == length);
    return e.failures;
}

START_TEST(test_gpu_opens_and_describes)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_opens, NULL), 0);
}
END_TEST

/* How pairs are reached, by the stand-in's links. */
static int rank_describes_links(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_expect e = {.rank = rank};
    char text[8192];

    (void)group;
    (void)arg;
    setenv("STANDIN_DEVICES", "4", 1);
    setenv("STANDIN_PEERS", "ring", 1);
    if (gpu_begin(&e, TIARA_LOG_WARN) < 0 || !gpu_is_standin())
        return e.failures;
    tiara_gpu.describe(text, sizeof text);
    EXPECT(&e, strstr(text, "device 0 with 1: peer access over NVLink") != NULL);
    EXPECT(&e, strstr(text, "device 0 with 2: staged through host memory") != NULL);
    EXPECT(&e, strstr(text, "device 0 with 3: peer access over NVLink") != NULL);
    EXPECT(&e, strstr(text, "device 1 with itself: same device") != NULL);
    return e.failures;
}

START_TEST(test_gpu_describes_links)
{
    ck_assert_int_eq(tiara_procs_run(1, rank_describes_links, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pointer");
    TCase *all = tcase_create("all");

    tcase_add_test(all, test_pointer_kinds_are_told_apart);
    tcase_add_test(all, test_pointer_look_leaves_device_and_error_alone);
    tcase_add_test(all, test_pointer_bad_ones_are_errors);
    tcase_add_test(all, test_pointer_new_allocation_has_new_id);
    tcase_add_test(all, test_pointer_mapped_pieces);
    tcase_add_test(all, test_pointer_pool_memory_is_not_shared);
    tcase_add_test(all, test_pointer_threads_look_together);
    tcase_add_loop_test(
        all, test_pointer_failing_calls, 0, (int)(sizeof failures / sizeof failures[0]));
    tcase_add_test(all, test_gpu_opens_and_describes);
    tcase_add_test(all, test_gpu_describes_links);
    suite_add_tcase(suite, all);
    return tiara_test_run(suite, CK_NOFORK);
}
