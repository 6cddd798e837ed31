/*
 * The stand-in for the CUDA runtime: devices, memory, what is an error and what is worse, calls
 * that are told to fail.
 *
 * t_cudart_order.c has streams, events and kernels, t_cudart_graph.c captures, t_cudart_ipc.c what
 * crosses processes.
 */
#include "test/cuda/t_cudart_check.h"
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void *driver_function(const char *name)
{
    enum cudaDriverEntryPointQueryResult status;
    void *at = NULL;

    CK_CUDA(cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &status));
    ck_assert_int_eq(status, at ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound);
    return at;
}

static unsigned long long buffer_id(const void *at)
{
    CUresult (*get)(void *, CUpointer_attribute, CUdeviceptr) =
        driver_function("cuPointerGetAttribute");
    unsigned long long id = 0;

    ck_assert_int_eq(get(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)at), CUDA_SUCCESS);
    return id;
}

static enum cudaMemoryType type_of(const void *at)
{
    struct cudaPointerAttributes attributes;

    CK_CUDA(cudaPointerGetAttributes(&attributes, at));
    return attributes.type;
}

/* ---- devices ---- */

START_TEST(test_devices_default_are_four)
{
    struct cudaDeviceProp p;
    int n, value;
    char bus[16], other[16];

    CK_CUDA(cudaGetDeviceCount(&n));
    ck_assert_int_eq(n, 4);
    CK_CUDA(cudaGetDevice(&n));
    ck_assert_int_eq(n, 0);
    CK_CUDA(cudaSetDevice(3));
    CK_CUDA(cudaGetDevice(&n));
    ck_assert_int_eq(n, 3);
    CK_CUDA(cudaGetDeviceProperties(&p, 3));
    CK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 3));
    ck_assert_int_eq(value, p.multiProcessorCount);
    CK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 2));
    CK_CUDA(cudaDeviceGetPCIBusId(other, sizeof other, 3));
    ck_assert_str_ne(bus, other);
}
END_TEST

START_TEST(test_devices_visible_are_named)
{
    char bus[16];
    int n;

    be_lenient();
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
    CK_CUDA(cudaGetDeviceCount(&n));
    ck_assert_int_eq(n, 2);
    CK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    ck_assert_str_eq(bus, "0000:03:00.0");
    CK_CODE(cudaErrorInvalidDevice, cudaSetDevice(2));
}
END_TEST

