// gic::Gpu over the CUDA runtime, which is linked statically: only the driver must be on the machine.
#include "backends/abi/cuda_check.h"

#include <cuda.h>

#include <map>

namespace gic {

namespace {

uint64_t now_ns() {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

// The number of "cuda:N".
int device_number(const char *device, int *number_p) {
    char *end = nullptr;
    if (strncmp(device, "cuda:", 5) != 0 || device[5] < '0' || device[5] > '9')
        return fail(-EINVAL, "device=%s: want host or cuda:N", device);
    *number_p = (int)strtol(device + 5, &end, 10);
    return *end ? fail(-EINVAL, "device=%s: want host or cuda:N", device) : 0;
}

// Through the driver's own entry point: the runtime has no such attribute.
bool under_mps(int device) {
    void *get = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &get, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    int value = 0;
    auto attribute = reinterpret_cast<CUresult (*)(int *, CUdevice_attribute, CUdevice)>(get);
    return attribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) == CUDA_SUCCESS && value != 0;
}

class CudaGpu final : public Gpu {
  public:
    int start(int number);
    ~CudaGpu() override;
    int map(void *addr, size_t bytes) override;
    int unmap(void *addr) override;
    int alloc(size_t bytes, void **addr_p) override;
    int free(void *addr) override;
    int upload(void *to, const void *from, size_t bytes) override;
    int download(void *to, const void *from, size_t bytes) override;
    int wait(const volatile uint32_t *stop, uint64_t grace_ns) override;

  private:
    std::map<void *, size_t> maps_, blocks_;
};

int CudaGpu::start(int number) {
    GIC_CUDA(cudaSetDevice(number));
    cudaDeviceProp prop;
    GIC_CUDA(cudaGetDeviceProperties(&prop, number));
    name_ = prop.name;
    uuid_.assign(prop.uuid.bytes, sizeof prop.uuid.bytes);
    multiprocessors_ = (uint32_t)prop.multiProcessorCount;
    mps_ = under_mps(number);
    cudaStream_t stream;
    GIC_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = stream;
    // What was freed stays in the pool: giving it back to the device may wait as cudaFree does.
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    GIC_CUDA(cudaDeviceGetDefaultMemPool(&pool, number));
    GIC_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    GIC_CUDA(cudaHostAlloc((void **)&stop_, 64, cudaHostAllocPortable | cudaHostAllocMapped));
    *stop_ = 0;
    return 0;
}

// A failure here has nobody to tell: the process is about to drop the device anyhow.
CudaGpu::~CudaGpu() {
    for (auto &m : maps_)
        cudaHostUnregister(m.first);
    for (auto &b : blocks_)
        cudaFreeAsync(b.first, (cudaStream_t)stream_);
    if (stop_)
        cudaFreeHost(stop_);
    if (stream_)
        cudaStreamDestroy((cudaStream_t)stream_);
}

int CudaGpu::map(void *addr, size_t bytes) {
    GIC_CUDA(cudaHostRegister(addr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    maps_[addr] = bytes;
    void *seen = nullptr;
    GIC_CUDA(cudaHostGetDevicePointer(&seen, addr, 0));
    // Work requests name memory by the address that the NIC knows, and kernels build them.
    if (seen != addr)
        return fail(-ENOTSUP, "host memory at %p is at %p for %s: want one address for both", addr, seen,
                    name_.c_str());
    return 0;
}

int CudaGpu::unmap(void *addr) {
    if (maps_.erase(addr))
        GIC_CUDA(cudaHostUnregister(addr));
    return 0;
}

// In the stream's order, since cudaFree waits for all kernels of the device: softnic's, which runs around a launch, would
// never let it return.
int CudaGpu::alloc(size_t bytes, void **addr_p) {
    const size_t size = bytes ? bytes : 1;
    void *addr = nullptr;
    GIC_CUDA(cudaMallocAsync(&addr, size, (cudaStream_t)stream_));
    blocks_[addr] = size;
    GIC_CUDA(cudaMemsetAsync(addr, 0, size, (cudaStream_t)stream_));
    *addr_p = addr;
    return 0;
}

int CudaGpu::free(void *addr) {
    if (blocks_.erase(addr))
        GIC_CUDA(cudaFreeAsync(addr, (cudaStream_t)stream_));
    return 0;
}

int CudaGpu::upload(void *to, const void *from, size_t bytes) {
    GIC_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream_));
    GIC_CUDA(cudaStreamSynchronize((cudaStream_t)stream_));
    return 0;
}

int CudaGpu::download(void *to, const void *from, size_t bytes) {
    GIC_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream_));
    GIC_CUDA(cudaStreamSynchronize((cudaStream_t)stream_));
    return 0;
}

int CudaGpu::wait(const volatile uint32_t *stop, uint64_t grace_ns) {
    const struct timespec nap = {0, 20000};
    uint64_t stopped = 0;
    for (;;) {
        const cudaError_t e = cudaStreamQuery((cudaStream_t)stream_);
        if (e != cudaErrorNotReady)
            return e == cudaSuccess ? 0 : cuda_failed(e, "kernel", __FILE__, __LINE__);
        if (stop && *stop) {
            __atomic_store_n(stop_, 1u, __ATOMIC_RELEASE);
            const uint64_t now = now_ns();
            if (stopped == 0)
                stopped = now;
            if (now - stopped > grace_ns)
                return fail(-ETIMEDOUT, "the kernel did not end within %llu ms of being stopped",
                            (unsigned long long)(grace_ns / 1000000));
        }
        nanosleep(&nap, nullptr);
    }
}

} // namespace

bool Gpu::built() { return true; }

int Gpu::open(const char *device, std::unique_ptr<Gpu> *gpu_p) {
    int number = 0, count = 0;
    if (int rc = device_number(device, &number))
        return rc;
    GIC_CUDA(cudaGetDeviceCount(&count));
    if (number >= count)
        return fail(-ENOTSUP, "device=%s: the driver shows %d devices", device, count);
    auto gpu = std::make_unique<CudaGpu>();
    if (int rc = gpu->start(number))
        return rc;
    *gpu_p = std::move(gpu);
    return 0;
}

} // namespace gic
