/*
 * TIARA_Allreduce_multi: many small vectors in one all-reduce.
 *
 * The vectors are copied, one behind the other, into a dense vector in host memory, which is
 * all-reduced like any other, and the results are copied out of another one. Two dense vectors, not
 * one: when the call has to go another way (to the MPI below), the input is still there.
 *
 * What is packed follows from counts and the size of an element only, and so is alike on all ranks.
 * Where buffers live (GPU memory is fetched and stored), and whether a rank reduces in place,
 * concerns nobody else. Calls that are not of a predefined type and operator, or of Tiara's own,
 * are done one buffer at a time: elements of a user's operator may have holes, and ranks may
 * describe the same elements by different types. So are those on intercommunicators, which are the
 * MPI's, and on communicators of one rank.
 */
#include "api/describe.h"
#include "api/process.h"
#include "api/scratch.h"
#include "base/log.h"
#include "call/below.h"
#include "call/bounce.h"
#include "call/proxy.h"
#include "call/stage.h"
#include "tiara.h"
#include <string.h>

/*
 * Bytes of a buffer above which it goes by itself. Packing copies every byte twice, to save one
 * latency. On one node both cost the same at 16 KiB: 16 such buffers took 44 us by themselves and
 * 42 packed; of 4 KiB 16 and 11, of 256 B 4.0 and 1.3 (2 ranks on 2 cores, virtual AMD Zen 5,
 * 2026-11).
 */
#define ALONE_BYTES ((size_t)16384)
/* Bytes of a packed vector. In a longer one a latency between nodes could hardly be seen, and its
 * copies would leave the caches. */
#define PACKED_BYTES ((size_t)1 << 20)
/* Of one that is packed on the stack. */
#define SCRATCH_BYTES ((size_t)16384)

struct multi {
    MPI_Comm comm;
    struct tiara_comm *c; /* NULL: there is none, as a rank has no memory */
    int n;
    const void *const *sendbufs; /* NULL: all in place */
    void *const *recvbufs;
    const int *counts;
    MPI_Datatype type;
    MPI_Op op;
    struct tiara_elem elem;
    size_t packed_max; /* bytes of a packed vector */
};

/* A sum of n counts, all of them ints, is less than 2^62. */
_Static_assert(sizeof(MPI_Count) >= 8, "MPI_Count holds any sum of counts");

static const void *sendbuf_of(const struct multi *m, int i)
{
    return m->sendbufs ? m->sendbufs[i] : MPI_IN_PLACE;
}

static size_t bytes_of(const struct multi *m, int i)
{
    return (size_t)m->counts[i] * m->elem.size;
}

static int reduce_one(const struct multi *m, int i)
{
    return TIARA_Allreduce(sendbuf_of(m, i), m->recvbufs[i], m->counts[i], m->type, m->op, m->comm);
}

/* ---- packing ---- */

/* The buffers [first, end) that are packed, and what they come to. */
struct batch {
    int first, end, members;
    size_t bytes;
};

static bool is_packed(const struct multi *m, int i)
{
    size_t bytes = bytes_of(m, i);

    return bytes > 0 && bytes <= ALONE_BYTES && bytes <= m->packed_max;
}

/* The batch that begins with buffer @first: as many as fit. */
static struct batch batch_from(const struct multi *m, int first)
{
    struct batch b = {.first = first, .end = first};

    for (; b.end < m->n; b.end++) {
        if (!is_packed(m, b.end))
            continue;
        if (b.bytes + bytes_of(m, b.end) > m->packed_max)
            break;
        b.bytes += bytes_of(m, b.end);
        b.members++;
    }
    return b;
}

/* Copies the members of @b into @dense, or, as results, out of it. */
static enum tiara_err copy_members(
    const struct multi *m, const struct batch *b, char *dense, bool out)
{
    struct tiara_comm *c = m->c;
    enum tiara_err err = TIARA_OK;

    for (int i = b->first; i < b->end && err == TIARA_OK; i++) {
        const void *from = sendbuf_of(m, i);
        void *user = out || from == MPI_IN_PLACE ? m->recvbufs[i] : (void *)(uintptr_t)from;
        void *dst = out ? user : dense, *src = out ? dense : user;

        if (!is_packed(m, i))
            continue;
        if (c->device.possible && !tiara_bounce_is_host(user))
            err = tiara_stage_copy(c, dst, src, bytes_of(m, i), out);
        else
            memcpy(dst, src, bytes_of(m, i));
        dense += bytes_of(m, i);
    }
    return err;
}

/* ---- running ---- */

/* @in, @out: of the batch's size at least; NULL: there is no memory. Returns MPI_SUCCESS or a
 * raised error. */
static int reduce_batch(const struct multi *m, const struct batch *b, char *in, char *out)
{
    struct tiara_call call = {
        .coll = TIARA_COLL_ALLREDUCE, .count = b->bytes / m->elem.size, .elem = m->elem};
    enum tiara_err err = in && out ? TIARA_OK : TIARA_ERR_NOMEM;
    int rc;

    /* The pinned memory that copies go through may be in use by a call in a stream. */
    if (err == TIARA_OK && m->c->device.possible)
        err = tiara_proxy_drain(m->c);
    if (err == TIARA_OK)
        err = copy_members(m, b, in, false);
    if (err != TIARA_OK) {
        tiara_proxy_rest(m->c);
        return tiara_below_raise(m->comm, tiara_call_leave(m->c, &call, err));
    }
    rc = TIARA_Allreduce_c(in, out, (MPI_Count)call.count, m->type, m->op, m->comm);
    return rc == MPI_SUCCESS ? tiara_below_raise(m->comm, copy_members(m, b, out, true)) : rc;
}

