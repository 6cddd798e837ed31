/*
 * User-defined operators on elements of 4 KiB to 5 MiB, most of them holes, in every form of an
 * all-reduce: right, in rank order where the operator does not commute, and in memory that follows
 * from the data, not from what an element spans. And elements that MPI_Pack cannot take.
 */
/* tiara-test: mpirun 1 */
/* tiara-test: mpirun 2 */
/* tiara-test: mpirun 4 TIARA_LAYOUT=2x2 */
/* tiara-test: mpirun 3 TIARA_LAYOUT=2+1 TIARA_REPRODUCIBLE=1 */
#include "mpi_run.h"
#include "mpi_wide.h"
#include "tiara.h"

#include <dlfcn.h>
#include <stdlib.h>

enum form {
    BLOCKING,
    IN_PLACE,
    SCATTER,
    NONBLOCKING,
    PERSISTENT,
    MULTI,
    NFORMS
};

static int call(enum form form, const void *in, void *out, int count, MPI_Datatype type, MPI_Op op)
{
    TIARA_Request request;
    int err;
    switch (form) {
    case BLOCKING:
        return TIARA_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
    case IN_PLACE:
        return TIARA_Allreduce(MPI_IN_PLACE, out, count, type, op, MPI_COMM_WORLD);
    case SCATTER:
        return TIARA_Reduce_scatter_block(in, out, count, type, op, MPI_COMM_WORLD);
    case NONBLOCKING:
        err = TIARA_Iallreduce(in, out, count, type, op, MPI_COMM_WORLD, &request);
        return err == MPI_SUCCESS ? TIARA_Wait(&request, MPI_STATUS_IGNORE) : err;
    case PERSISTENT:
        err =
            TIARA_Allreduce_init(in, out, count, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        if (err == MPI_SUCCESS)
            err = TIARA_Start(&request);
        if (err == MPI_SUCCESS)
            err = TIARA_Wait(&request, MPI_STATUS_IGNORE);
        return err == MPI_SUCCESS ? TIARA_Request_free(&request) : err;
    default:
        return TIARA_Allreduce_multi(1, &in, &out, &count, type, op, MPI_COMM_WORLD);
    }
}

static void check(enum form form, const struct mt_wide *wide, int count, bool commute)
{
    int elems = form == SCATTER ? count * mt_size : count;
    char *in = mt_wide_buf(wide, elems, form != IN_PLACE);
    char *out = mt_wide_buf(wide, count, form == IN_PLACE);
    MPI_Op op = mt_wide_op(wide, commute);
    mt_note("form %d: %d x %d ints over %zu bytes, commute %d", form, count, wide->n, wide->extent,
        commute);
    int err = call(form, in, out, count, wide->type, op);
    mt_check(err == MPI_SUCCESS, "form %d: %d x %d ints over %zu bytes: error %d", form, count,
        wide->n, wide->extent, err);
    if (err == MPI_SUCCESS)
        mt_wide_verify(wide, form == SCATTER ? count * mt_rank : 0, count, commute, out);
    MPI_Op_free(&op);
    mt_wide_buf_free(wide, elems, in);
    mt_wide_buf_free(wide, count, out);
}

static void check_served(const struct mt_wide *wide, int count)
{
    MPI_Op op = mt_wide_op(wide, true);
    const char *why = "";
    int answer;
    TIARA_Comm_serves(MPI_COMM_WORLD, 0, count, wide->type, op, &answer, &why);
    mt_check(answer || mt_size == 1, "%d elements are not Tiara's: %s", count, why);
    MPI_Op_free(&op);
}

/* Each shape by itself: which one took too much is in the name of the failure. */
START_TEST(test_wide_elements_take_little_memory)
{
    static const size_t sizes[] = {4096, 200704, 3 << 20, 5 << 20};
    mt_limit_memory(2048);
    for (int s = 0; s < 4; s++) {
        struct mt_wide wide = mt_wide_new((enum mt_wide_shape)_i, sizes[s]);
        long before = mt_peak_kib(), most, more;
        int step = s % 2 || (_i == MT_WIDE_FULL && s > 1) ? 5 : 1; /* forms 0, 5 and 4 */
        for (int k = 0; k < 2 * NFORMS && mt_all_well(); k += step) {
            check_served(&wide, 1 + (k + s) % 3);
            check((enum form)(k % NFORMS), &wide, 1 + (k + s) % 3, k < NFORMS);
        }
        /* Some MPIs gather at one rank what is not commutative. */
        most = (long)(mt_wide_data(&wide, 3) >> 10) * (4 + 4 * mt_size) + 49152;
        more = mt_peak_kib() - before;
        mt_check(more <= most, "elements of %zu bytes: %ld KiB more, not at most %ld", sizes[s],
            more, most);
        mt_wide_free(&wide);
    }
    mt_agree();
}
END_TEST

/* The MPI's, for the library too. Blocks of @unmoved elements are counted, and not moved. */
static MPI_Datatype unmoved = MPI_DATATYPE_NULL;
static int nunmoved;

int PMPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
    int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    int (*real)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
    *(void **)&real = dlsym(RTLD_NEXT, "PMPI_Allgather");
    nunmoved += sendcount > 0 && sendtype == unmoved;
    return sendcount > 0 && sendtype == unmoved
               ? MPI_SUCCESS
               : real(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

/*
 * An element of 2 GiB of data and more with holes, which MPI_Pack cannot take, is for MPI. Its data
 * is one block over and over, so that nobody needs so much memory.
 */
START_TEST(test_elements_of_2_gib_are_gathered_by_mpi)
{
    const MPI_Aint block = 1 << 20;
    char *buf = calloc(1 + (size_t)mt_size, (size_t)block);
    MPI_Type_create_hvector(2049, (int)block, 0, MPI_BYTE, &unmoved);
    MPI_Type_commit(&unmoved);
    int err = TIARA_Allgather(buf, 1, unmoved, buf + block, 1, unmoved, MPI_COMM_WORLD);
    mt_check(err == MPI_SUCCESS && nunmoved == 1, "error %d, %d calls of MPI", err, nunmoved);
    MPI_Type_free(&unmoved);
    free(buf);
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "m_wide", MPI_THREAD_SINGLE);
    struct mt_wide warm = mt_wide_new(MT_WIDE_FULL, 65536);
    for (int k = 0; k < NFORMS; k++)
        check((enum form)k, &warm, 3, true);
    mt_wide_free(&warm);
    tcase_add_test(tests, test_elements_of_2_gib_are_gathered_by_mpi);
    tcase_add_loop_test(tests, test_wide_elements_take_little_memory, 0, MT_WIDE_NSHAPES);
    return mt_end();
}
