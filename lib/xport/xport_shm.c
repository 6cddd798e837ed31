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
 * peer. Rounds of a few peers each keep a receiver's queue (10 datagrams on some systems) and the
 * descriptors in flight (limited for each user) short. Each round ends in an agreement, after which
 * what was sent is in the queue: nobody waits for what a peer could not send.
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 6.3. Some systems refuse memfds without it; older kernels refuse the flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

/* On older kernels any signal makes fallocate give up and undo all it did; pieces keep what is
 * undone short, so that a profiler's timer cannot starve it. */
#define RESERVE_BYTES ((size_t)8 << 20)

/* Most peers that send to a rank in a round, and descriptors that are sent on a node in one. Those
 * of the next round may come while the last ones still wait. */
#define ROUND_PEERS 4
#define ROUND_DESCRIPTORS 256

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
    card_out->name = tiara_cookie();
    card_out->pid = getpid();
    card_out->fd = *fd_out;
    if (pwrite(*fd_out, &card_out->cookie, sizeof card_out->cookie, (off_t)cookie_at) !=
        (ssize_t)sizeof card_out->cookie)
        return tiara_xport_sys_error(errno, "writing to own shared memory");
    map = mmap(NULL, x->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd_out, 0);
    if (map == MAP_FAILED)
        return tiara_xport_sys_error(
            errno, "mapping %zu bytes of own shared memory", x->file_bytes);
    x->head.base[x->rank] = map;
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

/* Maps the file of @peer, which is behind @fd. */
static enum tiara_err peer_map(struct shm *x, int peer, int fd)
{
    void *map = mmap(NULL, x->file_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (map == MAP_FAILED)
        return tiara_xport_sys_error(
            errno, "mapping %zu bytes of shared memory of peer %d", x->file_bytes, peer);
    x->head.base[peer] = map;
    return TIARA_OK;
}

static void shm_close(void *obj)
{
    struct shm *x = obj;

    if (x == NULL)
        return;
    for (int i = 0; x->head.base != NULL && i < x->size; i++) {
        if (x->head.base[i] != NULL)
            munmap(x->head.base[i], x->file_bytes);
    }
    tiara_free(x->head.base);
    memset(x, 0, sizeof *x);
}

/* What an open needs and frees. */
struct opening {
    const struct tiara_xport_group *group;
    enum tiara_xport_shm_fail fail;
    struct card card; /* the own one */
    struct card *cards; /* [size] of all */
    int fd; /* of the own file; -1: none */
    int socket; /* where peers send theirs; -1: none */
    struct sockaddr_un address; /* its name */
};

/* ---- handing over: through /proc ---- */

static enum tiara_err proc_take(struct shm *x, struct opening *o)
{
    enum tiara_err err = TIARA_OK;
    char path[64];

