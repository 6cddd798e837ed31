/*
 * Exports and imports: peers read this rank's buffers in place, whatever they were allocated with;
 * and the cache of mappings keeps neither too many nor any that is stale.
 *
 *     tiara-test: env STANDIN_STRICT=1
 */
#include "test/cuda/t_common.h"
#include "gpu/import.h"

#include <unistd.h>

#define WORDS ((size_t)1 << 18)
#define BYTES (WORDS * sizeof(uint64_t))
#define RANKS 3

/* What a rank has of the others. */
struct share {
    struct tiara_expect e;
    const struct tiara_xport_group *group;
    struct tiara_gpu_imports *imports;
    struct tiara_gpu_export all[RANKS];
    int device;
};

static bool share_begin(struct share *s, int rank, const struct tiara_xport_group *group)
{
    memset(s, 0, sizeof *s);
    s->e.rank = rank;
    s->group = group;
    s->device = gpu_begin(&s->e, TIARA_LOG_WARN);
    return s->device >= 0 &&
           EXPECT(&s->e, tiara_gpu_imports_open(&s->imports, s->device) == TIARA_OK);
}

static int share_end(struct share *s)
{
    tiara_gpu_imports_close(s->imports);
    tiara_gpu.close();
    EXPECT(&s->e, cudaGetLastError() == cudaSuccess);
    EXPECT(&s->e, tiara_alloc_live() == 0);
    /* Whoever ends takes its memory along. */
    gpu_barrier(&s->e, s->group);
    return s->e.failures;
}

/* Everybody exports @at and has everybody's export. */
static bool exchange(struct share *s, const void *at, size_t bytes)
{
    struct tiara_gpu_export own;

    return EXPECT(&s->e, tiara_gpu_export(at, bytes, &own) == TIARA_OK) &&
           EXPECT(&s->e, s->group->allgather(s->group->arg, &own, s->all, sizeof own) == TIARA_OK);
}

/* Reads @n words at what @from says, which are to be words @first and so on of @key. */
static void import_check(
    struct share *s, const struct tiara_gpu_export *from, int key, size_t first, size_t n)
{
    struct tiara_gpu_import *import;
    void *at = NULL;

    if (!EXPECT(&s->e, tiara_gpu_import(s->imports, from, &import, &at) == TIARA_OK))
        return;
    EXPECT(&s->e, gpu_is_filled(at, key, first, n));
    tiara_gpu_import_drop(s->imports, import);
}

/* ---- cudaMalloc ---- */

static int rank_reads(int rank, const struct tiara_xport_group *group, void *arg)
{
    size_t skip = 1000 + (size_t)rank;
    uint64_t *at = NULL;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    EXPECT_CUDA(&s.e, cudaMalloc((void **)&at, BYTES));
    gpu_fill(&s.e, at, rank, WORDS);
    /* The whole of it, then a part: one allocation, one mapping. */
    for (int i = 0; i < 4; i++) {
        bool whole = i % 2 == 0;

        if (!exchange(&s, whole ? at : at + skip, whole ? BYTES : BYTES - skip * 8))
            break;
        for (int peer = 0; peer < group->size; peer++) {
            size_t first = whole ? 0 : 1000 + (size_t)peer;

            EXPECT(&s.e, s.all[peer].kind == TIARA_GPU_SHARE_IPC);
            EXPECT(&s.e, s.all[peer].offset == first * 8 && s.all[peer].size >= BYTES);
            if (peer != rank)
                import_check(&s, &s.all[peer], peer, first, WORDS - first);
        }
        EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == group->size - 1);
        EXPECT(&s.e, tiara_gpu_exports_count() == 1);
    }
    gpu_barrier(&s.e, group);
    EXPECT_CUDA(&s.e, cudaFree(at));
    return share_end(&s);
}

START_TEST(test_share_peers_read_in_place)
{
    ck_assert_int_eq(tiara_procs_run(RANKS, rank_reads, NULL), 0);
}
END_TEST

/* ---- mapped memory ---- */

