/*
 * The stand-in for the CUDA runtime: what its files share. C++17.
 *
 * One mutex guards all tables, and one condition variable says that something has changed: work in
 * streams ended. Whatever takes time (copies, kernels) runs without the mutex, on threads of a
 * pool. State is never destroyed, so that a process may end while threads still work.
 *
 * A *programmer's error*, one that no correct program makes, goes through misuse(): a line on
 * stderr, and the end of the process with STANDIN_STRICT=1. Errors that a correct program can meet
 * are only returned.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace standin
{

using Lock = std::unique_lock<std::mutex>;
using Task = std::function<void()>;

/* ---- calls: call.cc; devices: device.cc ---- */

/* Starts what the first call starts, counts the call, and says whether it may go on (injection,
 * fork, host functions). */
cudaError_t call_begin(const char *name);
/* Keeps @code for cudaGetLastError. */
cudaError_t call_end(cudaError_t code);
cudaError_t misuse(cudaError_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A function of the runtime: @body runs with the mutex held and returns its result. */
template <class Body> cudaError_t api(const char *name, Body body);
/* The same for one of the driver, whose codes have the same numbers. */
template <class Body> CUresult driver_api(const char *name, Body body);

struct Settings {
    std::vector<int> visible; /* device ordinal to number of the machine's device */
    std::string peers, broken;
    bool strict;
    long delay_us;
    unsigned threads;
};
const Settings &settings();
/* The parts of a list with commas. */
std::vector<std::string> words(const std::string &list);

/* Whether kernels of device @a reach memory of device @b, by numbers of the machine's devices. */
bool peers_are_linked(int a, int b);
/* They seem to, but what is mapped is other memory. */
bool peers_are_broken(int a, int b);
int device_current();
/* Number of the machine's device for an ordinal, and the ordinal or -1. */
int device_physical(int ordinal);
int device_ordinal(int physical);
cudaError_t device_check(int ordinal);
/* True in a callback of cudaLaunchHostFunc, which may not call CUDA. */
extern thread_local bool in_host_function;

#define MULTIPROCESSORS 16
#define RESIDENT                                                                                   \
    64u /* thread blocks of a launch that run at the same time, on all multiprocessors */

enum Direction {
    HOST_TO_HOST,
    HOST_TO_DEVICE,
    DEVICE_TO_HOST,
    DEVICE_TO_DEVICE,
    DEVICE_TO_PEER,
    PAGEABLE_ASYNC
};
void count_bytes(Direction direction, size_t bytes);

/* The driver's function of that name, or NULL: driver.cc. */
void *driver_function(const char *name);

/* ---- threads: kernel.cc ---- */

/* Runs @task on a thread of its own: never behind another task. */
void pool_run(Task task);

/* ---- handles ---- */

uint64_t number_next(); /* never twice in a process */

/*
 * Objects by handles that are no addresses and are never used again, so that stale ones are found.
 */
template <class Handle, class T> class Table
{
  public:
    Handle add(std::shared_ptr<T> object)
    {
        Handle handle = (Handle)(uintptr_t)(UINT64_C(0x7a00000000000000) + 16 * number_next());

        live[handle] = object;
        return handle;
    }
    std::shared_ptr<T> find(Handle handle) const
    {
        auto at = live.find(handle);

        return at == live.end() ? nullptr : at->second;
    }
    bool remove(Handle handle)
    {
        return live.erase(handle) != 0;
    }
    std::map<Handle, std::shared_ptr<T>> live;
};

/* ---- memory: memory.cc; driver.cc; copies: copy.cc ---- */

#define PAGE ((size_t)4096)
#define MEMORY_BYTES (UINT64_C(16) << 30) /* of a device */

/* A memfd that stands for memory of a device. Its name in /proc says of which: so does a file
 * descriptor that was passed. */
struct File {
    int fd, physical;
    size_t bytes;

    File(int physical_in, size_t bytes_in);
    /* Another process's, or a descriptor that was passed: fd < 0 when it is none of ours. */
    explicit File(const char *path);
    ~File();
    uint64_t inode() const;
};

enum Kind {
    DEVICE,
    POOL,
    MANAGED,
    PINNED,
    REGISTERED,
    IMPORTED,
    MAPPED
};

struct Range {
    Kind kind;
    char *base;
    size_t bytes;
    int device; /* ordinal; of IMPORTED, when it is not visible here: the one that was current */
    uint64_t id; /* buffer id */
    std::shared_ptr<File> file; /* of DEVICE, IMPORTED, MAPPED, POOL */
    uint64_t handle; /* of MAPPED: the allocation */
    bool is_on_device() const
    {
        return kind == DEVICE || kind == POOL || kind == IMPORTED || kind == MAPPED;
    }
};
/* The range that has @at in it, or NULL. */
Range *range_find(const void *at);
void range_add(Range range);
void range_remove(char *base);
/* Whether the process has that memory at all. */
bool is_mapped(const void *at, size_t bytes);
/* What a copy's side is: NULL in @range_out: pageable memory. */
cudaError_t range_check(const void *at, size_t bytes, Range **range_out);
/* Maps @file; with @at, there. NULL: no room. */
char *file_map(
    const File &file, size_t offset, size_t bytes, bool is_broken, char *at, int protection);

/* ---- streams: stream.cc; event.cc ---- */

/* A condition; @is_remote: another process fulfils it, and nobody notifies. */
struct Until {
    std::function<bool()> is_true;
    bool is_remote;
};
void wait_until(Lock &lock, const Until &until);

struct Op {
    std::vector<Until> after;
    Task run;
    bool is_slow; /* is delayed by STANDIN_DELAY_US */
};

struct Capture;

struct Stream {
    int device = 0;
    bool is_legacy = false, is_blocking = true;
    std::deque<Op> queue;
    uint64_t pushed = 0, done = 0; /* ops */
    bool is_running = false;
    std::shared_ptr<Capture> capture;
    std::set<size_t> tail; /* nodes that the next captured one depends on */
};
using StreamRef = std::shared_ptr<Stream>;

/*
 * The stream of a handle, default streams included; NULL after misuse: then code_out is the error.
 */
StreamRef stream_find(cudaStream_t handle, cudaError_t *code_out);
/* Enqueues or captures. */
cudaError_t stream_submit(
    const StreamRef &stream, Task run, bool is_slow = true, std::vector<Until> after = {});
/* All that was submitted is done; for the legacy stream, in blocking streams too. */
Until stream_is_idle(const StreamRef &stream);
/* Waits for all streams of a device, -1: of all, as what unmaps memory does. */
void streams_wait(Lock &lock, int device);
void streams_for_each(const std::function<void(const StreamRef &)> &visit);

struct Page { /* what processes share of an event */
    uint64_t recorded, done;
};
struct Mark { /* one record */
    bool is_done = false; /* with the mutex */
    double when_ms = 0;
};
struct Event {
    int device = 0;
    unsigned flags = 0;
    std::shared_ptr<Mark> mark; /* the last record; NULL: none */
    std::shared_ptr<Page> page; /* interprocess events: counts instead of marks */
    std::shared_ptr<File> file;
    std::shared_ptr<Capture> capture; /* recorded in it, last */
    std::set<size_t> tail;
};
Until event_is_reached(const Event &event);

/* ---- capture: graph.cc ---- */

struct Node {
    Task run;
    std::vector<size_t> after;
};
struct Graph {
    std::vector<Node> nodes;
};
struct Capture {
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    unsigned long long id;
    bool is_valid = true;
    std::weak_ptr<Stream> origin;
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};
cudaError_t capture_add(Stream &stream, Task run);
cudaError_t capture_wait(Stream &stream, const Event &event);
/* For calls on a stream that are not allowed while it is captured; invalidates. */
cudaError_t capture_refuses(const StreamRef &stream);
/* For calls that are not allowed while anything is captured, by the mode: the result of a check in
 * front of them. */
cudaError_t capture_forbids();
/* A blocking stream of the device is captured, so that its legacy stream cannot be used. */
bool capture_blocks_legacy(int device);

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<char *, Range> ranges;
    std::vector<size_t> used; /* bytes, by physical device */
    Table<cudaStream_t, Stream> streams;
    Table<cudaEvent_t, Event> events;
    Table<cudaGraph_t, Graph> graphs;
    std::map<std::pair<int, int>, StreamRef> default_streams; /* thread (0: legacy), device */
    std::set<std::pair<int, int>> enabled; /* peer access, by ordinals */
};
State &state();

template <class Body> cudaError_t api(const char *name, Body body)
{
    cudaError_t code = call_begin(name);

    if (code == cudaSuccess) {
        Lock lock(state().mutex);

        code = body(lock);
    }
    return call_end(code);
}

template <class Body> CUresult driver_api(const char *name, Body body)
{
    cudaError_t code = call_begin(name);

    if (code == cudaSuccess) {
        Lock lock(state().mutex);

        code = body(lock);
    }
    return (CUresult)code;
}

} /* namespace standin */

#endif
