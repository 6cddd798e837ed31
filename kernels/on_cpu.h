/*
 * Kernels on the CPU: how a thread of a thread block is called when the .cu sources are compiled by
 * a C++ compiler.
 *
 * For tests without a GPU. With -DTIARA_KERNELS_ON_CPU each kernel K becomes a function K_on_cpu,
 * which runs one thread; whoever launches it runs nblocks x nthreads threads, those of a block
 * sharing @shared and @sync.
 */
#ifndef TIARA_KERNELS_ON_CPU_H
#define TIARA_KERNELS_ON_CPU_H

#ifdef __cplusplus
extern "C" {
#endif

#define TIARA_ON_CPU_SHARED 65536 /* bytes of shared memory of a thread block */

struct tiara_on_cpu {
    unsigned block, nblocks;
    unsigned thread, nthreads;
    /* TIARA_ON_CPU_SHARED bytes, aligned to 64; of the thread block; contents undefined */
    void *shared;
    void (*sync)(struct tiara_on_cpu *self); /* __syncthreads */
    void *launcher; /* the launcher's own */
};

/* @args: the kernel's one argument. */
typedef void tiara_on_cpu_kernel(struct tiara_on_cpu *self, const void *args);
tiara_on_cpu_kernel tiara_kernel_exec_on_cpu, tiara_kernel_small_on_cpu, tiara_kernel_reduce_on_cpu,
    tiara_kernel_probe_on_cpu;

#ifdef __cplusplus
}
#endif

#endif
