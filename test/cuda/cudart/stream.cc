/*
 * The stand-in's streams, events and copies.
 *
 * A stream is a queue of ops; a thread of the pool works on it while it is not empty. An op starts
 * when the one before it is over and its conditions hold: places in other streams, records of
 * events. So nothing that is called asynchronous is done by the caller. The legacy default stream
 * is a stream whose ops wait for all blocking streams of the device, and they for it.
 */
#include "test/cuda/cudart/standin.h"

#include <chrono>

namespace standin
{

namespace
{

/* Destroyed, and not idle when they were. Never freed: see standin.h. */
std::vector<StreamRef> &leaving = *new std::vector<StreamRef>;

void stream_run(const StreamRef &stream)
{
    Lock lock(state().mutex);

    while (!stream->queue.empty()) {
        Op op = std::move(stream->queue.front());

        stream->queue.pop_front();
        for (const Until &until : op.after)
            wait_until(lock, until);
        lock.unlock();
        if (op.is_slow && settings().delay_us > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(settings().delay_us));
        op.run();
        op = Op();
        lock.lock();
        stream->done++;
        state().changed.notify_all();
    }
    stream->is_running = false;
}

/* What has been submitted until now is done. */
Until stream_is_at(const StreamRef &stream)
{
    return {[stream, n = stream->pushed] { return stream->done >= n; }, false};
}

/* Streams that the legacy stream of a device and blocking streams wait for. */
void stream_add_implicit(const StreamRef &stream, std::vector<Until> &after)
{
    if (!stream->is_blocking)
        return;
    streams_for_each([&](const StreamRef &other) {
        if (other != stream && other->device == stream->device && other->is_blocking &&
            (stream->is_legacy || other->is_legacy) && other->done < other->pushed)
            after.push_back(stream_is_at(other));
    });
}

int thread_number()
{
    static thread_local int number = (int)number_next();

    return number;
}

} /* namespace */

void wait_until(Lock &lock, const Until &until)
{
    while (!until.is_true()) {
        if (until.is_remote)
            state().changed.wait_until(
                lock, std::chrono::system_clock::now() + std::chrono::microseconds(100));
        else
            state().changed.wait(lock);
    }
}

void streams_for_each(const std::function<void(const StreamRef &)> &visit)
{
    for (auto &[handle, stream] : state().streams.live)
        visit(stream);
    for (auto &[key, stream] : state().default_streams)
        visit(stream);
    for (const StreamRef &stream : leaving)
        visit(stream);
}

StreamRef stream_find(cudaStream_t handle, cudaError_t *code_out)
{
    bool is_legacy = handle == nullptr || handle == cudaStreamLegacy;
    StreamRef stream;

    if (!is_legacy && handle != cudaStreamPerThread) {
        stream = state().streams.find(handle);
        if (!stream)
            *code_out = misuse(cudaErrorInvalidResourceHandle, "%p is no stream", (void *)handle);
        return stream;
    }
    *code_out = device_check(device_current());
    if (*code_out != cudaSuccess)
        return nullptr;
    StreamRef &entry = state().default_streams[{is_legacy ? 0 : thread_number(), device_current()}];
    if (!entry) {
        entry = std::make_shared<Stream>();
        entry->device = device_current();
        entry->is_legacy = is_legacy;
    }
    return entry;
}

cudaError_t stream_submit(const StreamRef &stream, Task run, bool is_slow, std::vector<Until> after)
{
    if (stream->capture)
        return capture_add(*stream, std::move(run));
    if (stream->is_legacy && capture_blocks_legacy(stream->device))
        return capture_refuses(stream);
    stream_add_implicit(stream, after);
    stream->queue.push_back({std::move(after), std::move(run), is_slow});
    stream->pushed++;
    if (!stream->is_running) {
        stream->is_running = true;
        pool_run([stream] { stream_run(stream); });
    }
    return cudaSuccess;
}

Until stream_is_idle(const StreamRef &stream)
{
    std::vector<Until> all = {stream_is_at(stream)};

    if (stream->is_legacy)
        stream_add_implicit(stream, all);
    return {[all] {
                for (const Until &until : all) {
                    if (!until.is_true())
                        return false;
                }
                return true;
            },
        false};
}

void streams_wait(Lock &lock, int device)
{
    std::vector<Until> all;

    streams_for_each([&](const StreamRef &stream) {
        if (device < 0 || stream->device == device)
            all.push_back(stream_is_at(stream));
    });
    for (const Until &until : all)
        wait_until(lock, until);
}

} /* namespace standin */

using namespace standin;

namespace
{

cudaError_t stream_create(cudaStream_t *handle_out, unsigned flags)
{
    auto stream = std::make_shared<Stream>();
    cudaError_t code = device_check(device_current());

    if (code != cudaSuccess)
        return code;
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return misuse(cudaErrorInvalidValue, "flags %u", flags);
    stream->device = device_current();
    stream->is_blocking = !(flags & cudaStreamNonBlocking);
    *handle_out = state().streams.add(stream);
    return cudaSuccess;
}

} /* namespace */

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *handle_out)
{
    return api(__func__, [&](Lock &) { return stream_create(handle_out, cudaStreamDefault); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle_out, unsigned int flags)
{
    return api(__func__, [&](Lock &) { return stream_create(handle_out, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle_out, unsigned int flags, int)
{
    return api(__func__, [&](Lock &) { return stream_create(handle_out, flags); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least_out, int *greatest_out)
{
    return api(__func__, [&](Lock &) {
        *least_out = 0;
        *greatest_out = -5;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        if (stream->capture)
            return misuse(cudaErrorStreamCaptureUnsupported, "the stream is being captured");
        if (!state().streams.remove(handle))
            return misuse(cudaErrorInvalidResourceHandle, "a default stream");
        for (size_t i = leaving.size(); i-- > 0;) {
            if (leaving[i]->done == leaving[i]->pushed)
                leaving.erase(leaving.begin() + (long)i);
        }
        leaving.push_back(stream);
        return cudaSuccess;
    });
}

/* What all that wait for a stream check first. */
static cudaError_t stream_to_wait_for(cudaStream_t handle, StreamRef *stream_out)
{
    cudaError_t code = cudaSuccess;

    *stream_out = stream_find(handle, &code);
    if (*stream_out)
        code = capture_refuses(*stream_out);
    return code == cudaSuccess ? capture_forbids() : code;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    return api(__func__, [&](Lock &) {
        StreamRef stream;
        cudaError_t code = stream_to_wait_for(handle, &stream);

        if (code != cudaSuccess)
            return code;
        return stream_is_idle(stream).is_true() ? cudaSuccess : cudaErrorNotReady;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    return api(__func__, [&](Lock &lock) {
        StreamRef stream;
        cudaError_t code = stream_to_wait_for(handle, &stream);

        if (code == cudaSuccess)
            wait_until(lock, stream_is_idle(stream));
        return code;
    });
}

cudaError_t cudaDeviceSynchronize(void)
{
    return api(__func__, [&](Lock &lock) {
        cudaError_t code = capture_forbids();

        if (code == cudaSuccess)
            code = device_check(device_current());
        if (code == cudaSuccess)
            streams_wait(lock, device_current());
        return code;
    });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (stream)
            *device_out = stream->device;
        return code;
    });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int *flags_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (stream)
            *flags_out = stream->is_blocking ? cudaStreamDefault : cudaStreamNonBlocking;
        return code;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *arg)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        return stream_submit(stream, [function, arg] {
            in_host_function = true;
            function(arg);
            in_host_function = false;
        });
    });
}
}
