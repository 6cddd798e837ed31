/* See mpi_buf.h. */
#include "mpi_buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    GUARD = 128
};

/* Varies with the position, so that guards moved from elsewhere do not look right. */
static unsigned char guard_byte(size_t i)
{
    return (unsigned char)(0xa5 ^ (i * 29));
}

static struct mt_buf new_at(enum mt_place place, size_t bytes, size_t offset)
{
    struct mt_buf buf = {.bytes = bytes, .raw_bytes = bytes + offset + 2 * GUARD, .place = place};
    if (posix_memalign((void **)&buf.raw, 64, buf.raw_bytes) != 0)
        abort();
    buf.data = buf.raw + GUARD + offset;
    for (size_t i = 0; i < GUARD + offset; i++)
        buf.raw[i] = guard_byte(i);
    memset(buf.data, 0x7f, bytes);
    for (size_t i = GUARD + offset + bytes; i < buf.raw_bytes; i++)
        buf.raw[i] = guard_byte(i);
    buf.there = place == MT_PLACE_HOST ? buf.raw : mt_device_new(place, buf.raw_bytes);
    return buf;
}

struct mt_buf mt_buf_new(size_t bytes, size_t offset)
{
    return new_at(mt_place_of(false), bytes, offset);
}

struct mt_buf mt_buf_new_result(size_t bytes, size_t offset)
{
    return new_at(mt_place_of(true), bytes, offset);
}

void *mt_buf_lend(struct mt_buf *buf)
{
    if (buf->place != MT_PLACE_HOST) {
        mt_device_copy(buf->there, buf->raw, buf->raw_bytes);
        memset(buf->raw, 0xee, buf->raw_bytes);
    }
    return buf->there + (buf->data - buf->raw);
}

void mt_buf_take(struct mt_buf *buf)
{
    if (buf->place != MT_PLACE_HOST)
        mt_device_copy(buf->raw, buf->there, buf->raw_bytes);
}

bool mt_buf_intact(const struct mt_buf *buf)
{
    size_t before = (size_t)(buf->data - buf->raw);
    for (size_t i = 0; i < before; i++) {
        if (buf->raw[i] != guard_byte(i))
            return false;
    }
    for (size_t i = before + buf->bytes; i < buf->raw_bytes; i++) {
        if (buf->raw[i] != guard_byte(i))
            return false;
    }
    return true;
}

void mt_buf_free(struct mt_buf *buf)
{
    if (buf->place != MT_PLACE_HOST)
        mt_device_free(buf->place, buf->there, buf->raw_bytes);
    free(buf->raw);
    buf->raw = buf->there = NULL;
}

uint64_t mt_hash(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t mt_digest(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t digest = bytes;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        digest = mt_hash(digest, word);
    }
    for (; bytes > 0; bytes--, p++)
        digest = mt_hash(digest, *p);
    return digest;
}

bool mt_same_bits(const void *data, size_t bytes, MPI_Comm comm)
{
    int size;
    PMPI_Comm_size(comm, &size);
    uint64_t mine = mt_digest(data, bytes);
    uint64_t *all = calloc((size_t)size, sizeof *all);
    PMPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, comm);
    bool same = true;
    for (int r = 1; r < size; r++)
        same = same && all[r] == all[0];
    free(all);
    return same;
}

/* Opened once and kept, so that later captures need nothing of a system that may refuse it. */
static int saved_stderr = -1, captured = -1;
static off_t captured_start;

void mt_stderr_begin(void)
{
    fflush(stderr);
    if (captured < 0) {
        captured = memfd_create("stderr", 0);
        saved_stderr = dup(STDERR_FILENO);
    }
    captured_start = lseek(captured, 0, SEEK_END);
    if (captured_start < 0 || dup2(captured, STDERR_FILENO) < 0)
        abort();
}

int mt_stderr_real(void)
{
    return saved_stderr < 0 ? STDERR_FILENO : saved_stderr;
}

char *mt_stderr_end(void)
{
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    size_t len = (size_t)(lseek(captured, 0, SEEK_END) - captured_start);
    char *text = calloc(len + 1, 1);
    if (!text || pread(captured, text, len, captured_start) != (ssize_t)len)
        abort();
    return text;
}
