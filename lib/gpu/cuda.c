/*
 * Results of CUDA calls.
 *
 * An error that is not sticky is forgotten by the thread once it was asked for: whoever gets one
 * here asks at once.
 */
#include "gpu/cuda.h"
#include "base/log.h"

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
