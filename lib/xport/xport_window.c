/*
 * Transport window: shared memory from the MPI below (MPI_Win_allocate_shared), where shm cannot.
 *
 * The one idea: an MPI that already shares memory between these ranks has a way through their
 * container, so the memory is asked from it. It may have a name in /dev/shm for a while, and lack
 * of room is the MPI's to detect: that is why this is the fallback and not the rule.
 *
 * Alignment. MPI promises none, and a segment may lie at different addresses in different ranks.
 * Each owner asks for one page more, chooses where its segment begins, and tells its peers the
 * distance from MPI's base.
 *
 * Memory model. The window is locked by all for all (a passive epoch) from open to close, which
 * makes loads and stores to it defined in MPI's unified model. MPI_Win_sync would be the portable
 * memory barrier between them; here the acquire loads and release stores of base/sync.h are the
 * barrier: they order ordinary loads and stores of coherent memory, which is what an MPI with the
 * unified model shares.
 */
#include "xport/xport_priv.h"
#include "base/alloc.h"
#include "base/log.h"

#include <mpi.h>
#include <string.h>

struct window {
    MPI_Win win;
    bool open;
    void **base; /* [size of the group]; NULL: nothing is exposed */
};

/* Logs what MPI says about @rc of @call. */
static enum tiara_err mpi_error(const char *call, int rc)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;

    if (PMPI_Error_string(rc, text, &length) != MPI_SUCCESS)
        length = 0;
    tiara_info("%s: %.*s", call, length, text);
    return TIARA_ERR_MPI;
}

/* Makes the window of this rank's share @bytes; local view of a collective call. */
static enum tiara_err window_make(MPI_Comm comm, size_t bytes, MPI_Win *win_out, void **memory_out)
{
    MPI_Info info;
    int rc;

    rc = PMPI_Info_create(&info);
    if (rc != MPI_SUCCESS)
        return mpi_error("MPI_Info_create", rc);
    /* Lets each rank's share lie on pages of its own, and so on its own NUMA node. Only a hint:
     * failure is harmless. */
    (void)PMPI_Info_set(info, "alloc_shared_noncontig", "true");
    rc = PMPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, comm, memory_out, win_out);
    PMPI_Info_free(&info);
    if (rc != MPI_SUCCESS)
        return mpi_error("MPI_Win_allocate_shared", rc);
    rc = PMPI_Win_set_errhandler(*win_out, MPI_ERRORS_RETURN);
    return rc == MPI_SUCCESS ? TIARA_OK : mpi_error("MPI_Win_set_errhandler", rc);
}

/* Finds every peer's segment: MPI's base of its share plus the distance that its owner chose. */
static enum tiara_err peers_find(struct window *x, int size, const uint64_t *skips)
{
    for (int peer = 0; peer < size; peer++) {
        MPI_Aint bytes;
        int unit, rc;
        void *share;

        rc = PMPI_Win_shared_query(x->win, peer, &bytes, &unit, &share);
        if (rc != MPI_SUCCESS)
            return mpi_error("MPI_Win_shared_query", rc);
        x->base[peer] = (char *)share + skips[peer];
        if ((uintptr_t)x->base[peer] % TIARA_XPORT_ALIGN != 0) {
            tiara_debug("MPI mapped the share of peer %d at %p: no page boundary", peer, share);
            return TIARA_ERR_UNSUPPORTED;
        }
    }
    return TIARA_OK;
}

/* Begins the passive epoch and zeroes the own segment, which also places its pages. */
static enum tiara_err segment_start(struct window *x, void *segment, size_t bytes)
{
    int rc = PMPI_Win_lock_all(MPI_MODE_NOCHECK, x->win);

    if (rc != MPI_SUCCESS)
        return mpi_error("MPI_Win_lock_all", rc);
    memset(segment, 0, bytes);
    return TIARA_OK;
}

static void window_close(void *obj)
{
    struct window *x = obj;

    if (x->open) {
        (void)PMPI_Win_unlock_all(x->win);
        (void)PMPI_Win_free(&x->win);
    }
    tiara_free(x->base);
    memset(x, 0, sizeof *x);
}

/*
 * The collective part, entered by all ranks or none. A window that exists on some ranks only is
 * given up, not freed: MPI_Win_free is collective, and would hang those that have it.
 */
static enum tiara_err window_open_all(
    struct window *x, const struct tiara_xport_group *group, size_t expose_bytes, uint64_t *skips)
{
    size_t share_bytes = tiara_xport_round_up(expose_bytes) + TIARA_XPORT_ALIGN;
    void *memory = NULL;
    uint64_t skip;
    enum tiara_err err;

    err = window_make(*(const MPI_Comm *)group->params, share_bytes, &x->win, &memory);
    err = tiara_xport_agree(group, err);
    if (err != TIARA_OK)
        return err;
    skip = -(uintptr_t)memory % TIARA_XPORT_ALIGN;
    err = tiara_xport_agree(group, segment_start(x, (char *)memory + skip, expose_bytes));
    if (err != TIARA_OK)
        return err;
    x->open = true;
    err = group->allgather(group->arg, &skip, skips, sizeof skip);
    if (err != TIARA_OK)
        return err;
    /* Orders the owners' zeroes before the peers' first loads, too. */
    return tiara_xport_agree(group, peers_find(x, group->size, skips));
}

static enum tiara_err window_open(
    void *obj, const struct tiara_xport_group *group, size_t expose_bytes)
{
    struct window *x = obj;
    uint64_t *skips;
    enum tiara_err err = TIARA_OK;

    if (expose_bytes == 0)
        return TIARA_OK;
    x->base = tiara_alloc((size_t)group->size, sizeof *x->base);
    skips = tiara_alloc((size_t)group->size, sizeof *skips);
    if (x->base == NULL || skips == NULL) {
        err = TIARA_ERR_NOMEM;
    } else if (expose_bytes > PTRDIFF_MAX - 2 * TIARA_XPORT_ALIGN) {
        tiara_info("a segment of %zu bytes is more than an address can hold", expose_bytes);
        err = TIARA_ERR_NOSPACE;
    }
    err = tiara_xport_agree(group, err);
    if (err == TIARA_OK)
        err = window_open_all(x, group, expose_bytes, skips);
    tiara_free(skips);
    if (err != TIARA_OK)
        window_close(x);
    return err;
}

static void *window_base(void *obj, int peer)
{
    struct window *x = obj;

    return x->base != NULL ? x->base[peer] : NULL;
}

const struct tiara_xport tiara_xport_window = {
    .name = "window",
    .flags = TIARA_XPORT_EXPOSE,
    .size = sizeof(struct window),
    .open = window_open,
    .close = window_close,
    .base = window_base,
};
