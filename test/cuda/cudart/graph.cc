/*
 * The stand-in's stream capture and graphs.
 *
 * While a stream is captured, what is submitted becomes a node of a graph, which depends on the
 * stream's *tail*: its last node, and the nodes that events brought along which it waited for. A
 * launch of the graph is one op of a stream; in it, nodes run as soon as those before them are
 * over, independent ones at the same time.
 */
#include "test/cuda/cudart/standin.h"

#include <atomic>

namespace standin
{

namespace
{

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* An instantiated graph: two launches of it do not overlap. */
struct Exec {
    std::shared_ptr<Graph> graph;
    std::shared_ptr<Mark> last;
};

Table<cudaGraphExec_t, Exec> &execs()
{
    static auto *const table = new Table<cudaGraphExec_t, Exec>;

    return *table;
}

struct Run {
    const Graph &graph;
    std::vector<size_t> missing; /* nodes that are not over, of those before each */
    size_t left;
    std::mutex mutex;
    std::condition_variable changed;
};

/* Runs a node and, one after the other, what becomes ready by it; others that do, on threads of
 * their own. */
void node_run(const std::shared_ptr<Run> &run, size_t node)
{
    for (;;) {
        std::vector<size_t> ready;

        if (settings().delay_us > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(settings().delay_us));
        run->graph.nodes[node].run();
        Lock lock(run->mutex);
        run->left--;
        for (size_t i = 0; i < run->graph.nodes.size(); i++) {
            for (size_t before : run->graph.nodes[i].after) {
                if (before == node && --run->missing[i] == 0)
                    ready.push_back(i);
            }
        }
        if (run->left == 0)
            run->changed.notify_all();
        if (ready.empty())
            return;
        for (size_t i = 1; i < ready.size(); i++)
            pool_run([run, next = ready[i]] { node_run(run, next); });
        node = ready[0];
    }
}

void graph_run(const Graph &graph)
{
    auto run = std::shared_ptr<Run>(new Run{graph, {}, graph.nodes.size(), {}, {}});

    for (const Node &node : graph.nodes)
        run->missing.push_back(node.after.size());
    for (size_t i = 0; i < graph.nodes.size(); i++) {
        if (graph.nodes[i].after.empty())
            pool_run([run, i] { node_run(run, i); });
    }
    Lock lock(run->mutex);
    while (run->left > 0)
        run->changed.wait(lock);
}

/* Whether every node of the streams of a capture is one that the origin's tail depends on. */
bool capture_is_joined(const Capture &capture, const Stream &origin)
{
    std::set<size_t> joined = origin.tail;
    bool is_joined = true;

    /* Nodes stand behind those that they depend on. */
    for (size_t i = capture.graph->nodes.size(); i-- > 0;) {
        const std::vector<size_t> &after = capture.graph->nodes[i].after;

        if (joined.count(i))
            joined.insert(after.begin(), after.end());
    }
    streams_for_each([&](const StreamRef &stream) {
        if (stream->capture.get() != &capture)
            return;
        for (size_t node : stream->tail)
            is_joined = is_joined && joined.count(node);
    });
    return is_joined;
}

} /* namespace */

cudaError_t capture_add(Stream &stream, Task run)
{
    std::vector<Node> &nodes = stream.capture->graph->nodes;

    if (!stream.capture->is_valid)
        return cudaErrorStreamCaptureInvalidated;
    nodes.push_back({std::move(run), {stream.tail.begin(), stream.tail.end()}});
    stream.tail = {nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t capture_wait(Stream &stream, const Event &event)
{
    if (stream.capture && !stream.capture->is_valid)
        return cudaErrorStreamCaptureInvalidated;
    if (!event.capture || (stream.capture && event.capture != stream.capture)) {
        stream.capture->is_valid = false;
        return event.capture ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
    }
    if (event.capture->origin.expired() || stream.is_legacy)
        return cudaErrorCapturedEvent;
    stream.capture = event.capture;
    stream.tail.insert(event.tail.begin(), event.tail.end());
    return cudaSuccess;
}

cudaError_t capture_refuses(const StreamRef &stream)
{
    if (stream->is_legacy && capture_blocks_legacy(stream->device)) {
        streams_for_each([&](const StreamRef &other) {
            if (other->capture && other->is_blocking && other->device == stream->device)
                other->capture->is_valid = false;
        });
        return cudaErrorStreamCaptureImplicit;
    }
    if (!stream->capture)
        return cudaSuccess;
    stream->capture->is_valid = false;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_forbids()
{
    cudaError_t code = cudaSuccess;

    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return code;
    streams_for_each([&](const StreamRef &stream) {
        Capture *c = stream->capture.get();
        bool is_mine = c && c->thread == std::this_thread::get_id();

        if (!c || c->mode == cudaStreamCaptureModeRelaxed)
            return;
        if (is_mine || (thread_mode == cudaStreamCaptureModeGlobal &&
                           c->mode == cudaStreamCaptureModeGlobal)) {
            c->is_valid = false;
            code = cudaErrorStreamCaptureUnsupported;
        }
    });
    return code;
}

bool capture_blocks_legacy(int device)
{
    bool blocks = false;

    streams_for_each([&](const StreamRef &stream) {
        blocks = blocks || (stream->capture && stream->is_blocking && stream->device == device);
    });
    return blocks;
}

namespace
{

cudaError_t capture_end(const StreamRef &stream, cudaGraph_t *graph_out)
{
    std::shared_ptr<Capture> capture = stream->capture;
    bool is_joined;

    *graph_out = nullptr;
    if (!capture)
        return misuse(cudaErrorIllegalState, "the stream is not being captured");
    if (capture->origin.lock() != stream) {
        capture->is_valid = false;
        return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
        return cudaErrorStreamCaptureWrongThread;
    is_joined = capture_is_joined(*capture, *stream);
    streams_for_each([&](const StreamRef &other) {
        if (other->capture == capture) {
            other->capture = nullptr;
            other->tail.clear();
        }
    });
    capture->origin.reset();
    if (!capture->is_valid)
        return cudaErrorStreamCaptureInvalidated;
    if (!is_joined)
        return cudaErrorStreamCaptureUnjoined;
    *graph_out = state().graphs.add(capture->graph);
    return cudaSuccess;
}

cudaStreamCaptureStatus capture_status(const Stream &stream)
{
    if (!stream.capture)
        return cudaStreamCaptureStatusNone;
    return stream.capture->is_valid ? cudaStreamCaptureStatusActive
                                    : cudaStreamCaptureStatusInvalidated;
}

} /* namespace */

} /* namespace standin */

using namespace standin;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return api(__func__, [&](Lock &) {
        std::swap(*mode, thread_mode);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        if (stream->is_legacy)
            return cudaErrorStreamCaptureUnsupported;
        if (stream->capture)
            return misuse(cudaErrorIllegalState, "the stream is being captured");
        stream->capture = std::make_shared<Capture>();
        stream->capture->mode = mode;
        stream->capture->thread = std::this_thread::get_id();
        stream->capture->id = number_next();
        stream->capture->origin = stream;
        stream->tail.clear();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        return stream ? capture_end(stream, graph_out) : code;
    });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status_out,
    unsigned long long *id_out, cudaGraph_t *graph_out, const cudaGraphNode_t **nodes_out,
    const cudaGraphEdgeData **edges_out, size_t *nnodes_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        if (graph_out || nodes_out || edges_out || nnodes_out)
            return misuse(cudaErrorNotSupported, "the stand-in shows no graphs");
        if (stream->is_legacy && capture_blocks_legacy(stream->device))
            return cudaErrorStreamCaptureImplicit;
        *status_out = capture_status(*stream);
        if (id_out && stream->capture)
            *id_out = stream->capture->id;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status_out)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        StreamRef stream = stream_find(handle, &code);

        if (!stream)
            return code;
        if (stream->is_legacy && capture_blocks_legacy(stream->device))
            return cudaErrorStreamCaptureImplicit;
        *status_out = capture_status(*stream);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t *exec_out, cudaGraph_t handle, unsigned long long flags)
{
    return api(__func__, [&](Lock &) {
        std::shared_ptr<Graph> graph = state().graphs.find(handle);

        if (!graph || flags != 0)
            return misuse(cudaErrorInvalidValue, "no graph, or flags");
        *exec_out = execs().add(std::make_shared<Exec>(Exec{graph, nullptr}));
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    return api(__func__, [&](Lock &) {
        cudaError_t code = cudaSuccess;
        std::shared_ptr<Exec> exec = execs().find(handle);
        StreamRef stream = stream_find(stream_handle, &code);

        if (!stream)
            return code;
        if (!exec)
            return misuse(cudaErrorInvalidValue, "no instantiated graph");
        Until before = {[last = exec->last] { return !last || last->is_done; }, false};
        exec->last = std::make_shared<Mark>();
        return stream_submit(stream,
            [graph = exec->graph, mark = exec->last] {
                graph_run(*graph);
                Lock lock(state().mutex);
                mark->is_done = true;
                state().changed.notify_all();
            },
            false, {before});
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    return api(__func__, [&](Lock &) {
        return execs().remove(handle) ? cudaSuccess
                                      : misuse(cudaErrorInvalidValue, "no instantiated graph");
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    return api(__func__, [&](Lock &) {
        return state().graphs.remove(handle) ? cudaSuccess
                                             : misuse(cudaErrorInvalidValue, "no graph");
    });
}
}
