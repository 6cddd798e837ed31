/*
 * Opening a node's shared memory, on all nodes of a communicator or on none.
 *
 * Each node opens in its own group, so that a node where something fails does not leave another in
 * an exchange; after each way all nodes vote, and go on to the next way together. The last resort,
 * a window of the MPI below, is tried only where each rank could make a small shared file just
 * before: an MPI whose one rank fails inside MPI_Win_allocate_shared may never return on the
 * others.
 */
#include "comm/node_memory.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static enum tiara_err node_allgather(void *arg, const void *in, void *out, size_t bytes)
{
    struct tiara_node_memory *m = arg;

    return tiara_agree_exchange(m->node_comm, in, out, bytes);
}

/* The worst of all ranks' results. */
static enum tiara_err vote(struct tiara_node_memory *m, enum tiara_err mine)
{
    char in = (char)mine;
    enum tiara_err err = tiara_agree_exchange(m->c->comm, &in, m->room, 1), worst = TIARA_OK;

    for (int i = 0; err == TIARA_OK && i < m->c->size; i++)
        if (m->room[i] != TIARA_OK && worst != TIARA_ERR_UNSUPPORTED)
            worst = (enum tiara_err)m->room[i];
    return tiara_err_first(err, worst);
}

/* Whether this process may make shared files of the kind that MPIs make. */
static bool can_share_files(void)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;

    if (fd < 0)
        return false;
    if (ftruncate(fd, 65536) == 0)
        at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        munmap(at, 65536);
    close(fd);
    return at != MAP_FAILED;
}

/* Opens by @xport with cells of @cell bytes. */
static enum tiara_err open_by(
    struct tiara_node_memory *m, const struct tiara_xport *xport, size_t cell)
{
    const struct tiara_comm *c = m->c;
    struct tiara_xport_group group = {.rank = c->node_index[c->rank],
        .size = tiara_layout_local_size(&c->layout, c->layout.node_of[c->rank]),
        .allgather = node_allgather,
        .arg = m};
    enum tiara_err err;

    if (xport == &tiara_xport_window)
        group.params = &m->node_comm;
    err = vote(m, tiara_arena_open(m->arena, xport, &group, cell));
    if (err != TIARA_OK)
        tiara_arena_close(m->arena);
    return err;
}

/* Tries @xport with each size of a cell; only lack of room is cured by a smaller one. */
static enum tiara_err open_sizes(
    struct tiara_node_memory *m, const struct tiara_xport *xport, const size_t *cells, int ncells)
{
    enum tiara_err err = TIARA_ERR_NOSPACE;

    for (int i = 0; i < ncells && err == TIARA_ERR_NOSPACE; i++)
        err = open_by(m, xport, cells[i]);
    return err;
}

/* Single copy, where it is asked for and allowed on every node. */
static enum tiara_err open_cma(struct tiara_node_memory *m)
{
    const struct tiara_comm *c = m->c;
    struct tiara_xport_group group = {.rank = c->node_index[c->rank],
        .size = m->arena->size,
        .allgather = node_allgather,
        .arg = m};
    enum tiara_err err;

    m->cma = tiara_alloc(1, tiara_xport_cma.size);
    err = vote(m, m->cma ? TIARA_OK : TIARA_ERR_NOMEM);
    if (err == TIARA_OK)
        err = vote(m, tiara_xport_cma.open(m->cma, &group, 0));
    if (err == TIARA_OK)
        return TIARA_OK;
    if (c->rank == 0)
        tiara_warn("single copy between processes is not allowed here; cells are used");
    if (m->cma)
        tiara_xport_cma.close(m->cma);
    tiara_free(m->cma);
    m->cma = NULL;
    return err == TIARA_ERR_MPI ? err : TIARA_OK;
}

enum tiara_err tiara_node_memory_open(struct tiara_node_memory *m, const size_t *cells, int ncells)
{
    const struct tiara_comm *c = m->c;
    int way = c->config.shm;
    enum tiara_err err = TIARA_ERR_UNSUPPORTED;

    if (PMPI_Comm_split(c->comm, c->layout.node_of[c->rank], c->rank, &m->node_comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    PMPI_Comm_set_errhandler(m->node_comm, MPI_ERRORS_RETURN);
    if (way == TIARA_SHM_AUTO || way == TIARA_SHM_MEMFD)
        err = open_sizes(m, &tiara_xport_shm, cells, ncells);
    if (err != TIARA_OK && err != TIARA_ERR_MPI &&
        (way == TIARA_SHM_AUTO || way == TIARA_SHM_WINDOW)) {
        err = vote(m, can_share_files() ? TIARA_OK : TIARA_ERR_UNSUPPORTED);
        if (err == TIARA_OK)
            err = open_sizes(m, &tiara_xport_window, cells, ncells);
    }
    if (err == TIARA_OK && c->config.cma == TIARA_CMA_ON)
        err = open_cma(m);
    /* A window keeps using its communicator; anything else has no further need of it. */
    if (err != TIARA_OK || m->arena->xport != &tiara_xport_window)
        PMPI_Comm_free(&m->node_comm);
    return err;
}
