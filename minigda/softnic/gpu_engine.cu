// The CUDA half of softnic's GPU engine: the kernel, and the device as gpu.c uses it.
#include "gpu_timed.cuh"

#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <string.h>

#include <new>

using namespace softnic_gpu;

namespace {

// Of the 128 that an SM has for each of 512 threads: the rest is for kernels under test that share it.
constexpr uint32_t REGISTERS = 80;

// The last warp of the first block looks at the host every 20 us, hands its word on to the others, and gives up when the
// host is silent. No other warp reads host memory unless a queue lies there.
enum { LOOK_CYCLES = 40000 };
struct watcher {
    uint64_t looked, since;
    uint32_t heartbeat;
};
GPU_FN void watch_host(const gpu_args &a, watcher &me) {
    const uint64_t now = clock64();
    if (now - me.looked < LOOK_CYCLES)
        return;
    me.looked = now;
    const uint32_t stop = load32(&a.mail->stop), heartbeat = load32(&a.mail->heartbeat);
    const uint64_t ns = clock_ns();
    if (heartbeat != me.heartbeat || me.since == 0) {
        me.heartbeat = heartbeat;
        me.since = ns;
    }
    const uint32_t reason = stop ? GPU_LEFT_ASKED : ns - me.since > a.silence_ns ? GPU_LEFT_SILENCE : 0;
    if (reason && lane_id() == 0) {
        store32(&a.mail->reason, reason);
        store32(&a.board->leave, 1);
    }
}

__device__ void load_share(const gpu_args &a, const gpu_warp &w) {
    for (uint32_t k = 0; k < w.count; k++) {
        const uint64_t *from = (const uint64_t *)&a.qps[w.index + k * w.stride];
        uint64_t *to = (uint64_t *)&w.at(k);
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
    __syncwarp();
    for (uint32_t k = lane_id(); k < w.count; k += 32) {
        gpu_qp &q = w.at(k);
        if (q.rewatch)
            q.watch_last = a.bell ? load64((const void *)q.watch) : load32((const void *)q.watch);
        q.rewatch = 0;
    }
    __syncwarp();
}
__device__ void store_share(const gpu_args &a, const gpu_warp &w) {
    __syncwarp();
    for (uint32_t k = 0; k < w.count; k++) {
        const uint64_t *from = (const uint64_t *)&w.at(k);
        uint64_t *to = (uint64_t *)&a.qps[w.index + k * w.stride];
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
}

// The last bytes of the CQEs that this pass has held back, one a lane.
GPU_FN void tails_out(engine e, uint32_t k, uint64_t tail) {
    if (__ballot_sync(ALL, tail != 0) == 0)
        return;
    clean(e);
    if (tail) {
        const gpu_qp &q = e.w.at(k);
        store64((void *)(q.cqe + 56), tail);
        store64(&e.a.cqs[q.cq].prod, q.prod);
    }
    __syncwarp();
}

// Serves the QPs `first + bit` of todo, in whatever state they are. keys: in shared memory, or nullptr.
GPU_CALL void serve_each(engine e, const gpu_key *keys, uint32_t first, uint32_t todo) {
    const uint32_t lane = lane_id();
    uint64_t tail = 0; // this lane's QP's
    for (; todo; todo &= todo - 1) {
        const uint32_t b = __ffs(todo) - 1;
        gpu_qp &q = e.w.at(first + b);
        const bool plain = keys && q.simple_cq && q.state == SOFTNIC_QP_RTS && q.asked != GPU_ASKED &&
                           !(e.a.bell | e.a.timed | e.a.strict);
        rest left = REST_OTHER;
        if (plain)
            left = serve_fast(e, keys, q, mlx5_be32(load32_acquire((const void *)q.dbrec)) & 0xffff);
        const bool again = left == REST_OTHER ? serve(e, q) : left == REST_MORE;
        if (lane == b)
            tail = e.w.tail;
        __syncwarp();
        if (lane == 0) {
            q.again = again;
            e.w.tail = 0;
        }
        __syncwarp();
    }
    tails_out(e, first + lane, tail);
}

// The time of CQEs. Reading it takes long, so that without a profile it is read in idle passes and behind busy ones, and is
// some microseconds old.
GPU_FN void look_at_clock(engine e) {
    if (!e.a.is_virtual && lane_id() == 0)
        e.w.now_ps = (clock_ns() - e.a.first_ns) * PS_PER_NS;
    __syncwarp();
}

// Looks at 32 QPs, one a lane, and serves those that have been rung, as far as that takes no call. Returns the others.
GPU_FN uint32_t scan(engine e, const gpu_key *keys, uint32_t first) {
    const uint32_t lane = lane_id(), k = first + lane;
    uint64_t value = 0;
    bool rung = false, usual = false;
    if (k < e.w.count) {
        gpu_qp &q = e.w.at(k);
        value = e.a.bell ? load64_acquire((const void *)q.watch) : load32_acquire((const void *)q.watch);
        rung = value != q.watch_last || q.again;
        usual = q.asked != GPU_ASKED && q.simple_cq && q.state == SOFTNIC_QP_RTS;
        if (rung) {
            q.watch_last = value;
            q.again = 0;
        }
    }
    const uint32_t todo = __ballot_sync(ALL, rung);
    if (todo == 0)
        return 0;
    if (e.a.timed)
        look_at_clock(e);
    __syncwarp();
    if (!keys || e.a.bell || e.a.timed || e.a.strict)
        return todo;
    uint64_t tail = 0;
    uint32_t more = 0, other = todo & ~__ballot_sync(ALL, usual);
    for (uint32_t bits = todo & ~other; bits; bits &= bits - 1) {
        const uint32_t b = __ffs(bits) - 1;
        const uint32_t record = (uint32_t)__shfl_sync(ALL, value, b);
        const rest left = serve_words(e, keys, e.w.at(first + b), mlx5_be32(record) & 0xffff);
        more |= (uint32_t)(left == REST_MORE) << b;
        other |= (uint32_t)(left == REST_OTHER) << b;
        if (lane == b)
            tail = e.w.tail;
        __syncwarp();
        if (lane == 0)
            e.w.tail = 0;
        __syncwarp();
    }
    if (more >> lane & 1)
        e.w.at(k).again = 1;
    tails_out(e, k, tail);
    look_at_clock(e);
    return other;
}

// Virtual time: passes until one finds nothing, then to the next deadline.
GPU_CALL bool step_on(engine e) {
    __syncwarp();
    const bool worked = e.w.work != 0;
    uint64_t next = ~0ull;
    if (!worked && e.a.timed)
        for (uint32_t k = 0; k < e.w.count; k++) {
            const uint64_t one = next_ps(e, e.w.at(k));
            next = one < next ? one : next;
        }
    const bool jump = !worked && next <= e.a.end_ps && next > e.w.now_ps;
    __syncwarp();
    if (lane_id() == 0) {
        e.w.work = 0;
        if (jump)
            e.w.now_ps = next;
    }
    __syncwarp();
    return worked || jump;
}

// What makes a warp leave its passes.
enum why : uint32_t { WHY_OTHER, WHY_ROUND, WHY_HELP, WHY_LEAVE };
struct passes_state {
    watcher watch;
    uint32_t first; // QPs being looked at
    uint32_t todo;  // WHY_OTHER: of those to be served otherwise
};

// The passes of a warp for as long as they need no call, which would cost them registers. `served`: what the last call
// returned has been served.
GPU_CALL why passes(engine e, const gpu_key *keys, bool watches, bool served, passes_state *state) {
    passes_state s = *state;
    for (uint32_t round = 0;; served = false) {
        const uint32_t leave = load32(&e.a.board->leave);
        const uint32_t open = lane_id() < 4 ? load32(&e.a.board->open[lane_id()]) : 0;
        if (!served && (s.todo = scan(e, keys, s.first)) != 0) {
            *state = s;
            return WHY_OTHER;
        }
        s.first += 32;
        if (s.first < e.w.count)
            continue;
        s.first = 0;
        if (watches)
            watch_host(e.a, s.watch);
        if ((round++ & 15) == 0)
            look_at_clock(e);
        const bool help = __ballot_sync(ALL, open != 0) != 0;
        if (!(leave | help | e.a.is_virtual))
            continue;
        *state = s;
        return e.a.is_virtual ? WHY_ROUND : leave ? WHY_LEAVE : WHY_HELP;
    }
}

GPU_FN void run(engine e, const gpu_key *keys) {
    const bool watches = !e.a.is_virtual && blockIdx.x == 0 && threadIdx.x / 32 == e.a.warps - 1;
    passes_state state = {{0, 0, 0}, 0, 0};
    bool served = false;
    for (;;) {
        const why reason = passes(e, keys, watches, served, &state);
        served = reason == WHY_OTHER;
        if (served)
            serve_each(e, keys, state.first, state.todo);
        else if (reason == WHY_HELP)
            help(e.a.board);
        else if (reason == WHY_LEAVE || !step_on(e))
            return;
    }
}

} // namespace

extern __shared__ uint64_t softnic_shared[];

__global__ void __maxnreg__(REGISTERS) softnic_engine(const __grid_constant__ gpu_args a) {
    const uint32_t warp = threadIdx.x / 32;
    gpu_warp *warps = (gpu_warp *)softnic_shared;
    gpu_qp *qps = (gpu_qp *)(warps + a.warps);
    const uint32_t stride = a.warps * gridDim.x, first = warp * gridDim.x + blockIdx.x;
    const uint32_t rows = (a.qp_count + stride - 1) / stride;
    gpu_key *keys = (gpu_key *)(qps + rows * a.warps);
    if (a.keys_shared) {
        const uint64_t *from = (const uint64_t *)a.keys;
        uint64_t *to = (uint64_t *)keys;
        for (uint32_t i = threadIdx.x; i < (a.key_mask + 1) * (sizeof(gpu_key) / 8); i += blockDim.x)
            to[i] = from[i];
    }
    __syncthreads();
    if (threadIdx.x == 0)
        store32(&a.mail->here[blockIdx.x], 1);
    gpu_warp &w = warps[warp];
    if (lane_id() == 0) {
        w.now_ps = a.now_ps;
        w.tail = 0;
        w.dirty = w.work = 0;
        w.index = first;
        w.stride = stride;
        w.step = a.warps;
        w.count = first < a.qp_count ? (a.qp_count - first + stride - 1) / stride : 0;
        w.qps = qps + warp;
    }
    __syncwarp();
    load_share(a, w);
    run(engine{a, a.keys_shared ? keys : a.keys, w}, a.keys_shared ? keys : nullptr);
    store_share(a, w);
    if (a.is_virtual && lane_id() == 0) {
        a.mail->now_ps = w.now_ps;
        a.mail->first_ns = clock_ns();
    }
}

// ---- the device as gpu.c uses it ----

struct gpu_dev {
    int device;
    cudaStream_t stream;
};

namespace {

int cuda_fail(cudaError_t e, const char *call) {
    (void)cudaGetLastError(); // not sticky: it must not surface in somebody else's call
    const int status =
        e == cudaErrorMemoryAllocation                                                              ? -ENOMEM
        : e == cudaErrorNoDevice || e == cudaErrorInvalidDevice || e == cudaErrorInsufficientDriver ? -ENOTSUP
                                                                                                    : -EIO;
    return softnic_fail(status, "GPU engine: %s: %s", call, cudaGetErrorString(e));
}
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const cudaError_t e_ = (call);                                                                       \
        if (e_ != cudaSuccess)                                                                               \
            return cuda_fail(e_, #call);                                                                     \
    } while (0)

// The calling thread's device is the caller's affair.
class On {
  public:
    explicit On(int device) {
        if (cudaGetDevice(&before_) != cudaSuccess)
            before_ = -1;
        if (before_ != device)
            cudaSetDevice(device);
        else
            before_ = -1;
    }
    ~On() {
        if (before_ >= 0)
            cudaSetDevice(before_);
    }

  private:
    int before_ = -1;
};

int dev_open(int device, gpu_dev **dev_p) {
    *dev_p = nullptr;
    int count = 0, least = 0, greatest = 0;
    TRY(cudaGetDeviceCount(&count));
    if (device < 0 || device >= count)
        return softnic_fail(-ENOTSUP, "GPU engine: device %d; the driver shows %d", device, count);
    On on(device);
    TRY(cudaFuncSetAttribute(softnic_engine, cudaFuncAttributeMaxDynamicSharedMemorySize, GPU_SHARED_MAX));
    // An SM's split cannot change while a block sits on it: one with much shared memory must still fit beside ours.
    TRY(cudaFuncSetAttribute(softnic_engine, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    gpu_dev *dev = new (std::nothrow) gpu_dev{device, nullptr};
    if (!dev)
        return softnic_fail(-ENOMEM, "GPU engine: out of memory");
    const cudaError_t e = cudaStreamCreateWithPriority(&dev->stream, cudaStreamNonBlocking, greatest);
    if (e != cudaSuccess) {
        delete dev;
        return cuda_fail(e, "cudaStreamCreateWithPriority");
    }
    *dev_p = dev;
    return 0;
}
void dev_close(gpu_dev *dev) {
    if (!dev)
        return;
    On on(dev->device);
    cudaStreamDestroy(dev->stream);
    delete dev;
}

int dev_alloc(gpu_dev *dev, size_t bytes, void **addr_p) {
    On on(dev->device);
    // Whole granules: what peers open is then nothing but this.
    const size_t granule = (size_t)2 << 20, size = (bytes + granule - 1) / granule * granule;
    TRY(cudaMalloc(addr_p, size));
    TRY(cudaMemsetAsync(*addr_p, 0, size, dev->stream));
    TRY(cudaStreamSynchronize(dev->stream));
    return 0;
}
int dev_free(gpu_dev *dev, void *addr) {
    On on(dev->device);
    TRY(cudaFree(addr));
    return 0;
}
int dev_pinned(gpu_dev *dev, size_t bytes, void **addr_p) {
    On on(dev->device);
    TRY(cudaHostAlloc(addr_p, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    memset(*addr_p, 0, bytes);
    return 0;
}
int dev_pinned_free(gpu_dev *dev, void *addr) {
    On on(dev->device);
    TRY(cudaFreeHost(addr));
    return 0;
}
int dev_host_map(gpu_dev *dev, void *addr, size_t bytes) {
    On on(dev->device);
    TRY(cudaHostRegister(addr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    return 0;
}
int dev_host_unmap(gpu_dev *dev, void *addr) {
    On on(dev->device);
    TRY(cudaHostUnregister(addr));
    return 0;
}

gpu_kind dev_where(gpu_dev *dev, const void *addr) {
    On on(dev->device);
    cudaPointerAttributes attr;
    if (cudaPointerGetAttributes(&attr, addr) != cudaSuccess) {
        (void)cudaGetLastError();
        return GPU_MEM_NONE;
    }
    switch (attr.type) {
    case cudaMemoryTypeHost:
        return attr.devicePointer == addr ? GPU_MEM_HOST : GPU_MEM_NONE;
    case cudaMemoryTypeDevice:
        return attr.device == dev->device ? GPU_MEM_OWN : GPU_MEM_OTHER;
    case cudaMemoryTypeManaged: // wherever its pages are: order it as the farthest
        return GPU_MEM_OTHER;
    default:
        return GPU_MEM_NONE;
    }
}

int dev_share(gpu_dev *dev, void *addr, uint8_t handle[GPU_HANDLE], uint64_t *offset_p) {
    On on(dev->device);
    static_assert(sizeof(cudaIpcMemHandle_t) == GPU_HANDLE, "a handle fits its place in the shared segment");
    cudaIpcMemHandle_t ipc;
    TRY(cudaIpcGetMemHandle(&ipc, addr));
    // The handle is the allocation's. The runtime does not tell where that begins.
    void *get = nullptr;
    cudaDriverEntryPointQueryResult found;
    TRY(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &get, 3020, cudaEnableDefault, &found));
    CUdeviceptr base = 0;
    size_t size = 0;
    auto range = reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr)>(get);
    if (found != cudaDriverEntryPointSuccess || range(&base, &size, (CUdeviceptr)addr) != CUDA_SUCCESS)
        return softnic_fail(-EIO, "GPU engine: no allocation is known at %p", addr);
    memcpy(handle, &ipc, sizeof ipc);
    *offset_p = (uint64_t)addr - base;
    return 0;
}
int dev_open_shared(gpu_dev *dev, const uint8_t handle[GPU_HANDLE], void **base_p) {
    On on(dev->device);
    cudaIpcMemHandle_t ipc;
    memcpy(&ipc, handle, sizeof ipc);
    TRY(cudaIpcOpenMemHandle(base_p, ipc, cudaIpcMemLazyEnablePeerAccess));
    return 0;
}
int dev_close_shared(gpu_dev *dev, void *base) {
    On on(dev->device);
    TRY(cudaIpcCloseMemHandle(base));
    return 0;
}
int dev_reach(gpu_dev *dev, const void *addr) {
    On on(dev->device);
    cudaPointerAttributes attr;
    TRY(cudaPointerGetAttributes(&attr, addr));
    if (attr.type != cudaMemoryTypeDevice || attr.device == dev->device)
        return 0;
    const cudaError_t e = cudaDeviceEnablePeerAccess(attr.device, 0);
    (void)cudaGetLastError();
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled
               ? 0
               : cuda_fail(e, "cudaDeviceEnablePeerAccess");
}

int dev_upload(gpu_dev *dev, void *to, const void *from, size_t bytes) {
    On on(dev->device);
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev->stream));
    return 0;
}
int dev_download(gpu_dev *dev, void *to, const void *from, size_t bytes) {
    On on(dev->device);
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, dev->stream));
    return 0;
}
int dev_fill(gpu_dev *dev, void *to, size_t pitch, int value, size_t width, size_t rows) {
    On on(dev->device);
    TRY(cudaMemset2DAsync(to, pitch, value, width, rows, dev->stream));
    return 0;
}
int dev_launch(gpu_dev *dev, const gpu_args *args, uint32_t blocks, uint32_t shared_bytes) {
    On on(dev->device);
    softnic_engine<<<blocks, 32 * args->warps, shared_bytes, dev->stream>>>(*args);
    TRY(cudaGetLastError());
    return 0;
}
int dev_done(gpu_dev *dev) {
    On on(dev->device);
    const cudaError_t e = cudaStreamQuery(dev->stream);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    return e == cudaSuccess ? 1 : cuda_fail(e, "engine kernel");
}

const gpu_ops ops = {dev_open,        dev_close,        dev_alloc,      dev_free,        dev_pinned,
                     dev_pinned_free, dev_host_map,     dev_host_unmap, dev_where,       dev_share,
                     dev_open_shared, dev_close_shared, dev_reach,      dev_upload,      dev_download,
                     dev_fill,        dev_launch,       dev_done,       sizeof(gpu_warp)};

} // namespace

const gpu_ops *gpu_ops_linked(void) { return &ops; }