START_TEST(test_devices_none_is_an_error)
{
    void *at;
    int n;

    setenv("STANDIN_DEVICES", "0", 1);
    CK_CODE(cudaErrorNoDevice, cudaGetDeviceCount(&n));
    CK_CODE(cudaErrorNoDevice, cudaMalloc(&at, 1));
    ck_assert_str_eq(cudaGetErrorName(cudaPeekAtLastError()), "cudaErrorNoDevice");
    ck_assert_int_eq(cudaGetLastError(), cudaErrorNoDevice);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

/* The matrix of @setting: a row of '0' and '1' for each device. */
static void check_peers(const char *setting, int ndevices, const char *matrix)
{
    char n[8];

    snprintf(n, sizeof n, "%d", ndevices);
    setenv("STANDIN_DEVICES", n, 1);
    setenv("STANDIN_PEERS", setting, 1);
    for (int a = 0; a < ndevices; a++) {
        for (int b = 0; b < ndevices; b++) {
            int can, want = matrix[a * ndevices + b] == '1';

            CK_CUDA(cudaSetDevice(a));
            CK_CUDA(cudaDeviceCanAccessPeer(&can, a, b));
            ck_assert_msg(can == want, "%s: %d to %d: %d", setting, a, b, can);
            if (a == b)
                continue;
            CK_CODE(want ? cudaSuccess : cudaErrorPeerAccessUnsupported,
                cudaDeviceEnablePeerAccess(b, 0));
            CK_CODE(want ? cudaErrorPeerAccessAlreadyEnabled : cudaErrorPeerAccessUnsupported,
                cudaDeviceEnablePeerAccess(b, 0));
            CK_CODE(
                want ? cudaSuccess : cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(b));
        }
    }
}

START_TEST(test_peers_are_as_set)
{
    static const struct {
        const char *setting;
        int ndevices;
        const char *matrix;
    } cases[] = {{"all", 3, "011101110"}, {"none", 2, "0000"}, {"ring", 4, "0101101001011010"},
        {"0-2,2-1", 3, "001001110"}};

    check_peers(cases[_i].setting, cases[_i].ndevices, cases[_i].matrix);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_pointer_kinds_are_told)
{
    struct cudaPointerAttributes attributes;
    void *device, *pinned, *managed, *pool, *mapped;
    char on_stack[8], *registered = malloc(10000);

    CK_CUDA(cudaSetDevice(1));
    CK_CUDA(cudaMalloc(&device, 1000));
    CK_CUDA(cudaHostAlloc(&pinned, 1000, cudaHostAllocPortable));
    CK_CUDA(cudaMallocManaged(&managed, 1000, cudaMemAttachGlobal));
    CK_CUDA(cudaMallocAsync(&pool, 1000, NULL));
    ck_assert_int_eq(type_of(device), cudaMemoryTypeDevice);
    ck_assert_int_eq(type_of((char *)device + 999), cudaMemoryTypeDevice);
    ck_assert_int_eq(type_of((char *)device + 1000), cudaMemoryTypeUnregistered);
    ck_assert_int_eq(type_of(pinned), cudaMemoryTypeHost);
    ck_assert_int_eq(type_of(managed), cudaMemoryTypeManaged);
    ck_assert_int_eq(type_of(pool), cudaMemoryTypeDevice);
    ck_assert_int_eq(type_of(on_stack), cudaMemoryTypeUnregistered);
    ck_assert_int_eq(type_of(registered), cudaMemoryTypeUnregistered);
    CK_CUDA(cudaHostRegister(registered, 10000, cudaHostRegisterDefault));
    CK_CODE(cudaErrorHostMemoryAlreadyRegistered,
        cudaHostRegister(registered + 100, 100, cudaHostRegisterDefault));
    ck_assert_int_eq(type_of(registered + 9999), cudaMemoryTypeHost);
    CK_CUDA(cudaHostGetDevicePointer(&mapped, pinned, 0));
    CK_CUDA(cudaPointerGetAttributes(&attributes, (char *)device + 5));
    ck_assert_int_eq(attributes.device, 1);
    ck_assert_ptr_eq(attributes.devicePointer, (char *)device + 5);
    ck_assert_ptr_null(attributes.hostPointer);
    CK_CUDA(cudaHostUnregister(registered));
    ck_assert_int_eq(type_of(registered), cudaMemoryTypeUnregistered);
    CK_CUDA(cudaFree(device));
    CK_CUDA(cudaFree(managed));
    CK_CUDA(cudaFreeAsync(pool, NULL));
    CK_CUDA(cudaFreeHost(pinned));
    ck_assert_int_eq(type_of(device), cudaMemoryTypeUnregistered);
    CK_CUDA(cudaFree(NULL));
    free(registered);
}
END_TEST

START_TEST(test_buffer_ids_are_never_used_again)
{
    unsigned long long last = 0;
    bool same_address = false;
    void *at, *before = NULL;

    for (int i = 0; i < 100; i++) {
        CK_CUDA(cudaMalloc(&at, MIB));
        ck_assert_int_ne(*(unsigned char *)at, 0); /* nobody may count on fresh memory */
        ck_assert_uint_gt(buffer_id((char *)at + i), last);
        last = buffer_id(at);
        same_address |= at == before;
        before = at;
        CK_CUDA(cudaFree(at));
    }
    ck_assert_msg(same_address, "addresses are used again: else the test shows nothing");
}
END_TEST

START_TEST(test_address_range_is_the_allocation)
{
    CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr) =
        driver_function("cuMemGetAddressRange");
    CUdeviceptr base;
    size_t bytes;
    char *at;

    ck_assert_ptr_null(driver_function("cuNoSuchFunction"));
    CK_CUDA(cudaMalloc((void **)&at, 5000));
    ck_assert_int_eq(range(&base, &bytes, (CUdeviceptr)(at + 4999)), CUDA_SUCCESS);
    ck_assert_uint_eq(base, (CUdeviceptr)at);
    ck_assert_uint_eq(bytes, 5000);
    CK_CUDA(cudaFree(at));
    ck_assert_int_eq(range(&base, &bytes, (CUdeviceptr)at), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(test_memory_has_an_end)
{
    size_t left, total, after;
    void *at;

    CK_CUDA(cudaMemGetInfo(&left, &total));
    ck_assert_uint_eq(left, total);
    CK_CODE(cudaErrorMemoryAllocation, cudaMalloc(&at, total + 1));
    CK_CUDA(cudaMalloc(&at, MIB));
    CK_CUDA(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(after, left - MIB);
    CK_CUDA(cudaFree(at));
    CK_CUDA(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(after, left);
}
END_TEST

START_TEST(test_copies_move_bytes)
{
    unsigned char host[1000], back[1000];
    unsigned char *one, *two;

    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (unsigned char)tiara_test_bits(0, i);
    CK_CUDA(cudaMalloc((void **)&one, 1000));
    CK_CUDA(cudaSetDevice(2));
    CK_CUDA(cudaMalloc((void **)&two, 1000));
    CK_CUDA(cudaMemcpy(one, host, 1000, cudaMemcpyHostToDevice));
    CK_CUDA(cudaMemcpy(two, one, 1000, cudaMemcpyDeviceToDevice));
    CK_CUDA(cudaMemset(two + 10, 7, 10));
    CK_CUDA(cudaMemcpy(back, two, 1000, cudaMemcpyDefault));
    ck_assert_mem_eq(back, host, 10);
    ck_assert_mem_eq(back + 20, host + 20, 980);
    for (int i = 10; i < 20; i++)
        ck_assert_int_eq(back[i], 7);
    CK_CUDA(cudaFree(one));
    CK_CUDA(cudaFree(two));
}
END_TEST

/* ---- misuse ---- */

START_TEST(test_copy_misuse_is_an_error)
{
    char host[100], *at, *freed, *hole;

    be_lenient();
    hole = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CK_CUDA(cudaMalloc((void **)&at, 100));
    CK_CUDA(cudaMalloc((void **)&freed, 100));
    munmap(hole, 4096);
    CK_CUDA(cudaFree(freed));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(at + 1, host, 100, cudaMemcpyHostToDevice));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(host, at, 101, cudaMemcpyDefault));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(host, freed, 10, cudaMemcpyDeviceToHost));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(host, freed, 10, cudaMemcpyDefault));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpyAsync(at, hole, 10, cudaMemcpyDefault, NULL));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(at, at, 10, cudaMemcpyHostToDevice));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(host, host, 10, cudaMemcpyHostToDevice));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(at, at, 10, cudaMemcpyDeviceToHost));
    CK_CODE(cudaErrorInvalidValue, cudaMemcpy(host, host, 10, cudaMemcpyDeviceToHost));
    CK_CODE(cudaErrorInvalidMemcpyDirection, cudaMemcpy(host, at, 10, (enum cudaMemcpyKind)7));
    CK_CODE(cudaErrorInvalidValue, cudaMemset(host, 0, 10));
    CK_CODE(cudaErrorInvalidValue, cudaMemset(at + 90, 0, 11));
    CK_CUDA(cudaFree(at));
}
END_TEST

