/*
 * The table of libtiara-cuda.so: the one symbol that it shows.
 *
 * What a process has of CUDA is found when libtiara asks for it and not before: a process that
 * never meets device memory starts no runtime.
 */
#include "gpu/node.h"
#include "gpu/gpu.h"
#include "gpu/cuda.h"
#include "gpu/driver.h"
#include "gpu/pointer.h"
#include "gpu/share.h"
#include "base/text.h"

#include <stdio.h>

static enum tiara_err gpu_open(const struct tiara_gpu_host *host, char *why, size_t size)
{
    const char *reason = NULL;
    cudaError_t code;
    int count = 0;

    tiara_log_setup(host->log_level, host->world_rank);
    if (host->progress)
        tiara_progress_add(host->progress);
    code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver)
        reason = "driver too old";
    else if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0))
        reason = "no device";
    else if (code != cudaSuccess)
        reason = cudaGetErrorString(code);
    if (code != cudaSuccess)
        cudaGetLastError();
    if (reason != NULL) {
        snprintf(why, size, "%s", reason);
        return TIARA_ERR_UNSUPPORTED;
    }
    tiara_gpu_driver_open();
    return TIARA_OK;
}

static void device_describe(struct tiara_text *text, int device)
{
    struct cudaDeviceProp prop;
    char pci[32] = "";

    if (tiara_gpu_try(cudaGetDeviceProperties(&prop, device), "cudaGetDeviceProperties") !=
            TIARA_OK ||
        tiara_gpu_try(cudaDeviceGetPCIBusId(pci, (int)sizeof pci, device),
            "cudaDeviceGetPCIBusId") != TIARA_OK) {
        tiara_text_add(text, "  device %d: does not answer\n", device);
        return;
    }
    tiara_text_add(text, "  device %d: %s, %s, %.1f GiB\n", device, prop.name, pci,
        (double)prop.totalGlobalMem / (double)(1u << 30));
}

/* Atomics across a link are native to NVLink, and not to PCIe. */
static const char *pair_text(int a, int b)
{
    int can_ab = 0, can_ba = 0, atomics = 0;

    if (tiara_gpu_try(cudaDeviceCanAccessPeer(&can_ab, a, b), "cudaDeviceCanAccessPeer") !=
            TIARA_OK ||
        tiara_gpu_try(cudaDeviceCanAccessPeer(&can_ba, b, a), "cudaDeviceCanAccessPeer") !=
            TIARA_OK ||
        can_ab == 0 || can_ba == 0)
        return "staged through host memory";
    if (tiara_gpu_try(
            cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b),
            "cudaDeviceGetP2PAttribute") != TIARA_OK ||
        atomics == 0)
        return "peer access over PCIe";
    return "peer access over NVLink";
}

static int gpu_describe(char *text, size_t size)
{
    struct tiara_text out = {.text = text, .size = size};
    int count = 0;

    if (tiara_gpu_try(cudaGetDeviceCount(&count), "cudaGetDeviceCount") != TIARA_OK)
        count = 0;
    if (count == 0)
        tiara_text_add(&out, "  no device\n");
    for (int a = 0; a < count; a++)
        device_describe(&out, a);
    for (int a = 0; a < count; a++) {
        tiara_text_add(&out, "  device %d with itself: same device\n", a);
        for (int b = a + 1; b < count; b++)
            tiara_text_add(&out, "  device %d with %d: %s\n", a, b, pair_text(a, b));
    }
    return (int)out.length;
}

static void gpu_close(void)
{
    tiara_gpu_stream_close();
    tiara_gpu_exports_close();
    tiara_gpu_pointer_forget();
}

const struct tiara_gpu tiara_gpu = {
    .version = TIARA_GPU_VERSION,
    .open = gpu_open,
    .look = tiara_gpu_pointer_look,
    .describe = gpu_describe,
    .stage = &tiara_gpu_stage,
    .node = &tiara_gpu_node,
    .stream = &tiara_gpu_stream,
    .close = gpu_close,
};
