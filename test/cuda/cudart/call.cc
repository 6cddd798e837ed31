/*
 * The stand-in's calls: settings, and what happens in front of and behind the body of every
 * function: it is counted, it fails when it is told to, and its error is kept.
 *
 * Nothing happens before the first call but the registration of kernels. Settings are read then,
 * once.
 */
#include "test/cuda/cudart/standin.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace standin
{

namespace
{

struct Failure {
    long first;
    bool also_later;
};

struct Calls {
    std::mutex mutex;
    Settings settings;
    std::map<std::string, Failure> failures;
    std::map<std::string, long> counts;
    std::atomic<uint64_t> bytes[6] = {};
    std::string rank, count_file;
    pid_t pid = 0;
    bool has_driver = false;
};

Calls &calls()
{
    static Calls *const c = new Calls;

    return *c;
}

thread_local const char *current_call = "";
thread_local cudaError_t last_error = cudaSuccess;

const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value ? value : otherwise;
}

void counts_write()
{
    static const char *const names[] = {"host-to-host", "host-to-device", "device-to-host",
        "device-to-device", "device-to-peer", "pageable-async"};
    Calls &c = calls();
    std::string text;
    int fd;

    if (getpid() != c.pid)
        return;
    for (auto &[name, count] : c.counts)
        text += c.rank + " " + name + " " + std::to_string(count) + "\n";
    for (int i = 0; i < 6; i++)
        text += c.rank + " bytes-" + names[i] + " " + std::to_string(c.bytes[i]) + "\n";
    fd = open(c.count_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text.data(), text.size()) != (ssize_t)text.size())
        fprintf(stderr, "standin: cannot write %s\n", c.count_file.c_str());
    if (fd >= 0)
        close(fd);
}

/* "cudaMalloc:3,cudaFree:1+" */
void failures_read(Calls &c)
{
    std::string only = variable("STANDIN_FAIL_RANK", "");

    if (!only.empty() && only != c.rank)
        return;
    for (const std::string &word : words(variable("STANDIN_FAIL", ""))) {
        size_t colon = word.find(':');

        if (colon == std::string::npos || atol(word.c_str() + colon + 1) < 1) {
            fprintf(stderr, "standin: STANDIN_FAIL: \"%s\" is not NAME:N\n", word.c_str());
            abort();
        }
        c.failures[word.substr(0, colon)] = {atol(word.c_str() + colon + 1), word.back() == '+'};
    }
}

void first_call(Calls &c)
{
    int devices = atoi(variable("STANDIN_DEVICES", "4"));
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    c.pid = getpid();
    c.rank = variable("OMPI_COMM_WORLD_RANK", variable("PMI_RANK", "-"));
    c.has_driver = dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
    for (int i = 0; i < devices && !visible; i++)
        c.settings.visible.push_back(i);
    for (const std::string &word : words(visible ? visible : "")) {
        if (atoi(word.c_str()) < 0 || atoi(word.c_str()) >= devices)
            break;
        c.settings.visible.push_back(atoi(word.c_str()));
    }
    c.settings.peers = variable("STANDIN_PEERS", "all");
    c.settings.broken = variable("STANDIN_PEERS_BROKEN", "");
    c.settings.strict = !strcmp(variable("STANDIN_STRICT", "0"), "1");
    c.settings.delay_us = atol(variable("STANDIN_DELAY_US", "0"));
    c.settings.threads = (unsigned)std::max(1, atoi(variable("STANDIN_THREADS", "1")));
    state().used.resize((size_t)devices);
    failures_read(c);
    c.count_file = variable("STANDIN_COUNT", "");
    if (!c.count_file.empty())
        atexit(counts_write);
}

