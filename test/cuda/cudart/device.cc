/*
 * The stand-in's devices: what they say of themselves, and who reaches whose memory.
 *
 * Devices of the machine have numbers; a process sees some of them, by CUDA_VISIBLE_DEVICES, and
 * calls them by ordinals.
 */
#include "test/cuda/cudart/standin.h"

#include <cstdio>
#include <cstring>

namespace standin
{

#define THREADS_PER_MULTIPROCESSOR 2048

namespace
{

thread_local int current_device = 0;

bool pair_is_in(const std::string &list, int a, int b)
{
    for (const std::string &word : words(list)) {
        int x, y;

        if (sscanf(word.c_str(), "%d-%d", &x, &y) == 2 &&
            ((x == a && y == b) || (x == b && y == a)))
            return true;
    }
    return false;
}

} /* namespace */

bool peers_are_linked(int a, int b)
{
    const std::string &peers = settings().peers;
    int n = (int)state().used.size();

    if (a == b || peers == "all")
        return true;
    if (peers == "ring")
        return (a + 1) % n == b || (b + 1) % n == a;
    return peers != "none" && pair_is_in(peers, a, b);
}

bool peers_are_broken(int a, int b)
{
    return pair_is_in(settings().broken, a, b);
}

int device_current()
{
    return current_device;
}

int device_physical(int ordinal)
{
    return settings().visible[(size_t)ordinal];
}

int device_ordinal(int physical)
{
    const std::vector<int> &visible = settings().visible;

    for (size_t i = 0; i < visible.size(); i++) {
        if (visible[i] == physical)
            return (int)i;
    }
    return -1;
}

cudaError_t device_check(int ordinal)
{
    if (settings().visible.empty())
        return cudaErrorNoDevice;
    if (ordinal < 0 || ordinal >= (int)settings().visible.size())
        return misuse(cudaErrorInvalidDevice, "there is no device %d", ordinal);
    return cudaSuccess;
}

} /* namespace standin */

using namespace standin;

extern "C" {

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count_out)
{
    return api(__func__, [&](Lock &) {
        *count_out = (int)settings().visible.size();
        return *count_out == 0 ? cudaErrorNoDevice : cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int *device_out)
{
    return api(__func__, [&](Lock &) {
        *device_out = current_device;
        return device_check(current_device);
    });
}

cudaError_t cudaSetDevice(int device)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(device);

        if (code == cudaSuccess)
            current_device = device;
        return code;
    });
}

cudaError_t cudaDriverGetVersion(int *version_out)
{
    return api(__func__, [&](Lock &) {
        *version_out = CUDART_VERSION;
        return cudaSuccess;
    });
}

