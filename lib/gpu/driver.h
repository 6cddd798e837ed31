/*
 * Private to lib/gpu: the few functions of the driver that the runtime has no name for.
 *
 * They are asked for by name when the object is opened, and never linked against, so that the
 * object loads where the driver is old or missing. One that is not there is NULL, and what needs it
 * is not supported.
 */
#ifndef TIARA_GPU_DRIVER_H
#define TIARA_GPU_DRIVER_H

#include "base/err.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>

struct tiara_gpu_driver {
    PFN_cuCtxGetCurrent_v4000 ctx_get_current;
    PFN_cuMemGetAddressRange_v3020 mem_address_range;
    PFN_cuPointerGetAttribute_v4000 pointer_attribute;
    /* Memory that is mapped piece by piece (VMM). */
    PFN_cuMemRetainAllocationHandle_v11000 mem_retain;
    PFN_cuMemExportToShareableHandle_v10020 mem_export;
    PFN_cuMemImportFromShareableHandle_v10020 mem_import;
    PFN_cuMemAddressReserve_v10020 mem_reserve;
    PFN_cuMemAddressFree_v10020 mem_reserve_free;
    PFN_cuMemMap_v10020 mem_map;
    PFN_cuMemUnmap_v10020 mem_unmap;
    PFN_cuMemSetAccess_v10020 mem_set_access;
    PFN_cuMemRelease_v10020 mem_release;
    PFN_cuMemGetAllocationGranularity_v10020 mem_granularity;
};

/* Looks for all of them. Once, when the runtime has been started; before that they are NULL. */
void tiara_gpu_driver_open(void);
const struct tiara_gpu_driver *tiara_gpu_driver(void);

/* Are the functions there that tell allocations from each other; to export VMM memory; to map a
 * peer's? */
bool tiara_gpu_driver_can_tell(void);
bool tiara_gpu_driver_can_export(void);
bool tiara_gpu_driver_can_import(void);

/* TIARA_OK, or TIARA_ERR_NOMEM or TIARA_ERR_UNSUPPORTED after logging as info: "cuMemMap: driver
 * error 801". */
TIARA_MUST_USE enum tiara_err tiara_gpu_driver_try(CUresult code, const char *call);

#endif
