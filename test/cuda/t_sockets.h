/*
 * A message transport over socket pairs, for ranks that are forked processes on "nodes" of their
 * own.
 *
 * As simple as the seam allows: what arrives is read into memory of its own and matched by (peer,
 * tag) in order; what cannot be written yet waits in a queue for each peer, in order. Memory is
 * read and written by the CPU, so that device memory works only where the CPU reaches it.
 */
#ifndef TIARA_TEST_CUDA_SOCKETS_H
#define TIARA_TEST_CUDA_SOCKETS_H

#include "base/alloc.h"
#include "xport/xport.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKETS_MAX 8 /* ranks */

/* One end for each pair, made before the ranks are: fd[a][b] is a's end of the pair with b. */
struct sockets_mesh {
    int n;
    int fd[SOCKETS_MAX][SOCKETS_MAX];
};

struct sockets_head {
    uint64_t bytes;
    uint64_t tag;
};

/* A message that waits: to be written, to be matched, or for its like to come. */
struct sockets_item {
    struct sockets_item *next;
    struct sockets_head head;
    char *data; /* owned by an arrived one */
    size_t at; /* bytes done, of head and data */
    struct tiara_xport_req *req;
};

struct sockets_peer {
    int fd;
    struct sockets_item *sends, *arrived, *posted; /* in order */
    struct sockets_item *coming; /* is being read */
};

struct sockets {
    int n;
    struct sockets_peer peer[SOCKETS_MAX];
    size_t sent; /* bytes of messages, by this rank */
};

static inline void sockets_mesh_make(struct sockets_mesh *mesh, int n)
{
    mesh->n = n;
    for (int a = 0; a < n; a++) {
        mesh->fd[a][a] = -1;
        for (int b = 0; b < a; b++) {
            int pair[2] = {-1, -1};

            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
                perror("socketpair");
            mesh->fd[a][b] = pair[0];
            mesh->fd[b][a] = pair[1];
        }
    }
}

static inline void sockets_mesh_close(struct sockets_mesh *mesh)
{
    for (int a = 0; a < mesh->n; a++)
        for (int b = 0; b < mesh->n; b++)
            if (mesh->fd[a][b] >= 0)
                close(mesh->fd[a][b]);
}

/* @s becomes @rank's; the ends of others are closed. */
static inline void sockets_take(struct sockets *s, struct sockets_mesh *mesh, int rank)
{
    memset(s, 0, sizeof(*s));
    s->n = mesh->n;
    for (int a = 0; a < mesh->n; a++)
        for (int b = 0; b < mesh->n; b++)
            if (a != rank && mesh->fd[a][b] >= 0)
                close(mesh->fd[a][b]);
    for (int b = 0; b < mesh->n; b++)
        s->peer[b].fd = mesh->fd[rank][b];
}

static inline void sockets_append(struct sockets_item **list, struct sockets_item *item)
{
    item->next = NULL;
    while (*list)
        list = &(*list)->next;
    *list = item;
}

/* Takes the first item with @tag out of the list; NULL: none. */
static inline struct sockets_item *sockets_find(struct sockets_item **list, uint64_t tag)
{
    struct sockets_item *item;

    while (*list && (*list)->head.tag != tag)
        list = &(*list)->next;
    item = *list;
    if (item)
        *list = item->next;
    return item;
}

static inline void sockets_free(struct sockets_item *list, bool with_data)
{
    while (list) {
        struct sockets_item *next = list->next;

        if (with_data)
            tiara_free(list->data);
        tiara_free(list);
        list = next;
    }
}

static inline void sockets_leave(struct sockets *s)
{
    for (int p = 0; p < s->n; p++) {
        sockets_free(s->peer[p].sends, false);
        sockets_free(s->peer[p].posted, false);
        sockets_free(s->peer[p].arrived, true);
        sockets_free(s->peer[p].coming, true);
        if (s->peer[p].fd >= 0)
            close(s->peer[p].fd);
    }
}

/* Moves @item on by a read or write of its head or data. False: not now. */
static inline bool sockets_move(int fd, struct sockets_item *item, bool out)
{
    bool in_head = item->at < sizeof(item->head);
    char *at =
        in_head ? (char *)&item->head + item->at : item->data + item->at - sizeof(item->head);
    size_t n = in_head ? sizeof(item->head) - item->at
                       : (size_t)item->head.bytes + sizeof(item->head) - item->at;
    ssize_t moved = out ? send(fd, at, n, MSG_NOSIGNAL) : recv(fd, at, n, 0);

    if (moved <= 0)
        return false;
    item->at += (size_t)moved;
    return true;
}