cudaError_t cudaRuntimeGetVersion(int *version_out)
{
    return api(__func__, [&](Lock &) {
        *version_out = CUDART_VERSION;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(device);

        if (code != cudaSuccess)
            return code;
        memset(p, 0, sizeof *p);
        snprintf(p->name, sizeof p->name, "Stand-in GPU %d", device_physical(device));
        p->uuid.bytes[0] = (char)device_physical(device);
        p->totalGlobalMem = MEMORY_BYTES;
        p->sharedMemPerBlock = 48 << 10;
        p->regsPerBlock = 65536;
        p->warpSize = 32;
        p->maxThreadsPerBlock = 1024;
        p->maxThreadsPerMultiProcessor = THREADS_PER_MULTIPROCESSOR;
        p->maxBlocksPerMultiProcessor = 32;
        p->major = 9;
        p->multiProcessorCount = MULTIPROCESSORS;
        p->pciBusID = device_physical(device) + 1;
        p->canMapHostMemory = p->unifiedAddressing = p->concurrentKernels = 1;
        p->asyncEngineCount = 2;
        p->managedMemory = p->concurrentManagedAccess = 1;
        p->canUseHostPointerForRegisteredMem = p->hostRegisterSupported = 1;
        p->cooperativeLaunch = p->memoryPoolsSupported = p->ipcEventSupported = 1;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int *value_out, enum cudaDeviceAttr attribute, int device)
{
    return api(__func__, [&](Lock &) {
        static const auto &values = *new std::map<int, int>{{cudaDevAttrMaxThreadsPerBlock, 1024},
            {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10}, {cudaDevAttrWarpSize, 32},
            {cudaDevAttrMultiProcessorCount, MULTIPROCESSORS}, {cudaDevAttrCanMapHostMemory, 1},
            {cudaDevAttrConcurrentKernels, 1}, {cudaDevAttrPciDomainId, 0},
            {cudaDevAttrPciDeviceId, 0}, {cudaDevAttrClockRate, 1000000},
            {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrComputeCapabilityMajor, 9},
            {cudaDevAttrComputeCapabilityMinor, 0}, {cudaDevAttrManagedMemory, 1},
            {cudaDevAttrHostNativeAtomicSupported, 0}, {cudaDevAttrPageableMemoryAccess, 0},
            {cudaDevAttrConcurrentManagedAccess, 1}, {cudaDevAttrCooperativeLaunch, 1},
            {cudaDevAttrCanUseHostPointerForRegisteredMem, 1}, {cudaDevAttrAsyncEngineCount, 2},
            {cudaDevAttrHostRegisterSupported, 1}, {cudaDevAttrMemoryPoolsSupported, 1},
            {cudaDevAttrIpcEventSupport, 1},
            {cudaDevAttrMaxThreadsPerMultiProcessor, THREADS_PER_MULTIPROCESSOR}};
        cudaError_t code = device_check(device);
        auto at = values.find(attribute);

        if (code != cudaSuccess)
            return code;
        if (attribute == cudaDevAttrPciBusId)
            *value_out = device_physical(device) + 1;
        else if (at != values.end())
            *value_out = at->second;
        else
            return misuse(cudaErrorInvalidValue, "attribute %d is not in the stand-in", attribute);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char *id_out, int size, int device)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(device);

        if (code == cudaSuccess)
            snprintf(id_out, (size_t)size, "0000:%02x:00.0", device_physical(device) + 1);
        return code;
    });
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(current_device);

        if (code != cudaSuccess)
            return code;
        *total_out = MEMORY_BYTES;
        *free_out = MEMORY_BYTES - state().used[(size_t)device_physical(current_device)];
        return cudaSuccess;
    });
}

/* ---- peers ---- */

cudaError_t cudaDeviceCanAccessPeer(int *yes_out, int device, int peer)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(device);

        if (code == cudaSuccess)
            code = device_check(peer);
        if (code == cudaSuccess)
            *yes_out =
                device != peer && peers_are_linked(device_physical(device), device_physical(peer));
        return code;
    });
}

cudaError_t cudaDeviceGetP2PAttribute(
    int *value_out, enum cudaDeviceP2PAttr attribute, int from, int to)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(from);

        if (code == cudaSuccess)
            code = device_check(to);
        if (code != cudaSuccess)
            return code;
        if (from == to)
            return misuse(cudaErrorInvalidDevice, "device %d and itself", from);
        *value_out = attribute != cudaDevP2PAttrPerformanceRank &&
                     peers_are_linked(device_physical(from), device_physical(to));
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = device_check(peer);

        if (code != cudaSuccess)
            return code;
        if (flags != 0 || peer == current_device)
            return misuse(cudaErrorInvalidDevice, "device %d and itself, or flags", peer);
        if (!peers_are_linked(device_physical(current_device), device_physical(peer)))
            return cudaErrorPeerAccessUnsupported;
        if (!state().enabled.insert({current_device, peer}).second)
            return cudaErrorPeerAccessAlreadyEnabled;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    return api(__func__, [&](Lock &) {
        return state().enabled.erase({current_device, peer}) ? cudaSuccess
                                                             : cudaErrorPeerAccessNotEnabled;
    });
}

/* ---- the driver's functions ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **at_out, unsigned int version,
    unsigned long long flags, enum cudaDriverEntryPointQueryResult *status_out)
{
    (void)version;
    (void)flags;
    return api(__func__, [&](Lock &) {
        *at_out = driver_function(name);
        if (status_out)
            *status_out =
                *at_out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
        return *at_out || status_out ? cudaSuccess : cudaErrorSymbolNotFound;
    });
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **at_out, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status_out)
{
    return cudaGetDriverEntryPointByVersion(name, at_out, CUDART_VERSION, flags, status_out);
}
}
