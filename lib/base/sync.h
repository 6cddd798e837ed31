/*
 * The complete memory-model vocabulary of the library; nothing else in lib/ spells an atomic.
 *
 * release store: every write of this thread before it is visible to whoever reads the stored value
 *                with an acquire load.
 * acquire load:  pairs with such a store; reads after it see those writes.
 * relaxed:       no ordering; the caller's comment says why none is needed.
 *
 * Each acquire and release names its edge by a label in a comment, [module.edge]; a lint script
 * checks that each label has both ends. There is no read-modify-write here: every shared field has
 * one writer.
 */
#ifndef TIARA_BASE_SYNC_H
#define TIARA_BASE_SYNC_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t tiara_u64;
typedef _Atomic uint32_t tiara_u32;

/* Distance that keeps two writers' fields from sharing a line, also under the adjacent-line
 * prefetcher. */
#define TIARA_LINE 128

#define tiara_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define tiara_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define tiara_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define tiara_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

/* Tells the core that this is a spin loop. */
static inline void tiara_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

#endif
