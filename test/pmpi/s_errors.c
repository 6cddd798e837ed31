/*
 * Errors (MPI 4.0, section 9.3): what a wrong call returns is what plain MPI returns, by class, and
 * goes to the handler of the communicator it was made on; afterwards everything works. Plain MPI is
 * asked through its PMPI_ name.
 */
/* tiara-test: mpirun 4 */
/* tiara-test: mpirun 1 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 */
/* tiara-test: mpirun 3 TIARA_TEST_PRELOAD=1 */
/* tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_PMPI=verify */
#include "s_suite.h"

#include <stdio.h>

/* ---- wrong calls; each is made twice, by its MPI_ and by its PMPI_ name ---- */

enum call {
    C_ALLREDUCE,
    C_IALLREDUCE,
    C_REDUCE_SCATTER,
    C_ALLGATHER,
    NCALLS
};

static const char *const call_names[] = {"allreduce", "iallreduce", "reduce-scatter", "allgather"};

struct wrong {
    const char *what;
    const void *send;
    void *recv;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm comm;
};

static int make(enum call call, bool plain, const struct wrong *w)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int err;
    switch (call) {
    case C_ALLREDUCE:
        return (plain ? PMPI_Allreduce : MPI_Allreduce)(
            w->send, w->recv, w->count, w->type, w->op, w->comm);
    case C_REDUCE_SCATTER:
        return (plain ? PMPI_Reduce_scatter_block : MPI_Reduce_scatter_block)(
            w->send, w->recv, w->count, w->type, w->op, w->comm);
    case C_ALLGATHER:
        return (plain ? PMPI_Allgather : MPI_Allgather)(
            w->send, w->count, w->type, w->recv, w->count, w->type, w->comm);
    default:
        err = (plain ? PMPI_Iallreduce : MPI_Iallreduce)(
            w->send, w->recv, w->count, w->type, w->op, w->comm, &request);
        /* Some errors are found only here. */
        if (err == MPI_SUCCESS)
            err = (plain ? PMPI_Wait : MPI_Wait)(&request, MPI_STATUS_IGNORE);
        return err;
    }
}

/*
 * Open MPI 4.1 looks into a null communicator, and MPICH 4.0 copies a negative number of elements.
 */
static bool crashes(const struct wrong *w, enum call call)
{
#ifdef MPICH
    return w->count < 0 && call != C_ALLGATHER;
#else
    return w->comm == MPI_COMM_NULL && call == C_ALLGATHER;
#endif
}

static void check_usable(void)
{
    s_allreduce(MPI_COMM_WORLD, 5, 1, false);
    s_allreduce(MPI_COMM_WORLD, 3000, 2, true);
}

static void check_wrong(const struct wrong *w, enum call call)
{
    mt_note("%s in %s", w->what, call_names[call]);
    int plain = s_class(make(call, true, w)), mine = s_class(make(call, false, w));
    mt_check(mine == plain, "%s in %s: class %d, and plain MPI says %d", w->what, call_names[call],
        mine, plain);
    check_usable();
}

static double in[64], out[64 * 16];

START_TEST(test_errors_are_those_of_plain_mpi)
{
    const MPI_Datatype d = MPI_DOUBLE;
    const MPI_Comm w = MPI_COMM_WORLD;
    const struct wrong wrongs[] = {
        {"nothing wrong", in, out, 3, d, MPI_SUM, w},
        {"negative count", in, out, -1, d, MPI_SUM, w},
        {"null communicator", in, out, 3, d, MPI_SUM, MPI_COMM_NULL},
        {"null type", in, out, 3, MPI_DATATYPE_NULL, MPI_SUM, w},
        {"null operator", in, out, 3, d, MPI_OP_NULL, w},
        {"replace", in, out, 3, d, MPI_REPLACE, w},
        {"bits of doubles", in, out, 3, d, MPI_BAND, w},
        {"location of doubles", in, out, 3, d, MPI_MINLOC, w},
        {"sum of pairs", in, out, 3, MPI_DOUBLE_INT, MPI_SUM, w},
    };
    for (unsigned k = 0; k < COUNT_OF(wrongs); k++) {
        for (enum call call = 0; call < NCALLS; call++) {
            /* An all-gather has no operator. */
            if ((call != C_ALLGATHER || k < 4) && !crashes(&wrongs[k], call))
                check_wrong(&wrongs[k], call);
        }
    }
    mt_agree();
}
END_TEST

