/*
 * Topology from made-up facts: layouts, crowded machines, drawings; and the facts about this
 * process against what the system says in another way.
 */
#include "test/harness/test.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "topo/topo.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RANKS 64

static struct tiara_topo_facts facts[MAX_RANKS];

/* A rank on @node of @machine that may run on cores @first .. @first + @ncores - 1. */
static void fact_set(int rank, uint64_t machine, uint64_t node, int first, int ncores, int numa)
{
    struct tiara_topo_facts *f = &facts[rank];

    memset(f, 0, sizeof(*f));
    f->machine = machine;
    f->node = machine * 1000 + node;
    f->cores = ncores;
    f->numa = numa;
    for (int cpu = first; cpu < first + ncores && cpu < TIARA_TOPO_CPUS; cpu++)
        f->cpus[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    snprintf(f->host, sizeof(f->host), "n%d", (int)node);
}

static void share_check(int nranks, int rank, int ranks, int cores)
{
    int ranks_out = -1, cores_out = -1;

    tiara_topo_share(facts, nranks, rank, &ranks_out, &cores_out);
    ck_assert_int_eq(ranks_out, ranks);
    ck_assert_int_eq(cores_out, cores);
}

START_TEST(test_topo_share_counts_machines_and_not_nodes)
{
    /* two virtual nodes on machine 1, which has 2 cores; one rank alone on machine 2 */
    fact_set(0, 1, 0, 0, 2, 0);
    fact_set(1, 1, 0, 0, 2, 0);
    fact_set(2, 1, 1, 0, 2, 0);
    fact_set(3, 2, 2, 0, 2, 0);
    fact_set(4, 1, 1, 0, 2, 0);
    share_check(5, 0, 4, 2);
    share_check(5, 4, 4, 2);
    share_check(5, 3, 1, 2);
}
END_TEST

START_TEST(test_topo_share_unites_cores)
{
    /* bound to one core each, two of them to the same one, one to many */
    fact_set(0, 1, 0, 0, 1, 0);
    fact_set(1, 1, 0, 100, 1, 0);
    fact_set(2, 1, 0, 100, 1, 0);
    fact_set(3, 1, 0, 1023, 1, 0);
    share_check(4, 1, 4, 3);
    fact_set(2, 1, 0, 90, 20, 0);
    share_check(4, 1, 4, 22);
}
END_TEST

START_TEST(test_topo_share_unknown_or_many_cores_use_the_counts)
{
    fact_set(0, 1, 0, 0, 0, -1);
    share_check(1, 0, 1, 1);
    facts[0].cores = 6;
    share_check(1, 0, 1, 6);
    /* on cores that the set cannot name */
    fact_set(0, 1, 0, 1000, 100, -1);
    fact_set(1, 1, 0, 1000, 100, -1);
    share_check(2, 1, 2, 100);
}
END_TEST

START_TEST(test_topo_share_counts_a_job_of_more_ranks_than_cores)
{
    /* of four ranks on two cores, two */
    fact_set(0, 1, 0, 0, 2, 0);
    fact_set(1, 1, 0, 0, 2, 0);
    fact_set(2, 2, 0, 0, 2, 0);
    facts[1].job_ranks = 4;
    share_check(3, 0, 4, 2);
    share_check(3, 2, 1, 2);
}
END_TEST

/* Of a process that has this variable of its starter, and node @slurm_node in a job of Slurm's. */
static int job_ranks_of(const char *name, const char *value, const char *slurm_node)
{
    struct tiara_topo_facts f;

    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    unsetenv("MPI_LOCALNRANKS");
    unsetenv("MV2_COMM_WORLD_LOCAL_SIZE");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    setenv(name, value, 1);
    setenv("SLURM_NODEID", slurm_node, 1);
    tiara_topo_local(&f);
    return f.job_ranks;
}

START_TEST(test_topo_local_knows_of_a_job_of_more_ranks_than_cores)
{
    const char *slurm = "SLURM_STEP_TASKS_PER_NODE";

    ck_assert_int_eq(job_ranks_of("OMPI_COMM_WORLD_LOCAL_SIZE", "70000", "0"), 70000);
    ck_assert_int_eq(job_ranks_of("MPI_LOCALNRANKS", "70000", "0"), 70000);
    ck_assert_int_eq(job_ranks_of("MPI_LOCALNRANKS", "1", "0"), 0);
    ck_assert_int_eq(job_ranks_of("MPI_LOCALNRANKS", "", "0"), 0);
    ck_assert_int_eq(job_ranks_of(slurm, "70000(x2),1,80000", "1"), 70000);
    ck_assert_int_eq(job_ranks_of(slurm, "70000(x2),1,80000", "2"), 0);
    ck_assert_int_eq(job_ranks_of(slurm, "70000(x2),1,80000", "3"), 80000);
    ck_assert_int_eq(job_ranks_of(slurm, "70000(x2),1,80000", "4"), 0);
}
END_TEST

START_TEST(test_topo_layout_follows_the_nodes_of_the_facts)
{
    static const int node_of[] = {0, 1, 2, 0, 1, 2, 0};
    struct tiara_layout l;
    char why[200] = "x";

    for (int rank = 0; rank < 7; rank++)
        fact_set(rank, 5, (uint64_t)(40 - rank % 3), 0, 2, 0);
    ck_assert_int_eq(tiara_topo_layout(&l, facts, 7, "", why, sizeof(why)), TIARA_OK);
    ck_assert_str_eq(why, "");
    ck_assert_int_eq(l.nnodes, 3);
    ck_assert_int_eq(memcmp(l.node_of, node_of, sizeof(node_of)), 0);
    ck_assert(!tiara_layout_is_block(&l));
    tiara_layout_fini(&l);
}
END_TEST

START_TEST(test_topo_layout_text_goes_before_the_facts)
{
    struct tiara_layout l;
    char why[200];

    for (int rank = 0; rank < 4; rank++)
        fact_set(rank, 1, 0, 0, 2, 0);
    ck_assert_int_eq(tiara_topo_layout(&l, facts, 4, "2x2", NULL, 0), TIARA_OK);
    ck_assert_int_eq(l.nnodes, 2);
    tiara_layout_fini(&l);
    ck_assert_int_eq(tiara_topo_layout(&l, facts, 4, "2x3", why, sizeof(why)), TIARA_ERR_ARG);
    ck_assert_str_eq(why, "layout \"2x3\" has 6 ranks, the communicator has 4");
    tiara_layout_fini(&l);
}
END_TEST

START_TEST(test_topo_layout_out_of_memory_leaves_nothing)
{
    uint64_t live = tiara_alloc_live(), n = 1;
    enum tiara_err err = TIARA_ERR_NOMEM;

    fact_set(0, 1, 0, 0, 2, 0);
    fact_set(1, 1, 1, 0, 2, 0);
    for (; err != TIARA_OK; n++) {
        struct tiara_layout l;

        tiara_alloc_fail_after(n);
        err = tiara_topo_layout(&l, facts, 2, "", NULL, 0);
        tiara_alloc_fail_after(0);
        ck_assert(err == TIARA_OK || err == TIARA_ERR_NOMEM);
        tiara_layout_fini(&l);
        ck_assert_uint_eq(tiara_alloc_live(), live);
    }
    ck_assert_uint_eq(n, 5);
}
END_TEST

/* Draws the layout @layout_text over the first facts (or without), which must give @expected. */
static void drawing_check(
    const char *layout_text, const struct tiara_topo_facts *given, const char *expected)
{
    struct tiara_layout l;
    char text[8192];

    ck_assert_int_eq(tiara_layout_parse(&l, layout_text, 0, NULL, 0), TIARA_OK);
    ck_assert_uint_eq(tiara_topo_draw(&l, given, text, sizeof(text)), strlen(expected));
    ck_assert_str_eq(text, expected);
    for (size_t size = 0; size < strlen(expected) + 2; size += 7) {
        struct tiara_test_guarded guarded;

        tiara_test_guarded_init(&guarded, size, 3);
        ck_assert_uint_eq(tiara_topo_draw(&l, given, (char *)guarded.data, size), strlen(expected));
        if (size > 0)
            ck_assert_int_eq(strncmp((char *)guarded.data, expected, size - 1), 0);
        ck_assert(tiara_test_guarded_is_intact(&guarded));
        tiara_test_guarded_fini(&guarded);
    }
    tiara_layout_fini(&l);
}

START_TEST(test_topo_draw_small_layouts)
{
    drawing_check("1x3", NULL, "node 0  [0] [1] [2]\n");
    drawing_check("2x2:rr", NULL,
        "network\n"
        " +-- node 0  [0]* [2]\n"
        " +-- node 1  [1]* [3]\n"
        "* first leader of its node: speaks on the network\n");
    fact_set(0, 1, 0, 0, 2, 0);
    fact_set(1, 1, 0, 0, 2, 0);
    fact_set(2, 1, 1, 5, 1, -1);
    drawing_check("2+1", facts,
        "network\n"
        " +-- node 0  n0 (2 cores, NUMA 0)  [0]* [1]\n"
        " +-- node 1  n1 (1 core)           [2]*\n"
        "* first leader of its node: speaks on the network\n");
}
END_TEST

START_TEST(test_topo_draw_marks_numa_nodes)
{
    fact_set(0, 1, 0, 0, 2, 0);
    fact_set(1, 1, 0, 2, 2, 0);
    fact_set(2, 1, 0, 4, 2, 1);
    fact_set(3, 1, 0, 6, 2, 1);
    fact_set(4, 1, 0, 0, 8, -1);
    drawing_check(
        "1x5", facts, "node 0  n0 (8 cores)  NUMA 0: [0] [1] NUMA 1: [2] [3] NUMA ?: [4]\n");
    for (int rank = 0; rank < 5; rank++)
        facts[rank].numa = -1;
    drawing_check("1x5", facts, "node 0  n0 (8 cores)  [0] [1] [2] [3] [4]\n");
}
END_TEST

START_TEST(test_topo_draw_leaves_out_the_middle)
{
    char expected[4096];
    int length = snprintf(expected, sizeof(expected), "network\n");

    for (int node = 0; node < 14; node++)
        length += snprintf(expected + length, sizeof(expected) - (size_t)length,
            " +-- node %-2d  [%d]*\n", node, node);
    snprintf(expected + length, sizeof(expected) - (size_t)length,
        " |   ... 25 more nodes ...\n"
        " +-- node 39  [39]*\n"
        "* first leader of its node: speaks on the network\n");
    drawing_check("40x1", NULL, expected);

    drawing_check("1x16", NULL,
        "node 0  [0] [1] [2] [3] [4] [5] [6] [7] [8] [9] [10] [11] [12] [13] [14] [15]\n");
    drawing_check("1x17", NULL,
        "node 0  [0] [1] [2] [3] [4] [5] [6] [7] [8] [9] [10] [11] [12] [13] ... 2 more ... "
        "[16]\n");
}
END_TEST

START_TEST(test_topo_local_agrees_with_the_system)
{
    struct tiara_topo_facts a, b;
    char host[TIARA_TOPO_HOST] = "";
    cpu_set_t set;

    tiara_topo_local(&a);
    tiara_topo_local(&b);
    ck_assert_int_eq(memcmp(&a, &b, sizeof(a)), 0);
    ck_assert_uint_eq(a.process, tiara_cookie_process());
    gethostname(host, sizeof(host) - 1);
    ck_assert_str_eq(a.host, host);
    ck_assert(a.machine != 0 && a.node != 0 && a.machine != a.node);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        ck_assert_int_eq(a.cores, CPU_COUNT(&set));
        ck_assert_int_eq(tiara_topo_cpus_count(a.cpus), CPU_COUNT(&set));
        for (int cpu = 0; cpu < TIARA_TOPO_CPUS; cpu++)
            ck_assert_int_eq((a.cpus[cpu / 64] >> (cpu % 64)) & 1, CPU_ISSET(cpu, &set) != 0);
    }
}
END_TEST