    if (o->fail == TIARA_XPORT_SHM_FAIL_PEER)
        return tiara_xport_sys_error(EACCES, "opening a peer's shared memory");
    for (int peer = 0; peer < x->size && err == TIARA_OK; peer++) {
        const struct card *card = &o->cards[peer];
        int fd;

        if (peer == x->rank)
            continue;
        snprintf(
            path, sizeof path, "/proc/%lld/fd/%lld", (long long)card->pid, (long long)card->fd);
        /* It may be a wrong process's pipe, which must not block, or its terminal, which must not
         * become ours. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            return tiara_xport_sys_error(errno, "opening %s, shared memory of peer %d", path, peer);
        if (is_card_file(x, card, fd)) {
            err = peer_map(x, peer, fd);
        } else {
            tiara_debug(
                "%s is not the shared memory of peer %d: another PID namespace?", path, peer);
            err = TIARA_ERR_UNSUPPORTED;
        }
        close(fd);
    }
    return err;
}

/* ---- handing over: by sockets ---- */

/* Where the names of sockets are. */
static const char *const places[] = {
    [TIARA_XPORT_SHM_WAY_DEV_SHM] = "/dev/shm/", [TIARA_XPORT_SHM_WAY_TMP] = "/tmp/"};

static enum tiara_err socket_make(struct opening *o, enum tiara_xport_shm_way way)
{
    socklen_t length = tiara_xport_address(places[way], o->card.name, &o->address);

    if (o->fail != TIARA_XPORT_SHM_FAIL_PEER)
        o->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    else
        errno = EACCES;
    if (o->socket < 0)
        return tiara_xport_sys_error(errno, "a socket to hand shared memory over");
    if (bind(o->socket, (struct sockaddr *)&o->address, length) != 0) {
        int number = errno;

        o->address.sun_path[0] = '\0'; /* there is no file to remove */
        return tiara_xport_sys_error(number, "a name for a socket");
    }
    return TIARA_OK;
}

static void socket_close(struct opening *o)
{
    if (o->socket >= 0 && o->address.sun_path[0] != '\0')
        unlink(o->address.sun_path);
    if (o->socket >= 0)
        close(o->socket);
    o->socket = -1;
}

/* Room for the one descriptor that a datagram carries. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static enum tiara_err socket_send(const struct opening *o, enum tiara_xport_shm_way way, int peer)
{
    struct sockaddr_un to;
    union control control = {.bytes = {0}};
    char byte = 0;
    struct iovec payload = {&byte, 1};
    struct msghdr message = {.msg_name = &to,
        .msg_namelen = tiara_xport_address(places[way], o->cards[peer].name, &to),
        .msg_iov = &payload,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control.bytes};

    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof o->fd)};
    memcpy(CMSG_DATA(&control.header), &o->fd, sizeof o->fd);
    if (sendmsg(o->socket, &message, MSG_NOSIGNAL) < 0)
        return tiara_xport_sys_error(errno, "handing shared memory to peer %d", peer);
    return TIARA_OK;
}

/* The descriptor in the next datagram into *fd_out; -1: it has none. */
static enum tiara_err socket_recv(const struct opening *o, int *fd_out)
{
    union control control;
    char byte;
    struct iovec payload = {&byte, 1};
    struct msghdr message = {.msg_iov = &payload,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *header;

    *fd_out = -1;
    if (recvmsg(o->socket, &message, MSG_CMSG_CLOEXEC) < 0)
        return tiara_xport_sys_error(errno, "taking shared memory from a peer");
    header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(fd_out, CMSG_DATA(header), sizeof *fd_out);
    else if (message.msg_flags & MSG_CTRUNC)
        return tiara_xport_sys_error(EMFILE, "taking shared memory from a peer");
    return TIARA_OK;
}

/* Maps the files of the peers that have sent in this round; drops what strangers sent. */
static enum tiara_err socket_take(struct shm *x, const struct opening *o, int first, int last)
{
    enum tiara_err err = TIARA_OK;

    for (int taken = first; taken < last && err == TIARA_OK;) {
        int fd;

        err = socket_recv(o, &fd);
        for (int k = first; k < last && fd >= 0 && err == TIARA_OK; k++) {
            int peer = (x->rank + x->size - k) % x->size;

            if (x->head.base[peer] == NULL && is_card_file(x, &o->cards[peer], fd)) {
                err = peer_map(x, peer, fd);
                taken++;
                break;
            }
        }
        if (fd >= 0)
            close(fd);
    }
    return err;
}

/* Peers at distances first .. last - 1 in a round: each rank has as many datagrams to expect. The
 * caller agrees on the result. */
static enum tiara_err socket_hand_over(
    struct shm *x, struct opening *o, enum tiara_xport_shm_way way)
{
    enum tiara_err err = tiara_xport_agree(o->group, socket_make(o, way)), mine = TIARA_OK;
    int most = ROUND_DESCRIPTORS / x->size, step = most < ROUND_PEERS ? most : ROUND_PEERS;

    step = step > 0 ? step : 1;
    for (int first = 1; first < x->size && err == TIARA_OK; first += step) {
        int last = first + step < x->size ? first + step : x->size;

        for (int k = first; k < last && mine == TIARA_OK; k++)
            mine = socket_send(o, way, (x->rank + k) % x->size);
        err = tiara_xport_agree(o->group, mine);
        if (err == TIARA_OK)
            mine = socket_take(x, o, first, last);
    }
    socket_close(o);
    return tiara_err_first(err, mine);
}

/* ---- open ---- */

/* The local part of open, before the first agreement: tables and the own file. */
static enum tiara_err prepare(struct shm *x, struct opening *o, size_t expose_bytes)
{
    x->head.base = tiara_alloc((size_t)x->size, sizeof *x->head.base);
    o->cards = tiara_alloc((size_t)x->size, sizeof *o->cards);
    if (x->head.base == NULL || o->cards == NULL)
        return TIARA_ERR_NOMEM;
    if (expose_bytes > INT64_MAX - 2 * TIARA_XPORT_ALIGN) {
        tiara_info("a segment of %zu bytes is more than a file can hold", expose_bytes);
        return TIARA_ERR_NOSPACE;
    }
    x->file_bytes = tiara_xport_round_up(expose_bytes + sizeof o->card.cookie);
    return own_make(x, o->fail, &o->fd, &o->card);
}

static enum tiara_err hand_over(struct shm *x, struct opening *o, enum tiara_xport_shm_way way)
{
    enum tiara_err err =
        way == TIARA_XPORT_SHM_WAY_PROC ? proc_take(x, o) : socket_hand_over(x, o, way);

    err = tiara_xport_agree(o->group, err);
    for (int peer = 0; peer < x->size && err != TIARA_OK; peer++) {
        if (peer != x->rank && x->head.base[peer] != NULL)
            munmap(x->head.base[peer], x->file_bytes);
        if (peer != x->rank)
            x->head.base[peer] = NULL;
    }
    return err;
}

/* By the first way that works for all; lack of room, and of memory, is the same on all ways. */
static enum tiara_err peers_map(struct shm *x, struct opening *o, unsigned ways)
{
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;

    for (int way = 0; way < TIARA_XPORT_SHM_NWAYS; way++) {
        if (ways == 0 || ways >> way & 1)
            err = hand_over(x, o, (enum tiara_xport_shm_way)way);
        if (err != TIARA_ERR_UNSUPPORTED && err != TIARA_ERR_SYS)
            break;
    }
    return err;
}

static enum tiara_err shm_open_group(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    static const struct tiara_xport_shm_params none = {TIARA_XPORT_SHM_FAIL_NONE, 0};
    const struct tiara_xport_shm_params *params = group->params != NULL ? group->params : &none;
    struct opening o = {.group = group, .fail = params->fail, .fd = -1, .socket = -1};
    struct shm *x = obj;
    enum tiara_err err;

    if (expose_bytes == 0)
        return TIARA_OK;
    x->rank = group->rank;
    x->size = group->size;
    err = tiara_xport_agree(group, prepare(x, &o, expose_bytes));
    if (err == TIARA_OK)
        err = group->allgather(group->arg, &o.card, o.cards, sizeof o.card);
    for (int peer = 0; err == TIARA_OK && peer < x->size; peer++)
        o.cards[peer].cookie += o.fail == TIARA_XPORT_SHM_FAIL_COOKIE;
    /* Nobody closes its file before all have agreed that they mapped it. */
    if (err == TIARA_OK && x->size > 1)
        err = peers_map(x, &o, params->ways);
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