static int rank_vmm(int rank, const struct tiara_xport_group *group, void *arg)
{
    size_t words, skip = 77, available;
    int before, kept;
    struct gpu_vmm vmm;
    struct share s;
    char *at;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    available = gpu_free_bytes();
    before = gpu_descriptors();
    for (int round = 0; round < 5; round++) {
        gpu_vmm_make(&s.e, &vmm, s.device, 1, true);
        at = (char *)(uintptr_t)vmm.base;
        words = vmm.piece_bytes / 8;
        gpu_fill(&s.e, at, rank + round, words);
        if (!exchange(&s, at + skip * 8, vmm.piece_bytes - skip * 8))
            break;
        for (int peer = 0; peer < group->size; peer++) {
            EXPECT(&s.e, s.all[peer].kind == TIARA_GPU_SHARE_FD && s.all[peer].fd > 2);
            for (int i = 0; i < 2 && peer != rank; i++)
                import_check(&s, &s.all[peer], peer + round, skip, words - skip);
        }
        /* What was freed is let go when the next one is made. */
        EXPECT(&s.e, tiara_gpu_exports_count() == 1);
        gpu_barrier(&s.e, group);
        gpu_vmm_free(&s.e, &vmm);
    }
    kept = gpu_descriptors();
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) <= 5 * (group->size - 1));
    tiara_gpu_imports_close(s.imports);
    tiara_gpu_exports_close();
    EXPECT(&s.e, kept > before && gpu_descriptors() == before);
    EXPECT(&s.e, !gpu_is_standin() || gpu_free_bytes() == available);
    s.imports = NULL;
    return share_end(&s);
}

START_TEST(test_share_mapped_memory_by_descriptor)
{
    ck_assert_int_eq(tiara_procs_run(RANKS, rank_vmm, NULL), 0);
}
END_TEST

/* A process of another number or start cannot be meant, and nothing of it is taken. */
static int rank_impostor(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_import *import;
    struct tiara_gpu_export from;
    struct gpu_vmm vmm;
    struct share s;
    void *at;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    gpu_vmm_make(&s.e, &vmm, s.device, 1, true);
    exchange(&s, (void *)(uintptr_t)vmm.base, 8);
    for (int i = 0; i < 4; i++) {
        from = s.all[1 - rank];
        from.start += i == 0;
        from.pid_space += i == 1;
        from.pid += i == 2 ? 1 << 22 : 0; /* beyond the largest */
        from.fd += i == 3 ? 1000 : 0;
        EXPECT(&s.e, tiara_gpu_import(s.imports, &from, &import, &at) == TIARA_ERR_UNSUPPORTED);
    }
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == 0);
    /* Nor is oneself. */
    EXPECT(&s.e, tiara_gpu_import(s.imports, &s.all[rank], &import, &at) == TIARA_ERR_UNSUPPORTED);
    EXPECT(&s.e, tiara_gpu_import(s.imports, &s.all[1 - rank], &import, &at) == TIARA_OK);
    gpu_barrier(&s.e, group);
    gpu_vmm_free(&s.e, &vmm);
    return share_end(&s); /* the import is still in use: close drops it */
}

START_TEST(test_share_only_the_process_that_is_meant)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_impostor, NULL), 0);
}
END_TEST

/* ---- memory that has no handle ---- */

static int rank_none(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_import *import;
    struct gpu_vmm vmm;
    void *pool = NULL, *at;
    uint64_t host = 0;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    EXPECT_CUDA(&s.e, cudaMallocAsync(&pool, BYTES, NULL));
    EXPECT_CUDA(&s.e, cudaStreamSynchronize(NULL));
    gpu_vmm_make(&s.e, &vmm, s.device, 2, false);
    for (int i = 0; i < 3; i++) {
        const void *what[] = {pool, &host, (void *)(uintptr_t)vmm.base};

        exchange(&s, what[i], 8);
        EXPECT(&s.e, s.all[1 - rank].kind == TIARA_GPU_SHARE_NONE);
        EXPECT(&s.e,
            tiara_gpu_import(s.imports, &s.all[1 - rank], &import, &at) == TIARA_ERR_UNSUPPORTED);
    }
    EXPECT(&s.e, tiara_gpu_exports_count() == 0);
    gpu_vmm_free(&s.e, &vmm);
    EXPECT_CUDA(&s.e, cudaFreeAsync(pool, NULL));
    EXPECT_CUDA(&s.e, cudaStreamSynchronize(NULL));
    return share_end(&s);
}

START_TEST(test_share_pool_and_host_memory_have_no_handle)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_none, NULL), 0);
}
END_TEST

/* ---- buffers that come and go ---- */

#define MANY 10000

/* Each buffer is freed after its use, and the next one mostly has its address: what is read is
 * never the old one. */
