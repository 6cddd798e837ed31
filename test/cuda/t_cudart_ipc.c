/*
 * The stand-in for the CUDA runtime: what crosses processes. Legacy IPC, virtual memory by file
 * descriptors, events, kernels.
 *
 * Ranks are processes, each with the device of its number; handles go through an exchange, as in
 * the library's set-up.
 */
#include "test/cuda/t_cudart_check.h"
#include "kernels/kernels.h"
#include "test/harness/procs.h"
#include <cuda.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES 100000

/* Like CK_CUDA, for ranks: they return their failures. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define MUST_CODE(code, call)                                                                      \
    do {                                                                                           \
        cudaError_t got_ = (call);                                                                 \
        if (got_ != (code)) {                                                                      \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #call,                   \
                cudaGetErrorName(got_));                                                           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define MUST_CUDA(call) MUST_CODE(cudaSuccess, call)

static bool gather(const struct tiara_xport_group *group, const void *in, void *out, size_t bytes)
{
    return group->allgather(group->arg, in, out, bytes) == TIARA_OK;
}

static bool barrier(const struct tiara_xport_group *group)
{
    char all[TIARA_PROCS_MAX];

    return gather(group, "", all, 1);
}

/* ---- legacy IPC ---- */

/* Each rank fills its memory; all read and write all of it. */
static int share_memory(int rank, const struct tiara_xport_group *group, void *arg)
{
    cudaIpcMemHandle_t handle, handles[3];
    unsigned char *own, *at[3] = {NULL}, *host;

    (void)arg;
    MUST_CUDA(cudaSetDevice(rank));
    MUST_CUDA(cudaMalloc((void **)&own, BYTES));
    MUST_CUDA(cudaMallocHost((void **)&host, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        host[i] = (unsigned char)tiara_test_bits(rank, i);
    MUST_CUDA(cudaMemcpy(own, host, BYTES, cudaMemcpyHostToDevice));
    MUST_CUDA(cudaIpcGetMemHandle(&handle, own + 100));
    MUST(gather(group, &handle, handles, sizeof handle));
    for (int p = 0; p < 3; p++) {
        struct cudaPointerAttributes attributes;

        if (p == rank)
            continue;
        MUST_CUDA(
            cudaIpcOpenMemHandle((void **)&at[p], handles[p], cudaIpcMemLazyEnablePeerAccess));
        MUST_CUDA(cudaPointerGetAttributes(&attributes, at[p] + BYTES - 1));
        MUST(attributes.type == cudaMemoryTypeDevice && attributes.device == p);
        MUST_CUDA(cudaMemcpy(host, at[p], BYTES, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < BYTES; i++)
            MUST(host[i] == (unsigned char)tiara_test_bits(p, i));
    }
    MUST(barrier(group));
    MUST_CUDA(cudaMemset(at[(rank + 1) % 3], rank + 1, BYTES));
    MUST_CUDA(cudaDeviceSynchronize());
    MUST(barrier(group));
    MUST_CUDA(cudaMemcpy(host, own, BYTES, cudaMemcpyDeviceToHost));
    MUST(host[0] == (rank + 2) % 3 + 1 && host[BYTES - 1] == host[0]);
    for (int p = 0; p < 3; p++) {
        if (p != rank)
            MUST_CUDA(cudaIpcCloseMemHandle(at[p]));
    }
    MUST(barrier(group));
    MUST_CUDA(cudaFree(own));
    return 0;
}

START_TEST(test_ipc_memory_is_shared)
{
    ck_assert_int_eq(tiara_procs_run(3, share_memory, NULL), 0);
}
END_TEST

static int misuse_memory(int rank, const struct tiara_xport_group *group, void *arg)
{
    cudaIpcMemHandle_t handle, handles[2];
    void *own, *at, *again, *pool, *managed;

    (void)arg;
    MUST_CUDA(cudaMalloc(&own, BYTES));
    MUST_CUDA(cudaMallocAsync(&pool, BYTES, NULL));
    MUST_CUDA(cudaMallocManaged(&managed, BYTES, cudaMemAttachGlobal));
    MUST_CODE(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, pool));
    MUST_CODE(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, managed));
    MUST_CODE(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, &own));
    MUST_CUDA(cudaIpcGetMemHandle(&handle, own));
    MUST_CODE(cudaErrorDeviceUninitialized,
        cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
    MUST(gather(group, &handle, handles, sizeof handle));
    handle = handles[!rank];
    MUST_CODE(cudaErrorInvalidValue, cudaIpcOpenMemHandle(&at, handle, 0));
    MUST_CUDA(cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
    MUST_CODE(cudaErrorInvalidResourceHandle,
        cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
    MUST_CODE(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, at));
    MUST_CODE(cudaErrorInvalidValue, cudaFree(at));
    MUST_CUDA(cudaIpcCloseMemHandle(at));
    MUST_CODE(cudaErrorInvalidValue, cudaIpcCloseMemHandle(at));
    MUST_CUDA(cudaIpcOpenMemHandle(&at, handles[!rank], cudaIpcMemLazyEnablePeerAccess));
    MUST_CUDA(cudaIpcCloseMemHandle(at));
    MUST(barrier(group));
    MUST_CUDA(cudaFree(own));
    /* The descriptor's number goes to other memory: the old handle must not name that. */
    MUST_CUDA(cudaMalloc(&own, BYTES));
    MUST(barrier(group));
    MUST_CODE(cudaErrorInvalidValue,
        cudaIpcOpenMemHandle(&at, handles[!rank], cudaIpcMemLazyEnablePeerAccess));
    MUST(barrier(group));
    return 0;
}

START_TEST(test_ipc_misuse_is_an_error)
{
    be_lenient();
    ck_assert_int_eq(tiara_procs_run(2, misuse_memory, NULL), 0);
}
END_TEST

/* Devices 0 and 1 are linked, 1 and 2 seem to be, 0 and 2 are not. */
static int open_peers(int rank, const struct tiara_xport_group *group, void *arg)
{
    cudaIpcMemHandle_t handle, handles[3];
    unsigned char *own, *at, seen;

    (void)arg;
    MUST_CUDA(cudaSetDevice(rank));
    MUST_CUDA(cudaMalloc((void **)&own, BYTES));
    MUST_CUDA(cudaMemset(own, rank + 1, BYTES));
    MUST_CUDA(cudaDeviceSynchronize());
    MUST_CUDA(cudaIpcGetMemHandle(&handle, own));
    MUST(gather(group, &handle, handles, sizeof handle));
    for (int p = 0; p < 3; p++) {
        if (p == rank)
            continue;
        MUST_CODE(rank + p == 2 ? cudaErrorPeerAccessUnsupported : cudaSuccess,
            cudaIpcOpenMemHandle((void **)&at, handles[p], cudaIpcMemLazyEnablePeerAccess));
        if (rank + p == 2)
            continue;
        MUST_CUDA(cudaMemcpy(&seen, at, 1, cudaMemcpyDeviceToHost));
        MUST(seen == (rank + p == 3 ? 0 : p + 1));
    }
    MUST(barrier(group));
    return 0;
}

START_TEST(test_ipc_follows_the_peers)
{
    setenv("STANDIN_PEERS", "0-1,1-2", 1);
    setenv("STANDIN_PEERS_BROKEN", "1-2", 1);
    ck_assert_int_eq(tiara_procs_run(3, open_peers, NULL), 0);
}
END_TEST

/* ---- events ---- */

static int share_event(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct {
        cudaIpcEventHandle_t event;
        cudaIpcMemHandle_t memory;
    } mine, all[2];
    struct gate gate = GATE_CLOSED;
    unsigned char *at, seen;
    cudaEvent_t event;

    (void)arg;
    memset(&mine, 0, sizeof mine);
    if (rank == 0) {
        MUST_CUDA(cudaMalloc((void **)&at, 10));
        MUST_CUDA(cudaMemset(at, 1, 10));
        MUST_CUDA(cudaDeviceSynchronize());
        MUST_CUDA(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
        MUST_CUDA(cudaIpcGetEventHandle(&mine.event, event));
        MUST_CUDA(cudaIpcGetMemHandle(&mine.memory, at));
        MUST_CUDA(cudaLaunchHostFunc(NULL, gate_pass, &gate));
        MUST_CUDA(cudaMemset(at, 2, 10));
        MUST_CUDA(cudaEventRecord(event, NULL));
    }
    MUST(gather(group, &mine, all, sizeof mine));
    if (rank == 1) {
        MUST_CUDA(cudaIpcOpenEventHandle(&event, all[0].event));
        MUST_CUDA(
            cudaIpcOpenMemHandle((void **)&at, all[0].memory, cudaIpcMemLazyEnablePeerAccess));
        MUST_CUDA(cudaStreamWaitEvent(NULL, event, 0));
        MUST_CODE(cudaErrorNotReady, cudaStreamQuery(NULL));
        MUST_CODE(cudaErrorNotReady, cudaEventQuery(event));
    }
    MUST(barrier(group));
    gate_open(&gate);
    if (rank == 1) {
        MUST_CUDA(cudaMemcpy(&seen, at, 1, cudaMemcpyDeviceToHost));
        MUST(seen == 2);
        MUST_CUDA(cudaEventSynchronize(event));
    }
    MUST_CUDA(cudaDeviceSynchronize());
    MUST(barrier(group));
    MUST_CUDA(cudaEventDestroy(event));
    return 0;
}

START_TEST(test_ipc_event_orders_processes)
{
    ck_assert_int_eq(tiara_procs_run(2, share_event, NULL), 0);
}
END_TEST

/* ---- virtual memory ---- */

#define CHUNK ((size_t)2 << 20)

struct vmm {
    CUresult (*create)(
        CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*retain)(CUmemGenericAllocationHandle *, void *);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*export)(
        void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
    CUresult (*import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*attribute)(void *, CUpointer_attribute, CUdeviceptr);
};

static bool vmm_find(struct vmm *vmm)
{
    const struct {
        const char *name;
        void *at;
    } entries[] = {{"cuMemCreate", &vmm->create}, {"cuMemRelease", &vmm->release},
        {"cuMemRetainAllocationHandle", &vmm->retain}, {"cuMemAddressReserve", &vmm->reserve},
        {"cuMemAddressFree", &vmm->unreserve}, {"cuMemMap", &vmm->map}, {"cuMemUnmap", &vmm->unmap},
        {"cuMemSetAccess", &vmm->access}, {"cuMemExportToShareableHandle", &vmm->export},
        {"cuMemImportFromShareableHandle", &vmm->import},
        {"cuPointerGetAttribute", &vmm->attribute}};

    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (cudaGetDriverEntryPointByVersion(
                entries[i].name, entries[i].at, 12000, cudaEnableDefault, NULL) != cudaSuccess)
            return false;
    }
    return true;
}

/* Maps @handle for @device; 0 on failure. */
static CUdeviceptr vmm_map(const struct vmm *vmm, CUmemGenericAllocationHandle handle, int device)
{
    const CUmemAccessDesc access = {
        {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;

    if (vmm->reserve(&at, CHUNK, 0, 0, 0) != CUDA_SUCCESS ||
        vmm->map(at, CHUNK, 0, handle, 0) != CUDA_SUCCESS ||
        vmm->access(at, CHUNK, &access, 1) != CUDA_SUCCESS)
        return 0;
    return at;
}

enum links {
    LINKED,
    UNLINKED,
    BROKEN
};

/* Maps what the other rank has exported as @fd, and unmaps it. */
static int import_vmm(int rank, const struct vmm *vmm, int fd, enum links links)
{
    CUmemGenericAllocationHandle theirs;
    CUdeviceptr peer;
    int device, seen = 0;

    MUST(vmm->import(&theirs, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
         CUDA_SUCCESS);
    peer = vmm_map(vmm, theirs, rank);
    MUST((peer == 0) == (links == UNLINKED));
    if (links == UNLINKED)
        return 0;
    MUST(vmm->attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, peer) == CUDA_SUCCESS);
    MUST(device == !rank);
    MUST_CUDA(cudaMemcpy(&seen, (char *)peer + CHUNK - 1, 1, cudaMemcpyDeviceToHost));
    MUST(seen == (links == BROKEN ? 0 : !rank + 1));
    MUST(vmm->unmap(peer, CHUNK) == CUDA_SUCCESS && vmm->unreserve(peer, CHUNK) == CUDA_SUCCESS);
    MUST(vmm->release(theirs) == CUDA_SUCCESS);
    return 0;
}

static int share_vmm(int rank, const struct tiara_xport_group *group, void *arg)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank}};
    CUmemGenericAllocationHandle own, retained;
    unsigned long long types = 0;
    int mine[2] = {getpid(), -1}, all[2][2], fd, legacy = 1;
    CUdeviceptr at;
    struct vmm vmm;
    char path[64];

    MUST(vmm_find(&vmm));
    MUST_CUDA(cudaSetDevice(rank));
    MUST(vmm.create(&own, CHUNK, &prop, 0) == CUDA_SUCCESS);
    MUST((at = vmm_map(&vmm, own, rank)) != 0);
    MUST(vmm.release(own) == CUDA_SUCCESS);
    MUST_CUDA(cudaMemset((void *)at, rank + 1, CHUNK));
    MUST_CUDA(cudaDeviceSynchronize());
    MUST(vmm.attribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at) == CUDA_SUCCESS);
    MUST(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    MUST(vmm.attribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at + 5) == 0);
    MUST(legacy == 0);
    MUST_CODE(cudaErrorInvalidValue, cudaIpcGetMemHandle(&(cudaIpcMemHandle_t){{0}}, (void *)at));
    MUST(vmm.retain(&retained, (void *)(at + 100)) == CUDA_SUCCESS && retained == own);
    MUST(vmm.export(&mine[1], own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    MUST(vmm.release(own) == CUDA_SUCCESS);
    MUST(gather(group, mine, all, sizeof mine));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", all[!rank][0], all[!rank][1]);
    MUST((fd = open(path, O_RDWR)) >= 0);
    MUST(import_vmm(rank, &vmm, fd, *(enum links *)arg) == 0);
    close(fd);
    MUST(barrier(group));
    MUST(vmm.unmap(at, CHUNK) == CUDA_SUCCESS && vmm.unreserve(at, CHUNK) == CUDA_SUCCESS);
    MUST(vmm.attribute(&legacy, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) ==
         CUDA_ERROR_INVALID_VALUE);
    return 0;
}

START_TEST(test_vmm_memory_is_shared)
{
    enum links links = (enum links)_i;

    if (links == UNLINKED)
        setenv("STANDIN_PEERS", "none", 1);
    if (links == BROKEN)
        setenv("STANDIN_PEERS_BROKEN", "0-1", 1);
    ck_assert_int_eq(tiara_procs_run(2, share_vmm, &links), 0);
}
END_TEST

/* ---- kernels ---- */

/* Kernels of two processes hand a number to and fro through each other's memory. */
static int ping_pong(int rank, const struct tiara_xport_group *group, void *arg)
{
    struct tiara_kernel_probe_args args = {NULL, 0, NULL, 0, {NULL, NULL, 0}};
    void *argv[] = {&args};
    cudaIpcMemHandle_t handle, handles[2];
    uint32_t *abort_word;
    uint64_t *own, *theirs;

    (void)arg;
    MUST_CUDA(cudaSetDevice(rank));
    MUST_CUDA(cudaMallocHost((void **)&abort_word, 4096));
    memset(abort_word, 0, 4096);
    args.guard.abort = abort_word;
    args.guard.status = (struct tiara_kernel_status *)(abort_word + 64);
    MUST_CUDA(cudaMalloc((void **)&own, 8));
    MUST_CUDA(cudaMemset(own, 0, 8));
    MUST_CUDA(cudaDeviceSynchronize());
    MUST_CUDA(cudaIpcGetMemHandle(&handle, own));
    MUST(gather(group, &handle, handles, sizeof handle));
    MUST_CUDA(
        cudaIpcOpenMemHandle((void **)&theirs, handles[!rank], cudaIpcMemLazyEnablePeerAccess));
    for (uint64_t i = 1; i <= 100; i++) {
        args.word = theirs;
        args.value = i;
        args.expect_at = rank == 0 && i == 1 ? NULL : own;
        args.expect = rank == 0 ? i - 1 : i;
        MUST_CUDA(cudaLaunchKernel(
            (const void *)tiara_kernel_probe, (dim3){1, 1, 1}, (dim3){32, 1, 1}, argv, 0, NULL));
    }
    MUST_CUDA(cudaDeviceSynchronize());
    MUST(barrier(group));
    MUST(*own == 100);
    MUST_CUDA(cudaIpcCloseMemHandle(theirs));
    MUST(barrier(group));
    return 0;
}

START_TEST(test_kernels_reach_other_processes)
{
    ck_assert_int_eq(tiara_procs_run(2, ping_pong, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cudart_ipc");
    TCase *ipc = tcase_create("ipc");

    tcase_add_test(ipc, test_ipc_memory_is_shared);
    tcase_add_test(ipc, test_ipc_misuse_is_an_error);
    tcase_add_test(ipc, test_ipc_follows_the_peers);
    tcase_add_test(ipc, test_ipc_event_orders_processes);
    tcase_add_loop_test(ipc, test_vmm_memory_is_shared, 0, 3);
    tcase_add_test(ipc, test_kernels_reach_other_processes);
    suite_add_tcase(suite, ipc);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
