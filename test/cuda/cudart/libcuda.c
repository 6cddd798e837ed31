/*
 * The stand-in's driver, libcuda.so.1: there so that programs that look for a driver find one.
 *
 * Driver functions that the stand-in knows are had from its runtime, by cudaGetDriverEntryPoint.
 */
#include <cuda.h>

CUresult cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version_out)
{
    *version_out = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **at_out, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *result_out)
{
    (void)name;
    (void)version;
    (void)flags;
    *at_out = 0;
    if (result_out)
        *result_out = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}
