/*
 * TIARA_Iallreduce: many outstanding of all sizes, completed in any order, beside blocking calls
 * and on many communicators, before and after what they need is set up; own types, own operators;
 * the same bits as the blocking call; nobody is held up by a rank that waits.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 5 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_NET=socket */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 4 TIARA_LAYOUT=3+1 TIARA_PROGRESS=call TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 TIARA_PROGRESS=thread */
/* tiara-test: mpirun 3 TIARA_REPRODUCIBLE=1 */
/* tiara-test: mpirun 4 TIARA_CHUNK=4k TIARA_SLOTS=1 */
/* tiara-test: mpirun 2 TIARA_TEST_MEMORY=device */
/* tiara-test: mpirun 4 TIARA_TEST_MEMORY=device TIARA_LAYOUT=2x2 TIARA_PROGRESS=call */
/* tiara-test: mpirun 3 TIARA_TEST_MEMORY=mixed */
/* tiara-test: vcluster 2x2 */
/* tiara-test: vcluster 2x2 TIARA_PROGRESS=call */
#include "m_requests_case.h"
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 100
};

static uint64_t salt = 1; /* of the next call; alike on all ranks */

/* @n calls on @comm, which each rank completes in an order of its own. */
static void check_any_order(MPI_Comm comm, int n)
{
    struct mr_job jobs[MOST];
    int order[MOST];
    mt_note("%d outstanding", n);
    mr_start_all(jobs, n, comm, salt);
    mr_shuffle(order, n, salt);
    salt += (uint64_t)n;
    for (int k = 0; k < n; k++)
        mr_wait(&jobs[order[k]]);
}

/* Without set-up, after a blocking call made it, and after TIARA_Comm_prepare. */
START_TEST(test_requests_complete_in_any_order)
{
    static const int numbers[] = {1, 2, 7, 30};
    for (int way = 0; way < 3; way++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        if (way == 2)
            TIARA_Comm_prepare(comm);
        for (unsigned k = 0; k < COUNT_OF(numbers); k++) {
            check_any_order(comm, numbers[k]);
            struct mt_case c = mr_case(comm, salt++);
            if (way == 1)
                mt_allreduce(&c);
        }
        MPI_Comm_free(&comm);
    }
    mt_agree();
}
END_TEST

/* What the tests of this program are about happens at all: on one node, and where the program
 * drives the calls itself. */
START_TEST(test_requests_are_served)
{
    MPI_Comm node;
    int nlocal;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &nlocal);
    MPI_Comm_free(&node);
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    bool one_node = nlocal == mt_size && !getenv("TIARA_LAYOUT");
    bool wanted = mt_size > 1 && !getenv("TIARA_TEST_MEMORY") && (one_node || mr_is_driven());
    mt_check(!wanted || mr_is_served(MPI_COMM_WORLD), "nonblocking calls are left to MPI");
    mt_agree();
}
END_TEST

/* A hundred small ones at once. */
START_TEST(test_requests_many_small_ones_are_right)
{
    struct mr_job jobs[MOST];
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (int round = 0; round < 3; round++) {
        int order[MOST];
        for (int k = 0; k < MOST; k++, salt++) {
            struct mt_case c = {.type = mt_type_find(MPI_INT),
                .oper = MT_SUM,
                .count = 1 + (size_t)k % 5,
                .seed = salt,
                .comm = MPI_COMM_WORLD};
            jobs[k] = mr_new(&c);
            mr_start(&jobs[k]);
        }
        mt_note("many small ones, round %d", round);
        mr_shuffle(order, MOST, salt);
        for (int k = 0; k < MOST; k++)
            mr_wait(&jobs[order[k]]);
    }
    mt_agree();
}
END_TEST

START_TEST(test_requests_go_with_blocking_calls)
{
    for (int round = 0; round < 15; round++) {
        struct mr_job jobs[3];
        int one = 1, sum = -1;
        mt_note("blocking calls, round %d", round);
        for (int k = 0; k < 3; k++) {
            struct mt_case c = mr_case(MPI_COMM_WORLD, salt++);
            mr_start_all(&jobs[k], 1, MPI_COMM_WORLD, salt++);
            mt_allreduce(&c);
        }
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        mt_check(sum == mt_size, "a call of MPI's gave %d", sum);
        for (int k = 2; k >= 0; k--)
            mr_wait(&jobs[k]);
    }
    mt_agree();
}
END_TEST

