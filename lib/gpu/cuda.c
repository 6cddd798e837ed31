/*
 * Results of CUDA calls, and the current device.
 *
 * An error that is not sticky is forgotten by the thread once it was asked for: whoever gets one
 * here asks at once.
 */
#include "gpu/cuda.h"
#include "gpu/driver.h"
#include "base/log.h"

#define KEEP (-1) /* leave has nothing to do */

static enum tiara_err result(cudaError_t code, const char *call, enum tiara_log_level level)
{
    if (code == cudaSuccess)
        return TIARA_OK;
    cudaGetLastError();
    tiara_log(level, "%s: %s", call, cudaGetErrorString(code));
    return code == cudaErrorMemoryAllocation ? TIARA_ERR_NOMEM : TIARA_ERR_SYS;
}

enum tiara_err tiara_gpu_ok(cudaError_t code, const char *call)
{
    return result(code, call, TIARA_LOG_ERROR);
}

enum tiara_err tiara_gpu_try(cudaError_t code, const char *call)
{
    return result(code, call, TIARA_LOG_INFO);
}

enum tiara_err tiara_gpu_event_test(cudaEvent_t event, bool *done_out)
{
    cudaError_t code = cudaEventQuery(event);

    if (code == cudaErrorNotReady) {
        cudaGetLastError();
        *done_out = false;
        return TIARA_OK;
    }
    *done_out = code == cudaSuccess;
    return tiara_gpu_ok(code, "cudaEventQuery");
}

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
