/*
 * Which of the instruction sets with kernels of their own this CPU has. Not in the kernels' files:
 * those are compiled for a CPU that has them.
 */
#include "redop/redop_priv.h"
#include "base/sync.h"

#if defined(__x86_64__)
#include <cpuid.h>

/*
 * F16C has no name in every compiler's __builtin_cpu_supports; its system support is AVX's. Asked
 * once: in a virtual machine the instruction takes some 20 us, and the tables of reductions ask
 * hundreds of times.
 */
static bool has_f16c(void)
{
    enum {
        UNKNOWN,
        NO,
        YES
    };
    static tiara_u32 known;
    unsigned a, b, c, d;

    /* relaxed: all threads find the same */
    if (tiara_load_relaxed(&known) == UNKNOWN)
        tiara_store_relaxed(&known, __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO);
    return tiara_load_relaxed(&known) == YES;
}

bool tiara_redop_avx2_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool tiara_redop_avx512_supported(void)
{
    return tiara_redop_avx2_supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

#endif
