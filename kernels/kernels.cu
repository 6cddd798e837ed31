/*
 * The kernels, in one translation unit.
 *
 * Read in this order: device.h (the machine), format.h (element types), fold.h and table.h
 * (reductions), wait.h, and then a file for each kernel.
 */
#include "exec.h"
#include "probe.h"
#include "reduce.h"
#include "small.h"

K_KERNEL(tiara_kernel_exec, tiara_kernel_exec_args, k_exec_shared, k_exec_run, 1)
K_KERNEL(tiara_kernel_small, tiara_kernel_small_args, k_small_shared, k_small_run, 1)
/* Two thread blocks on a multiprocessor: enough loads in flight to fill the memory's bandwidth. */
K_KERNEL(tiara_kernel_reduce, tiara_kernel_reduce_args, k_reduce_shared, k_reduce_run, 2)
K_KERNEL(tiara_kernel_probe, tiara_kernel_probe_args, k_probe_shared, k_probe_run, 1)
