/*
 * What the kernels need of a machine; the one place that knows whether a CUDA or a C++ compiler
 * compiles them.
 *
 * Everything below the kernels' entry points takes a struct k_lane, which says which thread of
 * which thread block is running, and touches memory that others write, clocks and barriers through
 * this header only. With TIARA_KERNELS_ON_CPU a lane is a CPU thread (on_cpu.h); shared memory is
 * what its thread block shares, and a barrier is the launcher's.
 *
 * Memory order. Words that cross ranks are read with acquire and written with release at system
 * scope, by one thread; a barrier of the thread block before a release, and behind an acquire,
 * makes that hold for all its threads. Other loads and stores are plain, never through a cache that
 * stays stale (no ld.global.nc: nothing here is __restrict__), so they see what an acquire before
 * them allows to be seen.
 */
#ifndef TIARA_KERNELS_DEVICE_H
#define TIARA_KERNELS_DEVICE_H

#include "kernels.h"

/* 16 bytes, the unit of memory access. */
struct alignas(16) k_vec {
    uint32_t w[4];
};

#ifdef TIARA_KERNELS_ON_CPU

#include "on_cpu.h"
#include <sched.h>
#include <string.h>
#include <time.h>

#define K_FN static inline
#define K_IN static inline /* in a class */
#define K_FAR static __attribute__((noinline)) /* called from several places, compiled once */
#define K_UNROLL
#define K_ROLLED

/* A thread. */
struct k_lane {
    uint32_t index, count; /* in its thread block */
    uint32_t block, nblocks;
    struct tiara_on_cpu *self;
    uint32_t *vote; /* [2] shared: k_any's results, in turn */
    uint32_t votes; /* by this thread so far */
};

K_FN void k_sync(struct k_lane &lane)
{
    lane.self->sync(lane.self);
}

/*
 * Barrier; whether @mine was true on any thread of the block. Vote n + 2 takes the word of vote n:
 * by then all threads have passed the barrier of vote n + 1, and read it before. The words are only
 * ever set, as whoever sees one leaves.
 */
K_FN bool k_any(struct k_lane &lane, bool mine)
{
    uint32_t *word = &lane.vote[lane.votes++ & 1];

    if (mine)
        __atomic_store_n(word, 1, __ATOMIC_RELAXED);
    k_sync(lane);
    return __atomic_load_n(word, __ATOMIC_RELAXED) != 0;
}

K_FN uint64_t k_clock_ns()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For tests: bytes that this process's executors have read from peers' memory, and their launches.
 * There is one translation unit. */
extern "C" uint64_t tiara_kernel_link_bytes_on_cpu, tiara_kernel_exec_launches_on_cpu;
uint64_t tiara_kernel_link_bytes_on_cpu, tiara_kernel_exec_launches_on_cpu;

/* By all threads of a block, for what they do together. */
K_FN void k_count_link(const struct k_lane &lane, uint64_t bytes)
{
    if (lane.index == 0)
        __atomic_fetch_add(&tiara_kernel_link_bytes_on_cpu, bytes, __ATOMIC_RELAXED);
}

K_FN void k_count_launch(const struct k_lane &lane)
{
    if (lane.index == 0 && lane.block == 0)
        __atomic_fetch_add(&tiara_kernel_exec_launches_on_cpu, 1, __ATOMIC_RELAXED);
}

/* Between two looks at a word that another thread will write. */
K_FN void k_pause()
{
    sched_yield();
}

K_FN uint64_t k_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