static int rank_many(int rank, const struct tiara_xport_group *group, void *arg)
{
    int before, most = 0;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    before = gpu_descriptors();
    for (int i = 0; i < MANY && s.e.failures == 0; i++) {
        uint64_t *at = NULL;

        EXPECT_CUDA(&s.e, cudaMalloc((void **)&at, 4096u << i % 3));
        gpu_fill(&s.e, at, rank + i, 16);
        if (!exchange(&s, at + 3, 100))
            break;
        import_check(&s, &s.all[1 - rank], 1 - rank + i, 3, 12);
        if (tiara_gpu_imports_count(s.imports) > most)
            most = tiara_gpu_imports_count(s.imports);
        gpu_barrier(&s.e, group);
        EXPECT_CUDA(&s.e, cudaFree(at));
    }
    EXPECT(&s.e, most <= TIARA_GPU_SHARE_KEPT && tiara_gpu_exports_count() <= 128);
    /* The cache, a record and a list entry for each mapping. */
    EXPECT(&s.e, tiara_alloc_live() <= TIARA_GPU_SHARE_KEPT + 3);
    EXPECT(&s.e, gpu_descriptors() <= before + 2 * TIARA_GPU_SHARE_KEPT);
    return share_end(&s);
}

START_TEST(test_share_many_buffers_do_not_pile_up)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_many, NULL), 0);
}
END_TEST

#define HELD (2 * TIARA_GPU_SHARE_KEPT)

/* Mappings in use stay, however many; unused ones go, the oldest first. */
static int rank_holds(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_import *import[HELD];
    static struct tiara_gpu_export peer[HELD];
    uint64_t *at[HELD];
    void *mapped[HELD], *again;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    for (int i = 0; i < HELD; i++) {
        EXPECT_CUDA(&s.e, cudaMalloc((void **)&at[i], 4096));
        gpu_fill(&s.e, at[i], rank + i, 512);
        exchange(&s, at[i], 4096);
        peer[i] = s.all[1 - rank];
        if (!EXPECT(
                &s.e, tiara_gpu_import(s.imports, &peer[i], &import[i], &mapped[i]) == TIARA_OK))
            return s.e.failures;
    }
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == HELD);
    for (int i = 0; i < HELD; i++)
        EXPECT(&s.e, gpu_is_filled(mapped[i], 1 - rank + i, 0, 512));
    /* All but the oldest. */
    for (int i = 1; i < HELD; i++)
        tiara_gpu_import_drop(s.imports, import[i]);
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == TIARA_GPU_SHARE_KEPT + 1);
    EXPECT(&s.e, gpu_is_filled(mapped[0], 1 - rank, 0, 512));
    tiara_gpu_import_drop(s.imports, import[0]);
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == TIARA_GPU_SHARE_KEPT);
    /* The last ones are there still, at their addresses; twice at once, too. */
    for (int i = HELD - TIARA_GPU_SHARE_KEPT; i < HELD; i++) {
        EXPECT(&s.e, tiara_gpu_import(s.imports, &peer[i], &import[0], &again) == TIARA_OK);
        EXPECT(&s.e, again == mapped[i]);
        EXPECT(&s.e, tiara_gpu_import(s.imports, &peer[i], &import[1], &again) == TIARA_OK);
        EXPECT(&s.e, again == mapped[i]);
        tiara_gpu_import_drop(s.imports, import[0]);
        EXPECT(&s.e, gpu_is_filled(again, 1 - rank + i, 0, 512));
        tiara_gpu_import_drop(s.imports, import[1]);
    }
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == TIARA_GPU_SHARE_KEPT);
    gpu_barrier(&s.e, group);
    for (int i = 0; i < HELD; i++)
        EXPECT_CUDA(&s.e, cudaFree(at[i]));
    return share_end(&s);
}

START_TEST(test_share_mappings_in_use_stay)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_holds, NULL), 0);
}
END_TEST

/*
 * Two node objects of a process share a mapping; one that is closed takes nothing from the other.
 */
