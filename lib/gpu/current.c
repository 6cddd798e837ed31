/*
 * The current device of a thread, borrowed and given back.
 */
#include "gpu/current.h"
#include "gpu/cuda.h"
#include "gpu/driver.h"
#include "base/log.h"

#define KEEP (-1) /* leave has nothing to do */

/*
 * A thread that has no context yet needs one for the driver's functions. One that has is not
 * switched to the runtime's own context when its device is the right one already: the program may
 * have made it by the driver's interface.
 */
static bool has_context(void)
{
    const struct tiara_gpu_driver *driver = tiara_gpu_driver();
    CUcontext context = NULL;

    return driver->ctx_get_current == NULL ||
           (driver->ctx_get_current(&context) == CUDA_SUCCESS && context != NULL);
}

int tiara_gpu_enter(int ordinal)
{
    int previous = KEEP;

    /* Rather another device than the program's stays current than that what follows is done on a
     * wrong one. */
    if (tiara_gpu_try(cudaGetDevice(&previous), "cudaGetDevice") != TIARA_OK)
        previous = KEEP;
    if (previous == ordinal && has_context())
        return KEEP;
    /* What is then called on the wrong device fails by itself, and says so. */
    if (tiara_gpu_try(cudaSetDevice(ordinal), "cudaSetDevice") != TIARA_OK || previous == ordinal)
        return KEEP;
    return previous;
}

void tiara_gpu_leave(int previous)
{
    if (previous != KEEP && tiara_gpu_try(cudaSetDevice(previous), "cudaSetDevice") != TIARA_OK)
        tiara_debug("device %d could not be made current again", previous);
}
