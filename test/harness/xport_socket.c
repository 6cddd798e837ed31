/*
 * Transport socket: messages between processes of one machine, in datagrams of unix sockets. For
 * tests of what a network is to the rest of the library, and an example for one that is no MPI.
 *
 * The one idea: each rank has one socket with an abstract name; the kernel keeps the order of what
 * a rank sends to another, loses nothing, and says so when a receiver's queue is full. So nothing
 * but matching is left to do, and no datagram is ever half sent.
 *
 *     datagram   from        what it says
 *     EAGER      sender      a whole message, of up to EAGER_BYTES
 *     RTS        sender      there is a longer one: its tag and length
 *     CTS        receiver    a receive waits for it; or, with length 0, nobody wants it
 *     DATA       sender      the next part of its bytes
 *
 * EAGER and RTS leave in the order of the sends to each peer, and are matched in that order. Ids
 * say which message a CTS or DATA belongs to, so that one for a cancelled request is nobody's.
 * Nothing waits: what the kernel does not take is tried again with the next progress, in which
 * whatever has arrived is taken out of the socket first, so that two full ranks empty each other.
 */
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define EAGER_BYTES ((size_t)4096)
#define PART_BYTES ((size_t)32768)

enum datagram {
    DATAGRAM_EAGER,
    DATAGRAM_RTS,
    DATAGRAM_CTS,
    DATAGRAM_DATA
};

/* What stands before the bytes of a datagram. No holes, as it is sent. */
struct header {
    uint32_t kind; /* enum datagram */
    int32_t from;
    uint32_t tag; /* EAGER, RTS */
    uint32_t unused;
    uint64_t len; /* of the message; CTS: 0 is a refusal */
    uint64_t offset; /* DATA: of its bytes in the message */
    uint64_t sender_id, receiver_id; /* of the messages on both sides */
};

enum state {
    STATE_START, /* a send that the peer has not heard of; a receive without message */
    STATE_CLEAR, /* a receive that has to say CTS */
    STATE_WAIT, /* for CTS, or for DATA */
    STATE_DATA, /* a send whose bytes leave */
    STATE_DONE
};

/* A send, a receive, or a message that has arrived unexpected. */
struct message {
    struct message *next;
    enum state state;
    bool is_owned; /* a send of which nobody will ask */
    int peer;
    uint32_t tag;
    uint64_t id, peer_id;
    char *buf;
    size_t len, moved;
    enum tiara_err err;
    char payload[]; /* EAGER_BYTES, of an unexpected one */
};

struct socket {
    struct tiara_xport_head head;
    int rank, size;
    int fd; /* -1: none; means nothing before there are names */
    uint64_t last_id;
    uint64_t *names; /* [size] of all sockets */
    bool *full; /* [size] the peer takes no more now */
    char *part; /* [PART_BYTES] of the datagram that is received */
    struct message *sends, *recvs, *unexpected; /* oldest first */
    struct message *spare; /* for the next unexpected one; NULL: no memory */
};

/* ---- lists ---- */

static struct message *append(struct message **list, struct message *m)
{
    while (*list != NULL)
        list = &(*list)->next;
    *list = m;
    return m;
}

static void drop(struct message **list, struct message *m)
{
    while (*list != m)
        list = &(*list)->next;
    *list = m->next;
    tiara_free(m);
}

static struct message *find_id(struct message *list, uint64_t id)
{
    while (list != NULL && list->id != id)
        list = list->next;
    return list;
}

/* ---- datagrams ---- */

/* Sends a datagram of @len bytes at @at. False when the peer's queue is full or there is an error,
 * which *err_out has then. */
static bool datagram_send(struct socket *x, int peer, struct header header, const char *at,
    size_t len, enum tiara_err *err_out)
{
    struct sockaddr_un to;
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)(uintptr_t)at, len}};
    struct msghdr message = {.msg_name = &to,
        .msg_namelen = tiara_xport_address(NULL, x->names[peer], &to),
        .msg_iov = parts,
        .msg_iovlen = 2};

    header.from = x->rank;
    if (x->full[peer])
        return false;
    if (sendmsg(x->fd, &message, MSG_NOSIGNAL) >= 0)
        return true;
    x->full[peer] = true;
    if (errno != EAGAIN && errno != ENOBUFS) {
        tiara_error("a message to rank %d: %s", peer, strerror(errno));
        *err_out = errno == ECONNREFUSED ? TIARA_ERR_PEER : TIARA_ERR_SYS;
    }
    return false;
}