static int rank_two_caches(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_import *import[2];
    struct tiara_gpu_imports *second = NULL;
    void *mapped[2] = {NULL, NULL};
    uint64_t *at = NULL;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    EXPECT(&s.e, tiara_gpu_imports_open(&second, s.device) == TIARA_OK);
    EXPECT_CUDA(&s.e, cudaMalloc((void **)&at, BYTES));
    gpu_fill(&s.e, at, rank, WORDS);
    exchange(&s, at, BYTES);
    EXPECT(&s.e, tiara_gpu_import(s.imports, &s.all[1 - rank], &import[0], &mapped[0]) == TIARA_OK);
    EXPECT(&s.e, tiara_gpu_import(second, &s.all[1 - rank], &import[1], &mapped[1]) == TIARA_OK);
    EXPECT(&s.e, mapped[0] == mapped[1] && tiara_gpu_imports_count(second) == 1);
    tiara_gpu_imports_close(second);
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == 1);
    EXPECT(&s.e, gpu_is_filled(mapped[0], 1 - rank, 0, WORDS));
    tiara_gpu_import_drop(s.imports, import[0]);
    gpu_barrier(&s.e, group);
    EXPECT_CUDA(&s.e, cudaFree(at));
    return share_end(&s);
}

START_TEST(test_share_node_objects_share_mappings)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_two_caches, NULL), 0);
}
END_TEST

/* ---- failures ---- */

/* The call of rank 1 that fails, once; what rank 1 then gets of an import; whether its export has
 * no handle instead. */
static const struct {
    const char *fail;
    bool vmm;
    enum tiara_err err;
    bool no_handle;
} failures[] = {
    {"cudaIpcGetMemHandle:1", false, TIARA_OK, true},
    {"cudaIpcOpenMemHandle:1", false, TIARA_ERR_UNSUPPORTED, false},
    {"cuMemRetainAllocationHandle:1", true, TIARA_OK, true},
    {"cuMemExportToShareableHandle:1", true, TIARA_OK, true},
    {"cuMemImportFromShareableHandle:1", true, TIARA_ERR_UNSUPPORTED, false},
    /* The first one is the test's own. */
    {"cuMemGetAllocationGranularity:2", true, TIARA_ERR_NOMEM, false},
    {"cuMemAddressReserve:2", true, TIARA_ERR_NOMEM, false},
    {"cuMemMap:2", true, TIARA_ERR_UNSUPPORTED, false},
    {"cuMemSetAccess:2", true, TIARA_ERR_UNSUPPORTED, false},
    {"cuMemRelease:2", true, TIARA_OK, false},
};

static int rank_fails(int rank, const struct tiara_xport_group *group, void *arg)
{
    int i = *(const int *)arg, before;
    struct tiara_gpu_import *import;
    struct gpu_vmm vmm = {0};
    void *at = NULL, *mapped = NULL;
    struct share s;

    if (rank == 1)
        setenv("STANDIN_FAIL", failures[i].fail, 1);
    if (!share_begin(&s, rank, group) || !gpu_is_standin())
        return s.e.failures;
    if (failures[i].vmm)
        gpu_vmm_make(&s.e, &vmm, s.device, 1, true);
    else
        EXPECT_CUDA(&s.e, cudaMalloc(&at, BYTES));
    at = failures[i].vmm ? (void *)(uintptr_t)vmm.base : at;
    gpu_fill(&s.e, at, rank, WORDS);
    if (exchange(&s, at, BYTES)) {
        EXPECT(&s.e, (s.all[1].kind == TIARA_GPU_SHARE_NONE) == failures[i].no_handle);
        EXPECT(&s.e, s.all[0].kind != TIARA_GPU_SHARE_NONE);
    }
    before = gpu_descriptors();
    if (rank == 1 && failures[i].err != TIARA_OK) {
        EXPECT(&s.e, tiara_gpu_import(s.imports, &s.all[0], &import, &mapped) == failures[i].err);
        EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == 0);
        EXPECT(&s.e, gpu_descriptors() == before);
        EXPECT(&s.e, cudaGetLastError() == cudaSuccess);
    }
    /* It was one failure: now it works. */
    if (rank == 1)
        import_check(&s, &s.all[0], 0, 0, WORDS);
    gpu_barrier(&s.e, group);
    if (failures[i].vmm)
        gpu_vmm_free(&s.e, &vmm);
    else
        EXPECT_CUDA(&s.e, cudaFree(at));
    return share_end(&s);
}

START_TEST(test_share_failing_calls)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_fails, &_i), 0);
}
END_TEST

