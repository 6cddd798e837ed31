/*
 * The stand-in's kernels: what nvcc's objects register, and launches of the CPU builds of the same
 * kernels.
 *
 * libkernels_on_cpu.so has for each kernel K a function K_on_cpu, which runs one thread of a thread
 * block (kernels/on_cpu.h). Threads of a launch are threads of a pool that grows as far as it must:
 * blocks wait for each other, and for blocks of other launches and processes, so none may stand
 * behind another. More blocks than the device holds at once take turns, as on a GPU.
 */
#include "test/cuda/cudart/standin.h"
#include "kernels/kernels.h"
#include "kernels/on_cpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

namespace standin
{

namespace
{

/* ---- the pool ---- */

struct Pool {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    size_t idle = 0;
};

Pool &pool()
{
    static Pool *const p = new Pool;

    return *p;
}

void pool_thread()
{
    Pool &p = pool();
    Lock lock(p.mutex);

    for (;;) {
        p.idle++;
        while (p.tasks.empty())
            p.changed.wait(lock);
        p.idle--;
        Task task = std::move(p.tasks.front());
        p.tasks.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
    }
}

/* ---- launches ---- */

struct Function {
    tiara_on_cpu_kernel *run;
    size_t bytes; /* of its argument */
};

struct Launch;

/* The threads that run thread blocks, one after the other: every RESIDENT-th. */
struct Team {
    Launch *launch;
    pthread_barrier_t barrier;
    alignas(64) char shared[TIARA_ON_CPU_SHARED];
};

struct Launch {
    tiara_on_cpu_kernel *run;
    std::vector<char> args;
    unsigned blocks, threads, teams;
    unsigned left = 0; /* threads of the pool */
    std::mutex mutex;
    std::condition_variable changed;
};

void team_sync(struct tiara_on_cpu *self)
{
    Team *team = (Team *)self->launcher;

    if (self->nthreads > 1)
        pthread_barrier_wait(&team->barrier);
}

void team_run(Team *team, unsigned first_block, unsigned thread)
{
    Launch &launch = *team->launch;
    struct tiara_on_cpu self = {
        0, launch.blocks, thread, launch.threads, team->shared, team_sync, team};

    for (unsigned block = first_block; block < launch.blocks; block += launch.teams) {
        self.block = block;
        launch.run(&self, launch.args.data());
        team_sync(&self);
    }
}

/* Runs all thread blocks; this thread is one of the threads. */
void launch_run(Launch &launch)
{
    std::vector<std::unique_ptr<Team>> teams;

    for (unsigned i = 0; i < launch.teams; i++) {
        teams.emplace_back(new Team);
        teams[i]->launch = &launch;
        pthread_barrier_init(&teams[i]->barrier, nullptr, launch.threads);
    }
    launch.left = launch.teams * launch.threads - 1;
    for (unsigned i = 1; i < launch.teams * launch.threads; i++) {
        pool_run([&launch, team = teams[i / launch.threads].get(), i] {
            team_run(team, i / launch.threads, i % launch.threads);
            Lock lock(launch.mutex);
            launch.left--;
            launch.changed.notify_all();
        });
    }
    team_run(teams[0].get(), 0, 0);
    Lock lock(launch.mutex);
    while (launch.left > 0)
        launch.changed.wait(lock);
    for (auto &team : teams)
        pthread_barrier_destroy(&team->barrier);
}

/* ---- what is registered ---- */

struct Registry {
    std::mutex mutex;
    std::map<const void *, std::pair<std::string, void **>>
        names; /* by host function; of which binary */
    void *library = nullptr;
};

Registry &registry()
{
    static Registry *const r = new Registry;

    return *r;
}

/* The name of a host function's kernel, or "". */
std::string kernel_name(const void *function)
{
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto at = registry().names.find(function);

    return at == registry().names.end() ? "" : at->second.first;
}

void *library_open()
{
    const char *path = getenv("STANDIN_KERNELS");
    std::string beside;
    Dl_info self;

    if (!path && dladdr((void *)&library_open, &self) && self.dli_fname) {
        beside = self.dli_fname;
        beside = beside.substr(0, beside.rfind('/') + 1) + "libkernels_on_cpu.so";
        path = beside.c_str();
    }
    return path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
}

cudaError_t function_find(const void *host, Function *function_out)
{
    static const std::pair<const char *, size_t> sizes[] = {
        {"tiara_kernel_exec", sizeof(struct tiara_kernel_exec_args)},
        {"tiara_kernel_small", sizeof(struct tiara_kernel_small_args)},
        {"tiara_kernel_reduce", sizeof(struct tiara_kernel_reduce_args)},
        {"tiara_kernel_probe", sizeof(struct tiara_kernel_probe_args)},
    };
    std::string name = kernel_name(host);

    if (name.empty())
        return misuse(cudaErrorInvalidDeviceFunction, "%p is no kernel", host);
    if (!registry().library)
        registry().library = library_open();
    if (!registry().library)
        return misuse(cudaErrorNoKernelImageForDevice, "%s", dlerror());
    function_out->run =
        (tiara_on_cpu_kernel *)dlsym(registry().library, (name + "_on_cpu").c_str());
    for (auto &[known, bytes] : sizes) {
        function_out->bytes = bytes;
        if (name == known && function_out->run)
            return cudaSuccess;
    }
    return misuse(cudaErrorNoKernelImageForDevice, "no %s for the CPU", name.c_str());
}

cudaError_t launch(
    const void *host, const dim3 &grid, const dim3 &block, const void *arg, cudaStream_t handle)
{
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    cudaError_t code = cudaSuccess;
    StreamRef stream = stream_find(handle, &code);
    Function function;

    if (code == cudaSuccess)
        code = function_find(host, &function);
    if (code != cudaSuccess)
        return code;
    if (blocks == 0 || threads == 0 || threads > 1024 || blocks > INT32_MAX)
        return misuse(cudaErrorInvalidConfiguration, "%lu thread blocks of %lu threads",
            (unsigned long)blocks, (unsigned long)threads);
    if (stream->device != device_current())
        return misuse(cudaErrorInvalidResourceHandle, "stream of device %d, current is %d",
            stream->device, device_current());
    std::vector<char> args((const char *)arg, (const char *)arg + function.bytes);
    return stream_submit(stream, [function, args, blocks, threads] {
        Launch l;

        l.run = function.run;
        l.args = args;
        l.blocks = (unsigned)blocks;
        l.threads = std::min((unsigned)threads, settings().threads);
        l.teams = std::min(l.blocks, RESIDENT);
        launch_run(l);
    });
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

} /* namespace */

void pool_run(Task task)
{
    Pool &p = pool();
    Lock lock(p.mutex);

    p.tasks.push_back(std::move(task));
    if (p.tasks.size() > p.idle) {
        sigset_t all, before;

        /* Signals are for the program's threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        std::thread(pool_thread).detach();
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    p.changed.notify_one();
}

} /* namespace standin */

using namespace standin;

extern "C" {

cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    return api(__func__, [&](Lock &) {
        if (shared > TIARA_ON_CPU_SHARED)
            return misuse(cudaErrorInvalidValue, "%zu bytes of shared memory", shared);
        return launch(function, grid, block, args[0], stream);
    });
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes_out, const void *host)
{
    return api(__func__, [&](Lock &) {
        if (kernel_name(host).empty())
            return misuse(cudaErrorInvalidDeviceFunction, "%p is no kernel", host);
        memset(attributes_out, 0, sizeof *attributes_out);
        attributes_out->maxThreadsPerBlock = 1024;
        attributes_out->numRegs = 32;
        attributes_out->ptxVersion = attributes_out->binaryVersion = 90;
        return cudaSuccess;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks_out, const void *host, int threads, size_t shared)
{
    return api(__func__, [&](Lock &) {
        if (kernel_name(host).empty())
            return misuse(cudaErrorInvalidDeviceFunction, "%p is no kernel", host);
        *blocks_out = threads > 0 && threads <= 1024 && shared <= TIARA_ON_CPU_SHARED
                          ? (int)(RESIDENT / MULTIPROCESSORS)
                          : 0;
        return cudaSuccess;
    });
}

/* ---- what nvcc's objects call ---- */

void **__cudaRegisterFatBinary(void *)
{
    return new void *(nullptr);
}

void __cudaRegisterFatBinaryEnd(void **) {}

void __cudaUnregisterFatBinary(void **binary)
{
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto &names = registry().names;

    for (auto at = names.begin(); at != names.end();)
        at = at->second.second == binary ? names.erase(at) : std::next(at);
    delete binary;
}

void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int, uint3 *,
    uint3 *, dim3 *, dim3 *, int *)
{
    std::lock_guard<std::mutex> lock(registry().mutex);

    registry().names[host] = {name, binary};
}

void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}

char __cudaInitModule(void **)
{
    return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    Configuration top;

    if (configurations.empty())
        return cudaErrorInvalidConfiguration;
    top = configurations.back();
    configurations.pop_back();
    *grid = top.grid;
    *block = top.block;
    *shared = top.shared;
    *(cudaStream_t *)stream = top.stream;
    return cudaSuccess;
}

/* A kernel's handle is its host function here. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel_out, const void *function)
{
    *kernel_out = (cudaKernel_t)function;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}
}