/* What a call of that name fails with when it is told to. */
cudaError_t fitting_error(const std::string &name)
{
    static const std::pair<const char *, cudaError_t> table[] = {
        {"GetDeviceCount", cudaErrorNoDevice},
        {"GetAddressRange", cudaErrorInvalidValue},
        {"Malloc", cudaErrorMemoryAllocation},
        {"Alloc", cudaErrorMemoryAllocation},
        {"MemCreate", cudaErrorMemoryAllocation},
        {"AddressReserve", cudaErrorMemoryAllocation},
        {"IpcOpen", cudaErrorMapBufferObjectFailed},
        {"MemMap", cudaErrorMapBufferObjectFailed},
        {"Register", cudaErrorMemoryAllocation},
        {"EnablePeerAccess", cudaErrorPeerAccessUnsupported},
        {"LaunchKernel", cudaErrorLaunchOutOfResources},
        {"EntryPoint", cudaErrorNotSupported},
        {"GetHandle", cudaErrorNotSupported},
        {"Create", cudaErrorMemoryAllocation},
        {"Synchronize", cudaErrorIllegalAddress},
        {"Query", cudaErrorIllegalAddress},
        {"Memcpy", cudaErrorIllegalAddress},
    };

    for (auto &[part, code] : table) {
        if (name.find(part) != std::string::npos)
            return code;
    }
    return cudaErrorUnknown;
}

} /* namespace */

std::vector<std::string> words(const std::string &list)
{
    std::vector<std::string> result;
    size_t from = 0, to;

    for (; from < list.size(); from = to + 1) {
        to = std::min(list.find(',', from), list.size());
        result.push_back(list.substr(from, to - from));
    }
    return result;
}

thread_local bool in_host_function = false;

State &state()
{
    static State *const s = new State;

    return *s;
}

const Settings &settings()
{
    return calls().settings;
}

uint64_t number_next()
{
    static std::atomic<uint64_t> number{0};

    return ++number;
}

cudaError_t call_begin(const char *name)
{
    Calls &c = calls();
    std::lock_guard<std::mutex> lock(c.mutex);

    current_call = name;
    if (c.pid == 0)
        first_call(c);
    if (c.pid != getpid())
        return misuse(cudaErrorInitializationError, "CUDA was used before fork");
    if (!c.has_driver)
        return cudaErrorInsufficientDriver;
    if (in_host_function)
        return misuse(cudaErrorNotPermitted, "called in a host function of a stream");
    long count = ++c.counts[name];
    auto at = c.failures.find(name);
    if (at == c.failures.end() || count < at->second.first ||
        (count > at->second.first && !at->second.also_later))
        return cudaSuccess;
    return fitting_error(name);
}

cudaError_t call_end(cudaError_t code)
{
    if (code != cudaSuccess)
        last_error = code;
    return code;
}

cudaError_t misuse(cudaError_t code, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "standin: %s: %s (%s)\n", current_call, text, cudaGetErrorName(code));
    if (settings().strict)
        abort();
    return code;
}

void count_bytes(Direction direction, size_t bytes)
{
    calls().bytes[direction] += bytes;
}

} /* namespace standin */

using namespace standin;

extern "C" {

/* ---- errors ---- */

#define ERRORS(X)                                                                                  \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                        \
    X(cudaErrorInsufficientDriver, "driver version is insufficient for runtime version")           \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(cudaErrorNoDevice, "no device is detected")                                                  \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorDeviceUninitialized, "invalid device context")                                      \
    X(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed")                           \
    X(cudaErrorNoKernelImageForDevice, "no kernel image is available for the device")              \
    X(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")    \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorIllegalState, "the operation cannot be performed in the present state")             \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                           \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                         \
    X(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled")                           \
    X(cudaErrorHostMemoryAlreadyRegistered, "memory is already pinned or mapped")                  \
    X(cudaErrorHostMemoryNotRegistered, "memory is not pinned or mapped")                          \
    X(cudaErrorNotPermitted, "operation not permitted")                                            \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")       \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error in capture")    \
    X(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate captures")       \
    X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the stream where it began")       \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                        \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")  \
    X(cudaErrorStreamCaptureImplicit,                                                              \
        "operation would make the legacy stream depend on a capture")                              \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capture")    \
    X(cudaErrorStreamCaptureWrongThread, "capture was ended in another thread")                    \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t code)
{
    switch (code) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return #name;
        ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return text;
        ERRORS(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

cudaError_t cudaGetLastError(void)
{
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
}
