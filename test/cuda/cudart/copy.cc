/*
 * The stand-in's copies and fills.
 *
 * A copy takes place on a stream's thread. What CUDA promises to be over when the call returns is
 * waited for, and nothing else: cudaMemcpy between devices and cudaMemset are asynchronous, as they
 * are there.
 */
#include "test/cuda/cudart/standin.h"

#include <cstring>

using namespace standin;

namespace
{

struct Copy {
    void *dst;
    const void *src;
    size_t bytes;
    Range *to, *from; /* NULL: pageable */
    bool is_pageable() const
    {
        return !to || !from;
    }
};

bool is_device(const Range *range)
{
    return range && range->is_on_device();
}
/* The device's or the host's, or both's. */
bool can_be_device(const Range *range)
{
    return range && (range->is_on_device() || range->kind == MANAGED);
}

/* @kind against what the pointers are. */
cudaError_t copy_check(Copy &copy, enum cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    cudaError_t code = range_check(copy.dst, copy.bytes, &copy.to);

    if (code == cudaSuccess)
        code = range_check(copy.src, copy.bytes, &copy.from);
    if (code != cudaSuccess || kind == cudaMemcpyDefault)
        return code;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return misuse(cudaErrorInvalidMemcpyDirection, "kind %d", (int)kind);
    if (to_device ? !can_be_device(copy.to) : is_device(copy.to))
        return misuse(
            cudaErrorInvalidValue, "destination %p is not what kind %d says", copy.dst, kind);
    if (from_device ? !can_be_device(copy.from) : is_device(copy.from))
        return misuse(cudaErrorInvalidValue, "source %p is not what kind %d says", copy.src, kind);
    return cudaSuccess;
}

Direction copy_direction(const Copy &copy)
{
    bool to = is_device(copy.to), from = is_device(copy.from);

    if (to && from)
        return copy.to->file->physical == copy.from->file->physical ? DEVICE_TO_DEVICE
                                                                    : DEVICE_TO_PEER;
    return to ? HOST_TO_DEVICE : from ? DEVICE_TO_HOST : HOST_TO_HOST;
}

cudaError_t copy_submit(const Copy &copy, const StreamRef &stream)
{
    Direction direction = copy_direction(copy);

    return stream_submit(stream, [dst = copy.dst, src = copy.src, bytes = copy.bytes, direction] {
        memcpy(dst, src, bytes);
        count_bytes(direction, bytes);
    });
}

cudaError_t fill_submit(void *at, int value, size_t bytes, const StreamRef &stream)
{
    Range *range;
    cudaError_t code = range_check(at, bytes, &range);

    if (code != cudaSuccess)
        return code;
    if (!range)
        return misuse(cudaErrorInvalidValue, "%p is pageable host memory", at);
    return stream_submit(stream, [at, value, bytes] { memset(at, value, bytes); });
}

} /* namespace */

extern "C" {

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return api(__func__, [&](Lock &lock) {
        Copy copy = {dst, src, bytes, nullptr, nullptr};
        cudaError_t code = capture_forbids();
        StreamRef stream = code == cudaSuccess ? stream_find(cudaStreamLegacy, &code) : nullptr;

        if (code != cudaSuccess || bytes == 0)
            return code;
        code = copy_check(copy, kind);
        if (code == cudaSuccess)
            code = copy_submit(copy, stream);
        if (code == cudaSuccess && !(is_device(copy.to) && is_device(copy.from)))
            wait_until(lock, stream_is_idle(stream));
        return code;
    });
}

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    return api(__func__, [&](Lock &lock) {
        Copy copy = {dst, src, bytes, nullptr, nullptr};
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (code != cudaSuccess || bytes == 0)
            return code;
        code = copy_check(copy, kind);
        if (code == cudaSuccess)
            code = copy_submit(copy, stream);
        if (code == cudaSuccess && copy.is_pageable() && !stream->capture) {
            count_bytes(PAGEABLE_ASYNC, bytes);
            wait_until(lock, stream_is_idle(stream));
        }
        return code;
    });
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = capture_forbids();
        StreamRef stream = code == cudaSuccess ? stream_find(cudaStreamLegacy, &code) : nullptr;

        return code != cudaSuccess || bytes == 0 ? code : fill_submit(at, value, bytes, stream);
    });
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        return code != cudaSuccess || bytes == 0 ? code : fill_submit(at, value, bytes, stream);
    });
}
}
