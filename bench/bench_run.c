/*
 * One run: the measured call, and the check of its result. With -d cuda the check looks at copies
 * of the buffers.
 *
 * A check goes over the whole vector, a guard behind the receive buffer, and the send buffer, which
 * must not change. The receive buffer holds junk before the call, so that a result that was never
 * written is seen. The MPI below is called by its PMPI_ names: a preloaded libtiara-pmpi must not
 * turn it into Tiara.
 */
#include "bench.h"
#include "bench_device.h"
#include "tiara_cuda.h"
#include <limits.h>
#include <stdlib.h>
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

/* What --device and the sides need. Collective. */
static bool device_init(
    struct bench_run *run, const struct bench_options *opts, struct bench_why *why)
{
    if (!opts->cuda)
        return true;
    run->device = calloc(1, sizeof *run->device);
    if (!bench_all_ranks(
            run->device != NULL || bench_complain(why, "no memory"), MPI_COMM_WORLD, why))
        return false;
    if (!bench_device_open(run->device, MPI_COMM_WORLD, why))
        return false;
    if (opts->side[BENCH_NCCL])
        run->nccl = bench_nccl_open(run->device, opts, MPI_COMM_WORLD, why);
    return run->nccl != NULL || !opts->side[BENCH_NCCL];
}

bool bench_run_init(struct bench_run *run, const struct bench_options *opts, struct bench_why *why)
{
    *run = (struct bench_run){.opts = opts, .comm = MPI_COMM_NULL};
    struct bench_shape largest;
    PMPI_Comm_size(MPI_COMM_WORLD, &run->nranks);
    PMPI_Comm_rank(MPI_COMM_WORLD, &run->rank);
    if (!largest_init(&largest, opts, run->nranks, why) || !device_init(run, opts, why) ||
        !bench_buffers_init(&run->buffers, opts, &largest, run->device, MPI_COMM_WORLD, why) ||
        !bench_data_init(&run->data, opts, MPI_COMM_WORLD, why))
        return false;
    run->type = bench_type_mpi(opts->type);
    run->op = bench_op_mpi(opts->op);
    if (run->type == MPI_DATATYPE_NULL)
        return bench_complain(why, "--type '%s': Tiara could not make it", opts->type->name);
    PMPI_Comm_dup(MPI_COMM_WORLD, &run->comm);
    PMPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    bench_data_fill(&run->data, run->buffers.near[BENCH_SEND], largest.send_count);
    bool stored = true;
    for (size_t slot = 0; stored && slot < run->buffers.nslots; slot++)
        stored = bench_buffers_store(
            &run->buffers, BENCH_SEND, slot, largest.send_count * opts->type->bytes);
    return bench_run_agree(run, stored ? MPI_SUCCESS : MPI_ERR_OTHER, why);
}

void bench_run_fini(struct bench_run *run)
{
    if (run->comm != MPI_COMM_NULL)
        MPI_Comm_free(&run->comm);
    bench_data_fini(&run->data);
    bench_buffers_fini(&run->buffers);
    bench_nccl_close(run->nccl);
    if (run->device != NULL)
        bench_device_close(run->device);
    free(run->device);
}

/* ---- calls ---- */

static int tiara_call(const struct bench_run *run, const void *send, void *recv, int n)
{
    switch (run->opts->coll) {
    case BENCH_ALLREDUCE:
        return run->opts->stream ? TIARA_Allreduce_on_stream(send, recv, n, run->type, run->op,
                                       run->comm, run->device->stream)
                                 : TIARA_Allreduce(send, recv, n, run->type, run->op, run->comm);
    case BENCH_REDUCE_SCATTER_BLOCK:
        return TIARA_Reduce_scatter_block(send, recv, n, run->type, run->op, run->comm);
    default:
        return TIARA_Allgather(send, n, run->type, recv, n, run->type, run->comm);
    }
}

static int mpi_call(const struct bench_run *run, const void *send, void *recv, int n)
{
    switch (run->opts->coll) {
    case BENCH_ALLREDUCE:
        return PMPI_Allreduce(send, recv, n, run->type, run->op, run->comm);
    case BENCH_REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block(send, recv, n, run->type, run->op, run->comm);
    default:
        return PMPI_Allgather(send, n, run->type, recv, n, run->type, run->comm);
    }
}

/* What a program does whose MPI takes no GPU memory: down to pinned memory, MPI, and up again. */
static int mpi_call_staged(
    const struct bench_run *run, const struct bench_shape *shape, size_t slot)
{
    const struct bench_buffers *b = &run->buffers;
    bool in_place = run->opts->in_place;
    enum bench_buffer from = in_place ? BENCH_RECV : BENCH_SEND;
    size_t elem = run->opts->type->bytes;
    /* In place, the receive buffer is the input, all of it: of all-gather one block would do. */
    size_t in = (in_place ? shape->recv_space : shape->send_count) * elem;
    if (!bench_buffers_fetch(b, from, slot, in))
        return MPI_ERR_OTHER;
    int code = mpi_call(
        run, in_place ? MPI_IN_PLACE : b->near[BENCH_SEND], b->near[BENCH_RECV], (int)shape->count);
    bool stored = bench_buffers_store(b, BENCH_RECV, slot, shape->recv_count * elem);
    return stored ? code : MPI_ERR_OTHER;
}

