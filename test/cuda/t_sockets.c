/*
 * Messages over socket pairs.
 */
#include "test/cuda/t_sockets.h"
#include "base/alloc.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

void sockets_mesh_make(struct sockets_mesh *mesh, int n)
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

void sockets_mesh_close(struct sockets_mesh *mesh)
{
    for (int a = 0; a < mesh->n; a++)
        for (int b = 0; b < mesh->n; b++)
            if (mesh->fd[a][b] >= 0)
                close(mesh->fd[a][b]);
}

void sockets_take(struct sockets *s, struct sockets_mesh *mesh, int rank)
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

static void append(struct sockets_item **list, struct sockets_item *item)
{
    item->next = NULL;
    while (*list)
        list = &(*list)->next;
    *list = item;
}

/* Takes the first item with @tag out of the list; NULL: none. */
static struct sockets_item *find(struct sockets_item **list, uint64_t tag)
{
    struct sockets_item *item;

    while (*list && (*list)->head.tag != tag)
        list = &(*list)->next;
    item = *list;
    if (item)
        *list = item->next;
    return item;
}

static void free_items(struct sockets_item *list, bool with_data)
{
    while (list) {
        struct sockets_item *next = list->next;

        if (with_data)
            tiara_free(list->data);
        tiara_free(list);
        list = next;
    }
}

void sockets_leave(struct sockets *s)
{
    for (int p = 0; p < s->n; p++) {
        free_items(s->peer[p].sends, false);
        free_items(s->peer[p].posted, false);
        free_items(s->peer[p].arrived, true);
        free_items(s->peer[p].coming, true);
        if (s->peer[p].fd >= 0)
            close(s->peer[p].fd);
    }
}

/* Moves @item on by a read or write of its head or data. False: not now. */
static bool move(int fd, struct sockets_item *item, bool out)
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

static bool is_over(const struct sockets_item *item)
{
    return item->at >= sizeof(item->head) && item->at == item->head.bytes + sizeof(item->head);
}

static void write_sends(struct sockets_peer *p)
{
    while (p->sends && move(p->fd, p->sends, true)) {
        struct sockets_item *item = p->sends;

        if (!is_over(item))
            continue;
        p->sends = item->next;
        item->req->done = true;
        tiara_free(item);
    }
}

static enum tiara_err deliver(struct sockets_item *posted, struct sockets_item *arrived)
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
static enum tiara_err read_all(struct sockets_peer *p)
{
    enum tiara_err err = TIARA_OK;

    while (err == TIARA_OK) {
        struct sockets_item *item = p->coming, *posted;

        if (!item)
            item = p->coming = tiara_alloc(1, sizeof(*item));
        if (!item || !move(p->fd, item, false))
            break;
        if (item->at == sizeof(item->head))
            item->data = tiara_alloc(1, item->head.bytes);
        if (!is_over(item))
            continue;
        p->coming = NULL;
        posted = find(&p->posted, item->head.tag);
        if (posted)
            err = deliver(posted, item);
        else
            append(&p->arrived, item);
    }
    return err;
}

static enum tiara_err test_req(void *x, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    enum tiara_err err = TIARA_OK;

    (void)req;
    for (int p = 0; p < s->n && err == TIARA_OK; p++) {
        if (s->peer[p].fd < 0)
            continue;
        write_sends(&s->peer[p]);
        err = read_all(&s->peer[p]);
    }
    return err;
}

static struct sockets_item *new_item(
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

static enum tiara_err post_send(
    void *x, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    struct sockets_item *item = new_item(tag, buf, len, req);

    if (!item)
        return TIARA_ERR_NOMEM;
    s->sent += len;
    append(&s->peer[peer].sends, item);
    write_sends(&s->peer[peer]);
    return TIARA_OK;
}

static enum tiara_err post_recv(
    void *x, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    struct sockets *s = x;
    struct sockets_item *arrived = find(&s->peer[peer].arrived, tag);
    struct sockets_item *item = new_item(tag, buf, len, req);

    if (!item)
        return TIARA_ERR_NOMEM;
    if (arrived)
        return deliver(item, arrived);
    append(&s->peer[peer].posted, item);
    return TIARA_OK;
}

/* The rest of a message that was half written is never sent: its peer reads no more from here. */
static void cancel_req(void *x, struct tiara_xport_req *req)
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

const struct tiara_xport sockets_xport = {
    .name = "sockets",
    .flags = TIARA_XPORT_MESSAGE,
    .size = sizeof(struct sockets),
    .send = post_send,
    .recv = post_recv,
    .test = test_req,
    .cancel = cancel_req,
};