static inline bool sockets_is_over(const struct sockets_item *item)
{
    return item->at >= sizeof(item->head) && item->at == item->head.bytes + sizeof(item->head);
}

static inline void sockets_write(struct sockets_peer *p)
{
    while (p->sends && sockets_move(p->fd, p->sends, true)) {
        struct sockets_item *item = p->sends;

        if (!sockets_is_over(item))
            continue;
        p->sends = item->next;
        item->req->done = true;
        tiara_free(item);
    }
}

static inline enum tiara_err sockets_deliver(
    struct sockets_item *posted, struct sockets_item *arrived)
{
    enum tiara_err err = TIARA_OK;

    if (posted->head.bytes == arrived->head.bytes)
        memcpy(posted->data, arrived->data, posted->head.bytes);
    else
        err = TIARA_ERR_MISMATCH;
    posted->req->done = true;
    tiara_free(posted);
    tiara_free(arrived->data);
    tiara_free(arrived);
    return err;
}

/* What has come from @p, matched or kept. */
static inline enum tiara_err sockets_read(struct sockets_peer *p)
{
    enum tiara_err err = TIARA_OK;

    while (err == TIARA_OK) {
        struct sockets_item *item = p->coming, *posted;

        if (!item)
            item = p->coming = tiara_alloc(1, sizeof(*item));
        if (!item || !sockets_move(p->fd, item, false))
            break;
        if (item->at == sizeof(item->head))
            item->data = tiara_alloc(1, item->head.bytes);
        if (!sockets_is_over(item))
            continue;
        p->coming = NULL;
        posted = sockets_find(&p->posted, item->head.tag);
        if (posted)
            err = sockets_deliver(posted, item);
        else
            sockets_append(&p->arrived, item);
    }
    return err;
}

static inline enum tiara_err sockets_test(void *x, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    enum tiara_err err = TIARA_OK;

    (void)req;
    for (int p = 0; p < s->n && err == TIARA_OK; p++) {
        if (s->peer[p].fd < 0)
            continue;
        sockets_write(&s->peer[p]);
        err = sockets_read(&s->peer[p]);
    }
    return err;
}

static inline struct sockets_item *sockets_item(
    uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct sockets_item *item = tiara_alloc(1, sizeof(*item));

    if (item) {
        item->head = (struct sockets_head){len, tag};
        item->data = (char *)(uintptr_t)buf;
        item->req = req;
    }
    return item;
}

static inline enum tiara_err sockets_send(
    void *x, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    struct sockets_item *item = sockets_item(tag, buf, len, req);

    if (!item)
        return TIARA_ERR_NOMEM;
    s->sent += len;
    sockets_append(&s->peer[peer].sends, item);
    sockets_write(&s->peer[peer]);
    return TIARA_OK;
}

static inline enum tiara_err sockets_recv(
    void *x, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    struct sockets_item *arrived = sockets_find(&s->peer[peer].arrived, tag);
    struct sockets_item *item = sockets_item(tag, buf, len, req);

    if (!item)
        return TIARA_ERR_NOMEM;
    if (arrived)
        return sockets_deliver(item, arrived);
    sockets_append(&s->peer[peer].posted, item);
    return TIARA_OK;
}

/* The rest of a message that was half written is never sent: its peer reads no more from here. */
static inline void sockets_cancel(void *x, struct tiara_xport_req *req)
{
    struct sockets *s = x;

    for (int p = 0; p < s->n; p++) {
        struct sockets_item **lists[] = {&s->peer[p].sends, &s->peer[p].posted};

        for (int i = 0; i < 2; i++) {
            for (struct sockets_item **at = lists[i]; *at; at = &(*at)->next) {
                struct sockets_item *item = *at;

                if (item->req != req)
                    continue;
                *at = item->next;
                tiara_free(item);
                req->done = true;
                return;
            }
        }
    }
}

static const struct tiara_xport sockets_xport = {
    .name = "sockets",
    .flags = TIARA_XPORT_MESSAGE,
    .size = sizeof(struct sockets),
    .send = sockets_send,
    .recv = sockets_recv,
    .test = sockets_test,
    .cancel = sockets_cancel,
};

#endif
