/*
 * Every algorithm, inter-node algorithm, number of leaders, chunk size and number of slots that can
 * be chosen by a variable: the result is right whether or not the choice fits the layout.
 */
/* tiara-test: mpirun 2 TIARA_ALGO=mpi */
/* tiara-test: mpirun 5 TIARA_ALGO=ring */
/* tiara-test: mpirun 5 TIARA_ALGO=tree */
/* tiara-test: mpirun 5 TIARA_ALGO=double-tree TIARA_CHUNK=16k */
/* tiara-test: mpirun 5 TIARA_ALGO=recursive-doubling */
/* tiara-test: mpirun 5 TIARA_ALGO=rabenseifner */
/* tiara-test: mpirun 3 TIARA_ALGO=reduce-bcast */
/* tiara-test: mpirun 3 TIARA_ALGO=chain */
/* tiara-test: mpirun 4 TIARA_ALGO=direct */
/* tiara-test: mpirun 4 TIARA_ALGO=direct TIARA_ONE_SHOT=64k */
/* tiara-test: mpirun 4 TIARA_ALGO=direct TIARA_ONE_SHOT=1 TIARA_CHUNK=1k TIARA_SLOTS=8 */
/* tiara-test: mpirun 4 TIARA_ALGO=node-ring */
/* tiara-test: mpirun 3 TIARA_ALGO=node-ring TIARA_CHUNK=1k TIARA_SLOTS=8 */
/* tiara-test: mpirun 4 TIARA_ALGO=node-ring TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_ALGO=hier TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_ALGO=direct TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_ALGO=ring TIARA_LAYOUT=2x2:rr */
/* tiara-test: mpirun 4 TIARA_ALGO=hier-chain TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_ALGO=hier TIARA_LAYOUT=2x2:rr TIARA_INTER=recursive-doubling
 * TIARA_LEADERS=1 */
/* tiara-test: mpirun 4 TIARA_ALGO=hier TIARA_LAYOUT=3+1 TIARA_INTER=rabenseifner TIARA_LEADERS=2 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=1+2+3 TIARA_INTER=tree TIARA_CHUNK=4k */
/* tiara-test: mpirun 6 TIARA_LAYOUT=1+2+3 TIARA_INTER=tree TIARA_CHUNK=4k TIARA_NET=socket */
/* tiara-test: mpirun 6 TIARA_LAYOUT=2x3:rr TIARA_INTER=ring TIARA_LEADERS=3 TIARA_SLOTS=1 */
/* tiara-test: mpirun 6 TIARA_LAYOUT=3x2 TIARA_INTER=reduce-bcast TIARA_LEADERS=100 TIARA_SLOTS=8
 * TIARA_CHUNK=2k */
/* tiara-test: mpirun 6 TIARA_LAYOUT=3x2 TIARA_INTER=double-tree TIARA_CHUNK=1g */
/*
 * tiara-test: mpirun 6 TIARA_LAYOUT=0,1,1,0,2,0 TIARA_INTER=direct TIARA_CHUNK=1 TIARA_TEST_SWEEP=0
 */
/* tiara-test: mpirun 2 TIARA_ISA=portable TIARA_CELL_STORE=plain TIARA_CMA=off */
/* tiara-test: mpirun 3 TIARA_ISA=avx2 TIARA_CELL_STORE=stream TIARA_CMA=on */
/* tiara-test: mpirun 2 TIARA_CELL_STORE=string TIARA_SPIN=0 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=direct
 * TIARA_ONE_SHOT=1m */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=direct
 * TIARA_ONE_SHOT=1 TIARA_CUDA_MAP=no */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ONE_SHOT=1 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=node-ring */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=node-ring
 * TIARA_CUDA_CELL=65536 TIARA_CHUNK=16k */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=ring */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_CUDA_CELL=65536
 * TIARA_CHUNK=16k */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_CUDA_CELL=65536
 * TIARA_CHUNK=16k TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_CUDA_AWARE=on */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2
 * TIARA_CUDA_AWARE=off STANDIN_PEERS=ring */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3+1 TIARA_ALGO=hier
 * TIARA_LEADERS=1 TIARA_INTER=recursive-doubling */
