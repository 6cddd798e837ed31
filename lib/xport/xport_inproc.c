/*
 * Transport inproc: ranks are threads of one process. For tests, and the example to copy.
 *
 * The one idea: all ranks see the same memory, so a segment is a heap block, a get is memcpy, and
 * a message is an entry in a queue. Rank 0 makes the hub (the queues of all pairs) and shows it to
 * the others in open; the last rank that closes frees it with all segments, so that a segment stays
 * readable until its reader has closed, too.
 *
 * Messages. Up to EAGER_BYTES are copied by send, which is then done. Longer ones are copied by the
 * receiver straight from the sender's buffer, and the send is done after that: so programs meet
 * both ways in which a real network completes.
 *
 *     field of a message          written by                     read by
 *     tag, len, from, eager       sender, before it is queued    receiver (queue's lock between)
 *     next, state                 both, under the queue's lock   both, under the queue's lock
 *
 * Receives of one peer are matched in the order in which they were posted, all under one hold of
 * the queue's lock; so equal tags match in order even when a message arrives meanwhile.
 *
 * close takes back what is unfinished, so that no peer touches a borrowed buffer after it.
 */
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/log.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define EAGER_BYTES ((size_t)4096)

enum message_state {
    MESSAGE_QUEUED, /* in the queue */
    MESSAGE_TAKEN, /* out of the queue, being copied by the receiver */
    MESSAGE_COPIED /* nobody but the sender knows it any more */
};

/* One message. Owned by who has it (queue, then receiver) when eager, else by the sender. */
struct message {
    struct message *next;
    uint32_t tag;
    size_t len;
    const void *from; /* the sender's buffer; eager: payload */
    bool eager;
    enum message_state state;
    unsigned char payload[];
};

/* Messages of one pair of ranks, oldest first. */
struct queue {
    pthread_mutex_t lock;
    struct message *first;
};

/* What the ranks of one group share. */
struct hub {
    pthread_mutex_t lock;
    int users; /* ranks that have not closed; under lock */
    int size;
    struct queue queues[]; /* [dst * size + src] */
};

/* A send or receive that is not finished; private to its rank. */
struct request {
    struct request *next;
    bool is_send;
    int peer;
    struct message *message; /* a receive: NULL until matched; then valid until copied */
    bool is_copied; /* a receive: complete */
    uint32_t tag; /* these three: of a receive */
    void *to;
    size_t len;
    size_t message_len; /* of the message that was received */
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
    struct hub *hub; /* shared by all ranks; freed by the last to close; NULL: not open */
    struct request *requests; /* in the order in which they were started */
};

static struct queue *queue_of(const struct inproc *x, int src, int dst)
{
    return &x->hub->queues[dst * x->size + src];
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
    for (size_t i = 0; i < npairs; i++)
        pthread_mutex_init(&hub->queues[i].lock, NULL);
    return hub;
}

static void hub_destroy(struct hub *hub)
{
    size_t npairs;

    if (hub == NULL)
        return;
    npairs = (size_t)hub->size * (size_t)hub->size;
    for (size_t i = 0; i < npairs; i++) {
        struct queue *q = &hub->queues[i];

        /* What nobody received: eager ones only, as each sender takes back the others when it
         * closes. */
        while (q->first != NULL) {
            struct message *m = q->first;

            q->first = m->next;
            tiara_free(m);
        }
        pthread_mutex_destroy(&q->lock);
    }
    pthread_mutex_destroy(&hub->lock);
    tiara_free(hub);
}

/* The local part of open. */
static enum tiara_err prepare(struct inproc *x, size_t expose_bytes, struct card *card_out)
{
    x->cards = tiara_alloc((size_t)x->size, sizeof *x->cards);
    if (expose_bytes > 0)
        x->head.base = tiara_alloc((size_t)x->size, sizeof *x->head.base);
    if (expose_bytes > 0)
        card_out->segment = tiara_alloc_aligned(TIARA_XPORT_ALIGN, expose_bytes);
    if (x->rank == 0)
        card_out->hub = hub_create(x->size);
    if (x->cards == NULL ||
        (expose_bytes > 0 && (card_out->segment == NULL || x->head.base == NULL)) ||
        (x->rank == 0 && card_out->hub == NULL))
        return TIARA_ERR_NOMEM;
    if (expose_bytes > 0)
        memset(card_out->segment, 0, expose_bytes);
    return TIARA_OK;
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
        tiara_free(x->head.base);
        tiara_free(x->cards);
        memset(x, 0, sizeof *x);
        return err;
    }
    x->hub = x->cards[0].hub;
    x->head.tag_bits = 30;
    for (int i = 0; i < x->size && expose_bytes > 0; i++)
        x->head.base[i] = x->cards[i].segment;
    return TIARA_OK;
}

