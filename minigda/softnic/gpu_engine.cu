// The CUDA half of softnic's GPU engine: the kernel, and the device as gpu.c uses it.
#include "gpu_timed.cuh"

#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <string.h>

#include <new>

using namespace softnic_gpu;

namespace {

constexpr uint32_t THREADS_MAX = 32 * (GPU_MAX_WARPS + 1);

// The warp behind the last: hands the host's word on to the others, and gives up when the host is silent.
__device__ void watch_host(const gpu_args &a) {
    if (lane_id() != 0)
        return;
    uint32_t reason = 0, heartbeat = load32(&a.mail->heartbeat);
    for (uint64_t since = clock_ns(); !reason; __nanosleep(4000)) {
        if (load32(&a.mail->stop))
            reason = GPU_LEFT_ASKED;
        const uint32_t now = load32(&a.mail->heartbeat);
        if (now != heartbeat) {
            heartbeat = now;
            since = clock_ns();
        } else if (clock_ns() - since > a.silence_ns) {
            reason = GPU_LEFT_SILENCE;
        }
    }
    store32(&a.mail->reason, reason);
    store32(&a.board->leave, 1);
}

// What one warp serves: QP `first + k * stride` of the engine is its k-th.
struct share {
    gpu_qp *qps; // in shared memory, `step` apart
    uint32_t first, stride, step, count;
    __device__ gpu_qp &at(uint32_t k) const { return qps[k * step]; }
};

__device__ void load_share(const gpu_args &a, const share &mine) {
    for (uint32_t k = 0; k < mine.count; k++) {
        const uint64_t *from = (const uint64_t *)&a.qps[mine.first + k * mine.stride];
        uint64_t *to = (uint64_t *)&mine.at(k);
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
    __syncwarp();
    for (uint32_t k = lane_id(); k < mine.count; k += 32) {
        gpu_qp &q = mine.at(k);
        if (q.rewatch)
            q.watch_last = a.bell ? load64((const void *)q.watch) : load32((const void *)q.watch);
        q.rewatch = 0;
    }
    __syncwarp();
}
__device__ void store_share(const gpu_args &a, const share &mine) {
    __syncwarp();
    for (uint32_t k = 0; k < mine.count; k++) {
        const uint64_t *from = (const uint64_t *)&mine.at(k);
        uint64_t *to = (uint64_t *)&a.qps[mine.first + k * mine.stride];
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
}

// Looks at 32 QPs, one a lane, and serves those that have been rung.
__device__ void scan(engine e, const share &mine, uint32_t first) {
    const uint32_t lane = lane_id(), k = first + lane;
    uint64_t value = 0;
    bool rung = false;
    if (k < mine.count) {
        const gpu_qp &q = mine.at(k);
        value = e.a.bell ? load64_acquire((const void *)q.watch) : load32_acquire((const void *)q.watch);
        rung = value != q.watch_last || q.again;
    }
    uint32_t todo = __ballot_sync(ALL, rung);
    if (todo == 0)
        return;
    if (!e.a.is_virtual && lane == 0)
        e.w.now_ps = (clock_ns() - e.a.first_ns) * PS_PER_NS;
    uint64_t tail = 0; // this lane's QP's
    for (; todo; todo &= todo - 1) {
        const uint32_t b = __ffs(todo) - 1;
        gpu_qp &q = mine.at(first + b);
        const uint64_t seen = __shfl_sync(ALL, value, b);
        if (lane == 0) {
            q.watch_last = seen;
            q.again = 0;
        }
        __syncwarp();
        const bool again = serve(e, q, seen);
        if (lane == b)
            tail = e.w.tail;
        __syncwarp();
        if (lane == 0) {
            q.again = again;
            e.w.tail = 0;
        }
        __syncwarp();
    }
    if (__ballot_sync(ALL, tail != 0) == 0)
        return;
    clean(e);
    if (tail) {
        const gpu_qp &q = mine.at(k);
        store64((void *)(q.cqe + 56), tail);
        store64(&e.a.cqs[q.cq].prod, q.prod);
    }
    __syncwarp();
}

// Virtual time: passes until one finds nothing, then to the next deadline.
__device__ bool step_on(engine e, const share &mine) {
    __syncwarp();
    const bool worked = e.w.work != 0;
    uint64_t next = ~0ull;
    if (!worked && e.a.timed)
        for (uint32_t k = 0; k < mine.count; k++) {
            const uint64_t one = next_ps(e, mine.at(k));
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

__device__ void run(engine e, const share &mine) {
    gpu_board *board = e.a.board;
    for (;;) {
        const uint32_t leave = load32(&board->leave);
        const uint32_t open = lane_id() < 4 ? load32(&board->open[lane_id()]) : 0;
        for (uint32_t first = 0; first < mine.count; first += 32)
            scan(e, mine, first);
        if (e.a.is_virtual) {
            if (!step_on(e, mine))
                return;
            continue;
        }
        if (__ballot_sync(ALL, open != 0))
            help(board);
        if (leave)
            return;
    }
}

} // namespace

extern __shared__ uint64_t softnic_shared[];

__global__ void __launch_bounds__(THREADS_MAX, 1) softnic_engine(const __grid_constant__ gpu_args a) {
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
    if (warp == a.warps) {
        if (blockIdx.x == 0 && !a.is_virtual)
            watch_host(a);
        return;
    }
    share mine;
    mine.qps = qps + warp;
    mine.first = first;
    mine.stride = stride;
    mine.step = a.warps;
    mine.count = first < a.qp_count ? (a.qp_count - first + stride - 1) / stride : 0;
    gpu_warp &w = warps[warp];
    if (lane_id() == 0) {
        w.now_ps = a.now_ps;
        w.tail = 0;
        w.dirty = w.work = 0;
        w.index = first;
    }
    __syncwarp();
    load_share(a, mine);
    const engine e{a, a.keys_shared ? keys : a.keys, w};
    run(e, mine);
    store_share(a, mine);
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
    softnic_engine<<<blocks, 32 * (args->warps + 1), shared_bytes, dev->stream>>>(*args);
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