/* Sends what can be sent of @m. */
static void push_send(struct socket *x, struct message *m)
{
    bool eager = m->len <= EAGER_BYTES;
    struct header header = {.kind = eager ? DATAGRAM_EAGER : DATAGRAM_RTS,
        .tag = m->tag,
        .len = m->len,
        .sender_id = m->id};

    if (m->state == STATE_START &&
        datagram_send(x, m->peer, header, m->buf, eager ? m->len : 0, &m->err))
        m->state = eager ? STATE_DONE : STATE_WAIT;
    header = (struct header){.kind = DATAGRAM_DATA, .receiver_id = m->peer_id};
    while (m->state == STATE_DATA) {
        size_t left = m->len - m->moved, n = left < PART_BYTES ? left : PART_BYTES;

        header.offset = m->moved;
        if (!datagram_send(x, m->peer, header, m->buf + m->moved, n, &m->err))
            break;
        m->moved += n;
        if (m->moved == m->len)
            m->state = STATE_DONE;
    }
    if (m->err != TIARA_OK)
        m->state = STATE_DONE;
}

/* Says CTS for the receive @m. */
static void push_recv(struct socket *x, struct message *m)
{
    bool wanted = m->err == TIARA_OK;
    struct header header = {.kind = DATAGRAM_CTS,
        .len = wanted ? m->len : 0,
        .sender_id = m->peer_id,
        .receiver_id = m->id};
    enum tiara_err err = TIARA_OK;

    if (datagram_send(x, m->peer, header, NULL, 0, &err))
        m->state = wanted ? STATE_WAIT : STATE_DONE;
    if (err != TIARA_OK) {
        m->err = err;
        m->state = STATE_DONE;
    }
}

static void push(struct socket *x)
{
    struct message *m, *next;

    memset(x->full, 0, (size_t)x->size * sizeof *x->full);
    for (m = x->recvs; m != NULL; m = m->next) {
        if (m->state == STATE_CLEAR)
            push_recv(x, m);
    }
    for (m = x->sends; m != NULL; m = next) {
        next = m->next;
        push_send(x, m);
        if (m->state == STATE_DONE && m->is_owned)
            drop(&x->sends, m);
    }
}

/* Gives the unexpected message @u to the receive @m. */
static void receive(struct socket *x, struct message *m, struct message *u)
{
    m->peer_id = u->id;
    m->state = u->state == STATE_DONE ? STATE_DONE : STATE_CLEAR; /* its bytes are here, or not */
    if (m->len != u->len) {
        tiara_error("message from rank %d with tag %u has %zu bytes, expected %zu", m->peer,
            (unsigned)m->tag, u->len, m->len);
        m->err = TIARA_ERR_MISMATCH;
    } else if (m->state == STATE_DONE && m->len > 0) {
        memcpy(m->buf, u->payload, m->len);
    }
    drop(&x->unexpected, u);
}

/* Receives are served in the order in which they were posted. */
static void match(struct socket *x)
{
    for (struct message *m = x->recvs; m != NULL && x->unexpected != NULL; m = m->next) {
        struct message *u = m->state == STATE_START ? x->unexpected : NULL;

        while (u != NULL && (u->peer != m->peer || u->tag != m->tag))
            u = u->next;
        if (u != NULL)
            receive(x, m, u);
    }
}

/* Does what the datagram says whose @n bytes are in x->part. */
static void datagram_take(struct socket *x, const struct header *header, size_t n)
{
    struct message *m;

    if (header->kind == DATAGRAM_CTS) {
        m = find_id(x->sends, header->sender_id);
        if (m != NULL) {
            m->state = header->len > 0 ? STATE_DATA : STATE_DONE;
            m->peer_id = header->receiver_id;
        }
    } else if (header->kind == DATAGRAM_DATA) {
        m = find_id(x->recvs, header->receiver_id);
        if (m != NULL && header->offset + n <= m->len) {
            memcpy(m->buf + header->offset, x->part, n);
            m->moved += n;
            m->state = m->moved == m->len ? STATE_DONE : STATE_WAIT;
        }
    } else {
        m = append(&x->unexpected, x->spare);
        x->spare = NULL;
        m->peer = header->from;
        m->tag = header->tag;
        m->len = (size_t)header->len;
        m->id = header->sender_id;
        m->state = header->kind == DATAGRAM_EAGER ? STATE_DONE : STATE_WAIT;
        memcpy(m->payload, x->part, n);
    }
}

/* Takes everything out of the socket, then sends what can be sent. */
static enum tiara_err progress(struct socket *x)
{
    for (;;) {
        struct header header;
        struct iovec parts[2] = {{&header, sizeof header}, {x->part, PART_BYTES}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n;

        if (x->spare == NULL)
            x->spare = tiara_alloc(1, sizeof *x->spare + EAGER_BYTES);
        if (x->spare == NULL)
            return TIARA_ERR_NOMEM;
        n = recvmsg(x->fd, &message, 0);
        if (n < (ssize_t)sizeof header)
            break;
        datagram_take(x, &header, (size_t)n - sizeof header);
    }
    match(x);
    push(x);
    return TIARA_OK;
}

/* ---- the entries ---- */

static void socket_close(void *obj)
{
    struct socket *x = obj;
    struct message **lists[3];

    if (x == NULL)
        return;
    lists[0] = &x->sends;
    lists[1] = &x->recvs;
    lists[2] = &x->unexpected;
    for (int i = 0; i < 3; i++) {
        while (*lists[i] != NULL)
            drop(lists[i], *lists[i]);
    }
    if (x->names != NULL && x->fd >= 0)
        close(x->fd);
    tiara_free(x->spare);
    tiara_free(x->part);
    tiara_free(x->full);
    tiara_free(x->names);
    memset(x, 0, sizeof *x);
}

/* The local part of open. */
static enum tiara_err prepare(struct socket *x, uint64_t name)
{
    struct sockaddr_un address;
    socklen_t length = tiara_xport_address(NULL, name, &address);

