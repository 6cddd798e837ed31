/*
 * Host memory, and the three ways to write its cells: see mem.h.
 */
#include "mem/mem.h"
#include <stdint.h>
#include <string.h>

typedef void copy_fn(void *dst, const void *src, size_t bytes);

/* Ordinary stores: the C library's, which knows the machine better than this file. */
static void copy_plain(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>

/*
 * Non-temporal stores of whole lines; head and tail, which are not whole, go with ordinary stores.
 * The fence orders them before the release store that publishes the cell: release alone orders
 * ordinary stores only.
 */
static void copy_stream(void *dst, const void *src, size_t bytes)
{
    enum {
        line = 64
    };
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t head = -(uintptr_t)to % line;

    if (head > bytes)
        head = bytes;
    memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= line; bytes -= line, to += line, from += line) {
        const __m128i *p = (const __m128i *)from;
        __m128i *q = (__m128i *)to;
        __m128i a = _mm_loadu_si128(p), b = _mm_loadu_si128(p + 1);
        __m128i c = _mm_loadu_si128(p + 2), d = _mm_loadu_si128(p + 3);
        _mm_stream_si128(q, a);
        _mm_stream_si128(q + 1, b);
        _mm_stream_si128(q + 2, c);
        _mm_stream_si128(q + 3, d);
    }
    memcpy(to, from, bytes);
    _mm_sfence();
}

/* The processor chooses how whole lines are written; later stores are ordered after it. */
static void copy_string(void *dst, const void *src, size_t bytes)
{
    __asm__ __volatile__("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
}

/* Enhanced rep movsb: without it the instruction is slow. */
static bool has_string(void)
{
    const unsigned erms_bit = 1u << 9;
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & erms_bit);
}

#define HAS_STREAM true

#else

#define copy_stream copy_plain
#define copy_string copy_plain
#define HAS_STREAM false

static bool has_string(void)
{
    return false;
}

#endif

/* Process-wide: how cells are written. Set once, before the first cell exists; then only read. */
static struct {
    copy_fn *copy;
    size_t from_bytes;
} cell_store = {copy_plain, 0};

bool tiara_mem_store_supported(enum tiara_store store)
{
    return store == TIARA_STORE_PLAIN || (store == TIARA_STORE_STREAM && HAS_STREAM) ||
           (store == TIARA_STORE_STRING && has_string());
}

enum tiara_store tiara_mem_store_default(void)
{
    return has_string() ? TIARA_STORE_STRING : TIARA_STORE_PLAIN;
}

void tiara_mem_store_set(enum tiara_store store, size_t from_bytes)
{
    copy_fn *const copies[] = {
        [TIARA_STORE_PLAIN] = copy_plain,
        [TIARA_STORE_STREAM] = copy_stream,
        [TIARA_STORE_STRING] = copy_string,
    };

    cell_store.copy = tiara_mem_store_supported(store) ? copies[store] : copy_plain;
    cell_store.from_bytes = from_bytes;
}

static void host_copy_to_cell(void *dst, const void *src, size_t bytes)
{
    if (bytes < cell_store.from_bytes)
        copy_plain(dst, src, bytes);
    else
        cell_store.copy(dst, src, bytes);
}

const struct tiara_mem tiara_mem_host = {
    .copy = copy_plain,
    .copy_to_cell = host_copy_to_cell,
};