/* A driver without a function: nothing can be shared, and nothing is an error. */
static int rank_lacks(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct gpu_vmm vmm;
    struct share s;

    (void)arg;
    setenv("STANDIN_FAIL", "cudaGetDriverEntryPointByVersion:4", 1);
    if (!share_begin(&s, rank, group) || !gpu_is_standin())
        return s.e.failures;
    gpu_vmm_make(&s.e, &vmm, s.device, 1, true);
    exchange(&s, (void *)(uintptr_t)vmm.base, 8);
    EXPECT(&s.e, s.all[1 - rank].kind == TIARA_GPU_SHARE_NONE);
    gpu_vmm_free(&s.e, &vmm);
    return share_end(&s);
}

START_TEST(test_share_old_driver)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_lacks, NULL), 0);
}
END_TEST

/* Out of private memory at any place. */
static int rank_no_memory(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_imports *imports = NULL;
    struct tiara_gpu_import *import;
    void *at = NULL, *mapped = NULL;
    enum tiara_err err;
    struct share s;

    (void)arg;
    if (!share_begin(&s, rank, group))
        return s.e.failures;
    EXPECT_CUDA(&s.e, cudaMalloc(&at, BYTES));
    gpu_fill(&s.e, at, rank, WORDS);
    exchange(&s, at, BYTES);
    for (uint64_t n = 1; n < 3; n++) {
        tiara_alloc_fail_after(n);
        err = tiara_gpu_import(s.imports, &s.all[1 - rank], &import, &mapped);
        tiara_alloc_fail_after(0);
        EXPECT(&s.e, err == TIARA_ERR_NOMEM && tiara_gpu_imports_count(s.imports) == 0);
        tiara_gpu_imports_close(s.imports);
        EXPECT(&s.e, tiara_alloc_live() == 0);
        EXPECT(&s.e, tiara_gpu_imports_open(&s.imports, s.device) == TIARA_OK);
    }
    tiara_alloc_fail_after(1);
    EXPECT(&s.e, tiara_gpu_imports_open(&imports, s.device) == TIARA_ERR_NOMEM);
    tiara_alloc_fail_after(0);
    import_check(&s, &s.all[1 - rank], 1 - rank, 0, WORDS);
    gpu_barrier(&s.e, group);
    EXPECT_CUDA(&s.e, cudaFree(at));
    return share_end(&s);
}

START_TEST(test_share_out_of_memory)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_no_memory, NULL), 0);
}
END_TEST

/* A device that has no access to the exporter's. */
static int rank_unlinked(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_gpu_import *import;
    void *at = NULL, *mapped;
    struct gpu_vmm vmm;
    struct share s;

    (void)arg;
    setenv("STANDIN_DEVICES", "2", 1);
    setenv("STANDIN_PEERS", "none", 1);
    if (!share_begin(&s, rank, group) || !gpu_is_standin())
        return s.e.failures;
    EXPECT_CUDA(&s.e, cudaMalloc(&at, BYTES));
    gpu_vmm_make(&s.e, &vmm, s.device, 1, true);
    for (int i = 0; i < 2; i++) {
        exchange(&s, i == 0 ? at : (void *)(uintptr_t)vmm.base, 8);
        EXPECT(&s.e, tiara_gpu_import(s.imports, &s.all[1 - rank], &import, &mapped) ==
                         TIARA_ERR_UNSUPPORTED);
    }
    EXPECT(&s.e, tiara_gpu_imports_count(s.imports) == 0);
    gpu_barrier(&s.e, group);
    gpu_vmm_free(&s.e, &vmm);
    EXPECT_CUDA(&s.e, cudaFree(at));
    return share_end(&s);
}

START_TEST(test_share_without_link)
{
    ck_assert_int_eq(tiara_procs_run(2, rank_unlinked, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("share");
    TCase *all = tcase_create("all");

    tcase_add_test(all, test_share_peers_read_in_place);
    tcase_add_test(all, test_share_mapped_memory_by_descriptor);
    tcase_add_test(all, test_share_only_the_process_that_is_meant);
    tcase_add_test(all, test_share_pool_and_host_memory_have_no_handle);
    tcase_add_test(all, test_share_many_buffers_do_not_pile_up);
    tcase_add_test(all, test_share_mappings_in_use_stay);
    tcase_add_test(all, test_share_node_objects_share_mappings);
    tcase_add_loop_test(
        all, test_share_failing_calls, 0, (int)(sizeof failures / sizeof failures[0]));
    tcase_add_test(all, test_share_old_driver);
    tcase_add_test(all, test_share_out_of_memory);
    tcase_add_test(all, test_share_without_link);
    suite_add_tcase(suite, all);
    return tiara_test_run(suite, CK_NOFORK);
}