START_TEST(test_free_misuse_is_an_error)
{
    char *at, *pinned;

    be_lenient();
    CK_CUDA(cudaMalloc((void **)&at, 100));
    CK_CUDA(cudaMallocHost((void **)&pinned, 100));
    CK_CODE(cudaErrorInvalidValue, cudaFree(at + 1));
    CK_CODE(cudaErrorInvalidValue, cudaFree(pinned));
    CK_CODE(cudaErrorInvalidValue, cudaFreeHost(at));
    CK_CODE(cudaErrorInvalidValue, cudaIpcCloseMemHandle(at));
    CK_CODE(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(pinned));
    CK_CUDA(cudaFree(at));
    CK_CODE(cudaErrorInvalidValue, cudaFree(at));
    CK_CUDA(cudaFreeHost(pinned));
    CK_CODE(cudaErrorInvalidValue, cudaFreeHost(pinned));
}
END_TEST

START_TEST(test_handle_misuse_is_an_error)
{
    cudaStream_t stream;
    cudaEvent_t event;

    be_lenient();
    CK_CUDA(cudaStreamCreate(&stream));
    CK_CUDA(cudaEventCreate(&event));
    CK_CUDA(cudaSetDevice(1));
    CK_CUDA(cudaEventRecord(event, stream));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaEventRecord(event, NULL));
    CK_CUDA(cudaStreamDestroy(stream));
    CK_CUDA(cudaEventDestroy(event));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaStreamDestroy(stream));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaEventDestroy(event));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaEventQuery(event));
    CK_CODE(cudaErrorInvalidResourceHandle, cudaStreamDestroy(NULL));
}
END_TEST

START_TEST(test_misuse_when_strict_aborts)
{
    void *at;

    setenv("STANDIN_STRICT", "1", 1);
    CK_CUDA(cudaMalloc(&at, 100));
    CK_CUDA(cudaFree(at));
    cudaFree(at);
}
END_TEST

START_TEST(test_misuse_is_told)
{
    char text[500];
    void *at;

    be_lenient();
    CK_CUDA(cudaMalloc(&at, 100));
    tiara_test_stderr_begin();
    cudaMemset(at, 0, 200);
    tiara_test_stderr_end(text, sizeof text);
    ck_assert_msg(strstr(text, "standin: cudaMemset: 200 bytes at ") == text, "%s", text);
    CK_CUDA(cudaFree(at));
}
END_TEST

