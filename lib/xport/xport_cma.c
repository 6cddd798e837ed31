/*
 * Transport cma: copy from a peer's process with one system call (process_vm_readv).
 *
 * The one idea: whether it is allowed is found out by doing it. The kernel (Yama, seccomp, user and
 * pid namespaces, non-dumpable programs) has many reasons to say no, and a pid of another namespace
 * may be a stranger here; so each rank publishes the address of a random word, each rank reads
 * every peer's word, and only if all ranks read all words right does anybody use it.
 *
 * Yama (kernel.yama.ptrace_scope 1, Debian's and Ubuntu's default) lets only ancestors read a
 * process, unless that process says otherwise. Only then, this process says otherwise
 * (PR_SET_PTRACER_ANY). That lets any process of the same user read and trace it, as on a system
 * without Yama, until it ends; it cannot be limited to a few peers. Who does not want that does not
 * open this transport.
 */
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define YAMA_FILE "/proc/sys/kernel/yama/ptrace_scope"

/* Who a rank is, and where its probe word can be read. No holes, as it is sent. */
struct card {
    int64_t pid;
    uint64_t word_addr;
    uint64_t word;
};

struct cma {
    struct tiara_xport_head head;
    uint64_t word; /* the probe: read by peers during open */
    struct card *cards; /* [size of the group] */
};

/* Lets peers read this process where Yama would forbid only that. Failure shows in the probe. */
static void yama_permit(void)
{
    char scope = '0';
    int fd = open(YAMA_FILE, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (read(fd, &scope, 1) == 1 && scope == '1' &&
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0)
        tiara_debug("prctl(PR_SET_PTRACER): %s", strerror(errno));
    close(fd);
}

/* Reads all of @len bytes. Returns an errno, 0 for success. */
static int read_fully(pid_t pid, uint64_t addr, void *dst, size_t len)
{
    size_t done = 0;

    /* The kernel moves at most 2 GiB - 4 KiB at once, and stops early at a page that it cannot
     * read. */
    while (done < len) {
        struct iovec to = {(char *)dst + done, len - done};
        struct iovec from = {(void *)(uintptr_t)(addr + done), len - done};
        ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

        if (n < 0)
            return errno;
        if (n == 0)
            return EFAULT;
        done += (size_t)n;
    }
    return 0;
}

static enum tiara_err peers_probe(const struct cma *x, int size)
{
    for (int peer = 0; peer < size; peer++) {
        const struct card *card = &x->cards[peer];
        uint64_t word = 0;
        int number = read_fully((pid_t)card->pid, card->word_addr, &word, sizeof word);

        if (number != 0) {
            tiara_debug("process_vm_readv from peer %d (pid %lld): %s", peer, (long long)card->pid,
                strerror(number));
            return TIARA_ERR_UNSUPPORTED;
        }
        if (word != card->word) {
            tiara_debug(
                "pid %lld is not peer %d: another pid namespace?", (long long)card->pid, peer);
            return TIARA_ERR_UNSUPPORTED;
        }
    }
    return TIARA_OK;
}

static void cma_close(void *obj)
{
    struct cma *x = obj;

    if (x == NULL)
        return;
    tiara_free(x->cards);
    memset(x, 0, sizeof *x);
}

static enum tiara_err cma_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct cma *x = obj;
    struct card card;
    enum tiara_err err;

    (void)expose_bytes; /* Nothing is exposed: get reads any memory. */
    x->word = tiara_cookie();
    card = (struct card){getpid(), (uint64_t)(uintptr_t)&x->word, x->word};
    x->cards = tiara_alloc((size_t)group->size, sizeof *x->cards);
    yama_permit();
    err = tiara_xport_agree(group, x->cards != NULL ? TIARA_OK : TIARA_ERR_NOMEM);
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &card, x->cards, sizeof card);
    if (err == TIARA_OK)
        err = tiara_xport_agree(group, peers_probe(x, group->size));
    if (err != TIARA_OK)
        cma_close(x);
    return err;
}

static enum tiara_err cma_get(void *obj, int peer, uint64_t addr, void *dst, size_t len)
{
    const struct cma *x = obj;
    int number = read_fully((pid_t)x->cards[peer].pid, addr, dst, len);

    if (number == 0)
        return TIARA_OK;
    tiara_error("reading %zu bytes from peer %d (pid %lld): %s", len, peer,
        (long long)x->cards[peer].pid, strerror(number));
    return number == ESRCH ? TIARA_ERR_PEER : TIARA_ERR_SYS;
}

const struct tiara_xport tiara_xport_cma = {
    .name = "cma",
    .flags = TIARA_XPORT_GET | TIARA_XPORT_PROCESSES,
    .size = sizeof(struct cma),
    .open = cma_open,
    .close = cma_close,
    .get = cma_get,
};
