/*
 * Messages of device memory, over any network.
 *
 * A direct message is the transport's: it takes device memory. Any other goes through pinned
 * memory, in pieces, so that the copy of one piece overlaps with the network's work on another:
 *
 *   send      copy down  | network          a piece is complete when the network has taken it
 *   receive              | network | copy up
 *
 * A message has two bounce buffers of a piece each, which its pieces take in turn. Both ends cut
 * alike, since a cut depends on the length alone. The pieces of messages with the same peer and
 * direction are handed to the network in the order of the messages, all of one before the first of
 * the next: equal tags match in order. (Other slots' messages have other tags.)
 *
 * Nobody waits for a bounce buffer: there are as many in each slot as the plan ever has messages in
 * flight, which its awaits bound. A pool that is shared by more would make messages wait for each
 * other that the plan takes to be independent.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "gpu/node.h"
#include "gpu/range.h"
#include <string.h>

/* ---- bounce buffers ---- */

static struct tiara_gpu_bounce *bounce_at(struct tiara_gpu_node *node, int slot, int i)
{
    return &node->slot[slot].mail.of[i / 2].bounce[i % 2];
}

/* The tables and events of all slots. */
static void drop_slots(struct tiara_gpu_node *node)
{
    for (int slot = 0; slot < TIARA_KERNEL_SLOTS; slot++) {
        struct tiara_gpu_mail *mail = &node->slot[slot].mail;

        for (int i = 0; mail->of && i < 2 * mail->window; i++) {
            cudaEvent_t event = bounce_at(node, slot, i)->copied;

            if (event && tiara_gpu_ok(cudaEventDestroy(event), "cudaEventDestroy") != TIARA_OK)
                tiara_debug("an event is left");
        }
        tiara_free(mail->of);
        *mail = (struct tiara_gpu_mail){0};
    }
    node->bounce_bytes = 0;
}

void tiara_gpu_mail_release(struct tiara_gpu_node *node)
{
    drop_slots(node);
    while (node->pinned) {
        struct tiara_gpu_pinned *pinned = node->pinned;

        node->pinned = pinned->next;
        if (tiara_gpu_ok(cudaFreeHost(pinned->at), "cudaFreeHost") != TIARA_OK)
            tiara_debug("bounce buffers of messages stay pinned");
        tiara_free(pinned);
    }
}

static enum tiara_err pin(struct tiara_gpu_node *node, size_t bytes)
{
    struct tiara_gpu_pinned *pinned = tiara_alloc(1, sizeof(*pinned));
    enum tiara_err err;

