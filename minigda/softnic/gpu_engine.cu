// The CUDA half of softnic's GPU engine: the kernel, and the device as gpu.c uses it.
#include "gpu_kernel.cuh"
#include "gpu_share.cuh"

#include <new>

using namespace softnic_gpu;

namespace {

// Of the 128 that an SM has for each of 512 threads: the rest is for kernels under test that share it.
constexpr uint32_t REGISTERS = 80;

} // namespace

extern __shared__ __align__(16) uint64_t softnic_shared[];

__global__ void __maxnreg__(REGISTERS) softnic_engine(const __grid_constant__ gpu_args a) {
    engine_block(a, softnic_shared);
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

// The calling thread's device is the caller's affair, and so is a stream that another thread is just capturing: what is done
// here has nothing to do with it and must not end it.
class On {
  public:
    explicit On(int device) {
        cudaThreadExchangeStreamCaptureMode(&mode_);
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
        cudaThreadExchangeStreamCaptureMode(&mode_);
    }

  private:
    int before_ = -1;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
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

uint64_t dev_identity(gpu_dev *dev) {
    cudaDeviceProp prop;
    uint64_t id = 1;
    if (cudaGetDeviceProperties(&prop, dev->device) == cudaSuccess)
        memcpy(&id, prop.uuid.bytes + sizeof prop.uuid.bytes - sizeof id, sizeof id);
    (void)cudaGetLastError();
    return id | 1;
}

int dev_share(gpu_dev *dev, void *addr, size_t bytes, gpu_share *how_p, uint8_t handle[GPU_HANDLE],
              uint64_t *offset_p) {
    On on(dev->device);
    softnic_share::Range r;
    if (int status = softnic_share::range_of(addr, &r))
        return status;
    *offset_p = (uint64_t)addr - r.base;
    if (bytes > r.bytes - *offset_p)
        return softnic_fail(
            -EINVAL,
            "GPU engine: %zu bytes at %p go beyond their allocation of %zu bytes at 0x%llx: share each "
            "allocation by itself",
            bytes, addr, r.bytes, (unsigned long long)r.base);
    CUmemGenericAllocationHandle memory;
    if (softnic_share::is_mapped(addr, &memory)) {
        *how_p = GPU_SHARE_FD;
        const int status = softnic_share::share_mapped(r, memory, handle);
        softnic_share::driver().release(memory);
        return status;
    }
    static_assert(sizeof(cudaIpcMemHandle_t) == GPU_HANDLE, "a handle fits its place in the shared segment");
    cudaIpcMemHandle_t ipc;
    *how_p = GPU_SHARE_IPC;
    TRY(cudaIpcGetMemHandle(&ipc, addr)); // the allocation's, whatever addr is in it
    memcpy(handle, &ipc, sizeof ipc);
    return 0;
}
int dev_unshare(gpu_dev *, gpu_share how, const uint8_t handle[GPU_HANDLE]) {
    softnic_share::Descriptor d;
    memcpy(&d, handle, sizeof d);
    if (how == GPU_SHARE_FD)
        close(d.fd);
    return 0;
}
int dev_open_shared(gpu_dev *dev, gpu_share how, const uint8_t handle[GPU_HANDLE], void **base_p) {
    On on(dev->device);
    if (how == GPU_SHARE_FD)
        return softnic_share::open_mapped(handle, dev->device, base_p);
    cudaIpcMemHandle_t ipc;
    memcpy(&ipc, handle, sizeof ipc);
    TRY(cudaIpcOpenMemHandle(base_p, ipc, cudaIpcMemLazyEnablePeerAccess));
    return 0;
}
int dev_close_shared(gpu_dev *dev, gpu_share how, void *base) {
    On on(dev->device);
    if (how == GPU_SHARE_FD)
        return softnic_share::close_mapped(base);
    TRY(cudaIpcCloseMemHandle(base));
    return 0;
}
int dev_reach(gpu_dev *dev, const void *addr) {
    On on(dev->device);
    cudaPointerAttributes attr;
    TRY(cudaPointerGetAttributes(&attr, addr));
    if (attr.type != cudaMemoryTypeDevice || attr.device == dev->device)
        return 0;
    CUmemGenericAllocationHandle memory;
    if (softnic_share::is_mapped(addr, &memory)) { // which devices reach it is told range by range
        softnic_share::driver().release(memory);
        softnic_share::Range r;
        const int status = softnic_share::range_of(addr, &r);
        return status ? status : softnic_share::grant(r, dev->device);
    }
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

const gpu_ops ops = {
    dev_open,       dev_close,  dev_alloc,    dev_free,  dev_pinned,  dev_pinned_free, dev_host_map,
    dev_host_unmap, dev_where,  dev_identity, dev_share, dev_unshare, dev_open_shared, dev_close_shared,
    dev_reach,      dev_upload, dev_download, dev_fill,  dev_launch,  dev_done,        sizeof(gpu_warp)};

} // namespace

const gpu_ops *gpu_ops_linked(void) { return &ops; }
