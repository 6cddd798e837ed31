/*
 * Transport inproc: ranks are threads of one process.
 *
 * The one idea: all ranks see the same memory, so a segment is a heap block, a get is memcpy, and
 * a message is an entry in a queue. Rank 0 makes the hub (the queues of all pairs, and their lock)
 * and shows it to the others in open; the last rank that closes frees it with all segments, so that
 * a segment stays readable until its reader has closed, too.
 *
 * Messages. Up to EAGER_BYTES are copied by send, which is then done. Longer ones are copied by the
 * receiver straight from the sender's buffer, and the send is done after that: so programs meet
 * both ways in which a real network completes. Queues keep all of a message that either side needs:
 * an eager one until it is received, a longer one until its sender knows that it was.
 *
 * Receives of one peer are matched in the order in which they were posted, all under one hold of
 * the lock; so equal tags match in order even when a message arrives meanwhile.
 *
 * close takes back what is unfinished, so that no peer touches a borrowed buffer after it.
 */
#include "test/harness/xport_inproc.h"
#include "base/alloc.h"
#include "base/log.h"

#include <pthread.h>
#include <string.h>

#define EAGER_BYTES ((size_t)4096)

/* Everything but the payload is under the hub's lock once it is queued. */
struct message {
    struct message *next;
    uint32_t tag;
    size_t len;
    const void *from; /* the sender's buffer; eager: payload */
    bool eager;
    bool received;
    unsigned char payload[];
};

/* What the ranks of one group share. */
struct hub {
    pthread_mutex_t lock;
    int users; /* ranks that have not closed */
    int size;
    struct message *queues[]; /* [dst * size + src], oldest first */
};

/* A receive that nobody has been told to be complete; private to its rank. */
struct receive {
    struct receive *next;
    int peer;
    uint32_t tag;
    void *to;
    size_t len;
    size_t message_len; /* of the message that was received */
    bool done;
};

/* What a rank shows its peers. No holes, as it is sent. */
struct card {
    void *segment;
    struct hub *hub;
};

struct inproc {
    struct tiara_xport_head head;
    int rank;
    int size;
    struct card *cards; /* [size] */
    struct hub *hub; /* freed by the last rank to close; NULL: not open */
    struct receive *receives; /* in the order in which they were posted */
};

static struct message **queue_of(const struct inproc *x, int src, int dst)
{
    return &x->hub->queues[dst * x->size + src];
}

static void message_drop(struct message **queue, struct message *m)
{
    while (*queue != m)
        queue = &(*queue)->next;
    *queue = m->next;
    tiara_free(m);
}

/* ---- open and close ---- */

static struct hub *hub_create(int size)
{
    size_t npairs = (size_t)size * (size_t)size;
    struct hub *hub = tiara_alloc(1, sizeof *hub + npairs * sizeof hub->queues[0]);

    if (hub == NULL)
        return NULL;
    hub->users = size;
    hub->size = size;
    pthread_mutex_init(&hub->lock, NULL);
    return hub;
}

static void hub_destroy(struct hub *hub)
{
    if (hub == NULL)
        return;
    for (int i = 0; i < hub->size * hub->size; i++) {
        while (hub->queues[i] != NULL)
            message_drop(&hub->queues[i], hub->queues[i]);
    }
    pthread_mutex_destroy(&hub->lock);
    tiara_free(hub);
}

/* The local part of open. */
static enum tiara_err prepare(struct inproc *x, size_t expose_bytes, struct card *card_out)
{
    x->cards = tiara_alloc((size_t)x->size, sizeof *x->cards);
    if (x->rank == 0)
        card_out->hub = hub_create(x->size);
    if (x->cards == NULL || (x->rank == 0 && card_out->hub == NULL))
        return TIARA_ERR_NOMEM;
    if (expose_bytes == 0)
        return TIARA_OK;
    x->head.base = tiara_alloc((size_t)x->size, sizeof *x->head.base);
    card_out->segment = tiara_alloc_aligned(4096, expose_bytes);
    if (x->head.base == NULL || card_out->segment == NULL)
        return TIARA_ERR_NOMEM;
    memset(card_out->segment, 0, expose_bytes);
    return TIARA_OK;
}

static void tables_free(struct inproc *x)
{
    tiara_free(x->head.base);
    tiara_free(x->cards);
    memset(x, 0, sizeof *x);
}

static enum tiara_err inproc_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct inproc *x = obj;
    struct card card = {NULL, NULL};
    enum tiara_err err;

    x->rank = group->rank;
    x->size = group->size;
    err = tiara_xport_agree(group, prepare(x, expose_bytes, &card));
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &card, x->cards, sizeof card);
    if (err != TIARA_OK) {
        hub_destroy(card.hub);
        tiara_free(card.segment);
        tables_free(x);
        return err;
    }
    x->hub = x->cards[0].hub;
    x->head.tag_bits = 30;
    for (int i = 0; i < x->size && expose_bytes > 0; i++)
        x->head.base[i] = x->cards[i].segment;
    return TIARA_OK;
}

/* The eager messages that this rank sent are others' now. */
static void sends_withdraw(struct inproc *x)
{
    for (int peer = 0; peer < x->size; peer++) {
        struct message **at = queue_of(x, x->rank, peer);

        while (*at != NULL) {
            if ((*at)->eager)
                at = &(*at)->next;
            else
                message_drop(at, *at);
        }
    }
}

static void inproc_close(void *obj)
{
    struct inproc *x = obj;
    struct hub *hub = x != NULL ? x->hub : NULL;
    bool is_last;

    if (hub == NULL)
        return;
    while (x->receives != NULL) {
        struct receive *r = x->receives;

        x->receives = r->next;
        tiara_free(r);
    }
    pthread_mutex_lock(&hub->lock);
    sends_withdraw(x);
    is_last = --hub->users == 0;
    pthread_mutex_unlock(&hub->lock);
    if (is_last) {
        for (int i = 0; i < x->size; i++)
            tiara_free(x->cards[i].segment);
        hub_destroy(hub);
    }
    tables_free(x);
}