/* ---- buffers that are one: MPICH refuses them, and Open MPI runs at least some ---- */

enum {
    ALIAS_MOST = 3000
};

/* A call of @count ints in each block, whose send buffer is its receive buffer where this rank is
 * @odd; for an all-gather, its own block. */
static int make_aliased(enum call call, bool plain, bool odd, int *data, int count)
{
    static int apart[16 * ALIAS_MOST];
    size_t in_count = (size_t)count * (call == C_REDUCE_SCATTER ? (size_t)mt_size : 1);
    const int *from = data + (call == C_ALLGATHER ? mt_rank * count : 0);
    struct wrong w = {.send = apart,
        .recv = data,
        .count = count,
        .type = MPI_INT,
        .op = MPI_SUM,
        .comm = MPI_COMM_WORLD};
    memcpy(apart, from, in_count * sizeof(int));
    if (odd)
        w.send = from;
    return make(call, plain, &w);
}

static void check_aliased(enum call call, bool odd, int count)
{
    static int mine[16 * ALIAS_MOST], plain[16 * ALIAS_MOST];
    size_t all = (size_t)count * (size_t)mt_size;
    int is_refused;
    s_fill(plain, all, 1, mt_rank);
    memcpy(mine, plain, sizeof plain);
    /* All ranks alike, so that nobody waits for a rank that MPI refuses. */
    int plain_class = s_class(make_aliased(call, true, true, plain, count));
    is_refused = plain_class != MPI_SUCCESS;
    PMPI_Allreduce(MPI_IN_PLACE, &is_refused, 1, MPI_INT, MPI_MAX, mt_private);
    odd = odd || is_refused;
    mt_note("aliased %s, count %d", call_names[call], count);
    int class = s_class(make_aliased(call, false, odd, mine, count));
    mt_check(class == plain_class, "aliased %s, count %d: class %d, and plain MPI says %d",
        call_names[call], count, class, plain_class);
    for (int i = 0; !is_refused && i < (call == C_ALLGATHER ? (int)all : count); i++) {
        int first = call == C_REDUCE_SCATTER ? mt_rank * count : 0;
        int want = call == C_ALLGATHER ? s_datum(1, i / count, (size_t)i)
                                       : s_sum(1, mt_size, (size_t)(first + i));
        if (!mt_check(mine[i] == want, "aliased %s, count %d: element %d is %d, not %d",
                call_names[call], count, i, mine[i], want))
            break;
    }
}

/* On all ranks, on some and on one; among calls that Tiara serves, if it does. */
START_TEST(test_errors_of_aliasing_are_those_of_plain_mpi)
{
    static const int counts[] = {1, 4, ALIAS_MOST};
    for (unsigned k = 0; k < COUNT_OF(counts) * NCALLS; k++) {
        enum call call = k % NCALLS;
        check_aliased(call, true, counts[k / NCALLS]);
        check_aliased(call, mt_rank % 2 == 0, counts[k / NCALLS]);
        check_aliased(call, mt_rank == mt_size - 1, counts[k / NCALLS]);
    }
    check_usable();
    mt_agree();
}
END_TEST

/* MPICH refuses the first on rank 0, and is often built without checks of arguments. */
#ifndef MPICH
/* Every rank gathers from the first block of its receive buffer, which is rank 0's own one. MPI has
 * no error for that, and no right result; the library has one. */
