/*
 * Driver functions by name.
 *
 * Each is asked for with the version in which its present signature came, so that a newer driver
 * gives the same function.
 */
#include "gpu/driver.h"
#include "gpu/cuda.h"
#include "base/log.h"

#include <stddef.h>
#include <string.h>

struct name {
    const char *symbol;
    unsigned version; /* as CUDA_VERSION */
    size_t at; /* in struct tiara_gpu_driver */
};

#define NAME(symbol, version, field)                                                               \
    {                                                                                              \
        symbol, version, offsetof(struct tiara_gpu_driver, field)                                  \
    }
static const struct name names[] = {
    NAME("cuCtxGetCurrent", 4000, ctx_get_current),
    NAME("cuMemGetAddressRange", 3020, mem_address_range),
    NAME("cuPointerGetAttribute", 4000, pointer_attribute),
    NAME("cuMemRetainAllocationHandle", 11000, mem_retain),
    NAME("cuMemExportToShareableHandle", 10020, mem_export),
    NAME("cuMemImportFromShareableHandle", 10020, mem_import),
    NAME("cuMemAddressReserve", 10020, mem_reserve),
    NAME("cuMemAddressFree", 10020, mem_reserve_free),
    NAME("cuMemMap", 10020, mem_map),
    NAME("cuMemUnmap", 10020, mem_unmap),
    NAME("cuMemSetAccess", 10020, mem_set_access),
    NAME("cuMemRelease", 10020, mem_release),
    NAME("cuMemGetAllocationGranularity", 10020, mem_granularity),
};

/*
 * Process-wide: there is one driver. Written by open only, before any other thread can come here.
 */
static struct tiara_gpu_driver driver;

void tiara_gpu_driver_open(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        void *function = NULL;
        enum tiara_err err =
            tiara_gpu_try(cudaGetDriverEntryPointByVersion(names[i].symbol, &function,
                              names[i].version, cudaEnableDefault, &found),
                "cudaGetDriverEntryPointByVersion");

        if (err != TIARA_OK || found != cudaDriverEntryPointSuccess || function == NULL) {
            tiara_debug("the driver has no %s", names[i].symbol);
            function = NULL;
        }
        /* A function's address travels as an object's here, as with dlsym. */
        memcpy((char *)&driver + names[i].at, &function, sizeof function);
    }
}

const struct tiara_gpu_driver *tiara_gpu_driver(void)
{
    return &driver;
}

bool tiara_gpu_driver_can_tell(void)
{
    return driver.mem_address_range != NULL && driver.pointer_attribute != NULL;
}

bool tiara_gpu_driver_can_export(void)
{
    return tiara_gpu_driver_can_tell() && driver.mem_retain != NULL && driver.mem_export != NULL &&
           driver.mem_release != NULL;
}

bool tiara_gpu_driver_can_import(void)
{
    return driver.mem_import != NULL && driver.mem_reserve != NULL &&
           driver.mem_reserve_free != NULL && driver.mem_map != NULL && driver.mem_unmap != NULL &&
           driver.mem_set_access != NULL && driver.mem_release != NULL &&
           driver.mem_granularity != NULL;
}

enum tiara_err tiara_gpu_driver_try(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return TIARA_OK;
    tiara_info("%s: driver error %d", call, (int)code);
    return code == CUDA_ERROR_OUT_OF_MEMORY ? TIARA_ERR_NOMEM : TIARA_ERR_UNSUPPORTED;
}