/* ---- exposed memory ---- */

/* One address space: a bad address is the caller's crash. */
static enum tiara_err inproc_get(void *obj, int peer, uint64_t addr, void *dst, size_t len)
{
    (void)obj;
    (void)peer;
    if (len > 0)
        memcpy(dst, (const void *)(uintptr_t)addr, len);
    return TIARA_OK;
}

/* ---- messages ---- */

/* The use of tiara_xport_req.handle: one of them is not NULL while the message is in flight. */
enum {
    HANDLE_SEND, /* its struct message */
    HANDLE_RECV /* its struct receive */
};

static enum tiara_err inproc_send(
    void *obj, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    bool eager = len <= EAGER_BYTES;
    struct message *m = tiara_alloc(1, sizeof *m + (eager ? len : 0)), **end;

    if (req != NULL)
        *req = (struct tiara_xport_req){{m, NULL}, len, peer, eager};
    if (m == NULL)
        return TIARA_ERR_NOMEM;
    m->tag = tag;
    m->len = len;
    m->eager = eager;
    m->from = eager ? m->payload : buf;
    if (eager && len > 0)
        memcpy(m->payload, buf, len);
    pthread_mutex_lock(&x->hub->lock);
    for (end = queue_of(x, x->rank, peer); *end != NULL;)
        end = &(*end)->next;
    *end = m;
    pthread_mutex_unlock(&x->hub->lock);
    x->head.sent++;
    return TIARA_OK;
}

static enum tiara_err inproc_recv(
    void *obj, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    struct receive *r = tiara_alloc(1, sizeof *r), **end;

    *req = (struct tiara_xport_req){{NULL, r}, len, peer, false};
    if (r == NULL)
        return TIARA_ERR_NOMEM;
    *r = (struct receive){.peer = peer, .tag = tag, .to = buf, .len = len};
    for (end = &x->receives; *end != NULL;)
        end = &(*end)->next;
    *end = r;
    return TIARA_OK;
}

/* The oldest message of @tag that waits for its receiver, or NULL. */
static struct message *message_find(struct message *m, uint32_t tag)
{
    while (m != NULL && (m->received || m->tag != tag))
        m = m->next;
    return m;
}

/* Receives all that has arrived. Under the lock. */
static void progress(struct inproc *x)
{
    for (struct receive *r = x->receives; r != NULL; r = r->next) {
        struct message **queue = queue_of(x, r->peer, x->rank), *m;

        m = r->done ? NULL : message_find(*queue, r->tag);
        if (m == NULL)
            continue;
        r->message_len = m->len;
        r->done = m->received = true;
        if (m->len == r->len && m->len > 0)
            memcpy(r->to, m->from, m->len);
        if (m->eager)
            message_drop(queue, m);
    }
}

/* Forgets @req, whose message or receive is over or given up. Under the lock. */
static void request_end(struct inproc *x, struct tiara_xport_req *req)
{
    struct message *m = req->handle[HANDLE_SEND];
    struct receive *r = req->handle[HANDLE_RECV], **at = &x->receives;

    if (m != NULL) {
        message_drop(queue_of(x, x->rank, req->peer), m);
    } else {
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        tiara_free(r);
    }
    req->done = true;
}

static enum tiara_err inproc_test(void *obj, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    const struct message *m = req->handle[HANDLE_SEND];
    const struct receive *r = req->handle[HANDLE_RECV];
    enum tiara_err err = TIARA_OK;

    if (req->done)
        return TIARA_OK;
    pthread_mutex_lock(&x->hub->lock);
    progress(x);
    if (r != NULL && r->done && r->message_len != r->len) {
        tiara_error("message from rank %d with tag %u has %zu bytes, expected %zu", r->peer,
            (unsigned)r->tag, r->message_len, r->len);
        err = TIARA_ERR_MISMATCH;
    }
    if (m != NULL ? m->received : r->done)
        request_end(x, req);
    pthread_mutex_unlock(&x->hub->lock);
    return err;
}

static void inproc_cancel(void *obj, struct tiara_xport_req *req)
{
    struct inproc *x = obj;

    if (req->done)
        return;
    pthread_mutex_lock(&x->hub->lock);
    request_end(x, req);
    pthread_mutex_unlock(&x->hub->lock);
}

static bool inproc_probe(void *obj, int peer, uint32_t *tag_out)
{
    struct inproc *x = obj;
    const struct message *found = NULL;

    pthread_mutex_lock(&x->hub->lock);
    progress(x);
    for (const struct message *m = *queue_of(x, peer, x->rank); m != NULL; m = m->next) {
        bool is_control = !m->received && tiara_xport_is_control(x->head.tag_bits, m->tag);

        if (is_control || (found == NULL && !m->received))
            found = m;
        if (is_control)
            break;
    }
    if (found != NULL)
        *tag_out = found->tag;
    pthread_mutex_unlock(&x->hub->lock);
    return found != NULL;
}

const struct tiara_xport tiara_xport_inproc = {
    .name = "inproc",
    .flags = TIARA_XPORT_EXPOSE | TIARA_XPORT_GET | TIARA_XPORT_MESSAGE,
    .size = sizeof(struct inproc),
    .open = inproc_open,
    .close = inproc_close,
    .get = inproc_get,
    .send = inproc_send,
    .recv = inproc_recv,
    .test = inproc_test,
    .cancel = inproc_cancel,
    .probe = inproc_probe,
};