static int reduce_batches(const struct multi *m, char *in, char *out)
{
    int rc = MPI_SUCCESS;

    for (int i = 0; i < m->n && rc == MPI_SUCCESS;) {
        struct batch b = batch_from(m, i);

        if (b.members > 1)
            rc = reduce_batch(m, &b, in, out);
        for (; i < b.end && rc == MPI_SUCCESS; i++)
            if (m->counts[i] > 0 && (b.members == 1 || !is_packed(m, i)))
                rc = reduce_one(m, i);
    }
    return rc;
}

/* Bytes that hold any batch. */
static size_t most_packed(const struct multi *m)
{
    size_t sum = 0;

    for (int i = 0; i < m->n && sum < m->packed_max; i++)
        sum += is_packed(m, i) ? bytes_of(m, i) : 0;
    return sum < m->packed_max ? sum : m->packed_max;
}

static int reduce_packed(const struct multi *m)
{
    _Alignas(64) char host_in[SCRATCH_BYTES], host_out[SCRATCH_BYTES];
    size_t most = most_packed(m);
    struct tiara_scratch scratch;
    int rc;

    if (most <= SCRATCH_BYTES)
        return reduce_batches(m, host_in, host_out);
    scratch = tiara_scratch_take(most);
    rc = reduce_batches(m, scratch.in, scratch.out);
    tiara_scratch_give(scratch);
    return rc;
}

/* ---- arguments ---- */

static int judge_counts(const struct multi *m)
{
    if (m->n < 0 || (m->n > 0 && !m->counts)) {
        tiara_error("TIARA_Allreduce_multi: n is %d%s", m->n, m->n > 0 ? ", counts is null" : "");
        return MPI_ERR_COUNT;
    }
    for (int i = 0; i < m->n; i++)
        if (m->counts[i] < 0) {
            tiara_error("TIARA_Allreduce_multi: counts[%d] is %d", i, m->counts[i]);
            return MPI_ERR_COUNT;
        }
    return MPI_SUCCESS;
}

/* Of a call with a native element. */
static int judge_buffers(const struct multi *m)
{
    for (int i = 0; i < m->n; i++) {
        const void *send = sendbuf_of(m, i), *recv = m->recvbufs[i];

        if (m->counts[i] > 0 && tiara_describe_bad_buffers(send, recv, true)) {
            tiara_error("TIARA_Allreduce_multi: sendbufs[%d] is %p and recvbufs[%d] is %p, with "
                        "%d elements",
                i, send, i, recv, m->counts[i]);
            return MPI_ERR_BUFFER;
        }
    }
    return MPI_SUCCESS;
}

/*
 * Whether packed vectors may be longer than what the stack holds: nobody looks after a rank that
 * fails before a call of MPI's, so nothing that can fail comes before one. But after a failure
 * peers may still be in the call, with the batches of a call of Tiara's.
 */
static bool packs_much(const struct multi *m)
{
    struct tiara_call call = {.elem = m->elem};
    struct tiara_tune_choice choice;
    struct tiara_tune_call ignored;

    if (m->c->state.phase == TIARA_COMM_REVOKED)
        return true;
    for (size_t bytes = 2 * SCRATCH_BYTES; bytes <= PACKED_BYTES; bytes *= 2) {
        call.count = bytes / m->elem.size;
        tiara_call_query(m->c, &call, TIARA_ON_HOST, &ignored, &choice);
        if (choice.path == TIARA_PATH_MPI)
            return false;
    }
    return true;
}

/* The error class of what is wrong, or MPI_SUCCESS. */
static int judge(const struct multi *m, const void *sendbufs, bool packs)
{
    int rc = judge_counts(m);

    if (rc == MPI_SUCCESS)
        rc = tiara_describe_bad_handles(m->type, m->op, NULL);
    if (rc == MPI_SUCCESS && m->n > 0 && (!sendbufs || !m->recvbufs)) {
        tiara_error("TIARA_Allreduce_multi: %s is null", sendbufs ? "recvbufs" : "sendbufs");
        return MPI_ERR_BUFFER;
    }
    return rc == MPI_SUCCESS && packs ? judge_buffers(m) : rc;
}

int TIARA_Allreduce_multi(int n, const void *const *sendbufs, void *const *recvbufs,
    const int *counts, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    int rc;
    bool in_place = (const void *)sendbufs == MPI_IN_PLACE;
    struct multi m = {.c = tiara_process_get(comm, &rc),
        .n = n,
        .comm = comm,
        .sendbufs = in_place ? NULL : sendbufs,
        .recvbufs = recvbufs,
        .counts = counts,
        .type = datatype,
        .op = op};
    bool packs = tiara_elem_native(datatype, op, &m.elem) && m.c && !m.c->inter;

    if (rc != MPI_SUCCESS)
        return rc;
    rc = judge(&m, sendbufs, packs);
    if (rc != MPI_SUCCESS)
        return tiara_below_raise_code(comm, rc);
    if (packs && m.c->size > 1) {
        m.packed_max = packs_much(&m) ? PACKED_BYTES : SCRATCH_BYTES;
        return reduce_packed(&m);
    }
    for (int i = 0; i < n && rc == MPI_SUCCESS; i++)
        rc = reduce_one(&m, i);
    return rc;
}
