// gin_memory.h on CUDA. The driver's entry points come through the runtime, which is linked statically: only the driver
// must be on the machine.
#include "backends/ncclgin/gin_memory.h"

#include "backends/abi/cuda_check.h"

#include <cuda.h>

#include <map>

#include <unistd.h>

namespace ncclgin {

namespace {

struct Driver {
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) unreserve;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) set_access;
    decltype(&cuMemRetainAllocationHandle) retain;
    decltype(&cuMemGetAllocationPropertiesFromHandle) properties;
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuMemGetAddressRange) range;
    decltype(&cuMemExportToShareableHandle) export_handle;
    decltype(&cuMemImportFromShareableHandle) import_handle;
    decltype(&cuDeviceGetAttribute) attribute;
    decltype(&cuGetErrorString) error;
};

template <class F> int look_up(const char *name, F *function_p) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    GIC_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess)
        return gic::fail(-ENOTSUP, "the driver has no %s", name);
    *function_p = reinterpret_cast<F>(found);
    return 0;
}

int look_up_all(Driver *d) {
    int rc = 0;
    auto get = [&rc](const char *name, auto *p) { rc = rc ? rc : look_up(name, p); };
    get("cuMemCreate", &d->create);
    get("cuMemRelease", &d->release);
    get("cuMemAddressReserve", &d->reserve);
    get("cuMemAddressFree", &d->unreserve);
    get("cuMemMap", &d->map);
    get("cuMemUnmap", &d->unmap);
    get("cuMemSetAccess", &d->set_access);
    get("cuMemRetainAllocationHandle", &d->retain);
    get("cuMemGetAllocationPropertiesFromHandle", &d->properties);
    get("cuMemGetAllocationGranularity", &d->granularity);
    get("cuMemGetAddressRange", &d->range);
    get("cuMemExportToShareableHandle", &d->export_handle);
    get("cuMemImportFromShareableHandle", &d->import_handle);
    get("cuDeviceGetAttribute", &d->attribute);
    get("cuGetErrorString", &d->error);
    return rc;
}

class CudaMemory final : public Memory {
  public:
    int start(const char *device);
    ~CudaMemory() override;
    int enter() override;
    int create(size_t bytes, Place place, Region *region_p) override;
    int adopt(void *addr, size_t bytes, Region *region_p) override;
    int export_fd(const Region &region, int *fd_p) override;
    int import(int fd, const Region &like, Region *region_p) override;
    int drop(Region *region) override;
    int store(uint64_t *word, uint64_t value) override;

  private:
    int failed(CUresult result, const char *call) const {
        const char *text = nullptr;
        driver_.error(result, &text);
        return gic::fail(result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO, "%s: CUDA error %d, %s", call,
                         (int)result, text ? text : "unknown");
    }
    CUmemAllocationProp properties(Place place) const;
    int map(Region *r);

    Driver driver_{};
    std::map<void *, Region> made_; // of create(), by mapping
    int device_ = 0, numa_ = 0;
    cudaStream_t stream_ = nullptr;
};

#define DRIVER(call)                                                                                         \
    do {                                                                                                     \
        const CUresult result_ = driver_.call;                                                               \
        if (result_ != CUDA_SUCCESS)                                                                         \
            return failed(result_, #call);                                                                   \
    } while (0)

int CudaMemory::start(const char *device) {
    if (sscanf(device, "cuda:%d", &device_) != 1)
        return gic::fail(-ENOTSUP, "device=%s: NCCL's device code runs on CUDA devices; want cuda:N", device);
    GIC_CUDA(cudaSetDevice(device_));
    GIC_CUDA(cudaFree(nullptr)); // makes the context
    if (int rc = look_up_all(&driver_))
        return rc;
    DRIVER(attribute(&numa_, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_));
    if (numa_ < 0)
        numa_ = 0;
    GIC_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    return 0;
}

CudaMemory::~CudaMemory() {
    if (stream_)
        cudaStreamDestroy(stream_);
}

int CudaMemory::enter() {
    GIC_CUDA(cudaSetDevice(device_));
    return 0;
}

CUmemAllocationProp CudaMemory::properties(Place place) const {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location.type = place == Place::GPU ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
    p.location.id = place == Place::GPU ? device_ : numa_;
    return p;
}

// Maps r->mapping_bytes of r->handle for this device, and for the processor where it is host memory.
int CudaMemory::map(Region *r) {
    CUdeviceptr at = 0;
    DRIVER(reserve(&at, r->mapping_bytes, (size_t)2 << 20, 0, 0));
    CUresult result = driver_.map(at, r->mapping_bytes, 0, r->handle, 0);
    if (result != CUDA_SUCCESS) {
        driver_.unreserve(at, r->mapping_bytes);
        return failed(result, "cuMemMap");
    }
    CUmemAccessDesc access[2] = {};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {numa_}};
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver_.set_access(at, r->mapping_bytes, access, r->place == Place::HOST ? 2 : 1);
    if (result != CUDA_SUCCESS) {
        driver_.unmap(at, r->mapping_bytes);
        driver_.unreserve(at, r->mapping_bytes);
        return failed(result, "cuMemSetAccess");
    }
    r->mapping = (void *)at;
    r->addr = (uint8_t *)r->mapping + r->offset;
    return 0;
}

