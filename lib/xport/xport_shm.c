/*
 * Transport shm: one anonymous file (memfd) per rank, mapped by all ranks of the node.
 *
 * The one idea: a file without a name cannot be left behind. Each rank makes its own, tells its
 * peers (process id, descriptor number, cookie), and they open it through /proc/<pid>/fd/<n>. When
 * all have mapped it, all descriptors are closed; the memory lives as long as somebody has it
 * mapped, also through kill -9.
 *
 * File of one rank (file_bytes, a multiple of 4096):
 *
 *     offset          bytes         what      writer       reader
 *     0               expose_bytes  segment   its owner    all (peers have it mapped read-only)
 *     ...             ...           unused
 *     file_bytes - 8  8             cookie    owner, once  peers, once, in open
 *
 * The cookie is there because a process number of one pid namespace may be another process in the
 * next, and descriptor numbers and inode numbers are small: all three could agree by accident.
 *
 * Room. fallocate reserves every page, so that lack of room is an error here and never a SIGBUS
 * later. It also allocates and zeroes the pages on the NUMA node of the calling thread, which is
 * the owner, so that no touch is needed for placement. The file limit of the process (ulimit -f)
 * counts for memfds too, and exceeding it is a fatal signal; so it is looked at first.
 *
 * Peers map read-only, so that a stray write faults instead of corrupting. A futex wait works on
 * such a mapping; the wake-up comes from the owner on its own mapping, and meets it, because shared
 * futexes are known by file and offset.
 */
#include "xport/shm.h"
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 6.3. Some systems refuse memfds without it; older kernels refuse the flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

/* On older kernels any signal makes fallocate give up and undo all it did; pieces keep what is
 * undone short, so that a profiler's timer cannot starve it. */
#define RESERVE_BYTES ((size_t)8 << 20)

/* How a rank's file is found: its visiting card. No holes, as it is sent. */
struct card {
    uint64_t cookie;
    int64_t pid;
    int64_t fd;
};

struct shm {
    int rank;
    int size;
    size_t file_bytes;
    void **base; /* [size] NULL where not mapped; NULL: nothing is exposed */
};