/* Open MPI 4.1 does not bear this of its own nonblocking calls, so they must be Tiara's here. */
START_TEST(test_requests_outlive_their_communicator)
{
    for (int round = 0; round < 8; round++) {
        struct mr_job jobs[4];
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        TIARA_Comm_prepare(comm);
        mt_note("freed communicator, round %d", round);
        int n = mr_is_served(comm) ? 4 : 0;
        for (int k = 0; k < n; k++, salt++) {
            struct mt_case c = {.type = mt_type_find(MPI_DOUBLE),
                .oper = MT_SUM,
                .count = k % 2 ? 5 : 30000,
                .seed = salt,
                .comm = comm};
            jobs[k] = mr_new(&c);
            mr_start(&jobs[k]);
        }
        MPI_Comm_free(&comm);
        struct mt_case other = mr_case(MPI_COMM_WORLD, salt++);
        if (round % 2)
            mt_allreduce(&other);
        for (int k = n - 1; k >= 0; k--)
            mr_wait(&jobs[k]);
    }
    mt_agree();
}
END_TEST

/* As many communicators as fit, with two calls under way on each; ranks begin at different ones. */
START_TEST(test_requests_on_many_communicators_are_right)
{
    int n = mt_size > 2 || getenv("TIARA_TEST_MEMORY") ? 12 : 70;
    MPI_Comm comms[70];
    struct mr_job jobs[140];
    for (int k = 0; k < n; k++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, k % 2 ? -mt_rank : mt_rank, &comms[k]);
        MPI_Comm_set_errhandler(comms[k], MPI_ERRORS_RETURN);
        if (k % 3)
            TIARA_Comm_prepare(comms[k]);
    }
    for (int round = 0; round < 2; round++, salt += 2 * (uint64_t)n) {
        mt_note("many communicators, round %d", round);
        for (int i = 0; i < n; i++) {
            int k = (i + mt_rank) % n;
            mr_start_all(&jobs[2 * k], 2, comms[k], salt + 2 * (uint64_t)k);
        }
        for (int i = 2 * n - 1; i >= 0; i--)
            mr_wait(&jobs[(i + 3 * mt_rank) % (2 * n)]);
    }
    for (int k = 0; k < n; k++)
        MPI_Comm_free(&comms[k]);
    mt_agree();
}
END_TEST

/* Left and right letters: joined in rank order, by an operator without commutativity. */
struct word {
    int length;
    char text[28];
};

static void join_words(void *left, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++) {
        struct word *a = (struct word *)left + i, *b = (struct word *)inout + i, joined = *a;
        int room = (int)sizeof joined.text - a->length, take = b->length < room ? b->length : room;
        memcpy(joined.text + joined.length, b->text, (size_t)take);
        joined.length += take;
        *b = joined;
    }
}

START_TEST(test_requests_with_operators_of_the_program_are_right)
{
    static const int counts[] = {1, 40, 3000};
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (unsigned k = 0; k < COUNT_OF(counts); k++) {
        MPI_Datatype type;
        MPI_Op op;
        TIARA_Request request;
        size_t count = (size_t)counts[k], wrong = 0;
        struct mt_buf send = mt_buf_new(count * sizeof(struct word), 0);
        struct mt_buf recv = mt_buf_new_result(send.bytes, 0);
        const struct word *out = (struct word *)recv.data;
        for (size_t i = 0; i < count; i++)
            ((struct word *)send.data)[i] =
                (struct word){2, {(char)('A' + mt_rank), (char)('a' + i % 26)}};
        mt_note("words, count %zu", count);
        MPI_Type_contiguous((int)sizeof(struct word), MPI_BYTE, &type);
        MPI_Type_commit(&type);
        MPI_Op_create(join_words, 0, &op);
        int err = TIARA_Iallreduce(
            mt_buf_lend(&send), mt_buf_lend(&recv), counts[k], type, op, MPI_COMM_WORLD, &request);
        MPI_Type_free(&type);
        MPI_Op_free(&op);
        mt_check(err == MPI_SUCCESS, "error %d", err);
        TIARA_Wait(&request, MPI_STATUS_IGNORE);
        mt_buf_take(&recv);
        for (size_t i = 0; i < count; i++) {
            for (int r = 0; r < mt_size; r++)
                wrong += out[i].length != 2 * mt_size || out[i].text[2 * r] != 'A' + r ||
                         out[i].text[2 * r + 1] != (char)('a' + i % 26);
        }
        mt_check(wrong == 0, "count %zu: %zu letters are wrong", count, wrong);
        mt_buf_free(&send);
        mt_buf_free(&recv);
    }
    mt_agree();
}
END_TEST