int CudaMemory::create(size_t bytes, Place place, Region *region_p) {
    const CUmemAllocationProp prop = properties(place);
    size_t granule = 0;
    DRIVER(granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    // Whole device granules also in host memory: NCCL lays windows out in steps of them.
    if (granule < (size_t)2 << 20)
        granule = (size_t)2 << 20;
    Region r;
    r.place = place;
    r.bytes = bytes;
    r.mapping_bytes = (bytes + granule - 1) / granule * granule;
    CUmemGenericAllocationHandle handle = 0;
    DRIVER(create(&handle, r.mapping_bytes, &prop, 0));
    r.handle = handle;
    if (int rc = map(&r)) {
        driver_.release(handle);
        return rc;
    }
    made_[r.mapping] = *region_p = r;
    if (place == Place::HOST) {
        memset(r.mapping, 0, r.mapping_bytes);
        return 0;
    }
    GIC_CUDA(cudaMemsetAsync(r.mapping, 0, r.mapping_bytes, stream_));
    GIC_CUDA(cudaStreamSynchronize(stream_));
    return 0;
}

// What the driver tells of host memory by its address is not much: NCCL fails on it.
int CudaMemory::adopt(void *addr, size_t bytes, Region *region_p) {
    Region r;
    auto made = made_.upper_bound(addr);
    if (made != made_.begin()) {
        r = (--made)->second;
        r.offset = (size_t)((uint8_t *)addr - (uint8_t *)r.mapping);
        if (r.offset < r.mapping_bytes && bytes <= r.mapping_bytes - r.offset) {
            r.addr = addr;
            r.bytes = bytes;
            r.borrowed = true;
            *region_p = r;
            return 0;
        }
    }
    r = Region();
    r.addr = addr;
    r.bytes = bytes;
    CUmemGenericAllocationHandle handle = 0;
    if (driver_.retain(&handle, addr) != CUDA_SUCCESS) {
        cudaPointerAttributes a;
        GIC_CUDA(cudaPointerGetAttributes(&a, addr));
        r.place =
            a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ? Place::GPU : Place::HOST;
        *region_p = r;
        return 0;
    }
    r.handle = handle;
    CUmemAllocationProp prop = {};
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result = driver_.properties(&prop, handle);
    if (result == CUDA_SUCCESS)
        result = driver_.range(&base, &size, (CUdeviceptr)addr);
    if (result != CUDA_SUCCESS) {
        driver_.release(handle);
        return failed(result, "look at a window's memory");
    }
    r.place = prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Place::GPU : Place::HOST;
    r.mapping_bytes = size;
    r.offset = (CUdeviceptr)addr - base;
    if (r.offset > size || bytes > size - r.offset) {
        driver_.release(handle);
        return gic::fail(-EINVAL, "%zu bytes at %p reach over the end of their allocation", bytes, addr);
    }
    // NCCL's mapping of host memory may be for the device alone.
    if (int rc = r.place == Place::HOST ? map(&r) : 0) {
        driver_.release(handle);
        return rc;
    }
    *region_p = r;
    return 0;
}

int CudaMemory::export_fd(const Region &region, int *fd_p) {
    *fd_p = -1;
    if (!region.handle)
        return 0;
    CUmemAllocationProp prop = {};
    DRIVER(properties(&prop, region.handle));
    if (!(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return 0;
    DRIVER(export_handle(fd_p, region.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return 0;
}

int CudaMemory::import(int fd, const Region &like, Region *region_p) {
    Region r = like;
    r.addr = r.mapping = nullptr;
    CUmemGenericAllocationHandle handle = 0;
    DRIVER(import_handle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    r.handle = handle;
    if (int rc = map(&r)) {
        driver_.release(handle);
        return rc;
    }
    *region_p = r;
    return 0;
}

int CudaMemory::drop(Region *r) {
    const Region was = *r;
    *r = Region();
    if (was.borrowed)
        return 0;
    made_.erase(was.mapping);
    if (was.mapping) {
        DRIVER(unmap((CUdeviceptr)was.mapping, was.mapping_bytes));
        DRIVER(unreserve((CUdeviceptr)was.mapping, was.mapping_bytes));
    }
    if (was.handle)
        DRIVER(release(was.handle));
    return 0;
}

// By a copy engine: a kernel of ours might find no room beside those that wait for the word.
int CudaMemory::store(uint64_t *word, uint64_t value) {
    GIC_CUDA(cudaMemcpyAsync(word, &value, sizeof value, cudaMemcpyDefault, stream_));
    GIC_CUDA(cudaStreamSynchronize(stream_));
    return 0;
}

} // namespace

int Memory::open(const char *device, std::unique_ptr<Memory> *memory_p) {
    auto memory = std::make_unique<CudaMemory>();
    if (int rc = memory->start(device))
        return rc;
    *memory_p = std::move(memory);
    return 0;
}

} // namespace ncclgin
