/*
 * One run: the measured call, and the check of its result.
 *
 * A check goes over the whole vector, a guard behind the receive buffer, and the send buffer, which must not
 * change. The receive buffer holds junk before the call, so that a result that was never written is seen. The
 * MPI below is called by its PMPI_ names: a preloaded libtiara-pmpi must not turn it into Tiara.
 */
#include "bench.h"
#include <limits.h>
#include <string.h>

enum {
    GUARD = 0xA5,
    JUNK = 0x7B
};

bool bench_shape_init(
    struct bench_shape *shape, const struct bench_options *opts, size_t bytes, int nranks)
{
    size_t elem = opts->type->bytes;
    size_t n = (size_t)nranks;
    size_t count = bytes / elem;
    if (opts->coll == BENCH_REDUCE_SCATTER_BLOCK)
        count /= n;
    shape->count = count;
    shape->send_count = opts->coll == BENCH_REDUCE_SCATTER_BLOCK ? count * n : count;
    shape->recv_count = opts->coll == BENCH_ALLGATHER ? count * n : count;
    shape->recv_space = shape->recv_count;
    if (opts->in_place && shape->recv_space < shape->send_count)
        shape->recv_space = shape->send_count;
    shape->bytes = shape->send_count * elem;
    return count > 0;
}

/* The largest size, and that its counts fit MPI's int. */
static bool largest_init(struct bench_shape *largest, const struct bench_options *opts, int nranks,
    struct bench_why *why)
{
    *largest = (struct bench_shape){0};
    for (size_t i = 0; i < opts->nsizes; i++) {
        struct bench_shape shape;
        bool some = bench_shape_init(&shape, opts, opts->sizes[i], nranks);
        if (some && shape.bytes > largest->bytes)
            *largest = shape;
    }
    if (largest->count == 0)
        return bench_complain(why,
            "no size is large enough for %s of --type '%s' on %d ranks; use a larger "
            "--message-size",
            bench_coll_name(opts->coll), opts->type->name, nranks);
    if (largest->count > INT_MAX || largest->recv_space / (size_t)nranks > INT_MAX)
        return bench_complain(why,
            "a size of %zu bytes has more elements than MPI can count (%d); use a smaller "
            "--message-size or a "
            "wider --type",
            largest->bytes, INT_MAX);
    return true;
}

bool bench_run_init(struct bench_run *run, const struct bench_options *opts, struct bench_why *why)
{
    *run = (struct bench_run){.opts = opts, .comm = MPI_COMM_NULL};
    struct bench_shape largest;
    PMPI_Comm_size(MPI_COMM_WORLD, &run->nranks);
    PMPI_Comm_rank(MPI_COMM_WORLD, &run->rank);
    if (!largest_init(&largest, opts, run->nranks, why) ||
        !bench_buffers_init(&run->buffers, opts, &largest, MPI_COMM_WORLD, why) ||
        !bench_data_init(&run->data, opts, MPI_COMM_WORLD, why))
        return false;
    run->type = bench_type_mpi(opts->type);
    run->op = bench_op_mpi(opts->op);
    if (run->type == MPI_DATATYPE_NULL)
        return bench_complain(why, "--type '%s': Tiara could not make it", opts->type->name);
    PMPI_Comm_dup(MPI_COMM_WORLD, &run->comm);
    PMPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    for (size_t slot = 0; slot < run->buffers.nslots; slot++) {
        char *send = run->buffers.send + slot * run->buffers.send_stride;
        if (slot == 0)
            bench_data_fill(&run->data, send, largest.send_count);
        else
            memcpy(send, run->buffers.send, largest.send_count * opts->type->bytes);
    }
    return true;
}

void bench_run_fini(struct bench_run *run)
{
    if (run->comm != MPI_COMM_NULL)
        MPI_Comm_free(&run->comm);
    bench_data_fini(&run->data);
    bench_buffers_fini(&run->buffers);
}