START_TEST(test_errors_gathering_from_the_first_block_is_none)
{
    int data[16 * 4];
    for (int count = 1; count <= 4; count++) {
        s_fill(data, COUNT_OF(data), 2, mt_rank);
        int err = MPI_Allgather(data, count, MPI_INT, data, count, MPI_INT, MPI_COMM_WORLD);
        mt_check(err == MPI_SUCCESS, "error %d", err);
        for (int i = 0; s_has_library() && i < count * mt_size; i++)
            mt_check(data[i] == s_datum(2, i / count, (size_t)(i % count)),
                "count %d: element %d is %d", count, i, data[i]);
    }
    check_usable();
    mt_agree();
}
END_TEST

/* A call that one rank gets wrong, and MPI refuses there, is none: what follows goes with the
 * calls of the others. */
START_TEST(test_errors_a_refused_call_on_one_rank_is_none)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const struct wrong wrongs[] = {
        {"null type", in, out, 3, MPI_DATATYPE_NULL, MPI_SUM, comm},
        {"null operator", in, out, 3, MPI_DOUBLE, MPI_OP_NULL, comm},
        {"result in place", in, MPI_IN_PLACE, 3, MPI_DOUBLE, MPI_SUM, comm},
    };
    for (unsigned k = 0; k < 24; k++) {
        const struct wrong *w = &wrongs[k % COUNT_OF(wrongs)];
        if (mt_rank == (int)(k / 3) % mt_size) {
            int class = s_class(make(C_ALLREDUCE, false, w));
            mt_check(class != MPI_SUCCESS, "%s is not refused", w->what);
        }
        s_allreduce(comm, 1 + k % 2 * 3000, k, k % 3 == 0);
    }
    MPI_Comm_free(&comm);
    mt_agree();
}
END_TEST
#endif

/* Every pair of type and operator, whether it is defined or not. */
START_TEST(test_errors_of_pairs_are_those_of_plain_mpi)
{
    const MPI_Datatype types[] = {MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_INT, MPI_BYTE,
        MPI_PACKED, MPI_WCHAR, MPI_C_BOOL, MPI_AINT, MPI_LOGICAL, MPI_CHARACTER, MPI_INTEGER,
        MPI_C_FLOAT_COMPLEX, MPI_2INT, MPI_FLOAT_INT, MPI_REAL16, MPI_2REAL};
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_LAND, MPI_LXOR, MPI_BOR, MPI_MINLOC};
    for (unsigned k = 0; k < COUNT_OF(types) * COUNT_OF(ops); k++) {
        unsigned t = k / COUNT_OF(ops), o = k % COUNT_OF(ops);
        unsigned char mine[64], plain[64], zeros[64] = {0};
        if (types[t] == MPI_DATATYPE_NULL)
            continue;
        mt_note("type %u, operator %u", t, o);
        memset(mine, 9, sizeof mine);
        memset(plain, 9, sizeof plain);
        int plain_err = PMPI_Allreduce(zeros, plain, 2, types[t], ops[o], MPI_COMM_WORLD);
        int err = MPI_Allreduce(zeros, mine, 2, types[t], ops[o], MPI_COMM_WORLD);
        mt_check(s_class(err) == s_class(plain_err), "type %u operator %u: class %d, plain MPI %d",
            t, o, s_class(err), s_class(plain_err));
        mt_check(err != MPI_SUCCESS || memcmp(mine, plain, sizeof mine) == 0,
            "type %u operator %u: %02x, plain MPI %02x", t, o, mine[0], plain[0]);
    }
    check_usable();
    mt_agree();
}
END_TEST

/* ---- handlers ---- */

static struct {
    MPI_Comm comm;
    int calls, class;
} handled;

static void note_error(MPI_Comm *comm, int *err, ...)
{
    handled.comm = *comm;
    handled.class = s_class(*err);
    handled.calls++;
}

static void check_handler(MPI_Comm comm, MPI_Comm other, enum call call)
{
    bool has_op = call != C_ALLGATHER;
    struct wrong w = {.send = in,
        .recv = out,
        .count = 3,
        .type = has_op ? MPI_DOUBLE : MPI_DATATYPE_NULL,
        .op = MPI_BAND,
        .comm = MPI_COMM_WORLD};
    int plain = s_class(make(call, true, &w));
    w.comm = comm;
    handled.calls = 0;
    mt_note("handler, %s", call_names[call]);
    int class = s_class(make(call, false, &w));
    mt_check(handled.calls == 1 && handled.comm == comm && handled.comm != other,
        "%s: %d calls of the handler, with another communicator", call_names[call], handled.calls);
    mt_check(class == plain && handled.class == plain && plain != MPI_SUCCESS,
        "%s: class %d, handler %d, plain MPI %d", call_names[call], class, handled.class, plain);
}