    x->fd = -1;
    x->names = tiara_alloc((size_t)x->size, sizeof *x->names);
    x->full = tiara_alloc((size_t)x->size, sizeof *x->full);
    x->part = tiara_alloc(PART_BYTES, 1);
    if (x->names == NULL || x->full == NULL || x->part == NULL)
        return TIARA_ERR_NOMEM;
    x->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (x->fd < 0 || bind(x->fd, (struct sockaddr *)&address, length) != 0)
        return tiara_xport_sys_error(errno, "a socket for messages");
    return TIARA_OK;
}

/* Whether this rank reaches the sockets of all others: not those of other machines. */
static enum tiara_err peers_probe(const struct socket *x)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    enum tiara_err err = fd >= 0 ? TIARA_OK : tiara_xport_sys_error(errno, "a socket");

    for (int peer = 0; peer < x->size && err == TIARA_OK; peer++) {
        struct sockaddr_un to;
        socklen_t length = tiara_xport_address(NULL, x->names[peer], &to);

        if (connect(fd, (struct sockaddr *)&to, length) != 0)
            err = tiara_xport_sys_error(errno, "the socket of rank %d", peer);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

static enum tiara_err socket_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct socket *x = obj;
    uint64_t name = tiara_cookie();
    enum tiara_err err;

    (void)expose_bytes; /* Nothing is exposed. */
    x->rank = group->rank;
    x->size = group->size;
    x->head.tag_bits = 30;
    err = tiara_xport_agree(group, prepare(x, name));
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &name, x->names, sizeof name);
    if (err == TIARA_OK)
        err = tiara_xport_agree(group, peers_probe(x));
    if (err != TIARA_OK)
        socket_close(x);
    return err;
}

/* A new message in @list; @req is NULL when nobody will ask for it. */
static struct message *start(struct socket *x, struct message **list, int peer, uint32_t tag,
    void *buf, size_t len, struct tiara_xport_req *req)
{
    struct message *m = tiara_alloc(1, sizeof *m);

    if (req != NULL)
        *req = (struct tiara_xport_req){.handle = {m, list}, .len = len, .peer = peer};
    if (m == NULL)
        return NULL;
    m->is_owned = req == NULL;
    m->peer = peer;
    m->tag = tag;
    m->id = ++x->last_id;
    m->buf = buf;
    m->len = len;
    return append(list, m);
}

static enum tiara_err socket_send(
    void *obj, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct socket *x = obj;

    if (start(x, &x->sends, peer, tag, (void *)(uintptr_t)buf, len, req) == NULL)
        return TIARA_ERR_NOMEM;
    x->head.sent++;
    push(x);
    return TIARA_OK;
}

static enum tiara_err socket_recv(
    void *obj, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    struct socket *x = obj;

    return start(x, &x->recvs, peer, tag, buf, len, req) != NULL ? TIARA_OK : TIARA_ERR_NOMEM;
}

static void socket_cancel(void *obj, struct tiara_xport_req *req)
{
    (void)obj;
    if (!req->done)
        drop(req->handle[1], req->handle[0]);
    req->done = true;
}

static enum tiara_err socket_test(void *obj, struct tiara_xport_req *req)
{
    struct socket *x = obj;
    enum tiara_err err;
    const struct message *m;

    if (req->done)
        return TIARA_OK;
    err = progress(x);
    if (err != TIARA_OK)
        return err;
    m = req->handle[0];
    if (m->state == STATE_DONE) {
        err = m->err;
        socket_cancel(x, req);
    }
    return err;
}

static bool socket_probe(void *obj, int peer, uint32_t *tag_out)
{
    struct socket *x = obj;
    const struct message *found = NULL;

    (void)!progress(x);
    for (const struct message *u = x->unexpected; u != NULL; u = u->next) {
        bool control = tiara_xport_is_control(x->head.tag_bits, u->tag);

        if (u->peer == peer && (found == NULL || control))
            found = u;
        if (u->peer == peer && control)
            break;
    }
    if (found != NULL)
        *tag_out = found->tag;
    return found != NULL;
}

const struct tiara_xport tiara_xport_socket = {
    .name = "socket",
    .flags = TIARA_XPORT_MESSAGE | TIARA_XPORT_PROCESSES,
    .size = sizeof(struct socket),
    .open = socket_open,
    .close = socket_close,
    .send = socket_send,
    .recv = socket_recv,
    .test = socket_test,
    .cancel = socket_cancel,
    .probe = socket_probe,
};