    if (!pinned)
        return TIARA_ERR_NOMEM;
    err = tiara_gpu_ok(cudaHostAlloc(&pinned->at, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    if (err != TIARA_OK) {
        tiara_free(pinned);
        return err;
    }
    pinned->next = node->pinned;
    node->pinned = pinned;
    return TIARA_OK;
}

/* The tables and events of one slot, whose bounce buffers lie at @at. */
static enum tiara_err make_slot(
    struct tiara_gpu_node *node, int slot, int window, size_t bytes, char *at)
{
    struct tiara_gpu_mail *mail = &node->slot[slot].mail;
    enum tiara_err err = TIARA_OK;

    mail->of = tiara_alloc((size_t)window, sizeof(*mail->of));
    if (!mail->of)
        return TIARA_ERR_NOMEM;
    mail->window = window;
    for (int i = 0; i < 2 * window && err == TIARA_OK; i++) {
        struct tiara_gpu_bounce *bounce = bounce_at(node, slot, i);

        bounce->at = at + (size_t)i * bytes;
        err = tiara_gpu_ok(cudaEventCreateWithFlags(&bounce->copied, cudaEventDisableTiming),
            "cudaEventCreateWithFlags");
    }
    return err;
}

enum tiara_err tiara_gpu_mail_reserve(struct tiara_gpu_node *node, int window, size_t bytes)
{
    int old = node->slot[0].mail.window;
    size_t each;
    enum tiara_err err;

    bytes = bytes < TIARA_GPU_PIECE_BYTES ? (bytes + 4095) / 4096 * 4096 : TIARA_GPU_PIECE_BYTES;
    if (window <= old && bytes <= node->bounce_bytes)
        return TIARA_OK;
    window = window > old ? window : old;
    bytes = bytes > node->bounce_bytes ? bytes : node->bounce_bytes;
    each = 2 * (size_t)window * bytes;
    err = pin(node, TIARA_KERNEL_SLOTS * each);
    if (err != TIARA_OK)
        return err;
    drop_slots(node);
    for (int slot = 0; slot < TIARA_KERNEL_SLOTS && err == TIARA_OK; slot++)
        err = make_slot(node, slot, window, bytes, (char *)node->pinned->at + (size_t)slot * each);
    if (err == TIARA_OK)
        node->bounce_bytes = bytes;
    else
        drop_slots(node);
    return err;
}

/* ---- pieces ---- */

static size_t piece_bytes(const struct tiara_gpu_message *m, size_t i)
{
    size_t at = i * TIARA_GPU_PIECE_BYTES;

    return m->m.bytes - at < TIARA_GPU_PIECE_BYTES ? m->m.bytes - at : TIARA_GPU_PIECE_BYTES;
}

static struct tiara_gpu_bounce *piece_bounce(struct tiara_gpu_message *m, size_t i)
{
    return &m->bounce[i % 2];
}

/* Starts the copy of piece @i between device memory and its bounce buffer. */
static enum tiara_err copy_start(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, size_t i)
{
    struct tiara_gpu_bounce *bounce = piece_bounce(m, i);
    char *at = m->m.at + i * TIARA_GPU_PIECE_BYTES;
    cudaStream_t stream = m->m.sends ? net->down : net->up;
    cudaError_t code;
    enum tiara_err err;

    bounce->range = tiara_gpu_range_begin(TIARA_GPU_RANGE_COPY);
    if (m->m.sends)
        code = cudaMemcpyAsync(bounce->at, at, piece_bytes(m, i), cudaMemcpyDeviceToHost, stream);
    else
        code = cudaMemcpyAsync(at, bounce->at, piece_bytes(m, i), cudaMemcpyHostToDevice, stream);
    err = tiara_gpu_ok(code, "cudaMemcpyAsync");
    if (err == TIARA_OK)
        err = tiara_gpu_ok(cudaEventRecord(bounce->copied, stream), "cudaEventRecord");
    return err;
}

static enum tiara_err copy_test(struct tiara_gpu_message *m, size_t i, bool *done_out)
{
    struct tiara_gpu_bounce *bounce = piece_bounce(m, i);
    enum tiara_err err = tiara_gpu_event_test(bounce->copied, done_out);

    if (err == TIARA_OK && *done_out)
        tiara_gpu_range_end(bounce->range);
    return err;
}

/* Hands piece @i to the transport. */
static enum tiara_err net_start(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, size_t i)
{
    struct tiara_gpu_bounce *bounce = piece_bounce(m, i);
    struct tiara_message piece = m->m;

    piece.at = bounce->at;
    piece.bytes = piece_bytes(m, i);
    return tiara_message_start(&piece, net->xport, net->obj, &bounce->req);
}

static enum tiara_err net_test(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, size_t i, bool *done_out)
{
    struct tiara_xport_req *req = &piece_bounce(m, i)->req;
    enum tiara_err err = TIARA_OK;

    if (!req->done)
        err = net->xport->test(net->obj, req);
    *done_out = req->done;
    return err;
}

/* The two stages of a piece, and their tests. */
static enum tiara_err stage_start(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, size_t i, bool first)
{
    return m->m.sends == first ? copy_start(m, net, i) : net_start(m, net, i);
}

static enum tiara_err stage_test(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, size_t i, bool first, bool *done)
{
    return m->m.sends == first ? copy_test(m, i, done) : net_test(m, net, i, done);
}

/* ---- messages ---- */

/* Whether all pieces of @m have been handed to the transport. */
static bool is_posted(const struct tiara_gpu_message *m)
{
    return m->done || m->direct || (m->m.sends ? m->moved : m->started) == m->npieces;
}

/* Moves a staged message. @may_post: the transport may have its next piece. */
static enum tiara_err drive_pieces(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, bool may_post, bool *moved)
{
    bool done = true;
    enum tiara_err err = TIARA_OK;

    while (err == TIARA_OK && m->finished < m->moved) {
        err = stage_test(m, net, m->finished, false, &done);
        if (err != TIARA_OK || !done)
            break;
        m->finished++;
        *moved = true;
    }
    while (err == TIARA_OK && m->moved < m->started && (may_post || !m->m.sends)) {
        err = stage_test(m, net, m->moved, true, &done);
        if (err != TIARA_OK || !done)
            break;
        err = stage_start(m, net, m->moved, false);
        m->moved += err == TIARA_OK;
        *moved = true;
    }
    while (err == TIARA_OK && m->started < m->npieces && m->started < m->finished + 2 &&
           (may_post || m->m.sends)) {
        err = stage_start(m, net, m->started, true);
        m->started += err == TIARA_OK;
        *moved = true;
    }
    m->done = m->finished == m->npieces;
    return err;
}

static enum tiara_err drive_message(
    struct tiara_gpu_message *m, const struct tiara_gpu_net *net, bool may_post, bool *moved)
{
    enum tiara_err err;

    if (m->done)
        return TIARA_OK;
    if (m->direct) {
        err = net->xport->test(net->obj, &m->req);
        m->done = m->req.done;
        *moved |= m->done;
    } else {
        err = drive_pieces(m, net, may_post, moved);
    }
    if (m->done)
        tiara_gpu_range_end(m->range);
    return err;
}

/* Whether the messages before @ordinal with the same peer and direction have been handed to the
 * transport. */
static bool is_next(const struct tiara_gpu_mail *mail, int ordinal)
{
    const struct tiara_gpu_message *m = &mail->of[ordinal % mail->window];

    for (int i = mail->done; i < ordinal; i++) {
        const struct tiara_gpu_message *before = &mail->of[i % mail->window];

        if (before->m.peer == m->m.peer && before->m.sends == m->m.sends && !is_posted(before))
            return false;
    }
    return true;
}

enum tiara_err tiara_gpu_mail_start(struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net,
    const struct tiara_message *message, bool direct)
{
    struct tiara_gpu_message *m = &mail->of[mail->started % mail->window];
    bool moved = false;
    enum tiara_err err;

    tiara_assert(mail->started - mail->done < mail->window);
    m->m = *message;
    m->direct = direct;
    m->npieces = (m->m.bytes + TIARA_GPU_PIECE_BYTES - 1) / TIARA_GPU_PIECE_BYTES;
    m->started = m->moved = m->finished = 0;
    m->done = m->m.bytes == 0;
    if (m->done) {
        mail->started++;
        return TIARA_OK;
    }
    m->range = tiara_gpu_range_begin(TIARA_GPU_RANGE_NET);
    if (direct) {
        err = tiara_message_start(&m->m, net->xport, net->obj, &m->req);
        m->done = m->req.done;
    } else {
        err = drive_pieces(m, net, is_next(mail, mail->started), &moved);
    }
    if (m->done)
        tiara_gpu_range_end(m->range);
    /* A message whose start failed may have pieces in flight: it is there to be cancelled. */
    if (err == TIARA_OK || !direct)
        mail->started++;
    return err;
}

enum tiara_err tiara_gpu_mail_drive(
    struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net, bool *moved)
{
    enum tiara_err err = TIARA_OK;

    for (int i = mail->done; i < mail->started && err == TIARA_OK; i++)
        err = drive_message(&mail->of[i % mail->window], net, is_next(mail, i), moved);
    while (mail->done < mail->started && mail->of[mail->done % mail->window].done) {
        mail->done++;
        *moved = true;
    }
    return err;
}

void tiara_gpu_mail_cancel(struct tiara_gpu_mail *mail, const struct tiara_gpu_net *net)
{
    for (int i = mail->done; i < mail->started; i++) {
        struct tiara_gpu_message *m = &mail->of[i % mail->window];
        /* Pieces that the transport has. */
        size_t first = m->m.sends ? m->finished : m->moved,
               end = m->m.sends ? m->moved : m->started;

        if (m->direct && !m->req.done)
            net->xport->cancel(net->obj, &m->req);
        for (; !m->direct && first < end; first++)
            if (!piece_bounce(m, first)->req.done)
                net->xport->cancel(net->obj, &piece_bounce(m, first)->req);
    }
    mail->started = mail->done = 0;
}