int bench_run_call(
    const struct bench_run *run, enum bench_side side, const struct bench_shape *shape, size_t slot)
{
    const char *own = run->buffers.send + slot * run->buffers.send_stride;
    const void *send = run->opts->in_place ? MPI_IN_PLACE : own;
    char *recv = run->buffers.recv + slot * run->buffers.recv_stride;
    int n = (int)shape->count;
    bool tiara = side == BENCH_TIARA;
    switch (run->opts->coll) {
    case BENCH_ALLREDUCE:
        return tiara ? TIARA_Allreduce(send, recv, n, run->type, run->op, run->comm)
                     : PMPI_Allreduce(send, recv, n, run->type, run->op, run->comm);
    case BENCH_REDUCE_SCATTER_BLOCK:
        return tiara ? TIARA_Reduce_scatter_block(send, recv, n, run->type, run->op, run->comm)
                     : PMPI_Reduce_scatter_block(send, recv, n, run->type, run->op, run->comm);
    default:
        return tiara ? TIARA_Allgather(send, n, run->type, recv, n, run->type, run->comm)
                     : PMPI_Allgather(send, n, run->type, recv, n, run->type, run->comm);
    }
}

/* Junk, or in place the input, and the guard. */
static void receive_prepare(struct bench_run *run, const struct bench_shape *shape)
{
    size_t elem = run->opts->type->bytes;
    char *recv = run->buffers.recv;
    memset(recv, JUNK, shape->recv_space * elem);
    memset(recv + shape->recv_space * elem, GUARD, BENCH_GUARD_BYTES);
    if (!run->opts->in_place)
        return;
    size_t block = run->opts->coll == BENCH_ALLGATHER ? (size_t)run->rank * shape->count : 0;
    memcpy(recv + block * elem, run->buffers.send, shape->send_count * elem);
}

/* Spoils one element of this rank's result, where --fault asks for it. */
static void fault_inject(struct bench_run *run, const struct bench_shape *shape)
{
    const struct bench_options *opts = run->opts;
    if (opts->fault_rank == run->rank && (size_t)opts->fault_index < shape->recv_count)
        run->buffers.recv[(size_t)opts->fault_index * opts->type->bytes] ^= 1;
}

static bool guard_check(
    const struct bench_run *run, const struct bench_shape *shape, struct bench_why *why)
{
    const char *guard = run->buffers.recv + shape->recv_space * run->opts->type->bytes;
    for (int i = 0; i < BENCH_GUARD_BYTES; i++)
        if ((unsigned char)guard[i] != GUARD)
            return bench_complain(
                why, "rank %d: byte %d behind the receive buffer was overwritten", run->rank, i);
    return true;
}

static bool result_check(
    struct bench_run *run, const struct bench_shape *shape, struct bench_why *why)
{
    struct bench_why input = {""};
    if (!bench_data_check(&run->data, run->buffers.recv, shape, why) ||
        !guard_check(run, shape, why))
        return false;
    if (!bench_data_check_input(&run->data, run->buffers.send, shape->send_count, &input))
        return bench_complain(why, "the send buffer was changed: %s", input.text);
    return true;
}

bool bench_run_check(struct bench_run *run, enum bench_side side, const struct bench_shape *shape,
    struct bench_why *why)
{
    receive_prepare(run, shape);
    int code = bench_run_call(run, side, shape, 0);
    bool good = code == MPI_SUCCESS;
    if (!good) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int len;
        PMPI_Error_string(code, text, &len);
        bench_complain(why, "rank %d: the call failed: %.300s", run->rank, text);
    } else if (run->opts->validate) {
        if (side == BENCH_TIARA)
            fault_inject(run, shape);
        good = result_check(run, shape, why);
    }
    int bad_rank = good ? run->nranks : run->rank;
    int first_bad;
    PMPI_Allreduce(&bad_rank, &first_bad, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first_bad == run->nranks)
        return true;
    PMPI_Bcast(why->text, sizeof why->text, MPI_CHAR, first_bad, MPI_COMM_WORLD);
    return false;
}