/* Sums that depend on the order of addition: the same bits on all ranks, and where that is
 * promised, those of the blocking call. */
START_TEST(test_requests_give_the_same_bits)
{
    static const int counts[] = {1, 9, 300, 5000, 40001};
    bool promised = strcmp(TIARA_Variable("TIARA_REPRODUCIBLE"), "1") == 0;
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (unsigned k = 0; k < COUNT_OF(counts); k++) {
        size_t bytes = (size_t)counts[k] * sizeof(double);
        struct mt_buf send = mt_buf_new(bytes, 0), recv = mt_buf_new_result(bytes, 0),
                      blocking = mt_buf_new_result(bytes, 0);
        TIARA_Request request;
        mt_note("bits, count %d", counts[k]);
        for (int i = 0; i < counts[k]; i++)
            ((double *)send.data)[i] =
                (double)(mt_hash(mt_seed() + (uint64_t)mt_rank, (uint64_t)i) >> 12) / 3e15;
        TIARA_Iallreduce(mt_buf_lend(&send), mt_buf_lend(&recv), counts[k], MPI_DOUBLE, MPI_SUM,
            MPI_COMM_WORLD, &request);
        TIARA_Wait(&request, MPI_STATUS_IGNORE);
        mt_buf_take(&send);
        TIARA_Allreduce(mt_buf_lend(&send), mt_buf_lend(&blocking), counts[k], MPI_DOUBLE, MPI_SUM,
            MPI_COMM_WORLD);
        mt_buf_take(&recv);
        mt_buf_take(&blocking);
        mt_check(mt_same_bits(recv.data, bytes, mt_private), "count %d: ranks differ", counts[k]);
        mt_check(!promised || memcmp(recv.data, blocking.data, bytes) == 0,
            "count %d: the blocking call has other bits", counts[k]);
        mt_buf_free(&send);
        mt_buf_free(&recv);
        mt_buf_free(&blocking);
    }
    mt_agree();
}
END_TEST

/* Rank 0: start, wait, send. The others: start, receive, wait. */
START_TEST(test_requests_go_on_while_a_rank_waits_elsewhere)
{
    static const size_t counts[] = {1, 300, 4000, 150000};
    TIARA_Comm_prepare(MPI_COMM_WORLD);
    for (unsigned k = 0; k < COUNT_OF(counts) && !mr_is_driven(); k++) {
        struct mt_case c = {.type = mt_type_find(MPI_DOUBLE),
            .oper = MT_SUM,
            .count = counts[k],
            .seed = salt++,
            .comm = MPI_COMM_WORLD};
        struct mr_job job = mr_new(&c);
        int word = 0;
        mt_note("progress, count %zu", c.count);
        mr_start(&job);
        if (mt_rank > 0)
            MPI_Recv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mr_wait(&job);
        for (int r = 1; r < mt_size && mt_rank == 0; r++)
            MPI_Send(&word, 1, MPI_INT, r, 5, MPI_COMM_WORLD);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_requests", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_requests_complete_in_any_order);
    tcase_add_test(tests, test_requests_are_served);
    tcase_add_test(tests, test_requests_many_small_ones_are_right);
    tcase_add_test(tests, test_requests_go_with_blocking_calls);
    tcase_add_test(tests, test_requests_outlive_their_communicator);
    tcase_add_test(tests, test_requests_on_many_communicators_are_right);
    tcase_add_test(tests, test_requests_with_operators_of_the_program_are_right);
    tcase_add_test(tests, test_requests_give_the_same_bits);
    tcase_add_test(tests, test_requests_go_on_while_a_rank_waits_elsewhere);
    return mt_end();
}
