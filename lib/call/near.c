/*
 * GPU buffers that only the CPU can work on: copies in host memory, for what goes to an MPI that
 * knows no GPU memory, and for types with holes, which MPI packs.
 *
 * Whoever needs this pays for whole copies; the calls that Tiara itself runs never do. The copy
 * spans from the lowest to the highest byte that the elements touch, so that the type's own layout
 * holds in it.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm.h"

bool tiara_near_is(const void *buf)
{
    const struct tiara_gpu *gpu = tiara_device();
    struct tiara_gpu_pointer p = {0};

    if (!gpu || !buf || buf == MPI_IN_PLACE || buf == MPI_BOTTOM)
        return true;
    return gpu->look(buf, 1, &p) != TIARA_OK || !p.device;
}

/*
 * By a blocking collective of MPI, as what follows is one: it has no watchdog, since the
 * communicator may have been given up and its ranks go on in MPI together; and it cannot be mixed
 * up with an exchange that a rank left behind when it gave up. Over the private communicator where
 * there is one, since the program may use its own while a call in a stream has to be met by another
 * thread.
 */
enum tiara_err tiara_near_agree(struct tiara_comm *c, enum tiara_err mine)
{
    MPI_Comm comm = c->net != MPI_COMM_NULL ? c->net : c->comm;
    int good = mine == TIARA_OK, all = 1;

    tiara_stream_rest(c);
    if (c->calls_left > 0) {
        c->calls_left--;
        tiara_error("another rank of the communicator failed in this call or a later one");
        return tiara_err_first(mine, TIARA_ERR_PEER);
    }
    if (!c->device.possible || c->size == 1 || c->inter)
        return mine;
    if (PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    if (good && !all) {
        tiara_error("another rank of the communicator could not begin a call that goes to the MPI "
                    "below");
        return TIARA_ERR_PEER;
    }
    return mine;
}

/* Bytes that @count elements of @type span, and where the lowest lies. */
static enum tiara_err span(
    size_t count, MPI_Datatype type, struct tiara_near *near, bool *holes_out)
{
    MPI_Aint lb, extent, true_lb, true_extent, last;
    MPI_Count size;

    if (PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS ||
        PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    last = count > 0 ? (MPI_Aint)(count - 1) * extent : 0;
    near->first = true_lb + (last < 0 ? last : 0);
    near->bytes = count > 0 ? (size_t)((last < 0 ? -last : last) + true_extent) : 0;
    *holes_out = size != true_extent || extent != true_extent;
    return TIARA_OK;
}

enum tiara_err tiara_near_open(struct tiara_comm *c, struct tiara_near *near, const void *buf,
    size_t count, MPI_Datatype type, bool fetch)
{
    bool holes;
    enum tiara_err err;

    *near = (struct tiara_near){.buf = (void *)(uintptr_t)buf, .user = (void *)(uintptr_t)buf};
    if (tiara_near_is(buf))
        return TIARA_OK;
    err = span(count, type, near, &holes);
    if (err != TIARA_OK || near->bytes == 0)
        return err;
    near->copy = tiara_alloc_aligned(64, near->bytes);
    if (!near->copy)
        return TIARA_ERR_NOMEM;
    near->buf = near->copy - near->first;
    if (!fetch && !holes)
        return TIARA_OK;
    return tiara_device_copy(c, near->copy, (char *)near->user + near->first, near->bytes, false);
}

enum tiara_err tiara_near_close(struct tiara_comm *c, struct tiara_near *near, bool store)
{
    enum tiara_err err = TIARA_OK;

    if (near->copy && store)
        err = tiara_device_copy(c, (char *)near->user + near->first, near->copy, near->bytes, true);
    tiara_near_drop(near);
    return err;
}

void tiara_near_drop(struct tiara_near *near)
{
    tiara_free(near->copy);
    near->copy = NULL;
}