static int nccl_call(
    const struct bench_run *run, const struct bench_shape *shape, const void *send, void *recv)
{
    if (!bench_nccl_allreduce(run->nccl, send != MPI_IN_PLACE ? send : recv, recv, shape->count))
        return MPI_ERR_OTHER;
    return run->opts->stream || bench_device_wait(run->device) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int bench_run_call(
    const struct bench_run *run, enum bench_side side, const struct bench_shape *shape, size_t slot)
{
    const char *own = bench_buffers_slot(&run->buffers, BENCH_SEND, slot);
    const void *send = run->opts->in_place ? MPI_IN_PLACE : own;
    char *recv = bench_buffers_slot(&run->buffers, BENCH_RECV, slot);
    if (side == BENCH_NCCL)
        return nccl_call(run, shape, send, recv);
    if (side == BENCH_TIARA)
        return tiara_call(run, send, recv, (int)shape->count);
    if (run->device != NULL && !run->device->mpi_direct)
        return mpi_call_staged(run, shape, slot);
    return mpi_call(run, send, recv, (int)shape->count);
}

int bench_run_wait(const struct bench_run *run, enum bench_side side)
{
    bool enqueued = run->opts->stream && side != BENCH_MPI;
    return !enqueued || bench_device_wait(run->device) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int bench_run_settle(const struct bench_run *run, enum bench_side side)
{
    bool enqueued = run->opts->stream && side == BENCH_TIARA;
    return enqueued ? TIARA_Comm_synchronize(run->comm) : MPI_SUCCESS;
}

bool bench_run_agree(const struct bench_run *run, int code, struct bench_why *why)
{
    const char *said = run->device != NULL ? run->device->failure.text : "";
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    if (code != MPI_SUCCESS && said[0] == '\0') {
        PMPI_Error_string(code, text, &len);
        said = text;
    }
    if (code != MPI_SUCCESS)
        bench_complain(why, "rank %d: the call failed: %.300s", run->rank, said);
    return bench_all_ranks(code == MPI_SUCCESS, MPI_COMM_WORLD, why);
}

/* ---- checks ---- */

/* Junk, or in place the input, and the guard. */
static bool receive_prepare(struct bench_run *run, const struct bench_shape *shape)
{
    size_t elem = run->opts->type->bytes;
    char *recv = run->buffers.near[BENCH_RECV];
    memset(recv, JUNK, shape->recv_space * elem);
    memset(recv + shape->recv_space * elem, GUARD, BENCH_GUARD_BYTES);
    size_t block = run->opts->coll == BENCH_ALLGATHER ? (size_t)run->rank * shape->count : 0;
    if (run->opts->in_place)
        memcpy(recv + block * elem, run->buffers.near[BENCH_SEND], shape->send_count * elem);
    return bench_buffers_store(
        &run->buffers, BENCH_RECV, 0, shape->recv_space * elem + BENCH_GUARD_BYTES);
}

/* What the call left, where it can be looked at. */
static bool buffers_fetch(struct bench_run *run, const struct bench_shape *shape)
{
    size_t elem = run->opts->type->bytes;
    return bench_buffers_fetch(
               &run->buffers, BENCH_RECV, 0, shape->recv_space * elem + BENCH_GUARD_BYTES) &&
           bench_buffers_fetch(&run->buffers, BENCH_SEND, 0, shape->send_count * elem);
}

/* Spoils one element of this rank's result, where --fault asks for it. */
static void fault_inject(struct bench_run *run, const struct bench_shape *shape)
{
    const struct bench_options *opts = run->opts;
    if (opts->fault_rank == run->rank && (size_t)opts->fault_index < shape->recv_count)
        run->buffers.near[BENCH_RECV][(size_t)opts->fault_index * opts->type->bytes] ^= 1;
}

static bool guard_check(
    const struct bench_run *run, const struct bench_shape *shape, struct bench_why *why)
{
    const char *guard = run->buffers.near[BENCH_RECV] + shape->recv_space * run->opts->type->bytes;
    for (int i = 0; i < BENCH_GUARD_BYTES; i++)
        if ((unsigned char)guard[i] != GUARD)
            return bench_complain(
                why, "rank %d: byte %d behind the receive buffer was overwritten", run->rank, i);
    return true;
}

static bool result_check(
    struct bench_run *run, const struct bench_shape *shape, struct bench_why *why)
{
    const struct bench_buffers *b = &run->buffers;
    struct bench_why input = {""};
    if (!bench_data_check(&run->data, b->near[BENCH_RECV], shape, why) ||
        !guard_check(run, shape, why))
        return false;
    if (!bench_data_check_input(&run->data, b->near[BENCH_SEND], shape->send_count, &input))
        return bench_complain(why, "the send buffer was changed: %s", input.text);
    return true;
}

bool bench_run_check(struct bench_run *run, enum bench_side side, const struct bench_shape *shape,
    struct bench_why *why)
{
    int code = receive_prepare(run, shape) ? MPI_SUCCESS : MPI_ERR_OTHER;
    int called = bench_run_call(run, side, shape, 0);
    if (called == MPI_SUCCESS)
        called = bench_run_wait(run, side);
    if (called == MPI_SUCCESS)
        called = bench_run_settle(run, side);
    code = code != MPI_SUCCESS ? code : called;
    if (code == MPI_SUCCESS && !buffers_fetch(run, shape))
        code = MPI_ERR_OTHER;
    if (!bench_run_agree(run, code, why))
        return false;
    if (!run->opts->validate)
        return true;
    if (side == BENCH_TIARA)
        fault_inject(run, shape);
    return bench_all_ranks(result_check(run, shape, why), MPI_COMM_WORLD, why);
}
