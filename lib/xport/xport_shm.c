/*
 * Transport shm: one anonymous file (memfd) per rank, mapped by all ranks of the node.
 *
 * The one idea: a file without a name cannot be left behind. Each rank makes its own and hands the
 * descriptor over to its peers. When all have mapped it, all descriptors are closed; the memory
 * lives as long as somebody has it mapped, also through kill -9.
 *
 * Handing over. What containers share differs, so several ways are tried, each by all ranks until
 * one works for all:
 *   sockets with abstract names   where the network namespace is shared, whatever else is not
 *   /proc/<pid>/fd/<n>            where process ids mean the same and peers may be looked into
 *   sockets with names in files   where a directory is shared; unlinked as soon as all have sent
 * A socket takes datagrams, so that nobody has to accept and nobody needs a descriptor for each
 * peer. Each rank sends to a few peers in a round, as systems limit a receiver's queue (10
 * datagrams on some) and the descriptors in flight of a user. A round ends in an agreement, after
 * which what was sent is in the queue: nobody waits for what a peer could not send.
 *
 * File of one rank (file_bytes, a multiple of 4096):
 *
 *     offset          bytes         what      writer       reader
 *     0               expose_bytes  segment   its owner    all (peers have it mapped read-only)
 *     ...             ...           unused
 *     file_bytes - 8  8             cookie    owner, once  peers, once, in open
 *
 * The cookie says whose file it is, since a process id may mean another process here, and anybody
 * may send to a socket. Peers know it from the exchange, and strangers from nowhere.
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
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/cookie.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

#define PAGE ((size_t)4096)
/* Most peers that send to a rank in a round, and descriptors that are sent on a node in one. Those
 * of the next round may come while the last ones still wait. */
#define ROUND_PEERS 4
#define ROUND_DESCRIPTORS 256

/* On older kernels any signal makes fallocate give up and undo all it did; pieces keep what is
 * undone short, so that a profiler's timer cannot starve it. */
#define RESERVE_BYTES ((size_t)8 << 20)

/* How a rank's file is found: its visiting card. No holes, as it is sent. */
struct card {
    uint64_t cookie;
    uint64_t name; /* of its socket; not the cookie, as names can be seen by everybody */
    int64_t pid;
    int64_t fd;
};

struct shm {
    struct tiara_xport_head head; /* base: NULL where not mapped */
    int rank;
    int size;
    size_t file_bytes;
};

/* What an open needs and frees. */
struct opening {
    struct shm *x;
    const struct tiara_xport_group *group;
    struct card card; /* the own one */
    struct card *cards; /* [size] of all */
    int fd; /* of the own file; -1: none */
    int socket; /* where peers send theirs; -1: none */
    struct sockaddr_un address; /* its name */
};

/* ---- files ---- */

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

/* Maps the file of @rank, which is behind @fd. */
static enum tiara_err file_map(struct shm *x, int rank, int fd)
{
    int access = rank == x->rank ? PROT_READ | PROT_WRITE : PROT_READ;
    void *map = mmap(NULL, x->file_bytes, access, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (map == MAP_FAILED)
        return tiara_xport_sys_error(
            errno, "mapping %zu bytes of shared memory of rank %d", x->file_bytes, rank);
    x->head.base[rank] = map;
    return TIARA_OK;
}

static void unmap_all_but(struct shm *x, int kept)
{
    for (int i = 0; i < x->size; i++) {
        if (i == kept || x->head.base[i] == NULL)
            continue;
        munmap(x->head.base[i], x->file_bytes);
        x->head.base[i] = NULL;
    }
}

/* Makes, maps and marks the own file. */
static enum tiara_err own_make(struct opening *o)
{
    struct shm *x = o->x;
    enum tiara_err err;
    int number;