static int memfd_make(void)
{
    int fd = memfd_create("tiara", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("tiara", MFD_CLOEXEC);
    return fd;
}

/* Gives @fd its size and all its pages. Returns an errno, 0 for success. */
static int file_reserve(int fd, size_t bytes)
{
    struct rlimit limit;
    size_t done = 0;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return EFBIG;
    if (ftruncate(fd, (off_t)bytes) != 0)
        return errno;
    while (done < bytes) {
        size_t piece = bytes - done < RESERVE_BYTES ? bytes - done : RESERVE_BYTES;

        if (fallocate(fd, 0, (off_t)done, (off_t)piece) == 0)
            done += piece;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Makes, fills and maps the own file; on error @fd_out may still be open. */
static enum tiara_err own_make(
    struct shm *x, enum tiara_xport_shm_fail fail, int *fd_out, struct card *card_out)
{
    size_t cookie_at = x->file_bytes - sizeof card_out->cookie;
    void *map;
    int number;

    *fd_out = fail == TIARA_XPORT_SHM_FAIL_MEMFD ? -1 : memfd_make();
    if (*fd_out < 0)
        return tiara_xport_sys_error(
            fail == TIARA_XPORT_SHM_FAIL_MEMFD ? EPERM : errno, "memfd_create");
    number = fail == TIARA_XPORT_SHM_FAIL_ROOM ? ENOSPC : file_reserve(*fd_out, x->file_bytes);
    if (number != 0)
        return tiara_xport_sys_error(number, "reserving %zu bytes of shared memory", x->file_bytes);
    card_out->cookie = tiara_cookie();
    card_out->pid = getpid();
    card_out->fd = *fd_out;
    if (pwrite(*fd_out, &card_out->cookie, sizeof card_out->cookie, (off_t)cookie_at) !=
        (ssize_t)sizeof card_out->cookie)
        return tiara_xport_sys_error(errno, "writing to own shared memory");
    map = mmap(NULL, x->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd_out, 0);
    if (map == MAP_FAILED)
        return tiara_xport_sys_error(
            errno, "mapping %zu bytes of own shared memory", x->file_bytes);
    x->base[x->rank] = map;
    return TIARA_OK;
}

/* Is the file behind @fd the one that @card speaks of? */
static bool is_card_file(const struct shm *x, const struct card *card, int fd)
{
    struct stat st;
    uint64_t cookie;
    off_t cookie_at = (off_t)(x->file_bytes - sizeof cookie);

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)x->file_bytes &&
           pread(fd, &cookie, sizeof cookie, cookie_at) == (ssize_t)sizeof cookie &&
           cookie == card->cookie;
}

static enum tiara_err peer_map(struct shm *x, int peer, const struct card *card)
{
    char path[64];
    void *map;
    int fd;
    enum tiara_err err = TIARA_OK;

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)card->pid, (long long)card->fd);
    /* It may be a wrong process's pipe, which must not block, or its terminal, which must not
     * become ours. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return tiara_xport_sys_error(errno, "opening %s, shared memory of peer %d", path, peer);
    if (!is_card_file(x, card, fd)) {
        tiara_debug("%s is not the shared memory of peer %d: another pid namespace?", path, peer);
        err = TIARA_ERR_UNSUPPORTED;
        goto out_close;
    }
    map = mmap(NULL, x->file_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        err = tiara_xport_sys_error(
            errno, "mapping %zu bytes of shared memory of peer %d", x->file_bytes, peer);
    else
        x->base[peer] = map;
out_close:
    close(fd);
    return err;
}

static enum tiara_err peers_map(
    struct shm *x, enum tiara_xport_shm_fail fail, const struct card *cards)
{
    enum tiara_err err = TIARA_OK;

    if (fail == TIARA_XPORT_SHM_FAIL_PEER)
        return tiara_xport_sys_error(EACCES, "opening a peer's shared memory");
    for (int peer = 0; peer < x->size && err == TIARA_OK; peer++) {
        struct card card = cards[peer];

        if (peer == x->rank)
            continue;
        if (fail == TIARA_XPORT_SHM_FAIL_COOKIE)
            card.cookie++;
        err = peer_map(x, peer, &card);
    }
    return err;
}

static void shm_close(void *obj)
{
    struct shm *x = obj;

    for (int i = 0; x->base != NULL && i < x->size; i++) {
        if (x->base[i] != NULL)
            munmap(x->base[i], x->file_bytes);
    }
    tiara_free(x->base);
    memset(x, 0, sizeof *x);
}

/* What an open needs and frees. */
struct opening {
    struct card card; /* the own one */
    struct card *cards; /* [size] of all */
    int fd; /* of the own file; -1: none */
};

/* The local part of open, before the first agreement: tables and the own file. */
static enum tiara_err prepare(
    struct shm *x, struct opening *o, enum tiara_xport_shm_fail fail, size_t expose_bytes)
{
    x->base = tiara_alloc((size_t)x->size, sizeof *x->base);
    o->cards = tiara_alloc((size_t)x->size, sizeof *o->cards);
    if (x->base == NULL || o->cards == NULL)
        return TIARA_ERR_NOMEM;
    if (expose_bytes > INT64_MAX - 2 * TIARA_XPORT_ALIGN) {
        tiara_info("a segment of %zu bytes is more than a file can hold", expose_bytes);
        return TIARA_ERR_NOSPACE;
    }
    x->file_bytes = tiara_xport_round_up(expose_bytes + sizeof o->card.cookie);
    return own_make(x, fail, &o->fd, &o->card);
}

static enum tiara_err shm_open_group(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct shm *x = obj;
    const struct tiara_xport_shm_params *params = group->params;
    enum tiara_xport_shm_fail fail = params != NULL ? params->fail : TIARA_XPORT_SHM_FAIL_NONE;
    struct opening o = {.fd = -1};
    enum tiara_err err;

    if (expose_bytes == 0)
        return TIARA_OK;
    x->rank = group->rank;
    x->size = group->size;
    err = tiara_xport_agree(group, prepare(x, &o, fail, expose_bytes));
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &o.card, o.cards, sizeof o.card);
    /* Nobody closes its file before all have agreed that they mapped it. */
    if (err == TIARA_OK)
        err = tiara_xport_agree(group, peers_map(x, fail, o.cards));
    if (o.fd >= 0)
        close(o.fd);
    tiara_free(o.cards);
    if (err != TIARA_OK)
        shm_close(x);
    return err;
}

static void *shm_base(void *obj, int peer)
{
    struct shm *x = obj;

    return x->base != NULL ? x->base[peer] : NULL;
}

const struct tiara_xport tiara_xport_shm = {
    .name = "shm",
    .flags = TIARA_XPORT_EXPOSE,
    .size = sizeof(struct shm),
    .open = shm_open_group,
    .close = shm_close,
    .base = shm_base,
};
