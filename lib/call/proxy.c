/*
 * The proxy's thread, and its queue.
 */
#include "call/proxy.h"
#include "base/alloc.h"
#include "base/log.h"
#include <pthread.h>

struct tiara_proxy {
    struct tiara_comm *c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tiara_proxied *first, **last; /* lock; the first is being run */
    bool stop; /* lock */
    enum tiara_err err; /* lock: of the calls since the last drain */
};

static void *serve(void *arg)
{
    struct tiara_proxy *p = arg;

    pthread_mutex_lock(&p->lock);
    while (p->first || !p->stop) {
        struct tiara_proxied *job = p->first;
        enum tiara_err err;

        if (!job) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        err = job->run(p->c, job);
        pthread_mutex_lock(&p->lock);
        p->err = tiara_err_first(p->err, err);
        p->first = job->next;
        if (!p->first)
            p->last = &p->first;
        tiara_free(job);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum tiara_err tiara_proxy_open(struct tiara_comm *c)
{
    struct tiara_proxy *p;

    if (c->device.proxy)
        return TIARA_OK;
    p = tiara_alloc(1, sizeof(*p));
    if (!p)
        return TIARA_ERR_NOMEM;
    p->c = c;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, serve, p) != 0) {
        tiara_error("a thread for calls on streams could not be started");
        tiara_free(p);
        return TIARA_ERR_SYS;
    }
    c->device.proxy = p;
    return TIARA_OK;
}

void tiara_proxy_close(struct tiara_comm *c)
{
    struct tiara_proxy *p = c->device.proxy;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    tiara_free(p);
    c->device.proxy = NULL;
}

void tiara_proxy_rest(struct tiara_comm *c)
{
    struct tiara_proxy *p = c->device.proxy;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    while (p->first)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* What calls have failed with since the last look. @all: waits until the proxy has none left. */
static enum tiara_err look_back(struct tiara_comm *c, bool all)
{
    struct tiara_proxy *p = c->device.proxy;
    enum tiara_err err = TIARA_OK;
    bool moved, idle;

    if (all)
        tiara_proxy_rest(c);
    if (p) {
        pthread_mutex_lock(&p->lock);
        err = p->err;
        p->err = TIARA_OK;
        pthread_mutex_unlock(&p->lock);
    }
    if (err == TIARA_OK && c->device.enqueued)
        err = tiara_device()->node->poll(c->device.node, &moved, &idle);
    return err;
}

enum tiara_err tiara_proxy_drain(struct tiara_comm *c)
{
    return look_back(c, true);
}

enum tiara_err tiara_proxy_failed(struct tiara_comm *c)
{
    return look_back(c, false);
}

enum tiara_err tiara_proxy_add(struct tiara_comm *c, const struct tiara_proxied *proxied)
{
    struct tiara_proxy *p = c->device.proxy;
    struct tiara_proxied *job = tiara_alloc(1, sizeof(*job));

    if (!job)
        return TIARA_ERR_NOMEM;
    *job = *proxied;
    job->next = NULL;
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return TIARA_OK;
}