    o->fd = memfd_make();
    if (o->fd < 0)
        return tiara_xport_sys_error(errno, "memfd_create");
    number = file_reserve(o->fd, x->file_bytes);
    if (number != 0)
        return tiara_xport_sys_error(number, "reserving %zu bytes of shared memory", x->file_bytes);
    o->card = (struct card){tiara_cookie(), tiara_cookie(), getpid(), o->fd};
    err = file_map(x, x->rank, o->fd);
    if (err == TIARA_OK)
        memcpy((char *)x->head.base[x->rank] + x->file_bytes - sizeof o->card.cookie,
            &o->card.cookie, sizeof o->card.cookie);
    return err;
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

/* ---- handing over: through /proc ---- */

static enum tiara_err proc_take(const struct opening *o, int peer)
{
    const struct card *card = &o->cards[peer];
    enum tiara_err err;
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)card->pid, (long long)card->fd);
    /* It may be a wrong process's pipe, which must not block, or its terminal, which must not
     * become ours. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return tiara_xport_sys_error(errno, "opening %s, shared memory of peer %d", path, peer);
    if (is_card_file(o->x, card, fd)) {
        err = file_map(o->x, peer, fd);
    } else {
        tiara_debug("%s is not the shared memory of peer %d: another PID namespace?", path, peer);
        err = TIARA_ERR_UNSUPPORTED;
    }
    close(fd);
    return err;
}

static enum tiara_err proc_hand_over(const struct opening *o)
{
    enum tiara_err err = TIARA_OK;

    for (int k = 1; k < o->x->size && err == TIARA_OK; k++)
        err = proc_take(o, (o->x->rank + k) % o->x->size);
    return err;
}

/* ---- handing over: by sockets, whose names are in the directory @place (NULL: abstract) ---- */

static enum tiara_err socket_make(struct opening *o, const char *place)
{
    socklen_t length = tiara_xport_address(place, o->card.name, &o->address);

    o->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (o->socket < 0)
        return tiara_xport_sys_error(errno, "a socket to hand shared memory over");
    if (bind(o->socket, (struct sockaddr *)&o->address, length) == 0)
        return TIARA_OK;
    o->address.sun_path[0] = '\0'; /* there is no file to remove */
    return tiara_xport_sys_error(errno, "a name for a socket");
}

static void socket_close(struct opening *o)
{
    if (o->socket < 0)
        return;
    if (o->address.sun_path[0] != '\0')
        unlink(o->address.sun_path);
    close(o->socket);
    o->socket = -1;
}

/* One byte, and room for the one descriptor that it carries. */
struct datagram {
    char byte;
    struct iovec payload;
    struct msghdr message;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
};

static struct msghdr *datagram_init(struct datagram *d)
{
    *d = (struct datagram){.payload = {&d->byte, 1},
        .message = {.msg_iov = &d->payload,
            .msg_iovlen = 1,
            .msg_control = &d->control,
            .msg_controllen = sizeof d->control}};
    return &d->message;
}

static enum tiara_err socket_send(const struct opening *o, const char *place, int peer)
{
    struct sockaddr_un to;
    struct datagram d;
    struct msghdr *message = datagram_init(&d);

    message->msg_name = &to;
    message->msg_namelen = tiara_xport_address(place, o->cards[peer].name, &to);
    d.control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof o->fd)};
    memcpy(CMSG_DATA(&d.control.header), &o->fd, sizeof o->fd);
    if (sendmsg(o->socket, message, MSG_NOSIGNAL) < 0)
        return tiara_xport_sys_error(errno, "handing shared memory to peer %d", peer);
    return TIARA_OK;
}

/* The descriptor in the next datagram into *fd_out; -1: it has none. */
static enum tiara_err socket_recv(const struct opening *o, int *fd_out)
{
    struct datagram d;
    struct msghdr *message = datagram_init(&d);
    const struct cmsghdr *header;

    *fd_out = -1;
    if (recvmsg(o->socket, message, MSG_CMSG_CLOEXEC) < 0)
        return tiara_xport_sys_error(errno, "taking shared memory from a peer");
    header = CMSG_FIRSTHDR(message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(fd_out, CMSG_DATA(header), sizeof *fd_out);
    else if (message->msg_flags & MSG_CTRUNC)
        return tiara_xport_sys_error(EMFILE, "taking shared memory from a peer");
    return TIARA_OK;
}

/* Maps the files of the peers at distances @first .. @end - 1, which have sent them, in any order;
 * drops what strangers sent. */
static enum tiara_err socket_take(const struct opening *o, int first, int end)
{
    enum tiara_err err = TIARA_OK;
    int fd, left = end - first;