/* tiara-test: mpirun 6 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=3x2
 * TIARA_INTER=ring TIARA_SLOTS=4 TIARA_CHUNK=16k */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2:rr
 * TIARA_ALGO=hier-chain */
/*
 * tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_LAYOUT=2x2 TIARA_ALGO=ring
 */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 TIARA_ALGO=mpi */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=device TIARA_TEST_SWEEP=0 STANDIN_PEERS=none
 * TIARA_CUDA_CELL=65536 TIARA_CHUNK=16k */
#include "mpi_run.h"
#include "mpi_type.h"
#include "tiara.h"

START_TEST(test_algos_sums_of_all_sizes_are_right)
{
    unsigned rounds = mt_sweep() > 0 ? 3 : 1;
    for (unsigned round = 0; round < rounds; round++)
        mt_allreduce_all_sizes(MPI_COMM_WORLD, round);
    mt_agree();
}
END_TEST

/* Small enough for chunks of one byte: every element a chunk of its own. */
START_TEST(test_algos_every_count_up_to_the_chunk_and_beyond_is_right)
{
    for (size_t count = 0; count < 80; count++) {
        struct mt_case c = {.type = mt_type_find(MPI_INT),
            .oper = MT_SUM,
            .count = count,
            .in_place = count % 2,
            .seed = mt_seed() + count,
            .comm = MPI_COMM_WORLD};
        mt_allreduce(&c);
    }
    mt_agree();
}
END_TEST

/* The halves of an all-reduce, which have plans of their own. */
START_TEST(test_algos_scatter_then_gather_is_right)
{
    static const int blocks[] = {1, 5, 300, 20000};
    for (int k = 0; k < (mt_sweep() > 0 ? 4 : 3); k++) {
        size_t total = (size_t)blocks[k] * (size_t)mt_size;
        struct mt_case c = {.type = mt_type_find(MPI_LONG),
            .oper = MT_SUM,
            .count = total,
            .seed = mt_seed(),
            .comm = MPI_COMM_WORLD};
        struct mt_buf in = mt_buf_new(total * sizeof(long), 0),
                      out = mt_buf_new_result(total * sizeof(long), 0),
                      block = mt_buf_new_result((size_t)blocks[k] * sizeof(long), 0);
        mt_note("scatter and gather, block %d", blocks[k]);
        mt_fill(c.type, c.oper, c.seed, mt_rank, 0, total, in.data);
        void *middle = mt_buf_lend(&block);
        int err = TIARA_Reduce_scatter_block(
            mt_buf_lend(&in), middle, blocks[k], MPI_LONG, MPI_SUM, c.comm);
        mt_check(err == MPI_SUCCESS, "scatter of %d: error %d", blocks[k], err);
        err = TIARA_Allgather(
            middle, blocks[k], MPI_LONG, mt_buf_lend(&out), blocks[k], MPI_LONG, c.comm);
        mt_buf_take(&block);
        mt_buf_take(&out);
        mt_check(err == MPI_SUCCESS, "gather of %d: error %d", blocks[k], err);
        mt_verify(&c, mt_size, 0, total, out.data);
        mt_check(mt_buf_intact(&block) && mt_buf_intact(&out), "block %d: guards", blocks[k]);
        mt_buf_free(&in);
        mt_buf_free(&out);
        mt_buf_free(&block);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_algos", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_algos_sums_of_all_sizes_are_right);
    tcase_add_test(tests, test_algos_every_count_up_to_the_chunk_and_beyond_is_right);
    tcase_add_test(tests, test_algos_scatter_then_gather_is_right);
    return mt_end();
}