K_FN void k_release(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

K_FN void k_release32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* A word that only says "leave": no data depends on it. */
K_FN uint32_t k_peek(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

K_FN void k_poke(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* A packet {data, flag, data, flag}: each half arrives whole, the halves in any order. */
K_FN void k_packet_put(void *to, struct k_vec packet)
{
    uint64_t *half = (uint64_t *)to;

    __atomic_store_n(half, packet.w[0] | (uint64_t)packet.w[1] << 32, __ATOMIC_RELAXED);
    __atomic_store_n(half + 1, packet.w[2] | (uint64_t)packet.w[3] << 32, __ATOMIC_RELAXED);
}

K_FN struct k_vec k_packet_get(const void *from)
{
    const uint64_t *half = (const uint64_t *)from;
    uint64_t a = __atomic_load_n(half, __ATOMIC_RELAXED);
    uint64_t b = __atomic_load_n(half + 1, __ATOMIC_RELAXED);

    return {{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)}};
}

/* At an address that is a multiple of the size. */
template <class T> K_FN T k_load(const void *from)
{
    T x;

    memcpy(&x, from, sizeof(x));
    return x;
}

template <class T> K_FN void k_store(void *to, T x)
{
    memcpy(to, &x, sizeof(x));
}

K_FN struct k_vec k_load_vec(const void *from)
{
    return k_load<struct k_vec>(from);
}

K_FN void k_store_vec(void *to, struct k_vec v)
{
    k_store(to, v);
}

template <class To, class From> K_FN To k_cast(From x)
{
    To y;

    static_assert(sizeof(y) == sizeof(x), "a cast of bits");
    memcpy(&y, &x, sizeof(y));
    return y;
}

/* @run is the kernel: void (struct k_lane &, const struct @args &, struct @shared &). Its shared
 * memory begins undefined. */
#define K_KERNEL(name, args_type, shared_type, run, blocks_per_sm)                                 \
    extern "C" void name##_on_cpu(struct tiara_on_cpu *self, const void *args)                     \
    {                                                                                              \
        uint32_t *vote = (uint32_t *)((char *)self->shared + TIARA_ON_CPU_SHARED) - 2;             \
        struct k_lane lane = {                                                                     \
            self->thread, self->nthreads, self->block, self->nblocks, self, vote, 0};              \
        static_assert(sizeof(struct shared_type) <= TIARA_ON_CPU_SHARED - 64, "shared memory");    \
        if (self->thread == 0)                                                                     \
            vote[0] = vote[1] = 0;                                                                 \
        self->sync(self);                                                                          \
        run(lane, *(const struct args_type *)args, *(struct shared_type *)self->shared);           \
    }

#else /* CUDA */

#define K_CUDA_FORMATS

#define K_FN static __device__ __forceinline__
#define K_IN __device__ __forceinline__ static
#define K_FAR static __device__ __noinline__
#define K_UNROLL _Pragma("unroll")
#define K_ROLLED _Pragma("unroll 1") /* code that is short rather than fast */

struct k_lane {
    uint32_t index, count;
    uint32_t block, nblocks;
};

K_FN void k_sync(struct k_lane &)
{
    __syncthreads();
}

K_FN bool k_any(struct k_lane &, bool mine)
{
    return __syncthreads_or(mine) != 0;
}

K_FN uint64_t k_clock_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

K_FN void k_pause() {}

/* Tests count on the CPU only. */
K_FN void k_count_link(const struct k_lane &, uint64_t) {}

K_FN void k_count_launch(const struct k_lane &) {}

K_FN uint64_t k_acquire(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

K_FN void k_release(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

K_FN void k_release32(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

K_FN uint32_t k_peek(const uint32_t *word)
{
    uint32_t value;

    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

K_FN void k_poke(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

K_FN void k_packet_put(void *to, struct k_vec p)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.w[0]),
                 "r"(p.w[1]), "r"(p.w[2]), "r"(p.w[3])
                 : "memory");
}

K_FN struct k_vec k_packet_get(const void *from)
{
    struct k_vec p;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.w[0]), "=r"(p.w[1]), "=r"(p.w[2]), "=r"(p.w[3])
                 : "l"(from)
                 : "memory");
    return p;
}

template <class T> K_FN T k_load(const void *from)
{
    return *(const T *)from;
}

K_FN struct k_vec k_load_vec(const void *from)
{
    uint4 v = *(const uint4 *)from;

    return {{v.x, v.y, v.z, v.w}};
}

template <class T> K_FN void k_store(void *to, T x)
{
    *(T *)to = x;
}

K_FN void k_store_vec(void *to, struct k_vec v)
{
    *(uint4 *)to = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}

template <class To, class From> K_FN To k_cast(From x)
{
    union {
        From from;
        To to;
    } u = {x};

    static_assert(sizeof(To) == sizeof(From), "a cast of bits");
    return u.to;
}

#define K_KERNEL(name, args_type, shared_type, run, blocks_per_sm)                                 \
    extern "C" __global__ void __launch_bounds__(TIARA_KERNEL_THREADS, blocks_per_sm)              \
        name(const __grid_constant__ struct args_type args)                                        \
    {                                                                                              \
        __shared__ struct shared_type shared;                                                      \
        struct k_lane lane = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};                     \
        run(lane, args, shared);                                                                   \
    }

#endif

#endif