    while (err == TIARA_OK && left > 0) {
        err = socket_recv(o, &fd);
        for (int k = first; k < end && fd >= 0; k++) {
            int peer = (o->x->rank + o->x->size - k) % o->x->size;

            if (o->x->head.base[peer] != NULL || !is_card_file(o->x, &o->cards[peer], fd))
                continue;
            err = file_map(o->x, peer, fd);
            left--;
            break;
        }
        if (fd >= 0)
            close(fd);
    }
    return err;
}

/* Rounds are with the peers at growing distances. Some may have sent for the next one, behind the
 * datagrams that are taken now. */
static enum tiara_err socket_hand_over(struct opening *o, const char *place)
{
    enum tiara_err err = tiara_xport_agree(o->group, socket_make(o, place)), mine = TIARA_OK;
    int rank = o->x->rank, size = o->x->size;
    int most = ROUND_DESCRIPTORS / size, step = most < 1             ? 1
                                                : most < ROUND_PEERS ? most
                                                                     : ROUND_PEERS;

    for (int first = 1; first < size && err == TIARA_OK; first += step) {
        int end = first + step < size ? first + step : size;

        for (int k = first; k < end && mine == TIARA_OK; k++)
            mine = socket_send(o, place, (rank + k) % size);
        err = tiara_xport_agree(o->group, mine);
        if (err == TIARA_OK)
            mine = socket_take(o, first, end);
    }
    socket_close(o);
    return tiara_err_first(err, mine);
}

/* ---- open and close ---- */

/* By the first way that works for all; lack of room, and of memory, is the same on all ways. */
static enum tiara_err peers_map(struct opening *o, unsigned ways)
{
    static const char *const places[TIARA_XPORT_SHM_NWAYS] = {
        [TIARA_XPORT_SHM_WAY_DEV_SHM] = "/dev/shm/", [TIARA_XPORT_SHM_WAY_TMP] = "/tmp/"};
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;

    for (int way = 0; way < TIARA_XPORT_SHM_NWAYS; way++) {
        if (!(ways >> way & 1))
            continue;
        err =
            way == TIARA_XPORT_SHM_WAY_PROC ? proc_hand_over(o) : socket_hand_over(o, places[way]);
        err = tiara_xport_agree(o->group, err);
        if (err != TIARA_ERR_UNSUPPORTED && err != TIARA_ERR_SYS)
            break;
        unmap_all_but(o->x, o->x->rank);
    }
    return err;
}

/* The local part of open, before the first agreement: tables and the own file. */
static enum tiara_err prepare(struct opening *o, size_t expose_bytes)
{
    struct shm *x = o->x;

    x->head.base = tiara_alloc((size_t)x->size, sizeof *x->head.base);
    o->cards = tiara_alloc((size_t)x->size, sizeof *o->cards);
    if (x->head.base == NULL || o->cards == NULL)
        return TIARA_ERR_NOMEM;
    if (expose_bytes > INT64_MAX - 2 * PAGE) {
        tiara_info("a segment of %zu bytes is more than a file can hold", expose_bytes);
        return TIARA_ERR_NOSPACE;
    }
    x->file_bytes = (expose_bytes + sizeof o->card.cookie + PAGE - 1) / PAGE * PAGE;
    return own_make(o);
}

static void shm_close(void *obj)
{
    struct shm *x = obj;

    if (x == NULL)
        return;
    if (x->head.base != NULL)
        unmap_all_but(x, -1);
    tiara_free(x->head.base);
    memset(x, 0, sizeof *x);
}

static enum tiara_err shm_open_group(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    const unsigned *ways = group->params;
    struct shm *x = obj;
    struct opening o = {.x = x, .group = group, .fd = -1, .socket = -1};
    enum tiara_err err;

    if (expose_bytes == 0)
        return TIARA_OK;
    x->rank = group->rank;
    x->size = group->size;
    err = tiara_xport_agree(group, prepare(&o, expose_bytes));
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &o.card, o.cards, sizeof o.card);
    /* Nobody closes its file before all have agreed that they mapped it. */
    if (err == TIARA_OK && x->size > 1)
        err = peers_map(&o, ways != NULL ? *ways : UINT_MAX);
    if (o.fd >= 0)
        close(o.fd);
    tiara_free(o.cards);
    if (err != TIARA_OK)
        shm_close(x);
    return err;
}

const struct tiara_xport tiara_xport_shm = {
    .name = "shm",
    .flags = TIARA_XPORT_EXPOSE | TIARA_XPORT_PROCESSES,
    .size = sizeof(struct shm),
    .open = shm_open_group,
    .close = shm_close,
};