/* Where a made-up /sys/devices/system/node is built. */
static char fake[] = "/tmp/tiara-u_topo-XXXXXX";
static const struct {
    const char *node, *cpulist;
} fake_nodes[] = {{"node0", "0-3,8-11\n"}, {"node1", "4-7,12-15\n"}, {"node2", "\n"},
    {"node17", "64\n"}, {"nodes", "0-99\n"}};

static void fake_build(void)
{
    char path[200];

    ck_assert_ptr_nonnull(mkdtemp(fake));
    for (size_t i = 0; i < sizeof(fake_nodes) / sizeof(fake_nodes[0]); i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", fake, fake_nodes[i].node);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/%s/cpulist", fake, fake_nodes[i].node);
        file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(fake_nodes[i].cpulist, file);
        fclose(file);
    }
}

static void fake_remove(void)
{
    char path[200];

    for (size_t i = 0; i < sizeof(fake_nodes) / sizeof(fake_nodes[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/cpulist", fake, fake_nodes[i].node);
        unlink(path);
        snprintf(path, sizeof(path), "%s/%s", fake, fake_nodes[i].node);
        rmdir(path);
    }
    rmdir(fake);
}

/* The NUMA node found for a rank on @ncores cores from @first. */
static int numa_of(int first, int ncores)
{
    fact_set(0, 1, 0, first, ncores, -1);
    return tiara_topo_numa_find(fake, facts[0].cpus);
}

START_TEST(test_topo_numa_is_found_where_all_cores_lie)
{
    ck_assert_int_eq(numa_of(0, 4), 0);
    ck_assert_int_eq(numa_of(11, 1), 0);
    ck_assert_int_eq(numa_of(4, 4), 1);
    ck_assert_int_eq(numa_of(15, 1), 1);
    ck_assert_int_eq(numa_of(64, 1), 17);
    ck_assert_int_eq(numa_of(0, 5), -1);
    ck_assert_int_eq(numa_of(3, 1), 0);
    ck_assert_int_eq(numa_of(16, 1), -1);
    ck_assert_int_eq(numa_of(0, 0), -1);
    ck_assert_int_eq(tiara_topo_numa_find("/nonexistent", facts[0].cpus), -1);
}
END_TEST

START_TEST(test_topo_hardware_says_something)
{
    char text[8192], start[10];
    size_t length = tiara_topo_hardware(text, sizeof(text));

    ck_assert_uint_eq(length, strlen(text));
    ck_assert_uint_gt(length, 20);
    ck_assert_uint_eq(tiara_topo_hardware(start, sizeof(start)), length);
    ck_assert_int_eq(strncmp(start, text, sizeof(start) - 1), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topo");
    TCase *tcase = tcase_create("facts");
    TCase *numa = tcase_create("numa");

    tcase_add_test(tcase, test_topo_share_counts_machines_and_not_nodes);
    tcase_add_test(tcase, test_topo_share_unites_cores);
    tcase_add_test(tcase, test_topo_share_unknown_or_many_cores_use_the_counts);
    tcase_add_test(tcase, test_topo_share_counts_a_job_of_more_ranks_than_cores);
    tcase_add_test(tcase, test_topo_local_knows_of_a_job_of_more_ranks_than_cores);
    tcase_add_test(tcase, test_topo_layout_follows_the_nodes_of_the_facts);
    tcase_add_test(tcase, test_topo_layout_text_goes_before_the_facts);
    tcase_add_test(tcase, test_topo_layout_out_of_memory_leaves_nothing);
    tcase_add_test(tcase, test_topo_draw_small_layouts);
    tcase_add_test(tcase, test_topo_draw_marks_numa_nodes);
    tcase_add_test(tcase, test_topo_draw_leaves_out_the_middle);
    tcase_add_test(tcase, test_topo_local_agrees_with_the_system);
    tcase_add_test(tcase, test_topo_hardware_says_something);
    suite_add_tcase(suite, tcase);
    /* unchecked: built and removed by the parent, also when a test dies */
    tcase_add_unchecked_fixture(numa, fake_build, fake_remove);
    tcase_add_test(numa, test_topo_numa_is_found_where_all_cores_lie);
    suite_add_tcase(suite, numa);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
