/*
 * The stand-in's events.
 *
 * What a wait waits for is the last record at the time of the call: a mark of its own for each
 * record. Events that processes share have two counts in shared memory instead: records that were
 * asked for, and the last one that was reached.
 */
#include "test/cuda/cudart/standin.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

using namespace standin;

namespace
{

struct Handle {
    uint32_t magic;
    int pid, fd;
    uint64_t inode;
};
#define MAGIC 0x7a657665

double now_ms()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

std::shared_ptr<Page> page_map(const File &file)
{
    char *at = file_map(file, 0, sizeof(Page), false, nullptr, PROT_READ | PROT_WRITE);

    return {(Page *)at, [](Page *page) {
                if (page)
                    munmap(page, 2 * PAGE); /* with the one that file_map leaves behind it */
            }};
}

cudaError_t event_create(cudaEvent_t *handle_out, unsigned flags)
{
    auto event = std::make_shared<Event>();
    cudaError_t code = device_check(device_current());

    if (code != cudaSuccess)
        return code;
    event->device = device_current();
    event->flags = flags;
    if ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming))
        return misuse(cudaErrorInvalidValue, "interprocess events have no timing");
    if (flags & cudaEventInterprocess) {
        event->file = std::make_shared<File>(device_physical(event->device), sizeof(Page));
        event->page = event->file->fd < 0 ? nullptr : page_map(*event->file);
        if (!event->page)
            return cudaErrorMemoryAllocation;
    }
    *handle_out = state().events.add(event);
    return cudaSuccess;
}

std::shared_ptr<Event> event_find(cudaEvent_t handle, cudaError_t *code_out)
{
    std::shared_ptr<Event> event = state().events.find(handle);

    if (!event)
        *code_out = misuse(cudaErrorInvalidResourceHandle, "%p is no event", (void *)handle);
    return event;
}

cudaError_t event_record(Event &event, const StreamRef &stream)
{
    event.capture = stream->capture;
    event.tail = stream->tail;
    if (stream->capture)
        return stream->capture->is_valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
    if (event.page) {
        uint64_t n = __atomic_add_fetch(&event.page->recorded, 1, __ATOMIC_RELAXED);

        return stream_submit(
            stream,
            [page = event.page, n] {
                uint64_t seen = __atomic_load_n(&page->done, __ATOMIC_RELAXED);

                while (seen < n && !__atomic_compare_exchange_n(&page->done, &seen, n, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED))
                    ;
            },
            false);
    }
    event.mark = std::make_shared<Mark>();
    return stream_submit(
        stream,
        [mark = event.mark] {
            Lock lock(state().mutex);

            mark->when_ms = now_ms();
            mark->is_done = true;
            state().changed.notify_all();
        },
        false);
}

/* What query and synchronize check first. */
cudaError_t event_to_wait_for(cudaEvent_t handle, std::shared_ptr<Event> *event_out)
{
    cudaError_t code = cudaSuccess;

    *event_out = event_find(handle, &code);
    if (*event_out && (*event_out)->capture) {
        (*event_out)->capture->is_valid = false;
        return cudaErrorCapturedEvent;
    }
    return code == cudaSuccess ? capture_forbids() : code;
}

} /* namespace */

Until standin::event_is_reached(const Event &event)
{
    if (event.page) {
        uint64_t n = __atomic_load_n(&event.page->recorded, __ATOMIC_RELAXED);

        return {
            [page = event.page, n] { return __atomic_load_n(&page->done, __ATOMIC_ACQUIRE) >= n; },
            true};
    }
    return {[mark = event.mark] { return !mark || mark->is_done; }, false};
}

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t *handle_out)
{
    return api(__func__, [&](Lock &) { return event_create(handle_out, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle_out, unsigned int flags)
{
    return api(__func__, [&](Lock &) { return event_create(handle_out, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    return api(__func__, [&](Lock &) {
        if (!state().events.remove(handle))
            return misuse(cudaErrorInvalidResourceHandle, "%p is no event", (void *)handle);
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(stream_handle, &code);
        std::shared_ptr<Event> event = stream ? event_find(handle, &code) : nullptr;

        if (!event)
            return code;
        if (event->device != stream->device)
            return misuse(cudaErrorInvalidResourceHandle, "event of device %d, stream of %d",
                event->device, stream->device);
        return event_record(*event, stream);
    });
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    return api(__func__, [&](Lock &) {
        std::shared_ptr<Event> event;
        cudaError_t code = event_to_wait_for(handle, &event);

        if (code != cudaSuccess)
            return code;
        return event_is_reached(*event).is_true() ? cudaSuccess : cudaErrorNotReady;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    return api(__func__, [&](Lock &lock) {
        std::shared_ptr<Event> event;
        cudaError_t code = event_to_wait_for(handle, &event);

        if (code == cudaSuccess)
            wait_until(lock, event_is_reached(*event));
        return code;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(stream_handle, &code);
        std::shared_ptr<Event> event = stream ? event_find(handle, &code) : nullptr;

        if (!event)
            return code;
        if (stream->capture || event->capture)
            return capture_wait(*stream, *event);
        return stream_submit(stream, [] {}, false, {event_is_reached(*event)});
    });
}

cudaError_t cudaEventElapsedTime(float *ms_out, cudaEvent_t from_handle, cudaEvent_t to_handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        std::shared_ptr<Event> from = event_find(from_handle, &code);
        std::shared_ptr<Event> to = from ? event_find(to_handle, &code) : nullptr;

        if (!to)
            return code;
        if (!from->mark || !to->mark || ((from->flags | to->flags) & cudaEventDisableTiming) ||
            from->device != to->device)
            return misuse(cudaErrorInvalidResourceHandle,
                "not recorded, of different devices, or without timing");
        if (!from->mark->is_done || !to->mark->is_done)
            return cudaErrorNotReady;
        *ms_out = (float)(to->mark->when_ms - from->mark->when_ms);
        return cudaSuccess;
    });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *bytes_out, cudaEvent_t handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        std::shared_ptr<Event> event = event_find(handle, &code);
        Handle ipc;

        if (!event)
            return code;
        if (!event->page)
            return misuse(cudaErrorInvalidResourceHandle, "the event is not interprocess");
        ipc = {MAGIC, getpid(), event->file->fd, event->file->inode()};
        memset(bytes_out, 0, sizeof *bytes_out);
        memcpy(bytes_out, &ipc, sizeof ipc);
        return cudaSuccess;
    });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *handle_out, cudaIpcEventHandle_t bytes)
{
    return api(__func__, [&](Lock &) {
        auto event = std::make_shared<Event>();
        cudaError_t code = device_check(device_current());
        Handle ipc;

        if (code != cudaSuccess)
            return code;
        memcpy(&ipc, &bytes, sizeof ipc);
        if (ipc.magic != MAGIC)
            return misuse(cudaErrorInvalidValue, "no handle of an event");
        if (ipc.pid == getpid())
            return misuse(cudaErrorDeviceUninitialized, "the handle is of this process");
        std::string path = "/proc/" + std::to_string(ipc.pid) + "/fd/" + std::to_string(ipc.fd);
        event->file = std::make_shared<File>(path.c_str());
        if (event->file->fd < 0 || event->file->inode() != ipc.inode)
            return cudaErrorInvalidValue;
        event->page = page_map(*event->file);
        event->flags = cudaEventInterprocess | cudaEventDisableTiming;
        event->device = std::max(0, device_ordinal(event->file->physical));
        if (!event->page)
            return cudaErrorMapBufferObjectFailed;
        *handle_out = state().events.add(event);
        return cudaSuccess;
    });
}
}