START_TEST(test_fork_after_use_is_an_error)
{
    int status;
    void *at;
    pid_t child;

    be_lenient();
    CK_CUDA(cudaMalloc(&at, 100));
    child = fork();
    if (child == 0)
        _exit(cudaFree(at) != cudaErrorInitializationError);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    CK_CUDA(cudaFree(at));
}
END_TEST

/* ---- calls that are told to fail ---- */

START_TEST(test_told_call_fails_once)
{
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUdeviceptr address;
    void *at;
    int n;

    setenv("STANDIN_FAIL", "cudaMalloc:2,cudaGetDeviceCount:1+,cuMemAddressReserve:1", 1);
    CK_CUDA(cudaMalloc(&at, 100));
    CK_CUDA(cudaFree(at));
    CK_CODE(cudaErrorMemoryAllocation, cudaMalloc(&at, 100));
    CK_CUDA(cudaMalloc(&at, 100));
    CK_CUDA(cudaFree(at));
    for (int i = 0; i < 3; i++)
        CK_CODE(cudaErrorNoDevice, cudaGetDeviceCount(&n));
    reserve = driver_function("cuMemAddressReserve");
    ck_assert_int_eq(reserve(&address, 2 * MIB, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(reserve(&address, 2 * MIB, 0, 0, 0), CUDA_SUCCESS);
}
END_TEST

START_TEST(test_told_call_fails_on_its_rank)
{
    void *at;

    setenv("STANDIN_FAIL", "cudaMalloc:1", 1);
    setenv("STANDIN_FAIL_RANK", "3", 1);
    setenv("OMPI_COMM_WORLD_RANK", _i ? "3" : "2", 1);
    CK_CODE(_i ? cudaErrorMemoryAllocation : cudaSuccess, cudaMalloc(&at, 100));
}
END_TEST

/* What a process that ends by exit() leaves in @path. */
static void counted_process(const char *path)
{
    char host[30] = {5};
    void *at;

    setenv("STANDIN_COUNT", path, 1);
    setenv("STANDIN_DELAY_US", "10000", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    for (int i = 0; i < 3; i++) {
        if (cudaMalloc(&at, 100) != cudaSuccess ||
            cudaMemcpy(at, host, 30, cudaMemcpyHostToDevice) != cudaSuccess)
            exit(1);
    }
    /* Into pageable memory it is not asynchronous. */
    host[0] = 0;
    if (cudaMemcpyAsync(host, at, 7, cudaMemcpyDeviceToHost, NULL) != cudaSuccess || host[0] != 5)
        exit(1);
    exit(0);
}

START_TEST(test_counts_are_written_at_exit)
{
    char path[64], text[2000] = "";
    int fd = memfd_create("counts", 0), status;
    pid_t child;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
    child = fork();
    if (child == 0)
        counted_process(path);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_gt(pread(fd, text, sizeof text - 1, 0), 0);
    close(fd);
    ck_assert_msg(strstr(text, "5 cudaMalloc 3\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "5 bytes-host-to-device 90\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "5 bytes-pageable-async 7\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "5 bytes-device-to-host 7\n") != NULL, "%s", text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cudart");
    TCase *devices = tcase_create("devices"), *memory = tcase_create("memory");
    TCase *errors = tcase_create("errors");

    tcase_add_test(devices, test_devices_default_are_four);
    tcase_add_test(devices, test_devices_visible_are_named);
    tcase_add_test(devices, test_devices_none_is_an_error);
    tcase_add_loop_test(devices, test_peers_are_as_set, 0, 4);
    tcase_add_test(memory, test_pointer_kinds_are_told);
    tcase_add_test(memory, test_buffer_ids_are_never_used_again);
    tcase_add_test(memory, test_address_range_is_the_allocation);
    tcase_add_test(memory, test_memory_has_an_end);
    tcase_add_test(memory, test_copies_move_bytes);
    tcase_add_test(errors, test_copy_misuse_is_an_error);
    tcase_add_test(errors, test_free_misuse_is_an_error);
    tcase_add_test(errors, test_handle_misuse_is_an_error);
    tcase_add_test_raise_signal(errors, test_misuse_when_strict_aborts, SIGABRT);
    tcase_add_test(errors, test_misuse_is_told);
    tcase_add_test(errors, test_fork_after_use_is_an_error);
    tcase_add_test(errors, test_told_call_fails_once);
    tcase_add_loop_test(errors, test_told_call_fails_on_its_rank, 0, 2);
    tcase_add_test(errors, test_counts_are_written_at_exit);
    suite_add_tcase(suite, devices);
    suite_add_tcase(suite, memory);
    suite_add_tcase(suite, errors);
    return tiara_test_run(suite, CK_FORK_GETENV);
}