/* Takes back an unfinished send, whose buffer the caller wants to have again. */
static void message_withdraw(struct queue *q, struct message *m)
{
    struct message **at;

    pthread_mutex_lock(&q->lock);
    for (at = &q->first; *at != NULL && *at != m;)
        at = &(*at)->next;
    if (*at == m)
        *at = m->next;
    /* Bounded: the receiver is in the middle of a memcpy. */
    while (m->state == MESSAGE_TAKEN) {
        pthread_mutex_unlock(&q->lock);
        sched_yield();
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

/* A send that is not finished is taken back from the peer; a receive was in no queue. */
static void request_withdraw(struct inproc *x, struct request *r)
{
    if (!r->is_send)
        return;
    message_withdraw(queue_of(x, x->rank, r->peer), r->message);
    tiara_free(r->message);
}

static void inproc_close(void *obj)
{
    struct inproc *x = obj;
    struct hub *hub = x != NULL ? x->hub : NULL;
    bool is_last;

    if (hub == NULL)
        return;
    while (x->requests != NULL) {
        struct request *r = x->requests;

        x->requests = r->next;
        request_withdraw(x, r);
        tiara_free(r);
    }
    pthread_mutex_lock(&hub->lock);
    is_last = --hub->users == 0;
    pthread_mutex_unlock(&hub->lock);
    if (is_last) {
        for (int i = 0; i < x->size; i++)
            tiara_free(x->cards[i].segment);
        hub_destroy(hub);
    }
    tiara_free(x->head.base);
    tiara_free(x->cards);
    memset(x, 0, sizeof *x);
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

/* A new request at the end of the list; NULL when there is no memory. */
static struct request *request_start(struct inproc *x, int peer, struct tiara_xport_req *req)
{
    struct request *r = tiara_alloc(1, sizeof *r), **end;

    if (r == NULL)
        return NULL;
    for (end = &x->requests; *end != NULL;)
        end = &(*end)->next;
    *end = r;
    r->peer = peer;
    req->handle[0] = r;
    return r;
}

static void request_finish(struct inproc *x, struct tiara_xport_req *req)
{
    struct request *r = req->handle[0], **at;

    for (at = &x->requests; *at != r;)
        at = &(*at)->next;
    *at = r->next;
    tiara_free(r);
    req->handle[0] = NULL;
    req->done = true;
}

/* Gives @m to the receiver; an eager one is the receiver's from here on. */
static void message_queue(struct queue *q, struct message *m)
{
    struct message **end;

    pthread_mutex_lock(&q->lock);
    for (end = &q->first; *end != NULL;)
        end = &(*end)->next;
    *end = m;
    pthread_mutex_unlock(&q->lock);
}

static enum tiara_err inproc_send(
    void *obj, int peer, uint32_t tag, const void *buf, size_t len, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    bool eager = len <= EAGER_BYTES;
    struct message *m = tiara_alloc(1, sizeof *m + (eager ? len : 0));

    if (req != NULL)
        *req = (struct tiara_xport_req){.len = len, .peer = peer, .done = eager};
    if (m == NULL)
        return TIARA_ERR_NOMEM;
    m->tag = tag;
    m->len = len;
    m->eager = eager;
    m->from = eager ? m->payload : buf;
    if (eager && len > 0)
        memcpy(m->payload, buf, len);
    if (!eager) {
        struct request *r = request_start(x, peer, req);

        if (r == NULL) {
            tiara_free(m);
            return TIARA_ERR_NOMEM;
        }
        r->is_send = true;
        r->message = m;
    }
    message_queue(queue_of(x, x->rank, peer), m);
    x->head.sent++;
    return TIARA_OK;
}

static enum tiara_err inproc_recv(
    void *obj, int peer, uint32_t tag, void *buf, size_t len, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    struct request *r;

    *req = (struct tiara_xport_req){.len = len, .peer = peer};
    r = request_start(x, peer, req);
    if (r == NULL)
        return TIARA_ERR_NOMEM;
    r->tag = tag;
    r->to = buf;
    r->len = len;
    return TIARA_OK;
}

/* Removes and returns the oldest message of @tag, or NULL. Under the queue's lock. */
static struct message *message_take(struct queue *q, uint32_t tag)
{
    struct message **at = &q->first, *m;

    while (*at != NULL && (*at)->tag != tag)
        at = &(*at)->next;
    m = *at;
    if (m != NULL) {
        *at = m->next;
        m->state = MESSAGE_TAKEN;
    }
    return m;
}

/* Copies the message that @r was matched with, and gives it back or frees it. */
static void message_copy(struct inproc *x, struct request *r)
{
    struct queue *q = queue_of(x, r->peer, x->rank);
    struct message *m = r->message;

    r->message_len = m->len;
    if (m->len == r->len && m->len > 0)
        memcpy(r->to, m->from, m->len);
    if (m->eager) {
        tiara_free(m);
    } else {
        pthread_mutex_lock(&q->lock);
        m->state = MESSAGE_COPIED;
        pthread_mutex_unlock(&q->lock);
    }
    r->message = NULL;
    r->is_copied = true;
}

/* Is @r a receive from @peer that has no message yet? */
static bool is_posted(const struct request *r, int peer)
{
    return !r->is_send && !r->is_copied && r->message == NULL && r->peer == peer;
}

/* Receives all that has arrived. */
static void progress(struct inproc *x)
{
    for (int peer = 0; peer < x->size; peer++) {
        struct queue *q = queue_of(x, peer, x->rank);

        pthread_mutex_lock(&q->lock);
        for (struct request *r = x->requests; r != NULL && q->first != NULL; r = r->next) {
            if (is_posted(r, peer))
                r->message = message_take(q, r->tag);
        }
        pthread_mutex_unlock(&q->lock);
    }
    for (struct request *r = x->requests; r != NULL; r = r->next) {
        if (!r->is_send && r->message != NULL)
            message_copy(x, r);
    }
}

/* Finishes a send whose message the receiver has copied. */
static void send_test(struct inproc *x, struct tiara_xport_req *req, struct request *r)
{
    struct queue *q = queue_of(x, x->rank, r->peer);
    bool is_copied;

    pthread_mutex_lock(&q->lock);
    is_copied = r->message->state == MESSAGE_COPIED;
    pthread_mutex_unlock(&q->lock);
    if (is_copied) {
        tiara_free(r->message);
        request_finish(x, req);
    }
}

static enum tiara_err inproc_test(void *obj, struct tiara_xport_req *req)
{
    struct inproc *x = obj;
    struct request *r;
    enum tiara_err err = TIARA_OK;

    if (req->done)
        return TIARA_OK;
    progress(x);
    r = req->handle[0];
    if (r->is_send) {
        send_test(x, req, r);
    } else if (r->is_copied) {
        if (r->message_len != r->len) {
            tiara_error("message from rank %d with tag %u has %zu bytes, expected %zu", r->peer,
                (unsigned)r->tag, r->message_len, r->len);
            err = TIARA_ERR_MISMATCH;
        }
        request_finish(x, req);
    }
    return err;
}

static void inproc_cancel(void *obj, struct tiara_xport_req *req)
{
    struct inproc *x = obj;

    if (req->done)
        return;
    request_withdraw(x, req->handle[0]);
    request_finish(x, req);
}

static bool inproc_probe(void *obj, int peer, uint32_t *tag_out)
{
    struct inproc *x = obj;
    struct queue *q = queue_of(x, peer, x->rank);
    const struct message *found;

    progress(x);
    pthread_mutex_lock(&q->lock);
    found = q->first;
    for (const struct message *m = found; m != NULL; m = m->next) {
        if (tiara_xport_is_control(x->head.tag_bits, m->tag)) {
            found = m;
            break;
        }
    }
    if (found != NULL)
        *tag_out = found->tag;
    pthread_mutex_unlock(&q->lock);
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