START_TEST(test_errors_go_to_the_handler_of_the_communicator)
{
    MPI_Comm comms[2];
    MPI_Errhandler handler, before;
    MPI_Comm_create_errhandler(note_error, &handler);
    for (int k = 0; k < 2; k++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
        MPI_Comm_set_errhandler(comms[k], handler);
        s_warm_up(comms[k]);
    }
    for (int k = 0; k < 2; k++) {
        for (enum call call = 0; call < NCALLS; call++) {
            check_handler(comms[k], comms[1 - k], call);
            s_use(comms[k], call);
            check_handler(comms[k], comms[1 - k], call);
        }
    }
    /* Nothing has put another handler in place. */
    MPI_Comm_get_errhandler(comms[0], &before);
    mt_check(before == handler, "the communicator has another handler");
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
    mt_agree();
}
END_TEST

/* A message that is too long for its receive, beside a call; returns the class of the Waitall, and
 * of the two statuses. */
static void truncate_beside(bool plain, int classes_out[3])
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int sent[4] = {1, 2, 3, 4}, got[2] = {0, 0};
    struct s_job job = s_job_new(MPI_COMM_WORLD, 2000, 3, false);
    MPI_Irecv(got, 2, MPI_INT, mt_rank, 3, MPI_COMM_WORLD, &requests[0]);
    (plain ? PMPI_Iallreduce : MPI_Iallreduce)(job.send.data, job.recv.data, (int)job.count,
        MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(sent, 4, MPI_INT, mt_rank, 3, MPI_COMM_WORLD);
    int err = (plain ? PMPI_Waitall : MPI_Waitall)(2, requests, statuses);
    classes_out[0] = s_class(err);
    for (int k = 0; k < 2; k++)
        classes_out[k + 1] =
            classes_out[0] == MPI_ERR_IN_STATUS ? s_class(statuses[k].MPI_ERROR) : MPI_SUCCESS;
    if (requests[1] != MPI_REQUEST_NULL)
        (plain ? PMPI_Wait : MPI_Wait)(&requests[1], MPI_STATUS_IGNORE);
    s_job_end(&job, MPI_COMM_WORLD);
}

/* MPICH sees the truncation, Open MPI does not. The call next to it succeeded, or is pending as
 * that is allowed. */
START_TEST(test_errors_of_a_message_are_those_of_plain_mpi)
{
    for (int round = 0; round < 3; round++) {
        int plain[3], mine[3];
        mt_note("truncation, round %d", round);
        truncate_beside(true, plain);
        truncate_beside(false, mine);
        mt_check(mine[0] == plain[0] && mine[1] == plain[1],
            "classes %d and %d, plain MPI %d and %d", mine[0], mine[1], plain[0], plain[1]);
        mt_check(
            mine[2] == MPI_SUCCESS || mine[2] == MPI_ERR_PENDING, "the call: class %d", mine[2]);
    }
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = s_begin(&argc, &argv, "s_errors", MPI_THREAD_SINGLE);
    tcase_add_test(tests, test_errors_are_those_of_plain_mpi);
    tcase_add_test(tests, test_errors_of_aliasing_are_those_of_plain_mpi);
#ifndef MPICH
    tcase_add_test(tests, test_errors_gathering_from_the_first_block_is_none);
    tcase_add_test(tests, test_errors_a_refused_call_on_one_rank_is_none);
#endif
    tcase_add_test(tests, test_errors_of_pairs_are_those_of_plain_mpi);
    tcase_add_test(tests, test_errors_go_to_the_handler_of_the_communicator);
    tcase_add_test(tests, test_errors_of_a_message_are_those_of_plain_mpi);
    return mt_end();
}
