/*
 * What the process has once: made by the first call that needs it, taken down by MPI_Finalize,
 * layer by layer from above.
 */
#include "api/process.h"
#include "api/scratch.h"
#include "call/async.h"
#include "call/below.h"
#include "call/on_device.h"
#include "call/request.h"
#include "comm/arena_pool.h"
#include "comm/mpi_progress.h"
#include "elem/elem.h"
#include <pthread.h>

static tiara_u32 is_open;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void fini_comm(struct tiara_comm *c)
{
    tiara_async_part(c);
    tiara_on_device_fini(c);
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first, while MPI still works, which it may
 * not when it deletes those of the other communicators. */
static int close_all(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    tiara_request_finish();
    tiara_async_finish();
    tiara_comm_close();
    tiara_async_release();
    tiara_pool_clear();
    tiara_xport_release();
    tiara_scratch_release();
    tiara_device_release();
    tiara_elem_release();
    tiara_config_release();
    tiara_mpi_progress_close();
    return MPI_SUCCESS;
}

/* Lock held. */
static int open_all(void)
{
    int keyval, rc = tiara_comm_open(fini_comm);

    if (rc == MPI_SUCCESS)
        rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_all, &keyval, NULL);
    if (rc == MPI_SUCCESS) {
        rc = PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
        PMPI_Comm_free_keyval(&keyval);
    }
    if (rc == MPI_SUCCESS)
        rc = tiara_mpi_progress_open();
    /* [process.open] release: all of it is there. */
    if (rc == MPI_SUCCESS)
        tiara_store_release(&is_open, 1);
    return rc;
}

static int open_once(void)
{
    int rc = MPI_SUCCESS;

    /* [process.open] acquire: the keys may be used. */
    if (__builtin_expect(tiara_load_acquire(&is_open) != 0, 1))
        return MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!tiara_load_relaxed(&is_open)) /* relaxed: the lock orders it */
        rc = open_all();
    pthread_mutex_unlock(&lock);
    return rc;
}

struct tiara_comm *tiara_process_get(MPI_Comm comm, int *rc_out)
{
    struct tiara_comm *c = tiara_comm_last(comm);

    *rc_out = c ? MPI_SUCCESS : open_once();
    if (c || *rc_out != MPI_SUCCESS)
        return c;
    c = tiara_comm_get(comm, rc_out);
    if (c && c->async_wanted)
        *rc_out = tiara_below_raise(comm, tiara_async_open(c));
    return *rc_out == MPI_SUCCESS ? c : NULL;
}

int tiara_process_find(MPI_Comm comm, bool wanted, struct tiara_comm **c_out)
{
    int rc = open_once();

    *c_out = NULL;
    return rc == MPI_SUCCESS ? tiara_comm_find(comm, wanted, c_out) : rc;
}
